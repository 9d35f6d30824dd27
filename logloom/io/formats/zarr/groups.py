"""Groups and attributes of a zarr dataset: metadata other than array layouts.

Here: writing the metadata files of a dataset, and the attributes that the reader needs.
Elsewhere: arrays (layout), files with rows (assemble).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from logloom.errors import DatasetError
from logloom.io.formats.zarr.columns import LogArray
from logloom.io.formats.zarr.layout import json_bytes
from logloom.io.rows.flat_lists import flat_types, lengths_name
from logloom.io.storage.store import Store
from logloom.schema import ColumnType, Schema

ATTRIBUTE = "logloom"
VERSION = 1
_CONVENTIONS = "CF-1.11"
_FILES = frozenset({"", ".", "..", "zarr.json", ".zgroup", ".zattrs", ".zarray", ".zmetadata"})


def is_own(store: Store) -> bool:
    """Whether a folder is a zarr dataset that logloom wrote."""
    for name in ("zarr.json", ".zattrs"):
        if store.exists(name):
            return f'"{ATTRIBUTE}"'.encode() in store.read(name)
    return False


def log_problems(log_id: str) -> list[str]:
    """List why a log_id can't name a group, one line each."""
    parts = log_id.split("/")
    if any(part in _FILES or part.startswith("__") for part in parts) or not log_id.isprintable():
        return [f"log_id {log_id!r} can't name a zarr group"]
    if any(len(part.encode()) > 255 for part in parts):
        return [f"log_id {log_id!r} is too long to name a zarr group"]
    return []


def array_attributes(array: LogArray, schema: Schema) -> dict[str, Any]:
    """CF attributes of an array: unit, description, and related arrays."""
    if array.column == "timestamp":
        return {
            "axis": "T",
            "calendar": "proleptic_gregorian",
            "long_name": "time of the row",
            "standard_name": "time",
            "units": "nanoseconds since 1970-01-01",
        }
    ctype = flat_types(schema.all)[array.column]
    if array.part == "offsets":
        return {"long_name": f"where each row of {array.column} starts, and where the last one ends"}
    if array.part == "shapes":
        return {"long_name": f"lengths of each row of {array.column}"}
    attributes: dict[str, Any] = _others(ctype)
    if ctype.unit:
        attributes["units"] = ctype.unit
    if ctype.description:
        attributes["long_name"] = ctype.description
    if ctype.names:
        attributes["names"] = list(ctype.names)
    if ctype.kind == "string":
        attributes["comment"] = "UTF-8"
    related = [f"{array.column}.offsets"] if ctype.is_ragged else []
    related += [f"{array.column}.shapes"] if ctype.num_ragged > 1 else []
    if array.column in schema.columns and schema.columns[array.column].kind == "lists":
        related.append(lengths_name(array.column))
    if array.column in schema.sampled:
        related += [f"{array.column}.age", f"{array.column}.available"]
    if related:
        attributes["ancillary_variables"] = " ".join(related)
    return attributes


def _others(ctype: ColumnType) -> dict[str, Any]:
    """Attributes of a column from its source, besides unit and description."""
    try:
        return {name: json.loads(text) for name, text in ctype.attributes}
    except ValueError as error:
        raise DatasetError(f"attributes of a column are no JSON ({error})") from error


class JsonFiles(Mapping[str, bytes]):
    """Files by name, made on access: those of kept logs, most of them, are never accessed."""

    def __init__(self, values: Mapping[str, Any]):
        self._values = values

    def __getitem__(self, name: str) -> bytes:
        return json_bytes(self._values[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def group_files(
    arrays: Mapping[str, Mapping[str, Any]],
    rows: Mapping[str, int],
    schema: Schema,
    zarr_format: int,
    whole: bool,
) -> JsonFiles:
    """All metadata files.

    Args:
        arrays: metadata of each, `attributes` among it, by path.
        rows: of each log.
        whole: whether the root's metadata includes that of all logs.
    """
    about = {"version": VERSION, "schema": schema.to_json()}
    root = {"Conventions": _CONVENTIONS, ATTRIBUTE: about | {"logs": dict(rows)}}
    groups: dict[str, dict[str, Any]] = {"": root}
    for log_id, count in rows.items():
        parts = log_id.split("/")
        for depth in range(1, len(parts)):
            groups.setdefault("/".join(parts[:depth]), {})
        own = {"Conventions": _CONVENTIONS, "log_id": log_id, ATTRIBUTE: about | {"rows": count}}
        groups[log_id] = own
    consolidated = set(rows) | ({""} if whole else set())
    make = _files_v3 if zarr_format == 3 else _files_v2
    return JsonFiles(make(arrays, groups, consolidated))


def _inner(nodes: Mapping[str, Any], consolidated: set[str]) -> dict[str, dict[str, Any]]:
    """The content of each of some groups, by name within the group."""
    inner: dict[str, dict[str, Any]] = {path: {} for path in consolidated}
    for name, node in nodes.items():
        parts = name.split("/")
        for depth in range(len(parts)):
            path = "/".join(parts[:depth])
            if path in inner and name:
                inner[path]["/".join(parts[depth:])] = node
    return inner


def _files_v3(
    arrays: Mapping[str, Mapping[str, Any]], groups: Mapping[str, dict[str, Any]], consolidated: set[str]
) -> dict[str, Any]:
    nodes: dict[str, Any] = {
        path: {"attributes": attributes, "node_type": "group", "zarr_format": 3}
        for path, attributes in groups.items()
    }
    nodes |= arrays
    whole = {
        path: {"consolidated_metadata": {"kind": "inline", "metadata": inner, "must_understand": False}}
        for path, inner in _inner(nodes, consolidated).items()
    }
    return {f"{path}/zarr.json".lstrip("/"): {**node, **whole.get(path, {})} for path, node in nodes.items()}


def _files_v2(
    arrays: Mapping[str, Mapping[str, Any]], groups: Mapping[str, dict[str, Any]], consolidated: set[str]
) -> dict[str, Any]:
    nodes: dict[str, Any] = {}
    for path, attributes in groups.items():
        nodes[f"{path}/.zgroup".lstrip("/")] = {"zarr_format": 2}
        nodes[f"{path}/.zattrs".lstrip("/")] = attributes
    for path, array in arrays.items():
        nodes[f"{path}/.zarray"] = {key: value for key, value in array.items() if key != "attributes"}
        nodes[f"{path}/.zattrs"] = array["attributes"]
    whole = {
        f"{path}/.zmetadata".lstrip("/"): {"metadata": inner, "zarr_consolidated_format": 1}
        for path, inner in _inner(nodes, consolidated).items()
    }
    return nodes | whole
