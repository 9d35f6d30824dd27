"""`logloom stats`: statistics of columns, and of splits."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from logloom.cli import terminal
from logloom.cli.options.groups import refuse_given, takes_groups
from logloom.cpus import available_cpus
from logloom.text import human_duration, human_number
from logloom.values import dataclass

if TYPE_CHECKING:
    from logloom.datasets.splits.split import Nearest
    from logloom.durations import Time

_MOST_VALUES = 20  # that are shown


_splits = partial(typer.Option, rich_help_panel="Splits")


@dataclass(frozen=True)
class SplitOptions:
    """What `--splits` shows."""

    splits: Annotated[
        bool, _splits("--splits", help="Show the splits: logs, rows, and how near one comes to another.")
    ] = False
    position: Annotated[
        str | None,
        _splits(
            metavar="COLUMN",
            help="Column of positions, to measure distances (default: that of the recipe's `split`).",
        ),
    ] = None
    by: Annotated[
        str | None,
        _splits(
            metavar="place|time|COLUMN",
            help="What `logloom.datasets.split` would split all rows by (default: the version's splits).",
        ),
    ] = None
    share: Annotated[
        list[str] | None,
        _splits(metavar="NAME=SHARE", help="With --by: split and its share. May be repeated."),
    ] = None
    cell: Annotated[
        str | None,
        _splits(metavar="LENGTH", help="With --by: size of a cell: metres, seconds, or a time such as 24h."),
    ] = None
    gap: Annotated[
        str | None,
        _splits(metavar="LENGTH", help="With --by: gap between splits: metres, seconds, or a time."),
    ] = None
    where: Annotated[str | None, _splits(help="With --by: filter that rows have to pass.")] = None


@terminal.command(
    "logloom stats /data/urban",
    "logloom stats /data/urban@7 --split train --columns 'ego.*' --json",
    "logloom stats /data/urban --log drive-07",
    "logloom stats /data/urban --splits --position ego.position",
    "logloom stats /data/urban --splits --by place --position ego.position --cell 500 --gap 50 "
    "--share train=0.8 --share val=0.2",
)
@takes_groups()
def stats(
    root: terminal.Root,
    split: Annotated[str | None, typer.Option(help="Split to show (default: all).")] = None,
    log: Annotated[
        list[str] | None,
        typer.Option("--log", metavar="LOG_ID", help="Log to count rows of. May be repeated."),
    ] = None,
    columns: terminal.Columns = None,
    every_value: Annotated[
        bool,
        typer.Option(
            "--every-value", help="Read all rows, and count every value of images and point clouds."
        ),
    ] = False,
    workers: terminal.LocalWorkers = None,
    json: terminal.Json = False,
    storage_option: terminal.StorageOption = None,
    *,
    divided: SplitOptions,
) -> None:
    """Show statistics of a dataset's columns, or of its splits.

    Of columns: counts, range, mean, quantiles, values. With --splits: logs and rows of each split, and how
    near one comes to another; exits with code 3 if rows of two splits are nearer than the `gap` by which
    a build split them.
    """
    options = terminal.parse_storage_options(storage_option)
    if divided.splits:
        of_columns = {"--split": split, "--log": log, "--columns": columns, "--every-value": every_value}
        refuse_given({**of_columns, "--workers": workers}, "--splits counts logs and rows of all splits")
        _show_splits(root, divided, options, json=json)
        return
    of_splits = {f"--{name}": value for name, value in dataclasses.asdict(divided).items()}
    refuse_given(of_splits, "it goes with --splits")
    _show_columns(root, split, log, columns, every_value, workers, options, json=json)


def _show_columns(
    root: str,
    split: str | None,
    logs: list[str] | None,
    columns: list[str] | None,
    every_value: bool,
    workers: int | None,
    options: dict[str, Any],
    *,
    json: bool,
) -> None:
    from logloom.io.catalog.manifest import split_root
    from logloom.pipelines.stats.stats import column_statistics, sample_note
    from logloom.text import counted

    where, version = split_root(root)
    found = column_statistics(
        where,
        version,
        split=split,
        logs=logs,
        columns=columns,
        every_value=every_value,
        num_workers=workers or available_cpus(),
        storage_options=options,
    )
    if json:
        terminal.print_json(found.to_json())
        return
    shown = found.columns()
    title = f"version {found.version}, split {', '.join(found.splits)}: {counted(found.rows, 'row')} of "
    title += counted(found.logs, "log")
    heads = ("column", "unavailable", "count", "min", "1%", "50%", "99%", "max", "mean", "std")
    terminal.print_table(
        title, heads, [line for name, summary in shown.items() for line in _lines(name, summary)]
    )
    for name, summary in shown.items():
        if note := sample_note(summary):
            terminal.print_folded(f"{name}: {note} (--every-value does)")
        for label, one in _texts(name, summary):
            terminal.print_folded(f"{label}: {one}")


def _lines(name: str, summary: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Return rows of the table: one for each number, and each length, of a column."""
    from logloom.pipelines.stats.stats import elements

    missing = str(summary["unavailable"]) if "unavailable" in summary else ""
    for label, lane in elements(name, summary):
        yield (label, missing, *_cells(lane))
        missing = ""


