"""Tables of labels as delivered: a row per label, with its log and time.

Here: `LabelTable`, which loads the files of one table and returns the labels of each log.
Elsewhere: files of tables (logloom.io.logs.table_files), labels in a root (logloom.io.catalog.labels).
Integer times are nanoseconds, as rows have them, unless the column's name ends in `_us`, `_ms` or `_s`;
timestamps have a unit. If a row has many labels, each list of a column must have as many items as the first:
pandas stores no lengths of lists, and arrays of labels need one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from logloom.blocks import Values, concatenate, empty, take
from logloom.errors import UsageError
from logloom.io.arrow.columns import is_list
from logloom.io.catalog.labels import LogLabels
from logloom.io.logs.interface import TABLE_ROW, FieldSpec, OpenOptions, TopicInfo
from logloom.io.logs.messages import adapters
from logloom.io.logs.messages.definitions import Field, Struct
from logloom.io.logs.messages.ros.languages import parse
from logloom.io.logs.messages.values import UnfitError
from logloom.io.logs.table_files.columns import definition_of, structured, structured_type, values_of
from logloom.io.logs.table_files.files import TableFile, table_file
from logloom.io.logs.table_files.name_times import UNITS
from logloom.io.logs.table_files.times import times_of
from logloom.schema import MIN_TIME, ColumnType, dtype_to_json
from logloom.text import counted, some_of
from logloom.uris import shown
from logloom.values import dataclass


@dataclass(frozen=True)
class LabelChoice:
    """Which rows of a table are labels of a log and time, and the values to take from them.

    Attributes:
        log_id, time: columns.
        fields: columns of a label; () for all that aren't keys.
        one: keys must be unique, and a label is a row's value; else all labels of a time are.
        width: characters kept of text if a label has several fields.
        may_repeat: whether keys may repeat, even with one label per value.
    """

    log_id: str = "log_id"
    time: str = "timestamp"
    fields: tuple[str, ...] = ()
    one: bool = False
    width: int = 32
    may_repeat: bool = False


class LabelTable:
    """The labels of a table, in memory.

    Attributes:
        ctype: of a row's value: of one label, or of those of one time.
        item: of one label.
        counts: labels by log_id, in name order.
    """

    def __init__(self, uris: Sequence[str], choice: LabelChoice, options: Mapping[str, Any] | None = None):
        """Read the table.

        Args:
            uris: of its files, at least one; their order is that of their names.
            options: for fsspec, by protocol.

        Raises:
            UsageError: a column is missing or unsupported, files disagree, or a key that must be unique is
                repeated; names the file and the key.
            LogReadError: a file is damaged.
        """
        self._choice = choice
        self._uris = sorted(uris)
        files = [table_file(uri, OpenOptions(storage_options=options or {})) for uri in self._uris]
        lengths = {} if choice.one else _lengths(files, choice)
        self.item = _same_item(files, choice, lengths)
        self.ctype = self.item if choice.one else replace(self.item, shape=(None, *self.item.shape))
        parts = [
            part
            for number, file in enumerate(files)
            for part in _parts(file, number, choice, self.item, lengths)
        ]
        codes = pa.chunked_array([p.log_ids for p in parts], pa.string()).combine_chunks().dictionary_encode()
        if isinstance(codes, pa.ChunkedArray):
            codes = codes.combine_chunks()
        of_log = codes.indices.to_numpy().astype(np.int64)
        none = np.empty(0, np.int64)
        times = np.concatenate([none, *(p.times for p in parts)])
        order = np.lexsort((times, of_log))  # stable: labels of one time stay in the order of their files
        self._times = times[order]
        self._values = take(concatenate([empty(self.item), *(p.values for p in parts)]), order)
        numbers = np.repeat([p.file for p in parts], [len(p.times) for p in parts])
        lines = np.concatenate([none, *(p.rows for p in parts)])
        self._places = numbers.astype(np.int64)[order], lines[order]
        names: list[str] = codes.dictionary.to_pylist()
        bounds = np.searchsorted(of_log[order], np.arange(len(names) + 1)).tolist()
        self._bounds = {name: (bounds[i], bounds[i + 1]) for i, name in enumerate(names)}
        self.counts = {name: stop - start for name, (start, stop) in sorted(self._bounds.items())}
        if choice.one and not choice.may_repeat:
            self._refuse_repeated()

    def of(self, log_id: str) -> LogLabels | None:
        """Return the labels of a log; None if it has none."""
        if log_id not in self._bounds:
            return None
        start, stop = self._bounds[log_id]
        return LogLabels(log_id, self.item, self._times[start:stop], take(self._values, slice(start, stop)))

    def times_of(self, log_id: str) -> dict[str, NDArray[np.int64]]:
        """Return the times of a log's labels, by URI of their file."""
        start, stop = self._bounds.get(log_id, (0, 0))
        files, times = self._places[0][start:stop], self._times[start:stop]
        return {self._uris[number]: times[files == number] for number in np.unique(files).tolist()}

    def places(self, log_id: str, time: int) -> list[tuple[str, int]]:
        """Return the file and row of each label of a log at a time, rows from 0, in the order of its
        values.
        """
        start, stop = self._bounds.get(log_id, (0, 0))
        first, last = (
            start + np.searchsorted(self._times[start:stop], time, side) for side in ("left", "right")
        )
        files, lines = self._places
        return [(shown(self._uris[int(files[row])]), int(lines[row])) for row in range(first, last)]

    def _refuse_repeated(self) -> None:
        for log_id, (start, stop) in sorted(self._bounds.items()):
            times = self._times[start:stop]
            again = np.flatnonzero(times[1:] == times[:-1])
            if not len(again):
                continue
            at = start + int(again[0])
            first, second = (self._place(row) for row in (at, at + 1))
            raise UsageError(
                f"{second}: log {log_id!r} at {self._times[at]} ns has a label already ({first}), and this "
                "column accepts one (expect: one); leave one of the two out, or write expect: many"
            )

    def _place(self, row: int) -> str:
        files, lines = self._places
        return f"{shown(self._uris[int(files[row])])}, row {lines[row]}"


