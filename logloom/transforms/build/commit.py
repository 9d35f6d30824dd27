"""Finish a log after all its partitions, and a version after all its logs.

Here: the log's reconciled record, and the commit.
Elsewhere: how records reach the commit (logloom.transforms.build.outcomes), single partitions
(logloom.transforms.build.partition), the outputs that are assembled from many units
(logloom.transforms.build.assembly.files), Beam (logloom.transforms.beam.build).
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, field
from typing import Any

from blake3 import blake3

from logloom.errors import CommitConflictError, DatasetError, LogloomError, StorageError, UsageError
from logloom.io.catalog.artifacts import LOG_FILES, REFUSALS
from logloom.io.catalog.commit_times import clock, write_times
from logloom.io.catalog.entries import Entry, read_log_part, write_log_part
from logloom.io.catalog.log_statistics import of_units, write_statistics
from logloom.io.catalog.manifest import Assembled, Manifest
from logloom.io.catalog.manifest_digest import write_digest
from logloom.io.catalog.pages import LogRecord, LogStatus, total
from logloom.io.catalog.records import LogRecords
from logloom.io.catalog.tombstones import Purged, digest_of_log
from logloom.io.catalog.version_files import runs_folder, version_file
from logloom.io.formats.capabilities import SequencedFormat
from logloom.io.formats.registry import format_named
from logloom.io.logs.interface import Refusal
from logloom.io.storage.metadata import Count, FileName, Text, canonical, checked, parsed
from logloom.io.storage.store import Store
from logloom.io.storage.stored_files import UNITS
from logloom.metrics import count
from logloom.software import software
from logloom.statistics.columns import ROWS, Key, Statistics
from logloom.statistics.series import Numbers
from logloom.text import counted, human_duration, some_of
from logloom.transforms.build.build_warnings import MAX_LISTED, log_warnings, strict_refusal
from logloom.transforms.build.conversion import ConvertJob, converted_record
from logloom.transforms.build.job import Job, LogJob, LogTask, Target, opened
from logloom.transforms.build.log_summaries import remembered
from logloom.transforms.build.outcomes import (
    MAX_FAILURES,
    LogOutcome,
    LogOutcomes,
    num_kept,
    records_of,
)
from logloom.transforms.build.partition_results import MAX_REASONS, Failure, PartitionResult, skipped_record
from logloom.transforms.build.read_marks import marks_folder, units_read_back
from logloom.transforms.build.reuse import removed_meanwhile
from logloom.transforms.rows.accounts import (
    Tally,
    TopicAccount,
    dropped_of,
    nan_lines,
    reconcile,
    strays_of,
)
from logloom.transforms.rows.frame_notes import MAX_NOTES, note_words
from logloom.transforms.rows.label_columns import account
from logloom.transforms.rows.missing_values import (
    Availability,
    availability_of,
    availability_warnings,
    without_value,
)
from logloom.transforms.rows.notices import BuildWarning
from logloom.transforms.rows.plan.column_warnings import lost_warnings, turn_warnings, turns_of
from logloom.transforms.rows.plan.row_plan import RowPlan, SyncClock
from logloom.transforms.rows.row_splits import rows_by_split
from logloom.transforms.rows.sequences import SequenceCounts, counts_of, sequence_warnings
from logloom.values import dataclass


def finish_log(job: Job, results: Iterable[PartitionResult]) -> LogOutcome:
    """Reconciles a log's partitions and writes its part of the manifest.

    Under on_error skip and salvage, a log with any failure of its own loses all its partitions: nothing says
    which of them would be whole. (What salvage reads past is no failure.) Of a source that is converted the
    damaged parts alone are left out: they were whole once, and say themselves that they no longer are.
    """
    # Beam hands them over in any order, and the manifest says what kept a log from being built.
    done = sorted(results, key=lambda result: (len(result.partition), result.partition))
    log = done[0].log
    memory = remembered(job, log)
    if log.stays:
        return LogOutcome(log.log_id, None, memory=memory)
    failures = tuple(dict.fromkeys(failure for result in done for failure in result.failures))
    if any(failure.kind not in job.left_out for failure in failures):
        return LogOutcome(log.log_id, None, failures, memory=memory)
    order = {output: position for position, output in enumerate(job.outputs)}
    entries = sorted((e for r in done for e in r.entries), key=lambda e: (order[e.output], e.start))
    try:
        if not failures and _are_as_before(job, log, entries):
            return LogOutcome(log.log_id, None, memory=memory)
        record, warnings, available = _record(job, log, entries, failures)
    except StorageError:
        raise
    except LogloomError as error:
        failures = (Failure(log.log_id, "", "log", str(error)),)
        # What is damaged in the root is no fault of a log.
        if not isinstance(job, LogJob) or "log" not in job.left_out or isinstance(error, DatasetError):
            return LogOutcome(log.log_id, None, failures, memory=memory)
        record, warnings, available = skipped_record(log, failures), (), ()
    units = record.units or 0
    sequences = log_sequences(job, log, entries) if units else ()
    built = sum(result.built for result in done) if units else 0
    seconds = sum(result.seconds for result in done)
    return LogOutcome(
        log.log_id, record, failures, built, units - built, seconds, memory, warnings, available, sequences
    )


def log_sequences(job: Job, log: LogTask, entries: Sequence[Entry]) -> tuple[SequenceCounts, ...]:
    """Count the sequences of a log in each output that has some; assembly says why rows fit none."""
    found = []
    for output, options in job.outputs.items():
        form = format_named(output)
        own = [entry for entry in entries if entry.output == output and entry.rows]
        if isinstance(form, SequencedFormat) and own:
            with contextlib.suppress(UsageError):
                sequences = form.sequences([entry.unit for entry in own], options, job.period)
                all_of_it = (entry for entry in entries if entry.output == output)
                folders = ((entry.tally, job.store.uri_of(entry.folder)) for entry in all_of_it)
                # Others' datasets that are converted have no tally.
                gaps = [Tally.from_json(tally, folder).gaps for tally, folder in folders if tally]
                found.append(counts_of(output, options, sequences, gaps, job.period, log.log_id))
    return tuple(filter(None, found))


def _are_as_before(job: Job, log: LogTask, entries: Sequence[Entry]) -> bool:
    """Whether a record that is to be replaced says the same, and has the same units but for their names."""
    if not log.replaces or log.before != log.key:
        return False

    def held(units: Iterable[Entry]) -> list[Any]:
        return [
            [one.output, one.partition, one.rows, one.columns, [[f.name, f.digest] for f in one.files]]
            for one in units
        ]

    return held(entries) == held(read_log_part(job.store, log.replaces))


def _record(
    job: Job, log: LogTask, entries: Sequence[Entry], failures: Sequence[Failure]
) -> tuple[LogRecord, tuple[BuildWarning, ...], tuple[Availability, ...]]:
    """The record of a log, of which `failures` are left out, warnings, and in how many rows columns are."""
    if isinstance(job, ConvertJob):
        return converted_record(job, log, entries, failures), (), ()
    assert isinstance(job, LogJob)
    return (skipped_record(log, failures), (), ()) if failures else _record_of_log(job, log, entries)


def _record_of_log(
    job: LogJob, log: LogTask, entries: Sequence[Entry]
) -> tuple[LogRecord, tuple[BuildWarning, ...], tuple[Availability, ...]]:
    first_output, tallies, refusals, strays = _tallied(job, log, entries)
    source = opened(job, log)
    summary = source.summary
    sums = reconcile(job.plan, summary, tallies)
    of_turns = list(turn_warnings(job.plan, turns_of(tallies)))
    of_losses = list(lost_warnings(job.plan, summary, tallies))
    statistics, labels = of_units(job.store, entries), job.labels_of(log)
    counts = available_rows(job.plan, statistics, tallies)
    for name, _ in of_losses:  # of which this log has a warning
        counts.pop(name, None)
    known = {
        name: without_value(topic, own.without_value, of_topic.messages, own.with_nan)
        for topic, of_topic in sums.items()
        for name, own in of_topic.columns.items()
        if 2 * own.without_value > of_topic.messages
    }
    available = availability_of(source, log.log_id, job.plan, counts, labels, known)
    of_times = log_warnings(job.plan, log.uris[0], summary, [(e.start, e.stop) for e in first_output])
    rows = sum(entry.rows for entry in first_output)
    planned = sum(tally.planned for tally in tallies)
    _count_messages(sums)
    record = LogRecord(
        log_id=log.log_id,
        uris=log.uris,
        content_id=log.content_id,
        split=log.split,
        key=log.key,
        status=LogStatus.salvaged if refusals else LogStatus.whole if planned else LogStatus.empty,
        part=write_log_part(job.store, entries),
        units=len(entries),
        rows=rows,
        planned=planned,
        dropped=dropped_of(tallies),
        refused=_num_refused(sums, strays, tallies),
        reasons=(
            *notes_on_frames(job.plan, tallies),
            *(line for one in account(job.plan, labels, tallies) for line in one.lines),
            *(text for _, text in of_turns),
            *nan_lines(sums),
            *_reasons(job.store, [line_of(each) for each in refusals]),
        ),
        verified=job.settings.read_share,
        statistics=write_statistics(job.store, log.log_id, statistics),
        catalogue=log.catalogue,
        splits=rows_by_split(run for tally in tallies for run in tally.splits),
        size=summary.size,
        duplicate_of=log.duplicate_of,
    )
    of_columns = [("turns", *one) for one in of_turns] + [("lost", *one) for one in of_losses]
    named = (
        BuildWarning(f"{log.log_id}: {text}", kind=kind, column=name, log=log.log_id)
        for kind, name, text in of_columns
    )
    return record, (*of_times, *named), available


def _count_messages(sums: Mapping[str, TopicAccount]) -> None:
    for column in (own for topic in sums.values() for own in topic.columns.values()):
        count(
            column_messages_used=column.used,
            column_messages_not_chosen=column.not_chosen,
            column_messages_refused=column.refused,
        )


def _num_refused(
    sums: Mapping[str, TopicAccount], strays: Sequence[Refusal], tallies: Sequence[Tally]
) -> int:
    """Count the refused messages, and the strays of topics that no span reads."""
    read = {topic for tally in tallies for topic in tally.owned}
    refused = sum(topic.refused for topic in sums.values())
    return refused + sum(stray.num_messages for stray in strays if stray.topic not in read)


def available_rows(
    plan: RowPlan, statistics: Statistics | None, tallies: Sequence[Tally]
) -> dict[str, tuple[int, int]]:
    """Count by sampled column the rows of a log, and those in which it is available.

    A required column is counted at the ticks where it decides whether there is a row.
    """
    found: dict[str, tuple[int, int]] = {}
    lanes = {} if statistics is None else statistics.lanes
    for name in plan.schema.sampled:
        lane = lanes.get(Key(name, "", ROWS, 0))
        if isinstance(lane, Numbers):
            found[name] = lane.count + lane.nan, lane.count
    dropped = dropped_of(tallies)
    ticks = sum(tally.planned for tally in tallies) - dropped.get("purged", 0)
    for name in plan.require:
        missing = dropped.get(f"require {name}", 0)
        found[name] = ticks, ticks - missing
        ticks -= missing
    return found


def notes_on_frames(plan: RowPlan, tallies: Sequence[Tally]) -> Iterator[str]:
    """What the manifest says of a log's frames: ticks without a pose, by reason, and what is strange."""
    for column in plan.lookups:
        lacking = total(tally.lacking.get(column.name, {}) for tally in tallies)
        if lacking:
            ticks = counted(sum(lacking.values()), "tick")
            why = ", ".join(f"{reason} {count:,}" for reason, count in sorted(lacking.items()))
            pose = "all points' poses" if column.around else "a pose"
            yield f"{column.name}: {ticks} without {pose} of {column.words}: {why}"
    notes = total(tally.notes for tally in tallies)
    last_at: dict[str, int] = {}
    for tally in tallies:
        for text, time in tally.last_at.items():
            last_at[text] = max(time, last_at.get(text, time))
    for text, times in sorted(notes.items())[:MAX_NOTES]:
        yield note_words(text, times, last_at.get(text))


