"""Stages: files of one partition's rows, from which a dataset is assembled.

Here: `StagedFormat`, `StageWriter` and `StageReader`, which formats subclass; arrays in staged files, written
by `StageWriter.put` and read by `read_entries`.
Elsewhere: the files of a stage (`stage.py` in each format's package), assembling them
(logloom.io.formats.assembly).

A staged array is its concatenated entries, little-endian, without a header, so that any range of entries is
one request whose offset follows from their size.
"""

from __future__ import annotations

import abc
import math
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO, ClassVar, Protocol

import numpy as np
from pydantic import BaseModel

from logloom.blocks import Array, Block
from logloom.errors import DatasetError
from logloom.io.catalog.entries import repair_hint
from logloom.io.formats.interface import AssembledFormat, AssemblyPlan, StagedUnit, UnitContext
from logloom.io.formats.unit_summary import check_unit
from logloom.io.rows.sources import BLOCK_BYTES, RowSource
from logloom.io.storage.files import File
from logloom.io.storage.store import Store
from logloom.schema import Schema

BYTE = np.dtype(np.uint8)


class StageWriter(abc.ABC):
    """Writes the staged files of one partition into a local folder; a file appears with its first bytes."""

    def __init__(self, directory: pathlib.Path, context: UnitContext):
        """Begin a stage without rows.

        Args:
            directory: an empty folder for the files.
            context: which partition of which log this is.
        """
        self.directory, self.context = directory, context
        self.num_rows = 0
        self._span: list[int] = []
        self._files: dict[str, BinaryIO] = {}

    @abc.abstractmethod
    def stage(self, block: Block) -> None:
        """Stage the next rows, at least one; `num_rows` came before.

        Args:
            block: rows of the unit's partition.
        """

    def append(self, block: Block) -> None:
        """Takes the next rows.

        Args:
            block: rows of the unit's partition.

        Raises:
            UsageError: the values are not of the schema's type.
            LogReadError: the format can't hold a value.
        """
        if len(block):
            self.stage(block)
            first, last = int(block.timestamp[0]), int(block.timestamp[-1])
            self._span = [self._span[0] if self._span else first, last]
            self.num_rows += len(block)

    def write(self, file: str, data: Any) -> None:
        """Appends bytes to a file.

        Args:
            file: its name within the unit.
            data: bytes, or an object with a buffer of them.
        """
        if file not in self._files:
            self._files[file] = (self.directory / file).open("xb")
        self._files[file].write(data)

    def put(self, file: str, entries: Array) -> None:
        """Append entries of an array to a file, from which `read_entries` reads them.

        Args:
            file: its name within the unit; entries without any bytes don't create it.
            entries: (n, ...) of one shape and type in all calls.
        """
        if entries.nbytes:
            little = np.ascontiguousarray(entries, entries.dtype.newbyteorder("<"))
            self.write(file, little.reshape(-1).view(np.uint8).data)

    def metadata(self) -> dict[str, Any]:
        """The unit's summary for readers and assembly, made once while files can still be written.

        Returns:
            rows; span, first and last timestamp; formats add fields.
        """
        return {"rows": self.num_rows, "span": self._span}

    def close(self) -> dict[str, Any]:
        """Closes the files.

        Returns:
            log_id, partition and the result of `metadata`.
        """
        metadata = self.metadata()
        for file in self._files.values():
            file.close()
        return {"log_id": self.context.log_id, "partition": self.context.partition, **metadata}


