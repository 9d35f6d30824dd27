"""Nodes of filters: a parsed `where` is a tree of them.

Here: the nodes; `nodes` and `columns_in`, which walk them.
Elsewhere: the text of filters (grammar), the columns that their names mean (binder), evaluation (where,
bounds).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from logloom.caching import cached_property
from logloom.values import dataclass

# `at`: the position of a node's first character in the text, for messages.


@dataclass(frozen=True)
class Constant:
    """A number, text or truth; a duration is a number of ns."""

    value: float | int | bytes | bool
    at: int
    is_duration: bool = False


@dataclass(frozen=True)
class ColumnName:
    """A column's value, or a part of it.

    Attributes:
        name: as written; in a bound filter, that of the column.
        steps: fields of structs and indices of vectors that lead to the part.
        is_time: whether it is a time or a length of time, of which the smallest int64 is a missing one.
        available: in a bound filter, the column of its availability; "" if its own values show which are
            missing.
    """

    name: str
    steps: tuple[int | str, ...]
    at: int
    is_time: bool = False
    available: str = ""


@dataclass(frozen=True)
class Length:
    """The number of elements, characters or bytes of a value."""

    column: ColumnName
    at: int
    is_text: bool = False

    @property
    def name(self) -> str:
        return self.column.name


@dataclass(frozen=True)
class Unary:
    word: Literal["+", "-", "abs"]
    inner: Node
    at: int


@dataclass(frozen=True)
class Arithmetic:
    """Operations of one precedence, from left to right."""

    operands: tuple[Node, ...]
    signs: tuple[str, ...]
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
    """How many elements of a column's value meet a condition, or whether any or all do.

    Attributes:
        available: see `ColumnName`.
    """

    word: Literal["count", "any", "all"]
    name: str
    condition: Node | None
    at: int
    name_at: int
    available: str = ""


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


Number = Constant | ColumnName | Length | Unary | Arithmetic
Plain = Number | Available | Finite | Not | Join | Comparison | Membership
Node = Plain | Quantified | Delta | Lasting | Nearby | Saved


def nodes(node: Node) -> Iterator[Node]:
    """Return a node and all below it, without what functions of columns contain."""
    yield node
    match node:
        case Not(inner) | Membership(inner) | Lasting(inner) | Nearby(inner) | Delta(inner) | Unary(_, inner):
            yield from nodes(inner)
        case Join(_, parts) | Comparison(parts) | Arithmetic(parts):
            for part in parts:
                yield from nodes(part)


def columns_in(node: Node) -> Iterator[ColumnName]:
    """Return the columns that a number is calculated from."""
    match node:
        case ColumnName():
            yield node
        case Length(column):
            yield column
        case Unary(_, inner):
            yield from columns_in(inner)
        case Arithmetic(parts):
            for part in parts:
                yield from columns_in(part)
