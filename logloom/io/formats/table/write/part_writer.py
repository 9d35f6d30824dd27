"""Parts of a table: the rows that one worker writes, alone.

Here: `PartWriter`, and the file rows.parquet with the part's index rows until the table is committed.
Elsewhere: cutting rows into parts and committing tables (logloom.io.formats.table.write.write), files of
chunks (logloom.io.formats.table.blobs).

A part is a folder: `<group>.blob` for each group, and rows.parquet, whose columns are the index columns and
the service columns of an index file, with blobs named relative to the part. Its bytes depend on the rows
alone.
"""

from __future__ import annotations

import contextlib
import itertools
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import field
from typing import Any

import numpy as np
import pyarrow as pa

from logloom.blocks import Ragged, Values
from logloom.cpus import available_cpus
from logloom.errors import DatasetError, UsageError
from logloom.io.formats.table import description as d
from logloom.io.formats.table.blobs import BlobWriter, ChunkPlaces, Place, packer
from logloom.io.formats.table.chunks import Layout, row_bytes
from logloom.io.formats.table.groups import make_groups
from logloom.io.formats.table.index.files import HASH_TYPE, read_part, write_file
from logloom.io.formats.table.references import References
from logloom.schema import ColumnType, Schema, base_of
from logloom.text import near_to
from logloom.values import dataclass

ROWS_FILE = "rows.parquet"
_MAX_INDEX_VALUES = 16
_WRITERS = 2  # blobs written at a time: one thread alone can not fill a disk


@dataclass(frozen=True)
class TablePlan:
    """The plan of a table, made before its first row and equal for all its parts.

    Attributes:
        keys: which of log_id and timestamp the rows have.
        index: names of columns of the schema that are in the index too, with availabilities of those whose
            values don't show which are missing.
        groups, codecs: as in `Description`.
    """

    schema: Schema
    keys: tuple[str, ...] = d.KEYS
    index: tuple[str, ...] = ()
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    codecs: Mapping[str, str] = field(default_factory=dict)

    @property
    def index_dtypes(self) -> dict[str, str]:
        """Index columns in order: keys, then scalars, as in `Description.index`."""
        keys = {"log_id": "str", "timestamp": "<i8"}
        found = {key: keys[key] for key in self.keys}
        for name in self.index:
            ctype = self.schema.all[name]
            found |= {scalar: _index_dtype(ctype) for scalar, _ in d.scalars(name, ctype)}
        return found


def make_plan(
    schema: Schema,
    index: str | Sequence[str] | None = None,
    groups: Mapping[str, str | Sequence[str]] | None = None,
    compress: str | Mapping[str, str] | None = None,
    keys: Sequence[str] = d.KEYS,
) -> TablePlan:
    """Check and complete a caller's arguments of a table.

    Args:
        index: patterns of columns in the index, besides the keys.
        groups: named column groups; columns in none of them are in default groups (`make_groups`).
        compress: a codec for all groups, or group to codec.

    Raises:
        UsageError: a pattern matches nothing, a column can't be in the index, or has a name of its own
            columns'.
    """
    if like_service := [name for name in schema.columns if d.SERVICE_COLUMN.fullmatch(name)]:
        raise UsageError(
            f"column {like_service[0]}: names of this form, as __0.row, are those of an index's service "
            "columns; rename it"
        )
    indexed = schema.select([index] if isinstance(index, str) else index) if index else ()
    for name in indexed:
        if problem := index_problem(schema.all[name]):
            raise UsageError(f"index column {name}: {problem}")
    made = make_groups(schema, groups)
    codecs = dict.fromkeys(made, compress) if isinstance(compress, str) else dict(compress or {})
    for group, codec in codecs.items():
        if group not in made:
            raise UsageError(f"compress: no group {group!r}{near_to(group, made)}")
        packer(codec)
    masks = (f"{name}.available" for name in indexed if name in schema.sampled)
    needed = (mask for mask in masks if schema.columns[base_of(mask)].dtype.kind != "f")  # NaN is missing
    return TablePlan(schema, tuple(keys), tuple(dict.fromkeys([*indexed, *needed])), made, codecs)


