"""Bundles: neighbouring partitions, or their results, as one element of an engine.

An engine keeps objects of its own around each element, up to several kB, which would dominate the memory of
very many small partitions. Large partitions, and those of small plans, are elements of their own.

Here: the size of bundles, and their bytes in a shuffle.
Elsewhere: partitions and their results (logloom.transforms.build.partition_results).
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

_ENOUGH = 2000  # elements that a thousand workers can share
_MOST = 64  # partitions in a bundle: a worker that is lost costs no more than these
_MOST_BYTES = 512 << 20

T = TypeVar("T")


def bundle_size(num_partitions: int) -> int:
    """How many partitions of a log go together at most, in a plan of this many."""
    return min(max(num_partitions // _ENOUGH, 1), _MOST)


def bundled(partitions: Iterable[T], sizes: Iterable[int], most: int) -> Iterator[list[T]]:
    """Cuts a log's partitions into bundles, in their order.

    Args:
        sizes: bytes of each; together at most 512 MiB, unless one alone has more.
        most: how many go together.
    """
    bundle: list[T] = []
    total = 0
    for one, size in zip(partitions, sizes, strict=True):
        if bundle and (len(bundle) == most or total + size > _MOST_BYTES):
            yield bundle
            bundle, total = [], 0
        bundle.append(one)
        total += size
    if bundle:
        yield bundle


def packed(bundle: Sequence[Any]) -> bytes:
    """As bytes, for shuffles: engines hold many at a time, and as objects they take several times as much."""
    return zlib.compress(pickle.dumps(bundle))


def unpacked(data: bytes) -> Any:
    """What `packed` was given, in another process of the same job."""
    return pickle.loads(zlib.decompress(data))  # nosec B301 # of the same job
