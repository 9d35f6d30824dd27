"""Point clouds: from sensor_msgs/PointCloud2 and foxglove PointCloud to columns.

Here: finding a cloud's points in its bytes, of any field layout, padding and byte order; the named fields
as float32 or float64 (`points[x,y,z]`), or all fields as they are (`points`); the fields that clouds have
(`named_dtypes`).
Elsewhere: recognizing messages with clouds (adapters).

`points_time[t,ns]`, for internal use, is the field of points' times, in ns.

The fields of a cloud are declared in each message, while a column has one type: that of `points` is the
spec's `dtype`, as "x:float32,y:float32,normal:float32[3]", taken from a message (`settled`). A cloud with
other fields doesn't fit the column. Vendors' names are mapped to the usual ones in `points[…]` only; the
values stay in the vendor's units, rounded to the spec's `dtype`: float32 (the default) or float64. Fields
that are not named may be anything; those called `_` are padding. A cloud without points needs no fields.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from logloom.blocks import Ragged, Values
from logloom.errors import LogReadError, UsageError
from logloom.io.logs.interface import FieldSpec, Log, Messages
from logloom.io.logs.messages.values import UnfitError
from logloom.schema import MAX_TIME, MIN_TIME, ColumnType
from logloom.text import some_of
from logloom.values import dataclass

NAME = "points"
NAME_LENGTH = 64  # of a field, at most
TIMES = f"{NAME}_time"
NO_TIME = MIN_TIME  # of a point whose time isn't a number, or is beyond int64 ns
TIME_UNITS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_ROS = {
    **{name: name for name in ("height", "width", "is_bigendian", "point_step", "row_step", "data")},
    **{name: f"fields[].{name}" for name in ("name", "offset", "datatype", "count")},
}
_FOXGLOVE = {
    "point_step": "point_stride",
    "data": "data",
    "foxglove_type": "fields[].type",
    **{name: f"fields[].{name}" for name in ("name", "offset")},
}
SHAPES: tuple[Mapping[str, str], ...] = (_ROS, _FOXGLOVE)

_ROS_TYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 8: "f8"}
_FOXGLOVE_TYPES = {1: "u1", 2: "i1", 3: "u2", 4: "i2", 5: "u4", 6: "i4", 7: "f4", 8: "f8"}
# Drivers' names of a field, tried in this order if a cloud has no field of the name itself.
_VENDOR_NAMES = {
    "intensity": ("intensities", "i", "reflectivity", "reflectance", "remission", "signal"),
    "ring": ("channel", "laser_id", "line", "scan_line", "laser_number"),
    "time": ("t", "timestamp", "time_stamp", "offset_time", "time_offset"),
    "range": ("distance",),
    "ambient": ("near_ir", "noise"),
}
MAX_NAMED = 24  # fields that an error lists
MAX_COUNT = 999_999  # values of a field in one point
MAX_OVERLAP = 4  # limit of how many fields share a point's bytes: a union of rgb and its parts is one
# Colours packed into the bits of one number, as PCL writes them.
_PACKED = ("rgb", "rgba")
_SHIFTS = {"r": 16, "g": 8, "b": 0, "a": 24}

_WIDE = ("<f8", "<i4", "<u4")  # types that float32 doesn't hold

_PADDING = re.compile(r"_+")
_FIELD_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_WRITTEN = re.compile(r"([A-Za-z_]\w*):(u?int(?:8|16|32)|float(?:32|64))(?:\[(\d{1,6})\])?", re.ASCII)

Points = np.ndarray[Any, Any]


@dataclass(frozen=True)
class PointField:
    """A field of a cloud's points; `dtype` is in the cloud's byte order."""

    name: str
    dtype: np.dtype[Any]
    count: int
    offset: int


def column_type(spec: FieldSpec) -> ColumnType:
    """float32 or float64 (points, fields), or with all fields (points,) of a packed little-endian structured
    dtype.
    """
    if spec.adapter == NAME:
        if spec.dtype is None:
            raise UsageError(
                f"as {NAME}: the fields of a cloud are declared in its messages: name them, as in "
                f"{NAME}[x,y,z], or use the spec of `settled`"
            )
        return ColumnType(_parsed(spec.dtype), (None,))
    names = named_fields(spec)
    if (spec.adapter or "").startswith(f"{TIMES}["):
        return ColumnType(np.dtype("<i8"), (None,))
    if not all(names) or len(set(names)) < len(names):
        raise UsageError(f"as {spec.adapter}: write distinct field names, such as points[x,y,z,intensity]")
    return ColumnType(np.dtype("<f8" if spec.dtype == "float64" else "<f4"), (None, len(names)))


def times_spec(spec: FieldSpec, field: str, unit: str) -> FieldSpec:
    """Return the spec for the times of the points that another spec reads: (points,) int64 ns.

    Args:
        spec: of `points`, with or without names.
        field: name of the field.
        unit: one of `TIME_UNITS`.
    """
    return FieldSpec(paths=spec.paths, adapter=f"{TIMES}[{field},{unit}]")


def time_names(names: Sequence[str]) -> list[str]:
    """Return the fields of a cloud that may be points' times by their name, the likeliest first."""
    return [name for name in ("time", *_VENDOR_NAMES["time"]) if name in names]


