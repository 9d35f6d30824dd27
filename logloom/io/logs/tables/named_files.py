"""Files that the rows of a table name: images, point clouds and the like, as their bytes (`as: file`).

Here: reading them, never outside the folder that the table lies in.
Elsewhere: tables (table_log), what the bytes mean (whoever reads the dataset).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial

from logloom.errors import LogReadError, UsageError
from logloom.io.logs.base import FieldSpec, OpenOptions
from logloom.io.logs.decoding.definitions import Struct, Text
from logloom.io.logs.decoding.fields import select
from logloom.io.logs.ranges import File, read_ahead
from logloom.io.storage import is_local

NAME = "file"


def check(spec: FieldSpec, root: Struct) -> None:
    """Raises a UsageError unless the spec names one column of text."""
    if len(spec.paths) != 1:
        raise UsageError(f"as {NAME}: reads the files that one field names, not {len(spec.paths)}")
    selection = select(root, spec.paths[0])
    if not isinstance(selection.type, Text) or selection.array is not None:
        raise UsageError(f"as {NAME}: field {spec.paths[0]} is no text, so it names no files")
    if spec.resize or spec.encode or spec.shape:
        raise UsageError(f"as {NAME}: resize, encode and shape are for images")


def read_named(folder: str, names: Sequence[str], options: OpenOptions) -> list[bytes]:
    """The bytes of the files of these names, which start from `folder`.

    Raises:
        LogReadError: a name leaves the folder, or its file is missing or larger than `max_chunk_bytes`.
    """
    return list(read_ahead(partial(_read, folder, name, options) for name in names))


def _read(folder: str, name: str, options: OpenOptions) -> bytes:
    file = File(_uri(folder, name), options.storage_options)
    if file.size > options.max_chunk_bytes:
        raise LogReadError(f"{file.uri}: has {file.size} bytes, more than max_chunk_bytes")
    return file.read(0, file.size)


def _uri(folder: str, name: str) -> str:
    parts = name.split("/")
    if any(part in ("", ".", "..") for part in parts) or any(
        mark in name for mark in ("\\", "\0", ":", "?", "#")
    ):
        raise LogReadError(f"{folder}: a row names the file {name!r}, which is no name within this folder")
    uri = f"{folder}/{name}"
    if is_local(uri):
        root = os.path.realpath(folder.split("://", 1)[-1])
        path = os.path.realpath(uri.split("://", 1)[-1])
        if os.path.commonpath([root, path]) != root:  # a link that leads elsewhere
            raise LogReadError(f"{folder}: a row names the file {name!r}, which lies outside this folder")
    return uri