def _tallied(
    job: LogJob, log: LogTask, entries: Sequence[Entry]
) -> tuple[list[Entry], list[Tally], list[Refusal], list[Refusal]]:
    """The units of the first output, their tallies, all that was refused of the log, each once, and of that
    the stray messages."""
    first_output = [entry for entry in entries if entry.output == next(iter(job.outputs))]
    tallies = [Tally.from_json(entry.tally, job.store.uri_of(entry.folder)) for entry in first_output]
    # What the file lost comes before single messages that a column can't use.
    summary = opened(job, log).summary
    strays = list(strays_of(job.plan, summary))
    lost = [*summary.refusals, *strays, *(r for tally in tallies for r in tally.lost)]
    refusals = [*lost, *(r for tally in tallies for r in tally.refusals)]
    return first_output, tallies, list(dict.fromkeys(refusals)), strays


def _reasons(store: Store, lines: list[str]) -> tuple[str, ...]:
    """What a manifest says of refusals: all, or the first and the file that lists them all."""
    if len(lines) <= MAX_REASONS:
        return tuple(lines)
    name, data = _listing(lines)
    store.renew(name, data)
    return (*lines[:MAX_REASONS], f"and {len(lines) - MAX_REASONS:,} more, all listed in {name}")


def _listing(lines: Iterable[str]) -> tuple[str, bytes]:
    """The file that lists all refusals of a log, named by its content."""
    data = "".join(f"{line}\n" for line in lines).encode()
    return LOG_FILES[REFUSALS].name(blake3(data).hexdigest()), data


