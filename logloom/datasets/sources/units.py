"""Rows of an output's finished units: of any format, wherever the version lies.

Here: `UnitSource`, the rows of one unit, and `open_units`, those of a plain folder of units.
Elsewhere: units as one dataset (`ChainedSource`), which units a version has (version).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from logloom.datasets.sources.base import ChainedSource, Ints, RowSource, Stretches
from logloom.io.checks import check_all
from logloom.io.foreign.base import FolderKind
from logloom.io.foreign.units import readers_of
from logloom.io.storage import Store
from logloom.io.units import Reader, format_named
from logloom.schema import Schema


class UnitSource(RowSource):
    """The rows of one unit, read by its format's own reader."""

    def __init__(
        self,
        output: str,
        folder: str,
        schema: Schema,
        options: Any,
        unit: Mapping[str, Any],
        stretches: Stretches,
        storage_options: Mapping[str, Any],
    ):
        """Opens nothing yet.

        Args:
            schema: of the recipe's columns; the output may hold fewer.
            options: of the output.
            unit: what its writer said on closing.
        """
        self.place = folder
        self._output, self._recipe_schema, self._options = output, schema, options
        self._unit, self._told, self._storage = unit, stretches, storage_options

    @property
    def stretches(self) -> Stretches:
        return self._told

    @property
    def schema(self) -> Schema:
        schema: Schema = self.reader.schema
        return schema

    @functools.cached_property
    def stamps(self) -> Ints:
        blocks = self.reader.blocks(columns=())
        return np.concatenate([np.empty(0, np.int64), *(block.timestamp for block in blocks)])

    def _open(self) -> Any:
        form = format_named(self._output)
        if not form.compares_files:
            check_all(self._storage)
        return form.reader(
            self.place, self._recipe_schema, self._options, self._unit, storage_options=self._storage
        )


def open_units(store: Store, form: FolderKind) -> RowSource:
    """The rows of a plain folder, unit after unit.

    Raises:
        DatasetError: it is damaged, or empty.
        UsageError: units have different columns.
    """
    readers = readers_of(store, form)
    parts = [ReaderSource(store.uri, form.name, reader) for reader in readers]
    return ChainedSource(store.uri, parts, readers[0].schema, None)


class ReaderSource(RowSource):
    """The rows of a reader that knows all of them by itself."""

    def __init__(self, place: str, name: str, reader: Reader):
        self.place, self._given = place, reader
        self.unknown = f"plain folders of {name}"

    @property
    def schema(self) -> Schema:
        return self._given.schema

    @functools.cached_property
    def _keys(self) -> tuple[Stretches, Ints]:
        blocks = list(self._given.blocks(()))
        logs = [log_id for block in blocks for log_id in [block.log_id] * len(block)]
        stamps = np.concatenate([np.empty(0, np.int64), *(block.timestamp for block in blocks)])
        return Stretches.of_rows(logs), stamps

    @property
    def stretches(self) -> Stretches:
        return self._keys[0]

    @property
    def stamps(self) -> Ints:
        return self._keys[1]

    def _open(self) -> Reader:
        return self._given
