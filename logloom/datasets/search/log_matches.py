"""Evaluation of filters on rows of a dataset, singly or log by log.

Here: `passing`, the positions whose rows pass a filter; `search`, the result of a filter for all rows of
logs; and the index columns that every dataset has. Only the columns that a filter names are read. A filter
about elements, other rows or saved intervals is evaluated for whole logs, even for a few rows.
Elsewhere: the language (logloom.query.where), what a filter means for a log's rows (logloom.query.bounds).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from logloom.blocks import Array
from logloom.errors import DatasetError, UsageError
from logloom.io.rows.batches import Batch, ragged_of
from logloom.io.rows.log_ranges import Ints
from logloom.io.rows.sources import RowSource, values_of
from logloom.query import bounds as wb
from logloom.query.binder import names_of
from logloom.query.comparison import Categories, Mask
from logloom.query.tree import Quantified, Saved
from logloom.query.where import Filter, parse
from logloom.schema import COLUMN_NAME, STRING, TIMESTAMP, ColumnType
from logloom.values import dataclass
from logloom.windows import run_starts

if TYPE_CHECKING:
    from logloom.io.catalog.intervals import Intervals

INDEX_NAMES = ("log_id", "timestamp", "partition", "split", "row")
"""What filters and orders may name beside columns."""
_TEXTS = ("log_id", "partition", "split")
_ROWS_AT_ONCE = 4096
_BLOCK_BYTES = 16 << 20


@dataclass(frozen=True)
class LogMatches:
    """Result of a filter for the rows of a log.

    Attributes:
        first: the position of its first row.
        rows: its times and gaps.
        holds, may: (n,) whether the filter holds; whether it does or isn't known.
    """

    log_id: str
    first: int
    rows: wb.WholeLog
    holds: Mask
    may: Mask


def parsed_for(source: RowSource, where: str) -> Filter:
    """Parse a filter for the rows of a source.

    Raises:
        UsageError: it can't be parsed, or has an unknown name; suggests the nearest.
    """
    try:
        types = {**index_types(source), **source.schema.all, **source.structs}
        found = parse(where).bound(types, is_search=True)
    except UsageError as error:
        located = UsageError(f"{source.place}: {error}")
        for note in getattr(error, "__notes__", ()):
            located.add_note(note)
        raise located from error
    for name, _ in names_of(found.root):
        if _is_ambiguous(source, name):
            raise UsageError(
                f"{source.place}: {where!r}: {name} is a column, and a name in the index of rows; rename the "
                f"column: rows.rename({{{name!r}: 'own_{name}'}})"
            )
    for node in found.beyond:
        if source.stamps is None and not isinstance(node, Quantified):
            raise UsageError(f"{source.place}: rows have no timestamps, at which {where!r} looks")
        if isinstance(node, Saved) and source.intervals is None:
            raise UsageError(
                f"{source.place}: in({node.name}): these rows are of no version, or of several; intervals "
                "are saved with one (`logloom find … --save`): filter before datasets are joined"
            )
    return found


def _is_ambiguous(source: RowSource, name: str) -> bool:
    """Whether a name means a column and, with other values, a part of the index."""
    if name not in INDEX_NAMES or name not in source.schema.all or name in (*source.small, "timestamp"):
        return False
    return name != "split" or (source.row_splits is None and not any(source.stretches.splits))


def search(source: RowSource, found: Filter, positions: Ints | None = None) -> Iterator[LogMatches]:
    """Evaluate a filter for all rows of logs, in stored order.

    Args:
        found: from `parsed_for`.
        positions: of rows; only their logs are searched. None for all logs.

    Raises:
        UsageError: it uses unsaved intervals.
        DatasetError: what is stored is damaged, or times of a log don't ascend.
    """
    starts = np.unique(source.stretches.log_starts())
    starts = starts[starts < len(source)]  # a log without rows may be the last
    bounds = np.append(starts, len(source))
    chosen: Any = range(len(starts))
    if positions is not None:
        chosen = np.unique(bounds.searchsorted(positions, side="right") - 1).tolist()
    saved = {
        node.name: source.intervals(node.name)
        for node in found.beyond
        if isinstance(node, Saved) and source.intervals is not None
    }
    for number in chosen:
        first, stop = int(bounds[number]), int(bounds[number + 1])
        log_id = source.stretches.log_ids[int(source.stretches.number_of(np.array([first]))[0])]
        stamps = np.arange(first, stop) if source.stamps is None else source.stamps[first:stop]
        if (stamps[1:] < stamps[:-1]).any():
            raise DatasetError(f"{source.place}: the times of log {log_id} don't ascend")
        begins = np.zeros(stop - first + 1, np.bool_)
        runs = run_starts(begins, None if source.stamps is None else stamps, source.max_gap)
        rows = wb.WholeLog(stamps, runs, functools.partial(_inside, saved, log_id, stamps))
        holds, may = wb.evaluate(found.root, _gathered(source, found, first, stop), rows)
        yield LogMatches(log_id, first, rows, holds, may)


def _inside(saved: Mapping[str, Intervals], log_id: str, stamps: Ints, name: str) -> Mask:
    return saved[name].mask(log_id, stamps)


def _gathered(source: RowSource, found: Filter, first: int, stop: int) -> dict[int, wb.Bounds]:
    """Gather the values of each leaf of a filter for rows [first, stop)."""
    leaves = wb.leaves(found.root)
    if not leaves:
        return {}
    own, types = index_types(source), {**source.schema.all, **source.structs}
    names = set(found.columns)
    positions = np.arange(first, stop)
    index = {name: index_values(source, name, positions) for name in names if name in own and name != "row"}
    index |= {"row": positions - first} if "row" in names else {}
    read = [name for name in types if name in names and name not in own]
    parts: list[list[wb.Bounds]] = [[] for _ in leaves]
    counts: list[int] = []
    for columns, count in _blocks(source, read, first, stop):
        some = slice(sum(counts), sum(counts) + count)
        values = {**columns, **{name: column[some] for name, column in index.items()}}
        for part, leaf in zip(parts, leaves, strict=True):
            part.append(wb.gather(leaf, values))
        counts.append(count)
    if sum(counts) != stop - first:
        raise DatasetError(f"{source.place}: {sum(counts)} rows of {stop - first}; see `logloom verify`")
    return {leaf.at: wb.joined(part, counts) for part, leaf in zip(parts, leaves, strict=True)}


def _blocks(
    source: RowSource, names: Sequence[str], first: int, stop: int
) -> Iterator[tuple[Mapping[str, Any], int]]:
    """The columns of some rows at a time, and how many."""
    if not names:
        yield {}, stop - first
        return
    texts = {name for name in names if source.schema.all[name].kind == "string"}
    if source.structs.keys() & {*names}:
        for at in range(first, stop, _ROWS_AT_ONCE):
            positions = np.arange(at, min(at + _ROWS_AT_ONCE, stop))
            batch = _taken(source, positions, names)
            columns = {name: values_of(batch[name], f"{source.place}: {name}") for name in names}
            yield {name: _as_texts(v) if name in texts else v for name, v in columns.items()}, len(positions)
        return
    for block in source.scan(names, _BLOCK_BYTES, first, stop):
        columns = {name: block.columns[name] for name in names}
        yield {name: _as_texts(v) if name in texts else v for name, v in columns.items()}, len(block)


def _taken(source: RowSource, positions: Ints, names: Sequence[str]) -> Batch:
    """Columns of some rows; structs as arrays."""
    structs = [name for name in names if name in source.structs]
    if not structs:
        return source.take(positions, names)
    batch = source.take(positions, [name for name in names if name not in structs])
    return {**batch, **source.take_structs(positions, structs)}


def _as_texts(rows: Any) -> Categories:
    return Categories.found_in([row.tobytes() for row in rows])


def index_types(source: RowSource) -> dict[str, ColumnType]:
    """What can be had without reading rows."""
    types = {**dict.fromkeys(_TEXTS, STRING), "row": ColumnType(np.dtype(np.int64))}
    if source.stamps is not None:
        types["timestamp"] = TIMESTAMP
    for name, values in source.small.items():
        if COLUMN_NAME.fullmatch(name):
            types[name] = STRING if values.dtype.kind == "O" else ColumnType(values.dtype)
    return types


def index_values(source: RowSource, name: str, positions: Ints) -> Array | Categories:
    """The values of some rows of one of these."""
    if name in source.small:
        return comparable_texts(source.small[name][positions])
    if name == "timestamp":
        assert source.stamps is not None
        return source.stamps[positions]
    stretches = source.stretches
    if name == "row":
        return np.asarray(positions - stretches.log_starts()[stretches.number_of(positions)])
    labels = source.row_splits if name == "split" else None
    if labels is not None:
        return Categories.found_in(labels.texts)[labels.numbers[positions]]
    if name == "partition":
        stretches = stretches.by_partition
    texts = {"log_id": stretches.log_ids, "split": stretches.splits, "partition": stretches.partitions}[name]
    used, numbers = np.unique(stretches.number_of(positions), return_inverse=True)
    return Categories.found_in([texts[number] for number in used.tolist()])[numbers]


def _comparable(column: Any) -> Any:
    """A column of a batch as filters of single rows take it."""
    return ragged_of(column) if isinstance(column, tuple) else comparable_texts(column)


def comparable_texts(values: Any) -> Array | Categories:
    """Numbers as they are; texts as filters compare them."""
    if isinstance(values, np.ndarray) and values.dtype.kind not in "OU":
        return values
    return Categories.found_in(values)


def passing(source: RowSource, positions: Ints, where: str) -> Ints:
    """The positions whose rows pass a filter.

    Args:
        where: such as "ego.speed > 3 and split == 'train' and available(camera.front)": compares columns of
            the data, index columns, log_id, partition, split, row and timestamp. What looks beyond a row
            looks at all rows of its log, whatever the positions.

    Raises:
        UsageError: it can't be parsed, or has an unknown name; suggests the nearest.
    """
    parsed = parsed_for(source, where)
    if parsed.beyond:
        holds = np.zeros(len(source), np.bool_)
        for log in search(source, parsed, positions):
            holds[log.first : log.first + len(log.holds)] = log.holds
        return positions[holds[positions]]
    own = index_types(source)
    columns = {name: index_values(source, name, positions) for name in parsed.columns if name in own}
    read = [name for name in parsed.columns if name not in own]
    if not read:
        return positions[parsed.mask(columns, len(positions))]
    kept = []
    for start in range(0, len(positions), _ROWS_AT_ONCE):
        some = slice(start, start + _ROWS_AT_ONCE)
        batch = _taken(source, positions[some], read)
        values = {name: _comparable(batch[name]) for name in read}
        values |= {name: column[some] for name, column in columns.items()}
        kept.append(positions[some][parsed.mask(values, len(positions[some]))])
    return np.concatenate([np.empty(0, np.int64), *kept])
