"""`logloom head`: show rows of a dataset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from logloom.cli import terminal
from logloom.cli.options.groups import refuse_given
from logloom.errors import UsageError

if TYPE_CHECKING:
    from logloom.datasets.dataset import Dataset
    from logloom.pipelines.head.head import ShownRow


@terminal.command(
    "logloom head /data/urban -n 3",
    "logloom head /data/urban@7 --columns 'ego.*' --why",
    "logloom head /data/urban --where 'ego.speed > 10' --log drive-07",
)
def head(
    root: terminal.Root,
    rows: Annotated[int, typer.Option("-n", "--rows", min=1, help="Number of rows to show.")] = 5,
    skip: Annotated[int, typer.Option(min=0, help="Number of rows to skip first.")] = 0,
    columns: terminal.Columns = None,
    where: Annotated[
        str | None,
        typer.Option(metavar="FILTER", help="Filter that rows have to pass, as for open(where=...)."),
    ] = None,
    log: Annotated[
        list[str] | None,
        typer.Option("--log", metavar="LOG_ID", help="Log to show rows of. May be repeated."),
    ] = None,
    why: Annotated[
        bool, typer.Option("--why", help="Show the messages behind each value: time, age and place.")
    ] = False,
    output: Annotated[
        str | None, typer.Option(help="Output to read (default: as `logloom.datasets.open` chooses).")
    ] = None,
    json: terminal.Json = False,
    storage_option: terminal.StorageOption = None,
) -> None:
    """Show rows of a dataset; with --why, where their values come from."""
    from logloom.io.catalog.manifest import of_other_kind, split_root
    from logloom.io.storage.store import Store
    from logloom.pipelines.head.head import head as run

    place, version = split_root(root)
    options = terminal.parse_storage_options(storage_option)
    if _is_plain(root, place, options):
        if problem := of_other_kind(Store.at(root, options)):
            raise UsageError(f"{root}: {problem}")
        refuse_given({"--why": why or None}, f"{root} is no root of logloom and names no logs")
        shown = _plain_rows(root, output, skip, rows, columns, options, where, log)
    else:
        numbers = None
        if where is not None or log:
            numbers = _numbers(root, _chosen(root, output, None, options, where, log), skip, rows)
        shown = run(
            place,
            version,
            output=output,
            start=skip,
            count=rows,
            numbers=numbers,
            columns=columns,
            why=why,
            storage_options=options,
        )
    if json:
        terminal.print_json([row.to_json() for row in shown])
        return
    for row in shown:
        terminal.print_table(
            row.headline(), ("column", "value", *(("message time", "UTC", "age", "from") * why)), row.lines()
        )
        for line in row.recipe_lines():
            terminal.print_result(f"recipe: {line}")


def _is_plain(root: str, place: str, options: Mapping[str, Any]) -> bool:
    """Return whether something other than a root is at a place that names one, or a version of it."""
    from logloom.io.storage.store import Store

    if Store.at(place, options).names("versions"):
        return False
    store = Store.at(root, options)
    if store.names():
        return True
    from logloom.io.formats.foreign import kind_of

    return kind_of(store) is not None


def _plain_rows(
    root: str,
    output: str | None,
    start: int,
    count: int,
    columns: Sequence[str] | None,
    options: Mapping[str, Any],
    where: str | None,
    logs: Sequence[str] | None,
) -> list[ShownRow]:
    """Read rows of a dataset that is no root, as `logloom.open` opens it.

    Raises:
        UsageError: no such output, column or row.
        DatasetError: no dataset, or it is damaged.
    """
    import warnings

    from logloom.pipelines.head.head import ShownRow

    with warnings.catch_warnings(record=True) as found:
        rows = _chosen(root, output, columns, options, where, logs)
    for one in found:
        terminal.print_message(f"warning: {one.message}")
    numbers = _numbers(root, rows, start, count)
    marks = [mark for name in rows.columns if (mark := f"{name}.available") in rows.schema.meta]
    samples = rows.select([*rows.columns, *marks])[start : start + count]
    return [
        ShownRow(row, rows.schema, rows.columns, number) for row, number in zip(samples, numbers, strict=True)
    ]


def _numbers(root: str, rows: Dataset, start: int, count: int) -> list[int]:
    """Return the numbers of some of the chosen rows.

    Raises:
        UsageError: there is no row `start` among them.
    """
    from logloom.text import counted

    if 0 < start >= len(rows):
        raise UsageError(f"{root}: {counted(len(rows), 'row')}, so none is at {start:,}")
    numbers: list[int] = rows.positions[start : start + count].tolist()
    return numbers


def _chosen(
    root: str,
    output: str | None,
    columns: Sequence[str] | None,
    options: Mapping[str, Any],
    where: str | None,
    logs: Sequence[str] | None,
) -> Dataset:
    """Open the rows that pass a filter, of some logs.

    Raises:
        UsageError: no such output, column or log, or the filter can't be used.
        DatasetError: no dataset, or it is damaged.
    """
    from logloom.datasets.opening import open

    rows = open(root, output=output, columns=columns, where=where, storage_options=options)
    if not logs:
        return rows
    from logloom.query.where import all_of
    from logloom.text import near_to

    known = rows.source.stretches.log_ids
    for name in logs:
        if name not in known:
            raise UsageError(f"{root}: no rows of a log {name!r}{near_to(name, known)}")
    return rows.filter(all_of([("log_id", "in", logs)]).text)
