"""The filter of `rows: {where: ...}`: its grammar, its checks and its evaluation over columns.

Here: `parse` and `Filter`. Nothing is ever evaluated as Python.
Elsewhere: where the filter drops ticks (logloom.transforms.rows).

    either     = both {"or" both}
    both       = negated {"and" negated}
    negated    = "not" negated | comparison
    comparison = operand {operator operand} | operand ["not"] "in" "(" literal {"," literal} ")"
    operator   = "<" | "<=" | ">" | ">=" | "==" | "!="
    operand    = literal | column {"[" index "]"} | "available" "(" column ")" | "(" either ")"
    literal    = ["-"] number | 'text' | "text" | true | false

Comparisons chain as in mathematics (0 < speed < 3); lists may stand in square brackets, too. Floating point
numbers are compared as float64. A comparison with NaN is false, `!=` and `not in` included.
"""

from __future__ import annotations

import difflib
import math
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

import numpy as np
from numpy.typing import NDArray

from logloom.blocks import Values
from logloom.errors import UsageError
from logloom.schema import ColumnType

Mask = NDArray[np.bool_]
Kind = Literal["number", "text", "truth"]

MAX_LENGTH, MAX_DEPTH = 10_000, 50

_TOKEN = re.compile(
    r"(?P<number>(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?)"
    r"|(?P<name>[A-Za-z_]\w*(\.\w+)*)"
    r"|(?P<text>'[^']*'|\"[^\"]*\")"
    r"|(?P<sign><=|>=|==|!=|[<>()\[\],-])",
    re.ASCII,
)
_COMPARE: Mapping[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
_TRUTHS = {"true": True, "True": True, "false": False, "False": False}
_WORDS = {"and", "or", "not", "in", "available", *_TRUTHS}


@dataclass(frozen=True)
class _Literal:
    value: float | int | bytes | bool
    at: int


@dataclass(frozen=True)
class _Column:
    name: str
    index: tuple[int, ...]
    at: int


@dataclass(frozen=True)
class _Available:
    name: str
    at: int


@dataclass(frozen=True)
class _Not:
    inner: _Node
    at: int


@dataclass(frozen=True)
class _Join:
    word: Literal["and", "or"]
    parts: tuple[_Node, ...]
    at: int


@dataclass(frozen=True)
class _Comparison:
    operands: tuple[_Node, ...]
    operators: tuple[str, ...]
    at: int


@dataclass(frozen=True)
class _Member:
    operand: _Node
    items: tuple[_Literal, ...]
    negated: bool
    at: int


_Node = _Literal | _Column | _Available | _Not | _Join | _Comparison | _Member


@dataclass(frozen=True)
class Filter:
    """A parsed filter."""

    text: str
    _root: _Node

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns whose values it looks at, `c.available` for available(c); sorted."""
        return tuple(sorted({name for name, _ in _names(self._root)}))

    def check_names(self, names: Iterable[str]) -> None:
        """Checks that every column is one of `names` (those of `Schema.all` and `timestamp`).

        Raises:
            UsageError: says where the unknown column stands and which is nearest.
        """
        known = list(names)
        for name, at in _names(self._root):
            if name not in known:
                near = difflib.get_close_matches(name, known, 1)
                hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
                _refuse(self.text, at, f"no column {name!r}; {hint}")

    def check(self, types: Mapping[str, ColumnType]) -> None:
        """Checks names and types.

        Args:
            types: of every column of `Schema.all`.

        Raises:
            UsageError: says where what does not fit.
        """
        self.check_names([*types, "timestamp"])
        kind = self._kind(self._root, types)
        if kind != "truth":
            _refuse(self.text, self._root.at, f"a condition is true or false, this is a {kind}")

    def mask(self, columns: Mapping[str, Values], num_rows: int) -> Mask:
        """(num_rows,) whether each row passes.

        Args:
            columns: those that `columns` names, at least.
        """
        value = _evaluate(self._root, columns)
        return np.broadcast_to(np.asarray(value, np.bool_), num_rows)

    def _kind(self, node: _Node, types: Mapping[str, ColumnType]) -> Kind:
        match node:
            case _Literal(value):
                return (
                    "truth" if isinstance(value, bool) else "text" if isinstance(value, bytes) else "number"
                )
            case _Column(name, index, at):
                return "number" if name == "timestamp" else self._column_kind(types[name], index, at)
            case _Available():
                return "truth"
            case _Not(inner):
                self._expect_truth(inner, types)
            case _Join(_, parts):
                for part in parts:
                    self._expect_truth(part, types)
            case _Comparison(operands, operators):
                kind = self._kind(operands[0], types)
                for word, other in zip(operators, operands[1:], strict=True):
                    self._expect_kind(other, kind, types)
                    if kind != "number" and word not in ("==", "!="):
                        _refuse(self.text, other.at, f"{word} compares numbers, this is a {kind}")
            case _Member(operand, items):
                kind = self._kind(operand, types)
                for item in items:
                    self._expect_kind(item, kind, types)
        return "truth"

    def _column_kind(self, ctype: ColumnType, index: tuple[int, ...], at: int) -> Kind:
        if ctype.kind == "string" and not index:
            return "text"
        scalar = ctype.kind == "array" and ctype.dtype.kind in "iufb" and len(index) == len(ctype.shape)
        if not scalar or ctype.is_ragged:
            _refuse(self.text, at, f"only single numbers and text can be compared, this is {ctype}")
        for i, length in zip(index, ctype.tail, strict=True):
            if i >= length:
                _refuse(self.text, at, f"index {i} is out of range, this is {ctype}")
        return "truth" if ctype.dtype.kind == "b" else "number"

    def _expect_kind(self, node: _Node, kind: Kind, types: Mapping[str, ColumnType]) -> None:
        found = self._kind(node, types)
        if found != kind:
            _refuse(self.text, node.at, f"a {kind} is compared with a {found}")

    def _expect_truth(self, node: _Node, types: Mapping[str, ColumnType]) -> None:
        found = self._kind(node, types)
        if found != "truth":
            _refuse(self.text, node.at, f"a condition is true or false, this is a {found}")


def parse(text: str) -> Filter:
    """Parses a filter; which columns there are is checked later.

    Raises:
        UsageError: the text breaks the grammar; says at which character.
    """
    if len(text) > MAX_LENGTH:
        raise UsageError(f"where: {len(text)} characters, more than {MAX_LENGTH}")
    parser = _Parser(text)
    root = parser.either()
    if parser.word:
        parser.fail("expected an operator, 'and' or 'or'")
    return Filter(text, root)


class _Parser:
    """Recursive descent over the tokens; `word` is the next one, "" at the end."""

    def __init__(self, text: str):
        self.text = text
        self._tokens = _tokens(text)
        self._depth = 0
        self.kind, self.word, self.at = next(self._tokens)

    def either(self) -> _Node:
        return self._join("or", lambda: self._join("and", self._negated))

    def _join(self, word: Literal["and", "or"], inner: Callable[[], _Node]) -> _Node:
        at, parts = self.at, [inner()]
        while self._skip(word):
            parts.append(inner())
        return _Join(word, tuple(parts), at) if len(parts) > 1 else parts[0]

    def _negated(self) -> _Node:
        at = self.at
        if self._skip("not"):
            return _Not(self._deeper(self._negated), at)
        return self._comparison()

    def _comparison(self) -> _Node:
        at = self.at
        operands, operators = [self._operand()], []
        negated = self._skip("not")
        if self.word == "in" or negated:
            self._expect("in")
            return _Member(operands[0], self._items(), negated, at)
        while self.word in _COMPARE and self.kind == "sign":
            operators.append(self._next())
            operands.append(self._operand())
        return _Comparison(tuple(operands), tuple(operators), at) if operators else operands[0]

    def _items(self) -> tuple[_Literal, ...]:
        closing = {"(": ")", "[": "]"}.get(self.word)
        if closing is None or self.kind != "sign":
            self.fail("expected a list such as (1, 2)")
        self._next()
        items = [self._literal()]
        while self._skip(","):
            items.append(self._literal())
        self._expect(closing)
        return tuple(items)

    def _operand(self) -> _Node:
        at = self.at
        if self._skip("("):
            inner = self._deeper(self.either)
            self._expect(")")
            return inner
        if self._skip("available"):
            self._expect("(")
            name = self._name()
            self._expect(")")
            return _Available(name, at)
        if self.kind != "name" or self.word in _TRUTHS:
            return self._literal()
        name, index = self._name(), []
        while self._skip("["):
            if not self.word.isdigit():
                self.fail("expected an index such as 0")
            index.append(int(self._next()))
            self._expect("]")
        return _Column(name, tuple(index), at)

    def _literal(self) -> _Literal:
        at, negative = self.at, self._skip("-")
        if self.kind == "number":
            number = self._number()
            return _Literal(-number if negative else number, at)
        if self.kind == "text" and not negative:
            return _Literal(self._next()[1:-1].encode(), at)
        if self.word in _TRUTHS and not negative:
            return _Literal(_TRUTHS[self._next()], at)
        return self.fail("expected a number" if negative else "expected a column, a number or a 'text'")

    def _number(self) -> float | int:
        word = self.word
        value = int(word) if word.isdigit() and len(word) <= 20 else float(word)
        if math.isinf(value):
            self.fail("the number is too large")
        self._next()
        return value

    def _name(self) -> str:
        if self.kind != "name" or self.word in _WORDS:
            self.fail("expected a column")
        return self._next()

    def _deeper(self, inner: Callable[[], _Node]) -> _Node:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self.fail(f"nested more than {MAX_DEPTH} deep")
        node = inner()
        self._depth -= 1
        return node

    def _next(self) -> str:
        word = self.word
        self.kind, self.word, self.at = next(self._tokens)
        return word

    def _skip(self, word: str) -> bool:
        found = self.word == word and self.kind != "text"
        if found:
            self._next()
        return found

    def _expect(self, word: str) -> None:
        if not self._skip(word):
            self.fail(f"expected {word!r}")

    def fail(self, problem: str) -> NoReturn:
        _refuse(
            self.text, self.at, f"{problem}, found {self.word!r}" if self.word else f"{problem} at the end"
        )


def _tokens(text: str) -> Iterator[tuple[str, str, int]]:
    """(kind, word, where it starts) of each token, then an empty one."""
    at = 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        found = _TOKEN.match(text, at)
        if found is None or found.lastgroup is None:
            _refuse(text, at, f"{text[at]!r} has no meaning here")
        yield found.lastgroup, found.group(), at
        at = found.end()
    yield "end", "", len(text)


def _refuse(text: str, at: int, problem: str) -> NoReturn:
    shown = text if len(text) <= 100 else f"…{text[max(0, at - 40) : at + 40]}…"
    raise UsageError(f"where, character {at + 1} of {shown!r}: {problem}")


def _names(node: _Node) -> Iterator[tuple[str, int]]:
    match node:
        case _Column(name, _, at):
            yield name, at
        case _Available(name, at):
            yield f"{name}.available", at
        case _Not(inner) | _Member(inner):
            yield from _names(inner)
        case _Join(_, parts) | _Comparison(parts):
            for part in parts:
                yield from _names(part)


def _evaluate(node: _Node, columns: Mapping[str, Values]) -> Any:
    """A truth (or an array of them), a number, or text as an array of bytes objects."""
    match node:
        case _Literal(value):
            return value
        case _Column(name, index):
            return _comparable(columns[name], index)
        case _Available(name):
            return columns[f"{name}.available"]
        case _Not(inner):
            return np.logical_not(_evaluate(inner, columns))
        case _Join(word, parts):
            join = np.logical_and if word == "and" else np.logical_or
            result = _evaluate(parts[0], columns)
            for part in parts[1:]:
                result = join(result, _evaluate(part, columns))
            return result
        case _Comparison(operands, operators):
            values = [_evaluate(operand, columns) for operand in operands]
            pairs = zip(operators, values[:-1], values[1:], strict=True)
            return np.logical_and.reduce(np.broadcast_arrays(*[_compare(*pair) for pair in pairs]))
        case _Member(operand, items, negated):
            value = _evaluate(operand, columns)
            found = [_compare("!=" if negated else "==", value, item.value) for item in items]
            return (np.logical_and if negated else np.logical_or).reduce(found)


def _comparable(values: Values, index: tuple[int, ...]) -> Any:
    if not isinstance(values, np.ndarray):
        texts = np.empty(len(values), object)
        texts[:] = [row.tobytes() for row in values]
        return texts
    for i in index:
        values = values[:, i]
    return values.astype(np.float64) if values.dtype.kind == "f" else values


def _compare(word: str, a: Any, b: Any) -> Any:
    if isinstance(a, float) or isinstance(b, float):
        a, b = _as_float(a), _as_float(b)
    result = np.asarray(_COMPARE[word](a, b), np.bool_)
    for value in (a, b):
        if isinstance(value, np.ndarray) and value.dtype.kind == "f":
            result = result & ~np.isnan(value)
    return result


def _as_float(value: Any) -> Any:
    return value.astype(np.float64) if isinstance(value, np.ndarray) else float(value)
