"""Memory that processes share.

Here: `SharedArray`, an array pickled by name; and what the Loader's batches are in: `Segment`, `BatchLayout`,
and `pack` and `unpack`, for columns whose values differ in size.
Elsewhere: the Loader itself (logloom.datasets.loader.loader).
"""

from __future__ import annotations

import contextlib
import math
import mmap
import os
import pickle
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from multiprocessing import shared_memory
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from logloom.blocks import Array

# Of each value of a row; None for axes that differ from row to row. Texts and bytes are objects.
Spec = Mapping[str, tuple[np.dtype[Any], tuple[int | None, ...]]]
_ALIGNMENT = 64
_INLINE_BYTES = 32 << 10


class SharedArray:
    """An array in shared memory that pickles as its name, so that other processes can fill it.

    Its creator must call `close`, or `result`, after which its last user frees it.
    """

    def __init__(self, shape: tuple[int, ...], dtype: DTypeLike, name: str | None = None):
        """
        Args:
            shape: of the array.
            dtype: of the array.
            name: of an array made elsewhere; None makes a new one, of zeros.
        """
        self.shape, self.dtype = tuple(shape), np.dtype(dtype)
        nbytes = max(1, math.prod(self.shape) * self.dtype.itemsize)
        if name is None:
            self._memory = shared_memory.SharedMemory(create=True, size=nbytes)
        else:
            self._memory = shared_memory.SharedMemory(name=name)
        self._array: Array | None = np.ndarray(self.shape, self.dtype, self._memory.buf)
        # Closing the mapping while the array is in use would pull the memory from under it.
        weakref.finalize(self._array, _close_quietly, self._memory)

    @property
    def array(self) -> Array:
        if self._array is None:
            raise ValueError("the shared array is closed")
        return self._array

    def result(self) -> Array:
        """Return the array, whose memory is freed once it is unused."""
        array = self.array
        weakref.finalize(array, _unlink_quietly, self._memory)
        return array

    def close(self) -> None:
        """Gives the memory back; processes that still use it may go on."""
        self._array = None
        _unlink_quietly(self._memory)

    def __reduce__(self) -> tuple[Any, ...]:
        return (SharedArray, (self.shape, self.dtype, self._memory.name))


def _close_quietly(memory: shared_memory.SharedMemory) -> None:
    with contextlib.suppress(BufferError):
        memory.close()


def _unlink_quietly(memory: shared_memory.SharedMemory) -> None:
    with contextlib.suppress(FileNotFoundError):
        memory.unlink()


def is_fixed(dtype: np.dtype[Any], shape: tuple[int | None, ...]) -> bool:
    """Whether all values of a key take equally many bytes."""
    return not dtype.hasobject and None not in shape


class BatchLayout:
    """Where each key's rows are in the memory of some batches: end to end, whichever batch they are of.

    Keys whose values differ in size are elsewhere.

    Attributes:
        nbytes: of the memory.
    """

    def __init__(self, spec: Spec, rows: int):
        self._rows = rows
        self._arrays: dict[str, tuple[int, int, tuple[int, ...], np.dtype[Any]]] = {}
        self.nbytes = 0
        for key, (dtype, axes) in spec.items():
            if not is_fixed(dtype, axes):
                continue
            shape = tuple(axis for axis in axes if axis is not None)
            size = math.prod(shape) * dtype.itemsize
            self._arrays[key] = (self.nbytes, size, shape, dtype)
            self.nbytes += -(-rows * size // _ALIGNMENT) * _ALIGNMENT

    def arrays(self, memory: Array, start: int = 0, stop: int | None = None) -> dict[str, Array]:
        """The arrays of rows [start, stop), by default of all: views of the memory, (nbytes,) uint8."""
        stop = self._rows if stop is None else stop
        return {
            key: memory[at + start * size : at + stop * size].view(dtype).reshape(stop - start, *shape)
            if size
            else np.empty((stop - start, *shape), dtype)
            for key, (at, size, shape, dtype) in self._arrays.items()
        }


class Segment:
    """Shared memory without a name: its descriptor is passed on, so a crash leaves nothing behind."""

    def __init__(self, nbytes: int, descriptor: int | None = None):
        """
        Args:
            descriptor: of a segment made elsewhere, which becomes this one's; None makes a new one.
        """
        self.nbytes = max(1, nbytes)
        if descriptor is None:
            descriptor = _anonymous_file()
            os.ftruncate(descriptor, self.nbytes)
        self.descriptor = descriptor
        self._map = mmap.mmap(descriptor, self.nbytes)

    def memory(self) -> Array:
        """(nbytes,) uint8, a new array each time, which lives as long as any view of it."""
        return np.frombuffer(self._map, np.uint8)

    def close(self) -> None:
        """Lets go; arrays that are still used keep the memory."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1
            with contextlib.suppress(BufferError):
                self._map.close()

    def __del__(self) -> None:
        if hasattr(self, "_map"):
            self.close()


class Packed(NamedTuple):
    """A value in a segment: a pickle, and behind it the buffers of its arrays.

    Attributes:
        nbytes: of the segment.
        spans: (start, stop) of the pickle and of each buffer.
    """

    nbytes: int
    spans: Sequence[tuple[int, int]]


def pack(value: Any) -> tuple[Packed, Segment] | None:
    """Put a value into memory of its own; None where it is so small that a pipe is quicker."""
    found: list[pickle.PickleBuffer] = []
    data = pickle.dumps(value, 5, buffer_callback=found.append)
    buffers = [memoryview(data), *(buffer.raw() for buffer in found)]
    if sum(buffer.nbytes for buffer in buffers) < _INLINE_BYTES:
        return None
    at, spans = 0, []
    for buffer in buffers:
        spans.append((at, at + buffer.nbytes))
        at += -(-buffer.nbytes // _ALIGNMENT) * _ALIGNMENT
    segment = Segment(at)
    memory = segment.memory()
    for (start, stop), buffer in zip(spans, buffers, strict=True):
        memory[start:stop] = np.frombuffer(buffer, np.uint8)
    return Packed(segment.nbytes, spans), segment


def unpack(packed: Packed, descriptor: int) -> Any:
    """The value in the segment of a descriptor, which is closed; its arrays stay in that memory."""
    segment = Segment(packed.nbytes, descriptor)
    memory = segment.memory()
    data, *buffers = (memory[start:stop] for start, stop in packed.spans)
    value = pickle.loads(data.data, buffers=buffers)  # nosec B301 # by our worker
    segment.close()
    return value


def _anonymous_file() -> int:
    if hasattr(os, "memfd_create"):
        # Not in /dev/shm, which is small in containers.
        return os.memfd_create("logloom-batch", os.MFD_CLOEXEC)
    descriptor, path = tempfile.mkstemp()
    os.unlink(path)
    return descriptor
