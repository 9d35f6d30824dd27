"""Roots of small made-up versions, written without a build: for tests of what happens to whole roots."""

import dataclasses
import os
import pathlib
import time
from collections.abc import Mapping, Sequence

from blake3 import blake3

from logloom.io.catalog.entries import ENTRY, Entry, FileEntry, write_log_part
from logloom.io.catalog.log_statistics import noted, write_statistics
from logloom.io.catalog.manifest import Manifest, as_laid_out, digest_of_manifest
from logloom.io.catalog.manifest_digest import write_digest
from logloom.io.catalog.page_merge import write_records
from logloom.io.catalog.pages import LogRecord
from logloom.io.catalog.version_files import version_file
from logloom.io.storage.metadata import canonical
from logloom.io.storage.store import Store
from logloom.schema import Schema
from logloom.statistics.columns import Statistics
from logloom.transforms.build.job import Committed

DAY = 86400.0
PAYLOAD = b"rows"


def made_up_unit(log_id: str, number: int = 0, output: str = "tar") -> Entry:
    """The entry of a unit of one file, at a place of its own."""
    identity = blake3(f"{output}/{log_id}/{number}".encode()).hexdigest()[:32]
    file = FileEntry("rows.bin", len(PAYLOAD), blake3(PAYLOAD).hexdigest())
    where = log_id, f"{log_id}-content", str(number), number, number + 1
    return Entry(output, identity, *where, 1, (file,), {}, {}, {}, {}, noted(Statistics({})))


def write_unit(store: Store, entry: Entry) -> Entry:
    """A finished unit."""
    store = as_laid_out(store)
    store.replace(f"{entry.folder}/rows.bin", PAYLOAD)
    store.replace(f"{entry.folder}/{ENTRY}", canonical(entry.to_json()))
    return entry


def written_log(store: Store, log_id: str, num_units: int = 2) -> LogRecord:
    """The record of a log whose units are all there."""
    units = [write_unit(store, made_up_unit(log_id, number)) for number in range(num_units)]
    part = write_log_part(store, units)
    return LogRecord(
        log_id,
        (f"/logs/{log_id}",),
        blake3(log_id.encode()).hexdigest(),
        "all",
        f"key of {log_id}",
        "whole",
        part,
        num_units,
        num_units,
        {},
        0,
        units=num_units,
        statistics=write_statistics(store, log_id, Statistics({})),
    )


def commit_version(store: Store, number: int, log_ids: Sequence[str], **fields: object) -> Manifest:
    """A version of some logs, which has the one before for its parent."""
    logs = write_records(store, (written_log(store, log_id) for log_id in sorted(log_ids)))
    recipe: Mapping[str, object] = {"columns": {}}
    made = Manifest(
        number,
        number - 1 or None,
        "made-up",
        recipe,
        Schema({}).to_json(),
        "plan",
        {"tar": {}},
        logs,
        (),
        logs.totals,
        "new",
        {},
        digest_of_manifest(store, number - 1) if number > 1 else "",
        {},
        "",
        {},
    )
    manifest = dataclasses.replace(made, **fields)  # type: ignore[arg-type]
    store.create(version_file(number), manifest.to_bytes())
    write_digest(store, number, manifest.to_bytes())
    return manifest


def following(store: Store, manifest: Manifest) -> Committed:
    """As workers see a build upon a version."""
    return dataclasses.replace(
        Committed.of(store, manifest),
        number=manifest.version + 1,
        parent=manifest.version,
        parent_digest=digest_of_manifest(store, manifest.version),
    )


def age(root: pathlib.Path, days: float) -> None:
    """Makes all files below look as if they had been written so long ago."""
    then = time.time() - days * DAY
    for path in [root, *root.rglob("*")]:
        os.utime(path, (then, then), follow_symlinks=False)


def contents(root: pathlib.Path) -> dict[str, bytes]:
    """All files of a root, but for the mutable ones."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.relative_to(root).parts[0] not in ("runs", "tmp")
    }
