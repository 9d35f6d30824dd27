"""Filters (`where` of recipes, datasets, tables): checks, evaluation over columns.

Here: `Filter`, of text (`parse`) or of tuples (`all_of`); `may_hold`, for rows of which little is known.
Nothing is ever evaluated as Python.
Elsewhere: the grammar (grammar), evaluation with missing values (bounds), where filters drop ticks
(logloom.transforms.rows.row_stream), choose rows of a dataset (logloom.datasets.search.log_matches).
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from logloom.blocks import Values
from logloom.errors import UsageError
from logloom.query.binder import Binder, check_names, names_of
from logloom.query.bounds import of_rows
from logloom.query.comparison import Categories, Mask
from logloom.query.grammar import OPERATORS, parse_tree, refuse
from logloom.query.tree import (
    ColumnName,
    Comparison,
    Constant,
    Delta,
    Join,
    Lasting,
    Membership,
    Nearby,
    Node,
    Not,
    Quantified,
    Saved,
    nodes,
)
from logloom.schema import ColumnType
from logloom.values import dataclass

SEMANTICS = 3  # counts up when a filter of single rows would choose others
_BEYOND = (Quantified, Delta, Lasting, Nearby, Saved)
_WORDS: Mapping[type, str] = {Delta: "delta", Lasting: "for", Nearby: "within", Saved: "in(…)"}

_SIGNS = (*OPERATORS, "in", "not in")


@dataclass(frozen=True)
class Filter:
    """A parsed filter.

    Attributes:
        root: its tree.
    """

    text: str
    root: Node

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns whose values it needs, `c.available` for available(c); sorted."""
        return tuple(sorted({name for name, _ in names_of(self.root)}))

    @property
    def beyond(self) -> tuple[Quantified | Delta | Lasting | Nearby | Saved, ...]:
        """The part about elements, other rows or saved intervals, which needs `bounds.evaluate`."""
        return tuple(node for node in nodes(self.root) if isinstance(node, _BEYOND))

    def check_names(self, names: Iterable[str], *, is_search: bool = False) -> None:
        """Check that every name is one of `names`, or begins with one.

        Args:
            is_search: whether it may depend on more than single values of a row.

        Raises:
            UsageError: has the place of the unknown column and suggests the nearest.
        """
        check_names(self.text, self.root, dict.fromkeys(names))
        for node in () if is_search else self.beyond:
            word = node.word if isinstance(node, Quantified) else _WORDS[type(node)]
            refuse(
                self.text,
                node.at,
                f"{word!r} is for rows of a dataset: `logloom find`, and `where` of `logloom.datasets.open`",
            )

    def bound(self, types: Mapping[str, ColumnType], *, is_search: bool = False) -> Filter:
        """Check names and types, find the fields that dotted names mean, and read dates.

        Args:
            types: of all columns, including `timestamp`.
            is_search: see `check_names`.

        Returns:
            The filter to evaluate, of the same text.

        Raises:
            UsageError: has the place and the problem.

        Examples:
            >>> pose = ColumnType(np.dtype([("x", "f8"), ("y", "f8")]))
            >>> found = parse("abs(pose.x - 1) < 2").bound({"pose": pose})
            >>> found.columns, found.mask({"pose": np.array([(0, 0), (4, 0)], pose.dtype)}, 2).tolist()
            (('pose',), [True, False])
        """
        self.check_names(types, is_search=is_search)
        return Filter(self.text, Binder(self.text, types).truth(self.root))

    def mask(self, columns: Mapping[str, Values | Categories], num_rows: int) -> Mask:
        """(num_rows,) whether each row passes: the filter is true, neither false nor unknown.

        Args:
            columns: those that `columns` names, at least.
        """
        holds, _ = of_rows(self.root, columns)
        return np.broadcast_to(holds, num_rows)


def parse(text: str) -> Filter:
    """Parse a filter; columns are checked later.

    Args:
        text: the filter; docs/filters.md explains the language.

    Returns:
        The filter, which knows its columns and evaluates batches of rows.

    Raises:
        UsageError: the text breaks the grammar; the message has the character's position.
    """
    return Filter(text, parse_tree(text))


def all_of(terms: Sequence[tuple[str, str, Any]]) -> Filter:
    """Make a filter of tuples that must all hold, with the text that says the same.

    Args:
        terms: (column, operator, constant); constants of `in` and `not in` are lists. Dates and times of
            Python and numpy are UTC if they have no zone.

    Raises:
        UsageError: an operator or a constant that filters don't have; no tuples.
    """
    text, nodes = "", cast(list[Node], [])
    for column, sign, value in terms:
        if sign not in _SIGNS:
            raise UsageError(f"where: operator {sign!r}; there are {', '.join(_SIGNS)}")
        text += f"{' and ' if text else ''}`{column}` {sign} "
        left = ColumnName(column, (), len(text) - len(sign) - len(column) - 4)
        if sign not in ("in", "not in"):
            value = _dated(value)
            nodes.append(Comparison((left, _constant(column, sign, value, len(text))), (sign,), left.at))
        elif isinstance(value, str) or not isinstance(value, Iterable):
            raise UsageError(
                f"where: {column} {sign} {value!r}; give a list, such as {column} {sign} [{value!r}]"
            )
        else:
            value = [_dated(item) for item in value]
            items = tuple(_constant(column, sign, item, len(text)) for item in value)
            nodes.append(Membership(left, items, sign == "not in", left.at))
        text += repr(value)
    if not nodes:
        raise UsageError("where: an empty list; leave it out to read every row")
    return Filter(text, Join("and", tuple(nodes), 0))


def _dated(value: Any) -> Any:
    """Return a date or time as a text, and other constants as they are."""
    if isinstance(value, datetime.date):
        return value.isoformat()
    return str(value) if isinstance(value, np.datetime64) else value


def _constant(column: str, sign: str, value: Any, at: int) -> Constant:
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, str):
        return Constant(value.encode("utf-8", "surrogatepass"), at)
    if not isinstance(value, bool | int | float):
        raise UsageError(
            f"where: {column} {sign} {value!r:.40}: neither a number, nor text, nor true or false"
        )
    return Constant(value, at)


def may_hold(root: Node, texts: Mapping[str, str]) -> bool:
    """Whether a filter may hold for rows of a log of which only some values are known.

    Args:
        texts: by the column that has this value in all rows of the log.

    Examples:
        >>> found = parse("log_id != 'drive-a' and ego.speed > 3")
        >>> [may_hold(found.root, {"log_id": name}) for name in ("drive-a", "drive-b")]
        [False, True]
    """
    return _extremes(root, {name: Categories.found_in([text]) for name, text in texts.items()})[1]


def _extremes(node: Node, known: Mapping[str, Categories]) -> tuple[bool, bool]:
    """Whether a condition holds for all rows of a log, and whether it may for some."""
    match node:
        case Not(inner):
            low, high = _extremes(inner, known)
            return not high, not low
        case Join(word, parts):
            join = all if word == "and" else any
            lows, highs = zip(*(_extremes(part, known) for part in parts), strict=True)
            return join(lows), join(highs)
        case Lasting(inner) | Nearby(inner):
            return False, _extremes(inner, known)[1]
        case Comparison() | Membership() | Constant():
            inside = [*nodes(node)]
            is_plain = all(isinstance(one, Comparison | Membership | Constant | ColumnName) for one in inside)
            if is_plain and all(name in known for name, _ in names_of(node)):
                truth = of_rows(node, known)
                return bool(np.all(truth[0])), bool(np.any(truth[1]))
    return False, True
