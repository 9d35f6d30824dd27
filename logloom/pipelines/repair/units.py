"""Repair of single artifacts: units, files that log records name, assembled files.

Here: functions that rebuild each; `REBUILDING`, those for the kinds of files that records of logs name.
Elsewhere: finding damage, and the order of repairs (repair).
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from blake3 import blake3

from logloom.errors import DatasetError, LogloomError
from logloom.io.catalog.artifacts import LABELS, PART, REFUSALS, STATISTICS
from logloom.io.catalog.entries import ENTRY, Entry, FileEntry, find_entry, log_part_bytes, read_log_part
from logloom.io.catalog.labels import WAY_OUT
from logloom.io.catalog.pages import LogRecord
from logloom.io.storage.metadata import canonical
from logloom.io.storage.store import Store
from logloom.pipelines.verify.against_logs import task_of
from logloom.software import software
from logloom.transforms.build.assembly.files import described
from logloom.transforms.build.assembly.plan import assembled_format
from logloom.transforms.build.commit import restore_refusal_list
from logloom.transforms.build.job import LogJob, LogTask, opened
from logloom.transforms.build.partition import derive_entry, rebuild_files
from logloom.transforms.build.read_back import Reading
from logloom.transforms.build.statistics_checks import (
    put_statistics,
    restore_log_statistics,
    restore_unit_statistics,
    unit_statistics_problem,
)
from logloom.transforms.build.unit_checks import check_file, entry_problems, portion_entries
from logloom.transforms.rows.plan.row_plan import Span
from logloom.transforms.rows.spans import plan_spans, span_named
from logloom.values import dataclass


@dataclass(frozen=True)
class UnitDamage:
    """What is wrong with one unit: its entries, or files of it."""

    record: LogRecord
    entry: Entry
    files: tuple[FileEntry, ...]
    problems: tuple[str, ...]


@dataclass(frozen=True)
class Mended:
    """One thing that was tried: why it couldn't be repaired, "" where it was."""

    log_id: str
    partition: str
    name: str
    why_not: str = ""


def damage_of(store: Store, record: LogRecord, entry: Entry, settles: bool) -> Iterator[UnitDamage]:
    """What is wrong with a unit, if anything.

    Args:
        settles: makes sound files outlast a power cut, for a repair that was killed may have put them there.
    """
    problems = list(entry_problems(store, entry))
    problems += filter(None, [unit_statistics_problem(store, entry)] if not problems else [])
    files = []
    for file in entry.files:
        wrong = list(check_file(store, entry.path_of(file), file))
        problems += wrong
        files += [file] * bool(wrong)
    if problems:
        yield UnitDamage(record, entry, tuple(files), tuple(problems))
    elif settles:
        marks = (f"{folder}/{ENTRY}" for folder in entry.folders)
        store.settle_names(itertools.chain(marks, map(entry.path_of, entry.files)))


def mend_entries(store: Store, damage: UnitDamage, made_by: Mapping[str, str]) -> Iterator[Mended]:
    """Writes a unit's entries again, without statistics, from what its log's part says of it.

    Args:
        made_by: the software that made its portions, which the part leaves out; empty where unknown.
    """
    entry = damage.entry
    portions = (dataclasses.replace(portion, software=made_by) for portion in portion_entries(entry))
    for expected in (entry, *portions):
        name = f"{expected.folder}/{ENTRY}"
        place = store.uri_of(name)
        if any(problem.startswith(f"{place}:") for problem in damage.problems):
            store.replace(name, canonical(expected.to_json()), read_only=True)
            yield Mended(entry.log_id, entry.partition, place)


def mend_unit(store: Store, builder: LogJob | str, damage: UnitDamage) -> Iterator[Mended]:
    """Rebuild a unit in this process, and put its damaged files back."""
    entry = damage.entry

    def mended(file: FileEntry, why: str) -> Mended:
        return Mended(entry.log_id, entry.partition, store.uri_of(entry.path_of(file)), why)

    if isinstance(builder, str):
        yield from (mended(file, builder) for file in damage.files)
        return
    task = task_of(damage.record)
    try:
        span = span_named(opened(builder, task).summary, builder.plan, entry.partition)
        if span is None:
            yield from (mended(file, "its log has no such partition") for file in damage.files)
            return
        for file, why in rebuild_files(builder, task, span, entry, damage.files):
            left = why or next(check_file(store, entry.path_of(file), file), "")
            yield mended(file, left and left + other_software(entry.software))
    except LogloomError as error:
        yield from (mended(file, str(error)) for file in damage.files)


def mend_statistics(reading: Reading, builder: LogJob | str, damage: UnitDamage) -> Iterator[Mended]:
    """Puts statistics back into a unit's entry, from other entries, its rows or its log."""
    record, entry, store = damage.record, damage.entry, reading.store
    if not unit_statistics_problem(store, entry):
        return
    place = store.uri_of(f"{entry.folder}/{ENTRY}")
    if restore_unit_statistics(reading, entry, read_log_part(store, record.part)):
        why = ""
    elif isinstance(builder, str):
        why = builder
    else:
        why = _derive_statistics(store, builder, task_of(record), entry)
    yield Mended(entry.log_id, entry.partition, place, why)


def _derive_statistics(store: Store, job: LogJob, task: LogTask, entry: Entry) -> str:
    """Counts a unit's rows as they are built again from their log; says why it couldn't, or ""."""
    try:
        span = span_named(opened(job, task).summary, job.plan, entry.partition)
        if span is None:
            return "its log has no such partition"
        found = derive_entry(job, task, span, entry.output).statistics
    except LogloomError as error:
        return str(error)
    put_statistics(store, entry, found)
    return ""


def mend_part(job: LogJob, record: LogRecord, order: Sequence[str]) -> str:
    """Puts a log's part together again from its units' entries; says why it couldn't, or ""."""
    task = task_of(record)
    try:
        spans = plan_spans(opened(job, task).summary, job.plan)
        entries = [entry_again(job, task, span, output) for span in spans for output in job.outputs]
        if _put_part(job, record, entries, order):
            return ""
    except LogloomError as error:
        return str(error)
    return "put together again it has other bytes" + other_software({})


def _put_part(job: LogJob, record: LogRecord, entries: Sequence[Entry], order: Sequence[str]) -> bool:
    """Writes a log's part if these are its entries."""
    # The order of a recipe's outputs stands nowhere but in such parts.
    known = sorted(order) == sorted(job.outputs)
    for outputs in [tuple(order)] if known else itertools.permutations(job.outputs):
        places = {output: position for position, output in enumerate(outputs)}
        ordered = sorted(entries, key=lambda entry: (places[entry.output], entry.start))
        data = log_part_bytes(ordered)
        if blake3(data).hexdigest() == record.part:
            job.store.replace(f"logs/{record.part}.parquet", data, read_only=True)
            return True
    return False


def entry_again(job: LogJob, task: LogTask, span: Span, output: str) -> Entry:
    """Read a unit's entry, even if its files are damaged; if it is lost, derive it."""
    with contextlib.suppress(DatasetError):
        found = find_entry(job.store, output, job.unit_identity(output, task, span))
        if found is not None:
            return found
    return derive_entry(job, task, span, output)


def check_stages(store: Store, entries: Iterable[Entry]) -> None:
    """Raises DatasetError where a unit that an output is put together from is still damaged."""
    for entry in entries:
        for file in entry.files:
            for problem in check_file(store, entry.path_of(file), file):
                raise DatasetError(f"a unit that it is put together from is damaged: {problem}")


def describe_chunk(store: Store, output: str, task: Any) -> Iterator[FileEntry]:
    yield described(*assembled_format(output).make_chunk(store, task))


def restore_chunk(
    store: Store, output: str, folder: str, task: Any, wanted: Mapping[str, str]
) -> Iterable[str]:
    name, data = assembled_format(output).make_chunk(store, task)
    put_back(store, f"{folder}/{name}", data, wanted.get(name))
    return ()


def put_back(store: Store, name: str, data: bytes, digest: str | None) -> None:
    if digest == blake3(data).hexdigest():
        store.replace(name, data, read_only=True)


def other_software(made_by: Mapping[str, str]) -> str:
    """Which packages differ from those that made something, for a message's end."""
    now = software()
    other = [
        f"{name} {version}, here {now.get(name)}"
        for name, version in made_by.items()
        if now.get(name) != version
    ]
    return f" (made with {'; '.join(other)}: repair it with these)" if other else ""


# --- single files of logs --------------------------------------------------------------------------------


@dataclass(frozen=True)
class DamagedLog:
    """A log of which some file is to be rebuilt, and what it can be rebuilt from.

    Attributes:
        units: of the log; none where its part of the manifest is lost.
        outputs: in the order of the recipe, as far as it is known.
        builder: gives the job to build the log with, or why it can't be built.
    """

    store: Store
    record: LogRecord
    units: Sequence[Entry]
    outputs: Sequence[str]
    builder: Callable[[], LogJob | str]


def _part(log: DamagedLog, name: str) -> str:
    builder = log.builder()
    return builder if isinstance(builder, str) else mend_part(builder, log.record, log.outputs)


def _refusals(log: DamagedLog, name: str) -> str:
    builder = log.builder()
    if isinstance(builder, str):
        return builder
    return restore_refusal_list(builder, task_of(log.record), log.units, name)


# By the kind of file (see `LOG_FILES`): puts a file of a log back, and gives why it couldn't, or "".
REBUILDING: dict[str, Callable[[DamagedLog, str], str]] = {
    PART: _part,
    STATISTICS: lambda log, name: restore_log_statistics(log.store, log.record, log.units),
    REFUSALS: _refusals,
    LABELS: lambda log, name: WAY_OUT,
}
