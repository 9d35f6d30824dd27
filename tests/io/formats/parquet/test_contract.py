"""Parquet keeps what formats promise."""

from logloom.io.formats.parquet.format import ParquetFormat
from logloom.testing import FormatContract


class TestParquet(FormatContract):
    format = ParquetFormat()
    options = ParquetFormat.Options(images={"camera.front": "jpg"}, row_group_bytes=300)
