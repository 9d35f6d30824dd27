"""Splits of a dataset, and how far they lie apart: `splits`."""

from __future__ import annotations

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
    print_folded,
    print_json,
    print_message,
    print_table,
)
from logloom.errors import UsageError

if TYPE_CHECKING:
    from logloom.datasets.splits.separation import Separation
    from logloom.datasets.splits.split import Nearest
    from logloom.durations import Time


Cell = Annotated[
    str | None,
    typer.Option(metavar="LENGTH", help="With --by: size of a cell: metres, seconds, or a time such as 24h."),
]
Gap = Annotated[
    str | None,
    typer.Option(metavar="LENGTH", help="With --by: gap between splits: metres, seconds, or a time."),
]


@app.command(
    epilog=examples(
        "logloom splits /data/urban --position ego.position",
        "logloom splits /data/urban --by place --position ego.position --cell 500 --gap 50 "
        "--share train=0.8 --share val=0.2",
    )
)
def splits(
    root: Root,
    position: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column of positions, to tell how near splits come (default: that of the recipe's `split`).",
        ),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            metavar="place|time|COLUMN",
            help="What `logloom.datasets.split` would split all rows by (default: the version's splits).",
        ),
    ] = None,
    share: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=SHARE", help="With --by: split and its share. May be repeated."),
    ] = None,
    cell: Cell = None,
    gap: Gap = None,
    where: Annotated[str | None, typer.Option(help="With --by: filter that rows have to pass.")] = None,
    json: Json = False,
    storage_option: StorageOption = None,
) -> None:
    """Show the splits of a dataset: their logs and rows, and how near one comes to another.

    Exits with 3 if rows of two splits lie nearer than the `gap` by which a build split them.
    """
    from logloom.datasets.splits.separation import requested_splits, version_splits
    from logloom.pipelines.stats.split_distances import proof_of
    from logloom.pipelines.stats.splits import empty_row_splits, empty_splits

    options = parse_storage_options(storage_option)
    if by is None:
        if share or cell is not None or gap is not None:
            raise UsageError("--share, --cell and --gap shape the splits that --by makes; give --by, too")
        if where is not None:
            raise UsageError("--where goes with --by: the version's own splits are of all rows")
        found = version_splits(root, position, options)
        counts = dict(found.counts)
        warnings = empty_row_splits(counts) if found.of_rows else empty_splits(counts)
    else:
        lengths = _length(cell), _length(gap) or 0.0
        found = requested_splits(root, share or (), by, *lengths, position, options, where)
        warnings = empty_row_splits(found.counts)
    proof = proof_of(found.rule, found.metres, found.seconds)
    if json:
        least = {"least": proof.to_json()} if proof is not None else {}
        print_json({**found.to_json(), **least, "warnings": warnings})
    else:
        _show(root, found)
        if proof is not None and proof.is_kept is not False:
            print_folded(proof.in_words())
    for warning in warnings:
        print_message(f"warning: {warning}")
    if proof is not None and proof.is_kept is False:
        print_message(f"{root}: {proof.in_words()}")
        raise typer.Exit(NOT_WHOLE)


def _length(text: str | None) -> Time | None:
    """A number of metres or seconds, or else a text that says its unit."""
    try:
        return None if text is None else float(text)
    except ValueError:
        return text


def _show(root: str, found: Separation) -> None:
    """What was counted and measured, for people."""
    lines = [(name, f"{one['logs']:,}", f"{one['rows']:,}") for name, one in found.counts.items()]
    print_table(root, ("split", "logs", "rows"), lines)
    if found.of_rows:
        print_folded(f"in no split: {found.left_out:,} rows")
    if found.guaranteed:
        print_folded(f"any two splits lie at least {found.guaranteed} apart, as builds cut them")
    for one in found.nearest:
        print_folded(_line(one, f"{one.apart:.6g} m", "no two positions"))
    for one in found.nearest_in_time:
        print_folded(_line(one, f"{one.apart:.9g} s", "no two rows"))


def _line(found: Nearest, apart: str, without: str) -> str:
    ends: list[Any] = [f"{log_id} at {stamp}" for log_id, stamp in found.rows]
    names = " and ".join(found.splits)
    return f"{names}: {apart} apart ({', '.join(ends)})" if ends else f"{names}: {without}"
