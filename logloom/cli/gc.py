"""`logloom gc`: remove old versions, and files that no version needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from logloom.cli import terminal
from logloom.errors import UsageError
from logloom.text import counted, human_bytes, some_of

if TYPE_CHECKING:
    from logloom.pipelines.gc.removal import Collected
    from logloom.recipe import Keep

MANY = 10**8  # versions, more than a root can have

KeepLast = Annotated[
    int | None,
    typer.Option(
        "--keep-last",
        "--keep",
        min=1,
        max=MANY,
        help="Keep this many of the newest versions (default: the recipe's).",
    ),
]


@terminal.command(
    "logloom gc /data/urban --dry-run",
    "logloom gc /data/urban --keep-last 30 --keep-daily 14",
    "logloom gc gs://datasets/urban --grace 3d --json",
)
def gc(
    root: terminal.BareRoot,
    *,
    keep_last: KeepLast = None,
    keep_daily: Annotated[
        int | None,
        typer.Option(min=1, max=MANY, help="Keep the newest version of each of the last N days with one."),
    ] = None,
    keep_tags: Annotated[
        bool, typer.Option("--keep-tags/--no-keep-tags", help="Keep versions that have a tag.")
    ] = True,
    grace: Annotated[
        str,
        typer.Option(
            metavar="DURATION",
            help="How long to keep what no version needs: longer than any build or use of an old version.",
        ),
    ] = "7d",
    keep_runs: Annotated[
        int, typer.Option(min=0, help="Keep the records of builds of this many of the newest versions.")
    ] = 30,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be removed; remove nothing.")
    ] = False,
    quiet: terminal.Quiet = False,
    json: terminal.Json = False,
    storage_option: terminal.StorageOption = None,
) -> None:
    """Remove old versions, and files that no version needs.

    Old versions are those beyond `keep` in the recipe, --keep-last and --keep-daily; without these no version
    is removed. A removed version can't be opened any more; the first `gc` after the grace period removes its
    files. Files that logloom didn't write are listed, and never touched. May be interrupted and run again,
    also while builds and readers run.
    """
    import dataclasses

    from logloom.pipelines.build.progress import steps
    from logloom.pipelines.gc.gc import collect_garbage

    keep = _keep(keep_last, keep_daily, keep_tags)
    with steps("looking for garbage", quiet=quiet) as on_progress:
        done = collect_garbage(
            root,
            keep=keep,
            grace_s=seconds(grace, "--grace", "7d"),
            kept_runs=keep_runs,
            dry_run=dry_run,
            storage_options=terminal.parse_storage_options(storage_option),
            on_progress=on_progress,
        )
    if json:
        terminal.print_json(dataclasses.asdict(done) | {"bytes": done.bytes})
    else:
        _show(done, grace)


def _keep(last: int | None, daily: int | None, tags: bool) -> Keep | None:
    if last is None and daily is None:
        if not tags:
            raise UsageError(
                "--no-keep-tags needs --keep-last or --keep-daily; else the recipe's `keep` counts"
            )
        return None
    from logloom.recipe import Keep

    return Keep(last=last, daily=daily, tags="all" if tags else "none")


def seconds(text: str, option: str, example: str) -> float:
    """Parse a duration of the command line.

    Args:
        example: of one, for messages.

    Raises:
        UsageError: not a duration.
    """
    from logloom.recipe.values import length_of_time

    try:
        return length_of_time(text, example) / 1e9
    except ValueError as error:
        raise UsageError(f"{option} {text!r}: {error}") from None


def _show(done: Collected, grace: str) -> None:
    would = "would be " if done.dry_run else ""
    for number in done.removed:
        terminal.print_result(f"version {number}: {would}removed")
    for kind, amount in sorted(done.amounts.items(), key=lambda pair: -pair[1].bytes):
        files = counted(amount.files, "file")
        terminal.print_result(
            f"{kind}: {amount.items:,} {would}removed ({files}, {human_bytes(amount.bytes)})"
        )
    for name in done.unknown:
        terminal.print_result(f"unknown: {name}: not logloom's, left")
    for note in done.notes:
        terminal.print_message(note)
    if done.waiting:
        which = some_of(done.waiting, 10)
        terminal.print_message(
            f"files of removed versions ({which}) stay for the grace of {grace}: "
            "the first `logloom gc` after it removes them"
        )
    terminal.print_message(
        f"{counted(len(done.kept), 'version')} kept, {human_bytes(done.bytes)} {would}freed"
    )
