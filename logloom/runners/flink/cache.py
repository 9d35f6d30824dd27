"""Folders of the user's cache, filled on first use, and programs that fill them."""

from __future__ import annotations

import contextlib
import logging
import os
import pathlib
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence

from logloom.errors import LogloomError, UsageError

_log = logging.getLogger("logloom.runners")  # the command shows it
_LOG_EVERY = 5.0  # seconds


def cache_folder() -> pathlib.Path:
    """$LOGLOOM_CACHE, or the user's cache folder."""
    if chosen := os.environ.get("LOGLOOM_CACHE"):
        return pathlib.Path(chosen).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(base).expanduser() / "logloom"


def fetched(name: str, fetch: Callable[[pathlib.Path], None], what: str = "") -> pathlib.Path:
    """A folder of the cache, filled by `fetch` the first time; whole or not there at all.

    Args:
        what: is fetched, for people; the folder's name by default.

    Raises:
        UsageError: the cache can't be written.
    """
    folder = cache_folder() / name
    if folder.is_dir():
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        partial = pathlib.Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{name}."))
    except OSError as error:
        raise UsageError(
            f"{folder.parent}: no place to keep engines ({error.strerror}); name another in LOGLOOM_CACHE"
        ) from error
    try:
        with _logged(what or name, partial):
            fetch(partial)
        partial.chmod(0o755)
        try:
            partial.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another process was faster
                raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return folder


@contextlib.contextmanager
def _logged(name: str, folder: pathlib.Path) -> Iterator[None]:
    """Logs that something is fetched, and every few seconds how much of it is there."""
    _log.info("fetching %s into %s, this once", name, folder.parent)
    done = threading.Event()

    def follow() -> None:
        while not done.wait(_LOG_EVERY):
            size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
            _log.info("fetching %s: %.0f MB so far", name, size / 1e6)

    follower = threading.Thread(target=follow, name="logloom-fetching", daemon=True)
    follower.start()
    try:
        yield
    finally:
        done.set()
        follower.join()


def tool(name: str, wanted_for: str) -> str:
    """The path of a program.

    Raises:
        UsageError: it is not there.
    """
    path = shutil.which(name)
    if path is None:
        raise UsageError(f"{name} is not on PATH; it is needed to {wanted_for}")
    return path


def call(command: Sequence[str], what: str) -> str:
    """Runs a command to its end, and gives what it printed.

    Raises:
        LogloomError: it failed; holds the end of what it printed.
    """
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode:
        printed = "\n".join(done.stdout.strip().splitlines()[-15:])
        raise LogloomError(f"{what} failed ({command[0]} ended with {done.returncode}):\n{printed}")
    return done.stdout
