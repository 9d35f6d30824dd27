"""Outcomes of any number of a build's logs, passed to the commit in files.

    outcomes of logs -> groups of neighbours, each written as pages in runs/<number>/ -> the version's pages

Here: the input of a pipeline, which reaches workers in the same way; grouping, writing, and merging with the
parent version's records that stay. Only names of pages and counts are passed on, and no step holds more
records than a few pages.
Elsewhere: finishing one log, and the commit (logloom.transforms.build.commit); merging pages
(logloom.io.catalog.page_merge); Beam (logloom.transforms.beam.build).
"""

from __future__ import annotations

import bisect
import contextlib
import itertools
import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from blake3 import blake3

from logloom.errors import DatasetError, LogloomError
from logloom.io.catalog.manifest import digest_of_manifest, manifest_at
from logloom.io.catalog.page_merge import merge_records, write_records
from logloom.io.catalog.pages import LogRecord, RecordPage, total
from logloom.io.catalog.records import LogRecords
from logloom.io.catalog.version_files import runs_folder
from logloom.io.logs.files.sidecars import Sidecars
from logloom.io.logs.log_cache import Memory
from logloom.io.storage.metadata import canonical
from logloom.transforms.build.bundles import packed, unpacked
from logloom.transforms.build.job import LogJob, Target
from logloom.transforms.build.partition_results import Failure
from logloom.transforms.rows.missing_values import Availability, merged
from logloom.transforms.rows.notices import BuildWarning
from logloom.transforms.rows.sequences import SequenceCounts, merged_sequences
from logloom.values import dataclass

GROUP = 4096  # logs whose outcomes one worker writes
MAX_FAILURES = 200  # that travel and are shown; files list all
_MORE_WARNINGS = BuildWarning(
    "there are more warnings; `logloom versions ROOT --log LOG_ID` shows those of a log"
)


@dataclass(frozen=True)
class LogOutcome:
    """What became of a log: a record for the manifest, and why it failed where it did.

    Attributes:
        record: None where the log failed, and where its record in the parent version stays.
        memory: see `logloom.transforms.build.log_summaries.remembered`.
        warnings: of what may be wrong with its rows.
        available: in how many rows its columns are.
        sequences: its episodes or scenes, of outputs that have such.
    """

    log_id: str
    record: LogRecord | None
    failures: tuple[Failure, ...] = ()
    built: int = 0
    reused: int = 0
    seconds: float = 0.0
    memory: bytes = b""
    warnings: tuple[BuildWarning, ...] = ()
    available: tuple[Availability, ...] = ()
    sequences: tuple[SequenceCounts, ...] = ()


@dataclass(frozen=True)
class LogOutcomes:
    """What became of many logs.

    Attributes:
        made: pages of the records that were made, in runs/.
        failures: what keeps the build from committing, the first few.
        failed: how many there are.
        failure_files: list all failures, those of logs that were left out, too.
        memories: names of files in runs/ with what the next plan may remember of the logs.
        built, reused: units.
        version: pages of the version's records, once they are merged; none where anything failed.
        unchanged: the job commits only changes, and there are none.
        warnings: of logs that were built, the first few.
        available: in how many rows of logs that were built columns are.
        sequences: their episodes or scenes, of outputs that have such.
    """

    made: tuple[RecordPage, ...] = ()
    failures: tuple[Failure, ...] = ()
    built: int = 0
    reused: int = 0
    version: tuple[RecordPage, ...] = ()
    failed: int = 0
    failure_files: tuple[str, ...] = ()
    memories: tuple[str, ...] = ()
    unchanged: bool = False
    warnings: tuple[BuildWarning, ...] = ()
    available: tuple[Availability, ...] = ()
    sequences: tuple[SequenceCounts, ...] = ()


def group_starts(log_ids: Iterable[str]) -> tuple[str, ...]:
    """The first log of each group but the first; logs of a group are neighbours, so records stay in order.

    Args:
        log_ids: ascending.
    """
    return tuple(itertools.islice(log_ids, GROUP, None, GROUP))


