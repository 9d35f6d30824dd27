"""Making datasets: `plan`, `build`."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from logloom.cli import engines
from logloom.cli.common import (
    NOT_WHOLE,
    AllowDerive,
    Json,
    OnError,
    PyFiles,
    StorageOption,
    Verify,
    app,
    examples,
    mode_of,
    parse_storage_options,
    print_json,
    print_table,
    read_in_words,
    say,
    say_logs,
)
from logloom.errors import UsageError
from logloom.words import counted

if TYPE_CHECKING:
    from logloom.pipelines.build import Built
    from logloom.pipelines.plan import BuildPlan
    from logloom.recipe import Recipe
    from logloom.runners import Submitted


class Hash(enum.StrEnum):
    ends = "ends"
    full = "full"


class View(enum.StrEnum):
    link = "link"
    copy = "copy"
    none = "none"


RecipeArgument = Annotated[
    list[str], typer.Argument(metavar="RECIPE|LOG...", help="A recipe (.yaml), or logs to build without one.")
]
To = Annotated[str, typer.Option("--to", metavar="ROOT", help="Folder or URI of the dataset.")]
OtherLogs = Annotated[
    list[str] | None,
    typer.Option(
        "--log", metavar="URI", help="Log or glob to use instead of the recipe's `logs`. May be repeated."
    ),
]
HashOption = Annotated[
    Hash | None,
    typer.Option(
        "--hash",
        help="How to tell that a log changed: by its size and both ends, or by all its bytes (slower). "
        "Changing this makes every log new (default: what the recipe says).",
    ),
]
Limit = Annotated[int | None, typer.Option("--limit", min=1, help="Use only this many logs, for a trial.")]


def _load(
    sources: list[str], options: dict[str, dict[str, Any]], on_error: OnError | None
) -> tuple[Recipe, str | None]:
    """The recipe named on the command line, and the folder that its relative URIs start from."""
    from logloom.io.storage import absolute_uri, file_name_of, folder_of
    from logloom.recipe import Recipe

    recipes = [source for source in sources if file_name_of(source).endswith((".yaml", ".yml"))]
    if recipes and len(sources) > 1:
        raise UsageError("give one recipe, or logs; not both")
    if recipes:
        uri = absolute_uri(sources[0])
        return Recipe.load(uri, options), folder_of(uri)
    from logloom.pipelines import inspect

    mode = mode_of(on_error)
    # What is skipped or salvaged, the plan and the build say again.
    text = inspect.suggested_recipe(
        sources, options, mode, tell_left_out=lambda topic: say(f"left out: {topic}")
    )
    return Recipe.from_yaml(text, source="suggested recipe"), None


def _planned(
    sources: list[str],
    to: str,
    storage: list[str] | None,
    on_error: OnError | None,
    logs: list[str] | None,
    hash: Hash | None,
    quiet: bool = False,
    **choices: Any,
) -> BuildPlan:
    from logloom.pipelines.plan import plan_build
    from logloom.pipelines.progress import steps
    from logloom.pipelines.splits import empty_splits, planned_splits

    options = parse_storage_options(storage)
    recipe, base = _load(sources, options, on_error)
    if logs:
        recipe, base = recipe.model_copy(update={"logs": tuple(logs)}), None
    if on_error is not None:
        recipe = recipe.model_copy(update={"on_error": on_error.value})
    if hash is not None:
        recipe = recipe.model_copy(update={"hash": hash.value})
    with steps("opening logs", quiet=quiet) as on_opened:
        plan = plan_build(recipe, to, base=base, storage_options=options, on_opened=on_opened, **choices)
    for note in plan.notes:
        say(f"note: {note}")
    for record in plan.unreadable:
        say(f"skipped: {record.log_id}: {record.reasons[0]}")
    for warning in empty_splits(planned_splits(plan)):
        say(f"warning: {warning}")
    return plan


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
def build(
    sources: RecipeArgument,
    to: To,
    log: OtherLogs = None,
    py: PyFiles = None,
    allow_derive: AllowDerive = None,
    limit: Limit = None,
    workers: engines.Workers = None,
    verify: Verify = "new",
    on_error: Annotated[
        OnError | None, typer.Option(help="What to do about damaged logs (default: what the recipe says).")
    ] = None,
    hash: HashOption = None,
    allow_empty: Annotated[
        bool, typer.Option("--allow-empty", help="Commit a version even if it has no rows.")
    ] = False,
    view: Annotated[
        View,
        typer.Option(
            help="How to make the version's plain folders: hard links (disks), copies (stores too), none."
        ),
    ] = View.link,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")] = False,
    json: Json = False,
    storage_option: StorageOption = None,
    runner: engines.RunnerName = "auto",
    runner_option: engines.RunnerOption = None,
    flink_master: engines.FlinkMaster = "",
    flink_job_server_jar: engines.FlinkJar = "",
    job_endpoint: engines.JobEndpoint = "",
    environment: engines.EnvironmentKind = "local",
    environment_config: engines.EnvironmentConfig = "",
    detach: engines.Detach = False,
    engine_logs: engines.EngineLogs = "",
    project: engines.Project = "",
    region: engines.Region = "",
    staging: engines.Staging = "",
    sdk_container_image: engines.Image = "",
    service_account: engines.ServiceAccount = "",
    machine_type: engines.MachineType = "",
    dry_run: engines.DryRun = False,
) -> None:
    """Build a new version of a dataset. Only what is new is built, and it is read back before the commit."""
    from logloom.runners import RunnerOptions
    from logloom.runners.options import parse_settings

    engine = RunnerOptions(
        runner=runner,
        workers=workers,
        job_endpoint=job_endpoint,
        flink_master=flink_master,
        flink_job_server_jar=flink_job_server_jar,
        environment=environment,
        environment_config=environment_config,
        detach=detach,
        log_folder=engine_logs,
        settings=parse_settings(runner_option or []),
    )
    engine = engines.with_dataflow(
        engine,
        project=project,
        region=region,
        staging=staging,
        sdk_container_image=sdk_container_image,
        service_account=service_account,
        machine_type=machine_type,
    )
    planned = _planned(
        sources,
        to,
        storage_option,
        on_error,
        log,
        hash,
        quiet,
        limit=limit,
        verify=verify,
        allow_empty=allow_empty,
        py_files=py or (),
        allow_derive=allow_derive or (),
    )
    from logloom.pipelines.progress import Watch, steps

    with steps("starting", quiet=quiet):
        from logloom.pipelines import build as job  # with Beam, which recipes with mistakes don't wait for

    if dry_run:
        print_json(job.dry_run(planned, engine))
        if planned.up_to_date:
            say(f"up to date: version {planned.job.parent} of {planned.job.store.uri}; nothing to submit")
        return
    tell = _no_words if quiet else say
    if detach and not planned.up_to_date:
        _report_submitted(job.submit(planned, engine, tell), planned, json)
        return
    if not quiet:
        say_logs("logloom.runners")
    watch = Watch.silent if quiet else Watch
    built = job.build(planned, runner=engine, view=view.value, watch=watch, tell=tell)
    _report_build(built, planned, json)
    if not (built.is_whole or planned.up_to_date):
        raise typer.Exit(NOT_WHOLE)


def _no_words(text: str) -> None:
    """What the engine does, for `--quiet`."""


def _report_submitted(job: Submitted, planned: BuildPlan, json: bool) -> None:
    root, number = planned.job.store.uri, planned.job.number
    say(
        f"job {job.job_id} builds and commits version {number} of {root} without this command"
        f"{f'; it is at {job.place}' if job.place else ''}. The same build again says how it went: it is up "
        "to date and makes the view, or goes on with what is finished"
    )
    if json:
        print_json({"version": number, "job_id": job.job_id, "engine_id": job.engine_id, "place": job.place})
    else:
        print(job.engine_id or job.job_id)


def _report_build(built: Built, planned: BuildPlan, json: bool) -> None:
    from logloom.pipelines.splits import built_splits, empty_splits, in_words, planned_splits

    manifest = built.manifest
    counts = built_splits(manifest)
    if json:
        result = {
            "version": manifest.version,
            "up_to_date": planned.up_to_date,
            "view": built.view,
            **manifest.totals,
            "dropped": built.dropped,
        }
        result |= {"units_built": built.built, "units_reused": built.reused}
        result |= {"splits": counts, "warnings": empty_splits(counts)}
        print_json(result | {"storage_retries": built.counters.get("storage_retries", 0)})
    root = planned.job.store.uri
    if planned.up_to_date:
        say(f"up to date: version {manifest.version} of {root} says all that the logs say")
    else:
        _tell_version(built, root)
    if len(counts) > 1:
        say(f"rows by split: {in_words(counts)}")
    told = empty_splits(planned_splits(planned))
    for warning in empty_splits(counts):
        if warning not in told:
            say(f"warning: {warning}")
    if again := built.counters.get("storage_retries"):
        say(f"{counted(again, 'request')} to the object store had to be sent again: refused or lost")
    if built.copied:
        say("this disk has no hard links: the view holds copies")
    if not json:
        print(built.view or root)


def _tell_version(built: Built, root: str) -> None:
    manifest = built.manifest
    totals = manifest.totals
    dropped = totals["ticks_planned"] - totals["rows"]
    why = ", ".join(f"{count:,} by {reason}" for reason, count in built.dropped.items() if count)
    lost = f", {counted(dropped, 'tick')} dropped ({why})" if dropped else ""
    say(
        f"version {manifest.version} of {root}: {counted(totals['rows'], 'row')} of "
        f"{counted(totals['logs'], 'log')}{lost}; {counted(built.built, 'unit')} built, "
        f"{built.reused} found finished; {read_in_words(manifest)}"
    )
    for record in manifest.logs:
        if record.status in ("salvaged", "skipped", "empty"):
            reason = f": {record.reasons[0]}" if record.reasons else ""
            say(f"{record.status}: {record.log_id}{reason}")
    if manifest.verified == "none":
        say("nothing was read back (--verify none); `logloom verify` does it any time")


@app.command(
    epilog=examples(
        "logloom plan recipe.yaml --to /data/urban",
        "logloom plan recipe.yaml --to /data/urban --check || logloom build recipe.yaml --to /data/urban",
    )
)
def plan(
    sources: RecipeArgument,
    to: To,
    log: OtherLogs = None,
    py: PyFiles = None,
    allow_derive: AllowDerive = None,
    limit: Limit = None,
    check: Annotated[
        bool, typer.Option("--check", help="Exit with code 3 if the dataset is not up to date.")
    ] = False,
    on_error: Annotated[
        OnError | None, typer.Option(help="What to do about damaged logs (default: what the recipe says).")
    ] = None,
    hash: HashOption = None,
    json: Json = False,
    storage_option: StorageOption = None,
) -> None:
    """Show what a build would do: logs, partitions and bytes to read; what is finished, reused or dropped."""
    from logloom.pipelines.inspect import in_words, plan_summary

    planned = _planned(
        sources,
        to,
        storage_option,
        on_error,
        log,
        hash,
        limit=limit,
        py_files=py or (),
        allow_derive=allow_derive or (),
    )
    summary = plan_summary(planned)
    if json:
        print_json(summary)
    else:
        del summary["warnings"]  # told to people on stderr
        print_table(
            "", ("", ""), [(name.replace("_", " "), in_words(name, value)) for name, value in summary.items()]
        )
    if check and not planned.up_to_date:
        raise typer.Exit(NOT_WHOLE)
