"""The folders that an engine's processes keep their files in while a command runs."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
import shutil
import tempfile
import time
from collections.abc import Iterator

from logloom.errors import UsageError
from logloom.values import dataclass

_PREFIX = "logloom-engine-"
_LOCKED_WITHIN = 60.0  # seconds after it was made; a younger folder may not be locked yet


@dataclass(frozen=True)
class ScratchFolders:
    """Where the processes of one command write.

    Attributes:
        logs: their logs and configuration.
        temporary: all else; removed when the command ends.
    """

    logs: pathlib.Path
    temporary: pathlib.Path

    @property
    def environment(self) -> dict[str, str]:
        """Variables by which a process puts its temporary files here; Java wants a flag instead."""
        return {"TMPDIR": str(self.temporary)}


@contextlib.contextmanager
def engine_folders(kept: str = "") -> Iterator[ScratchFolders]:
    """Folders that are removed afterwards.

    What commands that were killed left behind is removed first: a folder is locked while its command lives.

    Args:
        kept: a folder for the logs, which stays.

    Raises:
        UsageError: it can't be made.
    """
    sweep(pathlib.Path(tempfile.gettempdir()))
    with (
        tempfile.TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True) as name,
        _opened(name) as lock,
    ):
        fcntl.flock(lock, fcntl.LOCK_EX)
        folder = pathlib.Path(name)
        logs = pathlib.Path(kept).absolute() if kept else folder
        try:
            logs.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(
                f"{logs}: no folder for the engine's logs ({error.strerror}); name another"
            ) from error
        temporary = folder / "tmp"
        temporary.mkdir()
        yield ScratchFolders(logs, temporary)


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
