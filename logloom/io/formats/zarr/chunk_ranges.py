"""Which entries of which chunks make up some ranges of an array.

Here: pure functions over numpy arrays.
Elsewhere: reading the chunks (array_reader), how they are laid out (layout).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class ChunkPieces(NamedTuple):
    """Parts of chunks, by ascending chunk. All (p,) int64.

    Attributes:
        chunk: its number in the array.
        source: the first entry, counted within the chunk.
        target: where that one goes in the result.
        length: entries.
    """

    chunk: NDArray[np.int64]
    source: NDArray[np.int64]
    target: NDArray[np.int64]
    length: NDArray[np.int64]


def cut(starts: NDArray[np.int64], stops: NDArray[np.int64], chunk: int) -> ChunkPieces:
    """Cuts ranges of entries at the edges of chunks.

    Args:
        starts, stops: (n,) the ranges, whose entries lie end to end in the result.
        chunk: entries of a chunk.
    """
    lengths = stops - starts
    first = starts // chunk
    parts = np.where(lengths > 0, (stops - 1) // chunk + 1 - first, 0)
    ends, bases = np.cumsum(parts), np.cumsum(lengths) - lengths
    owner = np.repeat(np.arange(len(starts)), parts)
    number = np.arange(len(owner)) - (ends - parts)[owner] + first[owner]
    low = np.maximum(starts[owner], number * chunk)
    high = np.minimum(stops[owner], (number + 1) * chunk)
    pieces = ChunkPieces(number, low - number * chunk, bases[owner] + low - starts[owner], high - low)
    if (number[1:] >= number[:-1]).all():
        return pieces
    order = np.argsort(number, kind="stable")
    return ChunkPieces(*(part[order] for part in pieces))


def runs(offsets: NDArray[np.int64], sizes: NDArray[np.int64], gap: int, most: int) -> NDArray[np.int64]:
    """Bounds of runs of byte ranges that are best read together, (r + 1,).

    Args:
        gap: unwanted bytes between two ranges that cost less to read than another request.
        most: about how many bytes to read together.
    """
    between = offsets[1:] - (offsets[:-1] + sizes[:-1])
    breaks = (between < 0) | (between > gap)
    steps = (offsets - offsets[0]) // most
    breaks |= steps[1:] != steps[:-1]
    return np.concatenate([[0], np.flatnonzero(breaks) + 1, [len(offsets)]])
