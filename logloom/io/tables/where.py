"""Filters on the index: what `read_index(where=...)` takes.

Here: turning text or tuples into a pyarrow expression, with checks of the names.
Elsewhere: applying it while files are read (logloom.io.tables.index).
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, cast

import numpy as np
import pyarrow.compute as pc

from logloom.errors import UsageError

Where: TypeAlias = str | Sequence[tuple[str, str, Any]] | Any  # or a pyarrow expression

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "in": lambda column, values: column.isin(list(values)),
    "not in": lambda column, values: ~column.isin(list(values)),
}
_KINDS: dict[str, tuple[type, ...]] = {
    "truth": (bool, np.bool_),  # before numbers, for Python's bools are some
    "number": (int, float, np.integer, np.floating),
    "text": (str,),
}
_SAID = {"truth": "true or false", "number": "a number", "text": "text"}
_OPERATORS = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
    ast.In: "in", ast.NotIn: "not in",
}  # fmt: skip


def to_expression(where: Where, columns: Mapping[str, str]) -> pc.Expression:
    """A filter as pyarrow wants it.

    Args:
        where: "speed > 3 and `ego.position.0` < 1 and log_id in ['a', 'b']" (and, or, not, comparisons with
            constants; names that are no Python names stand in backticks), tuples (column, operator, constant)
            that must all hold, or an expression, which is taken as it is.
        columns: of the index.

    Raises:
        UsageError: the text doesn't parse, or a column isn't in the index.
    """
    if isinstance(where, pc.Expression):
        return where
    if isinstance(where, str):
        text, names = _without_backticks(where)
        try:
            tree = ast.parse(text.strip(), mode="eval").body
        except SyntaxError as error:
            raise UsageError(f"where: {where!r} can't be read: {error}") from error
        return _FilterParser(where, names, columns).logic(tree)
    terms = [_term(column, sign, value, columns) for column, sign, value in where]
    if not terms:
        raise UsageError("where: an empty list; leave it out to read every row")
    whole = terms[0]
    for term in terms[1:]:
        whole = whole & term
    return whole


def _term(column: str, sign: str, value: Any, columns: Mapping[str, str]) -> pc.Expression:
    if column not in columns:
        raise UsageError(f"where: the index has no column {column!r}; there are {', '.join(columns)}")
    if sign not in _COMPARE:
        raise UsageError(f"where: operator {sign!r}; there are {', '.join(_COMPARE)}")
    _check_constant(column, sign, value, columns[column])
    return cast(pc.Expression, _COMPARE[sign](pc.field(column), value))


def _check_constant(column: str, sign: str, value: Any, dtype: str) -> None:
    """Makes sure that a constant can be compared with a column, which Arrow tells only while reading."""
    many = sign in ("in", "not in")
    if many and (isinstance(value, str) or not isinstance(value, Iterable)):
        raise UsageError(
            f"where: {column} {sign} {value!r}; give a list, such as {column} {sign} [{value!r}]"
        )
    kind = "text" if dtype == "str" else "truth" if np.dtype(dtype).kind == "b" else "number"
    for one in value if many else [value]:
        found = next((name for name, types in _KINDS.items() if isinstance(one, types)), type(one).__name__)
        if found != kind:
            raise UsageError(
                f"where: {column} is {_SAID[kind]} ({dtype}), so it can't be compared with {one!r}"
            )
        if kind == "number" and isinstance(one, int) and not -(2**63) <= one < 2**64:
            raise UsageError(f"where: {column} ({dtype}) is never as large as {one!r:.40}")


def _without_backticks(text: str) -> tuple[str, dict[str, str]]:
    parts = text.split("`")
    names = {f"__backtick_{i}": part for i, part in enumerate(parts) if i % 2}
    return "".join(f"__backtick_{i}" if i % 2 else part for i, part in enumerate(parts)), names


class _FilterParser:
    """Walks the syntax tree of a filter; nothing is evaluated."""

    def __init__(self, text: str, names: Mapping[str, str], columns: Mapping[str, str]):
        self._text, self._names, self._columns = text, names, columns

    def logic(self, node: ast.expr) -> pc.Expression:
        match node:
            case ast.BoolOp(op=op, values=values):
                terms = [self.logic(value) for value in values]
                whole = terms[0]
                for term in terms[1:]:
                    whole = whole & term if isinstance(op, ast.And) else whole | term
                return whole
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return cast(pc.Expression, ~self.logic(operand))
            case ast.Compare(left=left, ops=ops, comparators=rights):
                lefts = [left, *rights]
                return self._compare(lefts, [_OPERATORS.get(type(op), "?") for op in ops])
            case ast.Name() | ast.Attribute():
                return _term(self._name(node), "==", True, self._columns)
        raise self._wrong(node)

    def _compare(self, sides: Sequence[ast.expr], signs: Sequence[str]) -> pc.Expression:
        swapped = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
        whole = None
        for left, sign, right in zip(sides, signs, sides[1:], strict=False):
            if isinstance(left, ast.Name | ast.Attribute):
                term = _term(self._name(left), sign, self._constant(right), self._columns)
            else:
                term = _term(self._name(right), swapped.get(sign, sign), self._constant(left), self._columns)
            whole = term if whole is None else whole & term
        assert whole is not None
        return whole

    def _name(self, node: ast.expr) -> str:
        match node:
            case ast.Name(id=name):
                return self._names.get(name, name)
            case ast.Attribute(value=value, attr=attr):
                return f"{self._name(value)}.{attr}"
        raise self._wrong(node)

    def _constant(self, node: ast.expr) -> Any:
        try:
            return ast.literal_eval(node)
        except ValueError as error:
            raise self._wrong(node) from error

    def _wrong(self, node: ast.expr) -> UsageError:
        return UsageError(
            f"where: {ast.unparse(node)!r} in {self._text!r}; a filter compares index columns with "
            "constants, "
            "joined by and, or, not"
        )
