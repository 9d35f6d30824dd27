"""Values of rows as JSON messages for Foxglove, in the MCAP of `logloom show`.

Here: pure functions from a column's type to its channel, and from values to messages.
Elsewhere: which rows and columns are shown (show), the file (mcap), Rerun (rerun).

The fields of foxglove.* messages are those of https://docs.foxglove.dev/docs/sdk/schemas; binary data is
base64 in JSON. Any other column has a schema made of its type. Numbers that JSON lacks (NaN, infinities) are
null.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logloom.pipelines.show.show import ShownColumn, encoding_of, pose_of
from logloom.schema import ColumnType

Message = dict[str, Any]
_TEXT, _NUMBER, _COUNT = {"type": "string"}, {"type": "number"}, {"type": "integer", "minimum": 0}
_BYTES = {"type": "string", "contentEncoding": "base64"}
_NUMERIC = {"u1": 1, "i1": 2, "u2": 3, "i2": 4, "u4": 5, "i4": 6, "f4": 7, "f8": 8}  # foxglove.NumericType
_RAW = {1: "mono8", 3: "rgb8", 4: "rgba8"}  # by channels


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


_TIME = _object(sec=_COUNT, nsec={**_COUNT, "maximum": 999_999_999})
_VECTOR = _object(x=_NUMBER, y=_NUMBER, z=_NUMBER)
_QUATERNION = _object(x=_NUMBER, y=_NUMBER, z=_NUMBER, w=_NUMBER)
_POSE = _object(position=_VECTOR, orientation=_QUATERNION)
_FIELD = _object(name=_TEXT, offset=_COUNT, type=_COUNT)
SCHEMAS: Mapping[str, Mapping[str, Any]] = {
    "foxglove.CompressedImage": _object(timestamp=_TIME, frame_id=_TEXT, data=_BYTES, format=_TEXT),
    "foxglove.RawImage": _object(
        timestamp=_TIME, frame_id=_TEXT, width=_COUNT, height=_COUNT, encoding=_TEXT, step=_COUNT, data=_BYTES
    ),
    "foxglove.PointCloud": _object(
        timestamp=_TIME,
        frame_id=_TEXT,
        pose=_POSE,
        point_stride=_COUNT,
        fields={"type": "array", "items": _FIELD},
        data=_BYTES,
    ),
    "foxglove.PoseInFrame": _object(timestamp=_TIME, frame_id=_TEXT, pose=_POSE),
    "foxglove.FrameTransform": _object(
        timestamp=_TIME,
        parent_frame_id=_TEXT,
        child_frame_id=_TEXT,
        translation=_VECTOR,
        rotation=_QUATERNION,
    ),
}
_NAMES = {"cloud": "foxglove.PointCloud", "place": "foxglove.PoseInFrame", "pose": "foxglove.FrameTransform"}


def schema_of(column: ShownColumn) -> tuple[str, dict[str, Any]]:
    """The name and the JSON schema of a column's messages."""
    if column.kind == "image":
        name = "foxglove.CompressedImage" if column.ctype.kind == "bytes" else "foxglove.RawImage"
    elif column.kind in _NAMES:
        name = _NAMES[column.kind]
    else:
        note = "; ".join(word for word in (column.ctype.description, column.ctype.unit) if word)
        value = _value_schema(column.ctype) | ({"description": note} if note else {})
        return f"logloom.{column.name}", {"title": f"logloom.{column.name}", **_object(value=value)}
    return name, {"title": name, **SCHEMAS[name]}


def message_of(column: ShownColumn, values: Mapping[str, Any]) -> Message | None:
    """A row's message of a column; None of a value that such a message can't hold.

    Args:
        values: of the row, with a usable one of the column, and `timestamp`.
    """
    value = values[column.name]
    if column.kind == "plain":
        return {"value": json_value(value)}
    stamp = _time(int(values["timestamp"]))
    if column.kind == "image":
        return _image(value, {"timestamp": stamp, "frame_id": column.frame})
    if column.kind == "cloud":
        return {"timestamp": stamp, "frame_id": column.frame, "pose": _AT_ORIGIN, **_cloud(column, value)}
    pose = pose_of(column, values)
    if pose is None:
        return None
    place, turn = dict(zip("xyz", pose[0], strict=True)), dict(zip("xyzw", pose[1], strict=True))
    if column.kind == "place":
        return {
            "timestamp": stamp,
            "frame_id": column.frame,
            "pose": {"position": place, "orientation": turn},
        }
    frames = {"parent_frame_id": column.frame, "child_frame_id": column.child}
    return {"timestamp": stamp, **frames, "translation": place, "rotation": turn}