@dataclass(frozen=True)
class _LabelRows:
    """A group of rows of a file: their place, keys and labels."""

    file: int
    rows: NDArray[np.int64]
    log_ids: pa.Array
    times: NDArray[np.int64]
    values: Values


def _lengths(files: Sequence[TableFile], choice: LabelChoice) -> dict[str, int]:
    """Return the length of the first list of each column without a declared length; none of empty lists."""
    found: dict[str, int] = {}
    for file in files:
        names = file.schema.names
        wanted = [
            name
            for name in _tops(choice.fields or names, names)
            if names.count(name) == 1 and is_list(file.schema.field(name).type)
        ]
        for at in range(len(file.groups)):
            wanted = [name for name in wanted if name not in found]
            if not wanted:
                break
            table = file.read(at, wanted)
            lists = {name: table.column(name).drop_null() for name in wanted}
            found |= {name: len(column[0]) for name, column in lists.items() if len(column)}
    return {name: length for name, length in found.items() if length}


def _tops(fields: Iterable[str], names: Sequence[str]) -> list[str]:
    """Return the columns of a table that contain some fields: the longest names that they begin with."""
    begun = ([one for one in names if f"{field}.".startswith((f"{one}.", f"{one}["))] for field in fields)
    return list(dict.fromkeys(max(found, key=len) for found in begun if found))


def _with_lengths(schema: pa.Schema, lengths: Mapping[str, int]) -> pa.Schema:
    fields = [
        field.with_type(pa.list_(field.type.value_type, lengths[field.name]))
        if field.name in lengths and is_list(field.type)
        else field
        for field in schema
    ]
    return pa.schema(fields)


def _root_of(
    file: TableFile, choice: LabelChoice, lengths: Mapping[str, int]
) -> tuple[Struct, tuple[str, ...]]:
    """Return the definition of a file's columns, and the columns of a label.

    Args:
        lengths: of lists without a declared length.

    Raises:
        UsageError: a column is missing or unsupported.
    """
    names = list(file.schema.names)
    for name in (choice.log_id, choice.time):
        if names.count(name) != 1:
            raise UsageError(
                f"{shown(file.uri)}: on: no column {name!r} with the log or time of labels; there are "
                f"{some_of(names, 20)}"
            )
    definition = definition_of(_with_lengths(file.schema, lengths)).encode()
    root = parse(TopicInfo("labels", TABLE_ROW, "table", "ros2msg", definition, 0, 0, 0))
    rest = tuple(name for name in names if name not in (choice.log_id, choice.time))
    if not rest:
        raise UsageError(f"{shown(file.uri)}: has no columns apart from {choice.log_id} and {choice.time}")
    lost = [name for name in rest if root.field(name) is None]
    if lost and not choice.fields:
        raise UsageError(
            f"{shown(file.uri)}: unsupported name or type of {', '.join(lost)}; select columns by `field`"
        )
    return root, choice.fields or rest


def _item(root: Struct, fields: Sequence[str], choice: LabelChoice) -> ColumnType:
    """Return the type of one label.

    Raises:
        UsageError: no such column, or an unsupported one.
    """
    if len(fields) == 1:
        found = adapters.column_type(FieldSpec(tuple(fields)), root)
        if choice.one or not (found.is_ragged or found.dtype.names):
            return found
    if choice.one:
        raise UsageError(
            f"field: expect: one accepts one column, and there are {', '.join(fields)}: name it, and write "
            "a column of the recipe for each"
        )
    for name in fields:
        field = root.field(name)
        if field is not None and (path := _varying(field, name)):
            raise UsageError(
                f"{path} has no fixed length, so a row can't contain many labels with it: {_ways(name)}"
            )
    return ColumnType(structured_type(root, fields, choice.width))


