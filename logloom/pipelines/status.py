"""What is known of builds into a root, of those that run and of others: `status`, `wait`, `build --wait`.

Here: the note that a build leaves in runs/ while its command runs, and reading it beside the outcome that its
commit writes. A note only informs: nothing but the commit decides which build makes a version, so one that a
killed command left blocks nobody.
Elsewhere: outcomes (logloom.transforms.finish), units that were read back (logloom.transforms.read_marks).
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace

from logloom.errors import DatasetError, LogloomError, StorageError
from logloom.io.manifest import runs_folder, version_file
from logloom.io.metadata import Count, Text, canonical, checked, parsed
from logloom.io.remote import MISSING
from logloom.io.storage import Store
from logloom.transforms.finish import Outcome, outcome_file
from logloom.transforms.job import Target
from logloom.transforms.read_marks import units_read_back

HEARD_EVERY = 30.0  # seconds between signs of life
SILENT_AFTER = 120.0
LOOK_EVERY = 5.0
_RUN = re.compile(r"([0-9a-z]{1,32})(\.running)?\.json")
_HANDED_ON = re.compile(r"[0-9a-f]{64}\.(parquet|tasks)|listing-[0-9a-f]{8}")
_NUMBER = re.compile(r"[0-9]{8}")


@dataclass(frozen=True)
class RunningNote:
    """What the command of a build says of it.

    Attributes:
        started, heard: seconds since the Unix epoch, by the command's clock; its last sign of life.
        units: that the version gets from logs that are built; 0 where unknown.
        detached: the job runs without the command.
        ended: how the command ended without an outcome; "" while it runs.
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


@dataclass(frozen=True)
class BuildStatus:
    """A build, as far as the root tells.

    Attributes:
        state: "running", "detached" (submitted, no outcome yet), "silent" (its command gives no sign of
            life), "stopped", "committed", "failed" or "refused" (another build committed this version).
        heard: seconds since the last sign of life; -1 where there is no note.
        units, units_read_back: of the version's new logs, by all attempts at this version.
        failed: partitions.
        problem: why nothing was committed; "" where it was.
    """

    version: int
    run: str
    state: str
    engine: str = ""
    job_id: str = ""
    place: str = ""
    started: int = 0
    heard: int = -1
    units: int = 0
    units_read_back: int = 0
    built: int = 0
    reused: int = 0
    failed: int = 0
    failure_files: tuple[str, ...] = ()
    problem: str = ""

    @property
    def is_over(self) -> bool:
        return self.state not in ("running", "detached")


class Announced:
    """Says in the root that a build runs, until the block ends; a note that can't be written is left out."""

    def __init__(self, job: Target, engine: str, units: int = 0, *, detached: bool = False):
        self._job = job
        self._name = outcome_file(job).removesuffix(".json") + ".running.json"
        now = int(time.time())
        self._note = RunningNote(
            engine, socket.gethostname(), os.getpid(), now, now, units, detached=detached
        )
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._beat, name="logloom-status", daemon=True)

    def __enter__(self) -> Announced:
        self.say()
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._over.set()
        self._thread.join()
        if error is not None:
            self.say(ended=f"{kind.__name__ if kind else ''}: {str(error).partition(chr(10))[0][:500]}")

    def say(self, **changes: str) -> None:
        """Writes the note, with changes."""
        with self._lock, contextlib.suppress(StorageError, OSError):
            self._note = replace(self._note, heard=int(time.time()), **changes)  # type: ignore[arg-type]
            self._job.store.replace(self._name, canonical(asdict(self._note)), durable=False)

    def _beat(self) -> None:
        while not self._over.wait(HEARD_EVERY):
            self.say()


def builds(store: Store, version: int | None = None, last: int | None = None) -> list[BuildStatus]:
    """The builds that left anything in runs/, the latest version first, and of one version by their start.

    Args:
        version: only those that were to be this one.
        last: only the first so many, so that a long past needn't be read; None for all.
    """
    numbers = [int(name) for name in store.names("runs") if _NUMBER.fullmatch(name)]
    wanted = (number for number in sorted(numbers, reverse=True) if version in (None, number))
    return list(itertools.islice(itertools.chain.from_iterable(_builds_of(store, n) for n in wanted), last))


