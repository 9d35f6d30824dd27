"""Files of one table each: Parquet, Feather (Arrow IPC) and CSV.

Here: reading their schema, groups of rows, and selected columns of groups; nothing else is fetched.
Elsewhere: how a file is written (logloom.io.logs.table_dialects), text of CSV (csv_text), columns as fields
of messages (columns).
Arrow checks what it reads; its errors become LogReadErrors with the file's name, those of the machine
StorageErrors. Each name of a schema is that of one column: of a second `speed` it is `speed_2`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc as pa_ipc
import pyarrow.parquet as pa_parquet

from logloom.errors import LogReadError, UsageError
from logloom.io.arrow.files import arrow_file
from logloom.io.logs.files.compression import allowance
from logloom.io.logs.files.lazy_attributes import lazy
from logloom.io.logs.files.ranges import LogFile
from logloom.io.logs.interface import OpenOptions
from logloom.io.logs.table_dialects import TableDialect, unique
from logloom.io.logs.table_files import PARQUET, csv_text
from logloom.io.logs.table_files.arrow_sizes import RecordBatch, decompressed_size, record_batches
from logloom.io.logs.table_files.columns import definition_of
from logloom.text import near_to, some_of
from logloom.uris import without_query
from logloom.values import dataclass

_NEAR = 64 << 10  # bytes that one request for metadata of a remote file fetches


@dataclass(frozen=True)
class Group:
    """Rows that are read together: a row group, a record batch, or a whole CSV file."""

    first: int
    num_rows: int
    num_bytes: int


class TableFile(Protocol):
    """One file; keeps no file handle.

    Attributes:
        how: how the file is written.
        marks_nothing: whether an empty text is a cell without a value.
    """

    uri: str
    how: TableDialect
    marks_nothing: bool

    @property
    def schema(self) -> pa.Schema: ...

    @property
    def groups(self) -> Sequence[Group]: ...

    def read(self, group: int, columns: Sequence[str]) -> pa.Table:
        """Read some columns of a group.

        Raises:
            LogReadError: the file is damaged.
            StorageError: it can't be read.
        """

    def check_joined(self, columns: Sequence[str]) -> None:
        """
        Check the memory of columns.

        Raises:
            LogReadError: some columns of all groups together exceed the limit of the file.
        """


def table_file(uri: str, options: OpenOptions, how: TableDialect = TableDialect()) -> TableFile:  # noqa: B008
    """Return the table in a file, by its name's suffix, else by its first bytes; reads nothing yet.

    Args:
        how: how it is written.

    Raises:
        LogReadError: unknown kind of file.
    """
    file = LogFile(uri, options.storage_options)
    for suffix, kind in _KINDS.items():
        if without_query(uri).endswith(suffix):
            return kind(file, options, how)
    head = file.read(0, min(8, file.size))
    return (ParquetTable if head.startswith(PARQUET) else FeatherTable)(file, options, how)


class _BaseTableFile:
    """Common part of the kinds."""

    encoding: str
    marks_nothing = False

    def __init__(self, file: LogFile, options: OpenOptions, how: TableDialect):
        self.uri = file.uri
        self.how = how
        self._file = file
        self._options = options

    @contextlib.contextmanager
    def _source(self) -> Iterator[Any]:
        """Open the file; errors are raised with its name."""
        if self._file.size == 0:
            raise LogReadError(f"{self.uri}: empty file (the writer probably crashed); exclude it")
        options = self._options.storage_options
        with arrow_file(self.uri, options, self._damaged, LogReadError, cache_type="none") as source:
            yield source

    def _damaged(self, reason: str) -> LogReadError:
        return LogReadError(
            f"{self.uri}: can't be read as {self.encoding}: {reason}. Write it again, or leave it out."
        )

    def _names(self, written: Sequence[str]) -> list[str]:
        """Return the names of columns, each once, with those that the format replaces.

        Raises:
            UsageError: the format replaces names that the file lacks, or two columns get one name.
        """
        names = unique(written)
        for old, new in self.how.columns:
            place = f"{self.how.where}.columns"
            if old not in names:
                known = some_of(names, 20)
                raise UsageError(
                    f"{place}: {self.uri} has no column {old!r}{near_to(old, names)} (it has {known})"
                )
            names[names.index(old)] = new
        twice = [name for name in names if names.count(name) > 1] if self.how.columns else []
        if twice:
            raise UsageError(f"{place}: {self.uri} would have two columns {twice[0]!r}; choose another name")
        return names

    def _check_sizes(self, sizes: Iterable[int]) -> None:
        self._check_size(sum(sizes), "a message of all its rows", "write it as several files")

    def _check_size(
        self, num_bytes: int, what: str, way_out: str = "write it as Parquet with smaller row groups"
    ) -> None:
        limit = min(self._options.max_chunk_bytes, allowance(self._file.size))
        if num_bytes > limit:
            raise LogReadError(
                f"{self.uri}: {what} requires {num_bytes} bytes, more than max_chunk_bytes or the file's own "
                f"{self._file.size} bytes allow ({limit}); {way_out}"
            )


class ParquetTable(_BaseTableFile):
    encoding = "parquet"

    @lazy
    def _metadata(self) -> Any:
        with self._source() as source:
            return pa_parquet.read_metadata(source)

    @lazy
    def schema(self) -> pa.Schema:
        written = self._written
        with self._source():
            return _named(written, self._names(written.names))

    @lazy
    def _written(self) -> pa.Schema:
        metadata = self._metadata
        with self._source():
            return metadata.schema.to_arrow_schema()

    def _pick(self, table: pa.Table, columns: Sequence[str]) -> pa.Table:
        """Return columns by their names here of a table with those that Arrow found by names in the file."""
        written, names = self._written.names, self.schema.names
        if written == names:
            return table
        found = []
        for column in columns:
            at = names.index(column)
            same = [i for i, name in enumerate(table.schema.names) if name == written[at]]
            found.append(table.column(same[written[:at].count(written[at])]))
        return pa.table(dict(zip(columns, found, strict=True)))

    def _in_file(self, columns: Iterable[str]) -> list[str]:
        """Return the names in the file of columns."""
        return [self._written.names[self.schema.names.index(name)] for name in columns]

    @lazy
    def groups(self) -> Sequence[Group]:
        groups, first = [], 0
        for i in range(self._metadata.num_row_groups):
            row_group = self._metadata.row_group(i)
            if row_group.num_rows < 0 or row_group.total_byte_size < 0:
                raise LogReadError(f"{self.uri}: row group {i} has a negative size. Write it again.")
            groups.append(Group(first, row_group.num_rows, row_group.total_byte_size))
            first += row_group.num_rows
        return groups

    def read(self, group: int, columns: Sequence[str]) -> pa.Table:
        self._check_size(self.groups[group].num_bytes, f"row group {group}")
        self._check_size(self._decoded(group, columns), f"row group {group}, once it is decoded,")
        with self._source() as source:
            reader = pa_parquet.ParquetFile(
                source, metadata=self._metadata, page_checksum_verification=True, pre_buffer=True
            )
            table = reader.read_row_group(group, columns=self._in_file(columns), use_threads=False)
            return self._pick(_whole(table, self.groups[group].num_rows), columns)

    def check_joined(self, columns: Sequence[str]) -> None:
        """See `TableFile.check_joined`."""
        self._check_sizes(group.num_bytes for group in self.groups)
        self._check_sizes(self._decoded(group, columns) for group in range(len(self.groups)))

    @lazy
    def _text_sizes(self) -> dict[tuple[int, str], int]:
        return {}

    def _decoded(self, group: int, columns: Sequence[str]) -> int:
        """Return the size of some columns of a group with repeated values written out.

        Numbers and texts are counted, not lists and structs. (Arrow aborts the process when broken metadata
        of a column are accessed, so texts must be read.)
        """
        found, total = self.groups[group], 0
        for name in columns:
            kind = self.schema.field(name).type if name in self.schema.names else pa.null()
            if pa.types.is_string(kind) or pa.types.is_binary(kind):
                may_hold = found.num_rows * found.num_bytes
                total += self._text_size(group, name) if may_hold > allowance(self._file.size) else 0
            elif pa.types.is_primitive(kind):
                total += found.num_rows * -(-kind.bit_width // 8)
        return total

    def _text_size(self, group: int, name: str) -> int:
        """Return the size of all texts of a column, reading repeated ones once."""
        if (group, name) not in self._text_sizes:
            written = self._in_file([name])
            with self._source() as source:
                reader = pa_parquet.ParquetFile(source, metadata=self._metadata, read_dictionary=written)
                table = reader.read_row_group(group, columns=written, use_threads=False)
                found = self._pick(table, [name]).column(name)
                total = 0
                for chunk in found.chunks:
                    chunk.validate(full=True)
                    lengths = pc.binary_length(chunk.dictionary).take(chunk.indices)
                    total += pc.sum(lengths.cast(pa.int64())).as_py() or 0
            self._text_sizes[group, name] = total
        return self._text_sizes[group, name]


class FeatherTable(_BaseTableFile):
    encoding = "feather"

    @lazy
    def schema(self) -> pa.Schema:
        with self._source() as source:
            written = pa_ipc.open_file(source).schema
            return _named(written, self._names(written.names))

    @lazy
    def groups(self) -> Sequence[Group]:
        groups, first = [], 0
        _, batches = self._messages
        for batch in batches:
            groups.append(Group(first, batch.num_rows, self._file.size // len(batches)))
            first += batch.num_rows
        return groups

    @lazy
    def _messages(self) -> tuple[list[RecordBatch], list[RecordBatch]]:
        with self._source():
            return record_batches(self._bytes(), self._file.size)

    def check_joined(self, columns: Sequence[str]) -> None:
        """See `TableFile.check_joined`."""
        self._check_sizes(map(self._decompressed, range(len(self.groups))))

    def _decompressed(self, group: int) -> int:
        """Return the size of a record batch and of all dictionaries, which Arrow reads with it."""
        dictionaries, batches = self._messages
        read = self._bytes()
        with self._source():
            return sum(decompressed_size(read, batch) for batch in (*dictionaries, batches[group]))

    def _bytes(self) -> Callable[[int, int], bytes]:
        """Read ranges of the file; neighbouring ranges of a remote file share a request."""
        if self._file.is_local:
            return self._file.read
        known, first = b"", 0

        def read(start: int, stop: int) -> bytes:
            nonlocal known, first
            if not first <= start <= stop <= first + len(known):
                first = start
                known = self._file.read(first, min(self._file.size, max(stop, first + _NEAR)))
            return known[start - first : stop - first]

        return read

    def read(self, group: int, columns: Sequence[str]) -> pa.Table:
        self._check_size(self._decompressed(group), f"record batch {group}, once it is decompressed,")
        with self._source() as source:
            batch = self._reader(source, columns).get_batch(group)
            table = _whole(pa.Table.from_batches([batch]), self.groups[group].num_rows)
            return table.rename_columns([name for name in self.schema.names if name in columns])

    def _reader(self, source: Any, columns: Sequence[str]) -> Any:
        fields = [self.schema.get_field_index(name) for name in columns]
        options = pa_ipc.IpcReadOptions(included_fields=fields, use_threads=False)
        return pa_ipc.open_file(source, options=options)


class CsvTable(_BaseTableFile):
    """Types are inferred by Arrow from the whole file, so it is read at once."""

    encoding = "csv"
    marks_nothing = True

    @lazy
    def _table(self) -> pa.Table:
        return self._rows(())

    def _rows(self, texts: Sequence[str]) -> pa.Table:
        self._check_size(self._file.size, "a CSV file, which is read whole,")
        with self._source() as source:
            text = csv_text.in_utf8(source.read(), self.how.encoding)
            written, first = csv_text.header_of(text, self.how)
            return csv_text.rows_of(text, first, self._names(written), self.how, texts)

    @property
    def schema(self) -> pa.Schema:
        return self._table.schema

    @property
    def groups(self) -> Sequence[Group]:
        return [Group(0, self._table.num_rows, self._file.size)]

    def read(self, group: int, columns: Sequence[str]) -> pa.Table:
        return self._table.select(list(columns))

    def texts(self, columns: Sequence[str]) -> pa.Table:
        """Read some columns as text."""
        return self._rows(columns)

    def check_joined(self, columns: Sequence[str]) -> None:
        """See `TableFile.check_joined`; its only group has been read before."""


# Arrow can't take rows of views.
_WITHOUT_VIEWS = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}

_KINDS: dict[str, type[ParquetTable] | type[FeatherTable] | type[CsvTable]] = {
    ".parquet": ParquetTable,
    ".feather": FeatherTable,
    ".csv": CsvTable,
}


def _named(schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    """Return the schema with these names, after checking that all are text; raises ValueError."""
    if schema.names != list(names):
        schema = pa.schema([field.with_name(name) for field, name in zip(schema, names, strict=True)])
    definition_of(schema)  # decodes all names
    return schema


def _whole(table: pa.Table, num_rows: int) -> pa.Table:
    """Return the table after checking that its inner offsets are valid.

    Raises:
        ValueError: they aren't, or rows are missing.
    """
    table.validate(full=True)
    if table.num_rows != num_rows:
        raise ValueError(f"it has {table.num_rows} rows where its index has {num_rows}")
    for at, kind in enumerate(table.schema.types):
        if (plain := _WITHOUT_VIEWS.get(kind)) is not None:
            table = table.set_column(at, table.schema.names[at], table.column(at).cast(plain))
    return table
