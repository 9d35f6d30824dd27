"""The output `tar`: options, and writing and reading of units.

A unit is `shard.tar`; in a version's view shards are numbered 000000.tar, 000001.tar, …
"""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, Field

from logloom.errors import UsageError
from logloom.io.formats.interface import Format, UnitContext, Writer
from logloom.io.formats.tar.npy import npy_header
from logloom.io.formats.tar.samples import EXTENSION, META, key_before, members_of
from logloom.io.formats.unit_summary import Closed, check_unit
from logloom.io.rows.flat_lists import flat_problems
from logloom.io.rows.log_ranges import Stretches
from logloom.io.rows.sources import RowSource
from logloom.io.storage.braces import files_named
from logloom.io.storage.folders import files_of
from logloom.io.storage.metadata import ChosenColumns, Count
from logloom.io.storage.store import Store
from logloom.schema import ColumnType, Schema, check_column_name
from logloom.text import near_to

SHARD = "shard.tar"


class TarOptions(ChosenColumns):
    """`outputs.tar` of a recipe.

    Attributes:
        ext: what a column's members are called, by column: jpg for bytes, npy for arrays.
    """

    ext: dict[str, str] = Field(default_factory=dict)


class ClosedTar(Closed):
    """What `TarWriter.close` gives."""

    bytes: Count


class TarFormat(Format):
    """Tar shards as the pipelines see them."""

    name = "tar"
    semantics = 1
    last = (SHARD,)
    Options: type[BaseModel] = TarOptions
    preference = 40
    compares_files = True
    forms_option = "ext"
    media_type = "application/x-tar"
    hub_files = "*.tar"
    kind = "webdataset"
    is_generic = True

    def check(self, options: TarOptions, schema: Schema) -> list[str]:
        """What can't be held, one line each."""
        return options.problems(schema, functools.partial(_problems, ext=options.ext))

    def check_log(self, options: TarOptions, log_id: str, log_uri: str) -> list[str]:
        """A log_id that can't name members."""
        try:
            key_before(log_id)
        except UsageError as error:
            return [f"{log_uri}: {error}"]
        return []

    def writer(
        self, directory: pathlib.Path, schema: Schema, options: TarOptions, context: UnitContext
    ) -> Writer:
        from logloom.io.formats.tar.writer import TarWriter

        return TarWriter(directory / SHARD, options.stored(schema), options.ext)

    def reader(
        self,
        directory: str,
        schema: Schema,
        options: TarOptions,
        entry: Mapping[str, Any],
        *,
        storage_options: Mapping[str, Any] | None = None,
    ) -> RowSource:
        from logloom.io.formats.tar.reader import TarReader

        check_unit(ClosedTar, entry, directory)
        uris = [f"{directory}/{SHARD}"] if entry.get("rows") else []
        return TarReader(
            uris, options.stored(schema), entries=[entry] if uris else [], storage_options=storage_options
        )

    def recognises(self, store: Store) -> bool:
        """Whether a folder holds shards, or a URI names them."""
        from logloom.io.formats.tar.stream import SUFFIXES

        names = store.names() or files_named(store.uri)[:1]
        return any(name.lower().endswith(SUFFIXES) for name in names)

    def declared_units(self, store: Store, schema: Schema) -> Sequence[RowSource]:
        """Shards."""
        from logloom.io.formats.tar.reader import TarReader
        from logloom.io.formats.tar.stream import SUFFIXES

        folder, names = files_of(store, SUFFIXES)
        return [TarReader(folder.uri_of(name), schema, storage_options=store.options) for name in names]

    def rows(
        self, store: Store, columns: Sequence[str] | None = None, known: Stretches | None = None
    ) -> RowSource:
        """Samples."""
        from logloom.io.formats.tar.shards import open_shards

        return open_shards(store)

    def typed_rows(self, store: Store, columns: Sequence[str] | None = None, **how: Any) -> RowSource:
        """Samples as columns."""
        from logloom.io.formats.tar.shards import find_shards
        from logloom.io.rows.inference.source import SurveyedSource

        return SurveyedSource(find_shards(store), columns, **how)

    def view(self, number: int, files: Sequence[str]) -> dict[str, str]:
        """What the view of a version calls a unit's files."""
        return {SHARD: f"{number:06d}.tar"} if SHARD in files else {}


def _problems(stored: Schema, ext: Mapping[str, str]) -> list[str]:
    problems = flat_problems(stored.columns)
    for name, ctype in stored.columns.items():
        problems += _column_problems(name, ctype)
    for name, extension in ext.items():
        if name not in stored.columns:
            problems.append(f"ext: no column {name!r} in this output{near_to(name, stored.columns)}")
        else:
            problems += _extension_problems(name, extension, stored.columns[name])
    return problems


def _column_problems(name: str, ctype: ColumnType) -> list[str]:
    try:
        check_column_name(name)
        npy_header(ctype.dtype, ctype.tail)
    except (UsageError, ValueError) as error:
        return [f"column {name}: {error}"]
    return [f"column {name}: {ctype} has no .npy form"] if ctype.dtype.hasobject else []


def _extension_problems(name: str, extension: str, ctype: ColumnType) -> list[str]:
    (holder,) = [m for m in members_of(Schema({name: ctype}), {}) if name in m.columns]
    if holder.suffix == META:
        return [f"ext: {name} ({ctype}) is kept in meta.json and has no member of its own; leave its ext out"]
    if holder.form == "npy" and extension != "npy":
        return [f"ext: {name} ({ctype}) can't be {extension!r}, arrays are 'npy'; `encode: jpg` makes images"]
    if not EXTENSION.fullmatch(extension):
        return [f"ext: {name}: {extension!r} is no extension, use a-z, 0-9 and _, like jpg"]
    return []


FORMAT = TarFormat()
"""The format of the output `tar`, for functions that take a format as an object."""
