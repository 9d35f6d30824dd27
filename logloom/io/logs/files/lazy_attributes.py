"""Lazy attributes of objects that several threads use.

Here: `lazy`, used instead of `cached_property`.
"""

from __future__ import annotations

import threading
from typing import TypeVar

from logloom.caching import cached_property
from logloom.io.storage.locks import Lock

T = TypeVar("T")


class lazy(cached_property[T]):  # noqa: N801 (a decorator)
    """A `cached_property` that is computed once per object, also if threads share a log."""

    def of(self, instance: object) -> T:
        # One lock for all attributes of an object, since they use each other.
        with instance.__dict__.setdefault("_lazy_lock", Lock(threading.RLock)):
            return super().of(instance)
