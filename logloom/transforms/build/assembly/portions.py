"""Portions of assembled outputs: existing ones, and the files of the others.

Elsewhere: a format's plan (`PlannedPortion` in logloom.io.formats.interface), their layout in a root
(logloom.io.catalog.assembled_outputs), the outputs that name them (files), portions of units
(logloom.transforms.build.unit_writer).
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Collection, Iterable, Mapping

from logloom.digests import digest_of
from logloom.errors import DatasetError
from logloom.io.catalog.assembled_outputs import PortionEntry, SharedPortion, covering, find_portion
from logloom.io.catalog.entries import FileEntry, unit_folder
from logloom.io.catalog.manifest import read_assembled
from logloom.io.formats.interface import AssemblyPlan, PlannedPortion
from logloom.transforms.build.job import Target


def portion_identity(job: Target, output: str, portion: PlannedPortion) -> str:
    """The name of a portion's folder; digest of all that its files depend on."""
    return digest_of(["portion", job.output_identity(output), portion.path, portion.inputs])[:32]


def portions_of_parent(job: Target, output: str) -> dict[str, SharedPortion]:
    """By identity, the portions that the parent version has of an output, in any split."""
    portions = {}
    for part in job.assembled:
        if part.output == output:
            with contextlib.suppress(DatasetError):  # it is for `verify` to say, and all is made anew
                portions.update({p.identity: p for p in read_assembled(job.store, part).portions})
    return portions


def finished_portion(job: Target, output: str, identity: str) -> PortionEntry | None:
    """The entry of a portion that is there, all its files in their sizes."""
    try:
        found = find_portion(job.store, output, identity)
    except DatasetError:
        return None  # damaged: written again, which replaces what differs
    if found is None:
        return None
    sizes = job.store.sizes(unit_folder(output, identity))
    return found if all(sizes.get(file.name) == file.size for file in found.files) else None


def small_files(
    plan: AssemblyPlan, left_out: Collection[str] = ()
) -> tuple[dict[str, bytes], dict[str, dict[str, bytes]]]:
    """The files of a plan that belong to no chunk: those in no portion, and those of portions by path.

    Args:
        left_out: paths of portions whose files aren't needed, so that they aren't made.
    """
    own: dict[str, bytes] = {}
    of_portions: dict[str, dict[str, bytes]] = {portion.path: {} for portion in plan.portions}
    paths = {path: path for path in of_portions}
    for name in plan.files:
        path = covering(paths, name)
        if path is None:
            own[name] = plan.files[name]
        elif path not in left_out:
            of_portions[path][name] = plan.files[name]
    return own, of_portions


def portion_entry(
    output: str, path: str, files: Iterable[FileEntry], made_by: Mapping[str, str]
) -> PortionEntry:
    """The entry of a portion of assembled outputs."""
    ordered = tuple(sorted(files, key=operator.attrgetter("name")))
    return PortionEntry(output, path, ordered, dict(made_by))