def _varying(field: Field, path: str) -> str | None:
    """Return the first array in a column without fixed length; None if all have one."""
    if field.array is not None and field.array.length is None:
        return path
    inside = field.type.fields if isinstance(field.type, Struct) else ()
    return next((found for f in inside if (found := _varying(f, f"{path}.{f.name}"))), None)


def _same_item(files: Sequence[TableFile], choice: LabelChoice, lengths: Mapping[str, int]) -> ColumnType:
    """Return the type of a label in all files.

    Raises:
        UsageError: they disagree.
    """
    found: dict[ColumnType, str] = {}
    for file in files:
        place = shown(file.uri)
        try:
            item = _item(*_root_of(file, choice, lengths), choice)
        except UsageError as error:
            raise error if str(error).startswith(place) else UsageError(f"{place}: {error}") from error
        if found and item not in found:
            known, first = next(iter(found.items()))
            raise UsageError(f"{place}: labels are {_words(item)} here and {_words(known)} in {first}")
        found.setdefault(item, place)
    return next(iter(found))


def _words(item: ColumnType) -> str:
    """Describe the type of a label, with its fields."""
    fields: Any = dtype_to_json(item.dtype)
    if item.dtype.names:
        return ", ".join(f"{name} {base}{shape or ''}" for name, base, shape in fields)
    return str(item)


def _parts(
    file: TableFile, number: int, choice: LabelChoice, item: ColumnType, lengths: Mapping[str, int]
) -> Iterator[_LabelRows]:
    root, fields = _root_of(file, choice, lengths)
    for at, group in enumerate(file.groups):
        table = file.read(at, _tops([choice.log_id, choice.time, *fields], file.schema.names))
        try:
            _refuse_other_lengths(table, lengths)
            yield _LabelRows(
                number,
                group.first + np.arange(len(table)),
                _log_ids(table, choice.log_id),
                _times(table, choice.time),
                _values(table, root, fields, choice, item),
            )
        except UnfitError as error:
            raise UsageError(f"{shown(file.uri)}, row {group.first + error.row}: {error}") from error
        except (UsageError, pa.ArrowException) as error:
            raise UsageError(f"{shown(file.uri)}: {error}") from error


def _refuse_other_lengths(table: pa.Table, lengths: Mapping[str, int]) -> None:
    for name, length in lengths.items():
        if name not in table.column_names:  # of another file
            continue
        found = pc.fill_null(pc.list_value_length(table.column(name)), length).to_numpy()
        other = np.flatnonzero(found != length)
        if len(other):
            here = counted(int(found[other[0]]), "item")
            raise UnfitError(
                int(other[0]),
                f"{name} has {here} here and {length} in the first label, so a row can't contain many labels "
                f"with it: {_ways(name)}",
            )


def _ways(name: str) -> str:
    return (
        f"write `field: {name}` with `expect: one`, store lists of one length, or leave it out "
        "(`field` names the columns to take)"
    )


def _values(
    table: pa.Table, root: Struct, fields: Sequence[str], choice: LabelChoice, item: ColumnType
) -> Values:
    if item.dtype.names is not None and not choice.one:
        return structured(table, root, fields, choice.width)
    return values_of(table, FieldSpec(tuple(fields)), root)


def _log_ids(table: pa.Table, name: str) -> pa.Array:
    column = table.column(name)
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise UsageError(f"{name} is {column.type}, and names of logs are text")
    joined = pa.chunked_array([column.cast(pa.string()).combine_chunks()] if len(column) else [], pa.string())
    found = pa.concat_arrays(joined.chunks) if joined.num_chunks else pa.array([], pa.string())
    if found.null_count:
        raise UnfitError(int(np.argmax(found.is_null().to_numpy(zero_copy_only=False))), f"{name} is null")
    return found


def _times(table: pa.Table, name: str) -> NDArray[np.int64]:
    """(N,) int64 ns."""
    column = table.column(name)
    if pa.types.is_integer(column.type) and name.rpartition("_")[2] not in UNITS:
        times = column.cast(pa.int64()).fill_null(MIN_TIME).to_numpy()
    else:
        (times,) = times_of(name, [column])
    lost = np.flatnonzero(times == MIN_TIME)
    if len(lost):
        raise UnfitError(int(lost[0]), f"{name} is null")
    return np.asarray(times, np.int64)
