"""`logloom versions`: versions of a root, logs of one, and a log in all of them."""

from __future__ import annotations

import dataclasses
import datetime
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from logloom.cli import terminal
from logloom.cli.options.groups import refuse_given
from logloom.text import counted, human_bytes, human_number

if TYPE_CHECKING:
    from logloom.io.catalog.pages import LogRecord
    from logloom.io.storage.store import Store
    from logloom.pipelines.versions.history import LogStay, VersionSummary

MAX_PLACES = 5  # in files of one log, that are printed


@terminal.command(
    "logloom versions /data/urban",
    "logloom versions /data/urban --since 2026-11-24",
    "logloom versions /data/urban@7 --logs 1000",
    "logloom versions gs://datasets/urban --log drive-07 --json",
)
def versions(
    root: terminal.Root,
    last: Annotated[
        int | None,
        typer.Option(
            min=1, help="Show this many versions, the newest first (default: 20; with --since, all of them)."
        ),
    ] = None,
    since: Annotated[
        str,
        typer.Option(
            metavar="DATE|VERSION",
            help="Show versions committed on this day (UTC, 2026-11-24) or later, or from this version on.",
        ),
    ] = "",
    count_bytes: Annotated[
        bool | None,
        typer.Option(
            "--bytes/--no-bytes",
            help="Show sizes, for which a small file of each log is read (default: if versions have at most "
            "1 000 logs).",
        ),
    ] = None,
    log: Annotated[
        str | None,
        typer.Option(
            metavar="LOG_ID",
            help="Show every version that has this log, with its files, split, rows and units there.",
        ),
    ] = None,
    logs: Annotated[
        int | None, typer.Option(min=1, help="List the logs of ROOT@VERSION, at most so many of them.")
    ] = None,
    json: terminal.Json = False,
    storage_option: terminal.StorageOption = None,
) -> None:
    """List versions, the logs of one, or all that have a log.

    Of each version: when and how it was made, its contents, and what changed in it. Exits with code 3 if a
    version is damaged.
    """
    from logloom.io.catalog.manifest import split_root
    from logloom.io.storage.store import Store

    options = terminal.parse_storage_options(storage_option)
    of_versions = {"--last": last, "--since": since, "--bytes": count_bytes}
    if log is not None or logs is not None:
        refuse_given(of_versions, "it goes with a list of versions; leave out --log and --logs")
    if logs is not None:
        refuse_given(
            {"--log": log}, "it shows one log, and --logs lists those of a version; give one of both"
        )
        where, version = split_root(root)
        _list_logs(Store.at(where, options), version, logs, json=json)
    elif log is not None:
        _show_log(Store.at(root, options), log, json=json)
    else:
        _list_versions(Store.at(root, options), last, since, count_bytes, json=json)


def _list_versions(
    store: Store, last: int | None, since: str, count_bytes: bool | None, *, json: bool
) -> None:
    from logloom.pipelines.versions.history import versions as run

    last = 20 if last is None and not since else last
    found = run(store, last, since=since, count_bytes=count_bytes)
    if not found:
        terminal.print_message(f"{store.uri}: no version since {since}")
    if json:
        terminal.print_json([dataclasses.asdict(one) for one in found])
    elif found:
        columns = ("version", "parent", "built", "run", "logs", "rows", "size", "changes")
        terminal.print_table("", columns, [_cells(one) for one in found])
        for one in found:
            if one.tags:
                terminal.print_folded(f"version {one.version} is {', '.join(one.tags)}")
            if one.reason:
                terminal.print_folded(f"version {one.version}: {one.reason}")
    for one in found:
        if one.problem:
            terminal.print_message(f"version {one.version}: {one.problem}")
    if any(one.problem for one in found):
        raise typer.Exit(terminal.NOT_WHOLE)


def _cells(one: VersionSummary) -> tuple[str, ...]:
    if one.problem:
        return (str(one.version), "", "", "", "", "", "", "damaged")
    return (
        str(one.version),
        "" if one.parent in (None, one.version - 1) else str(one.parent),
        _built(one),
        one.run,
        _count(one.logs),
        _count(one.rows),
        "-" if one.bytes is None else human_bytes(one.bytes),
        ", ".join([_changes(one.changes), *_lacking(one.statuses or {})]),
    )


def _built(one: VersionSummary) -> str:
    if one.started is None:
        return "unknown"
    started = datetime.datetime.fromtimestamp(min(one.started, 253402300799), datetime.UTC)
    return f"{started:%Y-%m-%d %H:%M}"


