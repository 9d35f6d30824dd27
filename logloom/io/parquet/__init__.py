"""Plain Parquet files, a row of a dataset in each of theirs: `ParquetWriter` and `ParquetReader`."""

from logloom.io.parquet.reader import ParquetReader
from logloom.io.parquet.writer import ParquetWriter

__all__ = ["ParquetReader", "ParquetWriter"]
