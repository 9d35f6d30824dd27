"""Conversion of rows to data infos (JSON), and to the files that these name.

Here: applying a mapping to blocks; names and bytes of files.
Elsewhere: the mapping of columns to keys (mapping), writing the files (stage).
"""

from __future__ import annotations

import io
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from logloom.blocks import Array, Block, Lists, Ragged
from logloom.errors import LogReadError, UsageError
from logloom.io.formats.annotations.mapping import FileForm, InfoMapping, InstanceKey
from logloom.schema import Schema
from logloom.values import dataclass

_MAGIC = {
    b"\xff\xd8\xff": "jpg",
    b"\x89PNG\r\n": "png",
    b"RIFF": "webp",
    b"II*\x00": "tif",
    b"MM\x00*": "tif",
}
_SUFFIX_OF = {"image": "png", "raw": "bin"}


@dataclass(frozen=True)
class MappedRow:
    """A row in the form of annotation files.

    Attributes:
        info: its data info as JSON, keys sorted.
        files: name and bytes for each column that has one here.
    """

    timestamp: int
    info: str
    files: Mapping[str, tuple[str, bytes]]


def as_json(value: Any) -> str:
    """One line; equal for equal values. NaN and infinity are written as by Python's own json."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def check_log_id(log_id: str) -> str:
    """Return a log_id that can name a folder.

    Raises:
        UsageError: it can't.
    """
    parts = log_id.split("/")
    if any(part in ("", ".", "..") for part in parts) or not log_id.isprintable() or "\\" in log_id:
        raise UsageError(
            f"log_id {log_id!r} can't name a folder (absolute, empty or .. parts, control characters); "
            "give another `log_id` template in the recipe"
        )
    return log_id


def map_rows(mapping: InfoMapping, block: Block, schema: Schema) -> list[MappedRow]:
    """Map the rows of a block.

    Raises:
        LogReadError: an unknown class; names log, tick, field and value.
    """
    stamps = block.timestamp.tolist()
    files = [
        _files_of(column, form, block, schema, mapping.ext.get(column))
        for column, form in mapping.files.items()
    ]
    by_column = dict(zip(mapping.files, files, strict=True))
    values = {
        leaf.column: _python(block.columns[leaf.column], schema.all[leaf.column].kind)
        for leaf in mapping.leaves
        if leaf.column is not None and not leaf.file
    }
    instances = _instances(mapping, block, stamps)
    rows = []
    for row, stamp in enumerate(stamps):
        info: dict[Any, Any] = {"log_id": block.log_id, "timestamp": stamp}
        for leaf in mapping.leaves:
            if leaf.column is None:
                _put(info, leaf.path, leaf.value)
            elif not leaf.file:
                _put(info, leaf.path, values[leaf.column][row])
            else:
                found = by_column[leaf.column][row]
                if found is not None:
                    _put(info, leaf.path, found[0])
                    if leaf.path[-1] == "img_path":
                        _put_size(info, leaf.path, found[1])
        if instances is not None:
            info["instances"] = instances[row]
        own = {column: found for column in by_column if (found := by_column[column][row]) is not None}
        rows.append(MappedRow(stamp, as_json(_lists(info)), own))
    return rows


# --- files ----------------------------------------------------------------------------------------------


def _files_of(
    column: str, form: FileForm, block: Block, schema: Schema, ext: str | None
) -> list[tuple[str, bytes] | None]:
    """Name and bytes of each row's file; None where there is no value."""
    values = block.columns[column]
    there = block.columns[f"{column}.available"] if column in schema.sampled else np.ones(len(block), bool)
    found: list[tuple[str, bytes] | None] = []
    for row, stamp in enumerate(block.timestamp.tolist()):
        value = np.asarray(values[row])
        if not there[row] or (form != "raw" and not value.size):
            found.append(None)
            continue
        data = _png(value) if form == "image" else np.ascontiguousarray(value).tobytes()
        suffix = ext or (_SUFFIX_OF[form] if form != "bytes" else _suffix_by_content(data))
        found.append((f"{column}/{block.log_id}/{stamp}.{suffix}", data))
    return found


def _suffix_by_content(data: bytes) -> str:
    return next((suffix for magic, suffix in _MAGIC.items() if data.startswith(magic)), "bin")


def _png(pixels: Array) -> bytes:
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(np.squeeze(pixels, 2) if pixels.shape[2:] == (1,) else pixels).save(buffer, "PNG")
    return buffer.getvalue()


