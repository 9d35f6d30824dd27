"""`logloom status`: what is known of builds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from logloom.cli.terminal.output import (
    Json,
    StorageOption,
    app,
    examples,
    given_root,
    parse_storage_options,
    print_folded,
    print_json,
    print_message,
)
from logloom.errors import UsageError

if TYPE_CHECKING:
    from logloom.io.storage.store import Store
    from logloom.pipelines.status import BuildStatus

BuildRoot = Annotated[
    str, typer.Argument(metavar="ROOT", help="The folder or URI that builds write to.", callback=given_root)
]


@app.command(epilog=examples("logloom status /data/urban", "logloom status gs://datasets/urban --json"))
def status(
    root: BuildRoot,
    last: Annotated[int, typer.Option(min=1, help="Show this many builds, the latest first.")] = 10,
    json: Json = False,
    storage_option: StorageOption = None,
) -> None:
    """Show the builds of a dataset: those that run, and how the others ended."""
    from logloom.pipelines.status import builds

    store = root_at(root, storage_option)
    show_builds(builds(store, last=last), store.uri, json)


def show_builds(found: list[BuildStatus], root: str, json: bool) -> None:
    import dataclasses

    if json:
        print_json([dataclasses.asdict(one) for one in found])
        return
    for one in found:
        print_folded(one.in_words())
    if not found:
        print_message(f"{root}: no build has left anything here")


def root_at(root: str, storage_option: list[str] | None) -> Store:
    """
    Raises:
        UsageError: nothing is there.
    """
    from logloom.io.storage.store import Store

    store = Store.at(root, parse_storage_options(storage_option))
    if not store.names():
        raise UsageError(f"{store.uri}: nothing is here; give the root that builds write to (--to)")
    return store
