"""Attributes that are made when first asked for, of objects that many threads use.

Here: `lazy`, which stands where `cached_property` would.
"""

from __future__ import annotations

import threading
from typing import TypeVar

from logloom.caching import cached_property
from logloom.io.storage.locks import Lock

T = TypeVar("T")


class lazy(cached_property[T]):  # noqa: N801 (a decorator)
    """A `cached_property` that is made once for each object: threads that share a log would make it twice."""

    def of(self, instance: object) -> T:
        # One lock for all of an object's attributes, since they need each other.
        with instance.__dict__.setdefault("_lazy_lock", Lock(threading.RLock)):
            return super().of(instance)
