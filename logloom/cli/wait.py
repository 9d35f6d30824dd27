"""`logloom wait`: until no build of a dataset runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from logloom.cli.status import BuildRoot, root_at, show_builds
from logloom.cli.terminal.output import (
    FAILED,
    NOT_WHOLE,
    Json,
    Quiet,
    StorageOption,
    app,
    examples,
    print_message,
)

if TYPE_CHECKING:
    from logloom.pipelines.status import BuildStatus


@app.command(epilog=examples("logloom wait /data/urban", "logloom wait gs://datasets/urban --timeout 3600"))
def wait(
    root: BuildRoot,
    timeout: Annotated[float | None, typer.Option(min=0, help="Fail after this many seconds.")] = None,
    quiet: Quiet = False,
    json: Json = False,
    storage_option: StorageOption = None,
) -> None:
    """Wait until no build of a dataset runs. Fails if one of them, or else the latest, committed nothing."""
    from logloom.pipelines import status as builds

    store = root_at(root, storage_option)
    noted: set[str] = set()

    def print_status(one: BuildStatus) -> None:
        if not quiet and one.run not in noted:
            noted.add(one.run)
            print_message(f"waiting for {one.in_words()}")

    found = builds.wait(store, timeout=timeout, on_status=print_status)
    show_builds(found, store.uri, json)
    if not all(one.state in ("committed", "unchanged") for one in found):
        raise typer.Exit(FAILED)
    if not all(one.whole for one in found):
        raise typer.Exit(NOT_WHOLE)
