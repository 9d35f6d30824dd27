"""Digests and statistics of rows as they pass, written or read.

Elsewhere: digests (logloom.digests), statistics (logloom.statistics).
"""

from __future__ import annotations

from collections.abc import Callable

from logloom.blocks import Block
from logloom.digests import RowsDigest
from logloom.io.storage.step_times import step


def digested(digests: RowsDigest, count: Callable[[Block], object] | None, block: Block) -> Block:
    """Takes the block's rows into digests of columns and, where asked, into statistics; gives it back."""
    with step("hash columns", block.nbytes):
        digests.update(block)
    if count is not None:
        with step("count statistics", block.nbytes):
            count(block)
    return block
