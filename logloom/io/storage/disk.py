"""Write local files safely: temporary names, locks, atomic publishing, syncing.

Here: `own_name`, `is_left_behind`, `is_running`, `start_of`, `locked`, `unfinished`, `appear`,
`replace_file`, `in_its_folder`, `make_folder`, `paths_below`, `start_writing`, `sync`,
`sync_all` and `remove_with`.
Elsewhere: the files of a dataset root (store).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import functools
import os
import pathlib
import socket
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from logloom.io.storage.faults import storage_error
from logloom.io.storage.step_times import step
from logloom.io.storage.threads import Threads

T = TypeVar("T")

NO_LINKS = (
    errno.EXDEV,
    errno.EPERM,
    errno.EMLINK,
    errno.ENOTSUP,
    errno.ENOSYS,
)  # how link() says: not on this disk
PARTIAL = ".partial"  # ends the name of a file that isn't finished
_WRITE = 2  # SYNC_FILE_RANGE_WRITE of Linux
_TRIES = 100  # of what others may undo in between
AT_ONCE = 8  # files synced or uploaded at a time; those synced together share the disk's commits
_SYNCING = Threads(AT_ONCE, "logloom-sync")


def own_name() -> str:
    """Return a name that contains this process, so that the next build recognizes abandoned work."""
    return f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"


def is_left_behind(path: pathlib.Path) -> bool:
    """Return whether the process of this machine that made it is gone; False for all that has other names."""
    host, pid, unique = [*path.name.removeprefix(".").rsplit("-", 2), "", ""][:3]
    if host != socket.gethostname() or not pid.isdigit() or len(unique.removesuffix(PARTIAL)) != 8:
        return False
    return not (is_running(int(pid)) or _is_locked(path))


@contextlib.contextmanager
def locked(path: pathlib.Path) -> Iterator[None]:
    """Lock a file or folder, to mark it as in use for processes that don't see this one (in containers).

    Raises:
        StorageError: it can't be opened.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError as error:
        raise storage_error(str(path), error) from None
    try:
        with contextlib.suppress(OSError):  # a disk without locks
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def _is_locked(path: pathlib.Path) -> bool:
    try:
        with opened(path) as descriptor:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def appear(partial: pathlib.Path, path: pathlib.Path) -> bool:
    """Give a file its name unless the name is taken; return whether it did."""
    try:
        os.link(partial, path)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        with opened(path.parent) as folder:
            fcntl.flock(folder, fcntl.LOCK_EX)  # renaming would replace what another process just created
            if path.exists():
                return False
            partial.rename(path)
    return True


@contextlib.contextmanager
def unfinished(partial: pathlib.Path, data: bytes, *, durable: bool = True) -> Iterator[None]:
    """Provide a temporary file with these bytes; the block may rename it.

    Args:
        partial: ends in PARTIAL.
        durable: the bytes are on the disk before the block begins.
    """
    try:
        with partial.open("xb") as file, locked(partial):
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
            yield
    finally:
        partial.unlink(missing_ok=True)


def replace_file(path: pathlib.Path, data: bytes) -> None:
    """Write or replace a file in a folder of the user's, atomically.

    Links are followed. Anything but a plain file, such as /dev/stdout, is written
    in place.

    Raises:
        OSError: it can't be written; what was there is as it was.
    """
    path = path.resolve()
    if path.exists() and not path.is_file():
        path.write_bytes(data)
        return
    partial = path.with_name(f".{own_name()}{PARTIAL}")
    with unfinished(partial, data):
        if path.exists():
            partial.chmod(path.stat().st_mode & 0o777)
        partial.replace(path)


def in_its_folder(file: pathlib.Path, target: pathlib.Path, name_it: Callable[[], T]) -> T:
    """Give a file a name, creating its folder; again if gc removes the folder while it is empty.

    Args:
        file: as it is called so far.
        name_it: gives it the name `target`.
    """
    for _ in range(_TRIES):
        make_folder(target.parent)
        try:
            return name_it()
        except FileNotFoundError:
            if not file.exists():
                raise
    return name_it()


def make_folder(path: pathlib.Path) -> None:
    """Make a folder and those above that are missing; they stay even if the power fails.

    Folders that others remove meanwhile are created again.
    """
    for more in reversed(range(_TRIES)):
        if path.is_dir():
            return
        make_folder(path.parent)
        try:
            path.mkdir(exist_ok=True)
            sync(path.parent)  # else what is synced in it could be lost with its name
        except FileNotFoundError:
            if not more:
                raise


def paths_below(folder: pathlib.Path) -> list[pathlib.Path]:
    """List all files and folders below a folder, sorted; some may be removed meanwhile.

    Raises:
        OSError: one of them can't be listed, which `Path.rglob` would pass over in silence.
    """

    def refuse(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):  # a folder that is gone holds nothing
            raise error

    found = os.walk(folder, onerror=refuse)
    return sorted(pathlib.Path(top, name) for top, folders, files in found for name in (*folders, *files))


@contextlib.contextmanager
def opened(path: pathlib.Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def start_writing(paths: Iterable[pathlib.Path]) -> None:
    """Make the system begin to write files' bytes to the disk, without waiting.

    By itself it leaves them for many seconds, or until a sync, which then waits for all of them. Where
    the system has no such call, only time is lost.
    """
    sync_range = _sync_file_range()
    if sync_range is None:
        return
    for path in paths:
        with step("write out"), contextlib.suppress(OSError), opened(path) as descriptor:
            sync_range(
                descriptor, 0, 0, _WRITE
            )  # from byte 0 to the end; what is on its way already stays so


@functools.cache
def _sync_file_range() -> Callable[[int, int, int, int], int] | None:
    """Linux's call of this name."""
    try:
        call = ctypes.CDLL(None).sync_file_range
    except (AttributeError, OSError, TypeError):  # another system
        return None
    call.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
    return call


def sync(path: pathlib.Path) -> None:
    """Wait until a file or folder is on the disk."""
    with opened(path) as descriptor:
        os.fsync(descriptor)


def sync_all(paths: Sequence[pathlib.Path]) -> None:
    """Wait until all these files and folders are on the disk."""
    with step("sync"):
        deque(_SYNCING.pool.map(sync, paths), maxlen=0)


def is_running(pid: int, began: int = 0) -> bool:
    """Return whether a process runs that this one can see.

    Args:
        began: its start as `start_of` gave it; one with another start only has the number of one that is
            gone. 0 where it isn't known.
    """
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return not began or start_of(pid) in (0, began)


def start_of(pid: int) -> int:
    """When a process began, in clock ticks since the machine booted; 0 if unknown."""
    try:
        return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0


def remove_with(owner: object, path: str) -> None:
    """Remove a file with an object, at the latest when this process ends; a fork of it doesn't."""
    from multiprocessing.util import Finalize  # few processes need it

    # Not weakref.finalize, which waits for atexit: processes of multiprocessing end without that.
    Finalize(owner, _remove, (path,), exitpriority=0)


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)
