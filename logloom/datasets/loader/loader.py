"""Batches of rows for training: shuffled, prefetched, resumable at any batch.

Here: `Loader`, and `torch_dataset` around it.
Elsewhere: the order of rows (logloom.datasets.loader.orders), rows into arrays
(logloom.datasets.loader.batch_filler), worker processes (logloom.datasets.loader.workers), shared memory
(logloom.datasets.loader.shared_memory).

The order of rows is a function of (seed, step) alone: of position p, the epoch is p // n and the row
`np.random.default_rng([seed, epoch]).permutation(n)[p % n]`; `RowGroups.permuted` has the order of groups.
All shards take turns, so `step`, the number of rows that all of them took, is the position of all. In a
mixture, position p determines the source as well.
"""

from __future__ import annotations

import collections
import itertools
import multiprocessing
import operator
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, Self

import numpy as np

from logloom.blocks import Array
from logloom.caching import cached_property
from logloom.cpus import available_cpus
from logloom.datasets.dataset import Dataset
from logloom.datasets.loader.batch_filler import (
    Filler,
    FillTask,
    RowError,
    Work,
    explain,
    fills_columns,
    prepare,
    spec_of,
)
from logloom.datasets.loader.orders import Ints, MixedOrder, Order, RowGroups
from logloom.datasets.loader.row_groups import groups_of, held
from logloom.datasets.loader.shared_memory import BatchLayout, Segment, SharedArray, Spec, is_fixed
from logloom.datasets.loader.workers import Done, LoaderError, Workers
from logloom.datasets.mixing.mixture import MixedRows, Mixture, check_pins, pins_of
from logloom.digests import digest_of
from logloom.errors import UsageError
from logloom.io.rows.batches import scattered, to_tensors

__all__ = ["Loader", "LoaderError", "SharedArray", "torch_dataset"]

_SPARE_SEGMENTS = 2
_JOB_BYTES = 32 << 20  # above this, one batch more in a job saves nothing that could be seen


class _PendingBatch:
    """A batch on its way."""

    def __init__(self, arrays: dict[str, Array], lease: Callable[[], Any]):
        self.arrays, self.lease = arrays, lease
        self.pending: set[int] = set()
        # Whose values differ in size: their places and columns, by their job.
        self.columns: dict[int, tuple[Ints, dict[str, Any]]] = {}
        self.failure: str | None = None

    def whole(self, spec: Spec) -> dict[str, Any]:
        """All columns, once nothing is pending."""
        parts = [self.columns[job] for job in sorted(self.columns)]
        found = parts[0][1] if parts else {}
        if len(parts) > 1:
            windows = [key for key, (_, shape) in spec.items() if None in shape and shape[0] is not None]
            found = scattered(parts, sum(len(places) for places, _ in parts), None, windows)
        return {key: self.arrays[key] if key in self.arrays else found[key] for key in spec}


def _one_of(batch: int | None, batch_size: int | None) -> int:
    if batch is not None and batch_size is None:
        return operator.index(batch)
    if batch is None and batch_size is not None:
        return operator.index(batch_size)
    raise UsageError("Loader: how many rows has a batch? Write batch=16 (or batch_size=16)")


