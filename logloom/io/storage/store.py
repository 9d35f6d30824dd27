"""The folder of a dataset on a disk or in an object store, with atomic writes.

Here: `Store`, which makes files visible whole or not at all.
Elsewhere: reading (stored_files), opening URIs (filesystems), unfinished files (disk), the content of files
(logloom.io.catalog.entries, logloom.io.catalog.manifest and the formats).

A local file is written elsewhere on its disk, synced, then linked or renamed; an object is one upload,
visible once whole. (Leaving fsspec's `with fs.open(path, "wb")` by an exception would publish a partial
object, so nothing here uses it.) Two attempts at one file write the same bytes, so either may win.
"""

from __future__ import annotations

import contextlib
import errno
import pathlib
import shutil
import tempfile
from collections.abc import Iterable, Iterator

from logloom.errors import StorageError, UsageError
from logloom.io.storage import disk
from logloom.io.storage.faults import MISSING
from logloom.io.storage.filesystems import ZIP, explained
from logloom.io.storage.stored_files import StoredFiles
from logloom.io.storage.threads import in_threads
from logloom.values import dataclass

TEMPORARY = "tmp"  # unfinished work in a local root; swept by the next build
_SWEPT = (TEMPORARY, "index")  # sidecar indices are a store of their own, beside the logs