def nanoseconds(values: Points, unit: str) -> Points:
    """(n,) int64 ns of numbers in one of `TIME_UNITS`, to the nearest; `NO_TIME` if there are none.

    >>> nanoseconds(np.array([1.5, np.nan, 1e30]), "us").tolist()
    [1500, -9223372036854775808, -9223372036854775808]
    """
    scale = TIME_UNITS[unit]
    limit = MAX_TIME // scale
    found = np.full(values.shape, NO_TIME, np.int64)
    if values.dtype.kind == "f":
        # Whole units and fractions separately, so that times since 1970 keep all their digits.
        with np.errstate(invalid="ignore"):  # of NaN that signal
            whole = np.floor(values.astype(np.float64))
        usable = np.abs(whole) < limit - 1
        part = np.rint((values[usable].astype(np.float64) - whole[usable]) * scale)
        found[usable] = whole[usable].astype(np.int64) * scale + part.astype(np.int64)
        return found
    usable = (values <= limit) & (values >= -limit) if values.dtype.kind == "i" else values <= limit
    found[usable] = values[usable].astype(np.int64) * scale
    return found


def needs_message(spec: FieldSpec) -> bool:
    """Return whether the type of a value depends on messages."""
    return spec.adapter == NAME and spec.dtype is None


def settled(log: Log, topic: str, spec: FieldSpec, sample: Messages | None = None) -> FieldSpec:
    """Complete a spec that depends on messages: add the fields of `points`, from the topic's last message.

    Args:
        sample: messages, of which the first is used instead.

    Raises:
        UsageError: the topic has no message, or its messages aren't clouds.
        LogReadError: the last one is damaged, or its points are unsupported.
    """
    if not needs_message(spec):
        return spec
    which = "its last message" if sample is None else "a message"
    sample = log.last_message(topic) if sample is None else sample
    if len(sample) == 0:
        raise UsageError(
            f"as {NAME}: the fields of a cloud are declared in its messages, and {topic} has none; name "
            f"them: {NAME}[x,y,z]"
        )
    path = ".".join((*spec.paths, "fields"))
    (listed,) = sample.take(FieldSpec((path,), strings=NAME_LENGTH), np.arange(1))
    try:
        return replace(spec, dtype=written(_packed(_fields(_listing(listed)))))
    except ValueError as error:
        raise LogReadError(f"{log.summary.uris[0]}: {topic}, {which}: {error}") from error


def _listing(fields: Points) -> dict[str, Any]:
    """Return what `_fields` needs of a message, from its list of fields."""
    words = {"type": "foxglove_type"}
    return {words.get(name, name): fields[name] for name in fields.dtype.names or ()}


def named_dtypes(messages: Messages, rows: np.ndarray[Any, np.dtype[np.intp]]) -> dict[str, str] | None:
    """Return the fields that `points[…]` can take of all these clouds, and their types as numpy writes them.

    None if no cloud has fields, as those without points may be.
    """
    found: dict[str, str] | None = None
    listed = messages.take(FieldSpec(("fields",), strings=NAME_LENGTH), rows)
    for one in {fields.tobytes(): fields for fields in listed if len(fields)}.values():
        message, own = _listing(one), {}
        for name in map(str, message["name"]):
            with contextlib.suppress(ValueError):
                (field,) = _fields(message, (name,))
                if field.count == 1 and not _PADDING.fullmatch(name):
                    own[name] = field.dtype.newbyteorder("<").str
        found = own if found is None else common_dtypes(found, own)
    return found


def common_dtypes(some: Mapping[str, str], others: Mapping[str, str]) -> dict[str, str]:
    """Return the fields that are in both, with types that hold the values of both."""
    return {name: kind if kind == others[name] else "<f8" for name, kind in some.items() if name in others}


def dtype_for(kinds: Iterable[str]) -> str:
    """Return the `dtype` of a column that holds fields of these types exactly."""
    return "float64" if any(kind in _WIDE for kind in kinds) else "float32"


def rounding(spec: FieldSpec, cloud: Messages) -> dict[str, float]:
    """Return how far float32 rounds values of a cloud at most, by field; those that it holds are left out.

    Args:
        spec: of `points[x,y,z]`.
        cloud: its first message is taken.
    """
    (exact,) = cloud.take(replace(spec, dtype="float64"), np.arange(1))
    with np.errstate(over="ignore", invalid="ignore"):
        lost = np.abs(exact.astype(np.float32) - exact)
    worst = np.max(lost, axis=0, initial=0.0, where=np.isfinite(exact)).tolist()
    return {name: value for name, value in zip(named_fields(spec), worst, strict=True) if value > 0}


