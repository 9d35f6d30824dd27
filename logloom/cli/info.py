"""`logloom info`: show the topics of logs."""

from __future__ import annotations

from typing import Annotated

import typer

from logloom.cli import terminal
from logloom.errors import UsageError


@terminal.command(
    "logloom info drive.mcap",
    "logloom info 'gs://drives/2026-11-*/*.mcap' --json",
    "logloom info drive.mcap --recipe > recipe.yaml",
    "logloom info drive.mcap --tree",
    "logloom info damaged.mcap --on-error salvage",
)
def info(
    logs: terminal.LogsArgument,
    recipe: Annotated[
        bool, typer.Option("--recipe", help="Print a recipe that can be built as it is.")
    ] = False,
    tree: Annotated[
        bool,
        typer.Option(
            "--tree",
            help="Draw the tree of frames of the /tf topics, with rates, and the cameras whose calibration "
            "changes; reads all transforms.",
        ),
    ] = False,
    on_error: Annotated[
        terminal.OnError | None,
        typer.Option(
            help="Damaged logs: fail (the default), skip them, or salvage undamaged messages; --recipe "
            "writes it down."
        ),
    ] = None,
    json: terminal.Json = False,
    storage_option: terminal.StorageOption = None,
) -> None:
    """Show the topics of logs: types, counts, rates, times.

    Reads indices, and the beginning of video. Exits with code 3 if a log was salvaged or skipped, or isn't
    closed by its recorder.
    """
    from logloom.pipelines.info.info import COLUMNS, describe, suggested_recipe

    if recipe and json:
        raise UsageError("--recipe prints YAML; leave out --json, or --recipe")
    if recipe and tree:
        raise UsageError("--recipe prints a recipe alone; leave out --tree, or --recipe")
    options = terminal.parse_storage_options(storage_option)
    mode = terminal.mode_of(on_error)
    notes: list[str] = []
    if recipe:
        text = suggested_recipe(logs, options, mode, notes.append, on_skipped=terminal.print_message)
        print(text, end="")
    elif tree:
        from logloom.pipelines.info.tree import draw_trees

        drawn = draw_trees(logs, options, mode, notes.append, terminal.print_message)
        if json:
            terminal.print_json({"logs": [log.to_json() for log in drawn]})
        for log in () if json else drawn:
            terminal.print_result("\n".join(log.lines()))
    else:
        described = describe(logs, options, mode, notes.append, terminal.print_message)
        if json:
            terminal.print_json({"logs": [log.to_json() for log in described]})
        for one in () if json else described:
            terminal.print_table(one.headline, COLUMNS, one.table_rows())
    for note in notes:
        terminal.print_message(note)
    if notes:
        raise typer.Exit(terminal.NOT_WHOLE)
