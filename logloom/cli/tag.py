"""`logloom tag`: name a version."""

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
    print_message,
)

Names = Annotated[
    list[str], typer.Argument(metavar="TAG...", help="Names of letters, digits, dots, _ and -.")
]


@app.command(
    epilog=examples("logloom tag /data/urban@7 gold", "logloom tag gs://datasets/urban gold paper --move")
)
def tag(
    root: Root,
    names: Names,
    move: Annotated[bool, typer.Option("--move", help="Move a tag that another version has.")] = False,
    json: Json = False,
    storage_option: StorageOption = None,
) -> None:
    """Name a version, so that ROOT@NAME opens it."""
    from logloom.io.catalog.manifest import split_root
    from logloom.io.storage.store import Store
    from logloom.pipelines.versions.tag import tag as run

    where, version = split_root(root)
    store = Store.at(where, parse_storage_options(storage_option))
    number, tags = run(store, version, names, move=move)
    show_tags(tags, f"version {number} of {store.uri} is {', '.join(dict.fromkeys(names))}", json)


def show_tags(tags: dict[str, int], message: str, json: bool) -> None:
    if json:
        print_json(dict(sorted(tags.items())))
    print_message(message)
