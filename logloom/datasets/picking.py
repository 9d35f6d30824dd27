"""Columns and keys chosen by names and globs, with the nearest name for one that isn't there."""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from logloom.errors import UsageError
from logloom.schema import RESERVED_LAST_PARTS, Schema


def near(name: str, choices: Iterable[str]) -> str:
    """What to say of a name that isn't there: the nearest and all others."""
    known = list(choices)
    found = difflib.get_close_matches(name, known, 1)
    hint = f"did you mean {found[0]!r}? " if found else ""
    return f"{hint}there are {', '.join(known)}" if known else "there are none"


def names_of(
    patterns: str | Sequence[str] | None, schema: Schema, among: Sequence[str] | None, place: str
) -> tuple[str, ...]:
    """The columns that match, in schema order.

    Args:
        patterns: as for `Schema.select`; None is every column.
        among: the columns to choose from; None for all of the schema, ages and availabilities too.

    Raises:
        UsageError: a pattern matches nothing; names the nearest column.
    """
    if patterns is None:
        return tuple(schema.columns) if among is None else tuple(among)
    known = tuple(schema.all) if among is None else tuple(among)
    chosen: set[str] = set()
    for pattern in [patterns] if isinstance(patterns, str) else patterns:
        found = {name for name in known if _matches(name, pattern)}
        if not found:
            shown = [name for name in known if not _is_meta(name)] or known
            raise UsageError(f"{place}: no column matches {pattern!r}; {near(pattern, shown)}")
        chosen |= found
    return tuple(name for name in schema.all if name in chosen)


def _matches(name: str, pattern: str) -> bool:
    if _is_meta(name) != _is_meta(pattern):  # ages are only meant where a pattern says so
        return False
    return pattern == ".*" or fnmatch.fnmatchcase(name, pattern)


def _is_meta(name: str) -> bool:
    return "." in name and name.rpartition(".")[2] in RESERVED_LAST_PARTS


class Pick:
    """Keeps some keys of a dict: what `select` means after `map`."""

    def __init__(self, patterns: Sequence[str]):
        self.patterns = tuple(patterns)

    def __call__(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """
        Raises:
            UsageError: a pattern matches no key; names the nearest.
        """
        picked = set()
        for pattern in self.patterns:
            found = [key for key in row if pattern == ".*" or fnmatch.fnmatchcase(key, pattern)]
            if not found:
                raise UsageError(f"select after map: no key matches {pattern!r}; {near(pattern, row)}")
            picked |= {*found}
        return {key: value for key, value in row.items() if key in picked}
