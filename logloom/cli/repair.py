"""`logloom repair`: build damaged and lost files of a version again."""

from __future__ import annotations

from typing import Annotated

import typer

from logloom.cli import terminal
from logloom.cli.options.groups import takes_groups
from logloom.cli.options.recipes import DeriveOptions
from logloom.text import counted


@terminal.command(
    "logloom repair /data/urban",
    "logloom repair /data/urban@7 --dry-run --json",
    "logloom repair gs://datasets/urban --py labels.py",
)
@takes_groups()
def repair(
    *,
    root: terminal.Root,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Only report damaged and lost files; exit with code 3 if something is."
        ),
    ] = False,
    again: DeriveOptions,
    workers: terminal.LocalWorkers = None,
    quiet: terminal.Quiet = False,
    json: terminal.Json = False,
    storage_option: terminal.StorageOption = None,
) -> None:
    """Build damaged and lost files of a version again, from its logs.

    A file is replaced only if the new one has the digest that the version promises. Exits with code 3
    if something couldn't be repaired, and prints the reason: a log that is gone, software that makes other
    bytes.
    """
    import dataclasses

    from logloom.io.catalog.manifest import split_root
    from logloom.pipelines.build.progress import steps
    from logloom.pipelines.repair.repair import repair as run

    where, version = split_root(root)
    with steps("checking and building", quiet=quiet) as on_progress:
        done = run(
            where,
            version,
            dry_run=dry_run,
            num_workers=workers,
            **again.arguments(),
            storage_options=terminal.parse_storage_options(storage_option),
            on_progress=on_progress,
        )
    if json:
        terminal.print_json(dataclasses.asdict(done))
    else:
        named = {"damaged": done.damaged} if dry_run else {}
        named |= {"repaired": done.repaired, "not repaired": done.unrepaired}
        for what, findings in named.items():
            for finding in findings:
                terminal.print_result(f"{what}: {finding}")
    verdict = "all is sound"
    if done.damaged:
        verdict = f"{counted(len(done.repaired), 'file')} repaired, {len(done.unrepaired):,} not"
    if dry_run and done.damaged:
        verdict = f"{counted(len(done.damaged), 'finding')}, nothing was changed"
    terminal.print_message(f"version {done.version}: checked {counted(done.units, 'unit')}: {verdict}")
    if not done.is_sound:
        raise typer.Exit(terminal.NOT_WHOLE)
