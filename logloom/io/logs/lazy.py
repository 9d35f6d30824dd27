"""Attributes that are made when first asked for, of objects that many threads use.

Here: `lazy`, which stands where `cached_property` would.
"""

from __future__ import annotations

import threading
from typing import Any, Self, TypeVar, overload

from logloom.caching import cached_property
from logloom.io.locks import Lock

T = TypeVar("T")


class lazy(cached_property[T]):  # noqa: N801 (a decorator)
    """A `cached_property` that is made once for each object: threads that share a log would make it twice."""

    @overload
    def __get__(self, instance: None, owner: type[Any] | None = None) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type[Any] | None = None) -> T: ...
    def __get__(self, instance: object | None, owner: type[Any] | None = None) -> Self | T:
        if instance is None:
            return self
        made: dict[str, Any] = instance.__dict__
        with made.setdefault("_lazy_lock", Lock(threading.RLock)):  # of all, since they need each other
            return super().__get__(instance, owner)
