"""The processes behind a Loader: starting them, talking to them, ending them.

Here: `Workers`, and the life of one.
Elsewhere: what they do to rows (logloom.datasets.loader.batch_filler), which rows, and in which order
(logloom.datasets.loader.loader), shared memory (logloom.datasets.loader.shared_memory).

Each worker has a pipe of its own and no lock is shared, so one that is killed can't block the others.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import selectors
import signal
import time
from collections.abc import Sequence, Set
from multiprocessing import reduction
from typing import Any, NamedTuple

import numpy as np

from logloom.blocks import Array
from logloom.datasets.loader.batch_filler import Filler, FillTask, RowError, Work, explain
from logloom.datasets.loader.shared_memory import BatchLayout, Packed, Segment, pack, unpack
from logloom.errors import LogloomError, UsageError

_IDLE = -1


class LoaderError(LogloomError, RuntimeError):
    """A row couldn't be loaded, or a worker died."""


class Done(NamedTuple):
    """A job that came back.

    Attributes:
        failure: the place of the row that failed, and why; the job's rows before it are in the batch.
        remark: of the worker, see `Filler`.
        columns: whose values differ in size, see `Filler.fill`; from a worker to us perhaps `Packed`.
    """

    job: int
    failure: tuple[int, str] | None
    remark: str | None
    columns: Any


def _send(connection: Any, message: Any) -> None:
    """What `connection.send` does, by the quicker pickler: nothing here needs multiprocessing's."""
    connection.send_bytes(pickle.dumps(message, pickle.HIGHEST_PROTOCOL))


def run_worker(connection: Any, number: int, work: Work, parent: int, inherited: Sequence[Any]) -> None:
    """The life of a worker: takes segments and jobs from its pipe until that closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's, who then closes the pipe
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for other in inherited:  # a forked copy of another worker's pipe would hide that its owner is gone
        other.close()
    filler = Filler(work)
    layout = BatchLayout(work.spec, work.rows)
    segments: dict[int, tuple[Segment, dict[str, Array]]] = {}
    control = np.empty(0, np.int64)
    arrived = select.poll()  # made once: connection.poll() makes one each time
    arrived.register(connection.fileno(), select.POLLIN)
    while True:
        while not arrived.poll(1000):
            if os.getppid() != parent:
                return
        try:
            message = pickle.loads(connection.recv_bytes())  # nosec B301 # by our parent
            descriptor = reduction.recv_handle(connection) if _has_descriptor(message) else -1
        except (EOFError, OSError, RuntimeError):  # the parent ended, perhaps in the middle of a message
            return
        if isinstance(message, FillTask):
            failure, columns, packed = None, {}, None
            if message.number >= control[0]:
                try:
                    own = control[number + 1 : number + 2]
                    columns = filler.fill(segments[message.segment][1], message, own)
                except RowError as error:
                    failure = (error.step - message.step) // message.stride, explain(error)
            control[number + 1] = _IDLE
            try:
                if columns and (packed := pack(columns)) is not None:
                    _send(connection, Done(message.number, failure, filler.remark, packed[0]))
                    reduction.send_handle(connection, packed[1].descriptor, parent)
                else:
                    _send(connection, Done(message.number, failure, filler.remark, columns))
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
    return not isinstance(message, FillTask) and message[0] == "segment"


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
        self._jobs: list[dict[int, FillTask]] = [{} for _ in range(count)]
        self._dead: set[int] = set()
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
                f"the source or a function can't be sent to a spawned worker ({error}); let it open files "
                "and make locks when it is first called, or pass mp=multiprocessing.get_context('fork')"
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

    def submit(self, job: FillTask, segment: Segment, worker: int | None = None) -> None:
        """Give a job to a worker; `wait` reports dead ones.

        Args:
            worker: its number; None for the least busy one.
        """
        alive = [number for number in range(len(self._jobs)) if number not in self._dead]
        number = min(alive or self._dead, key=lambda n: len(self._jobs[n])) if worker is None else worker
        self._jobs[number][job.number] = job
        if number in self._dead:
            return
        try:
            if job.segment not in self._known[number]:
                self._send_segment(number, job.segment, segment)
                self._known[number].add(job.segment)
            _send(self._connections[number], job)
        except OSError:  # it died; what it had done before is still to be read
            pass

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

    def wait(self, wanted: Set[int]) -> list[Done]:
        """Waits for something to happen, and gives the jobs that are done, if any.

        Args:
            wanted: numbers of jobs of which some aren't done.

        Raises:
            LoaderError: a worker died that had one of these to do, or nothing: what others do comes first.
        """
        for dead in sorted(self._dead):
            is_idle = all(job < self._cells[0] for job in self._jobs[dead])
            if is_idle or not wanted.isdisjoint(self._jobs[dead]):
                raise self._death(dead)
        done: list[Done] = []
        for key, _ in self._selector.select():
            number: int = key.data
            connection = self._connections[number]
            if number in self._dead:
                continue
            if key.fd != connection.fileno():
                if not connection.poll():  # it may have died right after it was done
                    self._bury(number)
                continue
            try:
                one: Done = pickle.loads(connection.recv_bytes())  # nosec B301 # by our worker
                if isinstance(one.columns, Packed):
                    one = one._replace(columns=unpack(one.columns, reduction.recv_handle(connection)))
            except (EOFError, OSError, RuntimeError):
                self._bury(number)
                continue
            del self._jobs[number][one.job]
            done.append(one)
        return done

    def _bury(self, number: int) -> None:
        """Notes that a worker is dead; nothing is heard of it any more."""
        self._dead.add(number)
        self._selector.unregister(self._connections[number])
        self._selector.unregister(self._processes[number].sentinel)

    def _death(self, number: int) -> LoaderError:
        process = self._processes[number]
        process.join(1)
        code = process.exitcode
        how = f"was killed by signal {-code}" if code is not None and code < 0 else f"ended with code {code}"
        step = int(self._cells[number + 1])
        where = "while it had nothing to do"
        for job in self._jobs[number].values():
            offset, odd = divmod(step - job.step, job.stride)
            if step != _IDLE and not odd and offset in job.places:
                row = job.indices[list(job.places).index(offset)]
                where = f"at row {row} (step {step})"
                break
        else:
            if self._jobs[number]:
                job = next(iter(self._jobs[number].values()))
                where = f"before row {job.indices[0]} (step {job.step_of(0)})"
        return LoaderError(
            f"worker {number} (process {process.pid}) {how} {where}; out of memory, or a crash in native "
            "code? The state from save() resumes where the last batch ended"
        )

    def interrupt(self) -> None:
        """Ends the workers at once, so that a thread that waits for them goes on."""
        for process in self._processes:
            process.terminate()

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
