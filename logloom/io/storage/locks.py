"""Locks that are released in forked processes, whichever thread owned them.

Here: `Lock`.
Elsewhere: a cache that may be forked in the middle of a change (lru_cache).
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Any

_locks: weakref.WeakSet[Lock] = weakref.WeakSet()


class Lock:
    """A lock to be entered. Copies and pickles are locks of their own."""

    def __init__(self, make: Callable[[], Any] = threading.Lock):
        """
        Args:
            make: `threading.Lock`, or `threading.RLock` for one that its holder may enter again.
        """
        self._make, self._lock = make, make()
        _locks.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()

    def __reduce__(self) -> tuple[Any, ...]:
        return (Lock, (self._make,))


def _renew_all() -> None:
    for lock in list(_locks):
        lock._lock = lock._make()


os.register_at_fork(after_in_child=_renew_all)
