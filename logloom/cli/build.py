"""Making datasets: `build`."""

from __future__ import annotations

import enum
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from logloom.cli.common import (
    NOT_WHOLE,
    Json,
    Quiet,
    StorageOption,
    Verify,
    app,
    examples,
    print_json,
    print_logs,
    print_message,
    read_in_words,
)
from logloom.cli.engines import EngineOptions, Workers, started
from logloom.cli.groups import takes_groups
from logloom.cli.recipes import LogOptions, RecipeOptions, plan_recipe
from logloom.words import counted, human_bytes

if TYPE_CHECKING:
    from logloom.pipelines.build import Built
    from logloom.pipelines.planned import BuildPlan
    from logloom.pipelines.status import BuildStatus
    from logloom.runners import Submitted


class View(enum.StrEnum):
    auto = "auto"
    link = "link"
    copy = "copy"
    none = "none"


OpenLineage = Annotated[
    str | None,
    typer.Option(
        "--openlineage",
        metavar="URL|FILE",
        help="Send OpenLineage events of the build to a URL, or add them to a file.",
    ),
]
Labels = Annotated[
    list[str] | None,
    typer.Option(
        "--labels",
        metavar="KEY=VALUE",
        help="Label of this build, shown by `logloom status`, and by Dataflow as one of the job. May be "
        "repeated.",
    ),
]
Wait = Annotated[
    bool,
    typer.Option(
        "--wait",
        help="Wait for a build of the same version that runs, and go on from it (default: refuse to run "
        "beside it).",
    ),
]


@app.command(
    epilog=examples(
        "logloom build recipe.yaml --to /data/urban",
        "logloom build drive.mcap --to /data/trial --limit 1",
        "logloom build recipe.yaml --to gs://datasets/urban --workers 8 --verify sample:0.05",
        "logloom build recipe.yaml --to /shared/urban --runner flink --flink-master flink:8081",
        "logloom build recipe.yaml --to gs://datasets/urban --runner dataflow --project p --region us-east1 "
        "--staging gs://p-staging/logloom --sdk-container-image us-docker.pkg.dev/p/logloom/worker:1",
    )
)
@takes_groups()
def build(
    *,
    recipe: RecipeOptions,
    workers: Workers = None,
    verify: Verify = "new",
    logs: LogOptions,
    allow_empty: Annotated[
        bool, typer.Option("--allow-empty", help="Commit a version even if it has no rows.")
    ] = False,
    view: Annotated[
        View,
        typer.Option(
            help="Make the version's view of plain folders on disks, unless it has more than 100 000 units "
            "(auto), even then (link), in object stores too (copy), or nowhere (none)."
        ),
    ] = View.auto,
    wait: Wait = False,
    labels: Labels = None,
    openlineage: OpenLineage = None,
    quiet: Quiet = False,
    json: Json = False,
    storage_option: StorageOption = None,
    engine: EngineOptions,
) -> None:
    """Build a new version of a dataset. Only what is new is built, and it is read back before the commit."""
    from logloom.runners.options import parse_labels

    runner, known = engine.with_workers(workers), parse_labels(labels or ())
    choices = {"verify": verify, "allow_empty": allow_empty, "labels": known}
    plan = plan_recipe(recipe, logs, storage_option, quiet, **choices)
    if not (plan.up_to_date or engine.dry_run) and _others_run(plan, wait, quiet):
        plan = plan_recipe(recipe, logs, storage_option, quiet, **choices)
    from logloom.pipelines.openlineage import announced
    from logloom.pipelines.progress import Watch

    size = None if plan.up_to_date or engine.dry_run else plan.size
    with started("logloom.pipelines.build", runner, size, quiet=quiet) as job:
        if engine.dry_run:
            _report_dry_run(job.dry_run(plan, runner), plan)
            return
        on_message = (lambda _: None) if quiet else print_message
        if not quiet:
            print_logs("logloom.runners")
        if engine.detach and not plan.up_to_date:
            _report_submitted(job.submit(plan, runner, on_message), plan, json)
            return
        watch = Watch.silent if quiet else Watch
        with announced(plan, openlineage, print_message):
            built = job.build(plan, runner=runner, view=view.value, watch=watch, on_message=on_message)
    _report_build(built, plan, json)
    if not (built.is_whole or plan.up_to_date):
        raise typer.Exit(NOT_WHOLE)


def _report_dry_run(found: dict[str, Any], plan: BuildPlan) -> None:
    print_json(found)
    if plan.up_to_date:
        root = plan.job.store.uri
        print_message(f"up to date: version {plan.job.parent} of {root}; nothing to submit")


