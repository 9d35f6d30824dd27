"""Data infos in one contiguous buffer, shared by workers instead of copied.

Here: pickling infos end to end, reading and choosing among them, passing the buffer to other processes.
Elsewhere: what infos are (dataset).
"""

from __future__ import annotations

import multiprocessing.context as contexts
import operator
import pickle
from collections.abc import Iterable, Sequence
from multiprocessing import reduction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logloom.datasets.loader.shared_memory import Segment
from logloom.io.formats.annotations.files import AnnotationError

Bytes = NDArray[np.uint8]
Ends = NDArray[np.int64]


def serialize(infos: Iterable[dict[str, Any]]) -> tuple[Bytes, Ends]:
    """Pickles infos end to end.

    Returns:
        (total,) bytes, and (N,) where each info ends.

    Raises:
        AnnotationError: an info nests too deeply.
    """
    buffer = bytearray()
    sizes: list[int] = []
    dumps = pickle.dumps
    for info in infos:
        try:
            data = dumps(info, 4)
        except RecursionError:
            raise AnnotationError(
                f"info {len(sizes)} nests too deeply to serialize; flatten it, or set serialize_data=False"
            ) from None
        sizes.append(len(data))
        buffer += data
    return np.frombuffer(buffer, np.uint8), np.cumsum(np.array(sizes, np.int64))


def info_at(data: Bytes, ends: Ends, index: int) -> Any:
    """Info `index`, within [0, N)."""
    start = ends[index - 1] if index else 0
    return pickle.loads(data[start : ends[index]].data)  # nosec B301 # `serialize` made it


def first_or_last(data: Bytes, ends: Ends, count: int) -> tuple[Bytes, Ends]:
    """The first `count` infos, or the last `-count`, as views.

    Raises:
        AssertionError: there are fewer.
    """
    if not -len(ends) <= count <= len(ends):
        raise AssertionError(f"{count} is out of dataset length({len(ends)})")
    if count >= 0:
        return data[: ends[count - 1] if count else 0], ends[:count]
    start = int(ends[count - 1]) if count > -len(ends) else 0
    return data[start:], ends[count:] - start


def chosen(data: Bytes, ends: Ends, indices: Sequence[int]) -> tuple[Bytes, Ends]:
    """The infos at `indices`, which may repeat and count from the end.

    Raises:
        AssertionError: there is no such info.
    """
    rows = np.fromiter((operator.index(index) for index in indices), np.int64, len(indices))
    wrong = (rows < -len(ends)) | (rows >= len(ends))
    if wrong.any():
        raise AssertionError(f"{rows[wrong][0]} is out of dataset length({len(ends)})")
    rows %= max(1, len(ends))
    starts = np.concatenate([[0], ends[:-1]])[rows] if len(rows) else rows
    stops = ends[rows]
    new = np.cumsum(stops - starts)
    found = np.empty(int(new[-1]) if len(new) else 0, np.uint8)
    for at, start, stop in zip(
        (new - (stops - starts)).tolist(), starts.tolist(), stops.tolist(), strict=True
    ):
        found[at : at + stop - start] = data[start:stop]
    return found, new


class SharedBytes:
    """A buffer in memory that a process being started is given by its descriptor, not as a copy."""

    def __init__(self, data: Bytes):
        """Moves bytes into shared memory."""
        self._segment = Segment(len(data))
        self._length = len(data)
        self._segment.memory()[: len(data)] = data

    @property
    def data(self) -> Bytes:
        return self._segment.memory()[: self._length]

    def __deepcopy__(self, memo: Any) -> SharedBytes:
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {"length": self._length, "descriptor": reduction.DupFd(self._segment.descriptor)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._length = state["length"]
        self._segment = Segment(self._length, state["descriptor"].detach())


def is_starting_a_process() -> bool:
    """Whether what is pickled now goes to a process that this one starts."""
    return contexts.get_spawning_popen() is not None