def _lacking(statuses: Mapping[str, int]) -> Iterator[str]:
    """Describe how many logs aren't whole."""
    from logloom.io.catalog.pages import LogStatus

    for status in (LogStatus.skipped, LogStatus.salvaged):
        if count := statuses.get(status):
            yield f"{count:,} {status}"


def _count(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"


def _changes(changes: Mapping[str, int] | None) -> str:
    if changes is None:
        return "-"
    signs = {"added": "+", "gone": "-", "changed": "~"}
    return " ".join(f"{signs[what]}{count:,}" for what, count in changes.items() if count) or "none"


def _show_log(store: Store, log_id: str, *, json: bool) -> None:
    from logloom.pipelines.versions.history import follow

    found = follow(store, log_id)
    if json:
        terminal.print_json([one.to_json() for one in found])
    for one in found:
        if one.record is not None and not json:
            _print_stay(one, one.record)
        elif one.removed and not one.problem and not json:
            terminal.print_message(f"{_in_words(one.versions)}: had it, removed by `logloom gc`")
        if one.problem:
            terminal.print_message(f"{_in_words(one.versions)}: {one.problem}")
    if any(one.problem and not one.removed for one in found):
        raise typer.Exit(terminal.NOT_WHOLE)


def _list_logs(store: Store, version: str, most: int, *, json: bool) -> None:
    from logloom.io.catalog.manifest import open_root
    from logloom.pipelines.versions.history import listed_logs

    store, manifest = open_root(store, version)
    found = listed_logs(store, manifest, most)
    if json:
        terminal.print_json([dataclasses.asdict(one) for one in found])
    else:
        rows = [(one.log_id, one.split, one.status, f"{one.rows:,}", one.reason) for one in found]
        terminal.print_table(
            f"version {manifest.version}", ("log", "split", "status", "rows", "reason"), rows
        )
    if left := len(manifest.logs) - len(found):
        terminal.print_message(f"… and {counted(left, 'more log')}; --logs {len(manifest.logs)} lists all")


def _print_stay(one: LogStay, record: LogRecord) -> None:
    rows = [
        ("status", record.status),
        ("split", record.split),
        *([("duplicate of", record.duplicate_of)] if record.duplicate_of else []),
        ("rows", f"{record.rows:,} of {counted(record.planned, 'tick')}"),
        *(("dropped", f"{count:,} by {why}") for why, count in record.dropped.items()),
        ("content", record.content_id),
        ("key", record.key),
        *(("file", uri) for uri in record.uris),
        *([("refused", counted(record.refused, "message"))] if record.refused else []),
        *(("reason", reason) for reason in _reasons(record)),
    ]
    for folder, unit in one.units:
        size = f"{counted(unit.rows, 'row')}, {human_bytes(unit.size)}"
        rows += [("unit", f"{unit.output} {unit.partition}, {size}"), ("", folder)]
    rows += [("column", line) for name, own in (one.columns or {}).items() for line in _texts(name, own)]
    terminal.print_table(f"{record.log_id} in {_in_words(one.versions)}", ("", ""), rows)


def _reasons(record: LogRecord) -> Iterator[str]:
    """Yield the reasons of a log, equal ones once; of places in its files, which may be many, the first."""
    lines = Counter(record.reasons)
    placed = [line for line in lines if line.startswith(record.uris)]
    left_out = set(placed[MAX_PLACES:])
    for line, count in lines.items():
        if line not in left_out:
            yield line if count == 1 else f"{line} ({count:,} times)"
    if left_out:
        yield f"… and {len(left_out):,} more places in its files, which --json lists"


def _texts(name: str, stats: Mapping[str, Any]) -> Iterator[str]:
    """Summarize the statistics of a column; a line for each of its elements."""
    from logloom.pipelines.stats.stats import elements

    for label, lane in elements(name, stats):
        if lane.get("min") is not None:
            low, high, mean = (
                human_number(lane[key], lane.get("unit", "")) for key in ("min", "max", "mean")
            )
            yield f"{label}: {lane['count']:,}, {low} to {high}, mean {mean}"
    if stats.get("unavailable") and not name.endswith(".age"):
        yield f"{name}: {counted(stats['unavailable'], 'row')} unavailable"


def _in_words(numbers: tuple[int, ...]) -> str:
    """Describe versions in ascending order: `versions 1 to 3, 5`, or `version 3`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    words = ", ".join(" to ".join(map(str, run)) for run in runs)
    return f"version{'s' * (len(numbers) > 1)} {words}"
