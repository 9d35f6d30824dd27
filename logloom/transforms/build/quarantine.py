"""Quarantine of logs that crash workers: retries run in a separate process.

A log may end the process that builds it: its values need more memory than there is, or a decoder or a
function of the user's crashes. Engines retry such work, and lose a worker each time. So each attempt leaves a
note in the root, which is removed unless its process dies. If a note is found whose process or build is known
to have ended, the log is a suspect: child processes do the work, one at a time, so that only they die. After
a few deaths the log has failed, as a log that can't be read. Notes of attempts that may still run, such as
those of another build at the same time, are left alone.

Here: `build_bundle`, `open_new`, and the child process: python -m logloom.transforms.build.quarantine.
Elsewhere: building (logloom.transforms.build.partition), logs that are left out
(logloom.transforms.build.commit), which builds have ended (logloom.transforms.build.run_note).
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess  # nosec B404 # starts this Python only
import sys
import threading
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any, TypeVar

from logloom.digests import digest_of
from logloom.errors import DatasetError
from logloom.interpreter import import_environment, module_command
from logloom.io.catalog.version_files import runs_folder
from logloom.io.storage.faults import MISSING
from logloom.io.storage.metadata import Count, Text, canonical, checked, parsed
from logloom.io.storage.processes import Process, own_process
from logloom.software import software
from logloom.text import counted
from logloom.transforms.build.job import Job, LogJob, LogTask, PartitionTask
from logloom.transforms.build.log_summaries import Opened, summarize
from logloom.transforms.build.partition import build_partition
from logloom.transforms.build.partition_results import Failure, PartitionResult
from logloom.transforms.build.run_note import is_over
from logloom.values import dataclass

T = TypeVar("T")
Work = Sequence[PartitionTask] | LogTask

MAX_SEEN = 2  # deaths of children, which are the log's own doing
# Nobody sees a death that takes us along, as where a machine is out of memory; but engines that cancel a job,
# and machines that are taken away, look just the same.
MAX_ATTEMPTS = 6
_END = b"logloom: done"  # ends an answer; that of a process that dies may be cut anywhere
_APART = threading.Lock()  # one child at a time: it may be the one that takes all the memory


@dataclass(frozen=True)
class Suspect:
    """A log that may have ended processes; recorded in the root until it is cleared.

    Attributes:
        partition: the latest that one died of; "" where it was being opened.
        attempts: that were begun, and may have ended so.
        seen: children that ended so while we lived.
        how: the end of the last one; "" if none was observed.
    """

    log_id: Text
    partition: Text
    attempts: Count
    seen: Count = 0
    how: Text = ""


@dataclass(frozen=True)
class Attempt(Process):
    """What the note of an attempt says: the build, and the process of a worker that does it."""

    run: Text


def build_bundle(job: Job, tasks: Sequence[PartitionTask]) -> list[PartitionResult]:
    """Builds neighbouring partitions of a log, in this process or in one apart.

    A log that processes died of, now or in earlier attempts, gives one failure.
    """
    log, spans = tasks[0].log, [tasks[0].span.start, tasks[-1].span.stop]
    built: list[PartitionResult] | Failure = _attempted(job, tasks, log, log.key, spans, tasks[0].span.name)
    return [PartitionResult(log, "", (), (built,))] if isinstance(built, Failure) else built


def open_new(job: LogJob, log: LogTask) -> Opened:
    """Run `summarize` in the same way: opening a log for the first time may end the process."""
    if log.content_id:
        return summarize(job, log)
    inputs = [job.plan_identity, log.log_id, list(log.uris), log.listed]
    opened: Opened | Failure = _attempted(job, log, log, inputs, [], "")
    return Opened(log, opened) if isinstance(opened, Failure) else opened


def _attempted(job: Job, work: Work, log: LogTask, inputs: Any, spans: list[int], partition: str) -> Any:
    """What `_done` gives, or the failure of a log that processes died of.

    Args:
        inputs: identify the log with the recipe.
        spans: identify this work on the log.
    """
    # Another name once the log, the recipe or the software changes: it may do then.
    mark = f"{runs_folder(job.number)}/attempts/{digest_of([inputs, software()])[:32]}.json"
    note = f"{mark.removesuffix('.json')}-{digest_of(spans)[:32]}"
    own = Attempt(job.run, **asdict(own_process()))
    is_ours = job.store.create(note, canonical(asdict(own)), durable=False)
    died = not is_ours and _died(job, note)
    if died:
        job.store.replace(note, canonical(asdict(own)), durable=False)
    try:
        suspect = _read(job, mark, Suspect) or (Suspect(log.log_id, partition, 1) if died else None)
        if suspect is None:
            return _done(job, work)
        with _APART:
            return _done_apart(job, work, mark, suspect, partition)
    finally:
        if is_ours or died:
            job.store.remove(note, durable=False)


def _done(job: Job, work: Work) -> list[PartitionResult] | Opened:
    """The results of partitions, or a log that is opened, in this process."""
    if isinstance(work, LogTask):
        assert isinstance(job, LogJob)
        return summarize(job, work)
    return [build_partition(job, task) for task in work]


def _died(job: Job, note: str) -> bool:
    """Whether the attempt that left a note is known to have died; one that makes no sense counts as dead."""
    attempt = _read(job, note, Attempt)
    if attempt is None:
        return job.store.exists(note)  # else it has ended well by now
    if (lives := attempt.lives) is not None:
        return not lives
    # An engine tries again what was lost. Of another build's worker elsewhere only that build tells.
    return attempt.run == job.run or is_over(job.store, job.number, attempt.run)


def _done_apart(job: Job, work: Work, mark: str, suspect: Suspect, partition: str) -> Any:
    while suspect.seen < MAX_SEEN and suspect.attempts < MAX_ATTEMPTS:
        _write(job, mark, replace(suspect, attempts=suspect.attempts + 1))  # what ends the child may end us
        results, how = _in_child(job, work)
        if not how:
            if suspect.seen:
                _write(job, mark, suspect)
            else:
                job.store.remove(mark, durable=False)
            return results
        suspect = Suspect(suspect.log_id, partition, suspect.attempts + 1, suspect.seen + 1, how)
        _write(job, mark, suspect)
    how = f", the last one {suspect.how}" if suspect.how else ""
    place = job.store.uri_of(mark)
    if job.on_error == "fail":
        way_out = f"leave the log out by on_error: skip, or remove {place} to try it again"
    else:
        way_out = f"it is tried again once the log, the recipe or logloom changes (noted in {place})"
    died = counted(suspect.attempts, "worker process", "worker processes")
    message = f"{died} died of it{how}; {way_out}"
    return Failure(suspect.log_id, suspect.partition, "worker", message)


def _read(job: Job, name: str, kind: type[T]) -> T | None:
    """What is noted of a log, or of an attempt; None where that is nothing, or makes no sense."""
    with contextlib.suppress(*MISSING, DatasetError):
        place = job.store.uri_of(name)
        return checked(kind, parsed(job.store.read(name), place), place)
    return None


def _write(job: Job, mark: str, suspect: Suspect) -> None:
    job.store.replace(mark, canonical(asdict(suspect)), durable=False)


# --- the child process ----------------------------------------------------------------------------------


def _in_child(job: Job, work: Work) -> tuple[Any, str]:
    """What `_done` gives, of a child process; and how that one died, or "".

    Raises:
        Exception: what `_done` raises.
    """
    task = pickle.dumps((job, work))
    with subprocess.Popen(  # nosec B603 # this Python
        module_command("logloom.transforms.build.quarantine"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=import_environment(),
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            with contextlib.suppress(BrokenPipeError):
                child.stdin.write(len(task).to_bytes(8) + task)
                child.stdin.flush()  # and left open: its end tells the child that we are gone
            printed = child.stdout.read()
        finally:
            child.kill()
        code = child.wait()
    if not printed.endswith(_END):
        return None, _how_died(code)
    results, error = pickle.loads(printed[: -len(_END)])  # nosec B301 # of our own child
    if error is not None:
        raise error
    return results, ""


def _how_died(code: int) -> str:
    """How a child process ended, in words."""
    if code >= 0:
        return f"ended with code {code}"
    why = ", perhaps because memory ran out" if -code == signal.SIGKILL else ""
    return f"by {signal.Signals(-code).name}{why}"


def main() -> None:
    """Run the work that the parent process requests, and send it the result."""
    size = int.from_bytes(sys.stdin.buffer.read(8))
    job, work = pickle.loads(sys.stdin.buffer.read(size))  # nosec B301 # of our own parent
    threading.Thread(target=_end_with_parent, daemon=True).start()
    answer = os.dup(1)
    os.dup2(2, 1)  # what functions of the user's print is no answer
    results: list[PartitionResult] | Opened | None = None
    error: Exception | None = None
    try:
        results = _done(job, work)
    except Exception as raised:
        error = raised
    with os.fdopen(answer, "wb") as file:
        file.write(pickle.dumps((results, error)) + _END)
    os._exit(0)


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


if __name__ == "__main__":
    main()