class Loader:
    """Endless batches over a map-style dataset (`len`, `[index]` → dict), as one iterator.

    A batch is a dict of arrays (batch, *shape) in memory shared with the workers. It stays as it is for as
    long as any of its arrays is used; then the memory is used again. Texts and bytes, of any length, are
    arrays of objects. Ragged columns of a dataset are (values, lengths), and lists of lists (values, counts,
    lengths), as `Dataset.get_many` gives them.
    Several threads may call `next`: each batch is given to one of them, in the order of the calls.

    Args:
        source: rows by number; read by `get_many(indices, out=…)` or `__getitems__` if it has them; a
            warning reports if `get_many` can't fill batches, so that rows are read one by one. Or the
            result of `logloom.datasets.mix`, whose order is then used.
        batch, batch_size: rows in a batch, by either name; they go on across epochs, so none is short.
        fns: called in turn as fn(datapoint, seed=[seed, step]) in the workers; each gives a dict. Spawned
            workers get lambdas and local functions by value (cloudpickle), the source's too.
        shuffle: a fresh permutation of all rows in each epoch (of each source); else their own order.
            "groups" reads each row group once an epoch: groups come in a random order, and the rows of
            each `shuffle_groups` of them in a random order, before those of the next ones. It needs rows
            that `open` gave, or a mixture.
        prefetch: batches that are prepared ahead.
        workers: processes; None for one for each CPU of this process; 0 does everything in this one.
        recycle_after: reuse a batch's memory after this many more batches, even if it is still used.
        shard_id, num_shards: this loader takes every `num_shards`-th row of the order.
        mp: a multiprocessing context, or the name of a start method; fork where there is one.
        seed: of the order, and handed to `fns`.
        shuffle_groups: row groups (of each source) that are shuffled together. All workers together keep
            fewer than shuffle_groups + workers of them in memory, in the columns of the source, and of
            windows the rows around; no more than `shuffle_groups` workers (for each source) are started.

    Raises:
        UsageError: a number is out of range, the source is empty, or has no row groups.

    Examples:
        >>> rows = logloom.datasets.open("demo/dataset", columns=["ego.position", "ego.speed"])
        >>> with logloom.datasets.Loader(rows, batch=16, workers=2, seed=0) as loader:
        ...     batch = next(loader)
        ...     state = loader.save()  # for a checkpoint: `load` goes on with the batch after this one
        >>> batch["ego.position"].shape, batch["ego.speed"].shape
        ((16, 3), (16,))
    """

    def __new__(cls, *_: Any, **given: Any) -> Self:
        """Name ours for an argument of other loaders."""
        from logloom.familiar_names import LOADER, ours

        for name in given:
            if hint := ours(name, LOADER):
                raise TypeError(f"Loader: unexpected argument {name!r}{hint}")
        return super().__new__(cls)

    def __init__(
        self,
        source: Any,
        batch: int | None = None,
        fns: Sequence[Callable[..., Any]] = (),
        shuffle: bool | Literal["groups"] = True,
        prefetch: int = 10,
        workers: int | None = None,
        recycle_after: bool | int = False,
        shard_id: int = 0,
        num_shards: int = 1,
        mp: Any = None,
        seed: int = 0,
        *,
        batch_size: int | None = None,
        shuffle_groups: int = 8,
    ):
        """Starts nothing yet; see the class."""
        self.source = source.rows if isinstance(source, Mixture) else source
        self.batch, self.fns = _one_of(batch, batch_size), tuple(fns)
        self.shuffle, self.prefetch, self.seed = shuffle, operator.index(prefetch), operator.index(seed)
        self.shuffle_groups = operator.index(shuffle_groups)
        self.shard_id, self.num_shards = operator.index(shard_id), operator.index(num_shards)
        self.recycle_after = int(recycle_after)
        self.length = len(source)
        self._num_workers = available_cpus() if workers is None else operator.index(workers)
        self._check_numbers()
        method = "fork" if sys.platform == "linux" else "spawn"
        self._context = multiprocessing.get_context(mp or method) if isinstance(mp, str | None) else mp
        self._mixture = source if isinstance(source, Mixture) else None
        self._groups = self._found_groups() if shuffle == "groups" else ()
        if self._groups:
            self._num_workers = min(self._num_workers, self.shuffle_groups * len(self._groups))
        pool = self.shuffle_groups
        if self._mixture is None:
            grouping = self._groups[0] if self._groups else None
            self._order: Order | MixedOrder = Order(self.length, bool(shuffle), grouping, pool)
        else:
            self._order = self._mixture.order(bool(shuffle), self._groups, pool)
        self.consumed = self._requested = self._next_job = 0
        self._batches: collections.deque[_PendingBatch] = collections.deque()
        self._jobs: dict[int, tuple[FillTask, list[_PendingBatch]]] = {}
        self._segments: dict[int, Segment] = {}
        self._next_segment = 0
        self._free: collections.deque[int] = collections.deque()
        self._lent: collections.deque[Callable[[], Any]] = collections.deque()
        self._workers: Workers | None = None
        self._filler: Filler | None = None
        self._close_workers: Callable[[], Any] | None = None
        self._closed, self._failure = False, ""
        self._lock = threading.RLock()

    def _found_groups(self) -> list[RowGroups]:
        """The row groups of the source, or of each source of a mixture."""
        if isinstance(self.source, MixedRows):
            return [groups_of(part) for part in self.source.parts.values()]
        if isinstance(self.source, Dataset):
            return [groups_of(self.source)]
        raise UsageError(
            f"Loader: shuffle='groups': a {type(self.source).__name__} has no row groups; pass rows of "
            "logloom.open or a mixture, or shuffle=True"
        )

    def _check_numbers(self) -> None:
        if self.length < 1:
            raise UsageError("the source has no rows, so there is nothing to load")
        for name, value, least in (
            ("batch", self.batch, 1),
            ("prefetch", self.prefetch, 0),
            ("workers", self._num_workers, 0),
            ("recycle_after", self.recycle_after, 0),
            ("num_shards", self.num_shards, 1),
            ("seed", self.seed, 0),
            ("shuffle_groups", self.shuffle_groups, 1),
        ):
            if value < least:
                raise UsageError(f"Loader: {name}={value}: out of range; it is at least {least}")
        if isinstance(self.shuffle, str) and self.shuffle != "groups":
            raise UsageError(f"Loader: shuffle={self.shuffle!r}: unknown; pass True, False or 'groups'")
        if not 0 <= self.shard_id < self.num_shards:
            raise UsageError(
                f"Loader: shard_id={self.shard_id}: out of range; it is from 0 to {self.num_shards - 1} with "
                f"num_shards={self.num_shards}"
            )
        self._warned = False

    @cached_property
    def spec(self) -> dict[str, tuple[np.dtype[Any], tuple[int | None, ...]]]:
        """Dtype and shape of a row's values, {key: (dtype, shape)}, as row 0 has them after `fns`.

        Texts and bytes are objects; an axis is None where rows of a dataset differ in length, and lists of
        lists have two such axes.
        """
        if isinstance(self.source, Dataset | MixedRows) and not self.fns:
            return self.source.spec
        return spec_of(prepare(self.source[0], self.fns, [0, 0]))

    @cached_property
    def _pins(self) -> dict[str, Any]:
        """What the order of rows follows from, beside step and seed."""
        shuffle: dict[str, Any] = {"shuffle": bool(self.shuffle)}
        if self._groups:
            digest = digest_of([groups.digest for groups in self._groups])[:32]
            shuffle = {"shuffle": "groups", "groups": {"pool": self.shuffle_groups, "digest": digest}}
        if self._mixture is not None:
            return {**shuffle, "mix": self._mixture.pins}
        if isinstance(self.source, Dataset):
            return {**shuffle, "dataset": pins_of(self.source)}
        return {}

    @cached_property
    def _together(self) -> int:
        """Batches of one job, and of one segment: where columns are read at once, more rows cost less each.

        As many as leave each worker a second job, so that none waits for this process.
        """
        if self._num_workers == 0 or not fills_columns(self.source, self.fns):
            return 1
        if not all(is_fixed(*one) for one in self.spec.values()):
            return 1  # rows may be of any size
        fitting = _JOB_BYTES // max(1, BatchLayout(self.spec, self.batch).nbytes)
        return max(1, min((self.prefetch + 1) // (2 * self._num_workers), fitting))

    @cached_property
    def _layout(self) -> BatchLayout:
        return BatchLayout(self.spec, self._together * self.batch)

    def __iter__(self) -> Self:
        with self._lock:
            self._start()
        return self

    def __next__(self) -> dict[str, Array]:
        """The next batch.

        Raises:
            LoaderError: a row failed (its index and traceback are in the message) or a worker died; the
                loader is closed then, for all threads, and `save` still returns where the last batch ended.
        """
        with self._lock:
            return self._next()

    def _next(self) -> dict[str, Array]:
        try:
            self._start()
            while len(self._batches) + self._together - 1 <= self.prefetch:
                self._request()
            batch = self._batches[0]
            while batch.pending and batch.failure is None:
                self._check_open()
                self._collect(batch)
            if batch.failure is not None:
                raise LoaderError(batch.failure)
        except BaseException as error:
            if not self._closed:
                self._failure = str(error).partition("\n")[0]
            self.close()
            raise
        self._batches.popleft()
        self.consumed += self.batch * self.num_shards
        if self.recycle_after:
            self._lent.append(batch.lease)
            if len(self._lent) > self.recycle_after:
                self._lent.popleft()()
        return batch.whole(self.spec)

    def save(self) -> dict[str, Any]:
        """Where the batches taken so far end: {"step", "seed"}, for `load` of any shard of any number.

        Of a dataset that `open` gave also "shuffle" and "dataset": its version, the number of its rows, and a
        digest of which rows they are; of a mixture "mix", the same and the share of each source. With
        shuffle="groups" also "groups": how many are shuffled together, and a digest of which rows each has.
        """
        return {"step": self.consumed, "seed": self.seed, **self._pins}

    def load(self, state: Mapping[str, Any]) -> None:
        """Goes on from a saved state; what was prefetched is dropped.

        Args:
            state: what `save` gave, of this loader or of one over the same rows. Step and seed alone are
                taken as they are.

        Raises:
            UsageError: this isn't a state of a loader, or one over other rows; the message has the
                differences.
        """
        try:
            step, seed = operator.index(state["step"]), operator.index(state["seed"])
        except (KeyError, TypeError) as error:
            raise UsageError(f"{state!r} is no state of a loader: it has step and seed") from error
        if step < 0 or seed < 0:
            raise UsageError(f"{state!r} is no state of a loader: step and seed are not negative")
        check_pins(state, self._pins)
        with self._lock:
            self._batches.clear()  # workers may still be at them; their memory comes back when they are done
            if self._workers is not None:
                self._workers.skip_before(self._next_job)
            self.seed = seed
            self.consumed = self._requested = step

    def close(self) -> None:
        """Ends the workers. Batches that were taken stay as they are."""
        self._closed = True
        if not self._lock.acquire(blocking=False):  # another thread waits for a batch
            if self._workers is not None:
                self._workers.interrupt()
            self._lock.acquire()
        try:
            if self._close_workers is not None:
                self._close_workers()
            self._batches.clear()
            self._jobs.clear()
            self._segments.clear()
        finally:
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._closed:
            why = f" since {self._failure}" if self._failure else ""
            raise LoaderError(f"the loader is closed{why}; make another and load() the state of this one")

    def _start(self) -> None:
        self._check_open()
        if self._workers is not None or self._filler is not None:
            return
        source = self.source
        if self._groups:
            source = held(source, self._groups, -(-self.shuffle_groups // max(1, self._num_workers)))
        work = Work(source, self.fns, self.spec, self._together * self.batch)
        if self._num_workers == 0:
            self._filler = Filler(work)
            return
        self._workers = Workers(self._context, self._num_workers, work)
        self._close_workers = weakref.finalize(self, self._workers.close)

    def _request(self) -> None:
        """Sets the workers on the next batches."""
        name, batches = self._new_batches()
        rows = len(batches) * self.batch
        offset = self._requested + self.shard_id
        positions = offset + self.num_shards * np.arange(rows, dtype=np.int64)
        indices = self._order.rows(positions, self.seed)
        self._requested += rows * self.num_shards
        for worker, places in self._divided(positions):
            own = indices[places.start : places.stop] if isinstance(places, range) else indices[places]
            job = FillTask(self._next_job, name, places, own, offset, self.num_shards, self.seed)
            self._next_job += 1
            for batch in batches:
                batch.pending.add(job.number)
            self._jobs[job.number] = job, batches
            if self._workers is not None:
                self._workers.submit(job, self._segments[name], worker)
            else:
                self._do(job, batches[0])
        self._batches += batches

    def _divided(self, positions: Ints) -> Iterator[tuple[int | None, range | Ints]]:
        """Divide rows among workers: (its number, or None for any, places of rows) for each job."""
        rows = len(positions)
        if self._groups and self._num_workers > 1:  # each group to one worker, which alone reads it
            workers = self._order.lanes(positions, self.seed) % self._num_workers
            for worker in np.unique(workers).tolist():
                yield worker, np.flatnonzero(workers == worker)
            return
        # Whole batches to a worker, unless there are more workers than batches.
        parts = min(self.batch, -(-self._num_workers // (self.prefetch + 1)) or 1)
        bounds = [rows * part // parts for part in range(parts + 1)]
        for start, stop in itertools.pairwise(bounds):
            yield None, range(start, stop)

    def _do(self, job: FillTask, batch: _PendingBatch) -> None:
        assert self._filler is not None
        failure: tuple[int, str] | None = None
        columns: dict[str, Any] = {}
        try:
            columns = self._filler.fill(batch.arrays, job, np.zeros(1, np.int64))
        except RowError as error:
            failure = int(job.places[0]), explain(error)
        self._done(Done(job.number, failure, self._filler.remark, columns))

    def _collect(self, batch: _PendingBatch) -> None:
        assert self._workers is not None
        for done in self._workers.wait(batch.pending):
            self._done(done)

    def _done(self, done: Done) -> None:
        if done.remark is not None and not self._warned:
            self._warned = True
            warnings.warn(done.remark, stacklevel=2)
        job, batches = self._jobs.pop(done.job)
        for batch in batches:
            batch.pending.discard(done.job)
        if done.columns:
            batches[0].columns[done.job] = np.asarray(job.places), done.columns
        if done.failure is not None:
            place, failure = done.failure
            for batch in batches[place // self.batch :]:  # those before it are whole
                batch.failure = batch.failure or failure

    def _new_batches(self) -> tuple[int, list[_PendingBatch]]:
        """Batches in an unused segment: no array of an earlier batch, and no worker uses it."""
        while len(self._free) > self.prefetch // self._together + _SPARE_SEGMENTS:
            self._drop_segment(self._free.popleft())
        if self._free:
            name = self._free.pop()  # the one used last is likeliest to be in the cache
        else:
            name, self._next_segment = self._next_segment, self._next_segment + 1
            self._segments[name] = Segment(self._layout.nbytes)
        users = list(range(self._together))
        batches = []
        for number in range(self._together):
            memory = self._segments[name].memory()
            lease = weakref.finalize(memory, _give_back, name, users, self._free)
            lease.atexit = False
            start = number * self.batch
            batches.append(_PendingBatch(self._layout.arrays(memory, start, start + self.batch), lease))
        return name, batches

    def _drop_segment(self, name: int) -> None:
        self._segments.pop(name).close()
        if self._workers is not None:
            self._workers.forget(name)


def _give_back(name: int, users: list[int], free: collections.deque[int]) -> None:
    """A batch of a segment goes; with the last of them the segment is free."""
    if users.pop() == 0:  # each number is taken once, whichever threads come here at a time
        free.append(name)


def torch_dataset(loader: Loader) -> Any:
    """The loader as a torch IterableDataset: batches as dicts of tensors that share the loader's memory.

    Text, which torch has no type for, stays a numpy array.

    Give it to `DataLoader(dataset, batch_size=None)`; the loader has workers of its own.

    Args:
        loader: which has workers of its own.

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