def restore_refusal_list(job: LogJob, log: LogTask, entries: Sequence[Entry], name: str) -> str:
    """Writes the file that lists what was refused of a log again; says why it couldn't, or ""."""
    found, data = _listing(map(line_of, _tallied(job, log, entries)[2]))
    if name != found:
        return "listed again it has other bytes"
    job.store.replace(name, data, read_only=True)
    return ""


def line_of(refusal: Refusal) -> str:
    """Where something was refused, and why."""
    place = f"{refusal.uri}, {refusal.place.removeprefix('at ')}" if refusal.offset >= 0 else refusal.uri
    return f"{place}: {refusal.topic}{': ' if refusal.topic else ''}{refusal.reason}"


# --- the commit -----------------------------------------------------------------------------------------


def outcome_file(job: Target) -> str:
    """What became of one submission; two builds of one version must not take each other's for theirs."""
    return outcome_name(job.number, job.run)


def outcome_name(number: int, run: str) -> str:
    return f"{runs_folder(number)}/{run}.json"


@dataclass(frozen=True)
class Outcome:
    """The outcome of a build, as recorded in runs/.

    Attributes:
        problem: why the build as a whole can't be committed; "" when it can.
        conflict: the build that committed this version first; "" if none did.
        failures: the first few; `failed` counts all.
        failure_files: list them, and those of logs that were left out, as JSON lines.
        labels: that the build was given.
        whole: nothing of the version was salvaged or skipped, but for what the recipe's budget allows.
        unchanged: nothing was committed, since the parent version says all that this one would.
        warned: of logs that were built, the first few warnings.
        ended: when, in seconds since the Unix epoch; 0 where unknown.
        read_back: units of the version's new logs that were read back, by all attempts.
        sequences: the episodes or scenes of logs that were built, of outputs that have such.
    """

    version: Count
    committed: bool
    failures: tuple[Failure, ...]
    problem: Text
    conflict: Text
    built: Count
    reused: Count
    failed: Count = 0
    failure_files: tuple[FileName, ...] = ()
    labels: Mapping[Text, Text] = field(default_factory=dict)
    whole: bool = True
    unchanged: bool = False
    warned: tuple[BuildWarning, ...] = ()
    ended: Count = 0
    read_back: Count = 0
    sequences: tuple[SequenceCounts, ...] = ()


