"""Conversions to plain folders, which contain only the format's own files.

The format's original clients open such a folder.
Here: copying a version's own files out, and making a plain folder of a finished conversion.
Elsewhere: the conversion (logloom.pipelines.convert.convert), which files a format shows
(logloom.pipelines.view).

A local folder appears by one rename. An object store has no such operation: files appear one by one, so
readers should wait for the command's end.
"""

from __future__ import annotations

import pathlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from logloom.errors import DatasetError, StorageError, UsageError
from logloom.io.catalog.entries import FAN_OUT, FileEntry
from logloom.io.catalog.manifest import Manifest, read_manifest
from logloom.io.formats.registry import format_named
from logloom.io.rows.sources import RowSource
from logloom.io.storage.disk import sync
from logloom.io.storage.filesystems import explained
from logloom.io.storage.store import Store
from logloom.io.storage.threads import ahead, in_threads
from logloom.pipelines.convert.sources import VersionSource
from logloom.pipelines.view import ViewedFile, split_folder, view_files
from logloom.transforms.build.unit_checks import check_file
from logloom.values import dataclass


@dataclass(frozen=True)
class PlainFolder:
    """Where a plain folder is to be.

    Attributes:
        store: of the folder itself.
        work: of the unfinished folder beside it, where an interrupted conversion goes on.
    """

    store: Store
    work: Store

    @classmethod
    def at(cls, uri: str, storage_options: Mapping[str, Any] | None = None) -> PlainFolder:
        """
        Raises:
            UsageError: something is there already, or it is a whole bucket.
        """
        store = Store.at(uri, storage_options)
        if store.names() or (store.local is not None and store.local.exists() and not store.local.is_dir()):
            raise UsageError(f"{store.uri}: is there already; choose a new folder")
        parent, _, name = store.uri.rpartition("/")
        if parent.endswith(":/"):  # beside a bucket there is no place for unfinished work
            raise UsageError(f"{store.uri}: a plain folder is in a bucket, not in its place")
        return cls(store, Store(f"{parent}/.{name}.converting", store.options))

    def publish(self, manifest: Manifest, view: str, output: str) -> None:
        """Makes the folder of a conversion that was committed in `work`, which goes.

        A split is a folder of its own where there are several.

        Args:
            view: of the conversion, "" in an object store.
        """
        work = replace(self.work, fan_out=FAN_OUT)
        files = [file for file in view_files(work, manifest) if file.output == output]
        if view:
            self.rename(pathlib.Path(view) / _shown_folder(files, output))
            return

        def copy(pair: tuple[ViewedFile, str]) -> None:
            self.store.fs.cp_file(work.fs_path(pair[0].stored), self.store.fs_path(pair[1]))

        with explained(self.store.uri):
            in_threads(copy, list(zip(files, _names(files, output), strict=True)))
            work.fs.rm(work.fs_path(""), recursive=True)

    def rename(self, made: pathlib.Path) -> None:
        """Gives a finished folder its name; its files are the user's own, so they can be written."""
        assert self.store.local is not None
        assert self.work.local is not None
        with explained(self.store.uri):
            for path in made.rglob("*"):
                if path.is_file():
                    path.chmod(0o644)
                sync(path)
            self.store.local.parent.mkdir(parents=True, exist_ok=True)
            made.rename(self.store.local)
            sync(self.store.local.parent)
            shutil.rmtree(self.work.local, ignore_errors=True)


def _shown_folder(files: Sequence[ViewedFile], output: str) -> str:
    """The folder of the view that becomes the plain one: the output's, or that of its only split."""
    folders = {split_folder(output, file.split) for file in files}
    return folders.pop() if len(folders) == 1 else output


def _names(files: Sequence[ViewedFile], output: str) -> list[str]:
    """Names in the plain folder."""
    folder = _shown_folder(files, output)
    return [file.name.removeprefix(f"{folder}/") for file in files]


def can_copy(
    source: RowSource,
    output: str,
    *,
    read: str | None = None,
    options: Mapping[str, Any] | None = None,
    columns: Sequence[str] | None = None,
    limit: int | None = None,
    on_error: str = "fail",
    where: str = "",
) -> bool:
    """Whether a version holds a format already, and all of it is converted: its files need only be copied.

    Args:
        output: the format to write.
        read, options, columns, limit, on_error, where: see `logloom.convert`; `read` is its `output`.
    """
    is_whole = on_error == "fail" and not (options or columns or limit or where) and read in (None, output)
    if not (is_whole and isinstance(source, VersionSource)):
        return False
    return output in read_manifest(source.reading.store, source.version).outputs


def copy_out(
    source: VersionSource,
    folder: PlainFolder,
    output: str,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[int, int]:
    """Copies a version's files of one format, each checked against the manifest.

    Returns:
        How many files and bytes.

    Raises:
        DatasetError: a file is missing or damaged.
    """
    store = source.reading.store
    format_named(output)
    manifest = read_manifest(store, source.version)
    files = [file for file in view_files(store, manifest) if file.output == output]
    names = _names(files, output)
    target = folder.store if folder.store.local is None else folder.work

    def copy(pair: tuple[ViewedFile, str]) -> None:
        _copy_file(store, target, *pair)

    with explained(target.uri):
        copied = ahead(copy, zip(files, names, strict=True), at_once=len(files))
        for done, _ in enumerate(copied, 1):
            on_progress(done, len(files))
    if folder.work.local is not None:
        # An interrupted copy of something else may have left others.
        wanted = {folder.work.local / name for name in names}
        for path in folder.work.local.rglob("*"):
            if path.is_file() and path not in wanted:
                path.unlink()
        folder.rename(folder.work.local)
    return len(files), sum(file.size for file in files)


def _copy_file(source: Store, target: Store, file: ViewedFile, name: str) -> None:
    """Copies one file unless it is there and whole, and reads it back."""
    entry = FileEntry(name, file.size, file.digest)
    if target.exists(name) and not list(check_file(target, name, entry)):
        return
    try:
        if target.local is not None:
            path = target.path_of(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            source.fs.get_file(source.fs_path(file.stored), str(path))
        elif source.local is not None:
            target.fs.put_file(str(source.path_of(file.stored)), target.fs_path(name))
        elif source.uri.partition("://")[0] == target.uri.partition("://")[0]:
            target.fs.cp_file(source.fs_path(file.stored), target.fs_path(name))
        else:
            target.fs.pipe_file(target.fs_path(name), source.read(file.stored))
    except FileNotFoundError:
        raise DatasetError(f"{source.uri_of(file.stored)}: a file of this version is missing") from None
    except OSError as error:
        raise StorageError(f"{target.uri_of(name)}: {error.strerror or error}") from error
    for problem in check_file(target, name, entry):
        raise DatasetError(f"{problem}; copied from {source.uri_of(file.stored)}")
