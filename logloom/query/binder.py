"""Binding of a filter's names and constants to columns of known types.

Here: `Binder`, which finds columns, fields and indices, checks kinds and makes numbers of dates;
`check_names`, for columns of unknown types; the types of elements.
Elsewhere: the grammar (grammar), evaluation (where, bounds).

Numbers are of a kind that decides with what they are compared:

    number       any number without the unit ns
    time         `timestamp`, dates, and what is computed of them
    age          ages of columns, and differences of times
    nanoseconds  other integers in ns, either of the two
    duration     a constant such as 10ms, with neither times nor numbers
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal, NoReturn

import numpy as np

from logloom.blocks import numbers_in
from logloom.familiar_names import FILTERS, ours
from logloom.query.grammar import refuse
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
from logloom.schema import STRING, ColumnType, root_of
from logloom.text import near_to

Kind = Literal["number", "time", "age", "nanoseconds", "duration", "text", "truth"]

_TEMPORAL = ("time", "age", "nanoseconds")
_NUMBERS = ("number", *_TEMPORAL, "duration")
_ARTICLES: Mapping[str, str] = {"age": "an age", "nanoseconds": "a number of ns"}
_DATE = re.compile(
    r"(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?(Z|[+-]\d\d:?\d\d)?)?", re.ASCII
)
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def names_of(root: Node) -> Iterator[tuple[str, int]]:
    """Return the names of columns in a filter with their places; `c.available` for available(c)."""
    for node in nodes(root):
        match node:
            case Finite(_, ColumnName(name, _, at)):
                yield name, at
            case Quantified(name=name, name_at=at, available=available):
                yield from ((one, at) for one in (name, available) if one)
            case ColumnName() | Length():
                for column in columns_in(node):
                    yield from ((name, column.at) for name in (column.name, column.available) if name)
            case Available(name, at):
                yield f"{name}.available", at


def element_types(ctype: ColumnType) -> dict[str, ColumnType] | None:
    """Return the types of a value's elements: fields, or `value`; None if the column has no elements.

    Those of lists of lists are the elements of all lists.
    """
    ctype = ctype.flat if ctype.kind == "lists" else ctype
    if ctype.kind != "array" or len(ctype.shape) != 1:
        return None
    return {path: ctype for path, _, ctype in _fields((), ctype.dtype, ())}


def field_names(dtype: np.dtype[Any]) -> dict[str, tuple[str, ...]]:
    """Map the names of fields in a filter to the path of the field; () for `value`."""
    return {path: names for path, names, _ in _fields((), dtype, ())}


def _fields(
    names: tuple[str, ...], dtype: np.dtype[Any], shape: tuple[int, ...]
) -> Iterator[tuple[str, tuple[str, ...], ColumnType]]:
    """Name nested fields like columns, `pose.x`; texts have the same width."""
    if dtype.names and not shape:
        for name in dtype.names:
            base, inner = dtype[name].subdtype or (dtype[name], ())
            yield from _fields((*names, name), base, inner)
    else:
        is_text = dtype.kind == "U" and not shape
        yield ".".join(names) or "value", names, STRING if is_text else ColumnType(dtype, shape)


def check_names(text: str, root: Node, known: Collection[str], what: str = "column") -> None:
    """Check that every name in a filter begins with a known one.

    Args:
        text: of the filter, for messages.
        what: the names are called in messages.

    Raises:
        UsageError: one doesn't; the message has its place and the nearest name.
    """
    for name, at in names_of(root):
        base = name.removesuffix(".available")
        if root_of(name, known) is None and _with_availability(base, known) is None:
            refuse_name(text, name, at, known, what)


def refuse_name(text: str, name: str, at: int, known: Collection[str], what: str = "column") -> NoReturn:
    """Raise an error for an unknown name.

    Raises:
        UsageError: always.
    """
    hint = near_to(name, known, most=0) or ours(name, FILTERS)
    refuse(text, at, f"no {what} {name!r}{hint or near_to(name, known)}")


class Binder:
    """Binds the nodes of a filter to columns.

    Args:
        text: of the filter, for messages.
        types: of the columns, or of the fields of an element.
        what: the columns are called in messages.
    """

    def __init__(self, text: str, types: Mapping[str, ColumnType], what: str = "column"):
        self._text, self._types, self._what = text, types, what

    def truth(self, node: Node) -> Node:
        """Bind a condition.

        Raises:
            UsageError: a name, a type or a date is wrong; the message has the place.
        """
        bound, kind = self._bound(node)
        if kind != "truth":
            refuse(self._text, node.at, f"a condition is true or false, this is {_a(kind)}")
        return bound

    def _refuse_name(self, name: str, at: int) -> NoReturn:
        refuse_name(self._text, name, at, self._types, self._what)

    def _bound(self, node: Node) -> tuple[Node, Kind]:
        match node:
            case Constant(value, is_duration=is_duration):
                if is_duration:
                    return node, "duration"
                return node, (
                    "truth" if isinstance(value, bool) else "text" if isinstance(value, bytes) else "number"
                )
            case ColumnName():
                return self._column(node)
            case Length(column, at):
                return self._length(column, at), "number"
            case Unary() | Arithmetic():
                return self._calculation(node)
            case Available(name, at):
                found = _with_availability(name, self._types)
                if found is None:
                    self._refuse_name(f"{name}.available", at)
                return Available(found, at), "truth"
            case Finite(word, column, at):
                return Finite(word, self._numbers(word, column), at), "truth"
            case Not(inner, at):
                return Not(self.truth(inner), at), "truth"
            case Join(word, parts, at):
                return Join(word, tuple(self.truth(part) for part in parts), at), "truth"
            case Comparison(operands, operators, at):
                return Comparison(tuple(self._alike(operands)), operators, at), "truth"
            case Membership(operand, items, negated, at):
                first, *others = self._alike((operand, *items))
                constants = tuple(one for one in others if isinstance(one, Constant))
                return Membership(first, constants, negated, at), "truth"
            case Quantified():
                return self._elements(node), "number" if node.word == "count" else "truth"
            case Delta(column, ns, at):
                bound, kind = self._column(column)
                if kind not in _NUMBERS:
                    refuse(self._text, column.at, f"only numbers change by something, this is {_a(kind)}")
                return Delta(bound, ns, at), "age" if kind == "time" else kind
            case Lasting(inner, ns, at):
                return Lasting(self.truth(inner), ns, at), "truth"
            case Nearby(inner, ns, at):
                return Nearby(self.truth(inner), ns, at), "truth"
            case Saved():
                return node, "truth"
        raise AssertionError(node)

    # --- columns ----------------------------------------------------------------------------------------

    def _column(self, node: ColumnName) -> tuple[ColumnName, Kind]:
        """A number, text or truth of each row."""
        column, ctype = self._part(node, "only single numbers and text can be compared")
        if ctype.kind == "string" or (ctype.dtype.kind == "U" and not ctype.shape):
            return column, "text"
        if ctype.kind != "array" or ctype.shape or ctype.dtype.kind not in "iufb":
            problem = f"only single numbers and text can be compared, this is {ctype}"
            name = ".".join([column.name, *map(str, column.steps)])
            refuse(self._text, node.at, problem + _part_hint(name, ctype))
        if ctype.dtype.kind == "b":
            return column, "truth"
        if column.steps or ctype.dtype != np.int64 or self._what != "column":
            return column, "number"
        kind: Kind = "number"
        if column.name == "timestamp":
            kind = "time"
        elif column.name.endswith(".age"):
            kind = "age"
        elif ctype.unit == "ns":
            kind = "nanoseconds"
        return replace(column, is_time=kind != "number"), kind

    def _part(self, node: ColumnName, problem: str) -> tuple[ColumnName, ColumnType]:
        """The column that a name means, with the steps to its part, and the part's type."""
        name = root_of(node.name, self._types)
        if name is None:
            self._refuse_name(node.name, node.at)
        ctype, steps = self._types[name], list[int | str]()
        rest = node.name[len(name) + 1 :]
        if rest and (ctype.kind != "array" or ctype.is_ragged or not (ctype.dtype.names or ctype.shape)):
            self._refuse_name(node.name, node.at)
        for step in [*rest.split("."), *node.steps] if rest else node.steps:
            if isinstance(step, str) and ctype.shape and step.isdecimal():
                step = int(step)
            if ctype.is_ragged or (not ctype.shape if isinstance(step, int) else bool(ctype.shape)):
                refuse(self._text, node.at, f"{problem}, this is {ctype}{_part_hint(name, ctype)}")
            if isinstance(step, int):
                if step >= ctype.tail[0]:
                    refuse(self._text, node.at, f"index {step} is out of range, this is {ctype}")
                ctype = ColumnType(ctype.dtype, ctype.shape[1:])
            else:
                fields = ctype.dtype.names or ()
                if step not in fields:
                    so_far = ".".join([name, *map(str, steps)])
                    refuse(self._text, node.at, f"no field {step!r} in {so_far}{near_to(step, fields)}")
                base, shape = ctype.dtype[step].subdtype or (ctype.dtype[step], ())
                ctype = ColumnType(base, shape)
            steps.append(step)
        is_marked = ctype.dtype.kind == "f" and not ctype.shape  # a missing number is NaN
        available = "" if is_marked else self._availability(name)
        return replace(node, name=name, steps=tuple(steps), available=available), ctype

    def _availability(self, name: str) -> str:
        """The column of the availability; "" if a value can't be missing, or is missing by its own value."""
        available = f"{name}.available"
        found = self._types.get(available) if self._what == "column" else None
        return available if found is not None and found.dtype.kind == "b" else ""

    def _numbers(self, word: str, node: ColumnName) -> ColumnName:
        column, ctype = self._part(node, f"{word}(…) accepts an index of a vector")
        if ctype.kind not in ("array", "lists") or not [*numbers_in(np.empty(0, ctype.dtype))]:
            refuse(self._text, node.at, f"{word}(…) is for numbers, this is {ctype}")
        return column

    def _length(self, node: ColumnName, at: int) -> Length:
        column, ctype = self._part(node, "len(…) accepts an index of a vector")
        is_text = ctype.kind == "string" or ctype.dtype.kind == "U"
        if not (ctype.shape or is_text):
            refuse(self._text, node.at, f"len(…) is for texts, bytes, lists and vectors, this is {ctype}")
        return Length(column, at, is_text and (ctype.kind == "string" or not ctype.shape))

    def _elements(self, node: Quantified) -> Quantified:
        ctype = self._types.get(node.name)
        if ctype is None:
            self._refuse_name(node.name, node.name_at)
        fields = element_types(ctype)
        if fields is None:
            refuse(self._text, node.name_at, f"only lists and vectors have elements, this is {ctype}")
        node = replace(node, available=self._availability(node.name))
        if node.condition is None:
            return node
        check_names(self._text, node.condition, fields, "field")
        return replace(node, condition=Binder(self._text, fields, "field").truth(node.condition))

    # --- comparisons ------------------------------------------------------------------------------------

    def _alike(self, operands: Iterable[Node]) -> list[Node]:
        """Bind what is compared with each other."""
        bound = [self._bound(node) for node in operands]
        bound = self._dated(bound)
        first = bound[0][1]
        for node, kind in bound[1:]:
            if _class(kind) != _class(first) or {first, kind} in (
                {"duration", "number"},
                {"duration", "time"},
            ):
                hint = "; write a number without unit" if {first, kind} == {"duration", "number"} else ""
                refuse(self._text, node.at, f"{_a(first)} is compared with {_a(kind)}{hint}")
            first = kind if first == "nanoseconds" else first
        return [node for node, _ in bound]

    def _dated(self, bound: list[tuple[Node, Kind]]) -> list[tuple[Node, Kind]]:
        """Read the texts among operands as dates if others are times."""
        kinds = {kind for _, kind in bound}
        if "text" not in kinds or not kinds & {*_TEMPORAL}:
            return bound
        for node, kind in bound:
            if kind == "age":
                problem = "an age is compared with a text; write a duration such as 10ms"
                refuse(self._text, next(one.at for one, k in bound if k == "text"), problem)
            if kind == "text" and not isinstance(node, Constant):
                refuse(self._text, node.at, "a time is compared with a text; only constant texts are dates")
        return [(self._date(node), "time") if kind == "text" else (node, kind) for node, kind in bound]

    def _date(self, node: Node) -> Constant:
        assert isinstance(node, Constant)
        assert isinstance(node.value, bytes)
        text = node.value.decode("utf-8", "replace")
        try:
            return Constant(time_of(text), node.at)
        except ValueError as error:
            why = f": {error}" if _DATE.fullmatch(text.strip()) else ""
            problem = f"{text[:60]!r} is not a time{why}; write 2026-01-31, or 2026-01-31T12:00:00Z"
            refuse(self._text, node.at, problem)

    def _calculation(self, node: Unary | Arithmetic) -> tuple[Node, Kind]:
        if isinstance(node, Unary):
            inner, kind = self._bound(node.inner)
            self._expect_number(node.inner, kind)
            if kind == "time":
                refuse(self._text, node.at, f"{node.word} of a time; subtract another time first")
            return replace(node, inner=inner), kind
        bound = [self._bound(one) for one in node.operands]
        if any(kind in (*_TEMPORAL, "duration") for _, kind in bound):
            bound = [
                (self._date(one), "time") if kind == "text" and isinstance(one, Constant) else (one, kind)
                for one, kind in bound
            ]
        for one, kind in bound:
            self._expect_number(one, kind)
        result = bound[0][1]
        for sign, (one, kind) in zip(node.signs, bound[1:], strict=True):
            found = kind_of(sign, result, kind)
            if found is None:
                problem = f"{_a(result)} {sign} {_a(kind)} has no meaning"
                needs_unit = {result, kind} == {"number", "duration"} and sign in "+-"
                refuse(self._text, one.at, problem + ("; write both with a unit" if needs_unit else ""))
            result = found
        return replace(node, operands=tuple(one for one, _ in bound)), result

    def _expect_number(self, node: Node, kind: Kind) -> None:
        if kind not in _NUMBERS:
            refuse(self._text, node.at, f"only numbers are calculated with, this is {_a(kind)}")


