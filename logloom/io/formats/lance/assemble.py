"""Assembly of a Lance table from the data files of many units: its manifest, and its verification.

Here: pure functions. Elsewhere: data files (writer), the bytes of manifests (manifest), publishing files (the
caller).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple
from typing import Any

from pydantic import BaseModel

from logloom.errors import DatasetError
from logloom.io.arrow.layout import ArrowLayout
from logloom.io.catalog.entries import repair_hint
from logloom.io.formats.interface import AssemblyPlan, StagedUnit
from logloom.io.formats.lance.manifest import MANIFEST, DataFile, manifest_of, read_manifest
from logloom.io.formats.unit_summary import Closed
from logloom.io.storage.faults import MISSING
from logloom.io.storage.metadata import Count, Name
from logloom.io.storage.store import Store
from logloom.io.storage.threads import ahead
from logloom.values import dataclass


class ClosedLance(Closed):
    """The result of closing a unit's writer."""

    bytes: Count
    file: Name


class LancePlanJson(BaseModel):
    """The content of a plan: name, rows and bytes of each data file."""

    files: tuple[tuple[Name, Count, Count], ...]


@dataclass(frozen=True)
class ManifestTask:
    """The manifest of a table; `places` are the current paths of its data files, if they exist."""

    layout: ArrowLayout
    files: tuple[DataFile, ...]
    places: tuple[str, ...]


def plan_assembly(units: Sequence[StagedUnit], layout: ArrowLayout) -> AssemblyPlan:
    """Plans the table of some units in row order; reads nothing."""
    files = tuple(DataFile(unit.unit["file"], unit.rows, unit.unit["bytes"]) for unit in units)
    places = tuple(f"{unit.folder}/{file.name}" for unit, file in zip(units, files, strict=True))
    about = {"files": [list(astuple(file)) for file in files]}
    return AssemblyPlan([ManifestTask(layout, files, places)], {}, about, [MANIFEST])


def make_file(store: Store, task: ManifestTask) -> tuple[str, bytes]:
    """Make the name and the bytes of the manifest.

    Raises:
        DatasetError: a data file is missing, or of another length.
    """
    for place, file, size in zip(task.places, task.files, ahead(store.size, task.places), strict=True):
        if size != file.size:
            uri = store.uri_of(place)
            what = "there is no such file" if size is None else f"{size} bytes instead of {file.size}"
            raise DatasetError(f"{uri}: {what}; {repair_hint(uri)}")
    return MANIFEST, manifest_of(task.layout.arrow, task.files)


def problems(
    folder: str, unit: Mapping[str, Any], storage_options: Mapping[str, Any] | None
) -> Iterator[str]:
    """Compare a table's manifest, read by pylance, with its plan."""
    store = Store.at(folder, storage_options)
    place = store.uri_of(MANIFEST)
    try:
        schema, listed = read_manifest(place, store.read(MANIFEST))
    except MISSING:
        yield f"{MANIFEST}: there is no such file"
        return
    if ArrowLayout.of(schema, place) is None:
        yield f"{MANIFEST}: doesn't say what its columns are"
    files = None if listed is None else [file for file, _ in listed]
    wanted = [DataFile(*file) for file in unit["files"]]
    if files != wanted:
        odd = next((a for a, b in zip(files or (), wanted, strict=False) if a != b), None)
        about = f"{odd.name}: {odd.rows} rows, {odd.size} bytes" if odd else f"{len(files or ())} data files"
        yield f"{MANIFEST}: names {about}, which isn't what was written"
