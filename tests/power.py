"""A power cut: what a disk may hold afterwards of what was never synced.

A file that wasn't synced since it was written is torn, empty or whole. A name that changed since its folder
was synced stands as before or as after, each by itself: POSIX promises no more.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import random
import stat
from collections.abc import Callable, Iterator
from typing import Any

CALLS = ("link", "rename", "replace", "unlink", "rmdir", "mkdir", "fsync", "sync")
Names = dict[str, int]  # in a folder: the inodes


def _folders(root: pathlib.Path) -> list[pathlib.Path]:
    return [root, *(path for path in root.rglob("*") if path.is_dir())]


class PowerCutError(BaseException):
    """Nothing of the process goes on."""


class Disk:
    """The folder of a root, and what of it would outlast a power cut.

    Attributes:
        calls: made so far, of those that change or sync names and files.
    """

    def __init__(self, root: pathlib.Path, beside: pathlib.Path):
        """
        Args:
            beside: an empty folder on the same disk.
        """
        self._root, self._vault = root, beside / "vault"
        self._vault.mkdir()
        self._lasting: dict[int, Names] = {}  # by a folder's inode
        self._top = os.stat(root).st_ino
        self._synced: dict[int, tuple[int, int]] = {}  # of files: size and time of the change that is safe
        self.calls, self._last = 0, 1 << 60
        self._sync_all()

    def _sync_all(self) -> None:
        for folder in _folders(self._root):
            self._sync_folder(folder)
            for path in folder.iterdir():
                if not path.is_dir():
                    self._keep(path)
                    self._sync_file(os.stat(path))

    def _sync_folder(self, folder: Any) -> None:
        with os.scandir(folder) as found:
            names = {entry.name: entry.stat(follow_symlinks=False).st_ino for entry in found}
        self._lasting[os.stat(folder).st_ino] = names

    def _sync_file(self, at: os.stat_result) -> None:
        self._synced[at.st_ino] = at.st_size, at.st_mtime_ns

    def _keep(self, path: Any) -> None:
        """Holds the bytes of a file whose name goes: its removal may be lost."""
        with contextlib.suppress(FileExistsError, FileNotFoundError, PermissionError, IsADirectoryError):
            if not stat.S_ISDIR(os.lstat(path).st_mode):
                self._link(path, self._vault / str(os.lstat(path).st_ino))

    @contextlib.contextmanager
    def cut_after(self, last: int | None = None) -> Iterator[Disk]:
        """The power fails before call `last` of the block, which raises PowerCutError; None: never."""
        own = {name: getattr(os, name) for name in CALLS}
        self._link = own["link"]
        self.calls, self._last = 0, 1 << 60 if last is None else last
        try:
            for name, real in own.items():
                setattr(os, name, self._watched(name, real))
            yield self
        finally:
            for name, real in own.items():
                setattr(os, name, real)

    _link: Callable[..., None] = staticmethod(os.link)

    def _watched(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            if self.calls >= self._last:
                raise PowerCutError
            self.calls += 1
            folder = options.get("dir_fd")
            if name == "sync":
                self._sync_all()
                return real()
            place = arguments[0] if folder is None else f"/proc/self/fd/{folder}/{os.fspath(arguments[0])}"
            if name in ("rename", "replace", "unlink"):
                self._keep(place)
                if name != "unlink":
                    self._keep(arguments[1])
            done = real(*arguments, **options)
            if name == "mkdir":
                self._lasting[os.stat(place).st_ino] = {}
            elif name == "fsync":
                at = os.fstat(arguments[0])
                if stat.S_ISDIR(at.st_mode):
                    self._sync_folder(arguments[0])
                else:
                    self._sync_file(at)
            return done

        return call

    def remains(self, at: pathlib.Path, rng: random.Random) -> pathlib.Path:
        """Writes what is left of the root once the power is back."""
        now: dict[int, Names] = {}
        files: dict[int, pathlib.Path] = {int(path.name): path for path in self._vault.iterdir()}
        for folder in _folders(self._root):
            names = {path.name: os.lstat(path).st_ino for path in folder.iterdir()}
            now[os.stat(folder).st_ino] = names
            files |= {names[path.name]: path for path in folder.iterdir() if not path.is_dir()}
        share = rng.choice([0.1, 0.5, 0.9])  # of the changes that came through
        written: dict[int, pathlib.Path] = {}

        def lay(inode: int, path: pathlib.Path) -> None:
            if inode in files:
                if inode in written:  # links to one file
                    os.link(written[inode], path)
                    return
                written[inode] = path
                path.write_bytes(self._left_of(files[inode], inode, share, rng))
                at = files[inode].stat()
                path.chmod(at.st_mode)
                os.utime(path, ns=(at.st_atime_ns, at.st_mtime_ns))
                return
            path.mkdir()
            before = self._lasting.get(inode, {})
            after = now.get(inode, {})
            for name in sorted({*before, *after}):
                old, new = before.get(name), after.get(name)
                child = old if old == new or rng.random() >= share else new
                if child is not None:
                    lay(child, path / name)

        lay(self._top, at)
        return at

    def _left_of(self, file: pathlib.Path, inode: int, share: float, rng: random.Random) -> bytes:
        data, at = file.read_bytes(), file.stat()
        if self._synced.get(inode) == (at.st_size, at.st_mtime_ns) or rng.random() < share:
            return data
        return data[: rng.choice([0, len(data) // 2])]
