"""Removal of temporary files with an object, or with the process that created it.

Here: `remove_with`.
"""

from __future__ import annotations

import contextlib
import os


def remove_with(owner: object, path: str) -> None:
    """Remove a file with an object, at the latest when this process ends; a fork of it doesn't."""
    from multiprocessing.util import Finalize  # few processes need it

    # Not weakref.finalize, which waits for atexit: processes of multiprocessing end without that.
    Finalize(owner, _remove, (path,), exitpriority=0)


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)
