"""Recordings that ROS 1's recorder split into several files, by file names.

`rosbag record --split` names its files NAME_0.bag, NAME_1.bag …; unless a name is given, it also appends the
date of each file: NAME_2026-11-21-08-30-00_0.bag, NAME_2026-11-21-08-31-00_1.bag …. The last file is called
NAME_2.bag.active until it is closed. Only the first file has the messages of latched topics.

>>> recordings(["a_0.bag", "a_1.bag.active", "b.bag"])
{'a.bag': ['a_0.bag', 'a_1.bag.active']}
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

_BAG = re.compile(r".*\.bag(\.active)?", re.DOTALL)
_SPLIT = re.compile(
    r"(?P<prefix>.*?)(?P<date>\d{4}(-\d\d){5})?_(?P<number>\d{1,9})\.bag(\.active)?", re.DOTALL
)


class _BagFile(NamedTuple):
    """A file of a split recording; in the order of their fields those of a recording are in its order."""

    prefix: str
    is_dated: bool
    date: str
    number: int
    file: str


def recordings(names: Sequence[str]) -> dict[str, list[str]]:
    """Group the files of one folder to recordings of several files, by the name of the whole.

    Files without a date are a recording only if there is a NAME_0.bag: people number bags, too.
    """
    found = {}
    for run in _runs(names):
        first = run[0]
        if len(run) > 1 and (first.is_dated or first.number == 0):
            found[f"{first.prefix}{first.date}.bag"] = [split.file for split in run]
    return found


def files_of_folder(names: Sequence[str]) -> list[str]:
    """Return the bags of a folder if they are one split recording; else none."""
    bags = [name for name in names if _BAG.fullmatch(name)]
    runs = list(_runs(bags))
    return [split.file for split in runs[0]] if len(runs) == 1 and len(runs[0]) == len(bags) else []


def _runs(names: Iterable[str]) -> Iterator[list[_BagFile]]:
    """Yield the files of each recording: their numbers increase with their dates.

    The dates of several recorders with one prefix alternate, and nothing shows whose file is whose, so each
    is yielded alone: after a smaller number there must be a 0.
    """
    matches = filter(None, map(_SPLIT.fullmatch, names))
    splits = sorted(
        _BagFile(found["prefix"], bool(found["date"]), found["date"] or "", int(found["number"]), found[0])
        for found in matches
        if found["prefix"] or found["date"]
    )
    for _, group in groupby(splits, key=lambda split: split[:2]):
        runs: list[list[_BagFile]] = []
        for split in group:
            if not runs or split.number <= runs[-1][-1].number:
                runs.append([])
            runs[-1].append(split)
        are_mixed = any(run[0].is_dated and run[0].number for run in runs[1:])
        yield from ([split] for run in runs for split in run) if are_mixed else runs
