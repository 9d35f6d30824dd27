"""The output `bags`: options, and writing and reading of units.

A unit is a folder of bags; in a version's view folders are numbered 000000, 000001, … as the shards of one
dataset.
"""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, Field

from logloom.errors import UsageError
from logloom.io.formats.bags.columns import column_problems, type_problems
from logloom.io.formats.bags.files import SPEC
from logloom.io.formats.bags.row_reader import BagsReader
from logloom.io.formats.bags.row_writer import BagsWriter
from logloom.io.formats.interface import Format, UnitContext
from logloom.io.formats.unit_summary import check_unit
from logloom.io.rows.log_ranges import Stretches
from logloom.io.rows.sources import RowSource
from logloom.io.storage.metadata import ChosenColumns, Count, Text
from logloom.io.storage.store import Store
from logloom.schema import Schema, check_column_name

if TYPE_CHECKING:
    from logloom.io.formats.bags.foreign_source import DatapointsSource


class BagsOptions(ChosenColumns):
    """`outputs.bags` of a recipe.

    Attributes:
        types: types of keys by column: jpg for bytes that are images.
        generation: of the files: 1, which every client reads, or 3.
    """

    types: dict[str, str] = Field(default_factory=dict)
    generation: Literal[1, 3] = 1


class ClosedBags(BaseModel):
    """The part of the result of `BagsWriter.close` that reading needs."""

    rows: Count
    partition: Text = ""


class BagsFormat(Format):
    """Bags as the pipelines see them."""

    name = "bags"
    semantics = 1
    last = (SPEC,)
    Options = BagsOptions
    preference = 30
    has_stamps_at_hand = True
    compares_files = True
    forms_option = "types"
    kind = "granular"
    mark_folder = "000000"  # beside shards there is nothing else

    def check(self, options: BagsOptions, schema: Schema) -> list[str]:
        """List what can't be stored, one line each."""
        return options.problems(schema, functools.partial(_problems, types=options.types))

    def writer(
        self, directory: pathlib.Path, schema: Schema, options: BagsOptions, context: UnitContext
    ) -> BagsWriter:
        """Writes one partition as a folder of bags."""
        return BagsWriter(directory, options.stored(schema), options.types, options.generation)

    def reader(
        self,
        directory: str,
        schema: Schema,
        options: BagsOptions,
        entry: Mapping[str, Any],
        *,
        storage_options: Mapping[str, Any] | None = None,
    ) -> BagsReader:
        """Opens one finished unit."""
        check_unit(ClosedBags, entry, directory)
        uris = [directory] if entry.get("rows") else []
        entries = [entry] if uris else []
        return BagsReader(uris, options.stored(schema), entries=entries, storage_options=storage_options)

    def recognises(self, store: Store) -> bool:
        """Whether a folder is a dataset of bags, or holds numbered ones."""
        names = store.names()
        return SPEC in names or ("000000" in names and store.exists(f"000000/{SPEC}"))

    def declared_units(self, store: Store, schema: Schema) -> Sequence[RowSource]:
        """Folders of bags."""
        names = [""] if store.exists(SPEC) else [name for name in store.names() if name.isdecimal()]
        return [BagsReader(store.uri_of(name), schema, storage_options=store.options) for name in names]

    def rows(
        self, store: Store, columns: Sequence[str] | None = None, known: Stretches | None = None
    ) -> DatapointsSource:
        """Datapoints."""
        from logloom.io.formats.bags.foreign_source import DatapointsSource

        return DatapointsSource(store)

    def typed_rows(self, store: Store, columns: Sequence[str] | None = None, **how: Any) -> RowSource:
        """Datapoints as columns."""
        from logloom.io.rows.inference.source import SurveyedSource

        return SurveyedSource(self.rows(store), columns, **how)

    def view(self, number: int, files: Sequence[str]) -> dict[str, str]:
        """Name a unit's files in the view of a version."""
        own = [file for file in files if file == "spec.json" or file.endswith((".bag", ".idx"))]
        return {file: f"{number:06d}/{file}" for file in own}


def _problems(stored: Schema, types: Mapping[str, str]) -> list[str]:
    problems = []
    for name, ctype in stored.columns.items():
        try:
            check_column_name(name)
        except UsageError as error:
            problems.append(f"column {name}: {error}")
        if len(name) > 200:
            problems.append(f"column {name}: a name of more than 200 characters can't name a file")
        problems += column_problems(name, ctype)
    return problems + type_problems(stored, types)


FORMAT = BagsFormat()
"""The format of the output `bags`, for functions that take a format as an object."""
