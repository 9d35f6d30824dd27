"""Running an iterator in several threads or processes at once.

Here: `run_tasks`: tasks that each have a share of the inputs, and bounded channels of what they give.
Elsewhere: what the tasks do (logloom.datasets.tar).
"""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import pickle
import queue
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from logloom.errors import LogloomError, portable

_POLL = 0.1  # seconds between looks whether to stop
_PATIENCE = 5  # seconds for a thread that reads, or a process, to notice

T = TypeVar("T")
Task = Callable[[int, Iterable[Any], Callable[[Exception], None]], Iterator[T]]


class TaskError(LogloomError):
    """A task failed in another process; the message holds its traceback."""


def run_tasks(
    task: Task[T],
    inputs: Sequence[Any],
    num_tasks: int,
    capacity: int,
    on_error: Callable[[Exception], None],
    processes: bool = False,
) -> Iterator[T]:
    """What all tasks give, one item of each in turn: the same order whichever is quicker.

    Args:
        task: f(number, inputs, on_error) gives an iterator; task n gets every num_tasks-th of `inputs`, from
            n on.
        capacity: how many items wait to be taken, at least one of each task.
        on_error: called, in this process, for each exception that a task reports.
        processes: by fork, so that tasks may close over anything.

    Raises:
        Exception: what a task raised; the others are stopped.
    """
    num_tasks = max(1, min(num_tasks, len(inputs)))
    if processes:
        return _in_processes(task, inputs, num_tasks, capacity, on_error)

    def work(number: int) -> Iterator[T]:
        return task(number, iter(inputs[number::num_tasks]), on_error)

    return _in_threads(work, num_tasks, capacity, lambda: None)


def _in_threads(
    work: Callable[[int], Iterator[T]], num_threads: int, capacity: int, interrupt: Callable[[], None]
) -> Iterator[T]:
    """What work(0), work(1), ... give, each run by a thread; `interrupt` wakes threads at the end."""
    size = max(1, capacity // num_threads)
    channels: list[queue.Queue[tuple[str, Any]]] = [queue.Queue(size) for _ in range(num_threads)]
    stop = threading.Event()

    def send(number: int, kind: str, value: Any) -> None:
        while not stop.is_set():
            with contextlib.suppress(queue.Full):
                return channels[number].put((kind, value), timeout=_POLL)
        raise _Stopped

    def run(number: int) -> None:
        with contextlib.suppress(_Stopped):
            try:
                for item in work(number):
                    send(number, "item", item)
                send(number, "done", None)
            except _Stopped:
                raise
            except BaseException as error:
                send(number, "failed", error)

    threads = [threading.Thread(target=run, args=(n,), daemon=True) for n in range(num_threads)]
    for thread in threads:
        thread.start()
    try:
        running = channels.copy()
        while running:
            for channel in running.copy():
                kind, value = channel.get()
                if kind == "item":
                    yield value
                elif kind == "failed":
                    raise value
                else:
                    running.remove(channel)
    finally:
        stop.set()
        interrupt()
        for thread in threads:
            thread.join(_PATIENCE)


def _in_processes(
    task: Task[T], inputs: Sequence[Any], num_tasks: int, capacity: int, on_error: Callable[[Exception], None]
) -> Iterator[T]:
    """Each task in a process of its own, with a pipe of its own, so that one that dies is noticed at once."""
    context = multiprocessing.get_context("fork")
    places = context.Array("q", [-1] * num_tasks, lock=False)  # the input that each is at

    def share(number: int) -> Iterator[Any]:
        for at in range(number, len(inputs), num_tasks):
            places[number] = at
            yield inputs[at]

    def name_of(number: int) -> str:
        at = f"at {inputs[places[number]]}" if places[number] >= 0 else "before its first input"
        return f"loader process {number} (process {workers[number].pid}) {at}"

    workers: list[Any] = []
    readers: list[Any] = []
    for number in range(num_tasks):
        reader, writer = context.Pipe(duplex=False)
        worker = context.Process(target=_child, args=(task, number, share(number), writer), daemon=True)
        worker.start()
        writer.close()  # or a dead worker's pipe would never end
        workers.append(worker)
        readers.append(reader)

    def received(number: int) -> Iterator[T]:
        return _received(readers[number], workers[number], functools.partial(name_of, number), on_error)

    return _in_threads(received, num_tasks, capacity, lambda: _end(workers, name_of))


def _end(workers: Sequence[Any], name_of: Callable[[int], str]) -> None:
    """Ends processes, gently at first; warnings name those that had to be killed, or hang even so."""
    for worker in workers:
        worker.terminate()
    stuck = _still_alive(workers)
    for number in stuck:
        workers[number].kill()
    hanging = _still_alive(workers) if stuck else []
    for number in stuck:
        became = "hangs even though it was killed" if number in hanging else "was killed"
        warnings.warn(f"{name_of(number)} didn't end when asked to, and {became}", stacklevel=2)


def _still_alive(workers: Sequence[Any]) -> list[int]:
    """Waits for processes to end, but not for ever; gives the numbers of those that didn't."""
    deadline = time.monotonic() + _PATIENCE
    # Not join(), which waits without limit for a process that closed all its files.
    while (alive := [n for n, worker in enumerate(workers) if worker.exitcode is None]) and (
        time.monotonic() < deadline
    ):
        time.sleep(_POLL / 20)
    return alive


def _child(task: Task[Any], number: int, inputs: Iterable[Any], pipe: Any) -> None:
    def send(kind: str, value: Any) -> None:
        pipe.send_bytes(pickle.dumps((kind, value), protocol=5))

    try:
        for item in task(number, inputs, lambda error: send("error", portable(error, TaskError))):
            send("item", item)
        send("done", None)
    except BaseException as error:
        send("failed", portable(error, TaskError))


def _received(
    pipe: Any, worker: Any, name_of: Callable[[], str], on_error: Callable[[Exception], None]
) -> Iterator[Any]:
    while True:
        try:
            kind, value = pickle.loads(pipe.recv_bytes())  # nosec B301 # by our child
        except (EOFError, ConnectionError) as error:
            if _still_alive([worker]):
                raise TaskError(f"{name_of()} returns nothing any more, but doesn't end") from error
            hint = ": was it killed for want of memory?" if worker.exitcode == -9 else ""
            raise TaskError(f"{name_of()} died with exit code {worker.exitcode}{hint}") from error
        if kind == "item":
            yield value
        elif kind == "error":
            on_error(value)
        elif kind == "failed":
            raise value
        else:
            return


class _Stopped(Exception):  # noqa: N818, it is no error
    """The consumer has stopped."""