def group_of(log_id: str, starts: Sequence[str]) -> int:
    """The number of the group that a log belongs to."""
    return bisect.bisect_right(starts, log_id)


def stage_packed(job: Target, elements: Iterable[Any]) -> tuple[str, ...]:
    """Writes what is too much for a graph or a side input, which engines limit, where workers find it.

    Returns:
        Digests of the files, which are pickles.
    """
    digests = []
    elements = iter(elements)
    while group := list(itertools.islice(elements, GROUP)):
        data = packed(group)
        digests.append(blake3(data).hexdigest())
        job.store.create(_packed_file(job, digests[-1]), data)
    return tuple(digests)


def staged_packed(digest: str, job: Target) -> list[Any]:
    """The elements of a file of `stage_packed`.

    Raises:
        DatasetError: it was removed, or holds something else by now, which mustn't be unpacked.
    """
    name = _packed_file(job, digest)
    place = job.store.uri_of(name)
    data = job.store.read_if_there(name)
    if data is None:  # a purge, once the job is over, removes what tells of logs
        raise DatasetError(f"{place}: removed while the job ran; run it again")
    if blake3(data).hexdigest() != digest:
        raise DatasetError(f"{place}: changed while the job ran; run it again")
    elements: list[Any] = unpacked(data)
    return elements


def _packed_file(job: Target, digest: str) -> str:
    return f"{runs_folder(job.number)}/{digest}.tasks"


def write_outcomes(job: Target, outcomes: Iterable[LogOutcome]) -> LogOutcomes:
    """Writes the records of a group; in whatever order its logs come, the bytes are the same."""
    ordered = sorted(outcomes, key=operator.attrgetter("log_id"))
    records = (outcome.record for outcome in ordered if outcome.record is not None)
    made = write_records(job.store, records, runs_folder(job.number))
    failures = tuple(f for outcome in ordered if outcome.record is None for f in outcome.failures)
    built, reused = (sum(getattr(one, name) for one in ordered) for name in ("built", "reused"))
    files, memories = _write_failures(job, ordered), _write_memory(job, ordered)
    shown = failures[:MAX_FAILURES]
    warnings = _first_few(warning for outcome in ordered for warning in outcome.warnings)
    found: dict[str, Any] = {"warnings": warnings, **_counted(ordered)}
    return LogOutcomes(made.pages, shown, built, reused, (), len(failures), files, memories, **found)


def _counted(outcomes: Sequence[LogOutcome] | Sequence[LogOutcomes]) -> dict[str, Any]:
    """Sum what is counted of rows."""
    sequences = merged_sequences(one.sequences for one in outcomes)
    return {"available": merged(one.available for one in outcomes), "sequences": sequences}


def _first_few(warnings: Iterable[BuildWarning]) -> tuple[BuildWarning, ...]:
    """So many warnings as anybody reads; of the others that there are more."""
    first = tuple(itertools.islice(warnings, MAX_FAILURES + 1))
    return first if len(first) <= MAX_FAILURES else (*first[:MAX_FAILURES], _MORE_WARNINGS)


def _write_failures(job: Target, outcomes: Sequence[LogOutcome]) -> tuple[str, ...]:
    """Lists all failures of a group in a file of JSON lines; names it."""
    lines = [
        canonical({**asdict(failure), "left_out": outcome.record is not None})
        for outcome in outcomes
        for failure in outcome.failures
    ]
    if not lines:
        return ()
    name = f"{runs_folder(job.number)}/{job.run}.failures-{_digest_of_first(outcomes)}.jsonl"
    job.store.replace(name, b"".join(line.strip() + b"\n" for line in lines))
    return (name,)


