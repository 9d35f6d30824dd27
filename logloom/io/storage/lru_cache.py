"""A bounded cache of the values used last: `LruCache`.

Elsewhere: the chunks of logs, one cache for the whole process (logloom.io.logs.files.container).
"""

from __future__ import annotations

import operator
import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

V = TypeVar("V")

_caches: weakref.WeakSet[LruCache[Any]] = weakref.WeakSet()


class LruCache(Generic[V]):
    """The values used last, up to `max_bytes`. Thread-safe and fork-safe; pickles empty."""

    def __init__(
        self, max_bytes: int, size: Callable[[Any], int] = operator.attrgetter("nbytes"), least: int = 0
    ):
        """
        Args:
            size: of a value, in bytes.
            least: so many values are kept however large they are.
        """
        self.max_bytes, self.num_bytes = max_bytes, 0
        self._size, self._least = size, least
        self._found: OrderedDict[Hashable, V] = OrderedDict()
        self._lock = threading.Lock()
        _caches.add(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return (LruCache, (self.max_bytes, self._size, self._least))

    def get(self, key: Hashable) -> V | None:
        with self._lock:
            found = self._found.get(key)
            if found is not None:
                self._found.move_to_end(key)
            return found

    def put(self, key: Hashable, value: V) -> None:
        """Keep a value, unless there is one or it is too large."""
        size = self._size(value)
        with self._lock:
            if key in self._found or (size > self.max_bytes and not self._least):
                return
            self._found[key] = value
            self.num_bytes += size
            while self.num_bytes > self.max_bytes and len(self._found) > self._least:
                _, oldest = self._found.popitem(last=False)
                self.num_bytes -= self._size(oldest)

    def clear(self) -> None:
        with self._lock:
            self._found.clear()
            self.num_bytes = 0

    def _settle(self) -> None:
        """After a fork: a thread of the parent may have held the lock, in the middle of a change."""
        self._lock = threading.Lock()
        self.num_bytes = sum(map(self._size, self._found.values()))


def _settle_all() -> None:
    for cache in _caches:
        cache._settle()


os.register_at_fork(after_in_child=_settle_all)
