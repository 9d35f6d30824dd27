"""What every dataset format offers, and how formats are found.

Here: the `Writer`, `Reader` and `Format` protocols and the registry.
Elsewhere: the formats (tar, l5kit, ...: one module or small package each), where finished units are kept
(logloom.io.entries), the Beam transforms around them (`beam.py` in each format's package).

A *unit* is one partition's share of one output: some files in a folder of their own. A writer fills a local
folder and never looks outside it; whoever calls it publishes the folder. Writers are deterministic: the same
blocks in the same order, cut anywhere, give the same bytes.
"""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import Any, Protocol, runtime_checkable

from pydantic import BaseModel

from logloom.blocks import Block
from logloom.errors import UsageError
from logloom.io.entries import Entry
from logloom.io.logs.base import MAX_TIME, MIN_TIME
from logloom.io.manifest import LogRecord, Manifest, version_file
from logloom.io.metadata import Count, Text, checked
from logloom.io.storage import Store
from logloom.schema import Schema

# Where no output is named; see by_preference.
_FIRST, _LAST = ("table", "zarr", "bags", "tar"), ("l5kit", "annotations")


@dataclass(frozen=True)
class Portion:
    """A share of a unit that has an identity of its own, since its bytes depend on less than the unit's.

    A unit of a later version that needs an equal portion points to it, and doesn't write it again.

    Attributes:
        identity: names its folder, which lies beside the unit's.
        uri: of that folder.
        scratch: an empty local folder to write it into; None where it is finished.
        finished: its entry, whose `unit` is what closing the unit that wrote it said of it.
    """

    identity: str
    uri: str
    scratch: pathlib.Path | None
    finished: Entry | None = None


@dataclass(frozen=True)
class UnitContext:
    """What a writer knows of the partition beside its blocks.

    Attributes:
        log_uri: the log's first file (for templates such as l5kit's host).
        start, stop: the partition's span in ns, half-open.
        period: of a rate clock, in ns; None for a topic clock.
        storage_options: fsspec options by protocol, for what a unit refers to elsewhere.
        portions: by name, where the format is a `PortionedFormat` and the unit is to be kept; else none, and
            the unit stands alone.
    """

    log_id: str
    log_uri: str
    partition: str
    split: str
    period: int | None = None
    start: int = MIN_TIME
    stop: int = MAX_TIME
    storage_options: Mapping[str, Any] = field(default_factory=dict)
    portions: Mapping[str, Portion] = field(default_factory=dict)


class Writer(Protocol):
    """Writes one unit into a local folder."""

    def append(self, block: Block) -> None:
        """Takes the next rows; blocks come in row order."""
        ...

    def close(self) -> dict[str, Any]:
        """Finishes the files (not yet fsynced) and gives what readers and assembly need to know (JSON)."""
        ...


class Reader(Protocol):
    """Random access to the rows of one unit or dataset. Opens files lazily, pickles, serves many threads."""

    schema: Schema

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> dict[str, Any]:
        """Row `index` as users see it (see `Block.row`)."""
        ...

    def row(self, index: int, columns: Sequence[str] | None = None) -> dict[str, Any]:
        """Row `index` with the named columns only, ages and availabilities when named."""
        ...

    def blocks(self, columns: Sequence[str] | None = None, max_bytes: int = 64 << 20) -> Iterator[Block]:
        """All rows in order, in blocks of about `max_bytes`; None is all columns, ages included."""
        ...


class Format(Protocol):
    """A dataset format as the pipelines see it; found by an entry point in `logloom.formats`."""

    name: str
    suffix: str  # of a split's folder in a version's view, such as ".zarr"
    semantics: int  # counts up when the same rows would give other bytes; part of every unit's identity
    Options: type[BaseModel]  # what stands under `outputs.<name>` in a recipe

    def check(self, options: Any, schema: Schema) -> list[str]:
        """What this output can't hold, one line each, without the recipe's line number."""
        ...

    def check_log(self, options: Any, log_id: str, log_uri: str) -> list[str]:
        """Why this output can't hold a log of this name, one line each."""
        ...

    def writer(
        self, directory: pathlib.Path, schema: Schema, options: Any, context: UnitContext
    ) -> Writer: ...

    def reader(
        self,
        directory: str,
        schema: Schema,
        options: Any,
        entry: Mapping[str, Any],
        *,
        storage_options: Mapping[str, Any] | None = None,
    ) -> Reader:
        """Opens one finished unit; `entry` is what its writer's `close` gave."""
        ...

    def view(self, number: int, files: Sequence[str]) -> dict[str, str]:
        """Names in the split's folder of a version's view for the files of its `number`-th unit."""
        ...


