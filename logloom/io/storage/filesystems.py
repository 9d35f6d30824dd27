"""File systems by URI, through fsspec: opened with their options and credentials.

Here: `filesystem`, `stored_file`, `contents` and `size_and_digest` of a whole file, and the parts of URIs.
Elsewhere: folders whose files appear whole (store), requests tried again
(logloom.io.storage.remote.object_stores), archives (zip_archives).
"""

from __future__ import annotations

import contextlib
import os
import stat
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from blake3 import blake3

from logloom.digests import file_digest
from logloom.errors import StorageError, UsageError
from logloom.io.storage.faults import MISSING, storage_error
from logloom.io.storage.remote import retries
from logloom.io.storage.remote.timeouts import Patience
from logloom.uris import chained, is_local, path_of, shown, without_query

ZIP = "zip://"
_PIECE = 16 << 20  # bytes of a stored file that are hashed at a time
_ACCESS = "credentials in URIs"  # among storage options: the URIs as they were given, by how they are shown


def absolute_uri(uri: str, base: str | None = None) -> str:
    """The URI with its scheme, or an absolute path; a relative one starts at `base` or the working folder."""
    if uri.startswith(ZIP):
        return _in_archive(uri, base)
    if not is_local(uri):
        return uri
    path = path_of(uri)
    if not os.path.isabs(path) and base is not None and not is_local(base):
        return f"{base.rstrip('/')}/{path}"
    return os.path.abspath(os.path.join(path_of(base), path) if base else path)


def check_named(root: str) -> None:
    """Make sure that a root is named: an unset variable must not mean the working folder.

    Raises:
        UsageError: the text is empty, or only a version.
    """
    if not root or (root.startswith("@") and "/" not in root):
        raise UsageError(f"{root!r} names no root: give a dataset's folder or URI ('.' for this folder)")


def _in_archive(uri: str, base: str | None) -> str:
    """Convert `zip://member::archive` to `zip://archive!/member`, to which names can be joined."""
    member, chained, archive = uri.removeprefix(ZIP).partition("::")
    if not chained:
        return uri
    quoted = absolute_uri(archive, base).replace("%", "%25").replace("!", "%21")
    return f"{ZIP}{quoted}!/{member.strip('/')}".rstrip("/")


def with_access(options: Mapping[str, Any] | None, uris: Iterable[str]) -> Mapping[str, Any]:
    """Return storage options with which `filesystem` opens URIs that are `shown` without credentials.

    Files and messages contain the URI as it is shown; the credentials are in the options, which are never
    stored.
    """
    secret = {shown(uri): uri for uri in uris if shown(uri) != uri}
    if not secret:
        return options or {}
    return {**(options or {}), _ACCESS: {**(options or {}).get(_ACCESS, {}), **secret}}


def with_credentials(uri: str, options: Mapping[str, Any] | None) -> str:
    """Return the URI, or that of a file in a folder, with its credentials."""
    given: Mapping[str, str] = (options or {}).get(_ACCESS, {})
    if uri in given:
        return given[uri]
    for folder, full in given.items():
        if uri.startswith(f"{folder}/"):
            path, query, rest = full.partition("?")
            return f"{path.rstrip('/')}{uri.removeprefix(folder)}{query}{rest}"
    return uri


def filesystem(uri: str, options: Mapping[str, Any] | None = None) -> tuple[Any, str]:
    """The fsspec file system of a URI, and the path in it.

    Args:
        uri: a path or URI; zip://member::archive for a file in a zip archive, which is only read.
        options: for the file system, by protocol: {"gs": {"token": "anon"}}.

    Raises:
        UsageError: no such protocol, or its package isn't installed.
    """
    if uri.startswith(ZIP):
        from logloom.io.storage.zip_archives import ZippedFiles

        return ZippedFiles(filesystem, options), absolute_uri(uri).removeprefix(ZIP)
    protocol = "file" if is_local(uri) else uri.split("://", 1)[0]
    chosen = (options or {}).get(protocol, {})
    try:
        if protocol == "file":
            return LocalFiles(chosen), LocalFiles._strip_protocol(uri)
        patience = Patience.of(protocol, chosen)
        fs, path = _opened(protocol, with_credentials(uri, options), patience.client_options(chosen))
    except (ImportError, ValueError) as error:
        extra = {"gs": "gcp", "gcs": "gcp", "s3": "s3"}.get(protocol)
        hint = f"; pip install 'logloom[{extra}]'" if extra else ""
        raise UsageError(f"{uri}: can't open {protocol}:// ({error}){hint}") from chained(error)
    from logloom.io.storage.remote.object_stores import RemoteFiles

    retries.watch()
    return RemoteFiles(fs, protocol, patience), path


