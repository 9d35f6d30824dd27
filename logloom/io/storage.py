"""Where datasets lie: one folder on a disk or in an object store, through fsspec.

Here: `Store`, which makes files visible whole or not at all, and opens URIs.
Elsewhere: what the files mean (logloom.io.manifest and the formats).

A local file is written elsewhere on its disk, synced, then linked or renamed; an object is one upload,
visible once whole. (Leaving fsspec's `with fs.open(path, "wb")` by an exception would publish a partial
object, so nothing here uses it.) Two attempts at one file write the same bytes, so it doesn't matter whose
lands.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import pathlib
import shutil
import socket
import tempfile
import urllib.parse
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import fsspec

from logloom.errors import LogloomError, StorageError, UsageError
from logloom.io import retries

MISSING = (FileNotFoundError, NotADirectoryError, IsADirectoryError)  # how reading says: no such file
NO_LINKS = (
    errno.EXDEV,
    errno.EPERM,
    errno.EMLINK,
    errno.ENOTSUP,
    errno.ENOSYS,
)  # how link() says: not on this disk
TEMPORARY = "tmp"  # unfinished work in a local root; swept by the next build
ZIP = "zip://"
_PARTIAL = ".partial"  # ends the name of a file that isn't finished
_SWEPT = (TEMPORARY, "index")  # sidecar indices are a store of their own, and lie beside
_AT_ONCE = 8  # files synced or uploaded at a time; those synced together share the disk's commits


def is_local(uri: str) -> bool:
    """Whether a URI means a path on this machine's file systems."""
    return "://" not in uri or uri.startswith(("file://", "local://"))


def absolute_uri(uri: str, base: str | None = None) -> str:
    """The URI with its scheme, or an absolute path; a relative one starts at `base` or the working folder."""
    if uri.startswith(ZIP):
        return _in_archive(uri, base)
    if not is_local(uri):
        return uri
    path = uri.split("://", 1)[-1]
    if not os.path.isabs(path) and base is not None and not is_local(base):
        return f"{base.rstrip('/')}/{path}"
    return os.path.abspath(os.path.join(base.split("://", 1)[-1], path) if base else path)


def _in_archive(uri: str, base: str | None) -> str:
    """`zip://member::archive` as `zip://archive!/member`, to which names can be joined."""
    member, chained, archive = uri.removeprefix(ZIP).partition("::")
    if not chained:
        return uri
    quoted = absolute_uri(archive, base).replace("%", "%25").replace("!", "%21")
    return f"{ZIP}{quoted}!/{member.strip('/')}".rstrip("/")


def filesystem(uri: str, options: Mapping[str, Any] | None = None) -> tuple[Any, str]:
    """The fsspec file system of a URI, and the path in it.

    Args:
        uri: a path or URI; zip://member::archive for a file in a zip archive, which is only read.
        options: for the file system, by protocol: {"gs": {"token": "anon"}}.

    Raises:
        UsageError: no such protocol, or its package isn't installed.
    """
    if uri.startswith(ZIP):
        from logloom.io.zipped import ZippedFiles  # which opens archives through this module

        return ZippedFiles(options), absolute_uri(uri).removeprefix(ZIP)
    protocol = "file" if is_local(uri) else uri.split("://", 1)[0]
    chosen = (options or {}).get(protocol, {})
    try:
        fs, path = fsspec.url_to_fs(uri, **chosen)
    except (ImportError, ValueError) as error:
        extra = {"gs": "gcp", "gcs": "gcp", "s3": "s3"}.get(protocol)
        hint = f"; pip install 'logloom[{extra}]'" if extra else ""
        raise UsageError(f"{uri}: can't open {protocol}:// ({error}){hint}") from error
    if protocol != "file":
        retries.watch()
    return fs, path


def uri_in(like: str, path: str) -> str:
    """The URI of a path in the file system of another URI, as its listings name it."""
    scheme = f"{like.split('://', 1)[0]}://"
    # Some list URIs; a path in an archive begins with that of the archive.
    return path if "://" in path and scheme != ZIP else f"{scheme}{path}"


@contextlib.contextmanager
def explained(what: str, passing: tuple[type[OSError], ...] = ()) -> Iterator[None]:
    """Turns the operating system's and the store's refusals into a StorageError that says what to do.

    Args:
        passing: refusals that the caller expects.
    """
    try:
        yield
    except passing:
        raise
    except OSError as error:
        reasons = {
            errno.ENOSPC: "the disk is full: free some space and build again, what is finished is kept",
            errno.EDQUOT: "the quota is used up: free some space and build again, what is finished is kept",
            errno.EFBIG: "a file would be larger than this disk or the process may have (ulimit -f)",
            errno.EROFS: "it is read-only",
            errno.EACCES: "no permission",
            errno.EPERM: "no permission",
        }
        reason = reasons.get(error.errno or 0, error.strerror or str(error) or type(error).__name__)
        raise StorageError(f"{what}: {reason}") from error


