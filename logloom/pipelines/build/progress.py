"""Progress of a job, for people on stderr.

Here: the share of a job that is done (`Meter`), the live line of a terminal and the plain lines elsewhere.
Elsewhere: the workers' notes (logloom.transforms.build.journal).

Workers that share a disk with this machine write notes; for others, such as Dataflow's, the units that appear
in the root are counted.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, MutableMapping
from dataclasses import field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from logloom.errors import LogloomError
from logloom.io.catalog.entries import unit_names
from logloom.text import counted, human_bytes, human_seconds, printable
from logloom.transforms.build.journal import (
    ASSEMBLING,
    BUILDING,
    CHECKING,
    FINISHING,
    OPENED,
    READING_BACK,
    Journal,
    JournalReader,
    Note,
)
from logloom.transforms.build.read_marks import units_in_bundles
from logloom.uris import is_local
from logloom.values import dataclass

if TYPE_CHECKING:
    from rich.progress import Progress

    from logloom.pipelines.plan.build_plan import Plan

_LOOK_EVERY = 0.25  # seconds
_LOOK_FAR_EVERY = 5.0  # seconds; in an object store each look costs requests
_FIRST_PLAIN = 1.0  # seconds until the first line where there is no terminal
_PLAIN_EVERY = 10.0  # seconds between the next ones
_RATE_OVER = 10.0  # seconds whose speed is shown
_REST = 9  # times as long as a look took: of a million units it takes minutes
_ENOUGH = 2.0  # seconds of building that tell what it waits for
_BUSY = 0.7  # processor time to time, from where on the processor is what takes it
_COUNTED = {FINISHING: "log", CHECKING: "unit", ASSEMBLING: "file"}  # phases, and what is counted in them
_READ_BACK_SHARE = 0.4  # of the time of building; what is guessed until some has been read back


@dataclass
class Meter:
    """The progress of a job, by its workers' notes.

    Attributes:
        work: of each log its bytes and its partitions, estimated until it is opened.
        reads_back: the share of partitions that is read back.
        waits_for: what workers that don't compute wait for: "disk" or "network".
        phase: what goes on, for people: "building drive-03".
        rows: that were made.
    """

    work: MutableMapping[str, tuple[int, int]]
    reads_back: float = 1.0
    waits_for: str = "disk"
    phase: str = "starting"
    rows: int = 0
    _done: dict[str, float] = field(default_factory=dict)  # bytes by phase
    _found: float = 0.0  # bytes that an earlier attempt had built
    _seconds: dict[str, float] = field(default_factory=dict)  # of workers, by phase
    # Seconds of building: of the processor; of making rows, and of the processor in it; the same of writing.
    _took: list[float] = field(default_factory=lambda: [0.0] * 5)
    _counts: dict[str, list[int]] = field(default_factory=dict)  # by phase: done, and to be done
    _recent: deque[tuple[float, float]] = field(default_factory=deque)
    _began: float | None = None

    @property
    def total(self) -> int:
        """Bytes of all logs."""
        return sum(size for size, _ in self.work.values())

    @property
    def built(self) -> float:
        """Bytes of logs that were turned into rows."""
        return self._done.get(BUILDING, 0.0)

    def take(self, note: Note, now: float) -> None:
        """Adds a note that was read at `now`, a time.monotonic()."""
        self._began = now if self._began is None else self._began
        if note.phase in _COUNTED:
            counts = self._counts.setdefault(
                note.phase, [0, len(self.work) if note.phase == FINISHING else 0]
            )
            counts[0 if note.done else 1] += note.pieces
            self.phase = f"{note.phase}, {counts[0]:,} of {counted(counts[1], _COUNTED[note.phase])}"
            return
        if note.phase == OPENED:
            self.work[note.what] = (note.size, note.pieces)
            return
        self.phase = f"{note.phase} {note.what}"
        if (note.done or note.part) and note.what in self.work:
            size, partitions = self.work[note.what]
            share = size * (note.pieces - note.part if note.done else note.part) / max(1, partitions)
            self._done[note.phase] = self._done.get(note.phase, 0.0) + share
            self._found += share if note.found and note.phase == BUILDING else 0.0
            if not note.found:
                self._seconds[note.phase] = self._seconds.get(note.phase, 0.0) + note.seconds
                if note.phase == BUILDING:
                    own = (note.cpu, note.made, note.made_cpu, note.wrote, note.wrote_cpu)
                    self._took = [one + more for one, more in zip(self._took, own, strict=True)]
            self.rows += note.rows if note.phase == BUILDING else 0

    def _read_back_cost(self) -> float:
        """Time to read a byte back, in times to build one."""
        built, read = self.built - self._found, self._done.get(READING_BACK, 0.0)
        worked, looked = self._seconds.get(BUILDING, 0.0), self._seconds.get(READING_BACK, 0.0)
        if built > 0 and read > 0 and worked > 0:
            return (looked / read) / (worked / built)
        return _READ_BACK_SHARE * self.reads_back

    def seconds_left(self, now: float) -> float | None:
        """Until all is built and read back, at the speed so far; None where there is none yet."""
        cost = self._read_back_cost()
        read = self._done.get(READING_BACK, 0.0)
        fresh = self.built - self._found + cost * read
        left = self.total - self.built + cost * (self.total - read)
        if self._began is None or fresh <= 0 or now <= self._began or self.share > 1 - 1e-9:
            return None
        return left * (now - self._began) / fresh

    def speed(self, now: float) -> float:
        """Bytes of logs that were built in a second, lately."""
        self._recent.append((now, self.built - self._found))
        while len(self._recent) > 2 and now - self._recent[1][0] >= _RATE_OVER:
            self._recent.popleft()
        (then, before), (_, built) = self._recent[0], self._recent[-1]
        return (built - before) / (now - then) if now > then else 0.0

    @property
    def share(self) -> float:
        """Of the whole work, between 0 and 1."""
        cost = self._read_back_cost()
        done = self.built + cost * self._done.get(READING_BACK, 0.0)
        return min(1.0, done / (self.total * (1 + cost))) if self.total else 0.0

    @property
    def bound_by(self) -> str:
        """What limits building so far; "" while unknown.

        Decoding or encoding, reading or writing: of what takes longest, whether the processor works or waits.
        """
        worked = self._seconds.get(BUILDING, 0.0)
        cpu, made, made_cpu, wrote, wrote_cpu = self._took
        if worked < _ENOUGH or not cpu:
            return ""
        if max(made, wrote) < worked / 3:
            return "processor" if cpu >= _BUSY * worked else f"{self.waits_for} (files)"
        if made >= wrote:
            return "decoding" if made_cpu >= _BUSY * made else f"{self.waits_for} (reading)"
        return "encoding" if wrote_cpu >= _BUSY * wrote else f"{self.waits_for} (writing)"

    def words(self, now: float) -> str:
        """What was done, in one line without the phase."""
        parts = []
        if (left := self.seconds_left(now)) is not None:
            parts.append(f"about {human_seconds(left)} left")
        parts.append(f"{human_bytes(self.built)} of {human_bytes(self.total)}")
        is_building = self.total - self.built > 0.5  # sums of shares are off by less
        if (speed := self.speed(now)) > 0 and is_building:
            parts.append(f"{human_bytes(speed)}/s")
        parts.append(counted(self.rows, "row"))
        if self.bound_by and is_building:
            parts.append(f"bound by {self.bound_by}")
        return ", ".join(parts)


class UnitLooker:
    """Notes of workers that can't write any: the units that appeared in the root since the last look."""

    def __init__(self, plan: Plan):
        self._store = plan.job.store
        self._waiting: dict[str, set[str]] = {}
        for output, identity in plan.unit_identities():
            self._waiting.setdefault(output, set()).add(identity)
        self._shares = {log_id: partitions for log_id, (_, partitions) in plan.work.items()}
        self._units = sum(map(len, self._waiting.values()))
        # Which units there will be isn't known of all; of those that were read back there are marks.
        self._marks_of = plan.job.number if plan.is_guessed else None
        self._marked = 0
        if plan.is_guessed:
            self._units = len(plan.job.outputs) * sum(self._shares.values())
        self._seen = 0.0

    def new(self) -> Iterator[Note]:
        """As if each unit had been a share of every log: which one it belongs to would take a request."""
        there = 0
        with contextlib.suppress(LogloomError):  # a store that refuses is for the build to report
            if self._marks_of is not None:
                before, self._marked = self._marked, units_in_bundles(self._store, self._marks_of)
                there = max(0, self._marked - before)
            for output, waiting in self._waiting.items() if self._marks_of is None else ():
                folders = {identity[: self._store.fan_out] for identity in waiting}
                found = waiting.intersection(unit_names(self._store, output, folders))
                waiting -= found
                there += len(found)
        if there and self._units:
            share, self._seen = self._seen, self._seen + there / self._units
            for log_id, partitions in self._shares.items():
                count = round(partitions * self._seen) - round(partitions * share)
                if count:
                    yield Note(BUILDING, log_id, pieces=count)


