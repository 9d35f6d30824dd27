"""Looking at datasets, and after them: `head`, `verify`, `repair`, `view`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from logloom.cli.common import (
    NOT_WHOLE,
    AllowDerive,
    Json,
    PyFiles,
    Root,
    StorageOption,
    app,
    examples,
    parse_storage_options,
    print_json,
    print_table,
    say,
    show,
)
from logloom.errors import UsageError
from logloom.words import counted

if TYPE_CHECKING:
    from logloom.pipelines.verify import Report


SecretLogs = Annotated[
    list[str] | None,
    typer.Option("--log", metavar="URI", help="A log with the credentials in its URI; may be repeated."),
]


@app.command(
    epilog=examples(
        "logloom head /data/urban -n 3",
        "logloom head /data/urban@7 --columns 'ego.*' --why",
    )
)
def head(
    root: Root,
    rows: Annotated[int, typer.Option("-n", "--rows", min=1, help="Number of rows to show.")] = 5,
    skip: Annotated[int, typer.Option(min=0, help="Number of rows to skip first.")] = 0,
    columns: Annotated[
        list[str] | None,
        typer.Option("--columns", "-c", help="Column to show, by name or glob. May be repeated."),
    ] = None,
    why: Annotated[
        bool, typer.Option("--why", help="Show the messages behind each value: time, age and place.")
    ] = False,
    output: Annotated[
        str | None, typer.Option(help="Output to read (default: as `logloom.datasets.open` chooses).")
    ] = None,
    json: Json = False,
    storage_option: StorageOption = None,
) -> None:
    """Show rows of a dataset; with --why, where their values come from."""
    from logloom.io.manifest import split_root
    from logloom.pipelines import inspect

    where, version = split_root(root)
    shown = inspect.head(
        where,
        version,
        output=output,
        start=skip,
        count=rows,
        columns=columns,
        why=why,
        storage_options=parse_storage_options(storage_option),
    )
    if json:
        print_json([row.to_json() for row in shown])
        return
    for row in shown:
        print_table(
            row.headline(), ("column", "value", *(("message time", "UTC", "age", "from") * why)), row.lines()
        )


@app.command(
    epilog=examples("logloom verify /data/urban", "logloom verify /data/urban@7 --against-logs --json")
)
def verify(
    root: Root,
    against_logs: Annotated[
        bool, typer.Option("--against-logs", help="Also derive every row from the logs again, and compare.")
    ] = False,
    py: PyFiles = None,
    allow_derive: AllowDerive = None,
    log: SecretLogs = None,
    sample: Annotated[
        str, typer.Option(metavar="all|sample:SHARE", help="Which units to read back.")
    ] = "all",
    workers: Annotated[
        int | None,
        typer.Option("--workers", min=1, help="Number of worker processes (default: one per core)."),
    ] = None,
    json: Json = False,
    storage_option: StorageOption = None,
) -> None:
    """Check that a version holds what its manifest says; with --against-logs, also what its logs say."""
    import dataclasses

    from logloom.io.manifest import split_root
    from logloom.pipelines.plan import check_sample
    from logloom.pipelines.progress import human_bytes, steps
    from logloom.pipelines.verify import verify as run

    check_sample(sample)
    where, version = split_root(root)
    with steps("reading back") as on_done:
        report = run(
            where,
            version,
            sample=sample,
            against_logs=against_logs,
            num_workers=workers,
            py_files=py or (),
            allow_derive=allow_derive or (),
            logs=log or (),
            storage_options=parse_storage_options(storage_option),
            on_done=on_done,
        )
    if json:
        print_json(dataclasses.asdict(report))
    for finding in report.findings:
        place = " ".join(part for part in (finding.log_id, finding.partition) if part)
        if not json:
            show(f"{place}: {finding.message}" if place else finding.message)
    say(f"its manifest: {report.manifest}")
    say(f"made by {_made_by(report)}; committed by {_packages(report.committed_by)}")
    proof = "manifest and logs" if against_logs else "manifest"
    verdict = counted(len(report.findings), "finding") if report.findings else f"equal to its {proof}"
    say(
        f"version {report.version}: read {counted(report.units, 'unit')}, {counted(report.rows, 'row')} in "
        f"all outputs, {human_bytes(report.bytes)}: {verdict}"
    )
    if report.findings:
        say(f"`logloom repair {shlex.quote(root)}` builds damaged and lost files again")
        raise typer.Exit(NOT_WHOLE)


def _made_by(report: Report) -> str:
    """Which software made how many units."""
    made = [f"{_packages(one['software'])} ({counted(one['units'], 'unit')})" for one in report.made_by]
    return "; ".join(made) or "nobody: no units"


def _packages(software: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in software.items()) or "unnoted software"


@app.command(
    epilog=examples(
        "logloom repair /data/urban",
        "logloom repair /data/urban@7 --dry-run --json",
        "logloom repair gs://datasets/urban --py labels.py",
    )
)
def repair(
    root: Root,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Only say what is damaged or lost; exit with 3 if something is."),
    ] = False,
    py: PyFiles = None,
    allow_derive: AllowDerive = None,
    log: SecretLogs = None,
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, help="Processes; one a core by default.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
    json: Json = False,
    storage_option: StorageOption = None,
) -> None:
    """Build damaged and lost files of a version again, from its logs and with the same bytes.

    Nothing is put in place that doesn't have the digest which the version promises. Exits with 3 where
    something couldn't be repaired, and says why: a log that is gone, software that gives other bytes.
    """
    import dataclasses

    from logloom.io.manifest import split_root
    from logloom.pipelines.progress import steps
    from logloom.pipelines.repair import repair as run

    where, version = split_root(root)
    with steps("checking and building", quiet=quiet) as on_done:
        done = run(
            where,
            version,
            dry_run=dry_run,
            num_workers=workers,
            py_files=py or (),
            allow_derive=allow_derive or (),
            logs=log or (),
            storage_options=parse_storage_options(storage_option),
            on_done=on_done,
        )
    if json:
        print_json(dataclasses.asdict(done))
    else:
        named = {"damaged": done.damaged} if dry_run else {}
        named |= {"repaired": done.repaired, "not repaired": done.unrepaired}
        for what, findings in named.items():
            for one in findings:
                place = " ".join(part for part in (one.log_id, one.partition) if part)
                show(f"{what}: {place}: {one.message}" if place else f"{what}: {one.message}")
    verdict = "all is sound"
    if done.damaged:
        verdict = f"{counted(len(done.repaired), 'file')} repaired, {len(done.unrepaired):,} not"
    if dry_run and done.damaged:
        verdict = f"{counted(len(done.damaged), 'finding')}, nothing was changed"
    say(f"version {done.version}: checked {counted(done.units, 'unit')}: {verdict}")
    if not done.is_sound:
        raise typer.Exit(NOT_WHOLE)


@app.command(
    epilog=examples(
        "logloom view /data/urban@7",
        "logloom view gs://datasets/urban --copy",
        "logloom view gs://datasets/urban --list --output tar --split train > shards.txt",
    )
)
def view(
    root: Root,
    copy: Annotated[
        bool, typer.Option("--copy", help="In an object store: copy the files within the store.")
    ] = False,
    listed: Annotated[
        bool, typer.Option("--list", help="Only list the URL of each file, e.g. for webdataset.")
    ] = False,
    output: Annotated[str | None, typer.Option(help="With --list: only files of this output.")] = None,
    split: Annotated[str | None, typer.Option(help="With --list: only files of this split.")] = None,
    json: Json = False,
    storage_option: StorageOption = None,
) -> None:
    """Make a version's view: a plain folder for each format and split, for the formats' original tools."""
    from logloom.io.manifest import read_manifest, split_root
    from logloom.io.storage import Store
    from logloom.pipelines.progress import steps
    from logloom.pipelines.view import copy_view, files_of, make_view

    where, version = split_root(root)
    store = Store.at(where, parse_storage_options(storage_option))
    manifest = read_manifest(store, version)
    if listed:
        files = files_of(store, manifest, output, split)
        if json:
            print_json([{"url": store.uri_of(f.stored), "name": f.name, "size": f.size} for f in files])
        else:
            print("\n".join(store.uri_of(file.stored) for file in files))
        return
    if store.local is not None:
        place = str(make_view(store, manifest)[0])
    elif copy:
        with steps("copying") as on_done:
            place = copy_view(store, manifest, on_done)
    else:
        raise UsageError(f"{where}: an object store has no links; say --copy for copies, or --list for URLs")
    if json:
        print_json({"version": manifest.version, "view": place})
    else:
        print(place)
