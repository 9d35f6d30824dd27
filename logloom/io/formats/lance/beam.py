"""Lance tables in Beam: `ReadFromLance`, whose elements are blocks.

Elsewhere: the implementation that formats share (logloom.io.beam).
"""

from logloom.io.beam.read import ReadDataset
from logloom.io.formats.lance.format import FORMAT


class ReadFromLance(ReadDataset):
    """Reads the rows of Lance tables as blocks."""

    form = FORMAT