def _write_memory(job: Target, outcomes: Sequence[LogOutcome]) -> tuple[str, ...]:
    """Writes what the next plan may remember of a group; names the file."""
    memories = [Memory.from_data(*unpacked(outcome.memory)) for outcome in outcomes if outcome.memory]
    if not memories:
        return ()
    name = f"listing-{_digest_of_first(outcomes)}"
    memories[0].with_more(memories[1:]).save(Sidecars.of(job.store, runs_folder(job.number)), name)
    return (name,)


def _remember(job: Target, names: Iterable[str]) -> None:
    """Adds what groups wrote to what the next plan may remember; a root that takes none does without."""
    if not isinstance(job, LogJob):
        return
    written, kept = Sidecars.of(job.store, runs_folder(job.number)), Sidecars.of(job.store)
    with contextlib.suppress(LogloomError, OSError):
        read = [Memory.load(written, job.open_options.known_by, (), name) for name in names]
        memories = [one for one in read if len(one.prints)]  # but for those that are lost or damaged
        if memories:
            Memory.load(kept, memories[0].hash, memories[0].topics).with_more(memories).save(kept)


def _digest_of_first(outcomes: Sequence[LogOutcome]) -> str:
    """Names a group among those of its build."""
    return blake3(outcomes[0].log_id.encode(errors="surrogateescape")).hexdigest()[:8]


def merge_outcomes(job: Target, groups: Iterable[LogOutcomes]) -> LogOutcomes:
    """Merges what a build made with what stays of its parent, and writes the version's pages.

    Raises:
        DatasetError: the parent isn't what it was when the build was planned, or is damaged.
    """
    ordered = sorted(groups, key=lambda group: [page.first for page in group.made])
    made = tuple(page for group in ordered for page in group.made)
    failures = tuple(sorted((f for group in ordered for f in group.failures), key=lambda f: f.log_id))
    built, reused, failed = (
        sum(getattr(one, name) for one in ordered) for name in ("built", "reused", "failed")
    )
    files = tuple(file for group in ordered for file in group.failure_files)
    _remember(job, (name for group in ordered for name in group.memories))
    if failures:
        return LogOutcomes(made, failures[:MAX_FAILURES], built, reused, (), failed, files)
    changes = [LogRecords(job.store, pages, runs_folder(job.number)) for pages in (job.changes, made)]
    before = _parents(job)
    version = merge_records(job.store, before, changes)
    unchanged = job.if_changed and version.pages == before.pages
    warnings = _first_few(warning for group in ordered for warning in group.warnings)
    found: dict[str, Any] = {"warnings": warnings, **_counted(ordered)}
    return LogOutcomes(made, (), built, reused, version.pages, 0, files, unchanged=unchanged, **found)


def _parents(job: Target) -> LogRecords:
    """The records of the parent version."""
    if job.parent is None:
        return LogRecords()
    if digest_of_manifest(job.store, job.parent) != job.parent_digest:
        raise DatasetError(
            f"{job.store.uri}: version {job.parent} was changed or replaced while this build ran; build again"
        )
    return manifest_at(job.store, job.parent).logs


def records_of(job: Target, outcomes: LogOutcomes) -> LogRecords:
    """The records of all logs that a build kept or made."""
    return LogRecords(job.store, outcomes.version)


def kept_records(job: Target, outcomes: LogOutcomes) -> Iterator[LogRecord]:
    """The records that a build took over from its parent."""
    made = LogRecords(job.store, outcomes.made, runs_folder(job.number))
    new = (log_id for table in made.tables() for log_id in table["log_id"].to_pylist())
    following = next(new, None)
    for record in records_of(job, outcomes):
        if record.log_id == following:  # all that are new are there, in the same order
            following = next(new, None)
        else:
            yield record


def num_kept(outcomes: LogOutcomes) -> int:
    """How many logs with units a build took over from its parent."""
    of_all, new = (total(page.totals for page in pages) for pages in (outcomes.version, outcomes.made))
    return of_all.get("parts", 0) - new.get("parts", 0)
