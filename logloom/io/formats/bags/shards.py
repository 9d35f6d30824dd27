"""Sharded datasets of bags: the numbered folders of one root, as one dataset.

Here: `ShardedDatasetWriter` and `ShardedDatasetReader`, of folders 000000, 000001, …, each a dataset of bags
of the library granular (not ROS bags).
Elsewhere: one such folder (logloom.io.formats.bags.dataset_writer, dataset_reader).
"""

from __future__ import annotations

import bisect
import itertools
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from logloom.blocks import Array
from logloom.errors import DatasetError, UsageError
from logloom.io.formats.bags.bag import Generation
from logloom.io.formats.bags.dataset_reader import DatasetReader, Mask
from logloom.io.formats.bags.dataset_writer import DatasetWriter
from logloom.io.formats.bags.files import ClosedAtEnd, open_folder
from logloom.io.formats.bags.limits import checked_range
from logloom.io.formats.bags.spec import Codecs, check_spec, codecs_for
from logloom.io.storage.threads import in_threads

_MAX_THREADS = 32


class ShardedDatasetWriter(ClosedAtEnd):
    """Writes datapoints into shard after shard; a complete shard appears when it is full.

    Several writers may share a root when each has a `shardstart` of its own and all have one `shardstep`:
    unfinished shards are kept outside the root, since readers open everything in it.
    """

    def __init__(
        self,
        directory: Any,
        spec: Mapping[str, str],
        encoders: Codecs,
        shardlen: int | None = None,
        shardstart: int = 0,
        shardstep: int = 1,
        *,
        generation: Generation = 1,
        storage_options: Mapping[str, Any] | None = None,
    ):
        """
        Args:
            directory: the root: a path, URI or path-like object.
            spec, encoders, generation: of each shard, as for `DatasetWriter`.
            shardlen: datapoints in a shard; None puts all into one.
            shardstart: number of the first shard.
            shardstep: from a shard's number to the next.
            storage_options: fsspec options by protocol: {"gs": {"token": "anon"}}.

        Raises:
            UsageError: the numbers or the spec are invalid.
        """
        if shardstart < 0 or shardstep < 1 or (shardlen is not None and shardlen < 1):
            raise UsageError(
                f"shardlen={shardlen}, shardstart={shardstart}, shardstep={shardstep}: out of range"
            )
        if shardlen is None and (shardstart or shardstep > 1):
            raise UsageError("shardstart and shardstep need a shardlen, else all datapoints are one shard")
        self._root = open_folder(directory, storage_options)
        self._spec = check_spec(spec, self._root.name)
        codecs_for(self._spec, encoders, "encoder", self._root.name)
        self._arguments = (self._spec, encoders, generation)
        self._shardlen, self._next, self._step = shardlen, shardstart, shardstep
        self._writer: DatasetWriter | None = None
        self._shards = self._length = self._size = 0
        self.closed = False
        self._root.make()

    @property
    def spec(self) -> dict[str, str]:
        return self._spec

    @property
    def shards(self) -> int:
        """Number of shards begun."""
        return self._shards + (self._writer is not None)

    @property
    def size(self) -> int:
        """Bytes of all bags, their tables included."""
        return self._size + (self._writer.size if self._writer is not None else 0)

    def __len__(self) -> int:
        return self._length + (len(self._writer) if self._writer is not None else 0)

    def append(self, datapoint: Mapping[str, Any], flush: bool = True) -> int:
        """Add a datapoint and return its number among those of this writer; see `DatasetWriter.append`."""
        if self.closed:
            raise UsageError(f"{self._root.name}: the writer is closed")
        if self._writer is None:
            spec, encoders, generation = self._arguments
            folder = self._root.child(f"{self._next:06d}")
            self._writer = DatasetWriter(folder, spec, encoders, generation=generation, beside=self._root)
        self._writer.append(datapoint, flush)
        number = len(self) - 1
        if self._shardlen is not None and len(self._writer) >= self._shardlen:
            self._finish_shard()
        return number

    def flush(self) -> None:
        """Hands everything to the operating system."""
        if self._writer is not None:
            self._writer.flush()

    def close(self) -> None:
        """Finishes the last shard."""
        self.closed = True
        self._finish_shard()

    def _finish_shard(self) -> None:
        if self._writer is not None:
            writer, self._writer = self._writer, None
            self._size += writer.size
            self._length += len(writer)
            self._shards += 1
            self._next += self._step
            writer.close()

    def _abandon(self) -> None:
        if self._writer is None:
            self.close()
            return
        self.closed = True
        self._writer._abandon()
        self._writer = None


