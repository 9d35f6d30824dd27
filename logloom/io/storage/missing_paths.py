"""The problem of a path at which nothing is, with the nearest path that exists."""

from __future__ import annotations

import contextlib

from logloom.errors import StorageError
from logloom.io.storage.store import Store
from logloom.text import near_to


def missing_words(store: Store) -> str:
    """Return that nothing is at a place, with the nearest file or folder; "" if something is there.

    Examples:
        >>> missing_words(Store.at("demo/datset"))
        'there is no such file or folder; did you mean dataset?'
        >>> missing_words(Store.at("demo/dataset"))
        ''
    """
    if store.local is None:
        if store.names() or store.exists(""):
            return ""
        parent, _, name = store.uri.rpartition("/")
        beside = []
        if not parent.endswith(("/", "!")):  # a bucket, or an archive
            with contextlib.suppress(StorageError):
                beside = Store.at(parent, store.options).names()
        if name in beside:  # another process has made it since
            return ""
        near = near_to(name.partition("@")[0], beside, most=0)
        return f"nothing is there{near or '; check the path'}"
    if store.local.exists():
        return ""
    missing = store.local
    while not missing.parent.exists():
        missing = missing.parent
    if missing.is_symlink():
        return f"{missing} is a link to a missing place; did its target move?"
    beside = sorted(path.name for path in missing.parent.iterdir()) if missing.parent.is_dir() else []
    if missing.name in beside:  # another process has made it since
        return ""
    near = near_to(missing.name.partition("@")[0], beside, most=0)
    where = "" if missing == store.local else f": {missing.parent} has no {missing.name!r}"
    return f"there is no such file or folder{where}{near or '; check the path'}"
