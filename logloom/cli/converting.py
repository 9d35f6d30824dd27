"""From one format to another: `convert`."""

from __future__ import annotations

import enum
import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from logloom.cli.common import (
    NOT_WHOLE,
    Json,
    StorageOption,
    Verify,
    app,
    examples,
    parse_storage_options,
    print_json,
    read_in_words,
    say,
    say_logs,
)
from logloom.cli.engines import (
    EngineLogs,
    EnvironmentConfig,
    EnvironmentKind,
    FlinkJar,
    FlinkMaster,
    Image,
    JobEndpoint,
    MachineType,
    Project,
    Region,
    RunnerName,
    RunnerOption,
    ServiceAccount,
    Staging,
    Workers,
    with_dataflow,
)
from logloom.words import counted

if TYPE_CHECKING:
    from logloom.io.sources import RowSource
    from logloom.pipelines.convert import Converted
    from logloom.pipelines.convert_plain import PlainFolder
    from logloom.pipelines.convert_plan import ConvertPlan


class SourceDamage(enum.StrEnum):
    fail = "fail"
    skip = "skip"


@app.command(
    epilog=examples(
        "logloom convert /data/urban /data/urban-zarr --format zarr",
        "logloom convert gs://datasets/urban@7 /local/shards --format tar --plain",
        "logloom convert /data/granular /data/table --format table --options '{index: [speed]}'",
        "logloom convert s3://bucket/shards out --from webdataset --format bags --plain -c image -c label",
    )
)
def convert(
    source: Annotated[
        str, typer.Argument(metavar="SRC", help="ROOT[@VERSION] of logloom, or a dataset of another tool.")
    ],
    destination: Annotated[str, typer.Argument(metavar="DST", help="Folder or URI of the new dataset.")],
    format: Annotated[
        str,
        typer.Option(
            "--format", metavar="FORMAT", help="Format to write, e.g. bags, tar, zarr, table or l5kit."
        ),
    ],
    plain: Annotated[
        bool,
        typer.Option(
            "--plain", help="Make a plain folder of the format's own files, for its original tools."
        ),
    ] = False,
    kind: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="KIND",
            help="What SRC is: granular, webdataset, l5kit, parquet, lance, zarr, table (default: detected).",
        ),
    ] = None,
    output: Annotated[
        str | None, typer.Option(help="Output of a version to read (default: one that holds all columns).")
    ] = None,
    options: Annotated[
        str | None,
        typer.Option(
            metavar="YAML",
            help="Options of the format, as in a recipe's `outputs`, e.g. '{rows_per_chunk: 256}'.",
        ),
    ] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option("--columns", "-c", help="Column to convert, by name or glob. May be repeated."),
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Convert only this many logs.")] = None,
    workers: Workers = None,
    verify: Verify = "new",
    on_error: Annotated[
        SourceDamage,
        typer.Option(help="What to do about damaged parts of SRC. skip lists them and exits with code 3."),
    ] = SourceDamage.fail,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")] = False,
    json: Json = False,
    storage_option: StorageOption = None,
    runner: RunnerName = "auto",
    runner_option: RunnerOption = None,
    flink_master: FlinkMaster = "",
    flink_job_server_jar: FlinkJar = "",
    job_endpoint: JobEndpoint = "",
    environment: EnvironmentKind = "local",
    environment_config: EnvironmentConfig = "",
    engine_logs: EngineLogs = "",
    project: Project = "",
    region: Region = "",
    staging: Staging = "",
    sdk_container_image: Image = "",
    service_account: ServiceAccount = "",
    machine_type: MachineType = "",
) -> None:
    """Convert a version, or a dataset that logloom didn't build, to another format; values and types stay.

    DST becomes a root with a version, or with --plain a plain folder. Every column's digest is compared on
    both sides. A version's own format is copied as it is.
    """
    from logloom.pipelines.convert_plain import PlainFolder, can_copy
    from logloom.pipelines.convert_plan import parse_options, plan_convert
    from logloom.pipelines.convert_sources import open_source
    from logloom.runners import RunnerOptions
    from logloom.runners.options import parse_settings

    storage = parse_storage_options(storage_option)
    chosen = parse_options(options)
    engine = RunnerOptions(
        runner=runner,
        workers=workers,
        job_endpoint=job_endpoint,
        flink_master=flink_master,
        flink_job_server_jar=flink_job_server_jar,
        environment=environment,
        environment_config=environment_config,
        log_folder=engine_logs,
        settings=parse_settings(runner_option or []),
    )
    engine = with_dataflow(
        engine,
        project=project,
        region=region,
        staging=staging,
        sdk_container_image=sdk_container_image,
        service_account=service_account,
        machine_type=machine_type,
    )
    folder = PlainFolder.at(destination, storage) if plain else None
    cores = workers or len(os.sched_getaffinity(0))
    rows = open_source(
        source,
        kind=kind,
        output=output,
        columns=columns,
        storage_options=storage,
        num_workers=cores,
        on_error=on_error.value,
    )
    is_whole = on_error == SourceDamage.fail  # files that are copied stand for each other
    as_it_is = is_whole and not (chosen or columns or limit) and output in (None, format)
    if folder is not None and as_it_is and can_copy(rows, format):
        _copy(rows, folder, format, quiet, json)
        return
    plan = plan_convert(
        rows,
        folder.work.uri if folder else destination,
        format,
        options=chosen,
        columns=columns,
        limit=limit,
        verify=verify,
        on_error=on_error.value,
        storage_options=storage,
    )
    for note in plan.notes:
        say(f"note: {note}")
    converted = _run(plan, engine, quiet)
    if folder is not None:
        folder.publish(converted.manifest, converted.view, format)
    _report(converted, plan, folder, json)
    if converted.left_out and not plan.up_to_date:
        raise typer.Exit(NOT_WHOLE)


