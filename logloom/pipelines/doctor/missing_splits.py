"""Gaps in the numbers of a recording's splits: bag_0 and bag_2, without bag_1.

Recorders number the files of a recording from 0. Files of one log are splits of one recording; files that are
logs by themselves are, if a recorder would name them so: after their folder, or after a date and time.

Elsewhere: files that a ROS 2 bag's metadata.yaml lists (logloom.io.logs.bag_metadata).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from logloom.io.logs.log_list import LogFiles
from logloom.io.storage.filesystems import file_name_of
from logloom.pipelines.doctor.findings import REQUIRE, REQUIRED, HealthFinding
from logloom.text import counted, some_of

_NUMBERED = re.compile(r"(?P<stem>.*[^0-9])(?P<number>[0-9]{1,6})(?P<suffix>\.[A-Za-z][A-Za-z0-9.]*)")
_PACKED = re.compile(r"\.(active|zstd|zst|gz|bz2|lz4)$")
_DATE = re.compile(r"[0-9]{4}[-_][0-9]{2}[-_]$")  # then the number is a day
_TIME = re.compile(r"[0-9]{4}([-_][0-9]{2}){2}[-_T][0-9]{2}([-_][0-9]{2}){2}[-_]$")
_NAMED = 5

Row = dict[int, str]  # URIs of files by their number


def missing_splits(logs: Sequence[LogFiles]) -> dict[str, list[HealthFinding]]:
    """Find numbers that are missing in rows of splits, by the log_id of the log after the gap."""
    found: dict[str, list[HealthFinding]] = {}
    single = {log.uris[0]: log.log_id for log in logs if len(log.recordings) == 1}
    for row in _rows(single):
        first = next(iter(row.values()))
        if _is_recorders(first):
            folder = first.rpartition("/")[0]
            is_all = len(row) == sum(uri.rpartition("/")[0] == folder for uri in single)
            line = "log_id: '{parent}'" if is_all else ""
            joined = f"; in the recipe, `{line}` makes one log of the others" if line else ""
            for uri, gap in _gaps(row):
                finding = _finding(uri, gap, f"copy missing files again{joined}", line)
                found.setdefault(single[uri], []).append(finding)
    for log in logs:
        for row in _rows(log.recordings) if len(log.recordings) > 1 else ():
            remedy = f"copy missing files again; or {REQUIRED}"
            gaps = [_finding(uri, gap, remedy, REQUIRE) for uri, gap in _gaps(row)]
            if gaps:
                found.setdefault(log.log_id, []).extend(gaps)
    return found


def _rows(uris: Iterable[str]) -> list[Row]:
    """Group numbered files by the rest of their names."""
    rows: dict[tuple[str, str], Row] = {}
    for uri in uris:
        name = file_name_of(uri)
        match = _NUMBERED.fullmatch(name)
        if match is not None and not _DATE.search(match["stem"]):
            key = uri.removesuffix(name) + match["stem"], _PACKED.sub("", match["suffix"])
            rows.setdefault(key, {})[int(match["number"])] = uri
    return [dict(sorted(row.items())) for row in rows.values() if len(row) > 1]


def _is_recorders(uri: str) -> bool:
    """Whether a recorder names splits like this file."""
    folder, _, name = uri.rpartition("/")
    match = _NUMBERED.fullmatch(name)
    stem = match["stem"] if match is not None else ""
    return bool(_TIME.search(stem)) or stem.rstrip("-_") == folder.rpartition("/")[2]


def _gaps(row: Row) -> Iterator[tuple[str, list[str]]]:
    """Return the file after each gap of a row, and the names of the missing ones.

    >>> list(_gaps({0: "x/b_0.bag", 3: "x/b_3.bag", 4: "x/b_4.bag"}))
    [('x/b_3.bag', ['b_1.bag', 'b_2.bag'])]
    """
    numbers = list(row)
    if numbers[-1] - numbers[0] + 1 > 2 * len(numbers) + 1:  # numbers of another meaning
        return
    for before, after in pairwise(numbers):
        match = _NUMBERED.fullmatch(file_name_of(row[after]))
        assert match is not None
        width = len(match["number"]) if match["number"].startswith("0") else 0
        suffix = _PACKED.sub("", match["suffix"]) if match["suffix"].endswith(".active") else match["suffix"]
        missing = [f"{match['stem']}{n:0{width}}{suffix}" for n in range(before + 1, after)]
        if missing:
            yield row[after], missing


def _finding(uri: str, missing: Sequence[str], remedy: str, line: str) -> HealthFinding:
    splits = counted(len(missing), "split before it is", "splits before it are")
    message = f"{splits} missing: {some_of(missing, _NAMED)}"
    return HealthFinding("missing", uri, None, "", 0, message, remedy, severity="note", recipe=line)