def read_outcome(job: Target) -> Outcome:
    """Read the outcome of a build that has run.

    Raises:
        DatasetError: its file is missing or damaged.
    """
    name = outcome_file(job)
    place = job.store.uri_of(name)
    if (data := job.store.read_if_there(name)) is None:
        raise DatasetError(f"{place}: missing, so the outcome of this build is unknown; build again")
    return checked(Outcome, parsed(data, place), place)


def commit(
    job: Target,
    outcomes: LogOutcomes,
    assembled: Sequence[tuple[Assembled, tuple[Failure, ...], int]],
    damaged: Sequence[Failure] = (),
) -> dict[str, Any]:
    """Create the version, or return why not; the outcome is also recorded in runs/, for detached jobs.

    Args:
        assembled: of each its failures, and how many of its portions were taken over unread.
        damaged: what was found wrong with units of earlier builds.

    Returns:
        The fields of an `Outcome`.
    """
    if (before := committed_before(job)) is not None:
        return before
    assembled = sorted(assembled, key=lambda result: (result[0].output, result[0].split))
    failures = [*outcomes.failures, *sorted(damaged, key=lambda one: (one.log_id, one.message))]
    failures += [failure for _, found, _ in assembled for failure in found]
    logs = records_of(job, outcomes)
    if not failures:
        failures += _removed(job, outcomes, [part for part, *_ in assembled])
    unchanged = outcomes.unchanged and not failures
    of_columns = availability_warnings(outcomes.available, is_first=job.parent is None)
    warnings = [*of_columns, *outcomes.warnings]
    if isinstance(job, LogJob):
        warnings += sequence_warnings(outcomes.sequences, job.plan, job.outputs)
    problem = "" if failures or unchanged else _refusal(job, logs, warnings)
    outcome: dict[str, Any] = {
        "version": job.number,
        "committed": False,
        "failures": [asdict(failure) for failure in failures[:MAX_FAILURES]],
        "problem": problem,
        "conflict": "",
        "built": outcomes.built,
        "reused": outcomes.reused,
        "failed": outcomes.failed + len(failures) - len(outcomes.failures),
        "failure_files": list(outcomes.failure_files),
        "labels": dict(job.settings.labels),
        "whole": logs.are_whole(within_budget=job.skip_budget > 0),
        "unchanged": unchanged,
        "warned": [asdict(warning) for warning in warnings],
        "read_back": _read_back(job),
        "sequences": [asdict(one) for one in outcomes.sequences],
    }
    if not (failures or problem or unchanged):
        try:
            parts = [part for part, *_ in assembled]
            trusted = _trusted(job, num_kept(outcomes), parts, sum(number for *_, number in assembled))
            create_version(job, logs, parts, trusted)
            outcome["committed"] = True
        except CommitConflictError as error:
            outcome["conflict"] = str(error)
    outcome["ended"] = clock()
    job.store.replace(outcome_file(job), canonical(outcome))
    if outcome["committed"]:
        with contextlib.suppress(StorageError):  # marks that stay do no harm
            job.store.remove_all(marks_folder(job.number))
    return outcome