def written(dtype: np.dtype[Any]) -> str:
    """Describe a structured dtype of points as in `FieldSpec.dtype`."""
    words = []
    for name in dtype.names or ():
        kind = dtype[name]
        words.append(f"{name}:{kind.base.name}" + (f"[{kind.shape[0]}]" if kind.shape else ""))
    return ",".join(words)


def _parsed(words: str) -> np.dtype[Any]:
    """Inverse of `written`."""
    members: list[Any] = []
    for word in words.split(","):
        match = _WRITTEN.fullmatch(word)
        if match is None or any(match[1] == member[0] for member in members):
            raise UsageError(
                f"as {NAME}: {words!r:.200} are no fields of points, like x:float32,y:float32,ring:uint16"
            )
        kind = np.dtype(match[2]).newbyteorder("<")
        members.append((match[1], kind, (int(match[3]),)) if match[3] else (match[1], kind))
    return np.dtype(members)


def convert(spec: FieldSpec, found: Mapping[str, Values]) -> Values:
    """Convert n clouds to ragged rows, points in the order of their bytes.

    Raises:
        UnfitError: a message isn't a cloud, or has other fields than the column.
    """
    rows: list[Points] = []
    ctype = column_type(spec)
    for row in range(len(found["data"])):
        message = {word: values[row] for word, values in found.items()}
        try:
            if (spec.adapter or "").startswith(f"{TIMES}["):
                rows.append(_times(message, *named_fields(spec)))
                continue
            if spec.adapter == NAME:
                rows.append(_whole(message, ctype.dtype))
            else:
                rows.append(_named(message, named_fields(spec), ctype.dtype))
        except ValueError as error:
            raise UnfitError(row, str(error)) from error
    return Ragged.from_rows(rows, ctype)


def named_fields(spec: FieldSpec) -> list[str]:
    """Return the field names of `points[x,y,z]`."""
    inside = (spec.adapter or "").partition("[")[2].rstrip("]")
    return [name.strip() for name in inside.split(",")]


def _packed(fields: Sequence[PointField]) -> np.dtype[Any]:
    """Return the packed little-endian dtype of these fields."""
    kinds = [(field.name, field.dtype.newbyteorder("<"), field.count) for field in fields]
    return np.dtype([(name, kind, (count,)) if count > 1 else (name, kind) for name, kind, count in kinds])


def _whole(message: Mapping[str, Any], dtype: np.dtype[Any]) -> Points:
    """Return (points,) with all fields in the order of the message."""
    if _is_empty(message):
        return np.empty(0, dtype)
    fields = _fields(message)
    own = _packed(fields)
    if own != dtype:
        raise ValueError(
            f"its points are {written(own)}, those of the column {written(dtype)}; name the fields that all "
            f"clouds have: {NAME}[x,y,z]"
        )
    raw = _laid_out(message, fields)
    points = np.empty(raw.shape, dtype)
    for i, field in enumerate(fields):
        points[field.name] = raw[f"f{i}"]
    return points.reshape(-1)


def _named(message: Mapping[str, Any], names: Sequence[str], dtype: np.dtype[Any]) -> Points:
    """(points, names) of a dtype."""
    if _is_empty(message):
        return np.empty((0, len(names)), dtype)
    there = [str(name) for name in message["name"]]
    sources = [_source(name, there) for name in names]
    fields = _fields(message, sources)
    places = {field.name: i for i, field in enumerate(fields)}
    raw = _laid_out(message, fields)
    points = np.empty((*raw.shape, len(names)), dtype)
    for k, (name, source) in enumerate(zip(names, sources, strict=True)):
        at = places[source]
        if fields[at].count > 1:
            raise ValueError(
                f"field {name!r} has {fields[at].count} values a point; take the cloud `as: {NAME}`"
            )
        is_packed = name in _SHIFTS and source in _PACKED
        with np.errstate(over="ignore"):  # a float64 beyond float32 is infinity
            points[..., k] = _colour(raw[f"f{at}"], name) if is_packed else raw[f"f{at}"]
    return points.reshape(-1, len(names))


def _source(name: str, there: Sequence[str]) -> str:
    """Return the field of a cloud that has the values of a name.

    Raises:
        ValueError: there is none.
    """
    packed: tuple[str, ...] = _PACKED if name in _SHIFTS else ()
    for source in (name, *_VENDOR_NAMES.get(name, ()), *packed):
        if source in there:
            return source
    raise ValueError(f"the cloud has no field {name!r}; it has {some_of(there, MAX_NAMED) or 'none'}")


