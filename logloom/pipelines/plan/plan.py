"""Plan a build: apply a recipe to its logs and root, before anything is written.

Here: separating work from what is reused.
Elsewhere: the recipe (logloom.recipe), opening logs (logloom.pipelines.plan.logs), resolving the recipe for
them (logloom.transforms.rows.plan.resolve), building (logloom.pipelines.build.build).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel

from logloom.errors import InputError, LogReadError, RecipeError, StorageError, UsageError
from logloom.io.catalog.manifest import Manifest
from logloom.io.catalog.pages import LogRecord, LogStatus
from logloom.io.catalog.version_files import check_root
from logloom.io.formats.capabilities import ReferringFormat
from logloom.io.formats.registry import format_named
from logloom.io.logs.log_cache import topic_kinds
from logloom.io.logs.log_list import SAMPLE, LogFiles, list_failures
from logloom.io.logs.messages.pixel_encodings import Form
from logloom.io.logs.outline import Outline
from logloom.io.rows.log_ranges import Ints
from logloom.io.storage.filesystems import absolute_uri, file_name_of, folder_of
from logloom.io.storage.store import Store
from logloom.pipelines.plan.build_plan import BuildPlan, PlannedLog
from logloom.pipelines.plan.current_records import (
    changed_logs,
    replaced_parts,
    standing,
    task_of,
)
from logloom.pipelines.plan.duplicates import duplicate_warnings, marks, settle_duplicates
from logloom.pipelines.plan.kept_logs import check_index, kept_notes, kept_records, waiting_records
from logloom.pipelines.plan.log_tasks import ListedTasks
from logloom.pipelines.plan.logs import PlanLogs, State
from logloom.pipelines.plan.next_version import (
    Before,
    is_unchanged,
    left_out_note,
    namesake_warnings,
    next_version,
    purged_notes,
)
from logloom.pipelines.plan.shortened_logs import set_shortened_aside
from logloom.pipelines.stats.splits import planned_warnings
from logloom.recipe import Recipe
from logloom.recipe.logs import split_of
from logloom.recipe.mistakes import Mistake
from logloom.text import OnMessage, counted, human_seconds, ignore_message, some_of
from logloom.transforms.build.bundles import bundle_size
from logloom.transforms.build.job import LogJob, LogTask
from logloom.transforms.build.partition_results import Failure, failure_of, skipped_record
from logloom.transforms.build.settings import BuildSettings
from logloom.transforms.rows.derive.columns import NOT_OF_THE_LOG
from logloom.transforms.rows.derive.python_files import load_files, modules_of, read_files
from logloom.transforms.rows.notices import BuildWarning, Notice, notes_of
from logloom.transforms.rows.plan.image_forms import first_images, image_misfits, list_misfits, two_depths
from logloom.transforms.rows.plan.resolve import hold_to
from logloom.transforms.rows.plan.row_plan import RowPlan, changed
from logloom.transforms.rows.plan.topics import named_topics
from logloom.uris import shown


def load_recipe(
    sources: Recipe | Sequence[str],
    storage_options: Mapping[str, Any] | None,
    *,
    logs: Sequence[str] = (),
    logs_by: str,
    on_error: Literal["fail", "skip", "salvage"] | None = None,
    hash: str | None = None,
    on_left_out: OnMessage = ignore_message,
) -> tuple[Recipe, str | None]:
    """Load a recipe, or suggest one for logs; apply a command's options to it.

    Args:
        sources: a recipe, the URI of one (.yaml), or logs to build without one.
        storage_options: fsspec options by protocol.
        logs: URIs or globs instead of the recipe's `logs`; none keeps these.
        logs_by: the option that gives them, for messages.
        on_error, hash: instead of the recipe's; None keeps these.
        on_left_out: called with each topic that the suggested recipe leaves out, and with what is no log in a
            folder of logs.

    Returns:
        The recipe, and the folder that its relative URIs start from; None is the current one.

    Raises:
        UsageError: a recipe and something else.
        RecipeError: the recipe is missing or has mistakes.
    """
    base = None
    if isinstance(sources, Recipe):
        recipe = sources
    elif any(file_name_of(source).endswith((".yaml", ".yml")) for source in sources):
        if len(sources) > 1:
            raise UsageError("give one recipe, or logs; not both")
        uri = absolute_uri(sources[0])
        recipe, base = Recipe.load(uri, storage_options), folder_of(uri)
    else:
        from logloom.pipelines.info.info import suggested_recipe

        # The plan and the build report logs that are skipped or salvaged.
        text = suggested_recipe(
            sources,
            storage_options or {},
            on_error or "fail",
            on_left_out=on_left_out,
            on_skipped=on_left_out,
        )
        recipe = Recipe.from_yaml(text, source="suggested recipe")
    if logs:
        recipe, base = recipe.with_logs(logs, logs_by), None
    given = {"on_error": on_error, "hash": hash}
    return recipe.model_copy(update={name: value for name, value in given.items() if value}), base


def plan_build(
    recipe: Recipe,
    root: str,
    *,
    base: str | None = None,
    limit: int | None = None,
    settings: BuildSettings | None = None,
    py_files: Sequence[str] = (),
    allow_derive: Sequence[str] = (),
    storage_options: Mapping[str, Any] | None = None,
    sample: int | None = SAMPLE,
    compare: bool = True,
    on_opened: Callable[[int, int], None] = lambda done, total: None,
) -> BuildPlan:
    """Plan a build; versions have the same bytes, regardless of what the plan leaves to workers.

    Args:
        recipe: what to build, and from which logs.
        root: URI of the dataset's root.
        base: the folder that relative log URIs are resolved against.
        limit: only the first logs, for a trial.
        settings: of this build: what is read back, what refuses the commit, labels.
        py_files: Python files with functions that columns are derived by.
        allow_derive: modules and packages that columns may be derived by; importing them runs their code.
        storage_options: fsspec options by protocol.
        sample: how many of the logs to build are opened here; workers open the others. None opens all.
        compare: opens all logs that may have changed, to see if there is work; otherwise workers find out.
        on_opened: called with how many logs have been opened, of how many.

    Raises:
        UsageError: the recipe, a log's name or the root is wrong; lists all mistakes.
        LogReadError, InputError: logs can't be read (under on_error fail), or vanished; lists all of them.

    Examples:
        >>> plan = plan_build(Recipe.load("demo/recipe.yaml"), "demo/dataset", base="demo")
        >>> plan.up_to_date
        True
    """
    if not recipe.outputs:  # `head` and Beam, which only read, need none
        why = "a build writes at least one; name a format, such as `outputs: {table: {}}`"
        raise recipe.places.error([Mistake(("outputs",), why)])
    check_root(store := Store.at(root, storage_options))
    load_files(python := read_files(py_files))
    parent, following = next_version(store)
    before = Before(parent)
    logs = PlanLogs(recipe, store, base, limit, sample, on_opened, before)
    recipe = logs.recipe
    set_shortened_aside(recipe, following["store"], logs, before)
    logs.hold_to_waiting(before)
    logs.open_some(logs.rows(State.NEW))
    of_dropped = settle_duplicates(recipe, logs, before, store.uri)
    row_plan, notes = logs.resolve(allowed := [*allow_derive, *modules_of(python)])
    following |= {"plan": row_plan, "open_options": logs.options, "settings": settings or BuildSettings()}
    job = _job_of(recipe, py_files=python, **following)
    job, notes = _with_changed_opened(job, recipe, compare, logs, before, notes, allowed)
    plan = _against_parent(job, recipe, before, logs, notes)
    plan = replace(plan, warnings=(*plan.warnings, *of_dropped))
    of_splits = () if limit else (one for one in planned_warnings(plan) if one.is_doubtful)
    return replace(plan, warnings=(*plan.warnings, *of_splits))


def _job_of(recipe: Recipe, *, store: Store, **more: Any) -> LogJob:
    """Make the job of a recipe."""
    outputs, references = resolved_references(_outputs(recipe), store.options)
    return LogJob(
        store=store,
        name=recipe.name,
        recipe=recipe.identity_json(),
        outputs=outputs,
        skip_budget=recipe.skip_budget,
        references=references,
        **more,
    )


def _waiting(store: Store, recipe: Recipe, logs: PlanLogs, before: Before) -> list[str]:
    """List the logs that are left out, permanently or in this build."""
    dropped = left_out_note(store, before.left_out)
    if not logs.unsettled:
        return dropped
    return [
        *dropped,
        f"{counted(len(logs.unsettled), 'log')} left for a later build, since a file changed within "
        f"{human_seconds((recipe.settle or 0) / 1e9)} ({some_of(sorted(logs.unsettled))})",
    ]


def _hash_note(recipe: Recipe, parent: Manifest | None) -> list[str]:
    """Explain why every log counts as new if content ids were made differently before."""
    before = parent.recipe.get("hash", "ends") if parent is not None else recipe.hash
    if parent is None or before == recipe.hash:
        return []
    return [
        f"version {parent.version} identifies logs by `hash: {before}`, this build by `hash: {recipe.hash}`: "
        "content ids differ, so every log counts as new and is built again"
    ]


def _dependency_note(job: LogJob, parent: Manifest | None) -> list[str]:
    """List changed code and files that affect rows."""
    if parent is None:
        return []
    before, now = parent.dependencies, job.dependencies
    differing = [name for name in changed(before, now) if name in before and name in now]
    if not differing:
        return []
    return [
        f"changed since version {parent.version}, so dependent rows are built again: {some_of(differing)}"
    ]


def _sample_note(logs: PlanLogs, num_compared: int) -> list[str]:
    """List the logs that the recipe was checked with, if workers open the others, and compare some."""
    if not logs.num_left:
        return []
    some = sorted(logs.opened)
    total = counted(len(some) + logs.num_left, "log")
    note = f"opened {len(some)} of {total} to check the recipe ({some_of(some)}); workers open the others"
    same = f", and rebuild those of {counted(num_compared, 'log')} of the latest version that changed"
    return [note + same * bool(num_compared)]


def _mended_note(log_ids: Sequence[str]) -> list[str]:
    """List damaged logs that are built again."""
    if not log_ids:
        return []
    was = f"{counted(len(log_ids), 'log that was', 'logs that were')} skipped or salvaged"
    now = f"{'is' if len(log_ids) == 1 else 'are'} read again, as files may have been repaired"
    return [f"{was} {now} ({some_of(log_ids)})"]


def resolved_references(
    outputs: Mapping[str, BaseModel], storage_options: Mapping[str, Any]
) -> tuple[dict[str, BaseModel], dict[str, str]]:
    """Resolve outputs that refer to present versions; return also the digest of these by output.

    Workers might find later ones, and write different bytes under the same identity.
    """
    found, digests = dict(outputs), dict[str, str]()
    for output, options in outputs.items():
        form = format_named(output)
        if isinstance(form, ReferringFormat):
            found[output] = form.pinned(options, storage_options)
            digests[output] = form.references_digest(found[output], storage_options)
    return found, digests


def _outputs(recipe: Recipe) -> Mapping[str, BaseModel]:
    """Return the options of each output.

    Raises:
        UsageError: an option contains credentials, and manifests store it.
    """
    outputs = recipe.output_options()
    for output, options in outputs.items():
        text = options.model_dump_json()
        if shown(text) != text:
            raise UsageError(
                f"outputs.{output}: a URI contains credentials, and versions store it; pass them by "
                "--storage-option, or in the environment"
            )
    return outputs


def _check_names(outputs: Mapping[str, BaseModel], logs: PlanLogs) -> None:
    """Check names of logs to build; earlier builds have checked the others.

    Raises:
        UsageError: lists the logs with names that an output doesn't support, under `on_error: fail`.
        LogReadError: all logs have such names.
    """
    found = [
        (row, log, problem)
        for row, log in logs.at(logs.rows(State.OPENED, State.LEFT))
        for output, options in outputs.items()
        for problem in format_named(output).check_log(options, log.log_id, log.uris[0])
    ]
    problems = [problem for _, _, problem in found]
    if problems and logs.options.on_error == "fail":
        raise UsageError("\n".join(problems[:20] + ["…"] * (len(problems) > 20)))
    for row, log in {row: log for row, log, _ in found}.items():
        logs.leave_out(row, log, "; ".join(problem for at, _, problem in found if at == row))


def _compared(job: LogJob, before: Before, logs: PlanLogs) -> Ints:
    """Return the logs whose keys show whether they changed, and so whether there is work."""
    if before.parent is None or not is_unchanged(job, before.parent):
        return logs.rows()
    left = logs.rows(State.LEFT)
    return left[before.rows_of(logs.files.ids.take(left)) >= 0]


def _with_changed_opened(
    job: LogJob,
    recipe: Recipe,
    compare: bool,
    logs: PlanLogs,
    before: Before,
    notes: tuple[Notice, ...],
    allow_derive: Sequence[str],
) -> tuple[LogJob, tuple[Notice, ...]]:
    """Open logs to compare, and cached ones that have to be built, of many a sample.

    Returns:
        The job and notes after opening these.
    """
    compared = _compared(job, before, logs) if compare else logs.rows()
    logs.open(compared)
    is_resolved = not len(compared)
    while True:
        if not is_resolved:
            row_plan, notes = logs.resolve(allow_derive)
            job = replace(job, plan=row_plan)
        changed = changed_logs(job, recipe, logs, before)
        if not len(changed):
            _check_names(job.outputs, logs)
            return replace(job, held_to=recipe if logs.num_left else None), notes
        logs.open_some(changed)  # which may change the plan, and so the keys of others
        is_resolved = False


def _against_parent(
    job: LogJob, recipe: Recipe, before: Before, logs: PlanLogs, notes: Sequence[Notice]
) -> BuildPlan:
    """Sort the logs into those to read, those whose records are kept, and missing ones."""
    parent, compared = before.parent, _compared(job, before, logs)
    purged = logs.purged(before)
    planned, unfit = _to_build(job, recipe, logs, before, purged)
    mended = [log.task.log_id for log in planned if log.task.replaces is not None]
    left = ListedTasks(recipe, logs.files, np.setdiff1d(logs.rows(State.LEFT), compared), logs.remembers)
    unreadable = [*unfit, *(_unreadable(recipe, log, message) for log, message in logs.failed)]
    waiting = before.with_passes(logs.unsettled)
    gone, fewer = _logs_gone(logs, before, [*waiting, *purged])
    _check_vanished(recipe, gone)
    left_out = {name for name, one in logs.duplicates.items() if one.is_left_out}
    kept_gone = [name for name in gone if name not in left_out] if recipe.vanished == "keep" else []
    staying = [*kept_gone, *(shortened := [name for name in logs.shortened if name not in left_out])]
    kept = kept_records(job, recipe, staying, logs, before)
    kept += waiting_records(job, recipe, [name for name in waiting if name not in left_out], logs, before)
    check_index(recipe, logs, before, [*waiting, *staying])
    lost = {*before.having({*fewer, *left_out, *purged}), *(gone if recipe.vanished != "keep" else ())}
    notes = [*notes, *_notes(job, recipe, before, logs, planned, len(compared))]
    notes += _notes_on_absent(logs, before, kept_gone, shortened, purged)
    notes += logs.label_notes([*staying, *waiting])
    leaving = [log.task.log_id for log in planned], [record.log_id for record in unreadable], sorted(lost)
    marked = marks(logs, before, *leaving, left.log_ids, staying)
    changes = before.changes([*kept, *unreadable, *marked], sorted(lost))
    plan = BuildPlan(
        job=job,
        logs=tuple(planned),
        left=left,
        compared=_compared_by_workers(left, compared, before, logs),
        compared_bytes=logs.bytes_to_compare(compared),
        noted=(*notes_of("unfinished", logs.unfinished()), *notes),
        warnings=tuple(_warnings(logs, planned)),
        dropped=tuple(sorted([*gone, *fewer])),
        staying=tuple(sorted(staying)),
        shortened=tuple(sorted(logs.shortened)),
        up_to_date=parent is not None
        and not (planned or left or changes or len(compared))
        and is_unchanged(job, parent),
        unreadable=tuple(unreadable),
        left_out=tuple(sorted(before.left_out)),
        num_unsettled=len(logs.unsettled),
        sources=logs.sources,
        kept=before.kept(*leaving, left.ids, moved=kept),
        changes=changes,
        duplicates=logs.duplicates,
        wholes=logs.wholes,
        opened=tuple(sorted(logs.opened)),
        samples=tuple(logs.samples),
        memory=logs.memory(),
        labels=logs.labels,
        labels_gone=logs.labels_gone,
        labels_kept=logs.labels_kept,
        num_purged=int(np.count_nonzero(logs.files.rows_of(purged) >= 0)),
    )
    bundle = bundle_size(plan.num_partitions)
    # Only building damaged logs shows whether their files were repaired.
    may_stay = len(compared) > 0 or len(mended) > 0
    return replace(plan, job=replace(job, bundle=bundle, if_changed=may_stay))


def _notes(
    job: LogJob,
    recipe: Recipe,
    before: Before,
    logs: PlanLogs,
    planned: Sequence[PlannedLog],
    num_compared: int,
) -> Iterator[Notice]:
    """Return notes on logs to build, and on logs that wait."""
    yield from notes_of("hash", _hash_note(recipe, before.parent))
    yield from notes_of("dependencies", _dependency_note(job, before.parent))
    yield from notes_of("sample", _sample_note(logs, num_compared))
    mended = [log.task.log_id for log in planned if log.task.replaces is not None]
    yield from notes_of("mended", _mended_note(mended))
    yield from notes_of("waiting", _waiting(job.store, recipe, logs, before))
    yield from notes_of("patterns", logs.pattern_notes())
    if recipe.split is not None and recipe.split.listed:
        rest = " and ".join(map(repr, recipe.split.shares))
        yield Notice(f"split: logs that no list names, those of later builds too, go to {rest}", kind="split")
    if planned:
        log = logs.opened[planned[0].task.log_id]
        yield from _video_notes(job.plan, log)
        yield from _png_notes(job, log)


def _notes_on_absent(
    logs: PlanLogs, before: Before, gone: Sequence[str], shortened: Sequence[str], purged: Collection[str]
) -> Iterator[Notice]:
    """Return notes on logs that keep rows without their files, and on purged ones."""
    yield from notes_of("kept", kept_notes(gone, before))
    yield from notes_of("shortened", filter(None, map(logs.shortened.get, shortened)))
    yield from notes_of("purged", purged_notes(logs.tombstones, purged))


def _video_notes(plan: RowPlan, log: Outline) -> Iterator[Notice]:
    """Return notes on video topics with GOPs longer than a partition, from the beginning of a log."""
    from logloom.io.video.preview import glimpse
    from logloom.transforms.rows.spans import plan_spans
    from logloom.transforms.rows.video_columns import video_topics

    topics = [topic for topic in video_topics(plan) if topic in log.summary.topics]
    if not topics:
        return
    if plan.period is None:
        inner = plan_spans(log.summary, plan)[1:-1]
        length = inner[0].stop - inner[0].start if inner else 0
    else:
        length = plan.period * plan.rows
    for topic in topics:
        seen = glimpse(log, topic)
        if seen is not None and 0 < length < seen.gop_ns:
            rows = -(-plan.rows * seen.gop_ns // length)
            text = (
                f"{topic}: keyframes are {counted(seen.gop, 'packet')} ({seen.gop_ns / 1e9:.1f} s) apart, "
                f"and a partition is {length / 1e9:.1f} s long: each decodes up to that much before its own "
                f"first picture; a partition.rows of {rows} or more wastes less"
            )
            yield Notice(text, kind="video", topic=topic, line=f"partition: {{rows: {rows}}}")


def _png_notes(job: LogJob, log: Outline) -> Iterator[Notice]:
    """Return notes on columns of pixels that an output encodes as PNG, with what is quicker."""
    columns = {column.name: column for column in job.plan.columns}
    for output, options in job.outputs.items():
        for name, video in format_named(output).encoded(options, job.schema).items():
            line, others = video, f"`{video}` makes video"
            column = columns.get(name)
            if column is not None and column.spec.adapter == "image":
                info = log.summary.topics.get(column.topic)
                is_file = (
                    info is not None and info.type.endswith("CompressedImage") and not column.spec.resize
                )
                line = "field: data" if is_file else "encode: jpg"
                how = "instead of `as: image` copies the files of its messages" if is_file else "makes JPEG"
                others = f"`{line}` at {name} {how}, and {others}"
            text = f"{output}: {name} is pixels, which become PNG: most of the work of a build; {others}"
            yield Notice(text, kind="png", column=name, topic=column.topic if column else "", line=line)


def _warnings(logs: PlanLogs, planned: Sequence[PlannedLog]) -> Iterator[BuildWarning]:
    """Return warnings about logs to build."""
    for log in planned:
        # For a log that may be unchanged, only building it shows what is new.
        yield from log.warnings if log.task.replaces is None else ()
    yield from namesake_warnings(logs.tombstones, (log.task.log_id for log in planned))
    yield from duplicate_warnings(logs.duplicates)


def _logs_gone(logs: PlanLogs, before: Before, others: Sequence[str]) -> tuple[list[str], set[str]]:
    """Return missing logs of the latest version, and passes of logs that have fewer now.

    Args:
        others: logs that are absent for another reason.
    """
    there = before.left_out.union(others, logs.shortened)
    gone = [log_id for log_id in before.missing_from(logs.files.ids) if log_id not in there]
    whole = before.later_passes(gone)
    rows = logs.files.rows_of(whole.values()).tolist()
    fewer = {log_id for log_id, row in zip(whole, rows, strict=True) if row >= 0}
    return [log_id for log_id in gone if log_id not in fewer], fewer


def _to_build(
    job: LogJob, recipe: Recipe, logs: PlanLogs, before: Before, purged: Collection[str]
) -> tuple[list[PlannedLog], list[LogRecord]]:
    """Return the opened logs whose records aren't current, and records of those that can't be built.

    Raises:
        LogReadError: some can't be built, under `on_error: fail`; lists all of them.
        RecipeError: columns don't fit the first images of some, under `on_error: fail`.
    """
    opened = logs.rows(State.OPENED)
    tasks = (task_of(job, logs, row, log) for row, log in logs.at(opened))
    stand, parts = standing(job, recipe, logs, before, opened), replaced_parts(logs, before, opened)
    planned: list[PlannedLog] = []
    failed: list[Failure] = []
    records: list[LogRecord] = []
    held = _Held(job.plan, recipe)
    misfits: dict[tuple[str, str], list[str]] = {}
    images: dict[str, dict[str, Form]] = {}  # by column and log_id
    for task, stands, part in zip(tasks, stand, parts.to_pylist(), strict=True):
        if task.log_id in purged or stands:
            continue
        if part is not None:
            (record,) = before.records([task.log_id])
            is_same = record.content_id == task.content_id
            task = replace(task, before=record.key, replaces=part if is_same else None)
        try:
            held.check(task.log_id, logs.opened[task.log_id])
            planned.append(PlannedLog.of(task, logs.opened[task.log_id].summary, job.plan))
            if job.on_error == "fail":
                log = logs.opened[task.log_id]
                forms = first_images(job.plan, log)
                for column, form in forms.items():
                    images.setdefault(column, {})[task.log_id] = form
                odd = {**image_misfits(job.plan, forms), **list_misfits(job.plan, log)}
                for column, problem in odd.items():
                    misfits.setdefault((column, problem), []).append(task.log_id)
        except (RecipeError, StorageError, *NOT_OF_THE_LOG):
            raise
        except Exception as error:  # anomalies of a log stay in that log
            failed.append(failure_of(job, task.log_id, "", error))
            records.append(skipped_record(task, failed[-1:]))
    if failed and job.on_error == "fail":
        raise LogReadError(list_failures((failure.message for failure in failed), len(logs.files)))
    if misfits:
        kept = {column.name for column in job.plan.columns if not column.spec.unit}
        whys = {name: two_depths(images[name]) for name, _ in misfits if name in kept and name in images}
        mixed = {name: why for name, why in whys.items() if why}
        raise recipe.places.error(
            Mistake(("columns", column), mixed.get(column) or f"{problem} ({some_of(log_ids)})")
            for (column, problem), log_ids in misfits.items()
        )
    return planned, records


class _Held:
    """Checks opened logs against a plan, once per equal definition of topics.

    Under `on_error: fail` the plan was made from all of them, and fits.
    """

    def __init__(self, plan: RowPlan, recipe: Recipe):
        self._plan, self._recipe = plan, recipe
        self._named = named_topics(recipe)
        self._fit = set[tuple[Any, ...]]()

    def check(self, log_id: str, log: Outline) -> None:
        """See `hold_to`."""
        kind = tuple(sorted(topic_kinds(log.summary, self._named).items()))
        if self._recipe.on_error_mode != "fail" and kind not in self._fit:
            hold_to(self._plan, self._recipe, log_id, log)
            self._fit.add(kind)


def _compared_by_workers(left: ListedTasks, rows: Ints, before: Before, logs: PlanLogs) -> ListedTasks:
    """Return the logs that workers compare with their records."""
    import pyarrow.compute as pc

    found = before.rows_of(logs.files.ids.take(rows))
    keys, statuses = (before.column(name).take(found).combine_chunks() for name in ("key", "status"))
    keys = pc.if_else(pc.equal(statuses, LogStatus.kept), None, keys)  # a kept log that is found again
    return replace(left, rows=rows, before=keys, replaces=replaced_parts(logs, before, rows))


def _unreadable(recipe: Recipe, log: LogFiles, message: str) -> LogRecord:
    split = split_of(recipe, log.log_id, log.uris, log.split, log.catalogue)
    task = LogTask(log.log_id, tuple(log.uris), "", split, "", catalogue=log.catalogue)
    return skipped_record(task, [Failure(log.log_id, "", "log", message)])


def _check_vanished(recipe: Recipe, gone: Sequence[str]) -> None:
    """Check for missing logs.

    Raises:
        InputError: logs are missing, under `vanished: fail`, the default.
    """
    if recipe.vanished == "fail" and gone:
        raise InputError(
            f"{counted(len(gone), 'log')} of the latest version can't be found by `logs` any more "
            f"({some_of(gone)}): set `vanished: keep` to keep their rows, or `vanished: drop` to leave them "
            "out"
        )
