"""`logloom head`: show rows of a dataset."""

from __future__ import annotations

from typing import Annotated

import typer

from logloom.cli.terminal.output import (
    Json,
    Root,
    StorageOption,
    app,
    examples,
    parse_storage_options,
    print_json,
    print_result,
    print_table,
)


@app.command(
    epilog=examples("logloom head /data/urban -n 3", "logloom head /data/urban@7 --columns 'ego.*' --why")
)
def head(
    root: Root,
    rows: Annotated[int, typer.Option("-n", "--rows", min=1, help="Number of rows to show.")] = 5,
    skip: Annotated[int, typer.Option(min=0, help="Number of rows to skip first.")] = 0,
    columns: Annotated[
        list[str] | None,
        typer.Option("--columns", "-c", help="Column to show, by name or glob. May be repeated."),
    ] = None,
    why: Annotated[
        bool, typer.Option("--why", help="Show the messages behind each value: time, age and place.")
    ] = False,
    output: Annotated[
        str | None, typer.Option(help="Output to read (default: as `logloom.datasets.open` chooses).")
    ] = None,
    json: Json = False,
    storage_option: StorageOption = None,
) -> None:
    """Show rows of a dataset; with --why, where their values come from."""
    from logloom.io.catalog.manifest import split_root
    from logloom.pipelines.head.head import head as run

    where, version = split_root(root)
    shown = run(
        where,
        version,
        output=output,
        start=skip,
        count=rows,
        columns=columns,
        why=why,
        storage_options=parse_storage_options(storage_option),
    )
    if json:
        print_json([row.to_json() for row in shown])
        return
    for row in shown:
        print_table(
            row.headline(), ("column", "value", *(("message time", "UTC", "age", "from") * why)), row.lines()
        )
        for line in row.recipe_lines():
            print_result(f"recipe: {line}")
