"""Statistics of columns: `stats`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from logloom.cli.common import (
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
        "logloom stats /data/urban",
        "logloom stats /data/urban@7 --split train --columns 'ego.*' --json",
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
    from logloom.io.manifest import split_root
    from logloom.pipelines.stats import column_statistics
    from logloom.words import counted

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
    print_table(title, heads, [line for name, said in shown.items() for line in _lines(name, said)])
    for name, said in shown.items():
        if said.get("left_out"):
            places = counted(said["left_out"], "position")
            print_folded(f"{name}: a sample of each value; {places} not looked at (--every-value does)")
        for label, one in _texts(name, said):
            print_folded(f"{label}: {one}")


def _lines(name: str, said: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Rows of the table: one for each number, and for each length, of a column."""
    missing = str(said["unavailable"]) if "unavailable" in said else ""
    own = [(name, said), *((f"{name} {field}", one) for field, one in said.get("fields", {}).items())]
    own += [(f"{name} lengths", said["lengths"])] if "lengths" in said else []
    for label, one in own:
        for element, told in _elements(one):
            yield (f"{label}{element}", missing, *_cells(told))
            missing = ""


def _elements(said: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """What is said of each element of a column; lists are taken apart."""
    counts = said.get("count")
    if not isinstance(counts, list):
        yield "", said
        return
    for number in range(len(counts)):
        quantiles = {percent: values[number] for percent, values in said.get("quantiles", {}).items()}
        told = {key: value[number] for key, value in said.items() if isinstance(value, list)}
        yield f"[{number}]", {**told, "quantiles": quantiles}


def _cells(said: Mapping[str, Any]) -> tuple[str, ...]:
    quantiles = said.get("quantiles", {})
    numbers = [said.get("min"), *(quantiles.get(p) for p in ("1", "50", "99")), said.get("max")]
    numbers += [said.get("mean"), said.get("std")]
    return (str(said.get("count", "")), *("" if x is None else f"{x:.6g}" for x in numbers))


def _texts(name: str, said: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """How often the texts and the few whole numbers of a column occur."""
    for label, one in ((name, said), *((f"{name} {f}", one) for f, one in said.get("fields", {}).items())):
        distinct = one.get("distinct")
        if isinstance(distinct, Mapping) and isinstance(distinct.get("values"), list):
            pairs = sorted(zip(distinct["counts"], distinct["values"], strict=True), key=lambda p: -p[0])
            if pairs and not isinstance(pairs[0][0], list | type(None)) and len(pairs) <= _MOST_VALUES:
                yield label, ", ".join(f"{value} ({count})" for count, value in pairs)


_MOST_VALUES = 20  # that are shown
