"""The folder that an engine's processes keep their files in while a command runs."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
import shutil
import tempfile
import time
from collections.abc import Iterator

_PREFIX = "logloom-engine-"
_LOCKED_WITHIN = 60.0  # seconds after it was made; a younger folder may not be locked yet


@contextlib.contextmanager
def engine_folder(kept: str = "") -> Iterator[pathlib.Path]:
    """A folder for logs, configuration and staged files; removed afterwards unless it is to be kept.

    What commands that were killed left behind is removed first: a folder is locked while its command lives.

    Args:
        kept: the folder that the user asked for.
    """
    if kept:
        folder = pathlib.Path(kept).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        yield folder
        return
    sweep(pathlib.Path(tempfile.gettempdir()))
    with (
        tempfile.TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True) as name,
        _opened(name) as lock,
    ):
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield pathlib.Path(name)


def sweep(place: pathlib.Path) -> None:
    """Removes folders of commands that have ended without doing so."""
    for folder in place.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # another's, locked, or swept by another command right now
            if time.time() - folder.stat().st_mtime < _LOCKED_WITHIN:
                continue
            with _opened(str(folder)) as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)


@contextlib.contextmanager
def _opened(folder: str) -> Iterator[int]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
