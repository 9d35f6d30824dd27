"""Plain Parquet files with a row for each row of a dataset.

`ParquetWriter` writes them, `ParquetReader` reads them.
"""

from typing import TYPE_CHECKING

from logloom.extras import imported_on_use
from logloom.io.formats.parquet.reader import ParquetReader
from logloom.io.formats.parquet.writer import ParquetWriter

if TYPE_CHECKING:
    from logloom.io.formats.parquet.beam import ReadFromParquet
    from logloom.io.formats.parquet.format import FORMAT

__all__ = ["FORMAT", "ParquetReader", "ParquetWriter", "ReadFromParquet"]

_LAZY = {".beam": ["ReadFromParquet"], ".format": ["FORMAT"]}

__getattr__ = imported_on_use(__name__, _LAZY)
