"""The description of a table: the file table.json, written last.

Here: `Description`, its JSON, and the names of files and columns in a table.
Elsewhere: the rows' index (logloom.io.formats.table.index.index), the payload
(logloom.io.formats.table.blobs).

    <table>/
      table.json                    schema, groups, sizes, logs; a folder without it is no table
      index/<log>.parquet           the log's rows: user columns, and service columns that point into blobs
      parts/<part>/<group>.blob     the chunks of a part's rows, in row order

Service columns are named `__<n>.<what>`. In a file n is 0; merging tables numbers them on. For each group
there are `__0.<group>.blob` (path), `.offset` and `.length` (bytes), in files also `.hash`; `__0.row` is the
row's number within its log. In memory `__0.log` is the URI of the log's index file.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
import urllib.parse
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Literal, Protocol

import numpy as np
from blake3 import blake3
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from logloom.errors import DatasetError
from logloom.io.storage.known_files import check_bytes
from logloom.io.storage.metadata import Count, FileName, Text, parsed, without_number
from logloom.io.storage.store import Store
from logloom.schema import ColumnType, Schema
from logloom.validation import describe_first
from logloom.values import dataclass

FORMAT = "logloom-table"
VERSION = 1
FILE = "table.json"
SERVICE_COLUMN = re.compile(r"__(\d+)\.(.+)")
KEYS = ("log_id", "timestamp")
SEPARATOR = "!"  # never in a quoted log_id or a group's name
LONGEST_NAME = 150  # letters in the name of a file
_GROUP_FIELD = re.compile(r"__(\d+)\.(.+)\.(blob|offset|length|hash)")


def service(slot: int, *parts: str) -> str:
    """The name of a service column: `service(0, "small", "blob")` is `__0.small.blob`."""
    return f"__{slot}.{'.'.join(parts)}"


def group_field(column: str) -> tuple[int, str, str] | None:
    """(slot, group, field) of a service column that belongs to a group, else None."""
    match = _GROUP_FIELD.fullmatch(column)
    return (int(match[1]), match[2], match[3]) if match else None


def file_name(log_id: str) -> str:
    """Quote a log_id as the name of a file or folder: distinct for distinct log_ids, and never hidden."""
    name = urllib.parse.quote(log_id, safe=" ")
    if name[:1] in ("", ".", "_"):  # readers of folders skip such names
        name = f"%{ord(name[0]):02X}{name[1:]}" if name else "%"
    if len(name) > LONGEST_NAME:  # the last mark can't come from quoting
        name = f"{name[:LONGEST_NAME]}%-{blake3(log_id.encode()).hexdigest()[:32]}"
    return name


def scalars(name: str, ctype: ColumnType) -> list[tuple[str, tuple[int, ...]]]:
    """The index columns of a column: itself, or `name.0`, `name.1`, … of a vector's elements."""
    if ctype.kind == "string" or not ctype.shape:
        return [(name, ())]
    places = itertools.product(*map(range, ctype.tail))
    return [(".".join([name, *map(str, place)]), place) for place in places]


def log_file(log_id: str) -> str:
    """Path of a log's index within its table."""
    return f"index/{file_name(log_id)}.parquet"


def part_name(log_id: str, partition: str) -> str:
    """The name of a partition's part in a table that pipelines build."""
    return f"{file_name(log_id)}~{file_name(partition)}"


def log_of_part(part: str) -> str:
    """The log's `file_name` in such a name."""
    return part.rpartition("~")[0]


def shown_file(file: str) -> str | None:
    """The name in a table of a unit's file `<part>!<group>.blob`; None for files that are not in tables."""
    part, separator, blob = file.rpartition(SEPARATOR)
    return f"parts/{part}/{blob}" if separator else None


def part_of(blob_uri: str) -> str:
    """The name of a blob's part, whether the blob is in a table or in the folder of a unit."""
    folder, _, file = blob_uri.rpartition("/")
    return file.rpartition(SEPARATOR)[0] or folder.rpartition("/")[2]


def table_of(log_uri: str) -> str:
    """The table that the index file of a log belongs to."""
    return log_uri.rpartition("/index/")[0]


@dataclass(frozen=True)
class LogRows:
    """A log in a table: its index file (relative), the file's number of rows, and its BLAKE3.

    The digest is "" in tables that pipelines build, whose manifest has it.
    """

    log_id: str
    file: str
    rows: int
    digest: str


class Files(Protocol):
    """The places of a table's files that are not under its URI.

    Attributes:
        root: URI of a folder that contains all blobs.
    """

    root: str

    def uri(self, name: str) -> str:
        """The URI of the table's file `name`."""

    def prepare(self, log_id: str) -> None:
        """Read what `uri` needs about the blobs of a log; for several threads."""


