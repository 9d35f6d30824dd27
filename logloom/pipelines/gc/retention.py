"""Retention: versions that `logloom gc` keeps, and checks of their manifests.

Elsewhere: what versions need (logloom.io.catalog.artifacts), removing everything else
(logloom.pipelines.gc.gc), references into a root (`ReferredFormat` in logloom.io.formats.capabilities).
"""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Iterable, Mapping, Sequence

from logloom.errors import DatasetError, UsageError
from logloom.io.catalog.manifest import Manifest, manifest_at
from logloom.io.catalog.version_files import lost_manifest, view_folder
from logloom.io.formats.capabilities import USERS
from logloom.io.formats.registry import referred_to
from logloom.io.storage.store import Store
from logloom.recipe import Keep

_NOTHING_REMOVED = "nothing was removed: the needs of that version are unknown"


def kept_versions(times: Mapping[int, float | None], tagged: Iterable[int], keep: Keep | None) -> set[int]:
    """The versions that stay.

    Args:
        times: of all versions, when each was committed, in seconds since the Unix epoch; None where that
            isn't known: such a version stays where a rule asks for days.
        keep: None keeps all.
    """
    numbers = sorted(times)
    if keep is None:
        return set(numbers)
    kept = set(numbers[-(keep.last or 1) :])
    if keep.tags == "all":
        kept |= set(tagged) & times.keys()
    if keep.daily:
        timed = {n: at for n in numbers if (at := times[n]) is not None}
        kept |= times.keys() - timed.keys()
        newest_of_day = {
            datetime.datetime.fromtimestamp(at, datetime.UTC).date(): n for n, at in timed.items()
        }
        kept |= {newest_of_day[day] for day in sorted(newest_of_day, reverse=True)[: keep.daily]}
    return kept


def check_users(store: Store, number: int | None = None) -> None:
    """Check that the needs of datasets elsewhere that point into a root, or into a view of it, can be known.

    Raises:
        UsageError: they left notes, and no installed part reads those.
    """
    if referred_to():
        return
    view = None if number is None else view_folder(number)
    outputs = [] if view is None else [f"{view}/{output}" for output in store.names(view)]
    splits = [f"{output}/{split}/" for output in outputs for split in store.names(output)]
    for folder in splits if number is not None else [""]:
        if store.names(f"{folder}{USERS}"):
            raise UsageError(
                f"{store.uri_of(f'{folder}{USERS}')}: no installed part reads notes of datasets elsewhere "
                "that need files of this root; install the part that wrote them, or remove the notes"
            )


def view_users(store: Store, number: int) -> list[str]:
    """The notes of datasets elsewhere that point into the view of a version.

    Raises:
        UsageError: no installed part reads them.
    """
    check_users(store, number)
    return [note for form in referred_to() for note in form.notes(store, number)]


def check_found(store: Store, lost: Sequence[int]) -> None:
    """Raises DatasetError if the manifest of a version is lost."""
    for number in lost:
        raise DatasetError(f"{lost_manifest(store, number)}\n{_NOTHING_REMOVED}")


def check_versions(store: Store, numbers: Sequence[int], *, may_lack: bool = False) -> list[Manifest]:
    """The manifests of versions, which are needed whole to know what can go.

    Args:
        may_lack: a lost one is left out: its version was given up.

    Raises:
        DatasetError: one is damaged.
    """
    missing = (UsageError,) if may_lack else ()
    found = []
    try:
        for number in numbers:
            with contextlib.suppress(*missing):
                found.append(manifest_at(store, number))
    except DatasetError as error:
        raise DatasetError(f"{error}\n{_NOTHING_REMOVED}") from error
    return found