class Watch:
    """Shows the progress of a job, in a thread of its own, while the block runs.

    Attributes:
        journal: for the job's workers.
    """

    def __init__(self, plan: Plan, *, quiet: bool = False, sees_workers: bool = True):
        """
        Args:
            sees_workers: the job's workers run on this machine, or write to a disk that it sees.
        """
        self.journal = Journal()
        self._plan = plan
        # Looking for units takes a list of them all: not for a line every ten seconds in a file.
        self._quiet = quiet or not plan.work or not (sees_workers or sys.stderr.isatty())
        self._sees_workers = sees_workers
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="logloom-progress", daemon=True)
        self._files = contextlib.ExitStack()
        self._every = _LOOK_EVERY
        self._failed = False

    @classmethod
    def silent(cls, plan: Plan, *, sees_workers: bool = True) -> Watch:
        return cls(plan, quiet=True, sees_workers=sees_workers)

    def __enter__(self) -> Self:
        if self._quiet:
            return self
        store = self._plan.job.store
        share = {"all": 1.0, "none": 0.0}.get(self._plan.job.settings.verify)
        is_near = store.local is not None and all(map(is_local, itertools.islice(self._plan.uris, 1)))
        waits_for = "disk" if is_near else "network"
        self._meter = Meter(self._plan.work, 1.0 if share is None else share, waits_for)
        self._notes: Any
        if self._sees_workers:
            if store.local is not None:
                folder = str(self._files.enter_context(store.scratch()))
            else:
                folder = self._files.enter_context(tempfile.TemporaryDirectory(prefix="logloom-"))
            self.journal, self._notes = Journal(folder), JournalReader(folder)
        else:
            self._notes, self._every = UnitLooker(self._plan), _LOOK_FAR_EVERY
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._failed = kind is not None
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        self._files.close()

    def _look(self) -> float:
        """Takes the new notes; says how many seconds to rest before the next look."""
        began = time.monotonic()
        for note in self._notes.new():
            self._meter.take(note, began)
        return rest_after(time.monotonic() - began, self._every)

    def _run(self) -> None:
        if sys.stderr.isatty():
            self._live()
        else:
            self._plain()

    def _live(self) -> None:
        with live_line() as show:
            rest = 0.0
            while not self._stop.wait(rest):
                rest = self._look()
                show(self._meter.phase, self._meter.words(time.monotonic()), self._meter.share)

    def _plain(self) -> None:
        rest, print_at, shown = self._every, time.monotonic() + _FIRST_PLAIN, False
        while not self._stop.wait(rest):
            rest = self._look()
            if time.monotonic() >= print_at:
                self._print(self._meter.phase)
                print_at, shown = time.monotonic() + _PLAIN_EVERY, True
        if shown and self._sees_workers and not self._failed:
            self._look()
            self._print("finishing")

    def _print(self, phase: str) -> None:
        line = printable(f"{phase}: {self._meter.words(time.monotonic())}")
        print(line, file=sys.stderr, flush=True)