class StageReader(RowSource):
    """The rows of a staged unit. Opens files when needed, pickles, serves many threads.

    Attributes:
        closed: the result of closing the unit's writer.
    """

    closed: ClassVar[type[BaseModel]]

    def __init__(
        self,
        folder: str,
        schema: Schema,
        unit: Mapping[str, Any],
        storage_options: Mapping[str, Any] | None = None,
    ):
        """Names a unit.

        Args:
            folder: URI of the unit's folder.
            schema: of what is stored.
            unit: the result of the writer's `close`; {} if it has no rows.
            storage_options: fsspec options by protocol: {"gs": {"token": "anon"}}.

        Raises:
            DatasetError: `unit` is not valid; names the field.
        """
        check_unit(self.closed, unit, folder)
        self._schema, self.unit = schema, unit
        self.store = Store.at(folder, storage_options)
        self.place = self.store.uri
        self._arguments = (folder, schema, unit, storage_options)
        self._files: dict[str, File] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), self._arguments)

    def __len__(self) -> int:
        return int(self.unit["rows"]) if self.unit else 0

    def scan(
        self, names: Sequence[str], max_bytes: int = BLOCK_BYTES, start: int = 0, stop: int | None = None
    ) -> Iterator[Block]:
        return self.read(names, start, len(self) if stop is None else stop, max_bytes)

    @abc.abstractmethod
    def read(self, names: Sequence[str], start: int, stop: int, max_bytes: int) -> Iterator[Block]:
        """Read the named columns of rows [start, stop), in blocks of about `max_bytes`.

        Args:
            names: of columns.
            start: the first row.
            stop: the row after the last.
            max_bytes: approximate size of a block.

        Raises:
            DatasetError: a file is missing or damaged.
        """

    def file(self, name: str) -> File:
        """A file of the unit, to be read by `read_entries`.

        Args:
            name: within the unit.
        """
        if name not in self._files:
            self._files[name] = staged_file(self.store, name)
        return self._files[name]


class StagedFormat(AssembledFormat, Protocol):
    """An `AssembledFormat` whose units are stages. To be subclassed."""

    @property
    def stage_reader(self) -> type[StageReader]:
        """The class of its units' readers."""

    def staged(self, options: Any, schema: Schema) -> Any:
        """Return what the reader of a unit takes as its schema.

        Args:
            options: a value of `Options`.
            schema: of the version's rows.
        """

    def plan_stages(
        self, units: Sequence[StagedUnit], schema: Schema, options: Any, period: int | None
    ) -> AssemblyPlan:
        """Do as `plan_assembly`, with units whose summaries are valid.

        Args:
            units: of one split, in row order.
            schema: of the rows.
            options: a value of `Options`.
            period: of the recipe's clock, ns; None where a topic is the clock.
        """

    def reader(
        self,
        directory: str,
        schema: Schema,
        options: Any,
        entry: Mapping[str, Any],
        *,
        storage_options: Mapping[str, Any] | None = None,
    ) -> StageReader:
        """Open one staged unit."""
        return self.stage_reader(directory, self.staged(options, schema), entry, storage_options)

    def plan_assembly(
        self, store: Store, units: Sequence[StagedUnit], schema: Schema, options: Any, period: int | None
    ) -> AssemblyPlan:
        """Plan the dataset from its units; reads no payload."""
        for unit in units:
            check_unit(self.stage_reader.closed, unit.unit, store.uri_of(unit.folder))
        return self.plan_stages(units, schema, options, period)


def staged_file(store: Store, name: str) -> File:
    return File(store.uri_of(name), store.options)


def read_entries(
    file: File, start: int, stop: int, dtype: np.dtype[Any] = BYTE, tail: tuple[int, ...] = ()
) -> Array:
    """Read entries [start, stop) of the array in a staged file.

    Args:
        dtype, tail: type and shape of an entry.

    Returns:
        (stop - start, *tail), writable.

    Raises:
        DatasetError: the file is missing or too short.
        StorageError: it can't be read.
    """
    width = dtype.itemsize * math.prod(tail)
    if start >= stop or not width:
        return np.empty((max(0, stop - start), *tail), dtype)
    try:
        data = file.read_array(start * width, (stop - start) * width)
    except DatasetError as error:
        raise DatasetError(f"{error}; {repair_hint(file.name)}") from error
    return data.view(dtype).reshape(stop - start, *tail)
