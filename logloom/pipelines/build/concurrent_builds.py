"""Concurrent builds of one version: the second one is refused, or waits.

Both would do the same work, and only one commits. A build's note only informs, so what counts is whether the
build is known to run: one that was killed blocks others only for a short time. That is decided by
`logloom.pipelines.status.still_running`.
Elsewhere: the status of builds (logloom.pipelines.status), the notes that they leave
(logloom.transforms.build.run_note).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from logloom.errors import BesideError, OvertakenError
from logloom.io.catalog.version_files import version_file
from logloom.io.storage.store import Store
from logloom.pipelines import status
from logloom.pipelines.status import BuildState, BuildStatus
from logloom.text import OnMessage, human_seconds, human_time, ignore_message
from logloom.transforms.build.job import Target
from logloom.transforms.build.run_note import (
    SILENT_AFTER,
    Announced,
    Heartbeats,
    RunningNote,
    notes_of_others,
)

_CHOOSE_EVERY = 0.05  # seconds; others choose right after they are announced
_WAITS = (BuildState.running, BuildState.unknown)  # states of builds that `wait_for_others` waits for


def refuse_second(job: Target, on_message: OnMessage = ignore_message) -> None:
    """Makes sure that no other build of a job's version is known to run.

    Args:
        on_message: called with builds of unknown state.

    Raises:
        BesideError: one runs.
    """
    store, found = job.store, _others(job)
    for one in found:
        if one.state in (BuildState.detached, BuildState.unknown):
            on_message(_unsure(one))

    def watched(one: BuildStatus) -> None:
        on_message(_message(one, "waiting for its next sign of life, for it may have been killed"))

    if found and (running := running_now(store, {job.number}, watched, but_for=job.run)):
        raise _refusal(store, running[0])


def take_turn(
    job: Target, announced: Announced, on_message: OnMessage = ignore_message, *, replans: bool = False
) -> None:
    """Make sure that one goes on of builds that were announced at once, so that none saw another before.

    Lamport's bakery: a build writes its note without a turn, takes a turn after those that it finds, waits
    until all others have chosen, and refuses if one of them has a lower (turn, start, run). Of two builds,
    one that looks for turns after the other wrote its own has a higher one, and finds the lower; else each
    finds that the other chooses, waits for it, and both compare the same values. So never do both go on, and
    the lowest of all that run never refuses, whatever the clocks of their hosts say.

    Args:
        announced: the note; one that takes no turn runs beside others.
        on_message: called with builds that are watched for a sign of life.
        replans: the caller plans again where another build has ended since it planned.

    Raises:
        BesideError: another build goes on.
        OvertakenError: another build has committed the version; only where the caller replans.
    """
    if announced.note.turn:
        return
    _wait_for_turn(job, announced, on_message)
    if replans and job.store.exists(version_file(job.number)):
        where = f"version {job.number} of {job.store.uri}"
        raise OvertakenError(f"another build committed {where} since this one was planned; build again")


def _wait_for_turn(job: Target, announced: Announced, on_message: OnMessage) -> None:
    announced.update(turn=1 + max((one.turn for one in notes_of_others(job).values()), default=0))
    heartbeats = Heartbeats()
    others = _living_others(job, heartbeats)
    while any(one.turn == 0 for one in others.values()):
        time.sleep(_CHOOSE_EVERY)
        others = _living_others(job, heartbeats)
    mine = (announced.note.turn, announced.note.started, job.run)
    ahead = [run for run, one in others.items() if (one.turn, one.started, run) < mine]
    if not ahead:
        return

    def watched(one: BuildStatus) -> None:
        on_message(_message(one, "waiting for its next sign of life, for it may have been killed"))

    submitting = [run for run in ahead if others[run].detached and not others[run].job_id]
    found = [one for one in status.builds(job.store, {job.number}) if one.run in submitting]
    if running := found or running_now(job.store, {job.number}, watched, among=ahead):
        raise _refusal(job.store, running[0])


def _living_others(job: Target, heartbeats: Heartbeats) -> dict[str, RunningNote]:
    """`notes_of_others`, but for those that didn't change while they were watched."""

    def lives(run: str, note: RunningNote) -> bool:
        return bool(note.lives) or heartbeats.lives(job.number, run, note.beat) is not False

    return {run: note for run, note in notes_of_others(job).items() if lives(run, note)}


def wait_for_others(job: Target, on_message: OnMessage = ignore_message) -> bool:
    """Waits until no other build of a job's version runs; says whether there was one, so that this one is to
    be planned again.

    Args:
        on_message: called with the builds that are waited for.
    """
    found = _others(job)
    for one in found:
        on_message(_message(one, "waiting for its end") if _is_waited_for(one) else _unsure(one))
    waited_for = [one for one in found if _is_waited_for(one)]
    if waited_for:
        status.wait(job.store, job.number, states=_WAITS)
    return bool(waited_for)


def _is_waited_for(one: BuildStatus) -> bool:
    return one.silence >= 0 or one.state in _WAITS


def _others(job: Target) -> list[BuildStatus]:
    """The builds of its version that may run, but for itself."""
    found = status.builds(job.store, {job.number})
    return [one for one in found if one.run != job.run and one.may_run]


def _message(one: BuildStatus, then: str) -> str:
    return f"another build: {one.in_words()}; {then}"


def _unsure(one: BuildStatus) -> str:
    return _message(one, "it is unknown whether it still runs, so both may go on, and only one commits")


def running_now(
    store: Store,
    versions: Collection[int] | None = None,
    on_status: Callable[[BuildStatus], None] = lambda status: None,
    but_for: str = "",
    among: Collection[str] | None = None,
    states: Collection[BuildState] = (BuildState.running,),
) -> list[BuildStatus]:
    """The builds that are known to run.

    Of a process that can be seen from here, or a job that its engine knows, that is known at once. A command
    on another machine or in another container is known to run once it gives a new sign of life: one that was
    killed leaves a young note, too, as where Kubernetes replaces a pod. So this takes up to `HEARD_EVERY`
    where one runs, and `SILENT_AFTER` where none does.

    Args:
        versions: only builds that are to be one of these; None for all.
        on_status: called with those that are watched for a sign of life.
        but_for: the name of a build that doesn't count.
        among: the names of those that count; None for all.
        states: of those that count.
    """
    heartbeats = Heartbeats()
    watched: set[tuple[int, str]] = set()
    while True:
        found = [one for one in status.builds(store, versions) if one.run != but_for]
        found = [one for one in found if among is None or one.run in among]
        running = [one for one in status.still_running(store, found, heartbeats) if one.state in states]
        known = [one for one in running if one.silence < 0]
        if known or not running:
            return known
        for one in running:
            if (one.version, one.run) not in watched:
                watched.add((one.version, one.run))
                on_status(one)
        time.sleep(status.LOOK_EVERY)


def _refusal(store: Store, running: BuildStatus) -> BesideError:
    job = f", job {running.job_id}" if running.job_id else ""
    where = f" at {running.place}" if running.place else ""
    by = "submitted by" if running.detached else "by"
    return BesideError(
        f"{store.uri}: another build of version {running.version} runs: on {running.engine}{job}{where}, "
        f"{by} process {running.pid} on {running.host}, since {human_time(running.started * 10**9)}, last "
        f"heard of {human_seconds(max(0, running.heard))} ago. Give `build` or `convert` --wait to wait for "
        "it and go on from what it did, stop it, or come back later; `logloom status` shows how it is. One "
        f"that was killed blocks others for at most {SILENT_AFTER:.0f} s"
    )
