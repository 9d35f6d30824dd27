"""The state of builds into a root, running or ended, for `logloom status`.

Here: `builds`, `still_running`, `wait`: from notes and outcomes in runs/; engines report detached jobs.
Elsewhere: the notes (logloom.transforms.build.run_note), outcomes (logloom.transforms.build.commit), units
that were read back (logloom.transforms.build.read_marks), what engines say (logloom.runners.detached_jobs),
builds that are refused beside others (logloom.pipelines.build.concurrent_builds).
"""

from __future__ import annotations

import contextlib
import enum
import itertools
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import field, replace

from logloom import parts
from logloom.errors import DatasetError, LogloomError, StorageError
from logloom.io.catalog.manifest import read_manifest
from logloom.io.catalog.version_files import runs_folder, version_file, version_numbers
from logloom.io.storage.faults import MISSING
from logloom.io.storage.file_ages import changed_at
from logloom.io.storage.metadata import checked, parsed
from logloom.io.storage.store import Store
from logloom.pipelines.versions.log_counts import lacking_in_words
from logloom.runners.detached_jobs import look_at
from logloom.text import counted, human_seconds, human_time
from logloom.transforms.build.commit import Outcome, outcome_name
from logloom.transforms.build.read_marks import units_read_back
from logloom.transforms.build.run_note import (
    SILENT_AFTER,
    Heartbeats,
    RunningNote,
    is_left_here,
    note_file,
    note_silence,
)
from logloom.values import dataclass

LOOK_EVERY = 5.0  # seconds
UNANSWERED_FOR = 60.0  # seconds, until nobody waits for an engine any more
MAX_REQUESTED = 10  # detached jobs of a version; a stranger's root may name very many
_RUN = re.compile(r"([0-9a-z]{1,32})(\.running)?\.json")
_HANDED_ON = re.compile(r"[0-9a-f]{64}\.(parquet|tasks)|listing-[0-9a-f]{8}")
_NUMBER = re.compile(r"[0-9]{8}")


class BuildState(enum.StrEnum):
    """What is known of a build."""

    running = "running"
    detached = "detached"  # submitted, without an outcome yet, and there is no engine to ask
    unknown = "unknown"  # detached, and its engine doesn't answer
    silent = "silent"  # its command gives no sign of life
    stopped = "stopped"
    committed = "committed"
    unchanged = "unchanged"  # there was nothing to commit
    failed = "failed"
    refused = "refused"  # another build committed this version


GOING_ON = (BuildState.running, BuildState.detached, BuildState.unknown)


@dataclass(frozen=True)
class BuildStatus:
    """A build, as far as the root and its engine know.

    Attributes:
        host, pid: of the command.
        heard: seconds since the last sign of life, of the engine where it was asked; by the clocks of both
            machines; -1: none.
        silence: seconds since its note changed, by the date of that file, where only the note shows its
            command, on another machine or in another container; -1 elsewhere. Such a build may run whatever
            its state says: `still_running` decides.
        beat: see `RunningNote`.
        detached: its command has ended; the engine is asked.
        units, units_read_back: of the version's new logs, by all attempts at this version.
        ended: when it did, seconds since the Unix epoch, by the machine that committed; 0 where unknown.
        failed: partitions.
        whole: nothing of a version that was committed is salvaged or skipped beyond the recipe's budget.
        lacking: which logs of a version that was committed aren't whole, where it isn't and is still there.
        problem: why nothing was committed, or isn't known to be; "" where it was.
    """

    version: int
    run: str
    state: BuildState
    engine: str = ""
    host: str = ""
    pid: int = 0
    job_id: str = ""
    place: str = ""
    started: int = 0
    ended: int = 0
    heard: int = -1
    silence: int = -1
    beat: int = 0
    detached: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    units: int = 0
    units_read_back: int = 0
    built: int = 0
    reused: int = 0
    failed: int = 0
    failure_files: tuple[str, ...] = ()
    whole: bool = True
    lacking: str = ""
    problem: str = ""

    @property
    def is_over(self) -> bool:
        return self.state not in GOING_ON

    @property
    def may_run(self) -> bool:
        """Whether nothing proves that it is over."""
        return self.silence >= 0 or not self.is_over

    def in_words(self) -> str:
        """In one line."""
        words = [f"version {self.version}, {self.state}"]
        if self.started:
            words.append(f"started {human_time(self.started * 10**9)}")
        if self.engine:
            how = "on" if self.engine in parts.names("engines") else "by"  # what commits without an engine
            words.append(f"{how} {self.engine}{f', job {self.job_id}' if self.job_id else ''}")
        if self.place:
            words.append(f"at {self.place}")
        if self.labels:
            words.append(" ".join(f"{key}={value}" for key, value in sorted(self.labels.items())))
        if not self.is_over:
            if self.host and not self.detached:
                words.append(f"process {self.pid} of {self.host}")
            words.append(f"{self.units_read_back} of {self.units or 'unknown'} units read back")
            if self.silence < 0:
                words.append(f"last heard of {human_seconds(max(0, self.heard))} ago")
            else:
                words.append(f"last heard of {human_seconds(self.silence)} ago by the date of its note")
        elif self.built or self.reused:
            words.append(f"{counted(self.built, 'unit')} built, {self.reused} found finished")
        if self.state == BuildState.committed and not self.whole:
            words.append(f"but {self.lacking or 'logs were skipped or salvaged'}")
        if self.failed:
            words.append(f"{self.failed} failed ({', '.join(self.failure_files)})")
        if self.problem:
            words.append(self.problem)
        return ", ".join(words)


