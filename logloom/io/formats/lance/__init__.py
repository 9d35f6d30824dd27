"""Lance tables with a row for each row of a dataset: `LanceWriter` and `LanceReader`. They need pylance."""

from logloom.io.formats.lance.reader import LanceReader
from logloom.io.formats.lance.writer import LanceWriter

__all__ = ["LanceReader", "LanceWriter"]
