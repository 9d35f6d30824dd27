"""Assemble the index of a table from its parts, each written by one worker.

Here: the index file of one log, from all parts with rows of it; the description of the whole table.
Elsewhere: writing parts (logloom.io.formats.table.write.part_writer), committing tables
(logloom.io.formats.table.write.write), tables that pipelines build (logloom.io.formats.table.format).
"""

from __future__ import annotations

import math
import pathlib
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from logloom.errors import UsageError
from logloom.io.catalog.log_tables import Catalogued
from logloom.io.formats.table import description as d
from logloom.io.formats.table.index.files import decode_texts, read_part, write_file
from logloom.io.formats.table.index.index import ROW
from logloom.io.formats.table.write.part_writer import TablePlan


def describe(
    plan: TablePlan,
    parts: Sequence[Mapping[str, Any]],
    logs: Sequence[d.LogRows],
    max_gap: int | None,
    references: Sequence[str],
) -> d.Description:
    """Make the description of a table.

    Args:
        parts: results of closing each part's writer.
    """
    return d.Description(
        plan.schema,
        plan.keys,
        plan.index_dtypes,
        plan.groups,
        plan.codecs,
        {group: sum(part["bytes"][group] for part in parts) for group in plan.groups},
        {group: max((part["longest"][group] for part in parts), default=0) for group in plan.groups},
        tuple(logs),
        max_gap,
        tuple(references),
    )


def catalogued_columns(
    logs: Mapping[str, Catalogued], plan: TablePlan
) -> dict[str, tuple[tuple[str, str, Any], ...]]:
    """Index columns from a catalogue, by log: name, dtype as in `Description.index`, value.

    All logs have all of them. A number that is missing is NaN, a text empty, a truth false.

    Raises:
        UsageError: a name is that of another column of the index, or values of one are of several kinds.
    """
    given = {log_id: dict(one.index) for log_id, one in logs.items()}
    names = dict.fromkeys(name for values in given.values() for name in values)
    if taken := [name for name in names if name in plan.index_dtypes or name in plan.schema.all]:
        raise UsageError(f"logs.index: {taken[0]!r} is a column of the rows; rename the catalogue's")
    dtypes = {name: _dtype_of(name, {log: one.get(name) for log, one in given.items()}) for name in names}
    nothing = {"str": "", "float64": math.nan, "bool": False}

    def value(log_id: str, name: str) -> Any:
        found = given[log_id].get(name)
        return nothing[dtypes[name]] if found is None else found

    return {log: tuple((name, dtypes[name], value(log, name)) for name in names) for log in logs}


def _dtype_of(name: str, values: Mapping[str, Any]) -> str:
    kinds = {type(value): log_id for log_id, value in values.items()}
    found = kinds.keys() - {type(None)}
    if found <= {bool, str} and len(found) == 1:
        return "bool" if bool in found else "str"
    if found == {int} and type(None) not in kinds:
        return "int64"
    if found <= {int, float}:
        return "float64"
    shown = sorted(f"{values[log]!r:.40} of {log}" for kind, log in kinds.items() if kind in found)
    raise UsageError(f"logs.index: the values of {name!r} are of several kinds: {' and '.join(shown)}")


def log_index(
    log_id: str, parts: Sequence[PartRows], catalogued: Sequence[tuple[str, str, Any]] = ()
) -> tuple[int, bytes]:
    """Make a log's index from the parts with its rows: number of rows, and the content of the file.

    Args:
        catalogued: columns of one value each, see `catalogued_columns`.
    """
    with tempfile.NamedTemporaryFile(prefix="logloom-", suffix=".parquet") as file:
        return write_log_index(pathlib.Path(file.name), log_id, parts, catalogued), file.read()


def write_log_index(
    path: pathlib.Path,
    log_id: str,
    parts: Sequence[PartRows],
    catalogued: Sequence[tuple[str, str, Any]] = (),
) -> int:
    """Write a log's index as a local file (not synced); return its number of rows. See `log_index`."""
    rows = pa.concat_tables([part.of_log(log_id) for part in parts]).unify_dictionaries()
    if "timestamp" in rows.column_names:
        stamps = rows["timestamp"].to_numpy()
        if (stamps[1:] < stamps[:-1]).any():
            rows = rows.take(np.argsort(stamps, kind="stable"))
    rows = rows.set_column(rows.column_names.index(ROW), ROW, pa.array(np.arange(len(rows))))
    for name, dtype, value in catalogued:
        rows = rows.append_column(name, _repeated(value, dtype, len(rows)))
    write_file(str(path), rows)
    return len(rows)


def _repeated(value: Any, dtype: str, rows: int) -> pa.Array:
    if dtype == "str":
        codes = pa.array(np.zeros(rows, np.int32))
        return pa.DictionaryArray.from_arrays(codes, pa.array([value], pa.string()))
    return pa.array(np.full(rows, value, dtype))


def index_columns(plan: TablePlan) -> set[str]:
    """The names of the columns of index files, and of a part's index rows."""
    fields = ("blob", "offset", "length", "hash")
    return {*plan.index_dtypes, ROW, *(d.service(0, g, field) for g in plan.groups for field in fields)}


class PartRows:
    """A part's index rows, log by log, with blobs named relative to the table."""

    def __init__(self, uri: str, name: str, storage_options: Mapping[str, Any] | None):
        """Read them.

        Args:
            uri: of its rows.parquet.
            name: of the part's folder in the table.

        Raises:
            DatasetError: the file is missing or damaged.
        """
        rows = read_part(uri, storage_options)
        for place, column in enumerate(rows.column_names):
            field = d.group_field(column)
            if field and field[2] == "blob":
                texts, codes = decode_texts(rows[column])
                own = f"{field[1]}.blob"
                texts = [f"parts/{name}/{text}" if text == own else text for text in texts]
                paths = pa.DictionaryArray.from_arrays(
                    pa.array(codes, pa.int32()), pa.array(texts, pa.string())
                )
                rows = rows.set_column(place, column, paths)
        self._rows = rows
        self._of_log: dict[str, NDArray[np.int64]] | None = None
        if "log_id" in rows.column_names:
            texts, codes = decode_texts(rows["log_id"])
            order = np.argsort(codes, kind="stable")
            groups = np.split(order, np.searchsorted(codes[order], np.arange(1, len(texts))))
            self._of_log = dict(zip(texts, groups, strict=True))

    @property
    def columns(self) -> set[str]:
        return set(self._rows.column_names)

    def of_log(self, log_id: str) -> pa.Table:
        return self._rows if self._of_log is None else self._rows.take(self._of_log[log_id])
