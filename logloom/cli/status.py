"""What is known of builds: `status` and `wait`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from logloom.cli.common import (
    FAILED,
    NOT_WHOLE,
    Json,
    Quiet,
    StorageOption,
    app,
    examples,
    parse_storage_options,
    print_folded,
    print_json,
    print_message,
)
from logloom.errors import DatasetError

if TYPE_CHECKING:
    from logloom.io.storage import Store
    from logloom.pipelines.status import BuildStatus

BuildRoot = Annotated[str, typer.Argument(metavar="ROOT", help="The folder or URI that builds write to.")]


@app.command(epilog=examples("logloom status /data/urban", "logloom status gs://datasets/urban --json"))
def status(
    root: BuildRoot,
    last: Annotated[int, typer.Option(min=1, help="Show this many builds, the latest first.")] = 10,
    json: Json = False,
    storage_option: StorageOption = None,
) -> None:
    """Show the builds of a dataset: those that run, and how the others ended."""
    from logloom.pipelines.status import builds

    store = _root_at(root, storage_option)
    _show(builds(store, last=last), store.uri, json)


@app.command(epilog=examples("logloom wait /data/urban", "logloom wait gs://datasets/urban --timeout 3600"))
def wait(
    root: BuildRoot,
    timeout: Annotated[float | None, typer.Option(min=0, help="Fail after this many seconds.")] = None,
    quiet: Quiet = False,
    json: Json = False,
    storage_option: StorageOption = None,
) -> None:
    """Wait until no build of a dataset runs. Fails if one of these, or the latest, committed nothing."""
    from logloom.pipelines import status as builds

    store = _root_at(root, storage_option)
    noted: set[str] = set()

    def say(one: BuildStatus) -> None:
        if not quiet and one.run not in noted:
            noted.add(one.run)
            print_message(f"waiting for {one.in_words()}")

    found = builds.wait(store, timeout=timeout, on_status=say)
    _show(found, store.uri, json)
    if not all(one.state in ("committed", "unchanged") for one in found):
        raise typer.Exit(FAILED)
    if not all(one.whole for one in found):
        raise typer.Exit(NOT_WHOLE)


def _show(found: list[BuildStatus], root: str, json: bool) -> None:
    import dataclasses

    if json:
        print_json([dataclasses.asdict(one) for one in found])
        return
    for one in found:
        print_folded(one.in_words())
    if not found:
        print_message(f"{root}: no build has left anything here")


def _root_at(root: str, storage_option: list[str] | None) -> Store:
    """
    Raises:
        DatasetError: nothing is there.
    """
    from logloom.io.storage import Store

    store = Store.at(root, parse_storage_options(storage_option))
    if not (store.names() or (store.local is not None and store.local.is_dir())):
        raise DatasetError(f"{store.uri}: nothing is here; give the root that builds write to (--to)")
    return store