@functools.cache
def format_names() -> tuple[str, ...]:
    """The outputs that installed packages offer, in name order."""
    return tuple(sorted(point.name for point in entry_points(group="logloom.formats")))


@functools.cache
def format_named(name: str) -> Format:
    """The format of an output.

    Raises:
        UsageError: no installed package offers it.
    """
    for point in entry_points(group="logloom.formats", name=name):
        found: Format = point.load()
        return found
    raise UsageError(f"no output format {name!r}; there are {', '.join(format_names())}")


def options_of(store: Store, manifest: Manifest) -> dict[str, BaseModel]:
    """The options of each output of a version.

    Raises:
        UsageError: no installed package offers an output.
        DatasetError: options make no sense.
    """
    place = f"{store.uri_of(version_file(manifest.version))}: outputs"
    return {
        name: checked(format_named(name).Options, options, f"{place}.{name}")
        for name, options in manifest.outputs.items()
    }


class Closed(BaseModel):
    """What all writers say on closing a unit; formats say more."""

    log_id: Text
    partition: Text
    rows: Count


def check_unit(kind: type[BaseModel], unit: Mapping[str, Any], folder: str) -> None:
    """Makes sure that an entry says of its unit what the format wants to know.

    Args:
        unit: as its writer's `close` gave it; {} where the unit has no rows.
        folder: URI of the unit's folder.

    Raises:
        DatasetError: it doesn't; names the field.
    """
    if unit:
        checked(kind, unit, f"{folder}: the unit's entry: unit", "remove this folder and build again")


@dataclass(frozen=True)
class AssemblyPlan:
    """How many units become one dataset.

    Attributes:
        tasks: one for each chunk, picklable; each is written by one worker.
        files: small files that belong to no chunk, by name within the output's folder.
        unit: what readers and verification need to know (JSON).
    """

    tasks: Sequence[Any]
    files: Mapping[str, bytes]
    unit: Mapping[str, Any]


@runtime_checkable
class AssembledFormat(Protocol):
    """A format whose units are only stages: one dataset is put together from all units of a split."""

    def plan_assembly(
        self,
        store: Store,
        units: Sequence[tuple[LogRecord, Entry]],
        schema: Schema,
        options: Any,
        period: int | None,
    ) -> AssemblyPlan:
        """Plans the dataset from its units in row order; reads no payload."""
        ...

    def make_chunk(self, store: Store, task: Any) -> tuple[str, bytes]:
        """The name and the bytes of one chunk."""
        ...

    def assembled_differences(
        self, folder: str, unit: Mapping[str, Any], storage_options: Mapping[str, Any]
    ) -> Iterator[str]:
        """Says how the dataset, read through its reader, differs from what was written."""
        ...


@runtime_checkable
class ReferringFormat(Protocol):
    """A format whose units may point into datasets that are there already."""

    def references_digest(self, options: Any, storage_options: Mapping[str, Any]) -> str:
        """Digest of what describes the datasets referred to, "" for none; part of every unit's identity.

        Raises:
            DatasetError: one of them is missing or damaged.
        """
        ...


@runtime_checkable
class PortionedFormat(Protocol):
    """A format whose units consist of portions: column groups that are reused when another one changes.

    What its writer's `close` gives has a key "portions": name to what is to be known of each (JSON).
    """

    def portions(self, options: Any, schema: Schema) -> Mapping[str, tuple[Sequence[str], Any]]:
        """Each portion's name, the columns (of `Schema.all`) in it, and the options (JSON) it is made by."""
        ...


def by_preference(outputs: Iterable[str]) -> list[str]:
    """Outputs of a version in the order in which one is read where none is named.

    The quickest at random rows come first: table, zarr, bags, tar; then others by name. Last are those that
    map columns and so tell less of a row: l5kit, annotations.
    """

    def rank(name: str) -> tuple[int, str]:
        if name in _FIRST:
            return _FIRST.index(name), name
        return len(_FIRST) + (_LAST.index(name) + 1 if name in _LAST else 0), name

    return sorted(outputs, key=rank)
