"""Looking at logs: `info`, `doctor`."""

from __future__ import annotations

from typing import Annotated

import typer

from logloom.cli.common import (
    FAILED,
    NOT_WHOLE,
    Json,
    OnError,
    StorageOption,
    app,
    examples,
    mode_of,
    parse_storage_options,
    print_json,
    print_table,
    say,
    show,
)
from logloom.errors import UsageError


@app.command(
    epilog=examples(
        "logloom info drive.mcap",
        "logloom info 'gs://drives/2026-11-*/*.mcap' --json",
        "logloom info drive.mcap --recipe > recipe.yaml",
        "logloom info damaged.mcap --on-error salvage",
    )
)
def info(
    logs: Annotated[list[str], typer.Argument(metavar="LOG...", help="Log files, folders, URIs or globs.")],
    recipe: Annotated[
        bool, typer.Option("--recipe", help="Print a recipe that can be built as it is.")
    ] = False,
    on_error: Annotated[
        OnError | None,
        typer.Option(help="Of damaged logs: fail, skip them, or salvage; --recipe says so, too."),
    ] = None,
    json: Json = False,
    storage_option: StorageOption = None,
) -> None:
    """Show the topics of logs: types, counts, rates and times. Reads their indices only."""
    from logloom.pipelines import inspect

    if recipe and json:
        raise UsageError("--recipe prints YAML; leave out --json, or --recipe")
    options = parse_storage_options(storage_option)
    mode = mode_of(on_error)
    notes: list[str] = []
    if recipe:
        text = inspect.suggested_recipe(logs, options, mode, notes.append)
        print(text, end="")
    else:
        described = inspect.describe(logs, options, mode, notes.append)
        if json:
            print_json({"logs": [log.to_json() for log in described]})
        for log in () if json else described:
            print_table(log.headline, inspect.COLUMNS, log.table_rows())
    for note in notes:
        say(note)
    if notes:
        raise typer.Exit(NOT_WHOLE)


@app.command(
    epilog=examples(
        "logloom doctor drive.mcap",
        "logloom doctor 'gs://drives/2026-11-20/*.mcap' --json",
        "logloom doctor drive.mcap > /dev/null || echo 'needs care'",
    )
)
def doctor(
    logs: Annotated[list[str], typer.Argument(metavar="LOG...", help="Log files, folders, URIs or globs.")],
    json: Json = False,
    storage_option: StorageOption = None,
) -> None:
    """Read logs from end to end; report what is damaged, missing or strangely timed, and the remedy."""
    from logloom.pipelines.doctor import examine_all
    from logloom.pipelines.health import COLUMNS

    found = []
    for diagnosis in examine_all(logs, parse_storage_options(storage_option)):
        found.append(diagnosis)
        if json:
            continue
        if diagnosis.is_readable:
            print_table(diagnosis.headline, COLUMNS, [topic.table_row() for topic in diagnosis.topics])
        for line in diagnosis.lines():
            show(line)
    if json:
        print_json({"logs": [diagnosis.to_json() for diagnosis in found]})
    if not all(diagnosis.is_readable for diagnosis in found):
        raise typer.Exit(FAILED)
    if not all(diagnosis.is_healthy for diagnosis in found):
        raise typer.Exit(NOT_WHOLE)