class _StoredFile:
    """An open file in an object store; whatever its reads fail with becomes a StorageError."""

    closed = False
    refusal: StorageError | None = None

    def __init__(self, uri: str, file: Any):
        self._uri, self._file = uri, file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def read(self, *arguments: Any) -> Any:
        try:
            with refusals(self._uri):
                return self._file.read(*arguments)
        except StorageError as error:
            self.refusal = error
            raise

    def close(self) -> None:
        self.closed = True


@contextlib.contextmanager
def refusals(uri: str, passing: tuple[type[OSError], ...] = ()) -> Iterator[None]:
    """As `explained`, for what lies in an object store: every one has errors of its own."""
    try:
        with explained(uri, passing):
            yield
    except LogloomError:
        raise
    except passing:
        raise
    except Exception as error:
        raise StorageError(f"{uri}: {type(error).__name__}: {error}") from error


@contextlib.contextmanager
def stored_file(uri: str, options: Mapping[str, Any] | None = None, **opening: Any) -> Iterator[Any]:
    """A file in an object store, open for libraries that take their reads' errors for damage.

    Args:
        opening: for `open` of its file system.

    Raises:
        FileNotFoundError, NotADirectoryError, IsADirectoryError: it isn't there.
        StorageError: it can't be opened, or read.
    """
    fs, path = filesystem(uri, options)
    with refusals(uri, MISSING):
        file = fs.open(path, "rb", **opening)
    stored = _StoredFile(uri, file)
    try:
        yield stored
    except Exception:
        if stored.refusal is not None:  # which some libraries hide in errors of their own
            raise stored.refusal from None
        raise
    finally:
        file.close()


