"""Attributes that are computed on first access: `cached_property`.

Elsewhere: attributes of logs, computed once for all threads (logloom.io.logs.files.lazy_attributes).
"""

from __future__ import annotations

import functools
from typing import Any, Self, TypeVar, overload

T = TypeVar("T")


class cached_property(functools.cached_property[T]):  # noqa: N801, TID251 (a decorator)
    """A `functools.cached_property` without a lock, as it is from Python 3.12 on.

    Python 3.11 has one lock for all objects of a class. An object that uses others of its class in threads,
    such as a chain of chains, would deadlock.
    """

    @overload
    def __get__(self, instance: None, owner: type[Any] | None = None) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type[Any] | None = None) -> T: ...
    def __get__(self, instance: object | None, owner: type[Any] | None = None) -> Self | T:
        return self if instance is None else self.of(instance)

    def of(self, instance: object) -> T:
        """Return the attribute of an object, computing it if missing."""
        name = self.attrname
        assert name is not None
        made: dict[str, Any] = instance.__dict__
        if name not in made:
            made[name] = self.func(instance)
        found: T = made[name]
        return found
