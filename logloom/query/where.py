"""Filters, the `where` of recipes, datasets and tables: their checks and their evaluation over columns.

Here: `Filter`, of text (`parse`) or of tuples (`all_of`); `may_hold`, for rows of which little is known.
Nothing is ever evaluated as Python.
Elsewhere: the grammar (grammar), where filters drop ticks (logloom.transforms.rows.row_stream), choose rows
of a dataset (logloom.datasets.search.log_matches);
filters that look at elements, other rows or saved intervals (bounds).

Floating point numbers are compared as float64, texts by their UTF-8 bytes. A comparison with NaN is false,
`!=` and `not in` included. `isfinite` and `isnan` look at what is stored, and are always known.
"""

from __future__ import annotations

import datetime
import functools
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from logloom.blocks import Values, any_of_row
from logloom.errors import UsageError
from logloom.query.arithmetic import as_float, calculate, lengths, signed
from logloom.query.binding import Binder, check_names, names_of
from logloom.query.grammar import OPERATORS, parse_tree, refuse
from logloom.query.tree import (
    Arithmetic,
    Available,
    ColumnName,
    Comparison,
    Constant,
    Delta,
    Finite,
    Join,
    Lasting,
    Length,
    Membership,
    Nearby,
    Node,
    Not,
    Quantified,
    Saved,
    Unary,
    columns_in,
    nodes,
)
from logloom.schema import NO_AGE, ColumnType
from logloom.values import dataclass

Mask = NDArray[np.bool_]

_BEYOND = (Quantified, Delta, Lasting, Nearby, Saved)
_WORDS: Mapping[type, str] = {Delta: "delta", Lasting: "for", Nearby: "within", Saved: "in(…)"}

_SIGNS = (*OPERATORS, "in", "not in")
_JOIN: Mapping[str, np.ufunc] = {"and": np.logical_and, "or": np.logical_or}