@dataclass(frozen=True)
class Store:
    """A folder at a URI. Small and picklable: workers open it again.

    Attributes:
        uri: absolute, without a slash at the end.
        options: fsspec options by protocol; never written anywhere.
    """

    uri: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def at(cls, uri: str, options: Mapping[str, Any] | None = None) -> Store:
        absolute = absolute_uri(uri)
        return cls(absolute.rstrip("/") or "/", options or {})

    @property
    def local(self) -> pathlib.Path | None:
        """The folder as a path, None on an object store."""
        return pathlib.Path(self.uri.split("://", 1)[-1]) if is_local(self.uri) else None

    @property
    def fs(self) -> Any:
        return filesystem(self.uri, self.options)[0]

    def uri_of(self, name: str) -> str:
        """The URI of a file in the folder.

        Raises:
            StorageError: the name would leave the folder.
        """
        self._check(name)
        return f"{self.uri}/{name}" if name else self.uri

    def path_of(self, name: str) -> pathlib.Path:
        """The path of a file in a local folder.

        Raises:
            StorageError: the name would leave the folder.
        """
        self._check(name)
        if self.local is None:
            raise StorageError(f"{self.uri}: not on this machine's disks")
        return self.local / name

    def kept_path(self, name: str, within: str) -> pathlib.Path:
        """The path of a file that lies in the folder `within` even once symbolic links are followed.

        Raises:
            FileNotFoundError: it isn't there.
            StorageError: it lies elsewhere.
        """
        path = self.path_of(name)
        real = path.resolve(strict=True)
        if not real.is_relative_to(self.path_of(within).resolve()):
            raise StorageError(f"{path}: a symbolic link leads out of {self.path_of(within)}")
        return real

    def _check(self, name: str) -> None:
        if name.startswith("/") or ".." in name.split("/") or "\0" in name:
            raise StorageError(f"{self.uri}: {name!r} would lie outside")

    @contextlib.contextmanager
    def _explained(self, name: str, passing: tuple[type[OSError], ...] = ()) -> Iterator[None]:
        how = explained if self.local is not None else refusals
        with how(self.uri_of(name), passing):
            yield

    def read(self, name: str) -> bytes:
        """All bytes of a file.

        Raises:
            FileNotFoundError, NotADirectoryError, IsADirectoryError: it isn't there.
            StorageError: it can't be read.
        """
        with self._explained(name, MISSING):
            if self.local is not None:
                return self.path_of(name).read_bytes()
            data: bytes = self.fs.cat_file(self.uri_of(name))
            return data

    def read_json(self, name: str) -> Any:
        return json.loads(self.read(name))

    def exists(self, name: str) -> bool:
        with self._explained(name):
            if self.local is not None:
                return self.path_of(name).exists()
            self.fs.invalidate_cache()  # another process may have made it since the folder was listed
            return bool(self.fs.exists(self.uri_of(name)))

    def size(self, name: str) -> int | None:
        """The bytes of a file, None where it isn't there."""
        try:
            with self._explained(name, MISSING):
                if self.local is not None:
                    return self.path_of(name).stat().st_size
                self.fs.invalidate_cache()
                return int(self.fs.info(self.uri_of(name))["size"])
        except MISSING:
            return None

    def state(self, name: str) -> Any:
        """What changes with a file, as far as its storage tells: its size, and time of change or ETag."""
        if self.local is not None:
            stat = self.path_of(name).stat()
            return stat.st_size, stat.st_mtime_ns
        info = self.fs.info(self.uri_of(name))
        return info.get("size"), str(info.get("ETag") or info.get("mtime") or info.get("updated"))

    def sizes(self, folder: str) -> dict[str, int]:
        """The bytes of every file below a folder, by name within it; one listing of an object store."""
        with self._explained(folder):
            if self.local is not None:
                top = self.path_of(folder)
                files = (path for path in top.rglob("*") if path.is_file())
                return {path.relative_to(top).as_posix(): path.stat().st_size for path in files}
            self.fs.invalidate_cache()
            own = f"/{self.uri_of(folder).split('://', 1)[-1].strip('/')}/"
            found = self.fs.find(self.uri_of(folder), detail=True)
            return {f"/{path.lstrip('/')}".removeprefix(own): int(f["size"]) for path, f in found.items()}

    def remove(self, name: str) -> None:
        """Removes a file, or does nothing where it isn't there."""
        with contextlib.suppress(*MISSING), self._explained(name, MISSING):
            if self.local is None:
                self.fs.rm_file(self.uri_of(name))
                return
            self.path_of(name).unlink()
            sync(self.path_of(name).parent)

    def copy(self, name: str, new: str) -> None:
        """Copies an object within the store, without its bytes coming here.

        Raises:
            FileNotFoundError: it isn't there.
            StorageError: the store refused.
        """
        with self._explained(name, MISSING):
            self.fs.cp_file(self.uri_of(name), self.uri_of(new))

    def names(self, folder: str = "") -> list[str]:
        """The names directly in a folder, sorted; none where the folder isn't there."""
        try:
            with self._explained(folder, (FileNotFoundError,)):
                if self.local is not None:
                    path = self.path_of(folder)
                    return sorted(os.listdir(path)) if path.is_dir() else []
                self.fs.invalidate_cache()
                found = self.fs.ls(self.uri_of(folder), detail=False)
        except FileNotFoundError:
            return []
        own = self.uri_of(folder).split("://", 1)[-1].rstrip("/")
        return sorted({p.rstrip("/").rsplit("/", 1)[-1] for p in found if p.rstrip("/") != own})

    def create(self, name: str, data: bytes) -> bool:
        """Writes a file unless it is there; never a partial one.

        Returns:
            Whether this call created it; False leaves what was there.
        """
        self.check_writable()
        with self._explained(name):
            if self.local is None:
                try:
                    self.fs.pipe_file(self.uri_of(name), data, mode="create")
                except FileExistsError:
                    return False
                return True
            path = self.path_of(name)
            with self._unfinished(path, data) as partial:
                partial.chmod(0o444)  # created once, never changed
                if not _appear(partial, path):
                    return False
            sync(path.parent)
            return True

    def replace(self, name: str, data: bytes, *, read_only: bool = False) -> None:
        """Writes a file whether or not it is there; never a partial one.

        Args:
            read_only: it is one of those that are created once.
        """
        self.check_writable()
        with self._explained(name):
            if self.local is None:
                self.fs.pipe_file(self.uri_of(name), data)
                return
            path = self.path_of(name)
            with self._unfinished(path, data) as partial:
                if read_only:
                    partial.chmod(0o444)
                partial.replace(path)
            sync(path.parent)

    def check_writable(self) -> None:
        """
        Raises:
            UsageError: it lies in a zip archive.
        """
        if self.uri.startswith(ZIP):
            raise UsageError(
                f"{self.uri}: zip archives are only read; write to a folder or a bucket, and zip that"
            )

    def restore(self, path: pathlib.Path, name: str) -> None:
        """Moves a scratch file to where one that is created once was lost or damaged; it appears whole."""
        with self._explained(name):
            if self.local is None:
                self.fs.put_file(str(path), self.uri_of(name))
                return
            target = self.path_of(name)
            target.parent.mkdir(parents=True, exist_ok=True)
            sync(path)
            path.chmod(0o444)
            path.replace(target)
            sync(target.parent)

    @contextlib.contextmanager
    def scratch(self) -> Iterator[pathlib.Path]:
        """An empty local folder, on the root's own disk where that is local; gone afterwards."""
        self.check_writable()
        if self.local is None:
            with tempfile.TemporaryDirectory(prefix="logloom-") as folder:
                yield pathlib.Path(folder)
            return
        path = self._temporary / _own_name()
        with explained(str(path)):
            path.mkdir(parents=True)
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)

    def publish(self, folder: pathlib.Path, name: str, last: str) -> None:
        """Makes a scratch folder's files visible under `name`, the file `last` after all others.

        A folder that is there already is left as it is: it holds the same bytes. One that lacks `last`, whose
        mark was taken from it, is filled anew.
        """
        with self._explained(name):
            if self.local is None:
                self._restore_all(folder, name, last)
                return
            paths = [*folder.rglob("*"), folder]
            sync_all(paths)
            for path in paths:
                if path.is_file():
                    path.chmod(0o444)
            target = self.path_of(name)
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                folder.rename(target)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
                if not (target / last).exists():
                    self._restore_all(folder, name, last)
                return
            sync(target.parent)

    def _restore_all(self, folder: pathlib.Path, name: str, last: str) -> None:
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        for path in sorted(files, key=lambda path: path == folder / last):
            self.restore(path, f"{name}/{path.relative_to(folder).as_posix()}")

    def fill(self, folder: pathlib.Path, name: str) -> None:
        """Moves a scratch folder's files, it has no others, into `name`, which may hold files already.

        Each appears whole, and replaces what had its name.
        """
        with self._explained(name):
            paths = sorted(folder.iterdir())
            if self.local is None:

                def put(path: pathlib.Path) -> None:
                    self.fs.put_file(str(path), self.uri_of(f"{name}/{path.name}"))
                    path.unlink()

                with ThreadPoolExecutor(_AT_ONCE) as pool:
                    list(pool.map(put, paths))
                return
            sync_all(paths)
            target = self.path_of(name)
            target.mkdir(parents=True, exist_ok=True)
            for path in paths:
                path.replace(target / path.name)
            sync(target)

    def sweep(self) -> None:
        """Removes scratch folders and unfinished files of processes of this machine that are gone."""
        self.check_writable()  # it is how writing begins
        if self.local is None:
            return
        for folder in map(self.path_of, _SWEPT):
            for path in folder.iterdir() if folder.is_dir() else ():
                if not _is_left_behind(path):
                    continue
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink(missing_ok=True)

    @property
    def _temporary(self) -> pathlib.Path:
        """
        Raises:
            StorageError: it leads to another folder, where unfinished work would be written.
        """
        path = self.path_of(TEMPORARY)
        if path.is_symlink():
            raise StorageError(f"{path}: a symbolic link; remove it, a folder takes its place")
        return path

    @contextlib.contextmanager
    def _unfinished(self, path: pathlib.Path, data: bytes) -> Iterator[pathlib.Path]:
        """A file with these bytes on the disk of `path`; gone afterwards unless it took that name."""
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = self._temporary
        # Only a root that is being built has a place for it: a plain folder holds its format's files alone.
        folder, hidden = (scratch, "") if scratch.is_dir() else (path.parent, ".")
        partial = folder / f"{hidden}{_own_name()}{_PARTIAL}"
        try:
            with partial.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            yield partial
        finally:
            partial.unlink(missing_ok=True)