class LocalFiles:
    """A file system of this machine's disks; rare methods come from fsspec's, whose import takes 40 ms."""

    protocol = ("file", "local")
    globs_itself = lists_below = False  # as stores do; see `RemoteFiles`

    def __init__(self, options: Mapping[str, Any]):
        self._options = options

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # of copies and pickles
            raise AttributeError(name)
        fs, _ = _by_fsspec("file:///", self._options)
        return getattr(fs, name)

    @staticmethod
    def _strip_protocol(uri: str) -> str:
        """Return the absolute path of a URI, without a slash at its end."""
        path = os.path.expanduser(path_of(uri))
        return os.path.join(os.getcwd(), path).rstrip("/") or "/"

    def invalidate_cache(self, path: str | None = None) -> None:
        """Do nothing: nothing is kept."""

    def info(self, path: str) -> dict[str, Any]:
        """Return `name`, `size`, `type` and `mtime` of a file or folder; links are followed.

        Raises:
            FileNotFoundError, NotADirectoryError: it doesn't exist.
        """
        return _info(path, os.stat(path))

    def ls(self, path: str, detail: bool = True) -> list[Any]:
        """Return the `info` of what is in a folder; of links, not of what they lead to.

        Raises:
            FileNotFoundError, NotADirectoryError: there is no such folder.
        """
        with os.scandir(path) as entries:  # noqa: TID251 - callers sort
            found = [_info(entry.path, entry.stat(follow_symlinks=False)) for entry in entries]
        return found if detail else [info["name"] for info in found]

    def open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        """Open a file; `options` are for stores."""
        return open(path, mode)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None) -> bytes:
        """Return the bytes of a file, or those of a range that begins and ends in it."""
        with open(path, "rb") as file:
            file.seek(start or 0)
            return file.read() if end is None else file.read(end - (start or 0))


def _info(path: str, found: os.stat_result) -> dict[str, Any]:
    is_folder, is_file = stat.S_ISDIR(found.st_mode), stat.S_ISREG(found.st_mode)
    kind = "directory" if is_folder else "file" if is_file else "other"
    return {"name": path, "size": found.st_size, "type": kind, "mtime": found.st_mtime}


def _opened(protocol: str, uri: str, options: Mapping[str, Any]) -> tuple[Any, str]:
    if protocol in ("http", "https"):
        from logloom.io.storage.remote.http import HttpFiles

        return HttpFiles(**options), uri
    return _by_fsspec(uri, options)


def _by_fsspec(uri: str, options: Mapping[str, Any]) -> tuple[Any, str]:
    import fsspec  # 40 ms, as it imports asyncio and ssl

    return cast(tuple[Any, str], fsspec.url_to_fs(uri, **options))


def uri_in(like: str, path: str) -> str:
    """The URI of a path in the file system of another URI, as its listings name it."""
    scheme = f"{like.split('://', 1)[0]}://"
    # Some list URIs; a path in an archive begins with that of the archive.
    return path if "://" in path and scheme != ZIP else f"{scheme}{path}"


@contextlib.contextmanager
def explained(what: str, passing: tuple[type[OSError], ...] = ()) -> Iterator[None]:
    """Convert errors of the operating system and the store to a StorageError with a remedy.

    Args:
        passing: refusals that the caller expects.
    """
    try:
        yield
    except passing:
        raise
    except OSError as error:
        raise storage_error(what, error) from chained(error)


class _StoredFile:
    """An open file in an object store; keeps the error of a failed read."""

    closed = False
    refusal: StorageError | None = None

    def __init__(self, file: Any):
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def read(self, *arguments: Any) -> Any:
        try:
            return self._file.read(*arguments)
        except StorageError as error:
            self.refusal = error
            raise

    def close(self) -> None:
        self.closed = True


@contextlib.contextmanager
def stored_file(uri: str, options: Mapping[str, Any] | None = None, **opening: Any) -> Iterator[Any]:
    """Open a file in an object store for a library that mistakes errors of reading for damage.

    Args:
        opening: for `open` of its file system.

    Raises:
        FileNotFoundError, NotADirectoryError, IsADirectoryError: it doesn't exist.
        StorageError: it can't be opened, or read.
    """
    fs, path = filesystem(uri, options)
    with explained(uri, MISSING):
        file = fs.open(path, "rb", **opening)
    stored = _StoredFile(file)
    try:
        yield stored
    except Exception:
        if stored.refusal is not None:  # which some libraries hide in errors of their own
            raise stored.refusal from None
        raise
    finally:
        file.close()


def contents(uri: str, options: Mapping[str, Any] | None = None, most: int | None = None) -> bytes:
    """Read all bytes of a file, or its first `most`.

    Raises:
        FileNotFoundError, NotADirectoryError, IsADirectoryError: it doesn't exist.
        StorageError: it can't be read.
        UsageError: see `filesystem`.
    """
    fs, path = filesystem(uri, options)
    with explained(uri, MISSING):
        return bytes(fs.cat_file(path, start=None if most is None else 0, end=most))


def size_and_digest(uri: str, options: Mapping[str, Any] | None = None) -> tuple[int, str]:
    """Return the size of a file and its BLAKE3 in hex; it may be larger than memory.

    Raises:
        FileNotFoundError, NotADirectoryError, IsADirectoryError: it doesn't exist.
        StorageError: it can't be read.
        UsageError: see `filesystem`.
    """
    with explained(uri, MISSING):
        if is_local(uri):
            path = path_of(uri)
            return os.stat(path).st_size, file_digest(path)
        fs, path = filesystem(uri, options)
        digest, size = blake3(), 0
        with fs.open(path, "rb", block_size=_PIECE) as file:
            while piece := file.read(_PIECE):
                digest.update(piece)
                size += len(piece)
    return size, digest.hexdigest()


def file_name_of(uri: str) -> str:
    """The last part of a path, or of a URI's path, decoded and without a query."""
    if "://" not in uri:
        return uri.rstrip("/").rpartition("/")[2]
    name = without_query(uri).rstrip("/").rpartition("/")[2]
    return urllib.parse.unquote(name) if "%" in name else name


def folder_of(uri: str) -> str:
    """Return the URI of a file's folder; a query belongs to the file."""
    return without_query(uri).rpartition("/")[0]
