"""Batches of rows for training: shuffled, prefetched by worker processes, resumable at any batch.

Here: `Loader`, and `torch_dataset` around it.
Elsewhere: rows into arrays (logloom.datasets.filling), worker processes (logloom.datasets.workers), shared
memory (logloom.datasets.shared).

The order of rows is a function of (seed, step) alone: of position p, the epoch is p // n and the row
`np.random.default_rng([seed, epoch]).permutation(n)[p % n]`. All shards take turns, so `step`, the number of
rows that all of them took, says where everybody is.
"""

from __future__ import annotations

import collections
import functools
import itertools
import multiprocessing
import operator
import sys
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from logloom.batches import to_tensors
from logloom.blocks import Array
from logloom.datasets.dataset import Dataset
from logloom.datasets.filling import Filler, FillTask, RowError, Work, explain, prepare, spec_of
from logloom.datasets.shared import BatchLayout, Segment, SharedArray
from logloom.datasets.workers import LoaderError, Workers
from logloom.errors import UsageError

__all__ = ["Loader", "LoaderError", "SharedArray", "torch_dataset"]

_SPARE_SEGMENTS = 2


class Order:
    """The order in which rows come."""

    def __init__(self, length: int, shuffle: bool):
        self._length = length
        self._shuffle = shuffle
        self._permutation = functools.lru_cache(maxsize=2)(self._permute)

    def _permute(self, seed: int, epoch: int) -> NDArray[np.int64]:
        return np.random.default_rng([seed, epoch]).permutation(self._length)

    def rows(self, positions: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
        """The rows at some positions, ascending, of the endless sequence of epochs."""
        epochs, places = np.divmod(positions, self._length)
        if not self._shuffle:
            return places
        rows = np.empty(len(positions), np.int64)
        for epoch in np.unique(epochs).tolist():
            there = epochs == epoch
            rows[there] = self._permutation(seed, epoch)[places[there]]
        return rows


class _PendingBatch:
    """A batch on its way."""

    def __init__(self, segment: int, arrays: dict[str, Array], lease: Callable[[], Any]):
        self.segment, self.arrays, self.lease = segment, arrays, lease
        self.pending: set[int] = set()
        self.failure: str | None = None


class Loader:
    """Endless batches over a map-style dataset (`len`, `[index]` → dict), as one iterator.

    A batch is a dict of arrays (batch, *shape) in memory shared with the workers. It stays as it is for as
    long as any of its arrays is used; then the memory is used again.
    """

    def __init__(
        self,
        source: Any,
        batch: int,
        fns: Sequence[Callable[..., Any]] = (),
        shuffle: bool = True,
        prefetch: int = 10,
        workers: int = 32,
        recycle_after: bool | int = False,
        shard_id: int = 0,
        num_shards: int = 1,
        mp: Any = None,
        seed: int = 0,
    ):
        """Starts nothing yet.

        Args:
            source: rows by number; read by `get_many(indices, out=…)` or `__getitems__` where it has them. A
                warning says so if `get_many` can't fill batches and rows are read one by one.
            batch: rows in a batch; batches go on across epochs, so none is short.
            fns: called in turn as fn(datapoint, seed=[seed, step]) in the workers; each gives a dict. Spawned
                workers get lambdas and local functions by value (cloudpickle), the source's too.
            shuffle: a fresh permutation of all rows in each epoch; else their own order.
            prefetch: batches that are prepared ahead.
            workers: processes; 0 does everything in this one.
            recycle_after: reuse a batch's memory after so many more batches, whoever still uses it.
            shard_id, num_shards: this loader takes every `num_shards`-th row of the order.
            mp: a multiprocessing context, or the name of a start method; fork where there is one.
            seed: of the order, and handed to `fns`.

        Raises:
            UsageError: a number is out of range, or the source is empty.
        """
        self.source, self.batch, self.fns = source, operator.index(batch), tuple(fns)
        self.shuffle, self.prefetch, self.seed = shuffle, operator.index(prefetch), operator.index(seed)
        self.shard_id, self.num_shards = operator.index(shard_id), operator.index(num_shards)
        self.recycle_after = int(recycle_after)
        self.length = len(source)
        self._num_workers = operator.index(workers)
        self._check_numbers()
        method = "fork" if sys.platform == "linux" else "spawn"
        self._context = multiprocessing.get_context(mp or method) if isinstance(mp, str | None) else mp
        self._order = Order(self.length, shuffle)
        self.consumed = 0
        self._requested = 0
        self._next_job = 0
        self._batches: collections.deque[_PendingBatch] = collections.deque()
        self._jobs: dict[int, _PendingBatch] = {}
        self._segments: dict[int, Segment] = {}
        self._next_segment = 0
        self._free: collections.deque[int] = collections.deque()
        self._lent: collections.deque[Callable[[], Any]] = collections.deque()
        self._workers: Workers | None = None
        self._filler: Filler | None = None
        self._close_workers: Callable[[], Any] | None = None
        self._closed = False

    def _check_numbers(self) -> None:
        if self.length < 1:
            raise UsageError("the source has no rows, so there is nothing to load")
        if self.batch < 1 or self.prefetch < 0 or self._num_workers < 0 or self.recycle_after < 0:
            raise UsageError(
                f"batch={self.batch}, prefetch={self.prefetch}, workers={self._num_workers}: out of range"
            )
        if not 0 <= self.shard_id < self.num_shards or self.seed < 0:
            raise UsageError(
                f"shard_id={self.shard_id} of num_shards={self.num_shards}, seed={self.seed}: out of range"
            )
        self._warned = False

    @functools.cached_property
    def spec(self) -> dict[str, tuple[np.dtype[Any], tuple[int, ...]]]:
        """Dtype and shape of a row's values, {key: (dtype, shape)}, as row 0 has them after `fns`."""
        if isinstance(self.source, Dataset) and not self.fns:
            return self.source.spec  # which knows how wide its texts become
        return spec_of(prepare(self.source[0], self.fns, [0, 0]))

    @functools.cached_property
    def _layout(self) -> BatchLayout:
        return BatchLayout(self.spec, self.batch)

    def __iter__(self) -> Self:
        self._start()
        return self

    def __next__(self) -> dict[str, Array]:
        """The next batch.

        Raises:
            LoaderError: a row failed (its index and traceback are in the message) or a worker died; the
                loader is closed then, and `save` still tells where the last batch ended.
        """
        try:
            self._start()
            while len(self._batches) <= self.prefetch:
                self._request()
            batch = self._batches[0]
            while batch.pending and batch.failure is None:
                self._collect()
            if batch.failure is not None:
                raise LoaderError(batch.failure)
        except BaseException:
            self.close()
            raise
        self._batches.popleft()
        self.consumed += self.batch * self.num_shards
        if self.recycle_after:
            self._lent.append(batch.lease)
            if len(self._lent) > self.recycle_after:
                self._lent.popleft()()
        return batch.arrays

    def save(self) -> dict[str, int]:
        """Where the batches taken so far end: {"step", "seed"}, for `load` of any shard of any number."""
        return {"step": self.consumed, "seed": self.seed}

    def load(self, state: Mapping[str, int]) -> None:
        """Goes on from a saved state; what was prefetched is dropped.

        Raises:
            UsageError: this is no state of a loader.
        """
        try:
            step, seed = operator.index(state["step"]), operator.index(state["seed"])
        except (KeyError, TypeError) as error:
            raise UsageError(f"{state!r} is no state of a loader: it has step and seed") from error
        if step < 0 or seed < 0:
            raise UsageError(f"{state!r} is no state of a loader: step and seed are not negative")
        self._batches.clear()  # workers may still be at them; their memory comes back when they are done
        if self._workers is not None:
            self._workers.skip_before(self._next_job)
        self.seed = seed
        self.consumed = self._requested = step

    def close(self) -> None:
        """Ends the workers. Batches that were taken stay as they are."""
        self._closed = True
        if self._close_workers is not None:
            self._close_workers()
        self._batches.clear()
        self._jobs.clear()
        self._segments.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _start(self) -> None:
        if self._closed:
            raise LoaderError("the loader is closed; make another and load() the state of this one")
        if self._workers is not None or self._filler is not None:
            return
        work = Work(self.source, self.fns, self.spec, self.batch)
        if self._num_workers == 0:
            self._filler = Filler(work)
            return
        self._workers = Workers(self._context, self._num_workers, work)
        self._close_workers = weakref.finalize(self, self._workers.close)

    def _request(self) -> None:
        """Sets the workers on the next batch."""
        name, batch = self._new_batch()
        offset = self._requested + self.shard_id
        positions = offset + self.num_shards * np.arange(self.batch, dtype=np.int64)
        indices = self._order.rows(positions, self.seed)
        self._requested += self.batch * self.num_shards
        # Whole batches to a worker, unless there are more workers than batches.
        parts = min(self.batch, -(-self._num_workers // (self.prefetch + 1)) or 1)
        bounds = np.linspace(0, self.batch, parts + 1).astype(int).tolist()
        for start, stop in itertools.pairwise(bounds):
            first = int(positions[start])
            job = FillTask(
                self._next_job, name, start, indices[start:stop], first, self.num_shards, self.seed
            )
            self._next_job += 1
            batch.pending.add(job.number)
            self._jobs[job.number] = batch
            if self._workers is not None:
                self._workers.submit(job, self._segments[name])
            else:
                self._do(job, batch)
        self._batches.append(batch)

    def _do(self, job: FillTask, batch: _PendingBatch) -> None:
        assert self._filler is not None
        failure = None
        try:
            self._filler.fill(batch.arrays, job, np.zeros(1, np.int64))
        except RowError as error:
            failure = explain(error)
        self._done(job.number, failure, self._filler.remark)

    def _collect(self) -> None:
        assert self._workers is not None
        for number, failure, remark in self._workers.wait():
            self._done(number, failure, remark)

    def _done(self, number: int, failure: str | None, remark: str | None) -> None:
        if remark is not None and not self._warned:
            self._warned = True
            warnings.warn(remark, stacklevel=2)
        batch = self._jobs.pop(number)
        batch.pending.discard(number)
        batch.failure = batch.failure or failure

    def _new_batch(self) -> tuple[int, _PendingBatch]:
        """A batch in memory that nobody uses: no array of an earlier batch, and no worker."""
        while len(self._free) > self.prefetch + _SPARE_SEGMENTS:
            self._drop_segment(self._free.popleft())
        if self._free:
            name = self._free.pop()  # the one used last is likeliest to be in the cache
        else:
            name, self._next_segment = self._next_segment, self._next_segment + 1
            self._segments[name] = Segment(self._layout.nbytes)
        memory = self._segments[name].memory()
        lease = weakref.finalize(memory, self._free.append, name)
        lease.atexit = False
        return name, _PendingBatch(name, self._layout.arrays(memory), lease)

    def _drop_segment(self, name: int) -> None:
        self._segments.pop(name).close()
        if self._workers is not None:
            self._workers.forget(name)


def torch_dataset(loader: Loader) -> Any:
    """The loader as a torch IterableDataset: batches as dicts of tensors that share the loader's memory.

    Text, which torch has no type for, stays a numpy array.

    Give it to `DataLoader(dataset, batch_size=None)`; the loader has workers of its own.

    Raises:
        UsageError: torch is not installed.
    """
    try:
        from torch.utils.data import (  # type: ignore[import-not-found,unused-ignore]
            IterableDataset,
            get_worker_info,
        )
    except ImportError as error:
        raise UsageError("this needs torch: pip install 'logloom[torch]'") from error

    class LoaderDataset(IterableDataset[dict[str, Any]]):
        """See `torch_dataset`."""

        def __iter__(self) -> Iterator[dict[str, Any]]:
            if get_worker_info() is not None:
                raise UsageError(
                    "the Loader has workers of its own: DataLoader(…, batch_size=None, num_workers=0)"
                )
            for batch in loader:
                yield to_tensors(batch)

    return LoaderDataset()
