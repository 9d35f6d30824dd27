"""The view: a committed version as plain folders, one per format and split.

The formats' own clients open these folders.
Here: where a version's files are and what the view calls them; making the view on a local disk by hard links,
in one folder rename, and in an object store by copies, made there, and a last object that marks the end.
Elsewhere: what is in the manifest (logloom.io.catalog.manifest); which files a format shows
(`Format.view`).
"""

from __future__ import annotations

import errno
import os
import pathlib
import shlex
import shutil
from collections.abc import Callable, Container, Iterator

from logloom.errors import DatasetError, UsageError, after_commit
from logloom.io.catalog.assembled_outputs import assembled_files
from logloom.io.catalog.entries import FileEntry, repair_hint
from logloom.io.catalog.manifest import Manifest, entries_of, read_assembled
from logloom.io.catalog.row_counts import row_split_names
from logloom.io.catalog.version_files import view_folder
from logloom.io.formats.registry import format_named
from logloom.io.storage.disk import NO_LINKS, sync, sync_all
from logloom.io.storage.filesystems import explained
from logloom.io.storage.store import Store
from logloom.io.storage.stored_files import UNITS
from logloom.io.storage.threads import ahead
from logloom.row_splits import COLUMN
from logloom.text import OnMessage, near_to
from logloom.values import dataclass

COPIED = "_SUCCESS"  # stands in a copied view once it is whole, as Hadoop's committers have it
_COPIERS = 16  # threads; they wait for the store
MAX_UNITS = 100_000  # a link for each takes some seconds, and an entry in a folder that tools list


@dataclass(frozen=True)
class ViewedFile:
    """A file of a version: where it is in the root, and its name in the view."""

    output: str
    split: str
    stored: str
    name: str
    size: int
    digest: str


def view_files(store: Store, manifest: Manifest) -> Iterator[ViewedFile]:
    """All files of a version in row order, units numbered from 0 over those that hold rows.

    Raises:
        DatasetError: what lists them is missing or damaged.
    """
    numbers: dict[tuple[str, str], int] = {}
    for record, entry in entries_of(store, manifest.logs, brief=True):
        form = format_named(entry.output)
        if not entry.rows:
            continue
        folder = split_folder(entry.output, record.split)
        number = numbers.setdefault((entry.output, record.split), 0)
        numbers[entry.output, record.split] += 1
        shown = form.view(number, [file.name for file in entry.files])
        for file in entry.files:
            if file.name in shown:
                name = f"{folder}/{shown[file.name]}"
                yield ViewedFile(
                    entry.output, record.split, entry.path_of(file), name, file.size, file.digest
                )
    for part in manifest.assembled:
        for place, file in assembled_files(store, part.identity, read_assembled(store, part)):
            name = f"{split_folder(part.output, part.split)}/{file.name}"
            yield ViewedFile(part.output, part.split, place, name, file.size, file.digest)


def split_folder(output: str, split: str) -> str:
    """The view's folder of a split; one for all splits where a format names files by split itself."""
    form = format_named(output)
    return output if form.splits_share_folder else f"{output}/{split}{form.suffix}"


def files_of(
    store: Store, manifest: Manifest, output: str | None = None, split: str | None = None
) -> Iterator[ViewedFile]:
    """The files that a view shows of one output, or split, or both, in row order.

    Raises:
        UsageError: no such output or split; lists those that there are.
    """
    logs = manifest.logs.columns("split", "rows").to_pydict()
    splits = {split for split, rows in zip(logs["split"], logs["rows"], strict=True) if rows}
    for what, name, there in (("output", output, manifest.outputs), ("split", split, splits)):
        if name is not None and name not in there:
            why = ""
            if what == "split" and name in row_split_names(manifest.logs.column("splits")):
                why = f" of whole files: single rows are split, by their column `{COLUMN}`"
            raise UsageError(f"{store.uri}: no {what} {name!r}{why}{near_to(name, sorted(there))}")
    return (
        file
        for file in view_files(store, manifest)
        if output in (None, file.output) and split in (None, file.split)
    )


def is_large(manifest: Manifest) -> bool:
    """Whether a version has so many units that a view is made only for who asks for it."""
    import pyarrow.compute as pc

    return (pc.sum(manifest.logs.column("units")).as_py() or 0) > MAX_UNITS


def make_view(store: Store, manifest: Manifest) -> tuple[pathlib.Path, bool]:
    """Makes a version's view on a local disk; one that is there is left as it is.

    Returns:
        The folder, and whether files had to be copied because the disk has no hard links.

    Raises:
        DatasetError: a file of the version is missing, or two would have one name.
        StorageError: a name or a symbolic link leads out of the root, or the disk refused.
    """
    target = store.path_of(view_folder(manifest.version))
    with explained(str(target)):
        if target.is_dir():
            return target, False
    copied = False
    with store.scratch() as scratch, explained(str(target)):
        made = Store.at(str(scratch))
        for file in view_files(store, manifest):
            path = made.path_of(file.name)
            path.parent.mkdir(parents=True, exist_ok=True)
            copied |= _link(store, file.stored, path)
        # Links to files that are synced need it for their folders only.
        sync_all([path for path in (scratch, *scratch.rglob("*")) if copied or path.is_dir()])
        try:
            scratch.rename(target)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):  # another build made the same view
                raise
        sync(target.parent)
    return target, copied