def index_problem(ctype: ColumnType) -> str:
    """Explain why a column can't be in the index; "" if it can."""
    if ctype.kind == "string":
        return ""
    if ctype.is_ragged or ctype.dtype.kind not in "iufb" or ctype.dtype.itemsize > 8:
        return f"{ctype} is not one or a few numbers, nor text; the index stores small values only"
    if row_bytes(ctype) > _MAX_INDEX_VALUES * ctype.dtype.itemsize:
        return f"{ctype} is more than {_MAX_INDEX_VALUES} numbers; the index stores small values only"
    return ""


def _index_dtype(ctype: ColumnType) -> str:
    if ctype.kind == "string":
        return "str"
    return "<f4" if ctype.dtype == np.float16 else ctype.dtype.str  # few Parquet readers know halves


class PartWriter:
    """Writes some rows of a table into a local folder. Not for several threads.

    The bytes written depend on the rows, not on how they were cut into appends.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        plan: TablePlan,
        references: References | None = None,
        threads: int | None = None,
        paths: Mapping[str, pathlib.Path] | None = None,
        kept: Mapping[str, ChunkPlaces] | None = None,
        span: tuple[int, int] | None = None,
    ):
        """Creates the files.

        Args:
            folder: existing and empty.
            references: chunks stored in other tables.
            threads: that hash and compress.
            paths: of the blobs of groups that are not in the folder under their names in the index.
            span: of the rows' timestamps in ns, half-open, if known: only chunks of it are looked up
                elsewhere. kept: places of the coming rows' chunks, of groups whose blobs exist already.
        """
        self._folder, self._plan, self._references, self._span = folder, plan, references, span
        self._kept = kept or {}
        self._workers = ThreadPoolExecutor(threads or available_cpus(), thread_name_prefix="chunks")
        self._writers = ThreadPoolExecutor(_WRITERS, thread_name_prefix="blobs")
        self._syncer = ThreadPoolExecutor(1, thread_name_prefix="syncs")
        self._writing: dict[str, Future[None]] = {}
        self._layouts = {
            group: Layout({name: plan.schema.all[name] for name in columns})
            for group, columns in plan.groups.items()
            if group not in self._kept
        }
        self._blobs = {
            group: BlobWriter(
                (paths or {}).get(group, folder / f"{group}.blob"),
                f"{group}.blob",
                plan.codecs.get(group),
                self._workers,
                self._syncer,
            )
            for group in self._layouts
        }
        self._index: dict[str, list[Any]] = {name: [] for name in plan.index_dtypes}
        self.rows = 0
        self.logs: list[str] = []

    def append(self, log_id: str, columns: Mapping[str, Values], num_rows: int) -> None:
        """Append the next rows, all of one log; they are written while the next ones are made (see `settle`).

        Args:
            columns: timestamp (if a key) and every column of the schema, ages and availabilities too.
        """
        known: Mapping[bytes, Place] = self._references.known(log_id, self._span) if self._references else {}
        for group, layout in self._layouts.items():  # one is hashed while another is written
            blob = self._blobs[group]
            prepared = blob.prepare(layout.encode(columns, num_rows))
            if group in self._writing:
                self._writing[group].result()
            self._writing[group] = self._writers.submit(blob.append, prepared, known)
        for name, values in self._index_values(log_id, columns, num_rows):
            self._index[name].append(values)
        self.rows += num_rows
        if log_id not in self.logs:
            self.logs.append(log_id)

    def _index_values(
        self, log_id: str, columns: Mapping[str, Values], num_rows: int
    ) -> Iterator[tuple[str, Any]]:
        for key in self._plan.keys:
            yield key, [log_id] * num_rows if key == "log_id" else np.array(columns[key], np.int64)
        for name in self._plan.index:
            ctype, values = self._plan.schema.all[name], columns[name]
            if isinstance(values, Ragged) and ctype.kind == "string":
                yield name, [value.tobytes().decode("utf-8") for value in values]
                continue
            array = values.values if isinstance(values, Ragged) else values
            for scalar, place in d.scalars(name, ctype):
                everywhere: Any = (slice(None), *place)
                yield scalar, array[everywhere].astype(_index_dtype(ctype))

    def settle(self) -> None:
        """Wait until the appended rows are written, so that their memory may be reused.

        Raises:
            StorageError: the disk refused.
        """
        writing, self._writing = self._writing, {}
        wait(writing.values())
        for one in writing.values():
            one.result()

    @property
    def places(self) -> dict[str, ChunkPlaces]:
        """The places of the chunks of the rows so far, by group."""
        return {g: self._kept[g] if g in self._kept else self._blobs[g].places for g in self._plan.groups}

    def close(self) -> dict[str, Any]:
        """Finish the files (not synced) and return the part's summary for the commit, as JSON.

        Raises:
            StorageError: the disk refused.
        """
        places = self.places
        with contextlib.ExitStack() as closing:
            for pool in (self._workers, self._writers, self._syncer):
                closing.callback(pool.shutdown)
            for blob in self._blobs.values():
                closing.callback(blob.close)
            self.settle()
            for group, found in self._kept.items():
                if len(found.lengths) != self.rows:
                    raise DatasetError(
                        f"group {group} is kept from an earlier build with {len(found.lengths)} rows, there "
                        f"are now {self.rows}; build into a new root"
                    )
            # While the disk is busy with the blobs.
            write_file(str(self._folder / ROWS_FILE), _arrow_rows(self._plan, self._index, places, self.rows))
        return {
            "rows": self.rows,
            "logs": self.logs,
            "bytes": {group: sum(found.lengths) for group, found in places.items()},
            "longest": {group: found.longest for group, found in places.items()},
        }


def _arrow_rows(
    plan: TablePlan, index: Mapping[str, Sequence[Any]], places: Mapping[str, ChunkPlaces], num_rows: int
) -> pa.Table:
    columns: dict[str, Any] = {}
    for name, dtype in plan.index_dtypes.items():
        if dtype == "str":
            texts = list(itertools.chain.from_iterable(index[name]))
            columns[name] = pa.array(texts, pa.string()).dictionary_encode()
        else:
            columns[name] = pa.array(np.concatenate([np.empty(0, dtype), *index[name]]))
    columns[d.service(0, "row")] = pa.array(np.arange(num_rows))
    for group, found in places.items():
        for what, values in _arrow_places(found).items():
            columns[d.service(0, group, what)] = values
    return pa.table(columns)


def _arrow_places(places: ChunkPlaces) -> dict[str, pa.Array]:
    return {
        "blob": pa.array(places.blobs, pa.string()).dictionary_encode(),
        "offset": pa.array(places.offsets, pa.int64()),
        "length": pa.array(places.lengths, pa.int64()),
        "hash": pa.array(places.hashes, HASH_TYPE),
    }


def write_places(path: pathlib.Path, places: ChunkPlaces) -> None:
    """Write the places of a group's chunks, for parts that keep the group's blob."""
    write_file(str(path), pa.table(_arrow_places(places)))


def read_places(uri: str, longest: int, storage_options: Mapping[str, Any] | None) -> ChunkPlaces:
    """Read the file of `write_places`.

    Args:
        longest: see `ChunkPlaces`.

    Raises:
        DatasetError: the file is missing or damaged.
    """
    rows = read_part(uri, storage_options)
    fields = (rows[what].to_pylist() for what in ("blob", "offset", "length", "hash"))
    blobs, offsets, lengths, hashes = fields
    return ChunkPlaces(blobs, offsets, lengths, hashes, longest)
