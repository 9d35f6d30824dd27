"""Regular expressions of recipes, searched by RE2 in linear time.

Here: `problem` checks an expression, `named_groups` searches one.
Elsewhere: expressions in recipes (model), the searched text (logloom.io.logs.match). The syntax is that of
Python's `re` without what needs backtracking: look-around, backreferences, atomic groups.
"""

from __future__ import annotations

import functools
import re
from typing import Any

from logloom.errors import UsageError

_TOKEN = re.compile(r"\\.|\[\^?\]?|\{,|.", re.DOTALL)
# Python's classes are those of Unicode, RE2's those of ASCII.
_WORD, _SPACE = r"\p{L}\p{N}_", r"\s\v\p{Z}"
_IN_BRACKETS = {r"\d": r"\p{Nd}", r"\D": r"\P{Nd}", r"\w": _WORD, r"\s": _SPACE, "[": r"\["}
_OUTSIDE = {
    r"\d": r"\p{Nd}",
    r"\D": r"\P{Nd}",
    r"\w": f"[{_WORD}]",
    r"\W": f"[^{_WORD}]",
    r"\s": f"[{_SPACE}]",
    r"\S": f"[^{_SPACE}]",
    r"\Z": r"\z",
    "{,": "{0,",
}
_UNSUPPORTED = {
    r"\(\?<?[=!]": "look-around",
    r"\(\?P$|escape sequence: \\\d": "a backreference",
    r"\(\?>|operator: [*+?}]\+": "an atomic or possessive group",
    r"\(\?\(": "a condition on a group",
}


def problem(pattern: str) -> str | None:
    """Describe what is wrong with an expression; None if it is valid.

    Without the package google-re2 this finds only errors of `re`.
    """
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        return f"{pattern!r} is not a regular expression: {error}"
    try:
        _compiled(pattern)
    except ModuleNotFoundError:
        return None
    except ValueError as error:
        return f"{pattern!r}: {error}"
    return None


def named_groups(pattern: str, text: str) -> dict[str, str] | None:
    """Return the named groups of an expression's first match; None without a match.

    Raises:
        UsageError: the package google-re2 is missing.
    """
    try:
        match = _compiled(pattern).search(text)
    except ModuleNotFoundError as error:
        raise UsageError(
            "regular expressions need google-re2, which is not installed; pip install 'logloom[build]'"
        ) from error
    return None if match is None else {name: found or "" for name, found in match.groupdict().items()}


@functools.lru_cache(maxsize=8)
def _compiled(pattern: str) -> Any:
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(_translated(pattern), options)
    except re2.error as error:
        message = error.args[0].decode() if isinstance(error.args[0], bytes) else str(error)
        what = next((name for syntax, name in _UNSUPPORTED.items() if re.search(syntax, message)), None)
        raise ValueError(
            f"{what or message} is not supported: expressions are searched by RE2, without backtracking; "
            "write it without look-around and backreferences"
        ) from error


def _translated(pattern: str) -> str:
    """Translate the expression to RE2's syntax."""
    words, in_brackets = [], False
    for match in _TOKEN.finditer(pattern):
        token = match[0]
        if in_brackets:
            parts = [token] if token[0] == "\\" else token
            words += [_IN_BRACKETS.get(part, part) for part in parts]
            in_brackets = parts[-1] != "]"
        else:
            words.append(_OUTSIDE.get(token, token))
            in_brackets = token[0] == "["
    return "".join(words)