class ShardedDatasetReader(ClosedAtEnd):
    """The datapoints of all shards of a root, or of every `shardstep`-th, in order.

    Opens, pickles and serves threads as `DatasetReader` does.
    """

    def __init__(
        self,
        directory: Any,
        decoders: Codecs,
        cache_index: bool = True,
        cache_keys: Sequence[str] = (),
        parallel: bool = False,
        shardstart: int = 0,
        shardstep: int = 1,
        *,
        storage_options: Mapping[str, Any] | None = None,
    ):
        """
        Args:
            directory: the root: a path, URI or path-like object.
            decoders, cache_index, cache_keys, parallel: as for `DatasetReader`.
            shardstart: number of the first shard to read.
            shardstep: from a shard's number to the next.
            storage_options: fsspec options by protocol: {"gs": {"token": "anon"}}.

        Raises:
            DatasetError: the root contains anything but shards numbered from 0, or their specs differ.
            UsageError: no shard is left to read.
        """
        if shardstart < 0 or shardstep < 1:
            raise UsageError(f"shardstart={shardstart}, shardstep={shardstep}: out of range")
        root = open_folder(directory, storage_options)
        names = root.names()
        expected = [f"{number:06d}" for number in range(len(names))]
        if names != expected:
            odd = next(name for name, right in zip(names, expected, strict=True) if name != right)
            raise DatasetError(
                f"{root.name}: {odd!r} is no shard, or one before it is missing; a root contains folders "
                "000000, 000001, … and nothing else"
            )
        selected = names[shardstart::shardstep]
        if not selected:
            raise UsageError(
                f"{root.name}: {len(names)} shards, none from {shardstart} in steps of {shardstep}"
            )

        def open_shard(name: str) -> DatasetReader:
            return DatasetReader(root.child(name), decoders, cache_index, cache_keys, parallel)

        if parallel:
            self.readers = in_threads(open_shard, selected, _MAX_THREADS)
        else:
            self.readers = [open_shard(name) for name in selected]
        self.closed = False
        self._name = root.name
        self._check_specs(selected)
        self._bounds = [0, *itertools.accumulate(len(reader) for reader in self.readers)]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "closed": False}

    def _check_specs(self, names: Sequence[str]) -> None:
        for name, reader in zip(names, self.readers, strict=True):
            if reader.spec != self.spec:
                raise DatasetError(f"{self._name}: shard {name} has another spec than {names[0]}")

    @property
    def spec(self) -> dict[str, str]:
        return self.readers[0].spec

    @property
    def size(self) -> int:
        """Bytes of all bags, their tables included."""
        return sum(reader.size for reader in self.readers)

    @property
    def shards(self) -> int:
        return len(self.readers)

    def __len__(self) -> int:
        return self._bounds[-1]

    def available(self, index: int) -> dict[str, bool | range]:
        """Return what a mask of this datapoint may select.

        Args:
            index: of the datapoint.
        """
        reader, number = self._locate(index)
        return reader.available(number)

    def __getitem__(self, index: Any) -> dict[str, Any]:
        """A datapoint, or a range of them as a dict of lists, masked or not; see `DatasetReader`."""
        mask: Mask | None = None
        if isinstance(index, tuple):
            index, mask = index
        if not isinstance(index, slice | range):
            reader, number = self._locate(index)
            return reader[number, mask] if mask is not None else reader[number]
        start, stop = checked_range(index, len(self))
        first = min(bisect.bisect_right(self._bounds, start) - 1, len(self.readers) - 1)
        columns: dict[str, list[Any]] = {}
        for reader, begin, end in zip(
            self.readers[first:], self._bounds[first:-1], self._bounds[first + 1 :], strict=True
        ):
            part = range(max(start, begin) - begin, min(stop, end) - begin)
            for key, values in reader[part, mask].items():
                columns.setdefault(key, []).extend(values)
            if stop <= end:
                break
        return columns

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        """Read many datapoints, for loaders."""
        return [self[index] for index in indices]

    def get_many(self, indices: Any, out: Mapping[str, Array]) -> dict[str, Array]:
        """Read many datapoints into arrays; see `DatasetReader.get_many`."""
        for row, index in enumerate(np.asarray(indices).tolist()):
            reader, number = self._locate(index)
            part = {key: target[row : row + 1] for key, target in out.items()}
            reader.get_many([number], part)
        return dict(out)

    def copy(self) -> ShardedDatasetReader:
        """A reader of the same shards that shares nothing with this one."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__getstate__(), readers=[reader.copy() for reader in self.readers])
        return other

    def close(self) -> None:
        self.closed = True
        for reader in self.readers:
            reader.close()

    def _locate(self, index: Any) -> tuple[DatasetReader, int]:
        number = operator.index(index)
        if not -len(self) <= number < len(self):
            raise IndexError(f"{self._name}: datapoint {number} of {len(self)}")
        number %= len(self)
        shard = bisect.bisect_right(self._bounds, number) - 1
        return self.readers[shard], number - self._bounds[shard]
