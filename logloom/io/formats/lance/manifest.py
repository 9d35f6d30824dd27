"""The manifest of a Lance table: the file that lists the table's data files.

Here: `manifest_of` data files, `read_manifest`, finding the newest of a folder's manifests, and assembling
that of a version's table.
Elsewhere: data files (writer, reader), the format (format). The messages are those of
https://lance.org/format/table/

pylance writes a manifest with a time, with the random name of the transaction that made it, with that
transaction, and with metadata in any order. None of it is needed to read the table, and all differ from build
to build. So manifests are pylance's own without these, and sorted.
"""

from __future__ import annotations

import pathlib
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple
from typing import Any, NamedTuple

import pyarrow as pa
from pydantic import BaseModel

from logloom.errors import DatasetError
from logloom.io.arrow.layout import ArrowLayout
from logloom.io.catalog.entries import repair_hint
from logloom.io.formats.interface import AssemblyPlan, StagedUnit
from logloom.io.formats.lance.pylance import anywhere, damage, lance
from logloom.io.formats.lance.writer import FILE_VERSION
from logloom.io.formats.unit_summary import Closed
from logloom.io.storage.faults import MISSING
from logloom.io.storage.metadata import Count, Name
from logloom.io.storage.store import Store
from logloom.io.storage.threads import ahead
from logloom.values import dataclass

VERSIONS, DATA = "_versions", "data"
_LAST_VERSION = (1 << 64) - 1
_NAME = re.compile(r"(\d{1,20})\.manifest")
# fields, fragments, version, metadata of the schema, what readers and writers must know, the last fragment's
# number, the writer, the version of data files
_KEPT = {1, 2, 3, 5, 9, 10, 11, 13, 15}
_FIELD, _FIELD_METADATA, _METADATA = 1, 10, 5  # a field, in it its metadata, and that of the schema
_FOOTER, _MAGIC = 16, b"LANC"  # bytes: where the message is, the version of this layout, and the magic


@dataclass(frozen=True)
class DataFile:
    """A data file of a table: its name in the folder of data files, its rows and its bytes."""

    name: str
    rows: int
    size: int


def manifest_name(version: int) -> str:
    """The name of a version's manifest in the table: names descend, so that the newest is listed first."""
    return f"{VERSIONS}/{_LAST_VERSION - version:020d}.manifest"


MANIFEST = manifest_name(1)


def newest(names: Sequence[str]) -> str | None:
    """The newest of the manifests in a table's folder of versions; None if there is none."""
    found = [match for name in names if (match := _NAME.fullmatch(name))]
    descending = [match[0] for match in found if len(match[1]) == 20]
    ascending = [(int(match[1]), match[0]) for match in found if len(match[1]) < 20]  # of Lance's first years
    return min(descending) if descending else max(ascending)[1] if ascending else None


def manifest_of(schema: Any, files: Sequence[DataFile]) -> bytes:
    """The manifest of a table of data files, each of all its columns.

    Args:
        schema: of the table, pyarrow's.
    """
    package = lance()
    with tempfile.TemporaryDirectory(prefix="logloom-") as folder:
        # Lance describes every data file of a schema as it describes one with a single row.
        row = pa.Table.from_arrays([pa.nulls(1, field.type) for field in schema], schema=schema)
        (one,) = package.fragment.write_fragments(
            row, f"{folder}/one", mode="create", data_storage_version=FILE_VERSION
        )
        (like,) = one.files
        fragments = [
            package.fragment.FragmentMetadata(number, [_data_file(package, like, file)], file.rows)
            for number, file in enumerate(files)
        ]
        made = package.LanceOperation.Overwrite(schema, fragments)
        package.LanceDataset.commit(f"{folder}/all", made, enable_v2_manifest_paths=True)
        return _lasting(pathlib.Path(folder, "all", MANIFEST).read_bytes())


def _data_file(package: Any, like: Any, file: DataFile) -> Any:
    version = like.file_major_version, like.file_minor_version
    return package.fragment.DataFile(file.name, like.fields, like.column_indices, *version, file.size)


def _lasting(data: bytes) -> bytes:
    """Remove from a manifest what differs from build to build."""
    # transaction | length, message | where the message is (8 bytes), version (4), LANC
    start = int.from_bytes(data[-_FOOTER : 8 - _FOOTER], "little")
    length = int.from_bytes(data[start : start + 4], "little")
    fields = [field for field in _fields(data[start + 4 : start + 4 + length]) if field.number in _KEPT]
    own = [_with_sorted_metadata(field) if field.number == _FIELD else field for field in fields]
    kept = _sorted(own, _METADATA)
    return len(kept).to_bytes(4, "little") + kept + bytes(8) + data[8 - _FOOTER :]


class _WireField(NamedTuple):
    """A field of a message of protobuf; its content is the end of its bytes."""

    number: int
    data: bytes
    head: int = 0  # bytes before the content


def _with_sorted_metadata(field: _WireField) -> _WireField:
    content = _sorted(_fields(field.data[field.head :]), _FIELD_METADATA)
    return _WireField(field.number, field.data[: field.head] + content, field.head)


def _sorted(fields: Iterable[_WireField], mapping: int) -> bytes:
    """Sort a message's fields by number; repeated fields stay in order, except those of a mapping."""
    ordered = sorted(fields, key=lambda field: (field.number, field.data if field.number == mapping else b""))
    return b"".join(field.data for field in ordered)


