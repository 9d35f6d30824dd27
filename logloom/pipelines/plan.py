"""Planning a build: what a recipe means for these logs and this root, before anything is written.

Here: setting built against reused work.
Elsewhere: the recipe (logloom.recipe), which logs are opened (logloom.pipelines.plan_logs), their meeting
(logloom.transforms.resolve), building (logloom.pipelines.build).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from pydantic import BaseModel

from logloom.errors import UsageError
from logloom.io.logs.log_list import LogFiles
from logloom.io.manifest import Manifest, check_root
from logloom.io.shards import LogRecord
from logloom.io.storage import Store
from logloom.io.stretches import Ints
from logloom.io.units import ReferringFormat, format_named
from logloom.pipelines.plan_logs import SAMPLE, PlanLogs, State
from logloom.pipelines.planned import BuildPlan, PlannedLog
from logloom.pipelines.standing import changed_logs, standing, task_of
from logloom.pipelines.versions import Before, check_verify, is_unchanged, left_out_note, next_version
from logloom.recipe import Recipe
from logloom.recipe.logs import split_of
from logloom.transforms.bundles import bundle_size
from logloom.transforms.derive import load_files, modules_of, read_files
from logloom.transforms.finish import skipped_record
from logloom.transforms.job import LogJob, LogTask
from logloom.transforms.results import Failure
from logloom.uris import shown
from logloom.words import counted, human_seconds


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
    sample: int | None = SAMPLE,
    labels: Mapping[str, str] | None = None,
    on_opened: Callable[[int, int], None] = lambda done, total: None,
) -> BuildPlan:
    """Plans a build.

    Versions have the same bytes, whatever is left to workers.

    Args:
        root: URI of the dataset's root.
        base: the folder that relative log URIs start from.
        limit: only the first logs, for a trial.
        verify: "new", "all", "none" or "sample:<share>".
        allow_empty: a version without rows may be committed.
        py_files: Python files with functions that columns are derived by.
        allow_derive: modules and packages that columns may be derived by; importing them runs their code.
        storage_options: fsspec options by protocol.
        sample: how many of the logs to build are opened here, where there are more; workers open the
            others. None opens all of them.
        labels: of this build, noted in runs/, and shown by an engine that knows labels of jobs (Dataflow).
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
    logs = PlanLogs(recipe, store, base, limit, sample, on_opened, before.left_out)
    logs.open_some(logs.rows(State.NEW))
    allowed = [*allow_derive, *modules_of(python)]
    row_plan, notes = logs.resolve(allowed)
    following |= {"plan": row_plan, "open_options": logs.options, "verify": verify, "labels": labels or {}}
    job = _job_of(recipe, allow_empty=allow_empty, py_files=python, **following)
    compared = logs.rows()
    if parent is not None and is_unchanged(job, parent):
        # Keys tell which of these changed, and so whether there is anything to do.
        left = logs.rows(State.LEFT)
        compared = left[before.rows_of(logs.files.ids.take(left)) >= 0]
    job, notes = _with_changed_opened(job, recipe, logs, before, notes, allowed, compared)
    _check_names(job.outputs, logs)
    notes = (*logs.unfinished(), *notes, *_hash_note(recipe, parent), *_sample_note(logs))
    notes += tuple(_waiting(store, recipe, logs, before))
    return _against_parent(job, recipe, parent, before, logs, notes)


def _job_of(recipe: Recipe, *, store: Store, **more: Any) -> LogJob:
    """What a recipe says of its job, and more."""
    outputs = _outputs(recipe)
    return LogJob(
        store=store,
        name=recipe.name,
        recipe=recipe.identity_json(),
        outputs=outputs,
        skip_budget=recipe.skip_budget,
        references=references_of(outputs, store.options),
        **more,
    )


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


def _sample_note(logs: PlanLogs) -> list[str]:
    """Says which logs a recipe was held to, where workers open the others."""
    if not logs.num_left:
        return []
    some = sorted(logs.opened)
    named = ", ".join(some[:5]) + (", …" if len(some) > 5 else "")
    total = counted(len(some) + logs.num_left, "log")
    return [f"opened {len(some)} of {total} to hold the recipe to ({named}); workers open the others"]


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
        for log in logs.files.at(logs.rows(State.OPENED, State.LEFT))
        for output, options in outputs.items()
        for problem in format_named(output).check_log(options, log.log_id, log.uris[0])
    ]
    if problems:
        raise UsageError("\n".join(problems[:20] + ["…"] * (len(problems) > 20)))


