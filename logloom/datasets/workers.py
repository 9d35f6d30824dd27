"""The processes behind a Loader: what they do, starting them, talking to them, ending them.

Here: `fill` (rows into a batch's arrays) and `Workers`.
Elsewhere: which rows, and in which order (logloom.datasets.loader), shared memory (logloom.datasets.shared).

Each worker has a pipe of its own and no lock is shared, so one that is killed can't block the others.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import os
import pickle
import selectors
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing import reduction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logloom.blocks import Array
from logloom.datasets.shared import BatchLayout, Segment, Spec
from logloom.errors import LogloomError, UsageError

Fn = Callable[..., Any]
_IDLE = -1
_AS_THEY_ARE = (np.ndarray, str, bytes, dict)


class LoaderError(LogloomError, RuntimeError):
    """A row couldn't be loaded, or a worker died."""


@dataclasses.dataclass(frozen=True)
class Work:
    """What is done to rows, the same in every process."""

    source: Any
    fns: Sequence[Fn]
    spec: Spec
    batch: int


@dataclasses.dataclass(frozen=True)
class Job:
    """Some rows of one batch.

    Attributes:
        number: counts up; jobs below the loader's oldest are not wanted any more.
        segment: number of the batch's memory.
        row: in the batch, where the first goes.
        indices: (n,) of the rows in the source.
        step, stride: the rows' steps are step, step + stride, ….
    """

    number: int
    segment: int
    row: int
    indices: NDArray[np.int64]
    step: int
    stride: int
    seed: int


def prepare(row: Mapping[str, Any], fns: Sequence[Fn], seed: list[int]) -> Mapping[str, Any]:
    """A row as it goes into a batch: numbers and lists of numbers as arrays, then through the functions."""
    if not fns:
        return row
    prepared: Mapping[str, Any] = {key: as_array(value) for key, value in row.items()}
    for fn in fns:
        given = fn(prepared, seed=seed)
        if not isinstance(given, Mapping):
            raise TypeError(f"{fn!r} should give a dict, it gave {type(given).__name__}")
        prepared = given
    return prepared


def as_array(value: Any) -> Any:
    """Numbers and lists of numbers as arrays; bytes, text and what has no regular shape stay as they are."""
    if isinstance(value, _AS_THEY_ARE):
        return value
    try:
        array = np.asarray(value)
    except ValueError:
        return value
    return value if array.dtype.hasobject else array


def spec_of(row: Mapping[str, Any]) -> dict[str, tuple[np.dtype[Any], tuple[int, ...]]]:
    """Dtype and shape of each value of a prepared row.

    Raises:
        UsageError: a value can't be part of a batch.
    """
    spec = {}
    for key, value in row.items():
        try:
            array = np.asarray(value)
        except ValueError:
            array = np.empty((), object)
        if array.dtype.hasobject or isinstance(value, bytes):
            raise UsageError(
                f"{key!r} is {type(value).__name__}, which has no fixed shape: decode, pad or drop it in a "
                "function given as fns=[…]"
            )
        spec[key] = (array.dtype, array.shape)
    return spec


def put(arrays: Mapping[str, Array], spec: Spec, at: int, row: Mapping[str, Any]) -> None:
    """Writes a prepared row into a batch.

    Raises:
        ValueError: its keys, or a value's dtype or shape, are not those of row 0.
    """
    if len(row) != len(spec) or row.keys() != spec.keys():
        raise ValueError(
            f"keys {sorted(row)}, those of row 0 are {sorted(spec)}; rows of a batch have equal keys"
        )
    for key, value in row.items():
        dtype, shape = spec[key]
        array = value if type(value) is np.ndarray else np.asarray(value)
        if array.dtype != dtype or array.shape != shape:
            check_fits(key, array, dtype, shape)
        arrays[key][at] = array


