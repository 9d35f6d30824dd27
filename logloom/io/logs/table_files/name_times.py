"""Times in file names, by patterns such as `lidar_{ns}`.

A placeholder marks the time of a table that is one message.

Here: `name_problem` checks a pattern, `time_in` returns the time in a name, `timing_names` the names with
times that files don't contain.
Elsewhere: times within tables (times), the recipe's key for it
(logloom.recipe.model).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from typing import Any

from logloom.errors import LogReadError
from logloom.extras import needed
from logloom.io.logs.interface import MAX_TIME
from logloom.io.logs.table_files import SUFFIXES
from logloom.io.storage.filesystems import file_name_of

# Nanoseconds in a unit.
UNITS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}

STAMP = re.compile(r"[1-9][0-9]{8,18}")  # the name of a table that is only a time

_PART = re.compile(r"\{[^{}]*\}|\*|[^{}*]+|.", re.DOTALL)
_RUN = re.compile(r"\}[0-9*]*\{")  # nothing marks the end of the number before
_MAX_STARS = 2
_HOW = "mark the time by {ns}, {us}, {ms} or {s}, as in lidar_{ns}"


def name_problem(pattern: str) -> str | None:
    """Describe what is wrong with a pattern; None if it is valid."""
    parts = _PART.findall(pattern)
    units = [part[1:-1] for part in parts if part.startswith("{") and part.endswith("}")]
    wrong = [part for part in parts if part in "{}"] + [f"{{{u}}}" for u in units if u not in UNITS]
    if wrong or not units:
        return f"{wrong[0]} is unknown; {_HOW}" if wrong else f"{pattern!r} has no time; {_HOW}"
    lengths = [UNITS[unit] for unit in units]
    if sorted(set(lengths), reverse=True) != lengths:
        return f"{pattern!r}: order units from long to short, each once, as in {{s}}_{{ns}}"
    if _RUN.search(pattern):
        return f"{pattern!r}: put text between two units, as in {{s}}_{{ns}}"
    if "/" in pattern:
        return f"{pattern!r}: is compared with names of files, which have no /"
    if parts.count("*") > _MAX_STARS:
        return f"{pattern!r}: has more than {_MAX_STARS} *"
    return None


def timing_names(uris: Iterable[str], patterns: Sequence[str]) -> list[str]:
    """Return the names of a log's files that may contain times, which aren't part of the files' content.

    >>> timing_names(["/lidar/1700000000.feather"], ())
    ['1700000000.feather']
    >>> timing_names(["/drives/1700000000.mcap"], ())
    []
    """
    names = [file_name_of(uri) for uri in uris]
    tables = (name.rsplit(".", 1)[0] for name in names if name.endswith(SUFFIXES))
    return names if patterns or any(map(STAMP.fullmatch, tables)) else []


def time_in(uri: str, patterns: Iterable[str]) -> int | None:
    """Return the time in a file's name, in ns since the Unix epoch, by the first matching pattern; None if
    none matches. Patterns may omit the suffix.

    A time of several parts is their sum: {s}_{ns} are whole seconds and the rest. Decimals count exactly.

    Raises:
        LogReadError: a pattern matches, but not a valid time.
        UsageError: there are patterns, and the package google-re2 is missing.

    >>> time_in("drive/lidar_1700000000.25.feather", ["lidar_{s}"])
    1700000000250000000
    >>> time_in("drive/camera.parquet", ["lidar_{s}"]) is None
    True
    """
    name = file_name_of(uri)
    for pattern in patterns:
        units, expression = _compiled(pattern)
        match = expression.fullmatch(_bytes(name))
        if match is None and name.endswith(SUFFIXES):
            match = expression.fullmatch(_bytes(name.rpartition(".")[0]))
        if match is not None:
            return _time(uri, pattern, units, [number.decode() for number in match.groups()])
    return None


@functools.lru_cache(maxsize=64)
def _compiled(pattern: str) -> tuple[Sequence[str], Any]:
    """Return the units of a pattern, and a linear-time search for their numbers in the bytes of a name.

    Raises:
        UsageError: the package google-re2 is missing.
    """
    with needed("google-re2", "build"):
        import re2

    units, expression = [], b"(?s)"
    for part in _PART.findall(pattern):
        if part == "*":
            expression += b".*?"
        elif part.startswith("{"):
            units.append(part[1:-1])
            decimals = len(str(UNITS[units[-1]])) - 1
            tail = rf"(?:\.[0-9]{{1,{decimals}}})?" if decimals else ""
            expression += f"([0-9]+{tail})".encode()
        else:
            expression += re.escape(_bytes(part))
    options = re2.Options()
    options.log_errors = False
    options.encoding = re2.Options.Encoding.LATIN1  # names on disks may be invalid text
    return tuple(units), re2.compile(expression, options)


def _bytes(name: str) -> bytes:
    return name.encode("utf-8", "surrogatepass")


def _time(uri: str, pattern: str, units: Sequence[str], numbers: Sequence[str]) -> int:
    total, longer = 0, 0
    for unit, number in zip(units, numbers, strict=True):
        whole, _, decimals = number.partition(".")
        own = int(whole) * UNITS[unit] + int(decimals or "0") * UNITS[unit] // 10 ** len(decimals)
        if longer and own >= longer:
            raise LogReadError(
                f"{uri}: by the pattern {pattern} its name has {number} {unit}, more than one of the unit "
                "before; units of one name add up"
            )
        total, longer = total + own, UNITS[unit]
    if total > MAX_TIME:
        raise LogReadError(
            f"{uri}: by the pattern {pattern} its name has {' + '.join(numbers)} {units[-1]}, which is after "
            "the year 2262; use another unit, or leave it out"
        )
    return total