def _copy(source: RowSource, folder: PlainFolder, output: str, quiet: bool, json: bool) -> None:
    from logloom.pipelines.convert_plain import copy_out
    from logloom.pipelines.convert_sources import VersionSource
    from logloom.pipelines.progress import human_bytes, steps

    assert isinstance(source, VersionSource)
    with steps("copying", quiet=quiet) as on_done:
        files, size = copy_out(source, folder, output, on_done)
    say(
        f"{folder.store.uri}: {counted(files, 'file')}, {human_bytes(size)}, copied from version "
        f"{source.version} and equal to its manifest"
    )
    if json:
        print_json({"folder": folder.store.uri, "files": files, "bytes": size, "copied": True})
    else:
        print(folder.store.uri)


def _run(plan: ConvertPlan, engine: Any, quiet: bool) -> Converted:
    from logloom.pipelines.convert import convert as run
    from logloom.pipelines.progress import Watch

    if quiet:
        return run(plan, runner=engine)
    say_logs("logloom.runners")
    return run(plan, runner=engine, watch=Watch, tell=say)


def _report(converted: Converted, plan: ConvertPlan, folder: PlainFolder | None, json: bool) -> None:
    from logloom.io.stretches import DAMAGE

    manifest = converted.manifest
    place = folder.store.uri if folder else plan.job.store.uri
    totals = f"{counted(manifest.totals['rows'], 'row')} of {counted(manifest.totals['logs'], 'log')}"
    if plan.up_to_date and folder is None:
        say(f"up to date: version {manifest.version} of {place} says all that the source says")
    else:
        what = place if folder else f"version {manifest.version} of {place}"
        say(
            f"{what}: {totals}, {counted(len(plan.job.columns), 'column')}; "
            f"{counted(converted.built, 'unit')} written, "
            f"{converted.reused} found finished; {read_in_words(manifest)}"
        )
    for record in converted.left_out:
        lost = f"{counted(record.dropped[DAMAGE], 'row')} left out" if record.dropped[DAMAGE] else "left out"
        say(f"{record.status}: {record.log_id}: {lost}; {record.reasons[-1]}")
    if json:
        said: dict[str, Any] = {"folder": place} if folder else {"view": converted.view}
        said |= {"version": manifest.version, "up_to_date": plan.up_to_date} if folder is None else {}
        units = {"units_built": converted.built, "units_reused": converted.reused}
        print_json({**said, **manifest.totals, **units})
    else:
        print(place if folder else converted.view or place)
