"""Datasets of any format as blocks: `ReadFrom`.

Elsewhere: formats (logloom.io.formats.interface), the transforms named after them (`beam.py` in each format's
package), logs as blocks (logloom.transforms.beam.read_logs).
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from logloom.blocks import Block
from logloom.extras import beam_needed
from logloom.io.formats.interface import Format
from logloom.io.rows.sources import BLOCK_BYTES, RowSource, Share
from logloom.io.rows.unit_rows import uris_of
from logloom.io.storage.store import Store
from logloom.schema import Schema

with beam_needed():
    import apache_beam as beam


Rows = Callable[[Store], RowSource]  # picklable


class ReadFrom(beam.PTransform):
    """The rows of plain datasets as blocks; each unit, or log of one, is read by one worker."""

    def __init__(
        self,
        uris: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        form: Format,
        columns: Sequence[str] | None = None,
        max_bytes: int = BLOCK_BYTES,
        storage_options: Mapping[str, Any] | None = None,
        *,
        rows: Rows | None = None,
    ):
        """
        Args:
            uris: of one dataset of the format, or of several.
            form: the format.
            columns: names or globs; all, ages and availabilities too, by default.
            max_bytes: about how much a block holds.
            storage_options: fsspec options by protocol: {"gs": {"token": "anon"}}.
            rows: opens a dataset, where `form.rows` would have to know more.
        """
        super().__init__()
        self._uris = uris_of(uris)
        self._rows: Rows = rows or form.rows
        self._columns, self._max_bytes, self._storage_options = columns, max_bytes, storage_options

    def expand(self, begin: Any) -> Any:
        return (
            begin
            | "NameDatasets" >> beam.Create(self._uris)
            | "ListShares" >> beam.FlatMap(_shares, self._rows, self._storage_options)
            | "SpreadShares" >> beam.Reshuffle()
            | "ReadShare"
            >> beam.FlatMap(_read, self._rows, self._storage_options, self._columns, self._max_bytes)
        )


class ReadDataset(ReadFrom):
    """The rows of a dataset of one format; each log is read by one worker."""

    form: ClassVar[Format]

    def __init__(
        self,
        path: str | os.PathLike[str],
        columns: Sequence[str] | None = None,
        max_bytes: int = BLOCK_BYTES,
        storage_options: Mapping[str, Any] | None = None,
    ):
        """
        Args:
            path: path or URI of the dataset.
            columns: names or globs; all, ages and availabilities too, by default.
            max_bytes: about how much a block holds.
            storage_options: fsspec options by protocol: {"gs": {"token": "anon"}}.
        """
        super().__init__(path, self.form, columns, max_bytes, storage_options)


class ReadUnits(ReadFrom):
    """The rows of units whose files don't say all types; each is read by one worker."""

    form: ClassVar[Format]
    units: ClassVar[Callable[..., RowSource]]

    def __init__(
        self,
        uris: Sequence[str | os.PathLike[str]],
        schema: Schema,
        columns: Sequence[str] | None = None,
        max_bytes: int = BLOCK_BYTES,
        storage_options: Mapping[str, Any] | None = None,
    ):
        """
        Args:
            uris: of units that `schema` describes.
            schema: of their rows.
            columns: names or globs; all, ages and availabilities too, by default.
            max_bytes: about how much a block holds.
            storage_options: fsspec options by protocol: {"gs": {"token": "anon"}}.
        """
        rows = functools.partial(_unit_rows, self.units, schema)
        super().__init__(uris, self.form, columns, max_bytes, storage_options, rows=rows)


def _unit_rows(units: Callable[..., RowSource], schema: Schema, store: Store) -> RowSource:
    return units(store.uri, schema, storage_options=store.options)


def _shares(uri: str, rows: Rows, storage_options: Mapping[str, Any] | None) -> list[tuple[str, Share]]:
    return [(uri, share) for share in rows(Store.at(uri, storage_options)).shares()]


def _read(
    named: tuple[str, Share],
    rows: Rows,
    storage_options: Mapping[str, Any] | None,
    columns: Sequence[str] | None,
    max_bytes: int,
) -> Iterator[Block]:
    uri, (source, start, stop) = named
    if source is None:
        source = rows(Store.at(uri, storage_options))
    return source.blocks(columns, max_bytes, start, stop)
