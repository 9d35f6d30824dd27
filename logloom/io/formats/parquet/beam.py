"""Parquet files in Beam: `ReadFromParquet`, whose elements are blocks.

Elsewhere: the implementation that formats share (logloom.io.beam).
"""

from logloom.io.beam.read import ReadDataset
from logloom.io.formats.parquet.format import FORMAT


class ReadFromParquet(ReadDataset):
    """Reads the rows of Parquet files as blocks."""

    form = FORMAT
