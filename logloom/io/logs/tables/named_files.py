"""Contents of files that rows of a table name, such as images (`as: file`).

Here: reading them, never outside the table's folder; and their sizes, which are part of a log's content id,
so that a build detects added, removed and grown files.
Elsewhere: tables (log), the format of the bytes (readers of the dataset).
A column of text names files if one of its first few texts is the name of an existing file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice

import pyarrow as pa
from blake3 import blake3

from logloom.errors import LogReadError, UsageError
from logloom.io.logs.files.ranges import LogFile, read_ahead
from logloom.io.logs.files.ranges import content_id as full_id
from logloom.io.logs.interface import FieldSpec, OpenOptions
from logloom.io.logs.messages.definitions import Struct, Text
from logloom.io.logs.messages.fields import select
from logloom.io.logs.messages.values import UnfitError
from logloom.io.logs.table_files.columns import present, top_level, values_of
from logloom.io.logs.table_files.files import TableFile
from logloom.io.storage.filesystems import filesystem
from logloom.uris import is_local, path_of

NAME = "file"
TRIED = 4  # texts of a column that are tried as names


def check(spec: FieldSpec, root: Struct) -> None:
    """Raise a UsageError unless the spec names one column of text."""
    if len(spec.paths) != 1:
        raise UsageError(f"as {NAME}: reads the files that one field names, not {len(spec.paths)}")
    selection = select(root, spec.paths[0])
    if not isinstance(selection.type, Text) or selection.array is not None:
        raise UsageError(f"as {NAME}: field {spec.paths[0]} is no text, so it names no files")
    if spec.resize or spec.encode or spec.shape:
        raise UsageError(f"as {NAME}: resize, encode and shape are for images")


def read_named(folder: str, names: Sequence[str], options: OpenOptions) -> list[bytes]:
    """Read the files of these names, relative to `folder`.

    Raises:
        LogReadError: a name is outside the folder, or its file is missing or larger than `max_chunk_bytes`.
    """
    return list(read_ahead(lambda name: _read(folder, name, options), names))


def _read(folder: str, name: str, options: OpenOptions) -> bytes:
    file = LogFile(_uri(folder, name), options.storage_options)
    if file.size > options.max_chunk_bytes:
        raise LogReadError(f"{file.uri}: has {file.size} bytes, more than max_chunk_bytes")
    return file.read(0, file.size)


def _uri(folder: str, name: str) -> str:
    parts = name.split("/")
    if any(part in ("", ".", "..") for part in parts) or any(
        mark in name for mark in ("\\", "\0", ":", "?", "#")
    ):
        raise LogReadError(f"{folder}: a row names the file {name!r}, which is not a name within this folder")
    uri = f"{folder}/{name}"
    if is_local(uri):
        root = os.path.realpath(path_of(folder))
        path = os.path.realpath(path_of(uri))
        if os.path.commonpath([root, path]) != root:  # a link to the outside
            raise LogReadError(f"{folder}: a row names the file {name!r}, which is outside this folder")
    return uri


def text_columns(root: Struct) -> list[str]:
    """Return the columns of a table that may name files, existing or not."""

    def walk(struct: Struct, prefix: str) -> Iterator[str]:
        for field in struct.fields:
            if field.array is None and isinstance(field.type, Text):
                yield prefix + field.name
            elif field.array is None and isinstance(field.type, Struct):
                yield from walk(field.type, f"{prefix}{field.name}.")

    return list(walk(root, ""))


def sizes(file: TableFile, root: Struct, options: OpenOptions) -> dict[str, int]:
    """Return the sizes of all files that a table names, by name; -1 for missing ones.

    Lists each of their folders, and reads the columns that name them.
    """
    folder = file.uri.rpartition("/")[0]
    named: set[str] = set()
    for path in text_columns(root):
        first = dict.fromkeys(islice(_texts(file, path, root), TRIED))
        if any(_is_there(folder, name, options) for name in first):
            named.update(_texts(file, path, root))
    uris = {name: uri for name in sorted(named) if (uri := _safe_uri(folder, name)) is not None}
    known: dict[str, int] = {}
    for within in sorted({uri.rpartition("/")[0] for uri in uris.values()}):
        known |= _listed(within, options)
    return {name: known.get(uri, -1) for name, uri in uris.items()}


def with_sizes(content_id: str, named: Sequence[Mapping[str, int]]) -> str:
    """Extend a content id by the files that each table names, and their sizes."""
    digest = blake3(content_id.encode())
    for number, files in enumerate(named):
        for name in sorted(files):
            digest.update(f"{number} {files[name]} {name}\n".encode())
    return digest.hexdigest()


def with_contents(content_id: str, table: TableFile, named: Mapping[str, int], options: OpenOptions) -> str:
    """Extend a content id by all bytes of the files that a table names, without missing ones."""
    folder = table.uri.rpartition("/")[0]
    files = [
        LogFile(_uri(folder, name), options.storage_options) for name in sorted(named) if named[name] >= 0
    ]
    digest = blake3(content_id.encode())
    for found in read_ahead(partial(full_id, hash="full"), files):
        digest.update(found.encode())
    return digest.hexdigest()


def _texts(file: TableFile, path: str, root: Struct) -> Iterator[str]:
    """Return the texts of a column in row order, without missing ones."""
    spec = FieldSpec((path,))
    for group in range(len(file.groups)):
        try:
            table = file.read(group, top_level(spec, root))
            held = present(table, spec, root, file.marks_nothing)
            values = values_of(table if held is None else table.filter(pa.array(held)), spec, root)
        except (UnfitError, pa.ArrowException):
            continue  # reading the column reports it
        yield from (value.tobytes().decode() for value in values)


def _is_there(folder: str, name: str, options: OpenOptions) -> bool:
    uri = _safe_uri(folder, name)
    try:
        return uri is not None and LogFile(uri, options.storage_options).size >= 0
    except LogReadError:
        return False


def _safe_uri(folder: str, name: str) -> str | None:
    try:
        return _uri(folder, name)
    except LogReadError:
        return None


def _listed(folder: str, options: OpenOptions) -> dict[str, int]:
    """Return the sizes of the files in a folder, by URI."""
    fs, path = filesystem(folder, options.storage_options)
    try:
        entries = fs.ls(path, detail=True)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    found = {str(entry["name"]).rpartition("/")[2]: entry for entry in entries if entry["type"] == "file"}
    return {f"{folder}/{name}": int(entry["size"]) for name, entry in found.items()}
