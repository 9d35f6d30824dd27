"""Logs of removed versions: a key for each log, instead of a manifest page.

    versions/past/<digest of the page>    a key of 8 bytes for each log_id, sorted; then a digest of these

A page is a file of a manifest, with the records of some logs. The manifest of a removed version stays, and
names its pages; those that no other version needs `logloom gc` replaces by the keys of their logs, in a
fourteenth of the space. So "which versions had this log?" can still be answered. Keys contain no names:
nothing here has to be purged.
Elsewhere: pages (logloom.io.catalog.pages), removing them (logloom.pipelines.gc.gc).
"""

from __future__ import annotations

import numpy as np
from blake3 import blake3

from logloom.errors import DatasetError
from logloom.io.catalog.pages import RecordPage
from logloom.io.catalog.records import LogRecords
from logloom.io.catalog.removal_notes import are_in, keys_of
from logloom.io.storage.store import Store

PAST = "versions/past"
_DIGEST = 16  # bytes


def keep_past(store: Store, page: RecordPage, folder: str) -> None:
    """Keep the keys of a page's logs, before it is removed.

    Args:
        folder: of the page.

    Raises:
        DatasetError: the page is missing or damaged.
    """
    log_ids = LogRecords(store, [page], folder).column("log_id").to_pylist()
    keys = keys_of(log_ids).astype("<u8").tobytes()
    store.restate(f"{PAST}/{page.digest}", keys + blake3(keys).digest(_DIGEST))


def had_log(store: Store, page: str, log_id: str) -> bool | None:
    """Return whether a page, by its digest, had a log; None if not kept.

    Raises:
        DatasetError: the file is damaged.
    """
    name = f"{PAST}/{page}"
    if (data := store.read_if_there(name)) is None:
        return None
    keys, digest = data[:-_DIGEST], data[-_DIGEST:]
    if len(keys) % 8 or blake3(keys).digest(_DIGEST) != digest:
        raise DatasetError(
            f"{store.uri_of(name)}: damaged: it lists the logs of removed versions; put it back from a "
            "backup, or remove it"
        )
    return bool(are_in(np.frombuffer(keys, "<u8").astype(np.uint64), [log_id])[0])