def _own_name() -> str:
    """A name that says whose it is, so that the next build can tell rubbish from work in progress."""
    return f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"


def _is_left_behind(path: pathlib.Path) -> bool:
    """Whether the process of this machine that made it is gone; False for all that has other names."""
    host, pid, unique = [*path.name.removeprefix(".").rsplit("-", 2), "", ""][:3]
    if host != socket.gethostname() or not pid.isdigit() or len(unique.removesuffix(_PARTIAL)) != 8:
        return False
    return not _is_running(int(pid))


def _appear(partial: pathlib.Path, path: pathlib.Path) -> bool:
    """Gives a file its name unless that is taken; says whether it did."""
    try:
        os.link(partial, path)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)  # renaming would replace what another process just created
            if path.exists():
                return False
            partial.rename(path)
        finally:
            os.close(folder)
    return True


def sync(path: pathlib.Path) -> None:
    """Waits until a file or folder is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_all(paths: Sequence[pathlib.Path]) -> None:
    """Waits until all these files and folders are on the disk."""
    with ThreadPoolExecutor(max(1, min(len(paths), _AT_ONCE))) as pool:
        list(pool.map(sync, paths))


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def file_name_of(uri: str) -> str:
    """The last part of a URI's path, without a query."""
    return urllib.parse.unquote(uri.split("?", 1)[0].rstrip("/").rsplit("/", 1)[-1])