def kind_of(sign: str, a: Kind, b: Kind) -> Kind | None:
    """Return the kind of a sum, difference, product or quotient of numbers; None if it has no meaning.

    Examples:
        >>> kind_of("-", "time", "time"), kind_of("+", "time", "duration"), kind_of("/", "age", "duration")
        ('age', 'time', 'number')
    """
    if a == b == "number":
        return "number"
    if sign == "*":
        kinds = {a, b} - {"number"}
        return None if "number" not in (a, b) or "time" in kinds else kinds.pop()
    if sign == "/":
        if b == "number":
            return "number" if a == "time" else a
        return None if a == "number" or "time" in (a, b) else "number"
    if sign == "-" and b == "time":
        return None if a == "duration" else "age"
    if {a, b} == {"number", "duration"} or (a == b == "time"):
        return None
    if a == "time" and sign == "-":
        return "nanoseconds" if b == "nanoseconds" else "time"
    order: tuple[Kind, ...] = ("time", "nanoseconds", "age", "duration")
    return next(kind for kind in order if kind in (a, b))


def time_of(text: str) -> int:
    """Return the ns since the Unix epoch of a date with or without time; without a zone it is UTC.

    Raises:
        ValueError: it isn't one.

    Examples:
        >>> time_of("1970-01-02"), time_of("1970-01-01T01:00:00.000000001+01:00")
        (86400000000000, 1)
    """
    found = _DATE.fullmatch(text.strip())
    if found is None:
        raise ValueError("no date")
    day, clock, seconds, fraction, zone = found.groups()
    zone = (zone or "Z").replace("Z", "+00:00")
    time = datetime.datetime.fromisoformat(f"{day}T{clock or '00:00'}:{seconds or '00'}{zone}")
    return (time - _EPOCH) // datetime.timedelta(seconds=1) * 10**9 + int((fraction or "").ljust(9, "0"))


def _with_availability(name: str, known: Collection[str]) -> str | None:
    """Return the column that a name such as `pose.x` begins with, if it has an availability."""
    while name and f"{name}.available" not in known:
        name = name.rpartition(".")[0]
    return name or None


def _part_hint(name: str, ctype: ColumnType) -> str:
    if ctype.kind == "array" and not ctype.is_ragged and ctype.shape:
        return f"; name one, as in {name}.0"
    if ctype.kind == "array" and not ctype.shape and ctype.dtype.names:
        return f"; name a field, as in {name}.{ctype.dtype.names[0]}"
    return ""


def _class(kind: Kind) -> str:
    return "number" if kind in _NUMBERS else kind


def _a(kind: Kind) -> str:
    return _ARTICLES.get(kind, f"a {kind}")