def _times(message: Mapping[str, Any], name: str, unit: str) -> Points:
    """(points,) times in ns."""
    if _is_empty(message):
        return np.empty(0, np.int64)
    fields = _fields(message, (name,))
    if not fields:
        known = some_of(list(map(str, message["name"])), MAX_NAMED)
        raise ValueError(f"the cloud has no field {name!r} with the times of its points; it has {known}")
    if fields[0].count > 1:
        raise ValueError(f"field {name!r} has {fields[0].count} values a point, which are no time")
    return nanoseconds(_laid_out(message, fields)["f0"].reshape(-1), unit)


def _is_empty(message: Mapping[str, Any]) -> bool:
    """Return whether a cloud has no points."""
    if "datatype" in message:
        return not (message["height"] and message["width"])
    return len(message["data"]) == 0


def _colour(packed: Points, name: str) -> Points:
    """Extract a colour, 0 to 255, from numbers that several are packed into."""
    if packed.dtype.itemsize != 4:
        raise ValueError(f"colours packed into {packed.dtype.name} aren't read; only 32 bits hold them")
    native = packed.astype(packed.dtype.newbyteorder("="))
    return (native.view(np.uint32) >> _SHIFTS[name]) & 255


def _fields(message: Mapping[str, Any], names: Collection[str] | None = None) -> list[PointField]:
    """Parse the fields of a cloud's points with these names; by default all but padding.

    Raises:
        ValueError: there are none at all; one is of an unknown type, or has no unique name.
    """
    is_ros = "datatype" in message
    types = _ROS_TYPES if is_ros else _FOXGLOVE_TYPES
    order = ">" if message.get("is_bigendian") else "<"
    numbers = message["datatype" if is_ros else "foxglove_type"].tolist()
    # Many drivers leave count at 0, meaning one.
    counts = [max(1, count) for count in message["count"].tolist()] if is_ros else [1] * len(numbers)
    fields: list[PointField] = []
    for i, (number, count) in enumerate(zip(numbers, counts, strict=True)):
        name = str(message["name"][i])
        if _PADDING.fullmatch(name) and (names is None or name not in names):
            continue
        if names is not None and name not in names:
            # The values of other fields don't matter, but a field outside the points shows wrong strides.
            size = np.dtype(types[number]).itemsize if number in types else 0
            if message["offset"][i] + size > message.get("point_step", MAX_TIME):
                raise ValueError(f"field {name!r} leaves its {message['point_step']}-byte point")
            continue
        if number not in types:
            raise ValueError(f"field {name!r} has the unknown type {number}")
        if count > MAX_COUNT:
            raise ValueError(f"field {name!r} has {count} values a point: absurdly many")
        if not _FIELD_NAME.fullmatch(name):
            raise ValueError(f"{name!r} can't be the name of a field")
        fields.append(PointField(name, np.dtype(order + types[number]), count, int(message["offset"][i])))
    if len({field.name for field in fields}) < len(fields):
        raise ValueError(f"two fields of its points have one name: {', '.join(f.name for f in fields)}")
    if not fields and names is None:
        raise ValueError("its points have no fields")
    return fields


def _laid_out(message: Mapping[str, Any], fields: Sequence[PointField]) -> Points:
    """View the cloud's bytes as (height, width) points with fields f0, f1, ..., without a copy.

    Raises:
        ValueError: fields exceed their point, or points the bytes.
    """
    data, step = message["data"], int(message["point_step"])
    for field in fields:
        if field.offset + field.count * field.dtype.itemsize > step:
            raise ValueError(f"field {field.name!r} at byte {field.offset} leaves its {step}-byte point")
    size = sum(field.count * field.dtype.itemsize for field in fields)
    if size > MAX_OVERLAP * step:
        raise ValueError(f"its points of {step} bytes have {len(fields)} fields of {size} bytes together")
    if "datatype" in message:
        height, width, row_step = (int(message[word]) for word in ("height", "width", "row_step"))
    else:
        height, width, row_step = 1, len(data) // step, len(data)
    # Drivers leave row_step at 0 or wrong in clouds of one row, where it means nothing.
    row_step = row_step if height > 1 else width * step
    needed = (height - 1) * row_step + width * step  # the padding of the last row may be missing
    if height and width and (width * step > row_step or needed > len(data)):
        shape = f"{height} x {width} points of {step} bytes in rows of {row_step}"
        raise ValueError(f"{shape} don't fit {len(data)} bytes of data")
    dtype = np.dtype(
        {
            "names": [f"f{i}" for i in range(len(fields))],
            "formats": [(f.dtype, (f.count,)) if f.count > 1 else f.dtype for f in fields],
            "offsets": [f.offset for f in fields],
            "itemsize": step,
        }
    )
    return np.ndarray((height, width) if height and width else (0, 0), dtype, data, 0, (row_step, step))
