"""Tar shards in the WebDataset convention, with their Beam transforms.

`TarWriter` writes them, `TarReader` reads them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from logloom.extras import imported_on_use

if TYPE_CHECKING:
    from logloom.io.formats.tar.beam import ReadFromTar, WriteToTar
    from logloom.io.formats.tar.format import FORMAT
    from logloom.io.formats.tar.reader import TarReader
    from logloom.io.formats.tar.writer import TarWriter

__all__ = ["FORMAT", "ReadFromTar", "TarReader", "TarWriter", "WriteToTar"]

_LAZY = {
    ".beam": ["ReadFromTar", "WriteToTar"],
    ".format": ["FORMAT"],
    ".reader": ["TarReader"],
    ".writer": ["TarWriter"],
}

__getattr__ = imported_on_use(__name__, _LAZY)
