"""Statistics of rows by column: merging and serialization.

Here: `Statistics`, stored as a Parquet file with a row per lane.
Elsewhere: lanes (logloom.statistics.series), making them (logloom.statistics.rows), their summary for people
(logloom.statistics.summary), their files in a root (logloom.io.catalog.log_statistics).
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from logloom.errors import DatasetError
from logloom.statistics.exact_sums import FLOAT_BITS, Dyadic
from logloom.statistics.series import Lane, Numbers, Texts, merged_lanes, texts_known
from logloom.statistics.value_counts import CELLS, MAX_LEVEL, NO_CELLS, Cells, end_of
from logloom.values import dataclass

if TYPE_CHECKING:
    import pyarrow as pa

INNER = "lists"  # instead of a field, for the lengths of lists in lists
ROWS, LENGTHS, VALUES = "rows", "lengths", "values"  # what is counted: rows, lengths by axis, elements
_COUNTS = ("count", "nan", "below", "above", "left_out")
_NUMBERS = ("low", "high", "total", "squares")
_DETAILS = ("squares", "cells", "counts", "texts")  # beside counts, ends and sums
_LISTS = {f"{name}.list.element": "DELTA_BINARY_PACKED" for name in ("cells", "counts")}
_MAX_LANES = 1 << 20
_MAX_BYTES = 1 << 30


class Key(NamedTuple):
    """Key of a lane: its column, the path of its field (of structured ones), what is counted, and its
    number.
    """

    column: str
    field: str
    part: str
    lane: int


@dataclass(frozen=True)
class Statistics:
    """Statistics of some rows.

    Attributes:
        lanes: sorted by key. Of ROWS, `count` rows are available and `nan` aren't, and `left_out` positions
            of large values weren't sampled.
    """

    lanes: Mapping[Key, Lane]

    @classmethod
    def of(cls, known: Mapping[Key, Sequence[Lane]]) -> Self:
        """Merge the parts of each lane."""
        return cls({key: merged_lanes(known[key]) for key in sorted(known)})

    @classmethod
    def merged(cls, parts: Iterable[Statistics]) -> Self:
        """Merge statistics of parts; the result is the same in any order and for any split into parts."""
        known: dict[Key, list[Lane]] = {}
        for number, part in enumerate(parts, 1):
            for key, lane in part.lanes.items():
                known.setdefault(key, []).append(lane)
            if number % _AT_ONCE == 0:  # so that many parts take no more memory than a few
                known = {key: [merged_lanes(lanes)] for key, lanes in known.items()}
        return cls.of(known)

    def part(self, columns: Iterable[str]) -> Statistics:
        """Select some columns and their ages."""
        own = {name for column in columns for name in (column, f"{column}.age")}
        return Statistics({key: lane for key, lane in self.lanes.items() if key.column in own})

    def only(self, column: str) -> Mapping[Key, Lane]:
        """Select the lanes of a column."""
        return {key: lane for key, lane in self.lanes.items() if key.column == column}

    def columns(self) -> Iterator[str]:
        """The names of columns, including ages."""
        return iter(dict.fromkeys(key.column for key in self.lanes))

    def to_bytes(self, log_id: str = "") -> bytes:
        """Serialize to a Parquet file; equal for equal statistics.

        Args:
            log_id: makes files of different logs differ; "" to omit it.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        rows = [key._asdict() | _row(lane) for key, lane in self.lanes.items()]
        buffer = pa.BufferOutputStream()
        with pq.ParquetWriter(
            buffer,
            _schema(),
            compression="zstd",
            use_dictionary=False,
            column_encoding=_LISTS,
            write_statistics=False,
            write_page_checksum=True,
            store_schema=False,
        ) as file:
            file.write_table(pa.Table.from_pylist(rows, schema=_schema()))
            if log_id:
                file.add_key_value_metadata({"log_id": log_id.encode(errors="surrogateescape")})
        return bytes(buffer.getvalue())

    @classmethod
    def from_bytes(cls, data: bytes, place: str, *, brief: bool = False) -> Self:
        """The inverse of `to_bytes`.

        Args:
            brief: skip squares, cells and texts, which take most of the time: lanes then have the number of
                values, their extent and sum.

        Raises:
            DatasetError: the file is damaged, or not statistics; names `place`.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            with pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True) as file:
                if file.schema_arrow != _schema():
                    raise ValueError("its columns differ")
                sizes = [file.metadata.row_group(n).total_byte_size for n in range(file.num_row_groups)]
                if file.metadata.num_rows > _MAX_LANES or sum(sizes) > _MAX_BYTES:
                    raise ValueError("it is too large")
                # Arrow's threads would release Python's bytes a little later, which aborts a process that
                # ends.
                names = [name for name in _schema().names if not (brief and name in _DETAILS)]
                table = file.read(names, use_threads=False)
            return cls(dict(_lanes(table)))
        except (pa.ArrowException, OSError, ValueError, TypeError) as error:
            raise DatasetError(f"{place}: not statistics of columns ({error})") from error


_AT_ONCE = 64  # statistics merged at once


@functools.cache
def _schema() -> pa.Schema:
    import pyarrow as pa

    numbers = pa.list_(pa.field("element", pa.int64()))
    return pa.schema(
        [("column", pa.string()), ("field", pa.string()), ("part", pa.string()), ("lane", pa.int64())]
        + [(name, pa.int64()) for name in _COUNTS]
        + [(name, pa.string()) for name in _NUMBERS]
        + [("level", pa.int64()), ("cells", numbers), ("counts", numbers)]
        + [("texts", pa.list_(pa.field("element", pa.string())))]
    )


def _row(lane: Lane) -> dict[str, Any]:
    if isinstance(lane, Texts):
        known = lane.known
        listed = {} if known is None else {"texts": list(known), "counts": list(known.values())}
        return {"count": lane.count, **listed}
    counts = {name: getattr(lane, name) for name in _COUNTS}
    numbers = {name: None if (x := getattr(lane, name)) is None else str(x) for name in _NUMBERS}
    cells = {"level": lane.cells.level, "cells": lane.cells.numbers, "counts": lane.cells.counts}
    return counts | numbers | cells


def _lanes(table: pa.Table) -> Iterator[tuple[Key, Lane]]:
    """Read the lanes of a table of statistics, each with its key.

    Args:
        table: with the details of all lanes, or of none.

    Raises:
        ValueError: a row isn't a valid lane.
    """
    lists = [name for name in ("cells", "counts") if name in table.column_names]
    rows = table.drop_columns(lists).to_pylist()
    details: Iterable[tuple[Any, Any]] = [(None, None)] * len(rows)
    is_sound = True
    if lists:
        all_cells, all_counts = (_ListColumn.of(table[name]) for name in lists)
        is_sound = all_cells.ascend() and bool((all_counts.flat > 0).all())
        details = zip(all_cells, all_counts, strict=True)
    before: Key | None = None
    kinds: dict[tuple[str, str, str], type[Lane]] = {}
    for row, (cells, counts) in zip(rows, details, strict=True):
        key = Key(row["column"], row["field"], row["part"], row["lane"])
        if before is not None and not before < key:
            raise ValueError(f"{key} comes after {before}")
        before = key
        try:
            lane = _texts(row, counts) if row["level"] is None else _numbers(row, cells, counts, is_sound)
        except ValueError as error:
            raise ValueError(f"column {key.column!r}: {error}") from error
        kind = Numbers if key.part in (ROWS, LENGTHS) else kinds.setdefault(key[:3], type(lane))
        if None in key or key.part not in (ROWS, LENGTHS, VALUES) or key.lane < 0 or type(lane) is not kind:
            raise ValueError(f"column {key.column!r}: no such lane")
        yield key, lane


@dataclass(frozen=True)
class _ListColumn:
    """A column of lists: its numbers concatenated, and the end of each list."""

    flat: NDArray[np.int64]
    ends: NDArray[np.int64]

    @classmethod
    def of(cls, lists: pa.ChunkedArray) -> Self:
        whole = lists.combine_chunks()
        lengths = whole.value_lengths().fill_null(0).to_numpy()
        return cls(whole.flatten().to_numpy(), np.cumsum(lengths, dtype=np.int64))

    def __iter__(self) -> Iterator[NDArray[np.int64]]:
        begin = 0
        for end in self.ends.tolist():
            yield self.flat[begin:end]
            begin = end

    def ascend(self) -> bool:
        """Return whether the numbers of each list ascend."""
        follows = self.flat[1:] > self.flat[:-1]
        borders = self.ends[(self.ends > 0) & (self.ends < len(self.flat))] - 1
        follows[borders] = True
        return bool(follows.all())


def _numbers(row: Mapping[str, Any], numbers: Any, counts: Any, is_sound: bool) -> Numbers:
    """Read the statistics of a lane of numbers from a row.

    Args:
        numbers, counts: of the cells; None for brief statistics.
        is_sound: whether all cells are known to ascend, and all counts to be above 0: checked together, these
            take a tenth of the time.
    """
    tallies = {name: row[name] for name in _COUNTS}
    low, high = (None if row[name] is None else Dyadic.parse(row[name]) for name in ("low", "high"))
    is_brief = numbers is None
    squares = Dyadic() if is_brief else Dyadic.parse(row["squares"])
    cells = NO_CELLS if is_brief else Cells(row["level"], numbers, counts)
    total = Dyadic.parse(row["total"])
    lane = Numbers(**tallies, low=low, high=high, total=total, squares=squares, cells=cells)
    if min(tallies.values()) < 0 or lane.finite < 0:
        raise ValueError("its counts are invalid")
    num = 0 if row["part"] == ROWS else lane.finite
    if not _are_sums(lane, num, is_brief):
        raise ValueError("its sums don't fit its range")
    if is_brief:
        return lane
    level = row["level"]
    if not 0 <= level <= MAX_LEVEL or not len(numbers) == len(counts) <= CELLS:
        raise ValueError("it has no such cells")
    is_unsound = not is_sound and ((numbers[1:] <= numbers[:-1]).any() or (counts <= 0).any())
    if is_unsound or sum(counts.tolist()) != num:
        raise ValueError("its cells don't fit its counts")
    end = end_of(level)
    if num and not -end <= int(numbers[0]) <= int(numbers[-1]) < end:
        raise ValueError("it has cells beyond the range of floats")
    return lane


def _are_sums(lane: Numbers, num: int, is_brief: bool) -> bool:
    """Return whether this many numbers may have this range and these sums, one sum for brief statistics."""
    low, high = lane.low, lane.high
    if not num or low is None or high is None:
        return num == 0 and low is None and high is None and lane.total == lane.squares == Dyadic()
    if any(end.e + end.m.bit_length() > FLOAT_BITS for end in (low, high)):
        return False
    # As whole numbers of 2**e, and squares of 2**f: fast enough for thousands of lanes of a version.
    e = min(low.e, high.e, lane.total.e)
    least, most, total = (one.m << (one.e - e) for one in (low, high, lane.total))
    if not num * least <= total <= num * most:
        return False
    if is_brief:
        return True
    f = min(2 * e, lane.squares.e)
    squares = lane.squares.m << (lane.squares.e - f)
    furthest, squared = (one * one << (2 * e - f) for one in (max(-least, most), total))
    return squared <= num * squares and squares <= num * furthest


def _texts(row: Mapping[str, Any], counts: Any) -> Texts:
    texts, count = row.get("texts"), row["count"]
    if count < 0:
        raise ValueError("its counts are invalid")
    if texts is None:
        return Texts(count, None)
    known = dict(zip(texts, counts.tolist(), strict=True))
    lane = texts_known(count, known)
    is_whole = len(known) == len(texts) and sum(known.values()) == count and (counts > 0).all()
    if not is_whole or lane.known is None:
        raise ValueError("its texts don't fit their counts")
    return lane