def _read_back(job: Target) -> int:
    """How many units were read back; 0 where that can't be read, since the number isn't worth a build."""
    with contextlib.suppress(StorageError):
        return units_read_back(job.store, job.number)
    return 0


def committed_before(job: Target) -> dict[str, Any] | None:
    """What this submission said of its commit, where an engine does once more what is done.

    A purge may have taken since what steps had handed on to it. The version itself decides: if its
    file has been deleted, it is committed anew.
    """
    with contextlib.suppress(DatasetError):  # nothing was said, or it can't be read
        outcome = read_outcome(job)
        if outcome.committed and job.store.exists(version_file(job.number)):
            return dict(json.loads(canonical(asdict(outcome))))
    return None


def _removed(job: Target, outcomes: LogOutcomes, assembled: Sequence[Assembled]) -> Iterator[Failure]:
    """What the version would name and is no more."""
    made = LogRecords(job.store, outcomes.made, runs_folder(job.number))
    purged = Purged(job.store)
    known = job.open_options.redactions if isinstance(job, LogJob) else {}
    for record in made if len(purged) else ():
        log = digest_of_log(record.log_id)
        is_redacted = isinstance(job, LogJob) and known.get(log) != purged.redactions.get(log)
        if record.part and (is_redacted or purged.has_rows_of(record.content_id)):
            yield _purged_meanwhile(record)
    changes = LogRecords(job.store, job.changes, runs_folder(job.number))
    for record in changes if len(purged) else ():
        if record.part in purged.parts:
            yield _purged_meanwhile(record)
    for what, place in removed_meanwhile(job, made, records_of(job, outcomes), assembled):
        message = f"{place}: removed by `logloom gc` while this build ran; build again"
        yield Failure(what, "", "readback", message)


