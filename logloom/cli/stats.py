"""Statistics of columns: `stats`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from logloom.cli.terminal.output import (
    Json,
    LocalWorkers,
    Root,
    StorageOption,
    app,
    examples,
    parse_storage_options,
    print_folded,
    print_json,
    print_table,
)


@app.command(
    epilog=examples(
        "logloom stats /data/urban", "logloom stats /data/urban@7 --split train --columns 'ego.*' --json"
    )
)
def stats(
    root: Root,
    split: Annotated[str | None, typer.Option(help="Split to show (default: all).")] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option("--columns", "-c", help="Column to show, by name or glob. May be repeated."),
    ] = None,
    every_value: Annotated[
        bool,
        typer.Option(
            "--every-value", help="Read all rows, and count every value of images and point clouds."
        ),
    ] = False,
    workers: LocalWorkers = None,
    json: Json = False,
    storage_option: StorageOption = None,
) -> None:
    """Show statistics of a dataset's columns: counts, range, mean, quantiles, values."""
    from logloom.io.catalog.manifest import split_root
    from logloom.pipelines.stats.stats import column_statistics, sample_note
    from logloom.text import counted

    where, version = split_root(root)
    found = column_statistics(
        where,
        version,
        split=split,
        columns=columns,
        every_value=every_value,
        num_workers=workers or os.cpu_count() or 1,
        storage_options=parse_storage_options(storage_option),
    )
    if json:
        print_json(found.to_json())
        return
    shown = found.columns()
    title = f"version {found.version}, split {', '.join(found.splits)}: {counted(found.rows, 'row')} of "
    title += counted(found.logs, "log")
    heads = ("column", "unavailable", "count", "min", "1%", "50%", "99%", "max", "mean", "std")
    print_table(title, heads, [line for name, summary in shown.items() for line in _lines(name, summary)])
    for name, summary in shown.items():
        if note := sample_note(summary):
            print_folded(f"{name}: {note} (--every-value does)")
        for label, one in _texts(name, summary):
            print_folded(f"{label}: {one}")


def _lines(name: str, summary: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Rows of the table: one for each number, and for each length, of a column."""
    from logloom.pipelines.stats.stats import elements

    missing = str(summary["unavailable"]) if "unavailable" in summary else ""
    for label, lane in elements(name, summary):
        yield (label, missing, *_cells(lane))
        missing = ""


def _cells(summary: Mapping[str, Any]) -> tuple[str, ...]:
    quantiles = summary.get("quantiles", {})
    numbers = [summary.get("min"), *(quantiles.get(p) for p in ("1", "50", "99")), summary.get("max")]
    numbers += [summary.get("mean"), summary.get("std")]
    return (str(summary.get("count", "")), *("" if x is None else f"{x:.6g}" for x in numbers))


def _texts(name: str, summary: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """How often the texts and the few whole numbers of a column occur."""
    from logloom.pipelines.stats.stats import elements

    values_alone = {key: one for key, one in summary.items() if key != "lengths"}
    for label, one in elements(name, values_alone):
        distinct = one.get("distinct", {})
        values, counts = (distinct.get(key) or [] for key in ("values", "counts"))
        if 0 < len(values) <= min(_MOST_VALUES, sum(counts) / 2):  # those that occur once each say nothing
            pairs = sorted(zip(counts, values, strict=True), key=lambda pair: -pair[0])
            yield label, ", ".join(f"{value} ({count})" for count, value in pairs)


_MOST_VALUES = 20  # that are shown