def to_json(message: Any) -> bytes:
    """The bytes of a message or a schema: keys in their order, ASCII, nothing that JSON lacks."""
    return json.dumps(message, allow_nan=False, separators=(",", ":")).encode()


def json_value(value: Any) -> Any:
    """A value as JSON: bytes as base64, structs as objects, NaN and infinities as null; all else exactly.

    >>> json_value(np.array([1.5, np.nan]))
    [1.5, None]
    """
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, list):
        return [json_value(item) for item in value]
    if isinstance(value, np.ndarray) and value.ndim:
        exact = value.dtype.kind in "biuU" or (value.dtype.kind == "f" and np.isfinite(value).all())
        return value.tolist() if exact else [json_value(item) for item in value]
    if isinstance(value, np.ndarray | np.void) and value.dtype.names:
        return {name: json_value(value[name]) for name in value.dtype.names}
    if isinstance(value, np.ndarray | np.generic):
        return json_value(value.item())
    return None if isinstance(value, float) and not np.isfinite(value) else value


def _time(tick: int) -> Message:
    return {"sec": tick // 10**9, "nsec": tick % 10**9}


_AT_ORIGIN = {
    "position": {"x": 0.0, "y": 0.0, "z": 0.0},
    "orientation": {"x": 0.0, "y": 0.0, "z": 0.0, "w": 1.0},
}


def _image(value: Any, head: Message) -> Message | None:
    """An image as it is stored; None where it is none."""
    if isinstance(value, bytes):
        kind = encoding_of(value)
        return {**head, "data": json_value(value), "format": kind} if kind else None
    channels = value.shape[2] if value.ndim == 3 else 1
    if channels not in _RAW or not value.size:
        return None
    height, width = value.shape[:2]
    size = {"width": width, "height": height, "encoding": _RAW[channels], "step": width * channels}
    return {**head, **size, "data": json_value(value.tobytes())}


def _cloud(column: ShownColumn, value: NDArray[Any]) -> Message:
    """The points as they are stored, packed; half floats as float32."""
    fields = packed_fields(column)
    if value.dtype.names:
        stride = value.dtype.itemsize
    else:
        value = value.astype("<f4") if value.dtype.itemsize == 2 else value
        stride = value.dtype.itemsize * value.shape[1]
    return {"point_stride": stride, "fields": fields, "data": json_value(value.tobytes())}


def packed_fields(column: ShownColumn) -> list[Message]:
    """Where the numbers of a point are in it; those of types that Foxglove lacks are left out."""
    dtype = column.ctype.dtype
    if dtype.names and dtype.fields is not None:
        found = [(name, dtype.fields[name][1], dtype.fields[name][0].str[1:]) for name in dtype.names]
        return [{"name": n, "offset": at, "type": _NUMERIC[t]} for n, at, t in found if t in _NUMERIC]
    size = max(dtype.itemsize, 4)
    return [
        {"name": name, "offset": number * size, "type": _NUMERIC[f"f{size}"]}
        for number, name in enumerate(column.axes)
    ]


def _value_schema(ctype: ColumnType) -> dict[str, Any]:
    if ctype.kind in ("bytes", "string"):
        return dict(_BYTES if ctype.kind == "bytes" else _TEXT)
    schema = _element_schema(ctype.dtype)
    for length in reversed(ctype.shape):
        schema = _list_of(schema, length)
    return schema


def _list_of(schema: dict[str, Any], length: int | None) -> dict[str, Any]:
    size = {} if length is None else {"minItems": length, "maxItems": length}
    return {"type": "array", "items": schema, **size}


def _element_schema(dtype: np.dtype[Any]) -> dict[str, Any]:
    if dtype.names:
        return _object(**{name: _element_schema(dtype[name]) for name in dtype.names})
    if dtype.subdtype:
        schema = _element_schema(dtype.base)
        for length in reversed(dtype.shape):
            schema = _list_of(schema, length)
        return schema
    kinds = {"b": "boolean", "i": "integer", "u": "integer", "f": ["number", "null"], "U": "string"}
    return {"type": kinds.get(dtype.kind, "string")}
