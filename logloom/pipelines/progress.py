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

if TYPE_CHECKING:
    from logloom.transforms.job import Target

_LOOK_EVERY = 0.5  # seconds
_LOOK_FAR_EVERY = 5.0  # seconds; in an object store each look costs requests
_PLAIN_EVERY = 10.0  # seconds between lines where there is no terminal


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
        self._waiting = set(plan.unit_identities()) if not quiet else set()
        self._total = len(self._waiting)
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

    def _look(self) -> None:
        # A store that refuses, or an entry that is damaged, is for the build to tell of.
        with contextlib.suppress(LogloomError):
            self._count()

    def _count(self) -> None:
        store = self._plan.job.store
        for output in self._plan.job.outputs:
            there = set(store.names(f"parts/{output}"))
            for unit in [u for u in self._waiting if u[0] == output and u[1] in there]:
                entry = find_entry(store, *unit)
                if entry is not None:
                    self._waiting.discard(unit)
                    self._rows += entry.rows if output == next(iter(self._plan.job.outputs)) else 0
                    self._bytes += entry.size

    def _run(self) -> None:
        if sys.stderr.isatty():
            self._live()
        else:
            self._plain()

    @property
    def _done(self) -> int:
        return self._total - len(self._waiting)

    def _words(self) -> str:
        return f"{self._rows:,} rows, {human_bytes(self._bytes)}"

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
            while not self._stop.wait(self._every):
                self._look()
                progress.update(task, completed=self._done, description=self._words())

    def _plain(self) -> None:
        self._look()
        began, before = time.monotonic(), self._done
        while not self._stop.wait(_PLAIN_EVERY):
            self._look()
            new = self._done - before
            left = (time.monotonic() - began) / new * len(self._waiting) if new else None
            eta = f", about {left:.0f} s left" if left is not None else ""
            print(f"{self._done} of {self._total} units, {self._words()}{eta}", file=sys.stderr, flush=True)


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
