"""The index of a shard: offsets of its members, from one pass over headers.

Here: `ShardIndex` and how it is made; payloads are not read.
Elsewhere: the walk and its checks (members), reading values (reader).
"""

from __future__ import annotations

import contextlib
from array import array
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from logloom.io.formats.tar.members import Entry, TarCutShort, group, walk
from logloom.io.storage.files import File
from logloom.values import dataclass


@dataclass(frozen=True)
class ShardIndex:
    """The samples of one archive. Sample i has the members starts[i] to starts[i + 1].

    Attributes:
        keys: of the samples.
        layouts: the distinct lists of suffixes that samples have.
        layout: (N,) which of them each sample has.
        starts: (N + 1,) into offsets and sizes.
        offsets, sizes: (M,) bytes of each member.
    """

    keys: Sequence[str]
    layouts: Sequence[tuple[str, ...]]
    layout: NDArray[np.int64]
    starts: NDArray[np.int64]
    offsets: NDArray[np.int64]
    sizes: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.keys)


def index_of(source: File, allow_truncated: bool = False) -> ShardIndex:
    """Walks over a shard's headers.

    Args:
        allow_truncated: whether a shard that was cut short gives what is whole, instead of an error.

    Raises:
        DatasetError: the shard is damaged or holds members that are refused.
    """
    keys: list[str] = []
    layouts: dict[tuple[str, ...], int] = {}
    layout, starts, offsets, sizes = array("q"), array("q", [0]), array("q"), array("q")
    members = (
        (name, offset, (offset, size)) for name, offset, size in _whole(walk(_SourceCursor(source)), source)
    )
    with contextlib.suppress(*[TarCutShort] * allow_truncated):
        for key, sample in group(members, source.name):
            keys.append(key)
            layout.append(layouts.setdefault(tuple(sample), len(layouts)))
            places = sample.values()
            offsets.extend([offset for offset, _ in places])
            sizes.extend([size for _, size in places])
            starts.append(len(offsets))
    return ShardIndex(keys, list(layouts), *(np.array(a, np.int64) for a in (layout, starts, offsets, sizes)))


def _whole(entries: Iterator[Entry], source: File) -> Iterator[Entry]:
    for name, offset, size in entries:
        if offset + size > source.size:
            raise TarCutShort(
                f"{source.name}: at byte {offset}: {name} should contain {size} bytes, the "
                f"file ends after {source.size - offset}: it was cut short, copy it again"
            )
        yield name, offset, size


class _SourceCursor:
    """A cursor that reads headers only."""

    def __init__(self, source: File):
        self.name = source.name
        self.position = 0
        self._source = source

    def read(self, size: int) -> bytes:
        data = self._source.read_head(self.position, size)
        self.position += len(data)
        return data

    def skip_to(self, position: int) -> None:
        self.position = position  # beyond the end of a cut file nothing is read, which `walk` notices
