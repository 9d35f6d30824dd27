"""Bags: granular's format under its own names, `import logloom.io.bags as granular`, and what pipelines need.

A dataset is a folder of bags, one for each key; rows of blocks are datapoints of such a dataset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from logloom.extras import imported_on_use
from logloom.io.bags.bag import BagReader, BagWriter
from logloom.io.bags.codecs import decoders, encoders
from logloom.io.bags.dataset_reader import DatasetReader
from logloom.io.bags.dataset_writer import DatasetWriter
from logloom.io.bags.sharded import ShardedDatasetReader, ShardedDatasetWriter

if TYPE_CHECKING:
    from logloom.datasets.loader import Loader
    from logloom.io.bags.beam import ReadFromBags, WriteToBags
    from logloom.io.bags.row_reader import BagsReader
    from logloom.io.bags.row_writer import BagsWriter

__all__ = [
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
    "logloom.datasets.loader": ["Loader"],
    "logloom.io.bags.beam": ["ReadFromBags", "WriteToBags"],
    "logloom.io.bags.row_reader": ["BagsReader"],
    "logloom.io.bags.row_writer": ["BagsWriter"],
}

__getattr__ = imported_on_use(__name__, _LAZY)