@dataclass(frozen=True)
class Description:
    """The content of table.json.

    Attributes:
        keys: which of log_id and timestamp the rows have.
        index: index columns (scalars) to their dtype as a numpy string, "str" for text; keys included.
        groups: name to columns.
        codecs: compressed groups to "lz4" or "zstd".
        bytes: total stored bytes of each group's chunks (before deduplication).
        longest: bytes of the longest chunk of each group before compression.
        max_gap: the longest time in ns between neighbouring rows of a window; None: no limit.
        references: absolute URIs of tables that hold some of the chunks.
        files: places of its files; None: under its URI. Never written.
    """

    schema: Schema
    keys: tuple[str, ...]
    index: Mapping[str, str]
    groups: Mapping[str, tuple[str, ...]]
    codecs: Mapping[str, str]
    bytes: Mapping[str, int]
    longest: Mapping[str, int]
    logs: tuple[LogRows, ...]
    max_gap: int | None = None
    references: tuple[str, ...] = field(default=())
    files: Files | None = field(default=None, compare=False)

    @property
    def num_rows(self) -> int:
        return sum(log.rows for log in self.logs)

    def file_uri(self, root: str, name: str) -> str:
        """The URI of the file `name` of the table at `root`."""
        return f"{root}/{name}" if self.files is None else self.files.uri(name)

    def mean_bytes(self, group: str) -> float:
        """Mean size of a chunk, as stored."""
        return self.bytes[group] / max(1, self.num_rows)

    def to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "version": VERSION,
            "schema": self.schema.to_json(),
            "keys": list(self.keys),
            "index": dict(self.index),
            "groups": {name: list(columns) for name, columns in self.groups.items()},
            "codecs": dict(self.codecs),
            "bytes": dict(self.bytes),
            "longest": dict(self.longest),
            "max_gap": self.max_gap,
            "references": list(self.references),
            "logs": [[log.log_id, log.file, log.rows, log.digest] for log in self.logs],
        }


class _Json(BaseModel):
    """The fields of table.json besides its format and version."""

    model_config = ConfigDict(populate_by_name=True)

    columns: Any = Field(alias="schema")
    keys: tuple[Literal["log_id", "timestamp"], ...]
    index: Mapping[str, str]
    groups: Mapping[str, tuple[str, ...]]
    codecs: Mapping[str, str]
    bytes: Mapping[str, Count]
    longest: Mapping[str, Count]
    logs: tuple[tuple[Text, FileName, Count, Text], ...]
    max_gap: Count | None
    references: tuple[Text, ...]

    def described(self) -> Description:
        return Description(
            Schema.from_json(self.columns),
            self.keys,
            self.index,
            self.groups,
            self.codecs,
            self.bytes,
            self.longest,
            tuple(LogRows(*log) for log in self.logs),
            self.max_gap,
            self.references,
        )


def to_bytes(table: Description) -> bytes:
    """The content of table.json."""
    return json.dumps(table.to_json(), indent=1, allow_nan=False).encode() + b"\n"


class NoTableError(DatasetError):
    """There is no table at a URI."""


def read_description(
    uri: str, storage_options: Mapping[str, Any] | None = None, files: Files | None = None
) -> Description:
    """Read the description of a table.

    Args:
        uri: of the table, absolute.
        storage_options: fsspec options by protocol.
        files: places of its files, if not under `uri`.

    Raises:
        NoTableError: there is no table.
        DatasetError: it is damaged, or of a newer format version.
    """
    try:
        text = Store.at(uri, storage_options).read(FILE)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NoTableError(f"{uri}: no table here ({FILE} is missing, which is written last)") from error
    place = f"{uri}/{FILE}"
    check_bytes(place, text, storage_options)
    data = parsed(text, f"{place}: damaged")
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        said = data.get("format") if isinstance(data, dict) else None
        raise DatasetError(f"{place}: format {said!r}, expected {FORMAT!r}")
    data = without_number(data, "version", VERSION, place, "damaged")
    try:
        table = checked(_Json.model_validate(data).described())
    except ValidationError as error:
        raise DatasetError(f"{place}: damaged: {describe_first(error)}") from error
    except (ValueError, TypeError) as error:
        raise DatasetError(f"{place}: damaged: {error}") from error
    return dataclasses.replace(table, files=files)


def checked(table: Description) -> Description:
    """Return the description, after checks that its parts are consistent.

    Raises:
        ValueError: they don't.
    """
    columns = table.schema.all
    if absent := [key for key in table.keys if key not in table.index]:
        raise ValueError(f"the index has no {absent[0]}, a key of its rows")
    for name, members in table.groups.items():
        if not members or any(c not in columns for c in members):
            raise ValueError(f"group {name} names columns that the schema doesn't have")
        if name not in table.bytes or name not in table.longest:
            raise ValueError(f"group {name} has no sizes")
    if missing := set(columns) - {c for members in table.groups.values() for c in members}:
        raise ValueError(f"no group contains {', '.join(sorted(missing))}")
    for log in table.logs:
        if not log.file.startswith("index/"):
            raise ValueError(f"log {log.log_id!r} has its index in {log.file!r}")
    for dtype in table.index.values():
        if dtype != "str":
            np.dtype(dtype)
    return table


def alike(tables: Sequence[Description]) -> Description:
    """Return one description for tables that store rows in the same way.

    Raises:
        ValueError: they don't; with the difference.
    """
    first = tables[0]
    for table in tables[1:]:
        types = [
            {name: (t.dtype, t.shape, t.kind) for name, t in one.schema.all.items()} for one in (first, table)
        ]
        if types[0] != types[1]:
            raise ValueError("whose columns differ")
        if first.groups != table.groups or first.codecs != table.codecs:
            raise ValueError("whose column groups differ")
    if len(tables) == 1:
        return first
    return dataclasses.replace(
        first,
        bytes={group: sum(table.bytes[group] for table in tables) for group in first.groups},
        longest={group: max(table.longest[group] for table in tables) for group in first.groups},
        logs=tuple(log for table in tables for log in table.logs),
    )
