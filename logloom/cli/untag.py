"""`logloom untag`: take names of versions away."""

from __future__ import annotations

from logloom.cli.tag import Names, show_tags
from logloom.cli.terminal.output import BareRoot, Json, StorageOption, app, examples, parse_storage_options


@app.command(epilog=examples("logloom untag /data/urban gold"))
def untag(root: BareRoot, names: Names, json: Json = False, storage_option: StorageOption = None) -> None:
    """Remove tags; the versions stay."""
    from logloom.io.storage.store import Store
    from logloom.pipelines.versions.tag import untag as run

    store = Store.at(root, parse_storage_options(storage_option))
    show_tags(run(store, names), f"no version of {store.uri} is {', '.join(dict.fromkeys(names))} now", json)