def _builds_of(store: Store, number: int) -> Iterator[BuildStatus]:
    folder = runs_folder(number)
    runs: dict[str, BuildStatus] = {}
    for name in store.names(folder):
        if (match := _RUN.fullmatch(name)) is None:
            continue
        status = runs.get(match[1], BuildStatus(number, match[1], "silent"))
        try:
            data = parsed(store.read(f"{folder}/{name}"), store.uri_of(f"{folder}/{name}"))
            read = _with_note if match[2] else _with_outcome
            runs[match[1]] = read(status, data, store.uri_of(f"{folder}/{name}"))
        except MISSING:
            continue
        except DatasetError as error:  # a stranger's, or damaged
            runs[match[1]] = replace(status, problem=str(error))
    going_on = any(not status.is_over for status in runs.values())
    read_back = units_read_back(store, number) if going_on else 0
    is_there = going_on and store.exists(version_file(number))
    for status in sorted(runs.values(), key=lambda status: (-status.started, status.run)):
        if status.state == "detached" and is_there:
            status = replace(status, state="stopped", problem=f"another build committed version {number}")
        yield status if status.is_over else replace(status, units_read_back=read_back)


def _with_note(status: BuildStatus, data: object, place: str) -> BuildStatus:
    note = checked(RunningNote, data, place)
    heard = max(0, int(time.time()) - note.heard)
    state, problem = status.state, status.problem
    if state == "silent":  # without an outcome
        if note.ended:
            state, problem = "stopped", note.ended
        elif note.detached:
            state = "detached"
        elif heard < SILENT_AFTER and not _is_gone(note):
            state = "running"
        else:
            problem = f"its command on {note.host} gave no sign of life for {heard} s; it was probably killed"
    return replace(
        status,
        state=state,
        problem=problem,
        engine=note.engine,
        job_id=note.job_id,
        place=note.place,
        started=note.started,
        heard=heard,
        units=note.units,
    )


def _is_gone(note: RunningNote) -> bool:
    """Whether the command was a process of this machine that is no more."""
    if note.host != socket.gethostname():
        return False
    try:
        os.kill(note.pid, 0)
    except (ProcessLookupError, OverflowError):
        return note.pid > 0
    except PermissionError:
        return False
    return False


def _with_outcome(status: BuildStatus, data: object, place: str) -> BuildStatus:
    outcome = checked(Outcome, data, place)
    if outcome.committed:
        state, problem = "committed", ""
    elif outcome.conflict:
        state, problem = "refused", outcome.conflict
    else:
        first = outcome.failures[0].message if outcome.failures else ""
        state, problem = "failed", outcome.problem or first
    return replace(
        status,
        state=state,
        problem=problem,
        built=outcome.built,
        reused=outcome.reused,
        failed=outcome.failed,
        failure_files=tuple(outcome.failure_files),
    )


def sweep_runs(store: Store, number: int) -> None:
    """Removes what builds handed on in runs/, once their version is there and none of them runs."""
    with contextlib.suppress(LogloomError, *MISSING):
        if not store.exists(version_file(number)) or not all(one.is_over for one in builds(store, number)):
            return
        for name in filter(_HANDED_ON.fullmatch, store.names(runs_folder(number))):
            store.remove(f"{runs_folder(number)}/{name}", durable=False)


def wait(
    store: Store,
    version: int | None = None,
    *,
    timeout: float | None = None,
    on_status: Callable[[BuildStatus], None] = lambda status: None,
) -> list[BuildStatus]:
    """Waits until no build into a root runs; gives those that ran, or else the latest.

    Args:
        version: only builds that are to be this one.
        timeout: seconds; None waits as long as it takes.
        on_status: called with the builds that run, at each look.

    Raises:
        LogloomError: one still runs after `timeout`.
    """
    until = None if timeout is None else time.monotonic() + timeout
    waited_for: set[tuple[int, str]] = set()
    while True:
        found = builds(store, version)
        running = [status for status in found if not status.is_over]
        waited_for |= {(status.version, status.run) for status in running}
        if not running:
            ran = [status for status in found if (status.version, status.run) in waited_for]
            return ran or found[:1]
        for status in running:
            on_status(status)
        if until is not None and time.monotonic() >= until:
            raise LogloomError(
                f"{store.uri}: the build of version {running[0].version} still runs after {timeout:.0f} s"
            )
        time.sleep(LOOK_EVERY)
