"""Point clouds: from sensor_msgs/PointCloud2 and foxglove PointCloud to float32 columns of named fields.

Here: where a cloud's points lie in its bytes, of any field layout, padding and byte order.
Elsewhere: which messages are clouds (adapters).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from logloom.blocks import Ragged, Values
from logloom.errors import UsageError
from logloom.io.logs.base import FieldSpec
from logloom.io.logs.decoding.unfit import UnfitError
from logloom.schema import ColumnType

NAME = "points"
SHAPES: tuple[Mapping[str, str], ...] = (
    {
        **{name: name for name in ("height", "width", "is_bigendian", "point_step", "row_step", "data")},
        **{name: f"fields[].{name}" for name in ("name", "offset", "datatype", "count")},
    },
    {"point_step": "point_stride", "data": "data"}
    | {"name": "fields[].name", "offset": "fields[].offset", "foxglove_type": "fields[].type"},
)

_ROS_TYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 8: "f8"}
_FOXGLOVE_TYPES = {1: "u1", 2: "i1", 3: "u2", 4: "i2", 5: "u4", 6: "i4", 7: "f4", 8: "f8"}
# What drivers call a field; looked for in this order where a cloud has no field of the name itself.
_VENDOR_NAMES = {
    "intensity": ("intensities", "i", "reflectivity", "reflectance", "remission"),
    "ring": ("channel", "laser_id", "line", "scan_line"),
    "time": ("t", "timestamp", "time_stamp", "offset_time", "time_offset"),
}


def column_type(spec: FieldSpec) -> ColumnType:
    """float32 (points, fields)."""
    names = _names(spec)
    if not all(names) or len(set(names)) < len(names):
        raise UsageError(f"as {spec.adapter}: write distinct field names, such as points[x,y,z,intensity]")
    return ColumnType(np.dtype("<f4"), (None, len(names)))


def convert(spec: FieldSpec, found: Mapping[str, Values]) -> Values:
    """n clouds as ragged rows (points, fields) of float32, points in the order of their bytes."""
    names = _names(spec)
    rows = []
    for row in range(len(found["data"])):
        message = {word: values[row] for word, values in found.items()}
        try:
            rows.append(_points(message, names))
        except ValueError as error:
            raise UnfitError(row, str(error)) from error
    return Ragged.from_rows(rows, column_type(spec))


def _names(spec: FieldSpec) -> list[str]:
    inside = (spec.adapter or "").partition("[")[2].rstrip("]")
    return [name.strip() for name in inside.split(",")]


def _points(message: Mapping[str, Any], names: list[str]) -> np.ndarray[Any, Any]:
    fields = {str(name): i for i, name in reversed(list(enumerate(message["name"])))}
    raw = _laid_out(message)
    points = np.empty((*raw.shape, len(names)), np.float32)
    for k, name in enumerate(names):
        found = next((n for n in (name, *_VENDOR_NAMES.get(name, ())) if n in fields), None)
        if found is None:
            raise ValueError(f"the cloud has no field {name!r}; it has {', '.join(fields)}")
        points[..., k] = raw[f"f{fields[found]}"]
    return points.reshape(-1, len(names))


def _laid_out(message: Mapping[str, Any]) -> np.ndarray[Any, Any]:
    """The cloud's bytes as (height, width) points with fields f0, f1, ...; nothing is copied."""
    data, step = message["data"], int(message["point_step"])
    is_ros = "datatype" in message
    types = _ROS_TYPES if is_ros else _FOXGLOVE_TYPES
    order = ">" if is_ros and message["is_bigendian"] else "<"
    numbers = message["datatype" if is_ros else "foxglove_type"]
    formats, offsets = [], []
    for i, number in enumerate(numbers.tolist()):
        if number not in types:
            raise ValueError(f"field {str(message['name'][i])!r} has the unknown type {number}")
        offset = int(message["offset"][i])
        formats.append(np.dtype(order + types[number]))
        offsets.append(offset)
        if offset + formats[-1].itemsize > step:
            raise ValueError(
                f"field {str(message['name'][i])!r} at byte {offset} leaves its {step}-byte point"
            )
    if step == 0:
        raise ValueError("its points have no bytes")
    if is_ros:
        height, width, row_step = (int(message[word]) for word in ("height", "width", "row_step"))
    else:
        height, width, row_step = 1, len(data) // step, len(data)
    # Drivers leave row_step at 0 or wrong in clouds of one row, where it means nothing.
    row_step = row_step if height > 1 else width * step
    if height and width and (width * step > row_step or height * row_step > len(data)):
        size = f"{height} x {width} points of {step} bytes in rows of {row_step}"
        raise ValueError(f"{size} don't fit {len(data)} bytes of data")
    names = [f"f{i}" for i in range(len(formats))]
    dtype = np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": step})
    return np.ndarray((height, width) if height and width else (0, 0), dtype, data, 0, (row_step, step))
