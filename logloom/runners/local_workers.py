"""Worker processes of this machine, for pipelines without Beam.

They are forked from a server (fork_server), and communicate with this process by a pair of sockets each: no
other process reaches them, and they end with it.
"""

from __future__ import annotations

import contextlib
import logging
import pickle
import signal
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any, NamedTuple

from logloom.errors import portable
from logloom.metrics import CollectedMetrics, collected, merge
from logloom.runners.engine import JobFailedError
from logloom.text import WAITING_LOG
from logloom.values import dataclass

if TYPE_CHECKING:
    from logloom.runners.fork_server import Forked, ForkServer
    from logloom.runners.inline import FlatMap

_ENDS_WITHIN = 5.0  # seconds
_END = object()


class _AskedElement(NamedTuple):
    """An element for a worker.

    Attributes:
        stages: of the run, pickled; None for a worker that has them.
    """

    run: int
    stages: bytes | None
    stage: int
    element: Any


class _MadeElements(NamedTuple):
    """What a worker made of an element, or the error that it met."""

    stage: int
    made: list[Any]
    error: BaseException | None
    metrics: CollectedMetrics


@dataclass
class _StagedRun:
    """Elements on their way through stages.

    Attributes:
        number: among the runs of these workers.
        known: workers that have the stages.
        waiting: elements before each stage.
        busy: how many are at workers.
        done: what came back.
    """

    number: int
    stages: bytes
    waiting: list[deque[Any]]
    known: set[Forked] = field(default_factory=set)
    busy: int = 0
    done: deque[_MadeElements] = field(default_factory=deque)


class LocalWorkers:
    """Workers that are forked when they are first needed, and end with `close`."""

    def __init__(self, server: ForkServer, number: int, environment: Mapping[str, str]):
        """
        Args:
            environment: variables of the workers that name the folder of their temporary files.
        """
        self._server, self._number, self._environment = server, number, environment
        self._workers: list[Forked] = []
        self._idle: list[Forked] = []
        self._busy: dict[Connection, tuple[Forked, _StagedRun]] = {}
        self._runs = 0

    def run(self, elements: Iterable[Any], stages: Sequence[Sequence[FlatMap]]) -> Iterator[Any]:
        """What the stages make of elements, in any order; elements of the last stages go first.

        Runs may begin while others are under way, as when an element needs what another run makes.

        Raises:
            Exception: what a step raised.
            JobFailedError: a worker ended.
        """
        if not self._workers:
            self._workers = [self._server.fork(self._environment) for _ in range(self._number)]
            self._idle = self._workers[:]
        self._runs += 1
        run = _StagedRun(self._runs, pickle.dumps(stages), [deque() for _ in stages])
        source, is_empty = iter(elements), False
        while True:
            while self._idle and (any(run.waiting) or not is_empty):
                if not any(run.waiting):
                    element = next(source, _END)  # other runs may take the idle workers meanwhile
                    if element is _END:
                        is_empty = True
                        break
                    run.waiting[0].append(element)
                if self._idle:
                    self._send(run)
            if run.done:
                yield from self._taken(run)
            elif run.busy or any(run.waiting) or not is_empty:
                self._receive()
            else:
                return

    def _send(self, run: _StagedRun) -> None:
        stage = max(number for number, waiting in enumerate(run.waiting) if waiting)
        worker = self._idle.pop()
        stages = None if worker in run.known else run.stages
        task = _AskedElement(run.number, stages, stage, run.waiting[stage].popleft())
        run.known.add(worker)
        run.busy += 1
        self._busy[worker.connection] = worker, run
        with contextlib.suppress(OSError):  # it has ended, which `_receive` sees
            worker.connection.send(task)

    def _receive(self) -> None:
        """Waits for workers, of any run."""
        for connection in wait(list(self._busy)):
            assert isinstance(connection, Connection)
            worker, run = self._busy.pop(connection)
            try:
                outcome: _MadeElements = connection.recv()
            except (EOFError, OSError) as error:
                ended = how_ended(worker.end.result())
                raise JobFailedError(f"a worker process ended before its work did: it {ended}") from error
            run.busy -= 1
            run.done.append(outcome)
            self._idle.append(worker)

    def _taken(self, run: _StagedRun) -> Iterator[Any]:
        """Hands on what came back: to the next stage, or out of the last."""
        outcome = run.done.popleft()
        merge(outcome.metrics)
        if outcome.error is not None:
            raise outcome.error
        if outcome.stage + 1 < len(run.waiting):
            run.waiting[outcome.stage + 1].extend(outcome.made)
        else:
            yield from outcome.made

    def close(self) -> None:
        """End the workers, which have no work, or none that is still needed."""
        for worker in self._workers:
            self._server.kill(worker)
        for worker in self._workers:
            with contextlib.suppress(TimeoutError):  # the server's own end is theirs, too
                worker.end.result(_ENDS_WITHIN)
            worker.connection.close()


def how_ended(code: int) -> str:
    """The end of a worker process in words."""
    if code >= 0:
        return f"ended with code {code}"
    if -code == signal.SIGKILL:
        return "was killed, perhaps because memory ran out; fewer --workers need less"
    return f"was ended by {signal.Signals(-code).name}"


# --- in a worker --------------------------------------------------------------------------------------


def work(connection: Connection) -> None:
    """Process requests until there are no more."""
    # What a step raises, the job hears of, too, and makes it one message. Loggers go on: retries of stores'
    # clients are counted by what these log.
    logging.getLogger().handlers[:] = [logging.NullHandler()]
    logging.getLogger(WAITING_LOG).addHandler(logging.StreamHandler())  # the command's own stderr
    runs: dict[int, Sequence[Sequence[FlatMap]]] = {}
    with contextlib.suppress(EOFError, OSError):
        while True:
            request = connection.recv_bytes()
            connection.send_bytes(_pickled(_answered(request, runs)))


def _answered(request: bytes, runs: dict[int, Sequence[Sequence[FlatMap]]]) -> _MadeElements:
    """What becomes of an element as it came.

    Args:
        runs: their stages, by number; takes those that come with the element.
    """
    try:
        task: _AskedElement = pickle.loads(request)
        if task.stages is not None:
            runs[task.run] = pickle.loads(task.stages)
    except Exception as error:
        return _MadeElements(0, [], portable(error), CollectedMetrics())
    return _made(runs[task.run][task.stage], task)


def _pickled(outcome: _MadeElements) -> bytes:
    """Pickle the outcome for the parent process; if that fails, the error about it."""
    try:
        return pickle.dumps(outcome)
    except Exception as error:
        return pickle.dumps(outcome._replace(made=[], error=portable(error)))


def _made(steps: Sequence[FlatMap], task: _AskedElement) -> _MadeElements:
    made: Iterable[Any] = [task.element]
    with collected() as metrics:
        try:
            for step in steps:
                made = step.of_all(made)
            return _MadeElements(task.stage, list(made), None, metrics)
        except Exception as error:
            return _MadeElements(task.stage, [], portable(error), metrics)
        except SystemExit as error:
            failed = JobFailedError(f"a step called sys.exit({error.code!r})")
            failed.__cause__ = error
            return _MadeElements(task.stage, [], portable(failed), metrics)
