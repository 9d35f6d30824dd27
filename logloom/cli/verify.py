"""`logloom verify`: check a version against its manifest, or also its logs."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from logloom.cli import terminal
from logloom.cli.options.groups import takes_groups
from logloom.cli.options.recipes import DeriveOptions
from logloom.text import counted, human_bytes, some_of

if TYPE_CHECKING:
    from logloom.pipelines.verify.verify import Report


@terminal.command(
    "logloom verify /data/urban",
    "logloom verify /data/urban@7 --against-logs --json",
)
@takes_groups()
def verify(
    *,
    root: terminal.Root,
    against_logs: Annotated[
        bool, typer.Option("--against-logs", help="Also derive every row from the logs again, and compare.")
    ] = False,
    again: DeriveOptions,
    sample: Annotated[
        str,
        typer.Option(
            metavar="all|sample:SHARE",
            help="Read back all units, or a share of them, such as sample:0.1: at least one of each output.",
        ),
    ] = "all",
    workers: terminal.LocalWorkers = None,
    json: terminal.Json = False,
    storage_option: terminal.StorageOption = None,
) -> None:
    """Check a version against its manifest; or also against its logs.

    Exits with code 3 if anything differs.
    """
    import dataclasses

    from logloom.io.catalog.manifest import split_root
    from logloom.io.storage.store import Store
    from logloom.pipelines.build.progress import steps
    from logloom.pipelines.verify.verify import verify as run
    from logloom.transforms.build.settings import check_sample

    check_sample(sample)
    where, version = split_root(root)
    storage = terminal.parse_storage_options(storage_option)
    with steps("reading back") as on_progress:
        report = run(
            where,
            version,
            sample=sample,
            against_logs=against_logs,
            num_workers=workers,
            **again.arguments(),
            storage_options=storage,
            on_progress=on_progress,
        )
    if json:
        terminal.print_json(dataclasses.asdict(report))
    for finding in () if json else report.findings:
        terminal.print_result(str(finding))
    terminal.print_message(f"its manifest: {report.manifest}")
    terminal.print_message(f"{_made_by(report)}; committed by {_packages(report.committed_by)}")
    _print_kept(report)
    terminal.print_message(
        f"version {report.version}: read {counted(report.units, 'unit')}, {counted(report.rows, 'row')} in "
        f"all outputs, {human_bytes(report.bytes)}: {_verdict(report)}"
    )
    beside = f"{Store.at(where, storage).uri_of('versions')}/"  # no other file contains their content
    if any(one.log_id or beside not in one.message for one in report.findings):
        terminal.print_message(f"`logloom repair {shlex.quote(root)}` builds damaged and lost files again")
    if report.findings:
        raise typer.Exit(terminal.NOT_WHOLE)


def _print_kept(report: Report) -> None:
    if report.kept:
        terminal.print_message(
            f"{counted(report.kept, 'kept log')} ({some_of(report.kept_logs)}): compared with the manifest "
            "only, as the files vanished or were cut"
        )


def _verdict(report: Report) -> str:
    proof = "manifest and logs" if report.against_logs else "manifest"
    verdict = counted(len(report.findings), "finding") if report.findings else f"equal to its {proof}"
    if report.kept:
        verdict += f"; not counting {counted(report.kept, 'kept log')}, compared with the manifest only"
    if report.purged:
        verdict += f"; not counting {counted(report.purged, 'purged log')}"
    return verdict


def _made_by(report: Report) -> str:
    """Describe which software made how many units."""
    made = [f"{_packages(one['software'])} ({counted(one['units'], 'unit')})" for one in report.made_by]
    return f"made by {'; '.join(made)}" if made else "no units"


def _packages(software: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in software.items()) or "unnoted software"
