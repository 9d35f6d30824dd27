"""Bags: an implementation of granular's format with the same public names.

As granular: `import logloom.io.formats.bags as granular`.

A dataset is a folder of bags, one for each key; rows of blocks are datapoints of such a dataset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from logloom.extras import imported_on_use
from logloom.io.formats.bags.bag import BagReader, BagWriter
from logloom.io.formats.bags.codecs import decoders, encoders
from logloom.io.formats.bags.dataset_reader import DatasetReader
from logloom.io.formats.bags.dataset_writer import DatasetWriter
from logloom.io.formats.bags.shards import ShardedDatasetReader, ShardedDatasetWriter

if TYPE_CHECKING:
    from logloom.datasets.loader.loader import Loader
    from logloom.io.formats.bags.beam import ReadFromBags, WriteToBags
    from logloom.io.formats.bags.format import FORMAT
    from logloom.io.formats.bags.row_reader import BagsReader
    from logloom.io.formats.bags.row_writer import BagsWriter

__all__ = [
    "FORMAT",
    "BagReader",
    "BagWriter",
    "BagsReader",
    "BagsWriter",
    "DatasetReader",
    "DatasetWriter",
    "Loader",
    "ReadFromBags",
    "ShardedDatasetReader",
    "ShardedDatasetWriter",
    "WriteToBags",
    "decoders",
    "encoders",
]

_LAZY = {  # Beam, and what granular's users don't need
    "logloom.datasets.loader.loader": ["Loader"],
    "logloom.io.formats.bags.beam": ["ReadFromBags", "WriteToBags"],
    "logloom.io.formats.bags.format": ["FORMAT"],
    "logloom.io.formats.bags.row_reader": ["BagsReader"],
    "logloom.io.formats.bags.row_writer": ["BagsWriter"],
}

__getattr__ = imported_on_use(__name__, _LAZY)
