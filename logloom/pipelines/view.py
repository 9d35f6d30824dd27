"""The view: a committed version as plain folders, one a format and split, that the formats' own clients open.

Here: making the view of a version on a local disk from its manifest, by hard links, in one folder rename.
Elsewhere: what stands in the manifest (logloom.io.manifest); which files a format shows (`Format.view`).
On an object store the files stay where they are; `view_files` says where.
"""

from __future__ import annotations

import errno
import os
import pathlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass

from logloom.errors import DatasetError
from logloom.io.manifest import ENTRY, Manifest, entries_of, unit_folder, view_folder
from logloom.io.storage import Store, explained
from logloom.io.units import format_named


@dataclass(frozen=True)
class ViewedFile:
    """A file of a version: where it lies in the root, and its name in the view."""

    stored: str
    name: str
    size: int
    digest: str


def view_files(store: Store, manifest: Manifest) -> Iterator[ViewedFile]:
    """All files of a version in row order, units numbered from 0 over those that hold rows."""
    numbers: dict[tuple[str, str], int] = {}
    for record, entry in entries_of(store, manifest.logs):
        form = format_named(entry.output)
        if not entry.rows:
            continue
        folder = f"{entry.output}/{record.split}{form.suffix}"
        number = numbers.setdefault((entry.output, record.split), 0)
        numbers[entry.output, record.split] += 1
        shown = form.view(number, [file.name for file in entry.files])
        for file in entry.files:
            if file.name in shown:
                name = f"{folder}/{shown[file.name]}"
                yield ViewedFile(entry.path_of(file), name, file.size, file.digest)
    for part in manifest.assembled:
        stored = unit_folder(part.output, part.identity)
        for file in store.read_json(f"{stored}/{ENTRY}")["files"]:
            name = f"{part.output}/{part.split}{format_named(part.output).suffix}/{file['name']}"
            yield ViewedFile(f"{stored}/{file['name']}", name, file["size"], file["digest"])


def make_view(store: Store, manifest: Manifest) -> tuple[pathlib.Path, bool]:
    """Makes a version's view on a local disk; one that is there is left as it is.

    Returns:
        The folder, and whether files had to be copied because the disk has no hard links.

    Raises:
        DatasetError: a file of the version is missing.
    """
    assert store.local is not None
    target = store.local / view_folder(manifest.version)
    if target.is_dir():
        return target, False
    copied = False
    with store.scratch() as scratch, explained(str(target)):
        for file in view_files(store, manifest):
            path = scratch / file.name
            path.parent.mkdir(parents=True, exist_ok=True)
            copied |= _link(store.local / file.stored, path)
        try:
            scratch.rename(target)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):  # another build made the same view
                raise
    return target, copied


def _link(source: pathlib.Path, path: pathlib.Path) -> bool:
    """Links a file, or copies it where the disk can't link; says whether it copied."""
    try:
        os.link(source, path)
    except FileNotFoundError:
        raise DatasetError(
            f"{source}: a file of this version is missing; `logloom verify` lists all"
        ) from None
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.ENOSYS):
            raise
        shutil.copyfile(source, path)
        path.chmod(0o444)
        return True
    return False
