"""Progress of a build, seen from the root alone: entries against the plan, so it works on any runner.

On a terminal a live line; elsewhere a plain line every few seconds. All of it goes to stderr.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from logloom.errors import LogloomError
from logloom.io.manifest import find_entry
from logloom.words import counted

if TYPE_CHECKING:
    from logloom.transforms.job import Target

_LOOK_EVERY = 0.5  # seconds
_LOOK_FAR_EVERY = 5.0  # seconds; in an object store each look costs requests
_PLAIN_EVERY = 10.0  # seconds between lines where there is no terminal
_READING = 2.0  # seconds of a look at most that go to entries: rows and bytes can be estimated
_REST = 9  # times as long as a look took: of a million units it takes minutes


class Watched(Protocol):
    """A plan whose units appear one by one: of a build, or of a conversion."""

    @property
    def job(self) -> Target: ...

    def unit_identities(self) -> list[tuple[str, str]]:
        """(output, identity) of every unit that will be there."""
        ...


class Watch:
    """Watches the entries of a build appear, in a thread of its own, while the block runs."""

    def __init__(self, plan: Watched, *, quiet: bool = False):
        self._plan = plan
        self._quiet = quiet
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="logloom-progress", daemon=True)
        self._waiting: dict[str, set[str]] = {}  # identities by output, of units that aren't there
        for output, identity in () if quiet else plan.unit_identities():
            self._waiting.setdefault(output, set()).add(identity)
        self._total = self._num_waiting
        self._unread: list[tuple[str, str]] = []  # units that are there, rows and bytes unknown
        self._every = _LOOK_FAR_EVERY if plan.job.store.local is None else _LOOK_EVERY
        self._rows = 0
        self._bytes = 0

    @classmethod
    def silent(cls, plan: Watched) -> Watch:
        return cls(plan, quiet=True)

    def __enter__(self) -> Self:
        if not self._quiet and self._total:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _look(self) -> float:
        """Counts; says how many seconds to rest before the next look."""
        began = time.monotonic()
        # A store that refuses, or an entry that is damaged, is for the build to tell of.
        with contextlib.suppress(LogloomError):
            self._list()
        self._read(began + _READING)
        return rest_after(time.monotonic() - began, self._every)

    def _list(self) -> None:
        for output, waiting in self._waiting.items():
            there = waiting.intersection(self._plan.job.store.names(f"parts/{output}"))
            waiting -= there
            self._unread += [(output, identity) for identity in sorted(there)]

    def _read(self, until: float) -> None:
        """Adds up what entries say; units without one wait on, for a store shows their other files first."""
        first = next(iter(self._plan.job.outputs))
        while self._unread and time.monotonic() < until:
            output, identity = self._unread.pop()
            entry = None
            with contextlib.suppress(LogloomError):
                entry = find_entry(self._plan.job.store, output, identity)
            if entry is None:
                self._waiting[output].add(identity)
            else:
                self._rows += entry.rows if output == first else 0
                self._bytes += entry.size

    def _run(self) -> None:
        if sys.stderr.isatty():
            self._live()
        else:
            self._plain()

    @property
    def _num_waiting(self) -> int:
        return sum(map(len, self._waiting.values()))

    @property
    def _done(self) -> int:
        return self._total - self._num_waiting

    def _words(self) -> str:
        read = self._done - len(self._unread)
        if read == self._done:
            return f"{counted(self._rows, 'row')}, {human_bytes(self._bytes)}"
        # Identities are digests, so those read so far are as good as drawn by lot.
        scale = self._done / read if read else 0.0
        return f"about {self._rows * scale:,.0f} rows, {human_bytes(self._bytes * scale)}"

    def _live(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (
            TextColumn("units"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.description}"),
            TextColumn("ETA"),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
            task = progress.add_task("", total=self._total)
            rest = self._every
            while not self._stop.wait(rest):
                rest = self._look()
                progress.update(task, completed=self._done, description=self._words())

    def _plain(self) -> None:
        rest = self._look()
        began, before, told = time.monotonic(), self._done, False
        while not self._stop.wait(max(rest, _PLAIN_EVERY)):
            rest = self._look()
            new = self._done - before
            left = (time.monotonic() - began) / new * self._num_waiting if new else None
            self._print(f", about {left:.0f} s left" if left is not None else "")
            told = True
        if told and rest <= _PLAIN_EVERY:  # the end of the build doesn't wait long for this
            self._look()
            self._print("")

    def _print(self, more: str) -> None:
        line = f"{self._done} of {counted(self._total, 'unit')}, {self._words()}{more}"
        print(line, file=sys.stderr, flush=True)


def rest_after(took: float, every: float) -> float:
    """Seconds between looks, of which one took so many: looking is a tenth of the time at most."""
    return max(every, _REST * took)


@contextlib.contextmanager
def steps(what: str, *, quiet: bool = False) -> Iterator[Callable[[int, int], None]]:
    """Progress of a count: gives a function to tell (done, total). Silent where there is no terminal."""
    if quiet or not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def human_bytes(count: float) -> str:
    """A byte count for people: 1.5 GiB."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if count < 1024 or unit == "TiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError
