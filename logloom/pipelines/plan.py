"""Planning a build: what a recipe means for these logs and this root, before anything is written.

Here: setting built against reused work.
Elsewhere: the recipe (logloom.recipe), which logs are opened (logloom.pipelines.plan_logs), their meeting
(logloom.transforms.resolve), building (logloom.pipelines.build).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from logloom.errors import UsageError
from logloom.io.entries import ENTRY, unit_folder
from logloom.io.logs.base import LogSummary
from logloom.io.logs.match import LogFiles
from logloom.io.logs.remembered import Memory
from logloom.io.manifest import Manifest, check_root
from logloom.io.shards import LogRecord, RecordShard
from logloom.io.storage import Store
from logloom.io.units import ReferringFormat, format_named
from logloom.pipelines.plan_logs import PlanLogs
from logloom.pipelines.versions import (
    Before,
    KeptLogs,
    check_verify,
    is_unchanged,
    left_out_note,
    next_version,
)
from logloom.recipe import Recipe
from logloom.recipe.logs import split_of
from logloom.transforms.bundles import bundle_size
from logloom.transforms.columns import RowPlan, Span, TopicClock
from logloom.transforms.derive import load_files, modules_of, read_files
from logloom.transforms.finish import is_key_of, skipped_record
from logloom.transforms.job import Job, LogTask
from logloom.transforms.partition import Failure
from logloom.transforms.spans import ByteIndex, plan_spans
from logloom.uris import shown
from logloom.words import counted, human_seconds


@dataclass(frozen=True)
class PlannedLog:
    """A log that will be read: what is worth remembering of its index, for there may be very many logs.

    Attributes:
        message_bytes: in the log, uncompressed.
        num_ticks: as many rows as there can be, before `rows:` drops any.
        bounds: (partitions, 4) int64, start and stop of each span and of its ticks; (partitions, 2) where a
            topic is the clock.
        reads: (partitions, 2) int64, bytes of messages and chunks of the log in each span, its halo left out.
    """

    task: LogTask
    message_bytes: int
    num_ticks: int
    bounds: NDArray[np.int64]
    reads: NDArray[np.int64]

    @classmethod
    def of(cls, task: LogTask, summary: LogSummary, plan: RowPlan) -> PlannedLog:
        """Plans a log's partitions, from its index."""
        spans = plan_spans(summary, plan)
        if isinstance(plan.clock, TopicClock):
            topic = summary.topics.get(plan.clock.topic)
            num_ticks = topic.num_messages if topic is not None else 0
        else:
            num_ticks = sum(span.ticks[1] - span.ticks[0] for span in spans if span.ticks is not None)
        rows = [(span.start, span.stop, *(span.ticks or ())) for span in spans]
        bounds = np.array(rows, np.int64) if rows else np.empty((0, 2), np.int64)
        sizes = ByteIndex(summary)
        reads = [(sizes.between(s.start, s.stop), sizes.chunks(s.start, s.stop)) for s in spans]
        of_spans = np.array(reads, np.int64).reshape(-1, 2)
        return cls(task, int(summary.chunk_bytes.sum()), num_ticks, bounds, of_spans)

    @property
    def spans(self) -> Iterator[Span]:
        """Its partitions, in time order."""
        for start, stop, *ticks in self.bounds.tolist():
            yield Span(start, stop, (ticks[0], ticks[1]) if ticks else None)


@dataclass(frozen=True)
class BuildPlan:
    """What a build will do.

    Attributes:
        logs: that will be read.
        up_to_date: the newest version already says all that a new one would.
        unreadable: logs that are skipped.
        left_out: logs that somebody dropped.
        num_unsettled: how many logs wait for a later build, since their files changed lately.
        sources: URIs and globs, or the table, that the recipe's `logs` name.
        kept: logs of the newest version that need no work.
        changes: records that change in the newest version beside those of `logs`, see `Before.changes`.
        staged: shards in runs/ with the tasks of `logs`, where an engine's graph shouldn't hold them.
        opened: logs that were, in name order; the others are listed as they were when a build opened them.
        samples: of these, the ones that were opened only to hold the recipe to.
        memory: what the next plan may remember of the logs; None where the root has it.
    """

    job: Job
    logs: tuple[PlannedLog, ...]
    notes: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    up_to_date: bool = False
    unreadable: tuple[LogRecord, ...] = ()
    left_out: tuple[str, ...] = ()
    num_unsettled: int = 0
    sources: tuple[str, ...] = ()
    kept: KeptLogs = field(default_factory=KeptLogs)
    changes: tuple[LogRecord, ...] = ()
    opened: tuple[str, ...] = ()
    samples: tuple[str, ...] = ()
    memory: Memory | None = None
    staged: tuple[RecordShard, ...] = ()

    @property
    def partitions(self) -> Iterator[tuple[LogTask, Span]]:
        return ((log.task, span) for log in self.logs for span in log.spans)

    @property
    def num_partitions(self) -> int:
        return sum(len(log.bounds) for log in self.logs)

    @property
    def message_bytes(self) -> int:
        return sum(log.message_bytes for log in self.logs)

    @property
    def largest_partition(self) -> int:
        """Bytes of messages in the largest partition: what becomes one shard of each output."""
        return max((int(log.reads[:, 0].max(initial=0)) for log in self.logs), default=0)

    @property
    def chunk_reads(self) -> int:
        """Chunks to read, one that two partitions share counted twice; as many range requests at most."""
        return sum(int(log.reads[:, 1].sum()) for log in self.logs)

    @property
    def num_ticks(self) -> int:
        """Ticks of the logs that will be read: as many rows as there can be, before `rows:` drops any."""
        return sum(log.num_ticks for log in self.logs)

    @property
    def work(self) -> dict[str, tuple[int, int]]:
        """Of each log that will be read, its bytes of messages and its partitions."""
        return {log.task.log_id: (log.message_bytes, len(log.bounds)) for log in self.logs}

    def unit_identities(self) -> list[tuple[str, str]]:
        """(output, identity) of every unit of the logs that will be read."""
        return [
            (output, self.job.unit_identity(output, task, span))
            for task, span in self.partitions
            for output in self.job.outputs
        ]

    def finished(self) -> int:
        """How many units lie finished in the root."""
        return sum(
            self.job.store.exists(f"{unit_folder(output, identity)}/{ENTRY}")
            for output, identity in self.unit_identities()
        )


def plan_build(
    recipe: Recipe,
    root: str,
    *,
    base: str | None = None,
    limit: int | None = None,
    verify: str = "new",
    allow_empty: bool = False,
    py_files: Sequence[str] = (),
    allow_derive: Sequence[str] = (),
    storage_options: Mapping[str, Any] | None = None,
    on_opened: Callable[[int, int], None] = lambda done, total: None,
) -> BuildPlan:
    """Plans a build.

    Args:
        root: URI of the dataset's root.
        base: the folder that relative log URIs start from.
        limit: only the first logs, for a trial.
        verify: "new", "all", "none" or "sample:<share>".
        allow_empty: a version without rows may be committed.
        py_files: Python files with functions that columns are derived by.
        allow_derive: modules and packages that columns may be derived by; importing them runs their code.
        storage_options: fsspec options by protocol.
        on_opened: called with how many logs have been opened, of how many.

    Raises:
        UsageError: the recipe, a log's name or the root is wrong; lists everything that is.
        LogReadError: logs can't be read (under on_error fail); lists all of them.
    """
    store = Store.at(root, storage_options)
    check_root(store)
    check_verify(verify)
    python = read_files(py_files)
    load_files(python)
    parent, following = next_version(store)
    before = Before(parent)
    logs = PlanLogs(recipe, store, base, limit, on_opened, before.left_out)
    logs.open(logs.new)
    allowed = [*allow_derive, *modules_of(python)]
    row_plan, notes = logs.resolve(allowed)
    outputs = _outputs(recipe)
    job = Job(
        store=store,
        name=recipe.name,
        recipe=recipe.identity_json(),
        plan=row_plan,
        outputs=outputs,
        open_options=logs.options,
        skip_budget=recipe.skip_budget,
        verify=verify,
        allow_empty=allow_empty,
        references=references_of(outputs, store.options),
        py_files=python,
        **following,
    )
    job, notes = _with_changed_opened(job, recipe, logs, before, notes, allowed)
    _check_names(outputs, logs)
    notes = (*logs.unfinished(), *notes, *_hash_note(recipe, parent), *_waiting(store, recipe, logs, before))
    return _against_parent(job, recipe, parent, before, logs, notes)


def _waiting(store: Store, recipe: Recipe, logs: PlanLogs, before: Before) -> list[str]:
    """Says which logs are left out, for good or for this build."""
    dropped = left_out_note(store, before.left_out)
    if not logs.unsettled:
        return dropped
    names = ", ".join(sorted(logs.unsettled)[:5]) + (" …" if len(logs.unsettled) > 5 else "")
    return [
        *dropped,
        f"{counted(len(logs.unsettled), 'log')} left for a later build, since a file changed within "
        f"{human_seconds((recipe.settle or 0) / 1e9)} ({names})",
    ]


def _hash_note(recipe: Recipe, parent: Manifest | None) -> list[str]:
    """Says why every log counts as new where content ids were made otherwise before."""
    before = parent.recipe.get("hash", "ends") if parent is not None else recipe.hash
    if parent is None or before == recipe.hash:
        return []
    return [
        f"version {parent.version} knows logs by `hash: {before}`, this build by `hash: {recipe.hash}`: "
        "other content ids, so every log counts as new and is built again"
    ]


def references_of(outputs: Mapping[str, BaseModel], storage_options: Mapping[str, Any]) -> dict[str, str]:
    """Digests of the datasets that outputs point into, by output."""
    return {
        output: form.references_digest(options, storage_options)
        for output, options in outputs.items()
        if isinstance(form := format_named(output), ReferringFormat)
    }


def _outputs(recipe: Recipe) -> Mapping[str, BaseModel]:
    """The options of each output.

    Raises:
        UsageError: an option, which manifests hold, has credentials in it.
    """
    outputs = recipe.output_options()
    for output, options in outputs.items():
        text = options.model_dump_json()
        if shown(text) != text:
            raise UsageError(
                f"outputs.{output}: a URI has credentials in it, and versions keep it: give them by "
                "--storage-option, or by the environment"
            )
    return outputs


def _check_names(outputs: Mapping[str, BaseModel], logs: PlanLogs) -> None:
    """Those of the logs that are built; a build has checked those of the others.

    Raises:
        UsageError: lists the logs whose names an output can't hold.
    """
    problems = [
        problem
        for log_id in sorted(logs.opened)
        for output, options in outputs.items()
        for problem in format_named(output).check_log(options, log_id, logs.files[log_id].uris[0])
    ]
    if problems:
        raise UsageError("\n".join(problems[:20] + ["…"] * (len(problems) > 20)))


def _with_changed_opened(
    job: Job,
    recipe: Recipe,
    logs: PlanLogs,
    before: Before,
    notes: tuple[str, ...],
    allow_derive: Sequence[str],
) -> tuple[Job, tuple[str, ...]]:
    """Opens the remembered logs that have to be built; the job and notes by what these hold."""
    # They may change the plan, and so the keys of others.
    while changed := [
        log_id for log_id in logs.remembered if not _stands(before, _task_of(job, recipe, logs, log_id))
    ]:
        logs.open(changed)
        row_plan, notes = logs.resolve(allow_derive)
        job = replace(job, plan=row_plan)
    return job, notes


def _task_of(job: Job, recipe: Recipe, logs: PlanLogs, log_id: str) -> LogTask:
    content_id, uris = logs.content_of(log_id)
    split = split_of(recipe, log_id, uris, logs.files[log_id].split)
    return LogTask(log_id, uris, content_id, split, job.log_key(log_id, content_id, uris, split))


def _stands(before: Before, task: LogTask) -> bool:
    """Whether a log's record is still what a build of it would give."""
    record = before.known.get(task.log_id)
    if record is None or record.status == "kept":
        return False
    return is_key_of(task.key, record.key, record.status)


def _against_parent(
    job: Job,
    recipe: Recipe,
    parent: Manifest | None,
    before: Before,
    logs: PlanLogs,
    notes: Sequence[str],
) -> BuildPlan:
    """Sorts the logs into those to read, those whose records stay, and those that are gone."""
    planned: list[PlannedLog] = []
    for log_id in sorted(logs.opened):
        task = _task_of(job, recipe, logs, log_id)
        if not _stands(before, task):
            planned.append(PlannedLog.of(task, logs.opened[log_id].summary, job.plan))
    unreadable = [_unreadable(recipe, log, message) for log, message in logs.failed]
    gone = sorted(before.known.keys() - logs.files.keys() - before.left_out - logs.unsettled)
    vanished = _vanished(job, recipe, gone, before)
    lost = [] if recipe.vanished == "keep" else gone
    changes = before.changes([*vanished, *unreadable], lost)
    kept = before.kept([*(log.task.log_id for log in planned), *(r.log_id for r in unreadable), *lost])
    job = replace(job, bundle=bundle_size(sum(len(log.bounds) for log in planned)))
    return BuildPlan(
        job,
        tuple(planned),
        tuple(notes),
        tuple(gone),
        parent is not None and not planned and not changes and is_unchanged(job, parent),
        tuple(unreadable),
        tuple(sorted(before.left_out)),
        len(logs.unsettled),
        logs.sources,
        kept,
        changes,
        opened=tuple(sorted(logs.opened)),
        samples=tuple(logs.samples),
        memory=logs.memory(),
    )


def _unreadable(recipe: Recipe, log: LogFiles, message: str) -> LogRecord:
    split = split_of(recipe, log.log_id, tuple(log.uris), log.split)
    task = LogTask(log.log_id, tuple(log.uris), "", split, "")
    return skipped_record(task, [Failure(log.log_id, "", "log", message)])


def _vanished(job: Job, recipe: Recipe, gone: Sequence[str], before: Before) -> list[LogRecord]:
    """The records that change because their logs are gone: the recipe no longer finds what the parent has.

    Raises:
        UsageError: `vanished: fail`, the default; or rows to keep that another recipe made.
    """
    if recipe.vanished == "fail" and gone:
        raise UsageError(
            f"{counted(len(gone), 'log')} of the newest version can't be found by `logs` any more "
            f"({', '.join(gone[:5])}): set `vanished: keep` to keep their rows, or `vanished: drop` to leave "
            "them out"
        )
    if recipe.vanished != "keep":
        return []
    other, changed = [], []
    for record in before.records(gone):
        if record.key != _key_now(job, recipe, record):
            other.append(record.log_id)
        elif record.status != "kept":
            changed.append(replace(record, status="kept"))
    if other:
        raise UsageError(
            f"{counted(len(other), 'log is', 'logs are')} gone whose rows were made by another recipe "
            f"({', '.join(other[:5])}); these can't stand beside rows of this one: set `vanished: drop`, "
            "undo the change, or build into a new root"
        )
    return changed


def _key_now(job: Job, recipe: Recipe, record: LogRecord) -> str:
    split = split_of(recipe, record.log_id, record.uris, record.split)
    return job.log_key(record.log_id, record.content_id, record.uris, split)
