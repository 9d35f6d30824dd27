"""The output `lance`: options, and writing, reading and assembly of units.

A unit is one data file. The manifest, which makes a table of the data files of a split, is assembled from all
units without touching payload; a version's view shows it with the data files.
"""

from __future__ import annotations

import pathlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from logloom.errors import DatasetError
from logloom.io.arrow.files import text_problems
from logloom.io.arrow.layout import ArrowLayout, ImageOptions, layout_problems
from logloom.io.arrow.typed_files import TypedFiles
from logloom.io.formats.interface import AssembledFormat, AssemblyPlan, StagedUnit, UnitContext
from logloom.io.formats.lance import manifest
from logloom.io.formats.lance.reader import LanceReader
from logloom.io.formats.lance.writer import SUFFIX, LanceWriter
from logloom.io.formats.unit_summary import check_unit
from logloom.io.rows.chain import UnitsSource
from logloom.io.rows.log_ranges import Stretches
from logloom.io.rows.sources import RowSource
from logloom.io.storage.faults import MISSING
from logloom.io.storage.store import Store
from logloom.schema import Schema

DOT = "__"  # Lance reads a dot as the path of a struct's field


class LanceOptions(ImageOptions):
    """`outputs.lance` of a recipe."""

    def layout(self, schema: Schema) -> ArrowLayout:
        """Of the columns that this output holds."""
        return ArrowLayout(self.stored(schema), self.images, DOT)


class LanceFormat(AssembledFormat):
    """Lance tables as the pipelines see them."""

    name = "lance"
    semantics = 1
    Options = LanceOptions
    planned = manifest.LancePlanJson
    preference = 46  # as Parquet, but behind an extra
    has_stamps_at_hand = True
    compares_files = True
    forms_option = "images"

    def check(self, options: LanceOptions, schema: Schema) -> list[str]:
        """List what can't be stored, one line each."""
        return options.problems(schema, lambda stored: _problems(stored, options.images))

    def check_log(self, options: LanceOptions, log_id: str, log_uri: str) -> list[str]:
        """Return the problem of a log_id that isn't UTF-8, if it is one."""
        return text_problems(log_id, log_uri)

    def writer(
        self, directory: pathlib.Path, schema: Schema, options: LanceOptions, context: UnitContext
    ) -> LanceWriter:
        """Writes one partition as one data file."""
        return LanceWriter(directory, options.layout(schema), context)

    def reader(
        self,
        directory: str,
        schema: Schema,
        options: LanceOptions,
        entry: Mapping[str, Any],
        *,
        storage_options: Mapping[str, Any] | None = None,
    ) -> LanceReader:
        """Opens one finished unit."""
        check_unit(manifest.ClosedLance, entry, directory)
        known = entry or {"rows": 0, "file": f"rows{SUFFIX}"}
        store = Store.at(directory, storage_options)
        return LanceReader(store, str(known["file"]), options.layout(schema), known)

    def view(self, number: int, files: Sequence[str]) -> dict[str, str]:
        """Put data files into a folder of their own, by their names."""
        return {name: f"{manifest.DATA}/{name}" for name in files if name.endswith(SUFFIX)}

    def plan_assembly(
        self,
        store: Store,
        units: Sequence[StagedUnit],
        schema: Schema,
        options: LanceOptions,
        period: int | None,
    ) -> AssemblyPlan:
        """The manifest, as one task."""
        for unit in units:
            check_unit(manifest.ClosedLance, unit.unit, store.uri_of(unit.folder))
        return manifest.plan_assembly(units, options.layout(schema))

    make_chunk = staticmethod(manifest.make_file)
    assembled_problems = staticmethod(manifest.problems)

    def recognises(self, store: Store) -> bool:
        """Whether a folder is a Lance table."""
        return bool(store.names(manifest.VERSIONS)) and not store.exists("spec.json")

    def units(self, store: Store) -> Sequence[LanceReader]:
        """The data files of the newest version, of a table that logloom wrote.

        Raises:
            DatasetError: it is damaged, or doesn't record the types of its columns.
        """
        found = _own_files(store)
        if found is None:
            raise DatasetError(f"{store.uri}: doesn't define its columns; convert it")
        return found[1]

    def rows(
        self, store: Store, columns: Sequence[str] | None = None, known: Stretches | None = None
    ) -> RowSource:
        """Open the rows of the newest version; if it doesn't record its columns' types, it is read once."""
        return self.typed_rows(store, columns, by_name=False)

    def typed_rows(self, store: Store, columns: Sequence[str] | None = None, **how: Any) -> RowSource:
        """See `rows`."""
        from logloom.io.formats.lance.reader import LanceTable
        from logloom.io.rows.inference.source import SurveyedSource

        found = _own_files(store)
        if found is None:
            return SurveyedSource(LanceTable(store), columns, **how)
        files, units = found
        if how.get("on_error") == "skip":
            return SurveyedSource(TypedFiles(store.uri, self.name, units), columns, **how)
        return UnitsSource(store, self.name, units, files)


def _own_files(store: Store) -> tuple[list[str], list[LanceReader]] | None:
    """List the files of a table's newest version, and its data files; None if logloom didn't write it.

    Raises:
        DatasetError: there is no table, or it is damaged.
    """
    name = manifest.newest(store.names(manifest.VERSIONS))
    if name is None:
        raise DatasetError(f"{store.uri}: no Lance table: {manifest.VERSIONS} has no manifest")
    place = store.uri_of(f"{manifest.VERSIONS}/{name}")
    try:
        schema, files = manifest.read_manifest(place, store.read(f"{manifest.VERSIONS}/{name}"))
    except MISSING:
        raise DatasetError(f"{place}: there is no such file") from None
    layout = ArrowLayout.of(schema, place)
    if layout is None or files is None or schema.names != layout.arrow.names:  # columns may be renamed
        return None
    readers = [
        LanceReader(store, f"{manifest.DATA}/{file.name}", layout, {"rows": file.rows, "stored_names": names})
        for file, names in files
    ]
    return [f"{manifest.VERSIONS}/{name}", *(f"{manifest.DATA}/{file.name}" for file, _ in files)], readers


def _problems(schema: Schema, images: Mapping[str, str]) -> list[str]:
    """List what a Lance table can't store, one line each."""
    found = layout_problems(schema, images)
    for name, ctype in schema.columns.items():
        if name.startswith("_"):
            found.append(f"column {name}: Lance keeps names that begin with _ for its own columns; rename it")
        for why in _unfit(ctype.dtype, ctype.shape[ctype.num_ragged :] if name not in images else ()):
            found.append(f"column {name}: Lance has no place for {why}")
    names = Counter(name.replace(".", DOT) for name in ("log_id", "timestamp", *schema.all))
    for stored in (stored for stored, count in names.items() if count > 1):
        both = " and ".join(name for name in schema.all if name.replace(".", DOT) == stored)
        found.append(f"columns {both}: both would be {stored} in Lance, which accepts no dots; rename one")
    return found


def _unfit(dtype: np.dtype[Any], shape: tuple[Any, ...]) -> Iterator[str]:
    """Describe what of a type can't be stored."""
    if any(shape) and (dtype.names is not None or dtype.kind == "c"):
        yield "lists of fixed length of structures or complex numbers; give it one ragged axis, or its parts"
    for name in dtype.names or ():
        base, inner = dtype[name].subdtype or (dtype[name], ())
        if "." in name:
            yield f"the field {name!r}, which has a dot"
        yield from _unfit(base, inner)


FORMAT = LanceFormat()
"""The format of the output `lance`, for functions that take a format as an object."""
