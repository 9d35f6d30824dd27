"""`logloom convert`: convert a version, or a foreign dataset, to another format."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from logloom.cli import terminal
from logloom.cli.options.groups import NamingParts, takes_groups
from logloom.cli.options.jobs import EngineOptions, JobOptions, View, print_work, run_job, work_of
from logloom.cpus import available_cpus
from logloom.errors import UsageError
from logloom.text import counted, human_bytes
from logloom.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable

    from logloom.io.catalog.pages import LogRecord
    from logloom.io.rows.sources import RowSource
    from logloom.pipelines.build.result import Built
    from logloom.pipelines.convert.plain_folder import PlainFolder
    from logloom.pipelines.convert.plan import ConvertPlan


class SourceDamage(enum.StrEnum):
    fail = "fail"
    skip = "skip"


@dataclass(frozen=True)
class ConvertOptions:
    """The source and target of a conversion."""

    source: Annotated[
        str,
        typer.Argument(
            metavar="SRC",
            help="ROOT[@VERSION] of logloom, or a dataset of another tool.",
            callback=terminal.given_root,
        ),
    ]
    destination: Annotated[
        str,
        typer.Argument(metavar="DST", help="Folder or URI of the new dataset.", callback=terminal.given_root),
    ]
    format: Annotated[str, typer.Option("--format", metavar="FORMAT", help="Format to write: {outputs}.")]
    plain: Annotated[
        bool,
        typer.Option(
            "--plain", help="Make a plain folder of the format's own files, for its original tools."
        ),
    ] = False
    kind: Annotated[
        str | None, typer.Option("--from", metavar="KIND", help="What SRC is: {kinds} (default: detected).")
    ] = None
    output: Annotated[
        str | None,
        typer.Option(help="Which output of a version to read (default: one that contains all columns)."),
    ] = None
    options: Annotated[
        str | None,
        typer.Option(
            metavar="YAML",
            help="Options of the format, as in a recipe's `outputs`, e.g. '{rows_per_chunk: 256}'. Each key "
            "replaces that of SRC's own output.",
        ),
    ] = None
    columns: terminal.Columns = None
    where: Annotated[
        str,
        typer.Option(metavar="FILTER", help="Convert only rows that pass, e.g. 'isfinite(wrench)'."),
    ] = ""
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Convert only this many logs.")] = None
    on_error: Annotated[
        SourceDamage,
        typer.Option(help="What to do about damaged parts of SRC. skip lists them and exits with code 3."),
    ] = SourceDamage.fail


@terminal.command(
    "logloom convert /data/urban /data/urban-zarr --format zarr",
    "logloom convert gs://datasets/urban@7 /local/shards --format tar --plain",
    "logloom convert /data/granular /data/table --format table --options '{index: [speed]}'",
    "logloom convert s3://bucket/shards out --from webdataset --format bags --plain -c image -c label",
    cls=NamingParts,
)
@takes_groups()
def convert(what: ConvertOptions, options: JobOptions, engine: EngineOptions) -> None:
    """Convert a version, or a foreign dataset, to another format.

    Values and types stay: every column's digest is compared on both sides. DST becomes a root with a version,
    or with --plain a plain folder. A version's own format is copied as it is.
    """
    from logloom.pipelines.convert.plain_folder import PlainFolder, can_copy
    from logloom.pipelines.convert.plan import parse_options, plan_convert
    from logloom.pipelines.convert.sources import open_source

    storage = terminal.parse_storage_options(options.storage_option)
    chosen = parse_options(what.options)
    if what.plain and engine.detach:
        raise UsageError("--plain: this command makes the folder once the job is over; leave --detach out")
    runner = engine.with_workers(options.workers)
    folder = PlainFolder.at(what.destination, storage) if what.plain else None
    which: dict[str, Any] = {"on_error": what.on_error.value, "where": what.where}
    source = open_source(
        what.source,
        kind=what.kind,
        output=what.output,
        columns=what.columns,
        storage_options=storage,
        num_workers=options.workers or available_cpus(),
        **which,
    )
    choices: dict[str, Any] = {"options": chosen, "columns": what.columns, "limit": what.limit, **which}
    choices["read"] = what.output
    if folder is not None and can_copy(source, what.format, **choices):
        if engine.dry_run:
            raise UsageError(
                "--dry-run: this command copies a version's own format itself; no job is submitted"
            )
        _copy(source, folder, what.format, options)
        return

    def make_plan() -> ConvertPlan:
        plan = plan_convert(
            source,
            folder.work.uri if folder else what.destination,
            what.format,
            options=chosen,
            columns=what.columns,
            limit=what.limit,
            storage_options=storage,
            **which,
            settings=options.settings,
        )
        terminal.print_notices(plan.noted, quiet=options.quiet)
        return plan

    plan, converted = run_job(make_plan, options, engine, runner, View.link if folder else options.view)
    if converted is None:
        return
    if folder is not None:
        folder.publish(converted.manifest, converted.view, what.format)
    damaged = converted.damaged if what.on_error == SourceDamage.skip else ()
    _report(converted, damaged, plan, folder, options)
    if damaged and not plan.up_to_date:
        raise typer.Exit(terminal.NOT_WHOLE)


def _copy(source: RowSource, folder: PlainFolder, output: str, options: JobOptions) -> None:
    from logloom.pipelines.build.progress import steps
    from logloom.pipelines.convert.plain_folder import copy_out
    from logloom.pipelines.convert.sources import VersionSource

    assert isinstance(source, VersionSource)
    with steps("copying", quiet=options.quiet) as on_progress:
        files, size = copy_out(source, folder, output, on_progress)
    options.on_message(
        f"{folder.store.uri}: {counted(files, 'file')}, {human_bytes(size)}, copied from version "
        f"{source.version} and equal to its manifest"
    )
    if options.json:
        terminal.print_json({"folder": folder.store.uri, "files": files, "bytes": size, "copied": True})
    else:
        print(folder.store.uri)


def _report(
    converted: Built,
    damaged: Iterable[LogRecord],
    plan: ConvertPlan,
    folder: PlainFolder | None,
    options: JobOptions,
) -> None:
    from logloom.io.rows.log_ranges import DAMAGE
    from logloom.pipelines.versions.log_counts import logs_in_words

    manifest = converted.manifest
    place = folder.store.uri if folder else plan.job.store.uri
    logs = logs_in_words(manifest.logs.statuses)
    totals = f"{counted(manifest.totals['rows'], 'row')} of {logs}"
    if plan.up_to_date and folder is None:
        options.on_message(terminal.up_to_date_in_words(manifest, place))
    else:
        what = place if folder else f"version {manifest.version} of {place}"
        options.on_message(
            f"{what}: {totals}, {counted(len(plan.job.columns), 'column')}; "
            f"{counted(converted.built, 'unit')} written, "
            f"{converted.reused} found finished; {terminal.read_in_words(manifest)}"
        )
    for one in converted.sequences:
        options.on_message(f"{one.output}: {one}")
    print_work(converted, options.on_message)
    for record in damaged:
        lost = f"{counted(record.dropped[DAMAGE], 'row')} left out" if record.dropped[DAMAGE] else "left out"
        terminal.print_message(f"{record.status}: {record.log_id}: {lost}; {record.reasons[0]}")
    if options.json:
        result: dict[str, Any] = {"folder": place} if folder else {"view": converted.view}
        result |= {"version": manifest.version, "up_to_date": plan.up_to_date} if folder is None else {}
        result["sequences"] = [one.to_json() for one in converted.sequences]
        terminal.print_json({**result, **manifest.counts, **work_of(converted)})
    else:
        print(place if folder else converted.view or place)
