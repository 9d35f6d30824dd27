"""`logloom untag`: take names of versions away."""

from __future__ import annotations

from logloom.cli.common import BareRoot, Json, StorageOption, app, examples, parse_storage_options
from logloom.cli.tag import Names, show_tags


@app.command(epilog=examples("logloom untag /data/urban gold"))
def untag(root: BareRoot, names: Names, json: Json = False, storage_option: StorageOption = None) -> None:
    """Remove tags; the versions stay."""
    from logloom.io.storage import Store
    from logloom.pipelines.tagging import untag as run

    store = Store.at(root, parse_storage_options(storage_option))
    show_tags(run(store, names), f"no version of {store.uri} is {', '.join(dict.fromkeys(names))} now", json)