def _purged_meanwhile(record: LogRecord) -> Failure:
    return Failure(record.log_id, "", "log", "was purged while this build ran; build again, without it")


def _refusal(job: Target, logs: LogRecords, warnings: Sequence[BuildWarning]) -> str:
    """Why the build as a whole can't be committed though no log failed it; "" when it can."""
    skipped = logs.statuses.get(LogStatus.skipped, 0)

    def first(most: int) -> Iterator[LogRecord]:
        return logs.take(logs.where("status", [LogStatus.skipped])[:most])

    if over := job.over_budget(skipped, len(logs), lambda: [one.log_id for one in first(6)]):
        return over
    if not logs.totals.get("rows") and not job.settings.allow_empty:
        why = [f"{counted(n, 'tick')} dropped by {reason}" for reason, n in logs.dropped.items()]
        for one in first(1):
            why.append(f"{counted(skipped, 'log')} skipped, {one.log_id}: {one.reasons[0]}")
        if dropped := logs.statuses.get(LogStatus.dropped):
            why.append(f"{counted(dropped, 'log')} left out by `logloom drop`")
        reasons = ", ".join(why) or _no_tick(job)
        listed = "".join(f"\n  {warning}" for warning in warnings[:MAX_LISTED])
        way = "; --allow-empty commits an empty version"
        if isinstance(job, ConvertJob):  # which makes no empty versions
            way = "; choose another `where`" if job.where else ""
        return f"no rows at all ({reasons}){way}{listed}"
    return strict_refusal(warnings) if job.settings.strict else ""


def _no_tick(job: Target) -> str:
    if isinstance(job, LogJob) and isinstance(clock := job.plan.clock, SyncClock):
        topics, within = some_of(clock.topics), human_duration(clock.within)
        return f"no log has messages of {topics} within {within}; `logloom plan` shows how near they are"
    return "no log has a tick"


def create_version(
    job: Target, logs: LogRecords, assembled: Sequence[Assembled], trusted: dict[str, int]
) -> Manifest:
    """Creates the manifest, whose pages are there.

    Equal bytes that are there already are success (a lost response, a retry).

    Raises:
        CommitConflictError: another build committed this number with other content.
    """
    manifest = Manifest(
        version=job.number,
        parent=job.parent,
        name=job.name,
        recipe=job.recipe,
        schema=job.schema.to_json(),
        plan=job.plan_identity,
        outputs={name: options.model_dump(mode="json") for name, options in job.outputs.items()},
        logs=logs,
        assembled=tuple(assembled),
        totals=logs.totals,
        verified=job.settings.verify,
        software=software(),
        parent_digest=job.parent_digest,
        trusted=trusted,
        reason=job.reason,
        dependencies=job.dependencies,
    )
    data = manifest.to_bytes()
    name = version_file(job.number)
    # The folders that everything is in may have been made by a build that was killed.
    job.store.settle(["", UNITS, "versions", *(f"{UNITS}/{output}" for output in job.outputs)])
    if not job.store.create(name, data) and job.store.read(name) != data:
        raise was_first(job)
    write_digest(job.store, job.number, data)
    with contextlib.suppress(StorageError):  # the version is sound without them
        write_times(job.store, job.number, job.started)
    return manifest


def was_first(job: Target) -> CommitConflictError:
    """The error of a build whose number another one took."""
    return CommitConflictError(
        f"{job.store.uri_of(version_file(job.number))}: another build committed version {job.number} first; "
        "build again, finished units are kept"
    )


def _trusted(job: Target, logs: int, assembled: Sequence[Assembled], portions: int) -> dict[str, int]:
    """How much of a version this build didn't read, since an earlier one made it."""
    if job.settings.verify == "all":
        return {"logs": 0, "assembled": 0, "portions": 0}
    before = {part.identity for part in job.assembled}
    taken = sum(part.identity in before for part in assembled)
    return {"logs": logs, "assembled": taken, "portions": portions}
