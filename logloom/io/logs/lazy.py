"""Attributes that are made when first asked for, of objects that many threads use.

Here: `lazy`, which stands where `functools.cached_property` would.
"""

from __future__ import annotations

import functools
import threading
from typing import Any, Self, TypeVar, overload

T = TypeVar("T")


class lazy(functools.cached_property[T]):  # noqa: N801 (a decorator)
    """A `functools.cached_property` that is made once for each object, whatever other objects do.

    Python 3.11 has one lock for all objects of a class, so threads that open logs would read their indices
    one after the other; later ones have none, so threads that share a log would make it twice.
    """

    @overload
    def __get__(self, instance: None, owner: type[Any] | None = None) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type[Any] | None = None) -> T: ...
    def __get__(self, instance: object | None, owner: type[Any] | None = None) -> Self | T:
        if instance is None:
            return self
        name = self.attrname
        assert name is not None
        made: dict[str, Any] = instance.__dict__
        with made.setdefault("_lazy_lock", _Lock()):
            if name not in made:
                made[name] = self.func(instance)
            found: T = made[name]
            return found


class _Lock:
    """One lock for all of an object's attributes, which need each other; copies and pickles get their own."""

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()

    def __reduce__(self) -> tuple[Any, ...]:
        return (_Lock, ())