_COMPARE: Mapping[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


@dataclass(frozen=True)
class Categories:
    """Texts of rows with each distinct one stored once, so that comparisons evaluate it once.

    Attributes:
        texts: (K,) bytes objects.
        codes: (N,) index of each row's text.
    """

    texts: NDArray[np.object_]
    codes: NDArray[np.integer[Any]]

    @classmethod
    def of(cls, texts: Iterable[str | bytes], codes: NDArray[np.integer[Any]]) -> Categories:
        found = [text.encode() if isinstance(text, str) else text for text in texts]
        return cls(_objects(found), codes)

    @classmethod
    def found_in(cls, rows: Iterable[str | bytes]) -> Categories:
        """Select those of the texts that rows have."""
        places: dict[str | bytes, int] = {}
        codes = [places.setdefault(text, len(places)) for text in rows]
        return cls.of(places, np.array(codes, np.int64))

    def __getitem__(self, rows: Any) -> Categories:
        """Select rows, and the texts that they have."""
        used, codes = np.unique(self.codes[rows], return_inverse=True)
        return Categories(self.texts[used], codes)

    @property
    def rows(self) -> NDArray[np.object_]:
        """(N,) the text of each row."""
        found: NDArray[np.object_] = self.texts[self.codes]
        return found


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
        """The part about elements, other rows or saved intervals, which needs `where_bounds`."""
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
        """(num_rows,) whether each row passes.

        Args:
            columns: those that `columns` names, at least.
        """
        value = evaluate(self.root, columns)
        return np.broadcast_to(np.asarray(value, np.bool_), num_rows)


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


def evaluate(node: Node, columns: Mapping[str, Values | Categories]) -> Any:
    """Evaluate a node of a filter that isn't `beyond`.

    Returns:
        A truth, a number or text (0-d, a bytes object), or an array of them or `Categories`.
    """
    match node:
        case Constant(value):
            return np.array(value, object) if isinstance(value, bytes) else value
        case ColumnName(name, steps):
            return comparable(columns[name], steps)
        case Length():
            return length_of(node, columns[node.name])
        case Unary(word, inner):
            return signed(word, evaluate(inner, columns))
        case Arithmetic(operands, signs):
            numbers = [evaluate(operand, columns) for operand in operands]
            return functools.reduce(
                lambda a, pair: calculate(pair[0], a, pair[1]),
                zip(signs, numbers[1:], strict=True),
                numbers[0],
            )
        case Available(name):
            return columns[f"{name}.available"]
        case Finite(word, ColumnName(name, steps)):
            return finite(word, part(columns[name], steps))
        case Not(inner):
            return np.logical_not(evaluate(inner, columns))
        case Join(word, parts):
            return functools.reduce(_JOIN[word], (evaluate(part, columns) for part in parts))
        case Comparison(operands, operators):
            values = [evaluate(operand, columns) for operand in operands]
            pairs = zip(operators, values[:-1], values[1:], strict=True)
            return functools.reduce(
                np.logical_and, (compare(*pair) for pair in pairs), _are_known(operands, columns)
            )
        case Membership(operand):
            return is_member(evaluate(operand, columns), node) & _are_known((operand,), columns)
    raise AssertionError(f"{node} depends on more than a row")


def _are_known(operands: Iterable[Node], columns: Mapping[str, Any]) -> Any:
    """Whether no value is missing that operands are calculated from."""
    found: Any = np.True_
    for operand in operands:
        for column in columns_in(operand):
            if column.is_time:
                found = found & (columns[column.name] != NO_AGE)
            if column.available:
                found = found & columns[column.available]
    return found


def part(values: Any, steps: tuple[int | str, ...]) -> Any:
    """Return fields of structs, or numbers of vectors."""
    for step in steps:
        values = values[step] if isinstance(step, str) else values[:, step]
    return values


def length_of(node: Length, values: Any) -> Any:
    """(n,) how many elements, characters or bytes each value of the column has."""
    if isinstance(values, Categories):
        return lengths(values.texts, is_text=node.is_text)[values.codes]
    found = part(values, node.column.steps)
    if isinstance(found, np.ndarray) and found.dtype.kind == "U":
        return np.strings.str_len(found)
    return lengths(found, is_text=node.is_text)


def finite(word: str, values: Any) -> Mask:
    """(n,) whether all numbers of each row are finite, or whether any is NaN.

    Examples:
        >>> rows = np.array([[1.0, np.nan], [np.inf, 2.0], [3.0, 4.0]])
        >>> finite("isfinite", rows).tolist(), finite("isnan", rows).tolist()
        ([False, False, True], [True, False, False])
    """
    if word == "isnan":
        return any_of_row(values, np.isnan)
    return ~any_of_row(values, lambda numbers: ~np.isfinite(numbers))


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
                holds = bool(np.all(evaluate(node, known)))
                return holds, holds
    return False, True


def is_member(value: Any, node: Membership) -> Any:
    """Compare with each item. Lists may be long: texts and integers are looked up."""
    if isinstance(value, Categories):
        return is_member(value.texts, node)[value.codes]
    if isinstance(value, np.ndarray) and value.dtype.kind == "O" and node.types == {bytes}:
        found = np.fromiter((text in node.values for text in value.flat), np.bool_, value.size)
        return found.reshape(value.shape) ^ node.negated
    if isinstance(value, np.ndarray) and value.dtype.kind in "iu" and node.types == {int}:
        limits = np.iinfo(value.dtype)
        wanted = [item for item in node.values if isinstance(item, int) and limits.min <= item <= limits.max]
        return np.isin(value, np.array(wanted, value.dtype), invert=node.negated)
    sign, join = ("!=", _JOIN["and"]) if node.negated else ("==", _JOIN["or"])
    compared = (compare(sign, value, evaluate(item, {})) for item in node.items)
    return functools.reduce(join, compared, np.full(np.shape(value), node.negated))


def comparable(values: Values | Categories, steps: tuple[int | str, ...] = ()) -> Any:
    """Return the values of a column for comparisons: one number, truth or text per row."""
    if isinstance(values, Categories):
        return values
    if not isinstance(values, np.ndarray):
        return _objects([row.tobytes() for row in values])
    found = part(values, steps)
    if found.dtype.kind == "U":
        texts, codes = np.unique(found, return_inverse=True)
        return Categories.of([text.encode("utf-8", "surrogatepass") for text in texts], codes.reshape(-1))
    return found.astype(np.float64) if found.dtype.kind == "f" else found


def _objects(texts: list[bytes]) -> NDArray[np.object_]:
    found = np.empty(len(texts), object)
    found[:] = texts
    return found


def compare(word: str, a: Any, b: Any) -> Any:
    """Compare; NaN gives false."""
    if isinstance(a, Categories) and isinstance(b, np.ndarray) and not b.ndim:
        return _COMPARE[word](a.texts, b)[a.codes]
    if isinstance(b, Categories) and isinstance(a, np.ndarray) and not a.ndim:
        return _COMPARE[word](a, b.texts)[b.codes]
    a, b = (value.rows if isinstance(value, Categories) else value for value in (a, b))
    if _is_float(a) or _is_float(b):
        a, b = as_float(a), as_float(b)
    result = np.asarray(_COMPARE[word](a, b), np.bool_)
    for value in (a, b):
        if np.asarray(value).dtype.kind == "f":
            result = result & ~np.isnan(value)
    return result


def _is_float(value: Any) -> bool:
    return isinstance(value, float) or (isinstance(value, np.ndarray) and value.dtype.kind == "f")
