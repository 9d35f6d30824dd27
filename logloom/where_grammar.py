"""The grammar of filters: the text of a `where` as a tree.

Here: the nodes and `parse_tree`, which knows no columns.
Elsewhere: what a tree means, and whether it fits the columns (where).

    either     = both {"or" both}
    both       = negated {"and" negated}
    negated    = "not" negated | comparison
    comparison = operand {operator operand} [["not"] "in" "(" [literal {"," literal} [","]] ")"]
    operator   = "<" | "<=" | ">" | ">=" | "==" | "!="
    operand    = literal | column {"[" index "]"} | "available" "(" column ")" | "(" either ")"
    literal    = ["-" | "+"] number | 'text' | "text" | true | false

Comparisons chain as in mathematics (0 < speed < 3). Lists may stand in square brackets and braces, too, and
names in backticks: `in` is a column. Numbers are written as in Python, texts as they are: a backslash means
itself. A number that float64 cannot hold is refused.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, NoReturn

from logloom.errors import UsageError

MAX_LENGTH, MAX_DEPTH = 1_000_000, 50  # a list may name all logs of a table
OPERATORS = ("<", "<=", ">", ">=", "==", "!=")

_DIGITS = r"\d+(_\d+)*"
_TOKEN = re.compile(
    r"(?P<number>0[xX](_?[\da-fA-F]){1,16}|0[oO](_?[0-7]){1,22}|0[bB](_?[01]){1,64}"
    rf"|({_DIGITS}\.?({_DIGITS})?|\.{_DIGITS})([eE][+-]?\d+)?)"
    r"|(?P<name>([A-Za-z_]\w*|`[^`]*`)(\.(\w+|`[^`]*`))*)"
    r"|(?P<text>'[^']*'|\"[^\"]*\")"
    r"|(?P<sign><=|>=|==|!=|[<>()\[\]{},+-])",
    re.ASCII,
)
_TRUTHS = {"true": True, "True": True, "false": False, "False": False}
_WORDS = {"and", "or", "not", "in", "available", *_TRUTHS}


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

    @functools.cached_property
    def values(self) -> frozenset[float | int | bytes | bool]:
        """The items' values; of equal numbers one."""
        return frozenset(item.value for item in self.items)

    @functools.cached_property
    def types(self) -> frozenset[type]:
        """The types of the items' values."""
        return frozenset(type(item.value) for item in self.items)


Node = Constant | ColumnName | Available | Not | Join | Comparison | Membership


def parse_tree(text: str) -> Node:
    """Parses a filter.

    Raises:
        UsageError: the text breaks the grammar; says at which character.
    """
    if len(text) > MAX_LENGTH:
        raise UsageError(f"where: {len(text)} characters, more than {MAX_LENGTH}")
    parser = _WhereParser(text)
    root = parser.either()
    if parser.word:
        parser.fail("expected an operator, 'and' or 'or'")
    return root


class _WhereParser:
    """Recursive descent over the tokens; `word` is the next one, "" at the end."""

    def __init__(self, text: str):
        self.text = text
        self._tokens = _tokens(text)
        self._depth = 0
        self.kind, self.word, self.at = next(self._tokens)

    def either(self) -> Node:
        return self._join("or", lambda: self._join("and", self._negated))

    def _join(self, word: Literal["and", "or"], inner: Callable[[], Node]) -> Node:
        at, parts = self.at, [inner()]
        while self._skip(word):
            parts.append(inner())
        return Join(word, tuple(parts), at) if len(parts) > 1 else parts[0]

    def _negated(self) -> Node:
        at = self.at
        if self._skip("not"):
            return Not(self._deeper(self._negated), at)
        return self._comparison()

    def _comparison(self) -> Node:
        at = self.at
        operands, operators = [self._operand()], []
        while self.word in OPERATORS and self.kind == "sign":
            operators.append(self._next())
            operands.append(self._operand())
        compared = Comparison(tuple(operands), tuple(operators), at) if operators else operands[0]
        negated = self._skip("not")
        if self.word != "in" and not negated:
            return compared
        self._expect("in")
        member = Membership(operands[-1], self._items(), negated, operands[-1].at)
        return Join("and", (compared, member), at) if operators else member

    def _items(self) -> tuple[Constant, ...]:
        closing = {"(": ")", "[": "]", "{": "}"}.get(self.word)
        if closing is None or self.kind != "sign":
            self.fail("expected a list such as (1, 2)")
        self._next()
        items: list[Constant] = []
        while self.word != closing:
            items.append(self._literal())
            if not self._skip(","):
                break
        self._expect(closing)
        return tuple(items)

    def _operand(self) -> Node:
        at = self.at
        if self._skip("("):
            inner = self._deeper(self.either)
            self._expect(")")
            return inner
        if self._skip("available"):
            self._expect("(")
            name = self._name()
            self._expect(")")
            return Available(name, at)
        if self.kind != "name" or self.word in _TRUTHS:
            return self._literal()
        name, index = self._name(), []
        while self._skip("["):
            if not self.word.isdigit():
                self.fail("expected an index such as 0")
            index.append(int(self._next()))
            self._expect("]")
        return ColumnName(name, tuple(index), at)

    def _literal(self) -> Constant:
        at, negative = self.at, self._skip("-")
        signed = negative or self._skip("+")
        if self.kind == "number":
            number = self._number()
            return Constant(-number if negative else number, at)
        if self.kind == "text" and not signed:
            return Constant(self._next()[1:-1].encode("utf-8", "surrogatepass"), at)
        if self.word in _TRUTHS and not signed:
            return Constant(_TRUTHS[self._next()], at)
        return self.fail("expected a number" if signed else "expected a column, a number or a 'text'")

    def _number(self) -> float | int:
        word = self.word.replace("_", "")
        if word[1:2] in ("x", "X", "o", "O", "b", "B"):
            number: float | int = int(word, 0)
        else:
            number = int(word) if word.isdigit() and len(word) <= 20 else float(word)
        if number == math.inf:
            self.fail("the number is too large")
        self._next()
        return number

    def _name(self) -> str:
        if self.kind != "name" or self.word in _WORDS:
            self.fail("expected a column")
        return self._next().replace("`", "")

    def _deeper(self, inner: Callable[[], Node]) -> Node:
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
        refuse(
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
            refuse(text, at, f"{text[at]!r} has no meaning here")
        yield found.lastgroup, found.group(), at
        at = found.end()
    yield "end", "", len(text)


def refuse(text: str, at: int, problem: str) -> NoReturn:
    """Says where in the filter a problem is.

    Raises:
        UsageError: always.
    """
    shown = text if len(text) <= 100 else f"…{text[max(0, at - 40) : at + 40]}…"
    raise UsageError(f"where, character {at + 1} of {shown!r}: {problem}")