def check_fits(key: str, array: Array, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    """
    Raises:
        ValueError: storing the array as (dtype, shape) would lose something.
    """
    if array.shape != shape or not np.can_cast(array.dtype, dtype, "safe"):
        raise ValueError(
            f"{key!r} is {array.dtype} {array.shape}, in row 0 it is {dtype} {shape}; rows of a batch have "
            "one dtype and shape: convert, pad or drop it in a function given as fns=[…]"
        )


class Filler:
    """Fills batches with rows of a source, by the quickest way that the source offers.

    Attributes:
        remark: why rows are read one by one although the source offers columns; None while they aren't.
    """

    remark: str | None = None

    def __init__(self, work: Work):
        self._work = work
        self._fetch_many = getattr(work.source, "__getitems__", None)
        get_many = None if work.fns else getattr(work.source, "get_many", None)
        self._get_columns = get_many if get_many is not None and "out" in _parameters(get_many) else None

    def fill(self, arrays: Mapping[str, Array], job: Job, progress: NDArray[np.int64]) -> None:
        """Does a job.

        Args:
            progress: (1,) receives the step at hand, for whoever finds this process dead.

        Raises:
            RowError: a row failed.
        """
        progress[0] = job.step
        indices = job.indices.tolist()
        unfit = None
        if self._get_columns is not None:
            unfit = self._fill_columns(arrays, job)
            if unfit is None:
                return
            self._get_columns = None  # row by row then: it may be slower, but it says which row is to blame
        for number, row in enumerate(self._rows(indices, job)):
            step = job.step + number * job.stride
            progress[0] = step
            try:
                prepared = prepare(row, self._work.fns, [job.seed, step])
                put(arrays, self._work.spec, job.row + number, prepared)
            except Exception as error:
                raise RowError(indices[number], step) from error
        if unfit is not None:  # and no row was to blame
            self.remark = (
                f"{type(self._work.source).__name__}.get_many can't fill batches ({unfit}); from here on "
                "rows are read one by one, which is slower"
            )

    def _rows(self, indices: Sequence[int], job: Job) -> Iterator[Mapping[str, Any]]:
        if self._fetch_many is not None:
            try:
                rows = self._fetch_many(indices)
                if len(rows) != len(indices):
                    raise ValueError(f"__getitems__ gave {len(rows)} rows for {len(indices)} indices")
            except Exception as error:
                if len(indices) == 1:
                    raise RowError(indices[0], job.step) from error
            else:
                yield from rows
                return
        for number, index in enumerate(indices):  # one by one, to find out which it is
            try:
                row = self._work.source[index]
            except Exception as error:
                raise RowError(index, job.step + number * job.stride) from error
            yield row

    def _fill_columns(self, arrays: Mapping[str, Array], job: Job) -> str | None:
        """Reads columns straight into the batch; gives the reason where that doesn't work."""
        stop = job.row + len(job.indices)
        plain = {k for k, (dtype, _) in self._work.spec.items() if dtype.kind not in "US"}
        out = {key: arrays[key][job.row : stop] for key in plain}
        try:
            columns = self._get_columns(job.indices, out=out)  # type: ignore[misc]
            if odd := sorted(columns.keys() ^ self._work.spec.keys()):
                both = ["what get_many gives" if key in columns else "rows" for key in odd]
                return "; ".join(f"{key!r} is only in {where}" for key, where in zip(odd, both, strict=True))
            for key, (dtype, shape) in self._work.spec.items():
                if columns[key] is not out.get(key):
                    values = np.asarray(columns[key])
                    check_fits(key, values, dtype, (len(job.indices), *shape))
                    arrays[key][job.row : stop] = values
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return None


class RowError(Exception):
    """A row failed; the cause says why."""

    def __init__(self, index: int, step: int):
        super().__init__(index, step)
        self.index, self.step = index, step


def _parameters(function: Any) -> Mapping[str, Any]:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}


def explain(error: RowError) -> str:
    """The message of a failed row, with the traceback of where it failed."""
    text = "".join(traceback.format_exception(error.__cause__ or error))
    return f"row {error.index} (step {error.step}) failed: {error.__cause__ or error}\n\n{text}"


