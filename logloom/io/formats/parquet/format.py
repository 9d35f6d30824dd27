"""The output `parquet`: options, and writing and reading of units.

A unit is `rows.parquet`; in a version's view files are numbered 000000.parquet, 000001.parquet, …
"""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, Field

from logloom.errors import DatasetError
from logloom.io.arrow.files import text_problems
from logloom.io.arrow.layout import ArrowLayout, ImageOptions, layout_problems
from logloom.io.arrow.typed_files import TypedFiles
from logloom.io.formats.interface import Format, UnitContext
from logloom.io.formats.parquet.foreign_files import SUFFIXES, ParquetFiles
from logloom.io.formats.parquet.reader import ParquetReader
from logloom.io.formats.parquet.writer import ParquetWriter
from logloom.io.formats.unit_summary import Closed, check_unit
from logloom.io.rows.chain import UnitsSource
from logloom.io.rows.inference.files import RawRows
from logloom.io.rows.log_ranges import Stretches
from logloom.io.rows.sources import RowSource
from logloom.io.storage.braces import files_named
from logloom.io.storage.folders import files_of, walk
from logloom.io.storage.store import Store
from logloom.schema import Schema

ROWS = "rows.parquet"


class ParquetOptions(ImageOptions):
    """`outputs.parquet` of a recipe.

    Attributes:
        row_group_bytes: bytes of values in a row group, the least that is read of a column at a time; no
            group has more than 65536 rows.
    """

    row_group_bytes: int = Field(default=4 << 20, ge=1, le=1 << 30)

    def layout(self, schema: Schema) -> ArrowLayout:
        """Of the columns that this output holds."""
        return ArrowLayout(self.stored(schema), self.images)


class ParquetFormat(Format):
    """Plain Parquet files as the pipelines see them."""

    name = "parquet"
    semantics = 1
    last = (ROWS,)
    Options: type[BaseModel] = ParquetOptions
    preference = 45
    has_stamps_at_hand = True
    compares_files = True
    forms_option = "images"
    is_generic = True

    def check(self, options: ParquetOptions, schema: Schema) -> list[str]:
        """List what can't be stored, one line each."""
        return options.problems(schema, lambda stored: layout_problems(stored, options.images))

    def check_log(self, options: ParquetOptions, log_id: str, log_uri: str) -> list[str]:
        """Return the problem of a log_id that isn't UTF-8, if it is one."""
        return text_problems(log_id, log_uri)

    def writer(
        self, directory: pathlib.Path, schema: Schema, options: ParquetOptions, context: UnitContext
    ) -> ParquetWriter:
        """Writes one partition as one file."""
        return ParquetWriter(directory / ROWS, options.layout(schema), options.row_group_bytes)

    def reader(
        self,
        directory: str,
        schema: Schema,
        options: ParquetOptions,
        entry: Mapping[str, Any],
        *,
        storage_options: Mapping[str, Any] | None = None,
    ) -> ParquetReader:
        """Opens one finished unit."""
        check_unit(Closed, entry, directory)
        known = entry or {"rows": 0}
        return ParquetReader(Store.at(directory, storage_options), ROWS, options.layout(schema), known)

    def recognises(self, store: Store) -> bool:
        """Whether a folder holds Parquet files, in itself or in a folder of its own, or a URI names them."""
        if names := store.names():
            is_keyed = any("=" in name for name in names)
            return bool(walk(store, SUFFIXES, depth=8 if is_keyed else 1))
        return files_named(store.uri)[0].lower().endswith(SUFFIXES)

    def units(self, store: Store) -> Sequence[ParquetReader]:
        """The files, by name."""
        folder, names = files_of(store, SUFFIXES)
        return [ParquetReader(folder, name) for name in names]

    def rows(
        self, store: Store, columns: Sequence[str] | None = None, known: Stretches | None = None
    ) -> RowSource:
        """Open the rows of all files; if these don't record their columns' types, they are read once."""
        return self.typed_rows(store, columns, by_name=False)

    def typed_rows(self, store: Store, columns: Sequence[str] | None = None, **how: Any) -> RowSource:
        """See `rows`; `how`: as of `SurveyedSource`."""
        from logloom.io.rows.inference.source import SurveyedSource

        files = ParquetFiles(store)
        raw: RawRows = files
        units = self.units(store)
        skips = how.get("on_error") == "skip"
        if not files.keys and all(_has_layout(unit, skips) for unit in units):
            if not skips:
                return UnitsSource(store, self.name, units)
            raw = TypedFiles(store.uri, self.name, units)
        return SurveyedSource(raw, columns, **how)

    def view(self, number: int, files: Sequence[str]) -> dict[str, str]:
        """Name a unit's files in the view of a version."""
        return {ROWS: f"{number:06d}.parquet"} if ROWS in files else {}


def _has_layout(unit: ParquetReader, skips: bool) -> bool:
    """Whether a file records its columns' types; also True if it is damaged and may be left out."""
    try:
        return unit.own_layout is not None
    except DatasetError:
        if not skips:
            raise
        return True


FORMAT = ParquetFormat()
"""The format of the output `parquet`, for functions that take a format as an object."""
