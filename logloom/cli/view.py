"""`logloom view`: make plain folders of a version."""

from __future__ import annotations

from typing import Annotated

import typer

from logloom.cli import terminal
from logloom.errors import UsageError


@terminal.command(
    "logloom view /data/urban@7",
    "logloom view gs://datasets/urban --copy",
    "logloom view gs://datasets/urban --list --output tar --split train > shards.txt",
)
def view(
    root: terminal.Root,
    copy: Annotated[
        bool, typer.Option("--copy", help="In an object store: copy the files within the store.")
    ] = False,
    listed: Annotated[
        bool, typer.Option("--list", help="Only list the URL of each file, e.g. for webdataset.")
    ] = False,
    output: Annotated[str | None, typer.Option(help="With --list: only files of this output.")] = None,
    split: Annotated[str | None, typer.Option(help="With --list: only files of this split.")] = None,
    json: terminal.Json = False,
    storage_option: terminal.StorageOption = None,
) -> None:
    """Make plain folders of a version, for the formats' own tools.

    A version's view has a folder for each format and split.
    """
    from logloom.io.catalog.manifest import open_root, split_root
    from logloom.io.storage.store import Store
    from logloom.pipelines.build.progress import steps
    from logloom.pipelines.view import copy_view, files_of, make_view

    where, version = split_root(root)
    store, manifest = open_root(Store.at(where, terminal.parse_storage_options(storage_option)), version)
    if listed:
        files = files_of(store, manifest, output, split)
        if json:
            terminal.print_json(
                [{"url": store.uri_of(f.stored), "name": f.name, "size": f.size} for f in files]
            )
        for file in () if json else files:
            print(store.uri_of(file.stored))
        return
    if store.local is not None:
        place = str(make_view(store, manifest)[0])
    elif copy:
        with steps("copying") as on_progress:
            place = copy_view(store, manifest, on_progress)
    else:
        raise UsageError(f"{where}: an object store has no links; use --copy for copies, or --list for URLs")
    if json:
        terminal.print_json({"version": manifest.version, "view": place})
    else:
        print(place)
