"""The formats that installed packages offer, by name.

Here: `format_named`, `formats`, and the formats of a version's outputs.
Elsewhere: the interface of a format (interface), finding the format of a plain folder (foreign).
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Mapping

import numpy as np
from pydantic import BaseModel, ValidationError

from logloom import parts
from logloom.errors import DatasetError, UsageError
from logloom.io.catalog.entries import Entry, repair_hint
from logloom.io.catalog.manifest import Manifest
from logloom.io.catalog.version_files import version_file
from logloom.io.formats.capabilities import ReferredFormat
from logloom.io.formats.interface import Format
from logloom.io.rows.sources import RowSource
from logloom.io.storage.metadata import checked
from logloom.io.storage.store import Store
from logloom.schema import LISTS, ColumnType, Schema
from logloom.text import counted, near_to


def format_names() -> tuple[str, ...]:
    """The outputs that installed packages offer, in name order."""
    return tuple(sorted({*parts.names("outputs")}))


def formats() -> list[Format]:
    """The formats that installed packages offer, in name order; without broken ones (`parts.broken`)."""
    return [form for _, form in sorted(parts.usable("outputs"), key=operator.itemgetter(0))]


@functools.cache
def format_named(name: str) -> Format:
    """The format of an output.

    Raises:
        UsageError: no installed package offers it, several do, or that of another package is broken.
    """
    found: Format = parts.load("outputs", name)
    return found


def output_problems(form: Format, options: BaseModel, schema: Schema) -> list[str]:
    """List what an output can't store, see `Format.check`; of lists of lists, with the outputs that can."""
    problems = form.check(options, schema)
    if not any(LISTS in line for line in problems):
        return problems
    others = ", ".join(storing("x", ColumnType(np.dtype("<f8"), (None, None), "lists")))
    return [
        f"{line}; outputs that store it as it is: {others}" if LISTS in line else line for line in problems
    ]


def storing(name: str, ctype: ColumnType) -> list[str]:
    """The outputs that store a column as it is, without options."""
    return [form.name for form in formats() if _stores(form, name, ctype)]


def _stores(form: Format, name: str, ctype: ColumnType) -> bool:
    try:
        return form.keeps_columns and not form.check(form.Options(), Schema({name: ctype}))
    except ValidationError:  # it needs options
        return False


def form_options() -> dict[str, str]:
    """The option of each output with the form of bytes columns; see `Format.forms_option`."""
    return {form.name: form.forms_option for form in formats() if form.forms_option}


def taking(key: str) -> list[Format]:
    """The formats whose datasets depend on a field of `Catalogued`; see `Format.takes`."""
    return [form for form in formats() if form.takes == key]


def referred_to() -> list[ReferredFormat]:
    """The formats whose units datasets elsewhere may point into."""
    return [form for form in formats() if isinstance(form, ReferredFormat)]


def without_suffix(name: str) -> str:
    """The split of a folder in a view, by the folder's name; see `Format.suffix`."""
    suffixes = {form.suffix for form in formats()}
    return next((name.removesuffix(end) for end in sorted(suffixes - {""}) if name.endswith(end)), name)


def options_of(
    store: Store, manifest: Manifest, outputs: Iterable[str] | None = None
) -> dict[str, BaseModel]:
    """The options of some outputs of a version, by default of each.

    Raises:
        UsageError: no installed package offers an output.
        DatasetError: options are not valid.
    """
    place = f"{store.uri_of(version_file(manifest.version))}: outputs"
    return {
        name: checked(format_named(name).Options, manifest.outputs[name], f"{place}.{name}")
        for name in (manifest.outputs if outputs is None else outputs)
    }


def open_unit(store: Store, schema: Schema, outputs: Mapping[str, BaseModel], entry: Entry) -> RowSource:
    """Open the reader of a finished unit.

    Args:
        outputs: of the version, name to options.

    Raises:
        DatasetError: the unit is of an output that isn't among them, or has other rows than its entry.
    """
    folder = store.uri_of(entry.folder)
    if entry.output not in outputs:
        raise DatasetError(
            f"{folder}: a unit of output {entry.output!r}, which the version doesn't have"
            f"{near_to(entry.output, outputs)}"
        )
    form = format_named(entry.output)
    reader = form.reader(folder, schema, outputs[entry.output], entry.unit, storage_options=store.options)
    if len(reader) != entry.rows:
        found = counted(len(reader), "row")
        raise DatasetError(f"{folder}: {found}, its entry has {entry.rows}; {repair_hint(folder)}")
    return reader


def by_preference(outputs: Iterable[str]) -> list[str]:
    """Sort outputs of a version by the preference in which one is read unless it is named.

    Those that no installed package offers are left out.

    Raises:
        UsageError: no installed package offers any of them.
    """
    found, absent = dict[str, Format](), None
    for name in outputs:
        try:
            found[name] = format_named(name)
        except UsageError as error:
            absent = error
    if absent and not found:
        raise absent
    return sorted(found, key=lambda name: (found[name].preference, name))
