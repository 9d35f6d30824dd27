"""`logloom versions`: the versions of a root."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from logloom.cli.terminal.output import (
    NOT_WHOLE,
    BareRoot,
    Json,
    StorageOption,
    app,
    examples,
    parse_storage_options,
    print_folded,
    print_json,
    print_message,
    print_table,
)
from logloom.text import human_bytes

if TYPE_CHECKING:
    from logloom.pipelines.versions.history import VersionSummary


@app.command(
    epilog=examples(
        "logloom versions /data/urban",
        "logloom versions /data/urban --since 2026-11-24",
        "logloom versions gs://datasets/urban --json",
    )
)
def versions(
    root: BareRoot,
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
    json: Json = False,
    storage_option: StorageOption = None,
) -> None:
    """List the versions of a dataset: when and how each was made, what it holds, and what changed in it."""
    import dataclasses

    from logloom.io.storage.store import Store
    from logloom.pipelines.versions.history import versions as run

    store = Store.at(root, parse_storage_options(storage_option))
    last = 20 if last is None and not since else last
    found = run(store, last, since=since, count_bytes=count_bytes)
    if not found:
        print_message(f"{store.uri}: no version since {since}")
    if json:
        print_json([dataclasses.asdict(one) for one in found])
    elif found:
        columns = ("version", "parent", "built", "run", "logs", "rows", "size", "changes")
        print_table("", columns, [_cells(one) for one in found])
        for one in found:
            if one.tags:
                print_folded(f"version {one.version} is {', '.join(one.tags)}")
            if one.reason:
                print_folded(f"version {one.version}: {one.reason}")
    for one in found:
        if one.problem:
            print_message(f"version {one.version}: {one.problem}")
    if any(one.problem for one in found):
        raise typer.Exit(NOT_WHOLE)


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
    """How many logs aren't whole."""
    for status in ("skipped", "salvaged"):
        if count := statuses.get(status):
            yield f"{count:,} {status}"


def _count(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"


def _changes(changes: Mapping[str, int] | None) -> str:
    if changes is None:
        return "-"
    signs = {"added": "+", "gone": "-", "changed": "~"}
    return " ".join(f"{signs[what]}{count:,}" for what, count in changes.items() if count) or "none"