def _put_size(info: dict[Any, Any], path: Sequence[Any], data: bytes) -> None:
    """Add height and width next to an image's path, unless the recipe defines them."""
    from PIL import Image

    place = info
    for step in path[:-1]:
        place = place[step]
    try:
        with Image.open(io.BytesIO(data)) as image:
            width, height = image.size
    except Exception:  # no image, or one that does not decode; as bytes it is a value all the same
        return
    place.setdefault("height", height)
    place.setdefault("width", width)


# --- values ---------------------------------------------------------------------------------------------


def _put(info: dict[Any, Any], path: Sequence[Any], value: Any) -> None:
    place = info
    for step in path[:-1]:
        place = place.setdefault(step, {})
    place[path[-1]] = value


def _lists(value: Any) -> Any:
    """Convert mappings with keys 0, 1, … to lists."""
    if not isinstance(value, dict):
        return value
    items = {key: _lists(item) for key, item in value.items()}
    if items and all(isinstance(key, int) for key in items):
        return [items.get(place) for place in range(max(items) + 1)]
    return items


def _python(values: Any, kind: str) -> list[Any]:
    """Convert each row's value to JSON values."""
    if kind == "string":
        return [np.asarray(value).tobytes().decode() for value in values]
    if isinstance(values, Lists):
        return [[_plain(one) for one in value] for value in values]
    if isinstance(values, Ragged):
        return [_plain(value) for value in values]
    plain: list[Any] = _plain(values)
    return plain


def _plain(values: Array) -> Any:
    """Nested lists; structs as dicts."""
    if values.dtype.names is None:
        return values.tolist()
    columns = {name: _plain(values[name]) for name in values.dtype.names}
    if values.ndim == 0:
        return columns
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _instances(
    mapping: InfoMapping, block: Block, stamps: Sequence[int]
) -> list[list[dict[str, Any]]] | None:
    if mapping.instances is None:
        return None
    column = block.columns[mapping.instances]
    assert isinstance(column, Ragged)
    structs, bounds = column.values, column.offsets.tolist()

    def place_of(index: int) -> str:
        row = int(np.searchsorted(column.offsets, index, side="right")) - 1
        return f"{block.log_id} at {stamps[row]}: {mapping.instances}"

    keys = [_values_of(field, structs, mapping, place_of) for field in mapping.fields]
    names = [field.key for field in mapping.fields]
    made = [dict(zip(names, row, strict=True)) for row in zip(*keys, strict=True)] if keys else []
    made = made or [{} for _ in range(len(structs))]
    return [made[start:stop] for start, stop in itertools.pairwise(bounds)]


def _values_of(field: InstanceKey, structs: Array, mapping: InfoMapping, place_of: Any) -> list[Any]:
    if not field.fields:
        return [field.value] * len(structs)
    if field.labels is not None:
        return _labels(field, structs[field.fields[0]], mapping, place_of)
    if len(field.fields) == 1:
        values: list[Any] = _plain(structs[field.fields[0]])
        return values
    parts = [_flat(structs[name]) for name in field.fields]
    return [[number for part in row for number in part] for row in zip(*parts, strict=True)]


def _flat(values: Array) -> list[list[Any]]:
    return values.reshape(len(values), math.prod(values.shape[1:])).tolist()


def _labels(field: InstanceKey, values: Array, mapping: InfoMapping, place_of: Any) -> list[int]:
    """Class numbers; each distinct value is looked up once."""
    kinds, inverse = np.unique(values, return_inverse=True)
    numbers = np.empty(len(kinds), np.int64)
    for place, kind in enumerate(kinds.tolist()):
        label = _label(field, kind, mapping.num_classes)
        if label is None:
            where = place_of(int(np.flatnonzero(inverse == place)[0]))
            known = f"; known: {', '.join(field.labels)}" if field.labels else ""
            count = (
                f" of {mapping.num_classes} in metainfo.classes" if mapping.num_classes is not None else ""
            )
            raise LogReadError(
                f"{where}.{field.fields[0]} is {kind!r}, no class{count}{known}. Add it to the classes, or "
                f"say what becomes of it: {field.key}: {{from: {field.fields[0]}, unknown: -1}}"
            )
        numbers[place] = label
    labels: list[int] = numbers[inverse].tolist()
    return labels


def _label(field: InstanceKey, kind: Any, num_classes: int | None) -> int | None:
    assert field.labels is not None
    if str(kind) in field.labels:
        return field.labels[str(kind)]
    is_number = not field.labels and not isinstance(kind, str)
    if is_number and (num_classes is None or -1 <= kind < num_classes):
        return int(kind)
    return field.unknown
