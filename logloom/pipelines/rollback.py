"""`rollback`: a new version that says what an earlier one does."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from logloom.errors import CommitConflictError, DatasetError, LogloomError, UsageError
from logloom.io.ahead import ahead
from logloom.io.assembled import assembled_files
from logloom.io.entries import ENTRY, read_log_part, unit_folder
from logloom.io.manifest import Manifest, manifest_at, read_assembled, read_manifest
from logloom.io.merging import merge_records
from logloom.io.purged import Purged
from logloom.io.storage import Store
from logloom.pipelines.versions import next_version
from logloom.pipelines.view import show
from logloom.transforms.finish import commit
from logloom.transforms.job import Committed
from logloom.transforms.outcomes import LogOutcomes
from logloom.transforms.running_note import Announced
from logloom.words import OnMessage, ignore_message


def rollback(
    store: Store,
    version: int | str,
    reason: str = "",
    *,
    view: str = "auto",
    on_message: OnMessage = ignore_message,
) -> tuple[Manifest, str]:
    """Commits a version that says what an earlier one does; gives it, and the folder of its view.

    No data is copied or read: both versions name the same units.

    Args:
        view: as of a build.

    Raises:
        UsageError: there is no such version, or the newest one says the same.
        DatasetError: it isn't there whole.
        CommitConflictError: another build committed this number first.
    """
    old = read_manifest(store, version)
    newest, following = next_version(store)
    assert newest is not None  # there is an old one
    store = following["store"]
    same = newest.logs == old.logs and newest.assembled == old.assembled and newest.outputs == old.outputs
    if same and newest.recipe == old.recipe:
        raise UsageError(
            f"{store.uri}: version {newest.version} is the newest one"
            if newest.version == old.version
            else f"{store.uri}: version {newest.version} already says what version {old.version} does"
        )
    words = f"rollback to version {old.version}{f': {reason}' if reason else ''}"
    job = dataclasses.replace(
        Committed.of(store, old), **(following | {"assembled": old.assembled}), allow_empty=True, reason=words
    )
    logs = old.logs if old.logs.is_stored else merge_records(store, old.logs, [])
    with Announced(job, "rollback"):  # so that `gc` and `purge` know of it before it looks
        for problem in _missing(store, old, newest):
            raise DatasetError(f"version {old.version} can't be gone back to: {problem}")
        assembled = [(part, (), len(read_assembled(store, part).portions)) for part in old.assembled]
        outcome = commit(job, LogOutcomes(version=logs.shards), assembled)
    _raise(outcome)
    made = manifest_at(store, job.number)  # which gc may have taken out since, after later ones
    return made, show(store, made, view, on_message)[0]


def _missing(store: Store, old: Manifest, newest: Manifest) -> Iterator[str]:
    """What an earlier version names and isn't there, as where it was purged.

    What the newest one names, too, isn't looked for.
    """
    purged = Purged(store)
    sound, problems = old.logs.whole() if old.logs.is_stored else (old.logs, [])
    yield from problems
    known = set(newest.logs.column("part").to_pylist()) - purged.parts
    parts = [part for part in sound.column("part").to_pylist() if part and part not in known]

    def lost(part: str) -> list[str]:
        if part in purged.parts:  # though a purge that is on its way may not have removed it yet
            return [f"{store.uri_of(f'logs/{part}.parquet')}: was purged"]
        try:
            folders = [f for entry in read_log_part(store, part, brief=True) for f in entry.folders]
        except DatasetError as error:
            return [str(error)]
        return [f"{store.uri_of(f)}: missing" for f in folders if not store.exists(f"{f}/{ENTRY}")]

    for found in ahead(lost, parts, threads=8):
        yield from found
    for part in old.assembled:
        if part not in newest.assembled or unit_folder(part.output, part.identity) in purged.folders:
            try:
                for place, file in assembled_files(store, part.identity, read_assembled(store, part)):
                    if store.size(place) != file.size:
                        yield f"{store.uri_of(place)}: missing"
            except DatasetError as error:
                yield str(error)


def _raise(outcome: dict[str, Any]) -> None:
    """Raises what kept a version from being committed."""
    if outcome["conflict"]:
        raise CommitConflictError(outcome["conflict"])
    if not outcome["committed"]:
        messages = [failure["message"] for failure in outcome["failures"]]
        raise LogloomError("\n".join(["nothing was committed", *messages, outcome["problem"]]).strip())