@dataclass(frozen=True)
class Store(StoredFiles):
    """A folder at a URI, for reading and writing."""

    def remove(self, name: str, *, durable: bool = True) -> None:
        """Remove a file, if it exists.

        Args:
            name: of the file, relative to the root.
            durable: it stays gone even if the power fails now.
        """
        with contextlib.suppress(*MISSING), self._explained(name, MISSING):
            if self.local is None:
                self.fs.rm_file(self.fs_path(name))
                return
            self.path_of(name).unlink()
            if durable:
                disk.sync(self.path_of(name).parent)

    def remove_all(self, folder: str) -> None:
        """Remove a folder with all that is in it; on a disk, what can't be removed stays.

        Args:
            folder: its name, relative to the root.
        """
        with contextlib.suppress(*MISSING), self._explained(folder, MISSING):
            if self.local is None:
                self.fs.rm(self.fs_path(folder), recursive=True)
            else:
                shutil.rmtree(self.path_of(folder), ignore_errors=True)

    def copy(self, name: str, new: str) -> None:
        """Copy an object within the store, without downloading it.

        Args:
            name: of the object.
            new: of the copy.

        Raises:
            FileNotFoundError: it doesn't exist.
            StorageError: the store refused.
        """
        with self._explained(name, MISSING):
            self.fs.cp_file(self.fs_path(name), self.fs_path(new))

    def create(self, name: str, data: bytes, *, durable: bool = True) -> bool:
        """Write a file unless it exists, atomically.

        Args:
            name: of the file, relative to the root.
            data: all of its bytes.
            durable: it is on the disk afterwards, even if the power fails.

        Returns:
            Whether this call created it; False leaves what was there.
        """
        self.check_writable()
        with self._explained(name):
            if self.local is None:
                try:
                    self.fs.pipe_file(self.fs_path(name), data, mode="create")
                except FileExistsError:
                    return False
                return True
            path = self.path_of(name)
            with self._unfinished(path, data, durable) as partial:
                partial.chmod(0o444)  # created once, never changed
                created = disk.in_its_folder(partial, path, lambda: disk.appear(partial, path))
            if durable:
                _sync_folder(path)  # its creator may have ended before this
            return created

    def replace(self, name: str, data: bytes, *, read_only: bool = False, durable: bool = True) -> None:
        """Write or replace a file, atomically.

        Args:
            name: of the file, relative to the root.
            data: all of its bytes.
            read_only: it is one of those that are created once.
            durable: it is on the disk afterwards, even if the power fails.
        """
        self.check_writable()
        with self._explained(name):
            if self.local is None:
                self.fs.pipe_file(self.fs_path(name), data)
                return
            path = self.path_of(name)
            with self._unfinished(path, data, durable) as partial:
                if read_only:
                    partial.chmod(0o444)
                disk.in_its_folder(partial, path, lambda: partial.replace(path))
            if durable:
                _sync_folder(path)

    def renew(self, name: str, data: bytes) -> None:
        """Write a file that is named by its content; an existing one is written again, to renew its age.

        `logloom gc` removes old files that no version names.

        Args:
            name: of the file, relative to the root.
            data: all of its bytes.
        """
        self.replace(name, data, read_only=True)

    def restate(self, name: str, data: bytes) -> None:
        """Write a file that is created once, unless it exists with these bytes.

        One with other bytes, damaged or of a build that failed, is replaced.

        Args:
            name: of the file, relative to the root.
            data: all of its bytes.
        """
        if not self.create(name, data) and self.read(name) != data:
            self.replace(name, data, read_only=True)

    def check_writable(self) -> None:
        """
        Raises:
            UsageError: it is in a zip archive.
        """
        if self.uri.startswith(ZIP):
            raise UsageError(
                f"{self.uri}: zip archives are only read; write to a folder or a bucket, and zip that"
            )

    def restore(self, path: pathlib.Path, name: str) -> None:
        """Replace a lost or damaged file that is created once by a scratch file, atomically.

        Args:
            path: of the scratch file.
            name: of the file, relative to the root.
        """
        with self._explained(name):
            if self.local is None:
                self.fs.put_file(str(path), self.fs_path(name))
                return
            target = self.path_of(name)
            disk.sync(path)
            path.chmod(0o444)
            disk.in_its_folder(path, target, lambda: path.replace(target))
            _sync_folder(target)

    @contextlib.contextmanager
    def scratch(self) -> Iterator[pathlib.Path]:
        """Provide an empty temporary folder, on the root's own disk if that is local.

        Yields:
            The folder, for as long as the block runs.
        """
        self.check_writable()
        if self.local is None:
            with tempfile.TemporaryDirectory(prefix="logloom-") as folder:
                yield pathlib.Path(folder)
            return
        path = self._temporary / disk.own_name()
        with explained(str(path)):
            disk.make_folder(path.parent)
            path.mkdir()
        try:
            with disk.locked(path):
                yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)

    def publish(self, folder: pathlib.Path, name: str, last: str, *, durable: bool = True) -> None:
        """Make a scratch folder's files visible under `name`, the file `last` after all others.

        An existing folder stays as it is: it has the same bytes. One that lacks `last` is filled again.

        Args:
            folder: the scratch folder.
            name: what it is called in the root.
            last: the file that marks the others as complete.
            durable: it is on the disk afterwards, even if the power fails.
        """
        with self._explained(name):
            if self.local is None:
                self._restore_all(folder, name, last)
                return
            paths = [*disk.paths_below(folder), folder]
            if durable:
                disk.sync_all(paths)
            for path in paths:
                if path.is_file():
                    path.chmod(0o444)
            target = self.path_of(name)
            disk.make_folder(target.parent)
            try:
                folder.rename(target)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
                if not (target / last).exists():
                    self._restore_all(folder, name, last)
            if durable:
                disk.sync(target.parent)

    def _restore_all(self, folder: pathlib.Path, name: str, last: str) -> None:
        files = [path for path in disk.paths_below(folder) if path.is_file()]
        for path in sorted(files, key=lambda path: path == folder / last):
            self.restore(path, f"{name}/{path.relative_to(folder).as_posix()}")

    def settle(self, folders: Iterable[str]) -> None:
        """Sync some folders, given by their stored names, so that the names in them survive a power failure.

        A process that created such a name may have been killed before syncing the folder.

        Args:
            folders: their names, relative to the root.
        """
        if self.local is None:
            return
        with self._explained(""):
            disk.sync_all([path for path in map(self.local.joinpath, folders) if path.is_dir()])

    def settle_names(self, names: Iterable[str]) -> None:
        """As `settle`, of single names.

        Args:
            names: of files, or of folders of units, relative to the root.
        """
        self.settle({self.stored_name(name).rpartition("/")[0] for name in names})

    def fill(self, folder: pathlib.Path, name: str) -> None:
        """Move the files of a flat scratch folder into `name`, which may contain files already.

        Each appears whole, and replaces what had its name.

        Args:
            folder: the scratch folder.
            name: of the folder in the root.
        """
        with self._explained(name):
            paths = sorted(folder.iterdir())
            if self.local is None:

                def put(path: pathlib.Path) -> None:
                    self.fs.put_file(str(path), self.fs_path(f"{name}/{path.name}"))
                    path.unlink()

                in_threads(put, paths, disk.AT_ONCE)
                return
            disk.sync_all(paths)
            target = self.path_of(name)
            disk.make_folder(target)
            for path in paths:
                path.replace(target / path.name)
            disk.sync(target)

    def sweep(self) -> None:
        """Remove scratch folders and unfinished files of processes of this machine that are gone.

        Those of other builds that run stay: their processes live, or hold a lock, where this one can't see
        them (in another container of the same host name).
        """
        self.check_writable()  # it is how writing begins
        if self.local is None:
            return
        for folder in map(self.path_of, _SWEPT):
            with explained(str(folder)):
                paths = list(folder.iterdir()) if folder.is_dir() else []
            for path in paths:
                if not disk.is_left_behind(path):
                    continue
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    with contextlib.suppress(OSError):  # another build's sweep was faster, or no permission
                        path.unlink()

    @property
    def _temporary(self) -> pathlib.Path:
        """
        Raises:
            StorageError: it leads to another folder, where unfinished work would be written, or is unread.
        """
        path = self.path_of(TEMPORARY)
        with self._explained(TEMPORARY):
            is_link = path.is_symlink()
        if is_link:
            raise StorageError(f"{path}: a symbolic link; remove it, a folder replaces it")
        return path

    @contextlib.contextmanager
    def _unfinished(self, path: pathlib.Path, data: bytes, durable: bool) -> Iterator[pathlib.Path]:
        """A file with these bytes on the disk of `path`; gone afterwards unless it took that name."""
        partial = self._temporary / f"{disk.own_name()}{disk.PARTIAL}"
        if not partial.parent.is_dir():
            # No root that is being built: a plain folder holds its format's files alone.
            disk.make_folder(path.parent)
            partial = path.parent / f".{partial.name}"
        with disk.unfinished(partial, data, durable=durable):
            yield partial


def _sync_folder(path: pathlib.Path) -> None:
    """Wait until the name of a file is on the disk."""
    # Where gc has just removed it with its folder, a build finds that right before its commit.
    with contextlib.suppress(FileNotFoundError):
        disk.sync(path.parent)
