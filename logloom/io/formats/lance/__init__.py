"""Lance tables, a row of a dataset in each of theirs: `LanceWriter` and `LanceReader`. They need pylance."""

from logloom.io.formats.lance.reader import LanceReader
from logloom.io.formats.lance.writer import LanceWriter

__all__ = ["LanceReader", "LanceWriter"]