def _with_changed_opened(
    job: LogJob,
    recipe: Recipe,
    logs: PlanLogs,
    before: Before,
    notes: tuple[str, ...],
    allow_derive: Sequence[str],
    compared: Ints,
) -> tuple[LogJob, tuple[str, ...]]:
    """Opens logs that are to be compared, and remembered ones that have to be built, of many a sample.

    Returns:
        The job and notes by what these hold.
    """
    logs.open(compared)
    is_resolved = not len(compared)
    while True:
        if not is_resolved:
            row_plan, notes = logs.resolve(allow_derive)
            job = replace(job, plan=row_plan)
        changed = changed_logs(job, recipe, logs, before)
        if not len(changed):
            return replace(job, held_to=recipe if logs.num_left else None), notes
        logs.open_some(changed)  # which may change the plan, and so the keys of others
        is_resolved = False


def _against_parent(
    job: LogJob,
    recipe: Recipe,
    parent: Manifest | None,
    before: Before,
    logs: PlanLogs,
    notes: Sequence[str],
) -> BuildPlan:
    """Sorts the logs into those to read, those whose records stay, and those that are gone."""
    planned: list[PlannedLog] = []
    purged = logs.purged(before)
    opened = logs.rows(State.OPENED)
    tasks = (task_of(job, recipe, logs, row, log) for row, log in logs.at(opened))
    for task, stands in zip(tasks, standing(job, recipe, logs, before, opened), strict=True):
        if task.log_id not in purged and not stands:
            planned.append(PlannedLog.of(task, logs.opened[task.log_id].summary, job.plan))
    notes = [*notes, *(log.warning for log in planned if log.warning)]
    left = tuple(_task_left(recipe, logs, log) for log in logs.files.at(logs.rows(State.LEFT)))
    unreadable = [_unreadable(recipe, log, message) for log, message in logs.failed]
    there = before.left_out | logs.unsettled | purged
    gone = [log_id for log_id in before.missing_from(logs.files.ids) if log_id not in there]
    vanished = _vanished(job, recipe, gone, before)
    erased = [log_id for log_id, row in zip(purged, before.rows_of(purged), strict=True) if row >= 0]
    lost = sorted([*([] if recipe.vanished == "keep" else gone), *erased])
    notes = [*notes, *logs.purged_notes(purged)]
    changes = before.changes([*vanished, *unreadable], lost)
    new = [*(log.task.log_id for log in planned), *(task.log_id for task in left)]
    kept = before.kept([*new, *(record.log_id for record in unreadable), *lost])
    plan = BuildPlan(
        job=job,
        logs=tuple(planned),
        left=left,
        notes=tuple(notes),
        dropped=tuple(gone),
        up_to_date=parent is not None and not new and not changes and is_unchanged(job, parent),
        unreadable=tuple(unreadable),
        left_out=tuple(sorted(before.left_out)),
        num_unsettled=len(logs.unsettled),
        sources=logs.sources,
        kept=kept,
        changes=changes,
        opened=tuple(sorted(logs.opened)),
        samples=tuple(logs.samples),
        memory=logs.memory(),
        num_purged=int(np.count_nonzero(logs.files.rows_of(purged) >= 0)),
    )
    return replace(plan, job=replace(job, bundle=bundle_size(plan.num_partitions)))


def _task_left(recipe: Recipe, logs: PlanLogs, files: LogFiles) -> LogTask:
    """A log that a worker is to open first, by what its listing says."""
    split = split_of(recipe, files.log_id, files.uris, files.split)
    return LogTask(files.log_id, files.uris, "", split, "", logs.listed(files))


def _unreadable(recipe: Recipe, log: LogFiles, message: str) -> LogRecord:
    split = split_of(recipe, log.log_id, tuple(log.uris), log.split)
    task = LogTask(log.log_id, tuple(log.uris), "", split, "")
    return skipped_record(task, [Failure(log.log_id, "", "log", message)])


def _vanished(job: LogJob, recipe: Recipe, gone: Sequence[str], before: Before) -> list[LogRecord]:
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


def _key_now(job: LogJob, recipe: Recipe, record: LogRecord) -> str:
    split = split_of(recipe, record.log_id, record.uris, record.split)
    return job.log_key(record.log_id, record.content_id, record.uris, split)
