"""Rows of an output's finished units: of any format, wherever the version lies.

Here: `UnitSource`, the rows of one unit.
Elsewhere: units as one dataset (`ChainedSource`), which units a version has (version).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from logloom.datasets.sources.base import Ints, RowSource, Stretches
from logloom.io.checks import check_all
from logloom.io.units import format_named
from logloom.schema import Schema

_CHECKED_AS_READ = ("table", "bags", "tar")  # of others nobody knows when they open which file


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
        if self._output not in _CHECKED_AS_READ:
            check_all(self._storage)
        return format_named(self._output).reader(
            self.place, self._recipe_schema, self._options, self._unit, storage_options=self._storage
        )
