"""Findings about tables: nulls, damaged columns, types that differ between files.

Here: `findings`, which reads tables group by group, and `null_rows`, a function of one column.
Elsewhere: times (doctor), the files (logloom.io.logs.table_files), what a finding is (findings).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from logloom.errors import LogReadError
from logloom.io.logs.interface import OpenOptions
from logloom.io.logs.table_files.columns import definition_of
from logloom.io.logs.table_files.files import TableFile, table_file
from logloom.io.logs.table_files.guesses import guess
from logloom.io.logs.table_files.times import time_column
from logloom.io.storage.filesystems import file_name_of
from logloom.pipelines.doctor.findings import HealthFinding
from logloom.text import counted
from logloom.values import dataclass

TypesSeen = dict[tuple[str, str], tuple[str, str, str]]


@dataclass
class _Nulls:
    count: int
    first: int
    kind: pa.DataType


def findings(uris: Sequence[str], options: OpenOptions, seen: TypesSeen) -> Iterator[HealthFinding]:
    """Return the findings in the files of a log, without unreadable ones, which the log itself reports.

    Args:
        seen: by topic and column the type, as read and as written, and its file; updated.
    """
    for uri in uris:
        try:
            file = table_file(uri, options, guess(uri, options))
            names, groups = file.schema.names, file.groups
        except LogReadError:
            continue
        topic = "/" + file_name_of(uri).rsplit(".", 1)[0]
        yield from _differing(file, topic, seen)
        time = file.how.time.names if file.how.time else (time_column(names),)
        columns = [name for name in names if name not in time]
        nulls: dict[str, _Nulls] = {}
        for number, group in enumerate(groups):
            try:
                table = file.read(number, columns)
            except LogReadError as error:
                remedy = "until it is written again, leave its columns or the log out"
                yield HealthFinding(
                    "damaged", uri, group.first, topic, group.num_rows, str(error), remedy, "row"
                )
                continue
            for name in columns:
                _add(nulls, name, table.column(name), group.first)
        for name, found in nulls.items():
            yield _of_nulls(uri, topic, name, found)


def _differing(file: TableFile, topic: str, seen: TypesSeen) -> Iterator[HealthFinding]:
    for field in file.schema:
        read = definition_of(pa.schema([field]))
        known = seen.setdefault((topic, field.name), (read, str(field.type), file.uri))
        if read != known[0]:
            message = f"column {field.name} is {field.type} here and {known[1]} in {known[2]}"
            remedy = "write both as one type, or leave the column out: a recipe's columns have one type"
            yield HealthFinding("types", file.uri, None, topic, 1, message, remedy)


def _add(nulls: dict[str, _Nulls], name: str, column: pa.ChunkedArray, first: int) -> None:
    for chunk in column.chunks:
        for path, (rows, kind) in null_rows(chunk, name).items():
            known = nulls.setdefault(path, _Nulls(0, first + int(rows[0]), kind))
            known.count += len(rows)
        first += len(chunk)


def null_rows(array: pa.Array, name: str) -> dict[str, tuple[NDArray[np.int64], pa.DataType]]:
    """Find nulls of a column and of nested values.

    Returns:
        By path (`box.width`, `boxes[].width`): (n,) the row of each null, ascending, and its type. Values
        within a null are not counted again.
    """
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    found = {}
    if array.null_count:
        found[name] = (np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False)), array.type)
    rows = np.flatnonzero(array.is_valid().to_numpy(zero_copy_only=False))
    whole = array.drop_null() if array.null_count else array
    inner: dict[str, tuple[NDArray[np.int64], pa.DataType]] = {}
    if pa.types.is_struct(array.type):
        for part in array.type:
            inner |= null_rows(pc.struct_field(whole, [part.name]), f"{name}.{part.name}")
    elif pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
        inner = null_rows(whole.flatten(), f"{name}[]")
        rows = rows[pc.list_parent_indices(whole).to_numpy(zero_copy_only=False)]
    elif pa.types.is_fixed_size_list(array.type):
        inner = null_rows(whole.flatten(), f"{name}[]")
        rows = np.repeat(rows, array.type.list_size)
    return found | {path: (rows[at], kind) for path, (at, kind) in inner.items()}


def _of_nulls(uri: str, topic: str, name: str, found: _Nulls) -> HealthFinding:
    message = f"column {name} has {counted(found.count, 'null')}, the first in this row"
    remedy = "these rows have no value for the column, and the nearest one that has counts"
    return HealthFinding("nulls", uri, found.first, topic, found.count, message, remedy, "row", "note")
