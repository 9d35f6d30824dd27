"""The grammar of filters: the text of a `where` as a tree.

Here: `parse_tree`, independent of columns, and `parse_duration`.
Elsewhere: the nodes (tree), checks against columns (binder), evaluation (where, bounds).

    either     = both {"or" both}
    both       = timed {"and" timed}
    timed      = negated ["for" duration] ["within" duration]
    negated    = "not" negated | comparison
    comparison = sum {operator sum} [["not"] "in" "(" [literal {"," literal} [","]] ")"]
    operator   = "<" | "<=" | ">" | ">=" | "==" | "!="
    sum        = product {("+" | "-") product}
    product    = signed {("*" | "/") signed}
    signed     = ("-" | "+") signed | operand
    operand    = literal | value | "available" "(" column ")" | "(" either ")" | "abs" "(" sum ")"
               | ("count" | "any" | "all") "(" column {"," either} ")"
               | ("isfinite" | "isnan" | "len") "(" value ")"
               | "delta" "(" value ["," duration] ")" | "in" "(" intervals ")"
    value      = column {"[" index "]"}
    literal    = ["-" | "+"] (number | duration) | 'text' | "text" | true | false
    duration   = number ("ns" | "us" | "ms" | "s" | "min" | "h" | "d")

Comparisons chain as in mathematics (0 < speed < 3). Lists may be in square brackets or braces as well, and
names in backticks: `in` is a column. The names of functions are columns if no bracket follows. Numbers are
written as in Python, texts without escapes: a backslash means itself. A number that float64 cannot hold is
refused. Within count, any and all the columns are the fields of an element, or its `value`. A text that is
compared with a time is a date; what a dotted name means depends on the columns (binder).
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Literal, NoReturn, cast

from logloom.errors import UsageError
from logloom.familiar_names import FILTERS, ours
from logloom.query import tree
from logloom.text import DURATION_UNITS, MAX_DURATION, near_to, printable

MAX_LENGTH, MAX_DEPTH = 1_000_000, 50  # a list may contain all logs of a table
OPERATORS = ("<", "<=", ">", ">=", "==", "!=")
_INDEX_DIGITS = 9
_MAX_DIGITS = 308  # of integers that float64 can be near to
INTERVALS = re.compile(r"[a-z_][a-z0-9_]{0,99}")  # names of intervals, which become names of files

_DIGITS = r"\d+(_\d+)*"
_TOKEN = re.compile(
    r"(?P<number>0[xX](_?[\da-fA-F]){1,16}|0[oO](_?[0-7]){1,22}|0[bB](_?[01]){1,64}"
    rf"|({_DIGITS}\.?({_DIGITS})?|\.{_DIGITS})([eE][+-]?\d+)?)"
    r"|(?P<name>([A-Za-z_]\w*|`[^`]*`)(\.(\w+|`[^`]*`))*)"
    r"|(?P<text>'[^']*'|\"[^\"]*\")"
    r"|(?P<sign><=|>=|==|!=|[<>()\[\]{},+*/-])",
    re.ASCII,
)
_OTHER_SIGNS = re.compile(r"<>|\*\*|//|[=&|!~%^]+")  # of other languages
_TRUTHS = {"true": True, "True": True, "false": False, "False": False}
_WORDS = {"and", "or", "not", "in", "available", *_TRUTHS}
_QUANTIFIERS, _OF_FLOATS = ("count", "any", "all"), ("isfinite", "isnan")
_CALLS = ("available", "delta", *_QUANTIFIERS, *_OF_FLOATS, "abs", "len")


def parse_tree(text: str) -> tree.Node:
    """Parse a filter.

    Raises:
        UsageError: the text breaks the grammar; the message has the character's position.
    """
    if len(text) > MAX_LENGTH:
        raise UsageError(f"where: {len(text)} characters, more than {MAX_LENGTH}")
    parser = _WhereParser(text)
    root = parser.either()
    if parser.word:
        parser.fail("expected an operator, 'and' or 'or'")
    return root


def parse_duration(text: str) -> int:
    """Parse a text such as "300ms" to nanoseconds.

    Raises:
        UsageError: not a duration; the message has the character's position.
    """
    parser = _WhereParser(text)
    ns = parser.duration()
    if parser.word:
        parser.fail("expected nothing more")
    return ns


class _WhereParser:
    """Recursive descent over the tokens; `word` is the next one, "" at the end."""

    def __init__(self, text: str):
        self.text = text
        self._tokens = _tokens(text)
        self._depth = 0
        self._within = ""  # of count, any and all the one whose elements are meant
        self.kind, self.word, self.at = next(self._tokens)

    def either(self) -> tree.Node:
        return self._join("or", lambda: self._join("and", self._timed))

    def _join(self, word: Literal["and", "or"], inner: Callable[[], tree.Node]) -> tree.Node:
        at, parts = self.at, [inner()]
        while self._skip(word):
            parts.append(inner())
        return tree.Join(word, tuple(parts), at) if len(parts) > 1 else parts[0]

    def _timed(self) -> tree.Node:
        at, node = self.at, self._negated()
        if self.word in ("for", "within") and self._within:
            self.fail(f"an element has no time; {self.word!r} belongs outside of {self._within}(…)")
        if self._skip("for"):
            node = tree.Lasting(node, self.duration(), at)
        if self._skip("within"):
            node = tree.Nearby(node, self.duration(), at)
        return node

    def _negated(self) -> tree.Node:
        at = self.at
        if self._skip("not"):
            return tree.Not(self._deeper(self._negated), at)
        return self._comparison()

    def _comparison(self) -> tree.Node:
        at = self.at
        operands, operators = [self._calculation("+-")], []
        while self.word in OPERATORS and self.kind == "sign":
            operators.append(self._next())
            operands.append(self._calculation("+-"))
        compared = tree.Comparison(tuple(operands), tuple(operators), at) if operators else operands[0]
        if self.kind == "name" and self.word in FILTERS:
            refuse(self.text, self.at, f"no operator {self.word!r}{ours(self.word, FILTERS)}")
        negated = self._skip("not")
        if self.word != "in" and not negated:
            return compared
        self._expect("in")
        member = tree.Membership(operands[-1], self._items(), negated, operands[-1].at)
        return tree.Join("and", (compared, member), at) if operators else member

    def _calculation(self, signs: Literal["+-", "*/"]) -> tree.Node:
        inner: Callable[[], tree.Node] = self._signed
        if signs == "+-":
            inner = functools.partial(self._calculation, "*/")
        at, operands, found = self.at, [inner()], list[str]()
        while self.kind == "sign" and self.word in signs:
            found.append(self._next())
            operands.append(inner())
        return tree.Arithmetic(tuple(operands), tuple(found), at) if found else operands[0]

    def _signed(self) -> tree.Node:
        at, sign = self.at, self.word
        if self.kind != "sign" or sign not in ("-", "+"):
            return self._operand()
        self._next()
        if self.kind == "number":
            return self._number(at, sign)
        if self.kind == "text" or self.word in _TRUTHS:
            self.fail("expected a number")
        return tree.Unary(cast(Literal["-", "+"], sign), self._deeper(self._signed), at)

    def _items(self) -> tuple[tree.Constant, ...]:
        closing = {"(": ")", "[": "]", "{": "}"}.get(self.word)
        if closing is None or self.kind != "sign":
            self.fail("expected a list such as (1, 2)")
        self._next()
        items: list[tree.Constant] = []
        while self.word != closing:
            items.append(self._literal())
            if not self._skip(","):
                break
        self._expect(closing)
        return tuple(items)

    def _operand(self) -> tree.Node:
        at = self.at
        if self._skip("("):
            inner = self._deeper(self.either)
            self._expect(")")
            return inner
        if self.word in ("available", "in") and self._within and self.kind == "name":
            self.fail(f"an element only has fields; {self.word!r} belongs outside of {self._within}(…)")
        if self._skip("available"):
            self._expect("(")
            name = self._name()
            self._expect(")")
            return tree.Available(name, at)
        if self._skip("in"):
            self._expect("(")
            return self._saved(at)
        if self.kind != "name" or self.word in _TRUTHS:
            return self._literal()
        word = self.word
        name = self._name()
        if self.word == "(" and word not in _CALLS:
            hint = ours(word, FILTERS) or near_to(word, _CALLS, most=len(_CALLS))
            refuse(self.text, at, f"{word}(…) isn't a function{hint}")
        if word == "NOT":
            refuse(self.text, at, f"no operator {word!r}{ours(word, FILTERS)}")
        if word in (*_OF_FLOATS, "len") and self._skip("("):
            start = self.at
            column = self._indexed(self._name(), start)
            self._expect(")")
            if word == "len":
                return tree.Length(column, at)
            return tree.Finite(cast(Literal["isfinite", "isnan"], word), column, at)
        if word == "abs" and self._skip("("):
            inner = self._deeper(lambda: self._calculation("+-"))
            self._expect(")")
            return tree.Unary("abs", inner, at)
        if word in (*_QUANTIFIERS, "delta") and self._skip("("):
            if self._within:
                refuse(self.text, at, f"{word}(…) isn't allowed within {self._within}(…)")
            if word == "delta":
                return self._delta(at)
            return self._elements(cast(Literal["count", "any", "all"], word), at)
        return self._indexed(name, at)

    def _indexed(self, name: str, at: int) -> tree.ColumnName:
        index = []
        while self._skip("["):
            if not self.word.isdecimal() or len(self.word) > _INDEX_DIGITS:
                self.fail("expected an index such as 0")
            index.append(int(self._next()))
            self._expect("]")
        return tree.ColumnName(name, tuple(index), at)

    def _elements(self, word: Literal["count", "any", "all"], at: int) -> tree.Quantified:
        name_at, name, conditions = self.at, self._name(), list[tree.Node]()
        start = self.at
        self._within = word
        while self._skip(","):
            conditions.append(self._deeper(self.either))
        self._within = ""
        self._expect(")")
        if not conditions and word != "count":
            refuse(self.text, start, f"{word}(…) needs a condition, as in {word}({name}, distance < 15)")
        several = tree.Join("and", tuple(conditions), at) if len(conditions) > 1 else None
        return tree.Quantified(word, name, several or next(iter(conditions), None), at, name_at)

    def _delta(self, at: int) -> tree.Delta:
        start = self.at
        column = self._indexed(self._name(), start)
        ns = self.duration() if self._skip(",") else None
        self._expect(")")
        return tree.Delta(column, ns, at)

    def _saved(self, at: int) -> tree.Saved:
        if self.kind != "name" or not INTERVALS.fullmatch(self.word):
            self.fail("expected a name of intervals: a-z, 0-9 and _, such as hard_braking")
        name = self._next()
        self._expect(")")
        return tree.Saved(name, at)

    def duration(self) -> int:
        """Parse a duration to nanoseconds."""
        if self.kind != "number":
            self.fail("expected a duration such as 300ms")
        constant = self._number(self.at)
        if not constant.is_duration:
            self.fail(f"expected a unit: {', '.join(DURATION_UNITS)}")
        return int(constant.value)

    def _literal(self) -> tree.Constant:
        at = self.at
        sign = self._next() if self.kind == "sign" and self.word in ("-", "+") else ""
        if self.kind == "number":
            return self._number(at, sign)
        if self.kind == "text" and not sign:
            return tree.Constant(self._next()[1:-1].encode("utf-8", "surrogatepass"), at)
        if self.word in _TRUTHS and not sign:
            return tree.Constant(_TRUTHS[self._next()], at)
        return self.fail("expected a number" if sign else "expected a column, a number or a 'text'")

    def _number(self, at: int, sign: str = "") -> tree.Constant:
        """Parse a number, or a duration to nanoseconds."""
        start, stop, word = self.at, self.at + len(self.word), self.word.replace("_", "")
        if word[1:2] in ("x", "X", "o", "O", "b", "B"):
            number: float | int = int(word, 0)
        else:
            digits = word.lstrip("0") or "0"
            number = int(digits) if digits.isdigit() and len(digits) <= _MAX_DIGITS else float(word)
        if number == math.inf:
            self.fail("the number is too large")
        self._next()
        is_duration = self.kind == "name" and self.word in DURATION_UNITS
        if is_duration:
            exact = Decimal(str(number)) * DURATION_UNITS[self._next()]
            if exact > MAX_DURATION:
                refuse(self.text, start, "the duration is more than ten years")
            number = round(exact)
        elif self.kind == "name" and self.at == stop and self.word[0].isalpha():
            self.fail(f"expected a unit: {', '.join(DURATION_UNITS)}")
        return tree.Constant(-number if sign == "-" else number, at, is_duration)

    def _name(self) -> str:
        if self.kind != "name" or self.word in _WORDS:
            self.fail("expected a column")
        return self._next().replace("`", "")

    def _deeper(self, inner: Callable[[], tree.Node]) -> tree.Node:
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
        found = None if text[at : at + 2] in ("<>", "**", "//") else _TOKEN.match(text, at)
        if found is None or found.lastgroup is None:
            other = _OTHER_SIGNS.match(text, at)
            sign = other[0] if other else text[at]
            refuse(text, at, f"unexpected {sign!r}{ours(sign, FILTERS)}")
        yield found.lastgroup, found.group(), at
        at = found.end()
    yield "end", "", len(text)


def refuse(text: str, at: int, problem: str) -> NoReturn:
    """Raise an error for a problem at a place in the filter, with a note that points there.

    Raises:
        UsageError: always.
    """
    first = max(0, at - 40) if len(text) > 100 else 0
    part = text[first : at + 40] if len(text) > 100 else text
    shown = f"…{part}…" if len(text) > 100 else part
    error = UsageError(f"where, character {at + 1} of {shown!r}: {problem}")
    line = printable(re.sub(r"\s", " ", part))
    if len(line) == len(part):  # else unprintable characters would shift what is below
        error.add_note(f"    {line}\n    {' ' * (at - first)}^")
    raise error
