"""`logloom build`: build a new version of a dataset."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from logloom.cli import terminal
from logloom.cli.options.groups import NamingParts, takes_groups
from logloom.cli.options.jobs import EngineOptions, JobOptions, print_work, run_job, work_of
from logloom.cli.options.recipes import LogOptions, RecipeOptions, plan_recipe
from logloom.errors import after_commit
from logloom.text import OnMessage, counted

if TYPE_CHECKING:
    from logloom.pipelines.build.result import Built
    from logloom.pipelines.plan.build_plan import BuildPlan
    from logloom.transforms.rows.notices import Notice


OpenLineage = Annotated[
    str | None,
    typer.Option(
        "--openlineage",
        metavar="URL|FILE",
        help="Send OpenLineage events of the build to a URL, or add them to a file.",
    ),
]


@terminal.command(
    "logloom build recipe.yaml --to /data/urban",
    "logloom build drive.mcap --to /data/trial --limit 1",
    "logloom build recipe.yaml --to /data/urban --strict || logloom plan recipe.yaml --to /data/urban",
    "logloom build recipe.yaml --to gs://datasets/urban --workers 8 --verify sample:0.05",
    "logloom build recipe.yaml --to /shared/urban --runner flink --flink-master flink:8081",
    "logloom build recipe.yaml --to gs://datasets/urban --runner dataflow --project p --region us-east1 "
    "--staging gs://p-staging/logloom --sdk-container-image us-docker.pkg.dev/p/logloom/worker:1",
    cls=NamingParts,
)
@takes_groups()
def build(
    *,
    recipe: RecipeOptions,
    logs: LogOptions,
    allow_empty: Annotated[
        bool,
        typer.Option("--allow-empty", help="Commit a version without rows, or with a split without logs."),
    ] = False,
    openlineage: OpenLineage = None,
    options: JobOptions,
    engine: EngineOptions,
) -> None:
    """Build a new version of a dataset.

    Only what is new is built, and it is read back before the commit. Exits with code 3 if the new version
    lacks data: logs that were salvaged, or skipped beyond the recipe's budget.
    """
    settings = dataclasses.replace(options.settings, strict=recipe.strict, allow_empty=allow_empty)
    make_plan = partial(
        plan_recipe, recipe, logs, options.storage_option, settings, compare=False, quiet=options.quiet
    )
    runner = engine.with_workers(options.workers)
    around: Callable[[Any], AbstractContextManager[object]] = nullcontext
    if openlineage is not None:
        from logloom.pipelines.build.openlineage import announced

        around = partial(announced, target=openlineage, on_message=terminal.print_message)
    plan, built = run_job(make_plan, options, engine, runner, options.view, around)
    if built is None:
        return
    with after_commit(
        f"version {built.manifest.version} of {plan.job.store.uri}", "`logloom status` shows it"
    ):
        _report_build(built, plan, options)
    if not (built.is_whole or _was_up_to_date(built, plan)):
        raise typer.Exit(terminal.NOT_WHOLE)


def _was_up_to_date(built: Built, plan: BuildPlan) -> bool:
    """Return whether nothing was committed: by the plan, or as workers found no changed log."""
    return built.manifest.version != plan.job.number


def _report_build(built: Built, plan: BuildPlan, options: JobOptions) -> None:
    from logloom.io.catalog.pages import LogStatus
    from logloom.pipelines.plan.summary import duplicates_summary, kept_summary, plan_notices
    from logloom.pipelines.stats.splits import built_splits, built_warnings, in_words
    from logloom.transforms.build.build_warnings import as_json

    manifest = built.manifest
    counts = built_splits(manifest)
    warnings = [*built.warnings, *built_warnings(plan, counts)]
    planned = plan_notices(plan)
    found = [] if _was_up_to_date(built, plan) else _logs_not_whole(built, plan)
    found += [warning for warning in warnings if warning not in planned]
    if options.json:
        result = {
            "version": manifest.version,
            "up_to_date": _was_up_to_date(built, plan),
            "view": built.view,
            **manifest.counts,
            "kept": manifest.logs.statuses.get(LogStatus.kept, 0),
            "dropped": built.dropped,
            "messages": built.messages,
            "sequences": [one.to_json() for one in built.sequences],
            **kept_summary(plan),
        }
        about = {"splits": counts, **duplicates_summary(plan), **as_json(warnings)}
        notices = [notice.to_json() for notice in (*planned, *found)]
        terminal.print_json({**result, **about, "notices": notices, **work_of(built)})
    root = plan.job.store.uri
    if not _was_up_to_date(built, plan):
        _print_version(built, plan, options.on_message)
    else:
        lacking = (LogStatus.skipped, LogStatus.salvaged, LogStatus.kept)
        is_lacking = any(manifest.logs.statuses.get(status) for status in lacking)
        on_message = terminal.print_message if is_lacking else options.on_message
        on_message(terminal.up_to_date_in_words(manifest, root))
    if len(counts) > 1:
        options.on_message(f"rows by split: {in_words(counts)}")
    terminal.print_notices(found, quiet=options.quiet)
    print_work(built, options.on_message)
    if built.copied:
        options.on_message("this disk has no hard links: the view contains copies")
    if not options.json:
        print(built.view or root)


def _print_version(built: Built, plan: BuildPlan, on_message: OnMessage) -> None:
    from logloom.pipelines.versions.log_counts import logs_in_words

    manifest = built.manifest
    totals = manifest.totals
    dropped = totals["ticks_planned"] - totals["rows"]
    why = ", ".join(f"{count:,} by {reason}" for reason, count in built.dropped.items() if count)
    lost = f", {counted(dropped, 'tick')} dropped ({why})" if dropped else ""
    on_message(
        f"version {manifest.version} of {plan.job.store.uri}: {counted(totals['rows'], 'row')} of "
        f"{logs_in_words(manifest.logs.statuses)}{lost}; {counted(built.built, 'unit')} built, "
        f"{built.reused} found finished; {terminal.read_in_words(manifest)}"
    )
    if messages := built.messages:
        on_message(
            f"messages of columns: {messages['used']:,} used, {messages['not_chosen']:,} not chosen, "
            f"{messages['refused']:,} refused, of {counted(sum(messages.values()), 'message')} in the logs "
            "that were built, once for each column"
        )
    for one in built.sequences:
        on_message(f"{one.output}: {one}")
    if manifest.verified == "none":
        on_message("nothing was read back (--verify none); `logloom verify` does it any time")


def _logs_not_whole(built: Built, plan: BuildPlan) -> list[Notice]:
    """Return the logs that were salvaged, skipped or are empty, without those skipped by the plan."""
    from logloom.io.catalog.pages import LogStatus
    from logloom.pipelines.versions.log_counts import reason_in_words
    from logloom.transforms.rows.notices import Notice

    logs, named = built.manifest.logs, (LogStatus.salvaged, LogStatus.skipped, LogStatus.empty)
    if not {*named} & set(logs.statuses):
        return []
    planned, found = {record.log_id for record in plan.unreadable}, list[Notice]()
    for record in logs.take(logs.where("status", named)):
        why = reason_in_words(record.reasons, record.uris)
        text = f"{record.log_id}: {why}" if why else record.log_id
        if record.log_id not in planned:
            found.append(Notice(text, str(record.status), log=record.log_id))
    return found
