"""Plain Parquet files with a row for each row of a dataset: `ParquetWriter` and `ParquetReader`."""

from logloom.io.formats.parquet.reader import ParquetReader
from logloom.io.formats.parquet.writer import ParquetWriter

__all__ = ["ParquetReader", "ParquetWriter"]
