"""Filters as trees: what a `where` says, before it is known which columns there are.

Elsewhere: the text of them (grammar), what they mean (where, bounds).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from logloom.caching import cached_property

# `at`: the character of the text at which what a node stands for begins, for messages.


@dataclass(frozen=True)
class Constant:
    value: float | int | bytes | bool
    at: int


@dataclass(frozen=True)
class ColumnName:
    name: str
    index: tuple[int, ...]
    at: int


@dataclass(frozen=True)
class Available:
    name: str
    at: int


@dataclass(frozen=True)
class Not:
    inner: Node
    at: int


@dataclass(frozen=True)
class Join:
    word: Literal["and", "or"]
    parts: tuple[Node, ...]
    at: int


@dataclass(frozen=True)
class Comparison:
    operands: tuple[Node, ...]
    operators: tuple[str, ...]
    at: int


@dataclass(frozen=True)
class Membership:
    operand: Node
    items: tuple[Constant, ...]
    negated: bool
    at: int

    @cached_property
    def values(self) -> frozenset[float | int | bytes | bool]:
        """The items' values; of equal numbers one."""
        return frozenset(item.value for item in self.items)

    @cached_property
    def types(self) -> frozenset[type]:
        """The types of the items' values."""
        return frozenset(type(item.value) for item in self.items)


@dataclass(frozen=True)
class Quantified:
    """How many elements of a column's value a condition holds for, or whether it does for any or all."""

    word: Literal["count", "any", "all"]
    name: str
    condition: Node | None
    at: int
    name_at: int


@dataclass(frozen=True)
class Delta:
    """By how much a number changed since the row before, or since the latest row `ns` ago or more."""

    column: ColumnName
    ns: int | None
    at: int


@dataclass(frozen=True)
class Lasting:
    """Rows side by side for all of which a condition holds, the last at least `ns` after the first."""

    inner: Node
    ns: int
    at: int


@dataclass(frozen=True)
class Nearby:
    """Rows of which one for which a condition holds is at most `ns` away."""

    inner: Node
    ns: int
    at: int


@dataclass(frozen=True)
class Saved:
    """Rows in intervals that were saved by this name."""

    name: str
    at: int


Plain = Constant | ColumnName | Available | Not | Join | Comparison | Membership
Node = Plain | Quantified | Delta | Lasting | Nearby | Saved
