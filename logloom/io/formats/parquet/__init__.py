"""Plain Parquet files, a row of a dataset in each of theirs: `ParquetWriter` and `ParquetReader`."""

from logloom.io.formats.parquet.reader import ParquetReader
from logloom.io.formats.parquet.writer import ParquetWriter

__all__ = ["ParquetReader", "ParquetWriter"]