def builds(
    store: Store, versions: Collection[int] | None = None, last: int | None = None
) -> list[BuildStatus]:
    """The builds that left anything in runs/, the latest version first, and of one version by their start.

    Engines are asked of detached jobs that may still run.

    Args:
        store: the root.
        versions: only builds that were to be one of these.
        last: only the first so many, so that a long past needn't be read; None for all.

    Returns:
        How each is, or how it ended.
    """
    wanted = (n for n in reversed(_numbers(store)) if versions is None or n in versions)
    return list(itertools.islice(itertools.chain.from_iterable(builds_of(store, n) for n in wanted), last))


def _numbers(store: Store) -> list[int]:
    """Those of the versions that builds left anything of, ascending."""
    return sorted(int(name) for name in store.names("runs") if _NUMBER.fullmatch(name))


def _unfinished(store: Store) -> list[int]:
    """The versions that builds may be at work on: those that aren't there, and the latest in any case."""
    numbers, committed = _numbers(store), set(version_numbers(store))
    return [number for number in numbers if number not in committed or number == numbers[-1]]


def builds_of(store: Store, number: int) -> Iterator[BuildStatus]:
    folder = runs_folder(number)
    runs: dict[str, BuildStatus] = {}
    for name in store.names(folder):
        if match := _RUN.fullmatch(name):
            status = runs.get(match[1], BuildStatus(number, match[1], BuildState.silent))
            runs[match[1]] = _read(
                store, f"{folder}/{name}", status, _with_note if match[2] else _with_outcome
            )
    runs = {run: _by_date(store, one) if one.silence >= 0 else one for run, one in runs.items()}
    going_on = any(not status.is_over for status in runs.values())
    read_back = max((status.units_read_back for status in runs.values()), default=0)
    if not any(status.state == BuildState.committed for status in runs.values()):  # it removes the marks
        read_back = max(read_back, units_read_back(store, number))
    is_there = going_on and store.exists(version_file(number))
    requested = 0
    for status in sorted(runs.values(), key=_latest_first):
        if status.state == BuildState.detached and is_there:
            problem = f"another build committed version {number}"
            status = replace(status, state=BuildState.stopped, problem=problem)
        elif status.state == BuildState.detached and requested < MAX_REQUESTED:
            requested += 1
            status = _with_engine_state(store, status)
        if status.state == BuildState.committed and not status.whole:
            status = replace(status, lacking=_lacking(store, number))
        yield replace(status, units_read_back=read_back)


def _by_date(store: Store, status: BuildStatus) -> BuildStatus:
    """A build known by its note alone, as the date of that file suggests."""
    changed = None
    with contextlib.suppress(StorageError):  # a store that dates nothing
        changed = changed_at(store, note_file(status.version, status.run))
    silence = status.heard if changed is None else max(0, int(time.time() - changed))
    if silence < SILENT_AFTER:
        return replace(status, state=BuildState.running, silence=silence)
    problem = (
        f"its command on {status.host} gave no sign of life for {silence} s by the date of its note; it was "
        "probably killed, but it may run"
    )
    return replace(status, problem=problem, silence=silence)


def still_running(store: Store, found: Collection[BuildStatus], heartbeats: Heartbeats) -> list[BuildStatus]:
    """Those of some builds that may run.

    The one place that decides this of commands on other machines and in other containers: one whose note
    doesn't change while it is watched is over, and is noted as such from then on.

    Args:
        found: as they were just looked at.
        heartbeats: of all looks since the caller began to watch.
    """
    left = []
    for one in found:
        if one.silence < 0:
            left += [] if one.is_over else [one]
            continue
        lives = heartbeats.lives(one.version, one.run, one.beat)
        if lives is False:
            note_silence(store, one.version, one.run, one.beat)
        else:
            silence = -1 if lives else one.silence
            left.append(replace(one, state=BuildState.running, problem="", silence=silence))
    return left


def _lacking(store: Store, number: int) -> str:
    """Which logs of a version aren't whole; "" where it is gone, or damaged."""
    with contextlib.suppress(LogloomError, *MISSING):
        return lacking_in_words(read_manifest(store, number).logs)
    return ""


def _latest_first(status: BuildStatus) -> tuple[int, bool, bool, str]:
    """Notes tell seconds: of builds that began in the same one, the one that committed ended last."""
    return -status.started, status.state != BuildState.committed, status.is_over, status.run


def _read(
    store: Store, name: str, status: BuildStatus, add: Callable[[BuildStatus, object, str], BuildStatus]
) -> BuildStatus:
    """A build with what one of its files says."""
    try:
        return add(status, parsed(store.read(name), store.uri_of(name)), store.uri_of(name))
    except MISSING:
        return status
    except DatasetError as error:  # a stranger's, or damaged
        return replace(status, problem=str(error))


