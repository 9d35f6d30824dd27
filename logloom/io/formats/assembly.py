"""Common parts of assembling one dataset from many staged units.

Here: the order of units, which ranges of them make a file, and the verification of the result.
Elsewhere: the interface (`AssembledFormat` in logloom.io.formats.interface), staged files
(logloom.io.formats.stages), the layout of each format's files (`assemble.py` in its package), writing them
(logloom.transforms.build.assembly.files).
"""

from __future__ import annotations

import bisect
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from logloom.blocks import Block
from logloom.digests import RowsDigest, digest_of
from logloom.errors import OF_CONTENT, DatasetError
from logloom.io.storage.faults import MISSING
from logloom.io.storage.metadata import Count, Text
from logloom.values import dataclass

if TYPE_CHECKING:
    from logloom.io.formats.interface import StagedUnit
    from logloom.io.rows.sources import RowSource

CHECK_BYTES = 16 << 20  # of a block that is read back


# --- planning -------------------------------------------------------------------------------------------


def by_log(
    units: Sequence[StagedUnit],
    spans: Callable[[StagedUnit], Iterable[Sequence[int]]] = lambda unit: [unit.unit["span"]],
) -> dict[str, list[StagedUnit]]:
    """The units of each log, in the order of both.

    Args:
        units: of one split, in row order.
        spans: first and last timestamp of stretches of a unit's rows.

    Raises:
        DatasetError: the units are out of order.
    """
    logs = {log_id: list(own) for log_id, own in groupby(units, key=lambda unit: unit.log_id)}
    if [*logs] != sorted(logs) or sum(map(len, logs.values())) < len(units):
        raise DatasetError("units of logs out of order, or of a log in two places")
    for own in logs.values():
        stretches = ((unit, first, last) for unit in own for first, last in spans(unit))
        for (_, _, before), (unit, after, _) in pairwise(stretches):
            if after <= before:
                raise DatasetError(f"{unit.folder}: its rows don't come after those before them")
    return logs


@dataclass(frozen=True)
class UnitRange:
    """Entries [start, stop) of one unit's array.

    Attributes:
        rows: of the unit.
        bases: what to add to numbers that count from the unit's own first entries.
    """

    folder: str
    start: int
    stop: int
    rows: int
    bases: tuple[int, ...] = ()


def ranges_within(starts: Sequence[int], first: int, last: int) -> Iterator[tuple[int, int, int]]:
    """Find the consecutive ranges with the entries [first, last): number, start and stop in it.

    Args:
        starts: (n + 1,) the start of each, and the end of the last one; ascending.
    """
    # starts   0         4     6            11
    # ranges   |    0    |  1  |     2      |
    # wanted          [2, 7)                      (0, 2, 4), (1, 0, 2), (2, 0, 1)
    for number in range(max(0, bisect.bisect_right(starts, first) - 1), len(starts) - 1):
        begin, end = starts[number], starts[number + 1]
        if begin >= last:
            return
        if max(first, begin) < min(last, end):
            yield number, max(first, begin) - begin, min(last, end) - begin


class PartsJson(BaseModel):
    """The units in a plan: log_id, partition, rows and digest of each."""

    parts: tuple[tuple[Text, Text, Count, Text], ...]


def parts_json(
    units: Iterable[StagedUnit],
    digest: Callable[[StagedUnit], str] = lambda unit: digest_of(dict(unit.columns)),
    counts: Callable[[StagedUnit], Sequence[int]] = lambda unit: [unit.rows],
) -> list[list[Any]]:
    """Make the list of units in a plan, by which `part_problems` verifies the dataset.

    Args:
        units: of one split, in row order.
        digest: of a unit's rows as they are read back.
        counts: how many of each array the unit holds, of rows first.
    """
    return [
        list(unit.planned) or [unit.log_id, unit.partition, *counts(unit), digest(unit)] for unit in units
    ]


# --- proof ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class UnitRanges:
    """The entries of a dataset that come from one unit.

    Attributes:
        row: number of its first row in its log.
        ranges: [start, stop) in the dataset, of rows and of everything else that the plan counts.
        digest: of its rows.
    """

    log_id: str
    partition: str
    row: int
    ranges: tuple[tuple[int, int], ...]
    digest: str

    @property
    def rows(self) -> int:
        return self.ranges[0][1] - self.ranges[0][0]

    def __str__(self) -> str:
        start, stop = self.ranges[0]
        return (
            f"rows {self.row} to {self.row + self.rows} of {self.log_id}, {self.partition} "
            f"({start} to {stop} of all)"
        )


def parts_of(unit: Mapping[str, Any]) -> Iterator[UnitRanges]:
    """Parse the units of a plan, each [log_id, partition, rows, more that is counted..., digest]."""
    ends: list[int] = []
    row, latest = 0, None
    for log_id, partition, *counts, digest in unit["parts"]:
        starts = ends or [0] * len(counts)
        ends = [start + count for start, count in zip(starts, counts, strict=True)]
        row, latest = row if log_id == latest else 0, log_id
        yield UnitRanges(log_id, partition, row, tuple(zip(starts, ends, strict=True)), digest)
        row += counts[0]


def problems_at(place: str, find: Callable[[], Iterable[str]]) -> Iterator[str]:
    """Collect the problems of reading something back; damage that ends the search is one, too.

    Raises:
        StorageError: it can't be read.
    """
    try:
        for problem in find():
            yield f"{place}: {problem}"
    except KeyError as error:
        yield f"{place}: damaged: {error} is missing"
    except (*OF_CONTENT, ValueError, TypeError, *MISSING) as error:
        yield f"{place}: {error}"


def part_problems(
    unit: Mapping[str, Any],
    digest: Callable[[UnitRanges], str],
    is_fresh: Callable[[UnitRanges], bool] = lambda part: True,
) -> Iterator[str]:
    """Compare the parts of a dataset with the units that were staged for it; for `problems_at`.

    Args:
        unit: of its `AssemblyPlan`.
        digest: reads the rows of a part back and returns their digest.
        is_fresh: whether to check a part.
    """

    def check(part: UnitRanges) -> Iterator[str]:
        if digest(part) != part.digest:
            yield "the data read back differs from what was written"

    for part in parts_of(unit):
        if is_fresh(part):
            yield from problems_at(str(part), functools.partial(check, part))


def row_problems(unit: Mapping[str, Any], sources: Sequence[RowSource]) -> Iterator[str]:
    """Do as `part_problems`, for a dataset whose sources give all rows in the order of the units."""
    blocks = (block for source in sources for block in source.blocks(None, CHECK_BYTES))
    block, used = None, 0
    for part in parts_of(unit):
        digest, left = None, part.rows
        while left:
            if block is None or used == len(block):
                block, used = next(blocks, None), 0
            if block is None:
                yield f"ends before {part}"
                return
            digest = digest or RowsDigest(sources[0].schema)
            rows = slice(used, min(len(block), used + left))
            digest.update(Block(block.log_id, block.partition, 0, block.take(rows)))
            used, left = rows.stop, left - (rows.stop - used)
        if digest is not None and digest_of(digest.hexdigests()) != part.digest:
            yield f"the data read back of {part} differs from what was written"
            return
    if next(blocks, None) is not None or (block is not None and used < len(block)):
        yield "contains more rows than were written"
