"""The note that a build leaves in runs/ while its command runs.

A note only informs: nothing but the commit decides which build makes a version, so a note that a killed
command left doesn't block other builds for long.
On the same machine, the process shows whether a command runs (`Process.lives`). Of a command on another
machine or in another container there is only its note, and the clocks of machines differ. So the note is
watched for a change, by the clock of the process that watches (`Heartbeats`). If none comes, this is written
into the note, and no process needs to watch again; a command that still runs overwrites that.

Here: `RunningNote`, `Announced`, which keeps it up to date, `Heartbeats`, and `is_over`, by which workers
find out that a build has ended.
Elsewhere: the status of builds (logloom.pipelines.status), their outcomes (logloom.transforms.build.commit).
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, field, replace

from logloom.errors import DatasetError, OvertakenError, StorageError
from logloom.io.catalog.version_files import runs_folder
from logloom.io.storage.faults import MISSING
from logloom.io.storage.metadata import Count, Text, canonical, checked, parsed
from logloom.io.storage.processes import Process, own_process
from logloom.io.storage.store import Store
from logloom.text import why_ended
from logloom.transforms.build.job import Target
from logloom.values import dataclass

NOTE_SUFFIX = ".running.json"
HEARD_EVERY = 30.0  # seconds between signs of life
SILENT_AFTER = 120.0

_kept_here: set[tuple[int, str]] = set()  # version and run of the notes that this process keeps up to date


@dataclass(frozen=True)
class RunningNote(Process):
    """What the command of a build says of it.

    Attributes:
        started, heard: seconds since the Unix epoch, by the command's clock; its last sign of life.
        units: that the version gets from logs that are built; 0 where unknown.
        detached: the job runs without the command.
        ended: how the command ended without an outcome; "" while it runs.
        labels: that the build was given.
        turn: in the order of builds that were announced at once, see
            `logloom.pipelines.build.concurrent_builds.take_turn`; 0 while it isn't chosen yet.
        beat: grows with each sign of life, whatever the command's clock does.
    """

    engine: Text
    started: Count
    heard: Count
    units: Count = 0
    job_id: Text = ""
    place: Text = ""
    detached: bool = False
    ended: Text = ""
    labels: Mapping[Text, Text] = field(default_factory=dict)
    turn: Count = 1
    beat: Count = 0

    @property
    def lives(self) -> bool | None:
        """Whether the command runs; None if only a change of the note would show it."""
        return False if self.ended else super().lives


def is_left_here(note: RunningNote, number: int, run: str) -> bool:
    """Whether this very process left a note behind, of a build whose end it couldn't write down.

    As where that was interrupted twice, in a notebook: the process lives on, and may build again.
    """
    return note.is_own and (number, run) not in _kept_here


def note_file(number: int, run: str) -> str:
    """Where a build that is to be a version notes that it runs."""
    return f"{runs_folder(number)}/{run}{NOTE_SUFFIX}"


def notes_of_others(job: Target) -> dict[str, RunningNote]:
    """The notes of other builds of a job's version that aren't known to be over, by run."""
    folder, found = runs_folder(job.number), dict[str, RunningNote]()
    names = job.store.names(folder)
    for name in names:
        run, is_note, _ = name.partition(NOTE_SUFFIX)
        if not is_note or run == job.run or f"{run}.json" in names:
            continue
        place = job.store.uri_of(f"{folder}/{name}")
        with contextlib.suppress(*MISSING, DatasetError):
            note = checked(RunningNote, parsed(job.store.read(f"{folder}/{name}"), place), place)
            if note.lives is not False and not is_left_here(note, job.number, run):
                found[run] = note
    return found


def is_over(store: Store, number: int, run: str) -> bool:
    """Whether a build is known to be over; a detached one only by its outcome."""
    with contextlib.suppress(*MISSING, DatasetError):
        note = _read(store, number, run)
        if note.ended or (note.lives is False and not note.detached):
            return True
    return store.exists(f"{runs_folder(number)}/{run}.json")


def _read(store: Store, number: int, run: str) -> RunningNote:
    name = note_file(number, run)
    return checked(RunningNote, parsed(store.read(name), store.uri_of(name)), store.uri_of(name))


class Heartbeats:
    """Commands of which only their notes tell, watched for changes of these.

    Args:
        clock: gives seconds, of this process alone.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._seen: dict[tuple[int, str], tuple[int, float, bool]] = {}  # beat, since when, after a change

    def lives(self, number: int, run: str, beat: int) -> bool | None:
        """Whether a command runs, as far as looks at its note tell up to this one; None where none does yet.

        Args:
            number, run: name the build.
            beat: what the note says now.
        """
        now = self._clock()
        last, since, is_known = self._seen.get((number, run), (beat, now, False))
        if beat != last:
            since, is_known = now, True
        self._seen[number, run] = beat, since, is_known
        if now - since >= SILENT_AFTER:
            return False
        return True if is_known else None


def note_silence(store: Store, number: int, run: str, beat: int) -> None:
    """Writes into a note that its command gave no sign of life, unless it has; left out where it can't be."""
    with contextlib.suppress(*MISSING, StorageError, DatasetError):
        note = _read(store, number, run)
        if note.beat == beat and not note.ended:
            why = f"its command on {note.host} gave no sign of life for {SILENT_AFTER:.0f} s while another"
            said = replace(note, ended=f"{why} one watched; it was probably killed")
            store.replace(note_file(number, run), canonical(asdict(said)), durable=False)


class Announced:
    """Says in the root that a build runs, until the block ends; a note that can't be written is left out.

    Args:
        leaves_outcome: a commit records its outcome; otherwise its note is removed at its end.
        takes_turn: its turn is chosen after it was announced.
    """

    def __init__(
        self,
        job: Target,
        engine: str,
        units: int = 0,
        *,
        detached: bool = False,
        leaves_outcome: bool = True,
        takes_turn: bool = False,
    ):
        self._job, self._leaves_outcome = job, leaves_outcome
        now = int(time.time())
        self._note = RunningNote(
            engine,
            now,
            now,
            units,
            detached=detached,
            labels=job.settings.labels,
            turn=0 if takes_turn else 1,
            **asdict(own_process()),
        )
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._beat, name="logloom-status", daemon=True)

    def __enter__(self) -> Announced:
        _kept_here.add((self._job.number, self._job.run))
        self.update()
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        _kept_here.discard((self._job.number, self._job.run))
        self._over.set()
        self._thread.join()
        overtaken = isinstance(error, OvertakenError)  # which plans again, and has nothing to report
        if error is not None and not overtaken:
            self.update(ended=why_ended(error).partition("\n")[0][:500])
        elif overtaken or not self._leaves_outcome:
            with contextlib.suppress(StorageError):
                self._job.store.remove(note_file(self._job.number, self._job.run), durable=False)

    @property
    def note(self) -> RunningNote:
        """What the note says, as it was written last."""
        return self._note

    def update(self, **changes: str | int) -> None:
        """Writes the note, with changes."""
        name = note_file(self._job.number, self._job.run)
        with self._lock, contextlib.suppress(StorageError, OSError):
            beat = self._note.beat + 1
            self._note = replace(self._note, heard=int(time.time()), beat=beat, **changes)  # type: ignore[arg-type]
            self._job.store.replace(name, canonical(asdict(self._note)), durable=False)

    def _beat(self) -> None:
        while not self._over.wait(HEARD_EVERY):
            self.update()
