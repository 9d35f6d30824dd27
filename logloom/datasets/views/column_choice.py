"""Selection of columns and keys by names and globs; nearest names as suggestions."""

from __future__ import annotations

import abc
import fnmatch
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from logloom.errors import UsageError
from logloom.io.rows.batches import Batch
from logloom.schema import RESERVED_LAST_PARTS, Schema, base_of
from logloom.text import near_to

_KEYS = ("log_id", "timestamp")


def given_names(given: str | Sequence[str], what: str) -> Sequence[str]:
    """The names that an argument gives, one or several.

    Args:
        what: the argument, for messages: "columns".

    Raises:
        UsageError: it is neither a text nor texts.
    """
    if isinstance(given, str):
        return [given]
    names: list[Any] = list(given) if isinstance(given, Iterable) else [given]
    if not all(isinstance(name, str) for name in names):
        raise UsageError(f"{what}={given!r:.60}: not a name; pass a text such as 'ego.*', or a list of texts")
    return names


def names_of(
    patterns: str | Sequence[str] | None,
    schema: Schema,
    among: Sequence[str] | None,
    place: str,
    left_out: Mapping[str, str] = MappingProxyType({}),
) -> tuple[str, ...]:
    """The columns that match, in schema order.

    Args:
        patterns: as for `Schema.select`; None is every column.
        among: the columns to choose from, and where these don't match, their ages and availabilities; None
            for all of the schema.
        left_out: why others can't be chosen.

    Raises:
        UsageError: a pattern matches nothing; names the nearest column.
    """
    if patterns is None:
        return tuple(schema.columns) if among is None else tuple(among)
    known = tuple(schema.all) if among is None else tuple(among)
    beside = [name for name in schema.meta if base_of(name) in known]
    chosen: set[str] = set()
    for pattern in given_names(patterns, "columns"):
        found = {name for name in known if _matches(name, pattern)}
        found = found or {name for name in beside if _matches(name, pattern)}
        if not found:
            if pattern in left_out:
                raise UsageError(f"{place}: no column {pattern!r}: {left_out[pattern]}")
            if pattern.rstrip("_") in _KEYS and f"{pattern}_" not in known:
                raise UsageError(
                    f"{place}: {pattern!r} is no column; `rows.index` has the log_id of each row, and its "
                    "timestamp where there is one"
                )
            shown = [name for name in known if not _is_meta(name)] or known
            raise UsageError(f"{place}: no column matches {pattern!r}{near_to(pattern, shown)}")
        chosen |= found
    return tuple(name for name in schema.all if name in chosen)


def _matches(name: str, pattern: str) -> bool:
    if _is_meta(name) != _is_meta(pattern):  # ages are only meant where a pattern says so
        return False
    return pattern == ".*" or fnmatch.fnmatchcase(name, pattern)


def _is_meta(name: str) -> bool:
    return "." in name and name.rpartition(".")[2] in RESERVED_LAST_PARTS


def without_keys(columns: str | Sequence[str], has_stamps: bool) -> Sequence[str]:
    """Names and globs without log_id and timestamp, which all rows have that have times."""
    given = given_names(columns, "columns")
    return [name for name in given if name not in _KEYS] if has_stamps else given


def is_many(key: object) -> bool:
    """Return whether `rows[key]` means several rows: a list of numbers or bools, or an array of one axis."""
    if isinstance(key, list | range):
        return not (len(key) and isinstance(key[0], str))
    return hasattr(key, "__array__") and getattr(key, "ndim", 1) == 1


def instead_of(key: object, schema: Schema, length: int, place: str) -> str:
    """What to call instead of `rows[key]`, where that is no number of a row."""
    if isinstance(key, str):
        if key not in (*_KEYS, *schema.all):
            return f"{place}: no column {key!r}{near_to(key, schema.columns)}"
        alone = "rows.index" if key in _KEYS else f"rows.select({key!r})"
        return (
            f"rows[{key!r}]: rows are reached by number, as in rows[0][{key!r}]; {alone} has that column, "
            f"rows.get_many(range(n))[{key!r}] and rows.to_pandas([…]) the values of many rows"
        )
    if isinstance(key, Sequence) or (isinstance(key, np.ndarray) and key.ndim):
        names = len(key) > 0 and all(isinstance(name, str) for name in key)
        call = "select([…]) chooses columns" if names else "[[…]] and rows.take([…]) return several rows"
        return f"rows[…]: rows are reached by a number, a slice, a list or a mask; rows{'.' * names}{call}"
    return f"rows[{key!r:.80}]: rows are reached by number, from 0 to {length - 1}, by a slice, list or mask"


class BatchFn(abc.ABC):
    """A function of samples, for `map`, that can treat all samples of a batch at once.

    Attributes:
        changes: columns whose values it changes; it needs no others.
    """

    changes: Collection[str] = ()

    @abc.abstractmethod
    def __call__(self, sample: Mapping[str, Any]) -> dict[str, Any]:
        """Make a sample of a sample."""

    @abc.abstractmethod
    def batched(self, batch: Batch) -> Batch:
        """Make of a batch what calls make of its samples."""


class Pick(BatchFn):
    """Keeps some keys of a dict, or drops them: what `select` and `drop` mean after `map`."""

    def __init__(self, patterns: Sequence[str], keeps: bool = True):
        self.patterns, self._keeps = tuple(patterns), keeps

    def keeps(self, key: str) -> bool:
        """Whether a key of a sample is kept."""
        return any(pattern == ".*" or fnmatch.fnmatchcase(key, pattern) for pattern in self.patterns)

    def __call__(self, sample: Mapping[str, Any]) -> dict[str, Any]:
        """
        Raises:
            UsageError: a pattern matches no key; names the nearest.
        """
        picked = set()
        for pattern in self.patterns:
            found = [key for key in sample if pattern == ".*" or fnmatch.fnmatchcase(key, pattern)]
            if not found:
                verb = "select" if self._keeps else "drop"
                raise UsageError(f"{verb} after map: no key matches {pattern!r}{near_to(pattern, sample)}")
            picked |= {*found}
        return {key: value for key, value in sample.items() if (key in picked) == self._keeps}

    def batched(self, batch: Batch) -> Batch:
        return self(batch)
