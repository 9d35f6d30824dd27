"""`logloom purge`: erase logs from all versions of a dataset."""

from __future__ import annotations

import datetime
import re
from typing import TYPE_CHECKING, Annotated

import typer

from logloom.cli import terminal
from logloom.errors import UsageError
from logloom.text import counted, human_bytes, ignore_message

if TYPE_CHECKING:
    from logloom.pipelines.purge.purge import PurgeReport
    from logloom.pipelines.purge.rows import ErasedTime

_TIME = r"-?[0-9]{1,19}|[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?Z"
_ROWS = re.compile(rf"(.+?):({_TIME})?\.\.({_TIME})?")


@terminal.command(
    "logloom purge /data/urban 2026-11-22-car-7 --dry-run",
    "logloom purge /data/urban --log gs://drives/2026-11-22-car-7.mcap --reason 'request 1187'",
    "logloom purge /data/urban --rows 2026-11-22-car-7:2026-11-22T08:30:00Z..2026-11-22T08:30:12.5Z",
    "logloom purge /data/urban --rows 2026-11-22-car-7:1795336200000000000.. --json",
)
def purge(
    root: terminal.BareRoot,
    logs: Annotated[
        list[str] | None,
        typer.Argument(metavar="[LOG_ID|FILE]...", help="Logs to erase, by log_id, path or URI."),
    ] = None,
    *,
    log: Annotated[
        list[str] | None,
        typer.Option(metavar="LOG_ID|FILE", help="The same as an option. May be repeated."),
    ] = None,
    rows: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LOG:FROM..TO",
            help="Time range of a log to erase: all rows and messages from FROM (included) to TO (excluded), "
            "each in ns since 1970 or like 2026-11-22T08:30:00Z. Without FROM or TO it begins or ends "
            "with the log. May be repeated.",
        ),
    ] = None,
    reason: Annotated[str, typer.Option(help="Reason to record. It stays, so write nothing personal.")] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be erased; erase nothing.")
    ] = False,
    quiet: terminal.Quiet = False,
    json: terminal.Json = False,
    storage_option: terminal.StorageOption = None,
) -> None:
    """Erase logs, or time ranges of logs, from all versions.

    Also erases them from views and caches, and proves that nothing is left. A tombstone stays, so that no
    build brings the same content back. Versions that had the logs still name them; reading them there
    fails with an error that names the purge. Assembled outputs that hold their rows are removed as a whole:
    build again for a version without the logs. After --rows, the next build makes the other rows of the logs
    again, from their files. Exits with code 3 if something may be left.
    """
    import dataclasses

    from logloom.pipelines.build.progress import steps
    from logloom.pipelines.purge.purge import purge as run

    with steps("looking through all files", quiet=quiet) as on_progress:
        done = run(
            root,
            [*(logs or []), *(log or [])],
            [_erased_time(text) for text in rows or []],
            reason=reason,
            dry_run=dry_run,
            storage_options=terminal.parse_storage_options(storage_option),
            on_progress=on_progress,
            on_message=ignore_message if quiet else terminal.print_message,
        )
    if json:
        terminal.print_json(dataclasses.asdict(done) | {"is_proven": None if dry_run else done.is_proven})
    else:
        _show(done)
    if not done.is_proven:
        raise typer.Exit(terminal.NOT_WHOLE)


def _erased_time(text: str) -> ErasedTime:
    """Parse a value of `--rows`.

    Raises:
        UsageError: not a time range of a log.
    """
    from logloom.pipelines.purge.rows import ErasedTime
    from logloom.schema import MAX_TIME, MIN_TIME

    found = _ROWS.fullmatch(text)
    if found is None or not (found[2] or found[3]):
        raise UsageError(
            f"--rows {text!r}: expected LOG:FROM..TO, with times like 2026-11-22T08:30:00Z or in ns since "
            "1970, as in drive-07:1795336200000000000..1795336212000000000; one of both may be left out"
        )
    start, stop = (_nanoseconds(text, time) if time else None for time in found.groups()[1:])
    return ErasedTime(found[1], MIN_TIME if start is None else start, MAX_TIME if stop is None else stop)


def _nanoseconds(option: str, time: str) -> int:
    if not time.endswith("Z"):
        ns = int(time)
    else:
        seconds, _, fraction = time[:-1].partition(".")
        try:
            moment = datetime.datetime.fromisoformat(f"{seconds}+00:00")
        except ValueError as error:
            raise UsageError(f"--rows {option!r}: {time} is not a time: {error}") from None
        ns = round(moment.timestamp()) * 10**9 + int(fraction.ljust(9, "0") or 0)
    if not -(2**63) <= ns < 2**63:
        raise UsageError(f"--rows {option!r}: {time} is out of the range of int64 ns since 1970")
    return ns


def _show(done: PurgeReport) -> None:
    would = "would be " if done.dry_run else ""
    versions = ("version " if len(done.versions) == 1 else "versions ") + ", ".join(map(str, done.versions))
    rows = f"{counted(done.rows, 'row')} of the newest version"
    if done.is_again:
        terminal.print_folded(
            f"{done.root}: {', '.join(done.logs)}: purged before, from {versions}; what was left of it "
            f"{would}erased ({counted(done.files, 'file')}, {human_bytes(done.bytes)})"
        )
    elif done.versions:  # else a place that points here and has none of it; `left` names it
        terminal.print_folded(
            f"{done.root}: {', '.join(done.logs)}: {rows} and {counted(done.units, 'unit')} of all versions "
            f"{would}erased ({counted(done.files, 'file')}, {human_bytes(done.bytes)}), from {versions}"
        )
    if done.ranges:
        again = ", ".join(done.ranges)
        terminal.print_message(
            f"{again}: its other rows go, too, until the next build makes them again from its files"
        )
    for other in done.others:
        _show(other)
    for place in done.left:
        terminal.print_result(f"left: {place}")
    for name in done.names:
        terminal.print_message(f"{name} still names the log, as part of what a version was")
    if done.is_proven and not done.dry_run:
        but = " but these names" if done.names else ""
        terminal.print_message(f"{done.root}: looked through all files: nothing is left{but}")
