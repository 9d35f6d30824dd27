"""Filters as trees, independent of existing columns.

Elsewhere: their text (grammar), evaluation (where, bounds).
"""

from __future__ import annotations

from typing import Literal

from logloom.caching import cached_property
from logloom.values import dataclass

# `at`: the position of a node's first character in the text, for messages.


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
class Finite:
    """Whether all numbers of a value are finite, or whether any is NaN."""

    word: Literal["isfinite", "isnan"]
    column: ColumnName
    at: int

    @property
    def name(self) -> str:
        return self.column.name


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
    """How many elements of a column's value meet a condition, or whether any or all do."""

    word: Literal["count", "any", "all"]
    name: str
    condition: Node | None
    at: int
    name_at: int


@dataclass(frozen=True)
class Delta:
    """The change of a number since the previous row, or since the latest row `ns` ago or more."""

    column: ColumnName
    ns: int | None
    at: int


@dataclass(frozen=True)
class Lasting:
    """Consecutive rows that all meet a condition, the last at least `ns` after the first."""

    inner: Node
    ns: int
    at: int


@dataclass(frozen=True)
class Nearby:
    """Rows at most `ns` from one that meets a condition."""

    inner: Node
    ns: int
    at: int


@dataclass(frozen=True)
class Saved:
    """Rows in saved intervals of this name."""

    name: str
    at: int


Plain = Constant | ColumnName | Available | Finite | Not | Join | Comparison | Membership
Node = Plain | Quantified | Delta | Lasting | Nearby | Saved
