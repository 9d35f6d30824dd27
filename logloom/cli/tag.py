"""`logloom tag`: name versions."""

from __future__ import annotations

from typing import Annotated

import typer

from logloom.cli import terminal
from logloom.cli.options.groups import refuse_given
from logloom.cli.rollback import ResultOnly


@terminal.command(
    "logloom tag /data/urban@7 gold",
    "logloom tag gs://datasets/urban gold paper --move",
    "logloom tag /data/urban gold --delete",
)
def tag(
    root: terminal.Root,
    names: Annotated[
        list[str], typer.Argument(metavar="TAG...", help="Names of letters, digits, dots, _ and -.")
    ],
    move: Annotated[bool, typer.Option("--move", help="Move a tag that another version has.")] = False,
    delete: Annotated[bool, typer.Option("--delete", help="Remove the tags; the versions stay.")] = False,
    quiet: ResultOnly = False,
    json: terminal.Json = False,
    storage_option: terminal.StorageOption = None,
) -> None:
    """Name a version, so that ROOT@NAME opens it; or remove names."""
    from logloom.io.catalog.manifest import split_root
    from logloom.io.storage.store import Store
    from logloom.pipelines.versions import tag as tags_of

    options = terminal.parse_storage_options(storage_option)
    words = ", ".join(dict.fromkeys(names))
    if delete:
        refuse_given({"--move": move}, "--delete removes tags; leave out one of the two")
        store = Store.at(root, options)
        tags = tags_of.remove_tags(store, names)
        message = f"no version of {store.uri} is {words} now"
    else:
        where, version = split_root(root)
        store = Store.at(where, options)
        number, tags = tags_of.tag(store, version, names, move=move)
        message = f"version {number} of {store.uri} is {words}"
    if json:
        terminal.print_json(dict(sorted(tags.items())))
    if not quiet:
        terminal.print_message(message)
