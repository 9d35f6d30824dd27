"""The note that a build leaves in runs/ while its command runs.

A note only informs: nothing but the commit decides which build makes a version, so one that a killed command
left blocks nobody for long.
Here: `RunningNote`, `Announced`, which keeps it up to date, and `is_over`, by which workers tell that a build
is gone.
Elsewhere: what is known of builds (logloom.pipelines.status), their outcomes (logloom.transforms.finish).
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace

from logloom.errors import DatasetError, StorageError
from logloom.io.disk import is_running
from logloom.io.metadata import Count, Text, canonical, checked, parsed
from logloom.io.remote import MISSING
from logloom.io.storage import Store
from logloom.io.version_files import runs_folder
from logloom.transforms.job import Target
from logloom.words import why_ended

HEARD_EVERY = 30.0  # seconds between signs of life
SILENT_AFTER = 120.0

_kept_here: set[tuple[int, str]] = set()  # version and run of the notes that this process keeps up to date


@dataclass(frozen=True)
class RunningNote:
    """What the command of a build says of it.

    Attributes:
        started, heard: seconds since the Unix epoch, by the command's clock; its last sign of life.
        units: that the version gets from logs that are built; 0 where unknown.
        detached: the job runs without the command.
        ended: how the command ended without an outcome; "" while it runs.
        labels: that the build was given.
        turn: in the order of builds that were announced at once, see `logloom.pipelines.beside.take_turn`; 0
            while it isn't chosen yet.
    """

    engine: Text
    host: Text
    pid: Count
    started: Count
    heard: Count
    units: Count = 0
    job_id: Text = ""
    place: Text = ""
    detached: bool = False
    ended: Text = ""
    labels: Mapping[Text, Text] = field(default_factory=dict)
    turn: Count = 1

    @property
    def is_gone(self) -> bool:
        """Whether the command was a process of this machine that is no more."""
        return self.host == socket.gethostname() and not is_running(self.pid, self.started)

    @property
    def is_silent(self) -> bool:
        """Whether the command runs no more, as far as anybody can tell."""
        return self.is_gone or time.time() - self.heard >= SILENT_AFTER


def is_left_here(note: RunningNote, number: int, run: str) -> bool:
    """Whether this very process left a note behind, of a build whose end it couldn't write down.

    As where that was interrupted twice, in a notebook: the process lives on, and may build again.
    """
    mine = note.host == socket.gethostname() and note.pid == os.getpid()
    return mine and (number, run) not in _kept_here


def note_file(number: int, run: str) -> str:
    """Where a build that is to be a version notes that it runs."""
    return f"{runs_folder(number)}/{run}.running.json"


def notes_of_others(job: Target) -> dict[str, RunningNote]:
    """The notes of other builds of a job's version that aren't known to be over, by run."""
    folder, found = runs_folder(job.number), dict[str, RunningNote]()
    names = job.store.names(folder)
    for name in names:
        run, is_note, _ = name.partition(".running.json")
        if not is_note or run == job.run or f"{run}.json" in names:
            continue
        place = job.store.uri_of(f"{folder}/{name}")
        with contextlib.suppress(*MISSING, DatasetError):
            note = checked(RunningNote, parsed(job.store.read(f"{folder}/{name}"), place), place)
            if not (note.ended or note.is_silent or is_left_here(note, job.number, run)):
                found[run] = note
    return found


def is_over(store: Store, number: int, run: str) -> bool:
    """Whether a build is known to be over; a detached one only by its outcome."""
    with contextlib.suppress(*MISSING, DatasetError):
        name = note_file(number, run)
        note = checked(RunningNote, parsed(store.read(name), store.uri_of(name)), store.uri_of(name))
        if note.ended or (note.is_silent and not note.detached):
            return True
    return store.exists(f"{runs_folder(number)}/{run}.json")


class Announced:
    """Says in the root that a build runs, until the block ends; a note that can't be written is left out.

    Args:
        leaves_outcome: a commit says what became of it; else its note goes with its end.
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
            socket.gethostname(),
            os.getpid(),
            now,
            now,
            units,
            detached=detached,
            labels=job.labels,
            turn=0 if takes_turn else 1,
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
        if error is not None:
            self.update(ended=why_ended(error).partition("\n")[0][:500])
        elif not self._leaves_outcome:
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
            self._note = replace(self._note, heard=int(time.time()), **changes)  # type: ignore[arg-type]
            self._job.store.replace(name, canonical(asdict(self._note)), durable=False)

    def _beat(self) -> None:
        while not self._over.wait(HEARD_EVERY):
            self.update()