def show(store: Store, manifest: Manifest, view: str, on_message: OnMessage) -> tuple[str, bool]:
    """Makes the view of a version that was just committed, as `view` of `logloom build` says.

    Returns:
        Its folder, "" where none was made, and whether files had to be copied because the disk has no links.
    """
    on_disk = store.local is not None
    way_out = f"`logloom view {store.uri}@{manifest.version}{'' if on_disk else ' --copy'}` makes the view"
    version = f"version {manifest.version} of {store.uri}"
    with after_commit(version, way_out, "its view could not be made"):
        if on_disk and view == "auto" and is_large(manifest):
            command = f"logloom view {shlex.quote(f'{store.uri}@{manifest.version}')}"
            on_message(f"no view, since the version has more than {MAX_UNITS:,} units; `{command}` makes it")
        elif on_disk and view != "none":
            folder, copied = make_view(store, manifest)
            return str(folder), copied
        elif view == "copy":
            return copy_view(store, manifest), False
    return "", False


def mend_view(store: Store, manifest: Manifest, restored: Container[str] = ()) -> list[str]:
    """Puts files into a version's view again that it lost, or that aren't those of the version any more.

    Args:
        restored: URIs of files of the root that were replaced; a view may hold an old link or copy of them.

    Returns:
        The places of the files that were put there; none where there is no view.
    """
    folder = view_folder(manifest.version)
    done = []
    if store.local is None:
        for file in view_files(store, manifest) if store.exists(f"{folder}/{COPIED}") else ():
            if store.uri_of(file.stored) in restored:
                store.copy(file.stored, f"{folder}/{file.name}")
                done.append(store.uri_of(f"{folder}/{file.name}"))
        return done
    if not store.exists(folder):
        return []
    from logloom.transforms.build.unit_checks import check_file

    for file in view_files(store, manifest):
        stored, path = store.path_of(file.stored), store.path_of(f"{folder}/{file.name}")
        with explained(str(path)):
            if not stored.exists() or (path.exists() and path.samefile(stored)):
                continue
        entry = FileEntry(file.name, file.size, file.digest)
        is_lost = next(check_file(store, f"{folder}/{file.name}", entry), "")
        if is_lost and not next(check_file(store, file.stored, entry), ""):
            with store.scratch() as scratch, explained(str(path)):
                _link(store, file.stored, scratch / path.name)
                path.parent.mkdir(parents=True, exist_ok=True)
                (scratch / path.name).replace(path)
            done.append(str(path))
    return done


def copy_view(
    store: Store, manifest: Manifest, on_progress: Callable[[int, int], None] = lambda done, total: None
) -> str:
    """Makes a version's view in an object store, of copies that the store makes itself.

    Several copy at once, and one that was interrupted goes on: what has its size already is left alone.

    Args:
        on_progress: called with how many files are there; of how many isn't known before all are listed: 0.

    Returns:
        The view's URI.

    Raises:
        DatasetError: a file of the version is missing.
    """
    folder = view_folder(manifest.version)
    if not store.exists(f"{folder}/{COPIED}"):
        there = store.sizes(folder)  # one listing instead of a request a file; empty the first time

        def copy(file: ViewedFile) -> None:
            if there.get(file.name) != file.size:
                try:
                    store.copy(file.stored, f"{folder}/{file.name}")
                except FileNotFoundError:
                    raise _missing(store.uri_of(file.stored)) from None

        for done, _ in enumerate(ahead(copy, view_files(store, manifest), _COPIERS), 1):
            on_progress(done, 0)
        store.create(f"{folder}/{COPIED}", b"")
    return store.uri_of(folder)


def _missing(place: object) -> DatasetError:
    return DatasetError(f"{place}: a file of this version is missing; {repair_hint(str(place))}")


def _link(store: Store, stored: str, path: pathlib.Path) -> bool:
    """Links a file, or copies it where the disk can't link; says whether it copied."""
    try:
        # Not the link itself, which others could be "below" in the view, wherever it leads to.
        source = store.kept_path(stored, UNITS)
        os.link(source, path)
    except FileNotFoundError:
        raise _missing(store.path_of(stored)) from None
    except FileExistsError:
        raise DatasetError(
            f"{store.path_of(stored)}: another file of this version is {path.name} too"
        ) from None
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        shutil.copyfile(source, path)
        path.chmod(0o444)
        return True
    return False