def _with_engine_state(store: Store, status: BuildStatus) -> BuildStatus:
    """A detached build with what its engine says, where it has no outcome."""
    seen = look_at(status.place)
    if seen is None:
        return status
    if seen.state == "running":
        return replace(status, state=BuildState.running, heard=0)
    if seen.state == "unknown":
        return replace(status, state=BuildState.unknown, problem=seen.why)
    ended = _read(store, outcome_name(status.version, status.run), status, _with_outcome)
    if ended.is_over:  # it came about since the folder was listed
        return ended
    state = BuildState.stopped if seen.state == "stopped" else BuildState.failed
    return replace(status, state=state, problem=f"{seen.why}; it committed nothing. Build again")


def _with_note(status: BuildStatus, data: object, place: str) -> BuildStatus:
    note = checked(RunningNote, data, place)
    heard = max(0, int(time.time()) - note.heard)
    state, problem, silence = status.state, status.problem, -1
    if state == BuildState.silent:  # without an outcome
        if note.ended:
            state, problem = BuildState.stopped, note.ended
        elif note.detached:
            state = BuildState.detached
        elif is_left_here(note, status.version, status.run):
            problem = "its command has ended, and left no note of the result"
        elif note.lives:
            state = BuildState.running
        elif note.lives is None:
            silence = heard
        else:
            problem = f"its command, process {note.pid} here, ended without a word; it was probably killed"
    return replace(
        status,
        state=state,
        problem=problem,
        engine=note.engine,
        host=note.host,
        pid=note.pid,
        job_id=note.job_id,
        place=note.place,
        started=note.started,
        heard=heard,
        silence=silence,
        beat=note.beat,
        detached=note.detached,
        labels=note.labels,
        units=note.units,
    )


def _with_outcome(status: BuildStatus, data: object, place: str) -> BuildStatus:
    outcome = checked(Outcome, data, place)
    if outcome.committed:
        state, problem = BuildState.committed, ""
    elif outcome.unchanged:
        state, problem = BuildState.unchanged, ""
    elif outcome.conflict:
        state, problem = BuildState.refused, outcome.conflict
    else:
        first = outcome.failures[0].message if outcome.failures else ""
        state, problem = BuildState.failed, outcome.problem or first
    return replace(
        status,
        state=state,
        problem=problem,
        built=outcome.built,
        reused=outcome.reused,
        failed=outcome.failed,
        failure_files=tuple(outcome.failure_files),
        whole=outcome.whole,
        ended=outcome.ended,
        units_read_back=outcome.read_back,
    )


def sweep_runs(store: Store, number: int) -> None:
    """Removes what builds handed on in runs/, once their version is there, or needn't be, and none of them
    runs."""
    with contextlib.suppress(LogloomError, *MISSING):
        found = builds(store, {number})
        unchanged = any(one.state == BuildState.unchanged for one in found)
        is_done = unchanged or store.exists(version_file(number))
        if not is_done or any(one.may_run for one in found):
            return
        for name in filter(_HANDED_ON.fullmatch, store.names(runs_folder(number))):
            store.remove(f"{runs_folder(number)}/{name}", durable=False)


def wait(
    store: Store,
    version: int | None = None,
    *,
    timeout: float | None = None,
    states: Collection[str] = GOING_ON,
    on_status: Callable[[BuildStatus], None] = lambda status: None,
) -> list[BuildStatus]:
    """Waits until no build into a root runs.

    An engine that doesn't answer for a minute is waited for no more, nor is a command elsewhere whose note
    doesn't change for two.

    Args:
        store: the root.
        version: only builds that are to be this one; None looks at all versions that aren't there yet.
        timeout: seconds; None waits as long as it takes.
        states: of the builds that are waited for.
        on_status: called with the builds that run, at each look.

    Returns:
        How those that ran ended; if none ran, how the latest one did.

    Raises:
        LogloomError: one still runs after `timeout`.
    """
    began = answered = time.monotonic()
    versions = {version} if version is not None else set(_unfinished(store))
    waited_for: set[tuple[int, str]] = set()
    heartbeats = Heartbeats()
    while True:
        found = builds(store, versions)
        running = [one for one in still_running(store, found, heartbeats) if one.state in states]
        waited_for |= {(status.version, status.run) for status in running}
        if any(status.state != BuildState.unknown for status in running):
            answered = time.monotonic()
        if not running or time.monotonic() - answered > UNANSWERED_FOR:
            if any(status.silence >= 0 for status in found):
                found = builds(store, versions)  # their notes say by now that they are over
            ran = [status for status in found if (status.version, status.run) in waited_for]
            return ran or found[:1]
        for status in running:
            on_status(status)
        if timeout is not None and time.monotonic() - began >= timeout:
            raise LogloomError(
                f"{store.uri}: the build of version {running[0].version} still runs after {timeout:.0f} s"
            )
        time.sleep(LOOK_EVERY)
        if version is None:
            versions |= set(_unfinished(store))
