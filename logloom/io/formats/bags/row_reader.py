"""Reading rows from folders of bags.

Here: `BagsReader`.
Elsewhere: datapoints as granular's users see them (logloom.io.formats.bags.dataset_reader), conversion of
records to columns (logloom.io.formats.bags.columns).
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from logloom.blocks import Values, cut_by_bytes, python_value
from logloom.errors import DatasetError, LogloomError, UsageError
from logloom.io.formats.bags.columns import META, column_from, metas_from
from logloom.io.formats.bags.dataset_reader import DatasetReader
from logloom.io.rows.sources import Run
from logloom.io.rows.unit_rows import UnitRows, uris_of
from logloom.schema import STRING, TIMESTAMP, ColumnType, Schema


class BagsReader(UnitRows):
    """Random access to the rows of folders of bags that `BagsWriter` wrote, concatenated.

    Opens bags when they are first read, pickles by location, serves many threads and crosses a fork.
    """

    def __init__(
        self,
        uris: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        schema: Schema,
        *,
        entries: Sequence[Mapping[str, Any]] | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ):
        """Opens nothing yet.

        Args:
            uris: of the folders, in row order.
            schema: of the rows; may omit stored columns.
            entries: results of their writers' `close`, if known.
            storage_options: fsspec options by protocol: {"gs": {"token": "anon"}}.
        """
        self._uris = uris_of(uris)
        super().__init__(schema, self._uris)
        self._entries = list(entries) if entries is not None else None
        self._options = storage_options
        self._readers: dict[int, DatasetReader] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        again = functools.partial(BagsReader, entries=self._entries, storage_options=self._options)
        return again, (self._uris, self.schema)

    def _row(self, position: int, names: Sequence[str]) -> dict[str, Any]:
        number, place = self._place_of(position)
        found = self._read(number, place, place + 1, names)
        log_id = self._log_id(number, found["log_id"][0].tobytes())
        row = {"log_id": log_id, "timestamp": found["timestamp"][0]}
        types = self.schema.all
        for name in names:
            try:
                row[name] = python_value(found[name][0], types[name])
            except UnicodeDecodeError as error:
                raise DatasetError(
                    f"{self._uris[number]}: a value of {name} isn't UTF-8 ({error})"
                ) from error
        return row

    def _cuts(self, number: int, names: Sequence[str], max_bytes: int) -> Iterator[tuple[int, int]]:
        reader = self._reader(number)
        ends = np.zeros(len(reader) + 1, np.int64)
        for key in self._keys(names):
            limits = reader.bag(key).limits()
            if len(limits) != len(ends):
                raise UsageError(f"{key} is a sequence; rows have one value of each column")
            ends += limits
        return cut_by_bytes(ends, max_bytes)

    def _partition(self, number: int) -> str:
        return str(self._entries[number].get("partition", "")) if self._entries else ""

    def _run(self, number: int, start: int, stop: int, names: Sequence[str]) -> Run:
        found = self._read(number, start, stop, names)
        ids = [row.tobytes() for row in found.pop("log_id")]
        texts = {log_id: self._log_id(number, log_id) for log_id in set(ids)}
        stamps = found.pop("timestamp")
        assert isinstance(stamps, np.ndarray)
        return [texts[log_id] for log_id in ids], stamps, found

    def _log_id(self, number: int, data: bytes) -> str:
        try:
            return str(data, "utf-8")
        except UnicodeDecodeError as error:
            raise DatasetError(f"{self._uris[number]}: a value of log_id isn't UTF-8 ({error})") from error

    def _row_counts(self) -> list[int]:
        if self._entries is not None:
            return [int(entry["rows"]) for entry in self._entries]
        return [len(self._reader(number)) for number in range(len(self._uris))]

    def _reader(self, number: int) -> DatasetReader:
        reader = self._readers.get(number)
        if reader is None:
            reader = DatasetReader(self._uris[number], None, storage_options=self._options)
            keys = [*self._keys(tuple(self.schema.columns)), *([META] if self.schema.sampled else [])]
            if missing := [key for key in keys if key not in reader.spec]:
                raise DatasetError(
                    f"{self._uris[number]}: no key {missing[0]!r}; there are {', '.join(reader.spec)}"
                )
            if self._entries is not None and len(reader) != self._entries[number]["rows"]:
                raise DatasetError(
                    f"{self._uris[number]}: {len(reader)} rows, {self._entries[number]['rows']} were written"
                )
            self._readers[number] = reader
        return reader

    def _keys(self, names: Sequence[str]) -> list[str]:
        """The keys that hold some columns."""
        own = [name for name in names if name in self.schema.columns]
        return ["log_id", "timestamp", *own, *([META] if len(own) < len(names) else [])]

    def _read(self, number: int, start: int, stop: int, names: Sequence[str]) -> dict[str, Values]:
        """log_id, timestamp and columns of consecutive rows of one folder."""
        reader = self._reader(number)
        found: dict[str, Values] = {}
        metas = {name: ctype for name, ctype in self.schema.meta.items() if name in names}
        for key in self._keys(names):
            data, limits = reader.bag(key).read_range(start, stop)
            if len(limits) != stop - start + 1:
                raise DatasetError(f"{self._uris[number]}: {key}.bag ends before row {stop - 1}")
            try:
                if key == META:
                    found |= metas_from(data, limits, metas)
                else:
                    found[key] = column_from(reader.spec[key], self._type(key), data, limits)
            except LogloomError:
                raise
            except Exception as error:
                raise DatasetError(
                    f"{self._uris[number]}: {key}.bag, rows {start} to {stop - 1}: {error}; write it again"
                ) from error
        return found

    def _type(self, key: str) -> ColumnType:
        return {"log_id": STRING, "timestamp": TIMESTAMP}.get(key) or self.schema.columns[key]