def run_worker(connection: Any, number: int, work: Work, parent: int, inherited: Sequence[Any]) -> None:
    """The life of a worker: takes segments and jobs from its pipe until that closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's, who then closes the pipe
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for other in inherited:  # a forked copy of another worker's pipe would hide that its owner is gone
        other.close()
    filler = Filler(work)
    layout = BatchLayout(work.spec, work.batch)
    segments: dict[int, tuple[Segment, dict[str, Array]]] = {}
    control = np.empty(0, np.int64)
    while True:
        while not connection.poll(1.0):
            if os.getppid() != parent:
                return
        try:
            message = connection.recv()
            descriptor = reduction.recv_handle(connection) if _has_descriptor(message) else -1
        except (EOFError, OSError, RuntimeError):  # the parent ended, perhaps in the middle of a message
            return
        if isinstance(message, Job):
            failure = None
            if message.number >= control[0]:
                try:
                    filler.fill(segments[message.segment][1], message, control[number + 1 : number + 2])
                except RowError as error:
                    failure = explain(error)
            control[number + 1] = _IDLE
            try:
                connection.send((message.number, failure, filler.remark))
            except OSError:
                return
        elif message[0] == "segment":
            segment = Segment(message[2], descriptor)
            if message[1] < 0:
                control = segment.memory().view(np.int64)
                segments[-1] = (segment, {})
            else:
                segments[message[1]] = (segment, layout.arrays(segment.memory()))
        else:
            segments.pop(message[1], None)


def _has_descriptor(message: Any) -> bool:
    return not isinstance(message, Job) and message[0] == "segment"


class Workers:
    """The worker processes of one loader."""

    def __init__(self, context: Any, count: int, work: Work):
        """Starts them.

        Raises:
            UsageError: the source or a function can't be sent to a spawned process, or this process may not
                have children.
        """
        self._control = Segment(8 * (count + 1))
        self._cells = self._control.memory().view(np.int64)
        self._cells[1:] = _IDLE
        self._selector = selectors.DefaultSelector()
        self._processes: list[Any] = []
        self._connections: list[Any] = []
        self._known: list[set[int]] = [set() for _ in range(count)]
        self._jobs: list[dict[int, Job]] = [{} for _ in range(count)]
        self._closed = False
        self._pid = os.getpid()
        try:
            for number in range(count):
                self._start(context, number, work)
        except BaseException:
            self.close()
            raise

    def _start(self, context: Any, number: int, work: Work) -> None:
        ours, theirs = context.Pipe(duplex=True)
        self._connections.append(ours)
        inherited = list(self._connections) if context.get_start_method() == "fork" else []
        process = context.Process(
            target=run_worker,
            args=(theirs, number, work, os.getpid(), inherited),
            name=f"loader-{number}",
            daemon=True,
        )
        # Until the worker ignores it, Ctrl-C must not hit it in the middle of its own start.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            process.start()
        except AssertionError as error:
            raise UsageError(
                f"this process may not start workers ({error}); give Loader workers=0, or use it as the only "
                "loader: DataLoader(…, num_workers=0)"
            ) from error
        except (AttributeError, TypeError, pickle.PicklingError) as error:
            raise UsageError(
                f"the source or a function can't be sent to a spawned worker ({error}); define functions at "
                "the top of a module, or pass mp=multiprocessing.get_context('fork')"
            ) from error
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            theirs.close()
        self._processes.append(process)
        self._selector.register(ours, selectors.EVENT_READ, number)
        self._selector.register(process.sentinel, selectors.EVENT_READ, number)
        self._send_segment(number, -1, self._control)

    def _send_segment(self, number: int, name: int, segment: Segment) -> None:
        connection = self._connections[number]
        connection.send(("segment", name, segment.nbytes))
        reduction.send_handle(connection, segment.descriptor, self._processes[number].pid)

    def submit(self, job: Job, segment: Segment) -> None:
        """Gives a job to the worker with the least to do.

        Raises:
            LoaderError: that worker is dead.
        """
        number = min(range(len(self._jobs)), key=lambda n: len(self._jobs[n]))
        try:
            if job.segment not in self._known[number]:
                self._send_segment(number, job.segment, segment)
                self._known[number].add(job.segment)
            self._connections[number].send(job)
        except OSError:
            raise self._death(number) from None
        self._jobs[number][job.number] = job

    def forget(self, name: int) -> None:
        """Lets the workers go of a segment."""
        for number, known in enumerate(self._known):
            if name in known:
                known.discard(name)
                with contextlib.suppress(OSError):
                    self._connections[number].send(("forget", name))

    def skip_before(self, job: int) -> None:
        """Jobs with lower numbers are not wanted any more; they still come back as done."""
        self._cells[0] = job

    def wait(self) -> list[tuple[int, str | None, str | None]]:
        """Waits for something to be done; gives (job, why it failed, the worker's remark) for each.

        Raises:
            LoaderError: a worker died.
        """
        done: list[tuple[int, str | None, str | None]] = []
        dead: set[int] = set()
        for key, _ in self._selector.select():
            number: int = key.data
            connection = self._connections[number]
            if key.fd != connection.fileno():
                dead.add(number)
                continue
            try:
                job, failure, remark = connection.recv()
            except (EOFError, OSError):
                dead.add(number)
                continue
            del self._jobs[number][job]
            done.append((job, failure, remark))
        if dead and not done:
            raise self._death(min(dead))
        return done

    def _death(self, number: int) -> LoaderError:
        process = self._processes[number]
        process.join(1)
        code = process.exitcode
        how = f"was killed by signal {-code}" if code is not None and code < 0 else f"ended with code {code}"
        step = int(self._cells[number + 1])
        where = "while it had nothing to do"
        for job in self._jobs[number].values():
            offset, odd = divmod(step - job.step, job.stride)
            if step != _IDLE and not odd and 0 <= offset < len(job.indices):
                where = f"at row {job.indices[offset]} (step {step})"
                break
        else:
            if self._jobs[number]:
                job = next(iter(self._jobs[number].values()))
                where = f"before row {job.indices[0]} (step {job.step})"
        return LoaderError(
            f"worker {number} (process {process.pid}) {how} {where}; out of memory, or a crash in native "
            "code? The state from save() resumes where the last batch ended"
        )

    def close(self) -> None:
        """Ends the workers, gently at first; they are gone when it returns."""
        if self._closed or self._pid != os.getpid():  # a forked copy owns no workers
            return
        self._closed = True
        self._cells[0] = np.iinfo(np.int64).max
        self._selector.close()
        for connection in self._connections:
            connection.close()
        self._join(0.3)
        for end in ("terminate", "kill"):
            for process in self._processes:
                if process.is_alive():
                    getattr(process, end)()
            self._join(2.0)
        self._control.close()

    def _join(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        for process in self._processes:
            process.join(max(0.0, deadline - time.monotonic()))
