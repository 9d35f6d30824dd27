"""`logloom log`: a log in all versions of a root, or all logs of one version."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from logloom.cli.terminal.output import (
    NOT_WHOLE,
    Json,
    Root,
    StorageOption,
    app,
    examples,
    parse_storage_options,
    print_json,
    print_message,
    print_table,
)
from logloom.text import counted, human_bytes

if TYPE_CHECKING:
    from logloom.io.catalog.pages import LogRecord
    from logloom.pipelines.versions.history import LogStay

MAX_PLACES = 5  # in files of one log, that are printed


@app.command(
    epilog=examples(
        "logloom log /data/urban@7",
        "logloom log /data/urban drive-07",
        "logloom log gs://datasets/urban drive-07 --json",
    )
)
def log(
    root: Root,
    log_id: Annotated[
        str | None,
        typer.Argument(
            metavar="[LOG_ID]", help="A log, by its name in the dataset (default: list those of the version)."
        ),
    ] = None,
    logs: Annotated[int, typer.Option("--logs", min=1, help="List at most this many logs.")] = 100,
    json: Json = False,
    storage_option: StorageOption = None,
) -> None:
    """Show every version that has a log, with the log's files, split, rows and units there; or list logs."""
    from logloom.io.storage.store import Store
    from logloom.pipelines.versions.history import follow

    options = parse_storage_options(storage_option)
    if log_id is None:
        _list(root, logs, options, json=json)
        return
    found = follow(Store.at(root, options), log_id)
    if json:
        print_json([one.to_json() for one in found])
    for one in found:
        if one.record is not None and not json:
            _print_stay(one, one.record)
        elif one.removed and not one.problem and not json:
            print_message(f"{_in_words(one.versions)}: had it, removed by `logloom gc`")
        if one.problem:
            print_message(f"{_in_words(one.versions)}: {one.problem}")
    if any(one.problem and not one.removed for one in found):
        raise typer.Exit(NOT_WHOLE)


def _list(root: str, most: int, options: Mapping[str, Any], *, json: bool) -> None:
    """Lists the logs of a version."""
    from logloom.io.catalog.manifest import open_root, split_root
    from logloom.io.storage.store import Store
    from logloom.pipelines.versions.history import listed_logs

    where, version = split_root(root)
    store, manifest = open_root(Store.at(where, options), version)
    found = listed_logs(store, manifest, most)
    if json:
        print_json([dataclasses.asdict(one) for one in found])
    else:
        rows = [(one.log_id, one.split, one.status, f"{one.rows:,}", one.reason) for one in found]
        print_table(f"version {manifest.version}", ("log", "split", "status", "rows", "reason"), rows)
    if left := len(manifest.logs) - len(found):
        print_message(f"… and {counted(left, 'more log')}; --logs {len(manifest.logs)} lists all")


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
    print_table(f"{record.log_id} in {_in_words(one.versions)}", ("", ""), rows)


def _reasons(record: LogRecord) -> Iterator[str]:
    """What is said of a log, equal lines once; of places in its files, which may be many, the first."""
    lines = Counter(record.reasons)
    placed = [line for line in lines if line.startswith(record.uris)]
    left_out = set(placed[MAX_PLACES:])
    for line, count in lines.items():
        if line not in left_out:
            yield line if count == 1 else f"{line} ({count:,} times)"
    if left_out:
        yield f"… and {len(left_out):,} more places in its files, which --json lists"


def _texts(name: str, stats: Mapping[str, Any]) -> Iterator[str]:
    """What was counted of a column, in short; a line for each of its elements."""
    from logloom.pipelines.stats.stats import elements

    for label, lane in elements(name, stats):
        if lane.get("min") is not None:
            low, high, mean = (f"{lane[key]:.6g}" for key in ("min", "max", "mean"))
            yield f"{label}: {lane['count']:,}, {low} to {high}, mean {mean}"
    if stats.get("unavailable"):
        yield f"{name}: {counted(stats['unavailable'], 'row')} unavailable"


def _in_words(numbers: tuple[int, ...]) -> str:
    """Versions in ascending order: `versions 1 to 3, 5`, or `version 3`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    words = ", ".join(" to ".join(map(str, run)) for run in runs)
    return f"version{'s' * (len(numbers) > 1)} {words}"