def rest_after(took: float, every: float) -> float:
    """Seconds between looks, of which one took so many: looking is a tenth of the time at most."""
    return max(every, _REST * took)


@contextlib.contextmanager
def live_line() -> Iterator[Callable[[str, str, float | None], None]]:
    """A line at the end of a terminal: gives a function to show (what, words, share done or None).

    It keeps to one row of the terminal, also of one that is made narrower meanwhile; gone afterwards.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn
    from rich.table import Column

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}", table_column=Column(no_wrap=True, max_width=32)),
        BarColumn(bar_width=16, table_column=Column(no_wrap=True)),
        TextColumn("{task.fields[words]}", table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1)),
    )
    progress = Progress(*columns, console=console, transient=True, expand=True, auto_refresh=False)
    with progress:
        task = progress.add_task("", total=None, words="")
        width = console.width

        def show(what: str, words: str, share: float | None) -> None:
            nonlocal width
            if console.width != width:
                _clear(progress, width, console.width)
                width = console.width
            progress.update(
                task, description=printable(what), words=words, total=share and 1.0, completed=share or 0.0
            )
            progress.refresh()

        yield show


def _clear(progress: Progress, before: int, now: int) -> None:
    """Removes the line from a terminal that was resized: where it got narrower, it is several rows now."""
    from rich.control import Control

    rows = math.ceil(before / max(1, now))
    progress.console.control(*[Control.move(0, -1)] * (rows - 1), Control.move_to_column(0))
    progress.console.file.write("\x1b[J")  # all below, which Rich has no word for


@contextlib.contextmanager
def steps(what: str, *, quiet: bool = False) -> Iterator[Callable[[int, int], None]]:
    """Progress of a count: gives a function to call with (done, total), 0 while the total is unknown.

    Silent where there is no terminal.
    """
    if quiet or not sys.stderr.isatty():
        yield lambda done, total: None
        return
    with live_line() as show:
        show(what, "", None)
        yield lambda done, total: show(
            what, f"{done:,} of {total:,}" if total else f"{done:,}", done / total if total else None
        )