def _others_run(plan: BuildPlan, wait: bool, quiet: bool) -> bool:
    """Waits for other builds of the same version where that is asked for; says whether there were any.

    Raises:
        LogloomError: one runs, and nobody asked to wait.
    """
    from logloom.cli.status import in_words
    from logloom.pipelines import status

    store, number = plan.job.store, plan.job.number

    def say(one: BuildStatus, then: str) -> None:
        if not quiet:
            print_message(f"another build: {in_words(one)}; {then}")

    found = [one for one in status.builds(store, {number}) if not one.is_over]
    for one in found:
        if one.state == "detached" or (one.state == "unknown" and not wait):
            say(one, "nobody can tell whether it still runs, so both may go on, and only one commits")
    if not wait:
        watched = partial(say, then="waiting for its next sign of life, for it may have been killed")
        running = status.running_now(store, number, watched) if found else []
        if running:
            raise status.refuse_second(store, number, running[0])
        return False
    waits = ("running", "unknown")
    running = [one for one in found if one.state in waits]
    for one in running:
        say(one, "waiting for its end")
    if running:
        status.wait(store, number, states=waits)
    return bool(running)


def _report_submitted(job: Submitted, plan: BuildPlan, json: bool) -> None:
    root, number = plan.job.store.uri, plan.job.number
    print_message(
        f"job {job.job_id} builds and commits version {number} of {root} without this command"
        f"{f'; it is at {job.place}' if job.place else ''}. Run the same build again to see how it "
        "went: it is up to date and makes the view, or goes on with what is finished"
    )
    if json:
        print_json({"version": number, "job_id": job.job_id, "engine_id": job.engine_id, "place": job.place})
    else:
        print(job.engine_id or job.job_id)


def _report_build(built: Built, plan: BuildPlan, json: bool) -> None:
    from logloom.pipelines.splits import built_splits, empty_splits, in_words, planned_warnings

    manifest = built.manifest
    counts = built_splits(manifest)
    if json:
        result = {
            "version": manifest.version,
            "up_to_date": plan.up_to_date,
            "view": built.view,
            **manifest.totals,
            "dropped": built.dropped,
        }
        result |= {"units_built": built.built, "units_reused": built.reused}
        result |= {"splits": counts, "warnings": empty_splits(counts)}
        result |= {"storage_retries": built.counters.get("storage_retries", 0)}
        print_json(result | {"counters": dict(sorted(built.counters.items()))})
    root = plan.job.store.uri
    if plan.up_to_date:
        print_message(f"up to date: version {manifest.version} of {root} says all that the logs say")
    else:
        _print_version(built, root)
    if len(counts) > 1:
        print_message(f"rows by split: {in_words(counts)}")
    planned_too = planned_warnings(plan)
    for warning in empty_splits(counts):
        if warning not in planned_too:
            print_message(f"warning: {warning}")
    if (times := built.spreads.get("partition_milliseconds")) and (
        sizes := built.spreads.get("partition_bytes")
    ):
        print_message(
            f"{counted(times.count, 'partition')}: {times.sum / times.count / 1000:.1f} s and "
            f"{human_bytes(sizes.sum / sizes.count)} on average, {times.max / 1000:.1f} s and "
            f"{human_bytes(sizes.max)} at most"
        )
    if retries := built.counters.get("storage_retries"):
        print_message(f"{counted(retries, 'request')} to the object store had to be retried: refused or lost")
    if built.copied:
        print_message("this disk has no hard links: the view holds copies")
    if not json:
        print(built.view or root)


def _print_version(built: Built, root: str) -> None:
    from logloom.io.shards import DROPPED

    manifest = built.manifest
    totals = manifest.totals
    dropped = totals["ticks_planned"] - totals["rows"]
    why = ", ".join(f"{count:,} by {reason}" for reason, count in built.dropped.items() if count)
    logs = totals["logs"] - manifest.logs.statuses.get(DROPPED, 0)
    lost = f", {counted(dropped, 'tick')} dropped ({why})" if dropped else ""
    print_message(
        f"version {manifest.version} of {root}: {counted(totals['rows'], 'row')} of "
        f"{counted(logs, 'log')}{lost}; {counted(built.built, 'unit')} built, "
        f"{built.reused} found finished; {read_in_words(manifest)}"
    )
    if {"salvaged", "skipped", "empty"} & set(manifest.logs.statuses):
        for record in manifest.logs.take(manifest.logs.where("status", ("salvaged", "skipped", "empty"))):
            reason = f": {record.reasons[0]}" if record.reasons else ""
            print_message(f"{record.status}: {record.log_id}{reason}")
    if manifest.verified == "none":
        print_message("nothing was read back (--verify none); `logloom verify` does it any time")
