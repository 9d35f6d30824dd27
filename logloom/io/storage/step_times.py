"""Recorded times of the steps of processes, for `logloom build --profile`.

Here: `step` and `each`, which time work; `recorded`, which turns recording on; `read_steps`; and
`append_line`, also for other notes.
Elsewhere: the profile made from the steps (logloom.pipelines.build.profile).

A process appends a line for each finished step to a file of its own, so a killed one loses only the steps
under way. Times are of the machine's clock since its boot; nothing depends on them. Without recording, a step
costs the look at a variable.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, TypeVar

from logloom.io.storage.locks import Lock
from logloom.values import dataclass

T = TypeVar("T")

_NOTHING = contextlib.nullcontext()
_END = object()
_folder = ""  # where this process records; "" for nowhere
_blocks = 0  # threads that record: an engine may give a process several
_changing = Lock()
_own = threading.local()  # .depth: of the step that a thread is in


@dataclass(frozen=True)
class TimedStep:
    """A step that ended.

    Attributes:
        host, process, thread: where it ran.
        depth: how many steps of the thread contain it.
        start, stop: ns, by the host's clock.
        cpu: ns of processor time of the thread meanwhile; the rest it waited.
        nbytes: bytes that it processed; 0 if unknown.
    """

    host: str
    process: int
    thread: str
    name: str
    depth: int
    start: int
    stop: int
    cpu: int
    nbytes: int


class _StepTimer:
    """A step that is under way."""

    __slots__ = ("_cpu", "_depth", "_folder", "_name", "_nbytes", "_start")

    def __init__(self, name: str, nbytes: int):
        self._name, self._nbytes, self._folder = name, nbytes, _folder

    def __enter__(self) -> None:
        self._depth = getattr(_own, "depth", 0)
        _own.depth = self._depth + 1
        self._start, self._cpu = time.perf_counter_ns(), time.thread_time_ns()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        stop, cpu = time.perf_counter_ns(), time.thread_time_ns() - self._cpu
        _own.depth = self._depth
        thread = f"{threading.current_thread().name} {threading.get_native_id()}"
        append_line(self._folder, [thread, self._name, self._depth, self._start, stop, cpu, self._nbytes])


def step(name: str, nbytes: int = 0) -> contextlib.AbstractContextManager[None]:
    """Record the block as a step of this name; it must not `yield`, since the steps of a thread nest."""
    return _StepTimer(name, nbytes) if _folder else _NOTHING


def each(name: str, items: Iterable[T]) -> Iterator[T]:
    """Yield the items; computing each is a step."""
    coming = iter(items)
    while True:
        with step(name):
            item: Any = next(coming, _END)
        if item is _END:
            return
        yield item


@contextlib.contextmanager
def recorded(folder: str) -> Iterator[None]:
    """Record steps of this process, of all its threads, while the block runs; "" changes nothing."""
    global _folder, _blocks
    if not folder:
        yield
        return
    with _changing:
        _folder, _blocks = folder, _blocks + 1
    try:
        yield
    finally:
        with _changing:
            _blocks -= 1
            _folder = _folder if _blocks else ""


def append_line(folder: str, line: list[Any]) -> None:
    """Add a line to this process's own file, in one call, so that none is torn.

    A failure to write is ignored: it must not fail a build.
    """
    path = os.path.join(folder, f"{socket.gethostname()}-{os.getpid()}")
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.write(descriptor, json.dumps(line).encode() + b"\n")
        finally:
            os.close(descriptor)


def read_steps(folder: str) -> list[TimedStep]:
    """Return recorded steps by process and thread, each in the order in which they began."""
    found = []
    for path in sorted(pathlib.Path(folder).iterdir()):
        host, _, process = path.name.rpartition("-")
        whole = path.read_bytes().rpartition(b"\n")[0]  # a process may have died in the middle of a line
        found += [TimedStep(host, int(process), *json.loads(line)) for line in whole.splitlines()]
    return sorted(found, key=lambda one: (one.host, one.process, one.thread, one.start, one.depth))