def _fields(message: bytes) -> Iterator[_WireField]:
    at = 0
    while at < len(message):
        start = at
        tag, at = _varint(message, at)
        head, kind = at - start, tag & 7
        if kind == 2:
            length, at = _varint(message, at)
            head = at - start
            at += length
        elif kind == 0:
            _, at = _varint(message, at)
        else:
            at += {1: 8, 5: 4}[kind]
        yield _WireField(tag >> 3, message[start:at], head)


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value, shift, at = value | (byte & 127) << shift, shift + 7, at + 1
        if byte < 128:
            return value, at


@anywhere
def read_manifest(place: str, data: bytes) -> tuple[Any, list[tuple[DataFile, list[str]]] | None]:
    """The schema of a table, and its data files in row order, each with its columns.

    Returns:
        pyarrow's schema; of a file the table's names of its columns, in its own order. None for files where
        rows aren't simply those of data files in the table's folder: where some were deleted or changed, or
        columns added.

    Raises:
        DatasetError: it is damaged.
    """
    package = lance()
    if len(data) < _FOOTER or not data.endswith(_MAGIC):  # which pylance doesn't look at
        raise DatasetError(f"{place}: no manifest of a Lance table, or a damaged one")
    with tempfile.TemporaryDirectory(prefix="logloom-") as folder, damage(place):
        path = pathlib.Path(folder, MANIFEST)
        path.parent.mkdir()
        path.write_bytes(data)
        table = package.dataset(folder)
        try:
            schema = table.schema
        except UnicodeDecodeError as error:
            raise DatasetError(f"{place}: damaged ({error})") from error
        columns = {number: field.name() for field in table.lance_schema.fields() for number in _leaves(field)}
        return schema, _data_files([fragment.metadata for fragment in table.get_fragments()], columns)


def _leaves(field: Any) -> list[int]:
    """Lance's numbers of a column's leaf fields."""
    return [number for child in field.children() for number in _leaves(child)] or [field.id()]


def _data_files(
    fragments: Sequence[Any], columns: Mapping[int, str]
) -> list[tuple[DataFile, list[str]]] | None:
    found = []
    for fragment in fragments:
        if len(fragment.files) != 1 or fragment.deletion_file is not None:
            return None
        (file,) = fragment.files
        is_elsewhere = getattr(file, "base_id", None) is not None or "/" in file.path
        if is_elsewhere or getattr(fragment, "overlays", None) or {*file.fields} != columns.keys():
            return None
        names = list(dict.fromkeys(columns[number] for number in file.fields))
        found.append((DataFile(file.path, fragment.physical_rows, file.file_size_bytes or 0), names))
    return found


class ClosedLance(Closed):
    """The result of closing a unit's writer."""

    bytes: Count
    file: Name


class LancePlanJson(BaseModel):
    """The content of a plan: name, rows and bytes of each data file."""

    files: tuple[tuple[Name, Count, Count], ...]


@dataclass(frozen=True)
class _ManifestTask:
    """The manifest of a table; `places` are the current paths of its data files, if they exist."""

    layout: ArrowLayout
    files: tuple[DataFile, ...]
    places: tuple[str, ...]


def plan_assembly(units: Sequence[StagedUnit], layout: ArrowLayout) -> AssemblyPlan:
    """Plans the table of some units in row order; reads nothing."""
    files = tuple(DataFile(unit.unit["file"], unit.rows, unit.unit["bytes"]) for unit in units)
    places = tuple(f"{unit.folder}/{file.name}" for unit, file in zip(units, files, strict=True))
    about = {"files": [list(astuple(file)) for file in files]}
    return AssemblyPlan([_ManifestTask(layout, files, places)], {}, about, [MANIFEST])


def make_file(store: Store, task: _ManifestTask) -> tuple[str, bytes]:
    """Make the name and the bytes of the manifest.

    Raises:
        DatasetError: a data file is missing, or of another length.
    """
    for place, file, size in zip(task.places, task.files, ahead(store.size, task.places), strict=True):
        if size != file.size:
            uri = store.uri_of(place)
            what = "there is no such file" if size is None else f"{size} bytes instead of {file.size}"
            raise DatasetError(f"{uri}: {what}; {repair_hint(uri)}")
    return MANIFEST, manifest_of(task.layout.arrow, task.files)


def problems(
    folder: str, unit: Mapping[str, Any], storage_options: Mapping[str, Any] | None
) -> Iterator[str]:
    """Compare a table's manifest, read by pylance, with its plan."""
    store = Store.at(folder, storage_options)
    place = store.uri_of(MANIFEST)
    try:
        schema, listed = read_manifest(place, store.read(MANIFEST))
    except MISSING:
        yield f"{MANIFEST}: there is no such file"
        return
    if ArrowLayout.of(schema, place) is None:
        yield f"{MANIFEST}: doesn't define its columns"
    files = None if listed is None else [file for file, _ in listed]
    wanted = [DataFile(*file) for file in unit["files"]]
    if files != wanted:
        odd = next((a for a, b in zip(files or (), wanted, strict=False) if a != b), None)
        about = f"{odd.name}: {odd.rows} rows, {odd.size} bytes" if odd else f"{len(files or ())} data files"
        yield f"{MANIFEST}: names {about}, which isn't what was written"