def _cells(summary: Mapping[str, Any]) -> tuple[str, ...]:
    quantiles = summary.get("quantiles", {})
    numbers = [summary.get("min"), *(quantiles.get(p) for p in ("1", "50", "99")), summary.get("max")]
    numbers += [summary.get("mean"), summary.get("std")]
    return (str(summary.get("count", "")), *(human_number(x, summary.get("unit", "")) for x in numbers))


def _texts(name: str, summary: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Describe how often the texts, or a few whole numbers, of a column occur."""
    from logloom.pipelines.stats.stats import elements

    values_alone = {key: one for key, one in summary.items() if key not in ("lengths", "inner_lengths")}
    for label, one in elements(name, values_alone):
        distinct = one.get("distinct", {})
        values, counts = (distinct.get(key) or [] for key in ("values", "counts"))
        if 0 < len(values) <= min(_MOST_VALUES, sum(counts) / 2):  # values that occur once each say little
            pairs = sorted(zip(counts, values, strict=True), key=lambda pair: -pair[0])
            yield label, ", ".join(f"{value} ({count})" for count, value in pairs)


def _show_splits(root: str, given: SplitOptions, options: dict[str, Any], *, json: bool) -> None:
    from logloom.datasets.splits.separation import requested_splits, version_splits
    from logloom.pipelines.stats.split_distances import proof_of
    from logloom.pipelines.stats.splits import empty_row_splits, empty_splits

    if given.by is None:
        shapes = {"--share": given.share, "--cell": given.cell, "--gap": given.gap}
        refuse_given(shapes, "it shapes the splits that --by makes; give --by, too")
        refuse_given({"--where": given.where}, "it goes with --by: the version's own splits are of all rows")
        found = version_splits(root, given.position, options)
        counts = dict(found.counts)
        warnings = empty_row_splits(counts) if found.of_rows else empty_splits(counts)
    else:
        lengths = _length(given.cell), _length(given.gap) or 0.0
        found = requested_splits(
            root, given.share or (), given.by, *lengths, given.position, options, given.where
        )
        warnings = empty_row_splits(found.counts)
    proof = proof_of(found.rule, found.metres, found.seconds)
    if json:
        least = {"least": proof.to_json()} if proof is not None else {}
        terminal.print_json({**found.to_json(), **least, "warnings": warnings})
    else:
        lines = [(name, f"{one['logs']:,}", f"{one['rows']:,}") for name, one in found.counts.items()]
        terminal.print_table(root, ("split", "logs", "rows"), lines)
        if found.of_rows:
            terminal.print_folded(f"in no split: {found.left_out:,} rows")
        if found.guaranteed:
            terminal.print_folded(f"any two splits are at least {found.guaranteed} apart, as builds cut them")
        for one in found.nearest:
            terminal.print_folded(_nearest(one, f"{human_number(one.apart)} m", "no two positions"))
        for one in found.nearest_in_time:
            terminal.print_folded(_nearest(one, human_duration(round(one.apart * 1e9)), "no two rows"))
        if proof is not None and proof.is_kept is not False:
            terminal.print_folded(proof.in_words())
    for warning in warnings:
        terminal.print_message(f"warning: {warning}")
    if proof is not None and proof.is_kept is False:
        terminal.print_message(f"{root}: {proof.in_words()}")
        raise typer.Exit(terminal.NOT_WHOLE)


def _length(text: str | None) -> Time | None:
    """Parse a number of metres or seconds; a text with a unit stays as it is."""
    try:
        return None if text is None else float(text)
    except ValueError:
        return text


def _nearest(found: Nearest, apart: str, without: str) -> str:
    ends: list[Any] = [f"{log_id} at {stamp}" for log_id, stamp in found.rows]
    names = " and ".join(found.splits)
    return f"{names}: {apart} apart ({', '.join(ends)})" if ends else f"{names}: {without}"
