"""Erasing logs from a dataset: `purge`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from logloom.cli.common import (
    NOT_WHOLE,
    Json,
    Quiet,
    StorageOption,
    app,
    examples,
    parse_storage_options,
    print_folded,
    print_json,
    print_message,
    print_result,
)
from logloom.cli.gc import DatasetRoot
from logloom.words import counted, human_bytes

if TYPE_CHECKING:
    from logloom.pipelines.purge import PurgeReport


@app.command(
    epilog=examples(
        "logloom purge /data/urban --log 2026-11-22-car-7 --dry-run",
        "logloom purge /data/urban --log gs://drives/2026-11-22-car-7.mcap --reason 'request 1187'",
    )
)
def purge(
    root: DatasetRoot,
    *,
    log: Annotated[
        list[str], typer.Option(metavar="LOG_ID|URI", help="Log to erase, by log_id or URI. May be repeated.")
    ],
    reason: Annotated[str, typer.Option(help="Why, for whoever meets the tombstone; nothing personal.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell what would be erased.")] = False,
    quiet: Quiet = False,
    json: Json = False,
    storage_option: StorageOption = None,
) -> None:
    """Erase logs from all versions, views and caches, and prove that nothing of them is left.

    A tombstone stays, so that no build brings them back with the content that they had. Versions that had
    them still name them; reading them there is an error that says so. Assembled outputs that hold rows of
    them go as a whole: build again for a version without them. Exits with 3 where something may be left.
    """
    import dataclasses

    from logloom.pipelines.progress import steps
    from logloom.pipelines.purge import purge as run

    with steps("looking through all files", quiet=quiet) as on_progress:
        done = run(
            root,
            log,
            reason=reason,
            dry_run=dry_run,
            storage_options=parse_storage_options(storage_option),
            on_progress=on_progress,
        )
    if json:
        print_json(dataclasses.asdict(done) | {"is_proven": None if dry_run else done.is_proven})
    else:
        _show(done)
    if not done.is_proven:
        raise typer.Exit(NOT_WHOLE)


def _show(done: PurgeReport) -> None:
    would = "would be " if done.dry_run else ""
    versions = ("version " if len(done.versions) == 1 else "versions ") + ", ".join(map(str, done.versions))
    print_folded(
        f"{done.root}: {', '.join(done.logs)}: {counted(done.units, 'unit')} {would}erased "
        f"({counted(done.files, 'file')}, {human_bytes(done.bytes)}), from {versions}"
    )
    for other in done.others:
        _show(other)
    for place in done.left:
        print_result(f"left: {place}")
    for name in done.names:
        print_message(f"{name} still names the log, as part of what a version was")
    if done.is_proven and not done.dry_run:
        print_message(f"{done.root}: looked through all files: nothing is left")
