"""Rows, blocks and batches of zarr datasets that logloom wrote.

Lost data raises an error; fill values never replace it.

Here: `ZarrReader` over a dataset and `LogReader` over the group of one log.
Elsewhere: single arrays (array_reader), conversion of arrays to columns (columns), writing (assemble).
Other zarr datasets open with zarr or xarray.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logloom.blocks import Array, Block, Ragged, Values
from logloom.caching import cached_property
from logloom.errors import DatasetError, UsageError
from logloom.io.formats.chunk_files import read_file
from logloom.io.formats.zarr.array_reader import ArrayReader
from logloom.io.formats.zarr.columns import arrays_of, check_shapes, checked_lists, join_fields, read_blocks
from logloom.io.formats.zarr.groups import ATTRIBUTE, VERSION, log_problems
from logloom.io.formats.zarr.layout import ArrayLayout
from logloom.io.rows.batches import Batch, rows_of, tuple_of
from logloom.io.rows.flat_lists import LENGTHS, lengths_name
from logloom.io.rows.log_ranges import Ints, SourceLog, Stretches, parts_of
from logloom.io.rows.sources import BLOCK_BYTES, DatasetSource, check_count, joined_bounds, row_ranges
from logloom.io.storage.folders import content_of, files_below
from logloom.io.storage.lru_cache import LruCache
from logloom.io.storage.metadata import parsed, without_number
from logloom.io.storage.store import Store
from logloom.schema import TIMESTAMP, ColumnType, Schema
from logloom.text import near_to

CACHE_BYTES = 64 << 20


def _read_json(store: Store, name: str, missing: str) -> dict[str, Any]:
    """Read a metadata file.

    Raises:
        DatasetError: it is missing, or not a JSON object.
    """
    place = store.uri_of(name)
    data = parsed(read_file(store, name, missing), place)
    if not isinstance(data, dict):
        raise DatasetError(f"{place}: not a JSON object: damaged")
    return data


class ZarrReader(DatasetSource):
    """A zarr dataset as rows, ordered by (log_id, timestamp); a log for each group.

    Opens a log's files when first asked for one of its rows. Serves many threads; pickles without caches.
    """

    kind = "zarr"

    @cached_property
    def _cache(self) -> LruCache[Array]:
        return LruCache(CACHE_BYTES)

    def _unchecked(self) -> str:
        if self.format == 3:
            return "zarr.json of zarr format 3, nor that chunks were swapped (each has a checksum)"
        return "the files of zarr format 2, which have no checksums"

    @cached_property
    def _about(self) -> tuple[int, Schema, dict[str, int]]:
        """The zarr format, the schema, and how many rows each log has."""
        zarr_format = 3 if self._store.exists("zarr.json") else 2
        name = "zarr.json" if zarr_format == 3 else ".zattrs"
        found = _read_json(self._store, name, "no zarr dataset of logloom here")
        attributes = found.get("attributes") if zarr_format == 3 else found
        try:
            place = self._store.uri_of(name)
            about = without_number((attributes or {})[ATTRIBUTE], "version", VERSION, place, "damaged")
            logs = about["logs"]
            schema = Schema.from_json(about["schema"])
            sound = all(type(n) is int and 0 <= n < 1 << 62 and not log_problems(i) for i, n in logs.items())
            if not sound:
                raise ValueError("logs that make no sense")
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise DatasetError(
                f"{self._store.uri_of(name)}: not a dataset that logloom wrote ({error!r}); "
                "open it with zarr or xarray"
            ) from error
        return zarr_format, schema, {log_id: logs[log_id] for log_id in sorted(logs)}

    @property
    def format(self) -> int:
        """The zarr format: 2 or 3."""
        return self._about[0]

    @property
    def schema(self) -> Schema:
        return self._about[1]

    @cached_property
    def _own(self) -> Stretches:
        """The number of rows by log, as recorded in the dataset."""
        logs = self._about[2]
        own = Stretches.of_logs(list(logs), list(logs.values()))
        check_count(self.place, own.num_rows, self._known)
        return own

    @cached_property
    def stamps(self) -> Ints:
        logs = map(self.log, self._own.log_ids)
        found: list[Any] = [log.take("timestamp", TIMESTAMP, np.arange(len(log))) for log in logs]
        return np.concatenate([np.empty(0, np.int64), *found])

    def group_bounds(self, names: Sequence[str]) -> Ints:
        """See `RowSource.group_bounds`: whole chunks of the column whose chunks are largest."""
        row_bytes = self._row_bytes(names)
        return joined_bounds(self.log(log_id).group_bounds(names, row_bytes) for log_id in self._own.log_ids)

    @cached_property
    def _logs(self) -> dict[str, LogReader]:
        return {}

    def log(self, log_id: str) -> LogReader:
        """The rows of one log.

        Args:
            log_id: of the log.

        Raises:
            UsageError: there is no such log.
            DatasetError: its metadata is missing or damaged.
        """
        if log_id not in self._logs:
            zarr_format, schema, logs = self._about
            if log_id not in logs:
                raise UsageError(f"{self.place}: no log {log_id!r}{near_to(log_id, logs, most=5)}")
            reader = LogReader(self._store, log_id, logs[log_id], schema, zarr_format, self._cache)
            self._logs.setdefault(log_id, reader)  # of two threads the first one's
        return self._logs[log_id]

    def logs(self) -> Sequence[SourceLog]:
        logs = []
        for log_id, first, stop in self.stretches.spans():
            content, size = content_of(self._store, files_below(self._store, [log_id]))
            parts = parts_of(log_id, self.stamps[first:stop], first, content, size)
            logs.append(SourceLog.of(log_id, f"{self.place}/{log_id}", parts))
        return logs

    def scan(
        self, names: Sequence[str], max_bytes: int = BLOCK_BYTES, start: int = 0, stop: int | None = None
    ) -> Iterator[Block]:
        bounds = self._own.bounds.tolist()
        starts = dict(zip(self._own.log_ids, bounds[:-1], strict=True))
        for log_id, first, last in self._own.between(start, stop):
            own = starts[log_id]
            yield from self.log(log_id).read(names, first - own, last - own, max_bytes)

    def rows(self, positions: Ints, names: Sequence[str]) -> list[dict[str, Any]]:
        """See `RowSource.rows`; ragged values are not put end to end first."""
        return rows_of(self._gather(positions, names, {}), len(positions))

    def take(self, positions: Ints, names: Sequence[str], out: Mapping[str, Array] | None = None) -> Batch:
        """See `RowSource.take`; each chunk that rows are in is read once."""
        batch: Batch = self._gather(positions, names, out or {})
        for name, values in batch.items():
            if isinstance(values, Ragged):
                batch[name] = tuple_of(values)
            elif out and name in out and isinstance(values, np.ndarray):
                if values is not out[name]:
                    out[name][...] = values
                batch[name] = out[name]
        return batch

    def _gather(
        self, rows: NDArray[np.int64], names: Sequence[str], out: Mapping[str, Array]
    ) -> dict[str, Values | list[Any]]:
        """log_id, timestamp and the named columns of rows from any logs; bytes and strings as lists.

        Args:
            out: where columns of fixed shape may be read to.
        """
        ids, bounds = self._own.log_ids, self._own.bounds
        logs = self._own.number_of(rows)
        every = self.schema.all
        types = {"timestamp": TIMESTAMP, **{name: every[name] for name in names}}
        batch: dict[str, Any] = {"log_id": [ids[log] for log in logs.tolist()]}
        groups = [(log, np.flatnonzero(logs == log)) for log in np.unique(logs).tolist()]
        for name, ctype in types.items():
            into = out.get(name) if len(groups) == 1 else None
            found = [
                (where, self.log(ids[log]).take(name, ctype, rows[where] - bounds[log], into))
                for log, where in groups
            ]
            batch[name] = _scattered(found, ctype, len(rows))
            if ctype.kind == "string":
                batch[name] = [value.decode("utf-8") for value in batch[name]]
        return batch


def _scattered(
    found: Sequence[tuple[Array, Values | list[bytes]]], ctype: ColumnType, num_rows: int
) -> Values | list[bytes]:
    """Read rows of several logs, and put them in the requested order."""
    if len(found) == 1:
        return found[0][1]
    if ctype.is_ragged:
        rows: list[Any] = [None] * num_rows
        for where, values in found:
            for place, row in zip(where.tolist(), values, strict=True):
                rows[place] = row
        return rows if ctype.kind in ("bytes", "string") else Ragged.from_rows(rows, ctype)
    joined = np.empty((num_rows, *ctype.tail), ctype.dtype)
    for where, values in found:
        joined[where] = values
    return joined


class LogReader:
    """The rows of one log. Serves many threads."""

    def __init__(
        self, store: Store, log_id: str, rows: int, schema: Schema, zarr_format: int, cache: LruCache[Array]
    ):
        """Reads the metadata of the log's arrays.

        Raises:
            DatasetError: it is missing or damaged, or arrays are of other types than the schema's.
        """
        self.log_id = log_id
        self.schema = schema
        self._store = store
        self._rows = rows
        self._cache = cache
        self._format = zarr_format
        self.place = store.uri_of(log_id)

    @cached_property
    def arrays(self) -> dict[str, ArrayReader]:
        """All arrays by name."""
        name = f"{self.log_id}/{'zarr.json' if self._format == 3 else '.zmetadata'}"
        place = self._store.uri_of(name)
        data = _read_json(self._store, name, "copy or build the dataset again")
        consolidated = data.get("consolidated_metadata") if self._format == 3 else data
        entries = consolidated.get("metadata") if isinstance(consolidated, dict) else None
        if not isinstance(entries, dict):
            raise DatasetError(f"{place}: no consolidated metadata; copy or build the dataset again")
        arrays = {}
        for array, kind in arrays_of(self.schema).items():
            key = array if self._format == 3 else f"{array}/.zarray"
            if key not in entries:
                raise DatasetError(f"{place}: no array {array!r}: damaged; copy or build the dataset again")
            layout = ArrayLayout.from_metadata(entries[key], f"{place}: {array}")
            length = {"rows": self._rows, "bounds": self._rows + 1}.get(kind.axis, layout.shape[0])
            if (layout.dtype, layout.shape) != (kind.dtype, (length, *kind.tail)):
                raise DatasetError(
                    f"{place}: {array} is {layout.dtype} {layout.shape}, "
                    f"not {kind.dtype} {(length, *kind.tail)}: damaged; copy or build the dataset again"
                )
            arrays[array] = ArrayReader(self._store, f"{self.log_id}/{array}", layout, self._cache)
        return arrays

    def __len__(self) -> int:
        return self._rows

    def group_bounds(self, names: Sequence[str], row_bytes: int) -> Ints:
        """(G + 1,) bounds of whole chunks of the named column whose chunks are largest."""
        kinds = arrays_of(self.schema).values()
        own = [kind.name for kind in kinds if kind.column in names and kind.axis == "rows"]
        stored = [self.arrays[name].layout for name in own]
        largest = max(stored, key=lambda layout: layout.chunk_bytes, default=None)
        return row_ranges(self._rows, row_bytes, 1 if largest is None else largest.chunk)

    def read(self, names: Sequence[str], start: int, stop: int, max_bytes: int) -> Iterator[Block]:
        """Rows [start, stop) of the named columns as blocks of about `max_bytes`."""
        every = self.schema.all
        types = {name: every[name] for name in names}
        return read_blocks(self._read_array, types, start, stop, self.place, max_bytes, self._block)

    def _block(self, first_row: int, columns: dict[str, Values]) -> Block:
        return Block(self.log_id, "", first_row, columns)

    def _read_array(self, name: str, start: int, stop: int) -> Array:
        return self.arrays[name].read(start, stop)

    def take(
        self, name: str, ctype: ColumnType, rows: NDArray[np.int64], out: Array | None = None
    ) -> Values | list[bytes]:
        """Read rows of one column, in any order; bytes and strings as a list of bytes.

        Args:
            out: where values of fixed shape may be put, if it has their shape and type.
        """
        if ctype.kind == "lists":
            flat, lengths = self.take(name, ctype.flat, rows), self.take(lengths_name(name), LENGTHS, rows)
            assert isinstance(flat, Ragged)
            assert isinstance(lengths, Ragged)
            return checked_lists(flat, lengths, f"{self.place}/{name}")
        if not ctype.is_ragged:
            into = out if ctype.dtype.names is None else None
            return join_fields(name, ctype, len(rows), lambda array: self.arrays[array].take(rows, into))
        bounds = self.arrays[f"{name}.offsets"].take(np.concatenate([rows, rows + 1]))
        starts, stops = bounds[: len(rows)], bounds[len(rows) :]
        place, lengths = f"{self.place}/{name}", stops - starts
        if ((starts < 0) | (lengths < 0)).any():
            raise DatasetError(f"{place}.offsets: a row ends before it starts: damaged")
        if ctype.kind != "array":
            return self.arrays[name].gather_bytes(starts, stops)
        shapes = lengths[:, None]
        if ctype.num_ragged > 1:
            shapes = self.arrays[f"{name}.shapes"].take(rows)
            check_shapes(shapes, lengths, place, rows)
        total = int(lengths.sum())
        values = join_fields(name, ctype, total, lambda array: self.arrays[array].gather(starts, stops))
        return Ragged(values, shapes)
