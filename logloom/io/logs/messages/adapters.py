"""Adapters, which a recipe names by `as:`: conversion of messages to columns.

Here: adapters such as `image`, `points[x,y,z]`, `scan` and `navsat`: the fields that each reads, the type of
its column, and the pure functions from those fields to values. ROS and Foxglove messages are distinguished by
their fields, not by their names.
Elsewhere: reading fields (each decoder), pixels (images), point clouds (point_clouds), joints (joints).
A decoder calls `take` with a function that reads fields, or `convert` with the fields of `paths`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logloom.blocks import Ragged, Values
from logloom.errors import UsageError
from logloom.io.logs.interface import FieldSpec
from logloom.io.logs.messages import images, joints, point_clouds
from logloom.io.logs.messages.definitions import Struct
from logloom.io.logs.messages.fields import has, joined_type, line_of, select
from logloom.io.logs.messages.values import UnfitError, side_by_side
from logloom.schema import BYTES, ColumnType
from logloom.values import dataclass

Found = Mapping[str, Values]  # by the adapter's own name of a field
Read = joints.Read

_FLOAT32, _FLOAT64 = np.dtype("<f4"), np.dtype("<f8")
_TRANSFORM = {"translation": "xyz", "rotation": "xyzw"}
# Packets of video are read in order by logloom.transforms.rows.video_columns; these are their types. An
# `image` becomes VIDEO if a topic contains packets.
VIDEO, PACKETS, KEYFRAME = "video", "packets", "keyframe"
# What a column of images has to declare about each message.
FORMS = "image_forms"
_INTERNAL = (VIDEO, FORMS, joints.EACH, point_clouds.TIMES)  # not available in recipes
_JOINTS = (joints.NAME, joints.EACH)
_CALL = re.compile(r"(?P<name>\w+)(?:\[(?P<words>[^\[\]]*)\])?")


@dataclass(frozen=True)
class Adapter:
    """One way to read a kind of messages.

    Attributes:
        shapes: alternative sets of fields, by the adapter's own names; the first that a definition has is
            read.
        ctype: the column's type; raises a UsageError if the spec is invalid.
        convert: from the fields of n messages to the column.
        takes_words: whether it may have a list of names, as in points[x,y,z].
        has_value: which messages have a value; None if all have one.
        value_words: the fields that `has_value` needs, as far as the messages have them.
        value_bytes: messages of more bytes have a value, and aren't examined; None if any may lack one.
    """

    shapes: tuple[Mapping[str, str], ...]
    ctype: Callable[[FieldSpec], ColumnType]
    convert: Callable[[FieldSpec, Found], Values]
    takes_words: bool = False
    has_value: Callable[[FieldSpec, Found], NDArray[np.bool_]] | None = None
    value_words: tuple[str, ...] = ()
    value_bytes: int | None = None


def paths(spec: FieldSpec, root: Struct) -> dict[str, str]:
    """Return the fields that an adapter reads, by the adapter's names for them.

    Args:
        spec: with at most one path, of the sub-message that the adapter reads.

    Raises:
        UsageError: no such adapter, or the message lacks what it reads.
    """
    adapter = _adapter(spec)
    if spec.adapter in _JOINTS:
        return joints.paths(spec, root)
    if len(spec.paths) > 1:
        raise UsageError(f"as {spec.adapter}: reads one field, not {', '.join(spec.paths)}")
    prefix = f"{spec.paths[0]}." if spec.paths else ""
    for shape in adapter.shapes:
        found = {word: prefix + path for word, path in shape.items()}
        if all(has(root, path) for path in found.values()):
            return found
    wanted = " or ".join(", ".join(shape.values()) for shape in adapter.shapes)
    where = f"field {spec.paths[0]}" if spec.paths else "the message"
    raise UsageError(f"as {spec.adapter}: {where} has no {wanted}{_way_to_adapt(adapter, spec, root)}")


def _way_to_adapt(adapter: Adapter, spec: FieldSpec, root: Struct) -> str:
    """Return which part of a message an adapter can read, as "; write …"; "" if it can read none."""
    for name in ("", *(field.name for field in root.fields if field.array is None)):
        prefix = f"{name}." if name else ""
        if any(all(has(root, prefix + path) for path in shape.values()) for shape in adapter.shapes):
            return f"; write `{line_of(name)}`" if name else "; leave out `field`"
    return ""


def column_type(spec: FieldSpec, root: Struct) -> ColumnType:
    """Return the type of a column before resampling, with or without an adapter.

    Raises:
        UsageError: the messages lack its fields, or don't support the spec.
    """
    if spec.adapter is None:
        found = joined_type(spec, [select(root, path, spec.strings) for path in spec.paths])
        return found if spec.shape is None else _of_shape(found, spec.shape)
    paths(spec, root)
    return joints.column_type(spec, root) if spec.adapter in _JOINTS else _adapter(spec).ctype(spec)


def convert(spec: FieldSpec, found: Found) -> Values:
    """Convert the fields of `paths` to the column.

    Raises:
        UnfitError: a message has content that the adapter can't read.
    """
    return _adapter(spec).convert(spec, found)


def take(spec: FieldSpec, root: Struct, read: Read) -> Values:
    """Return a column of messages whose fields `read` returns; with or without an adapter.

    Raises:
        UnfitError: as `convert`.
    """
    if spec.adapter is None:
        return shaped(side_by_side(read(spec.paths, spec.strings)), spec)
    if spec.adapter in _JOINTS:
        return joints.take(spec, root, read)
    words = paths(spec, root)
    found = read(list(words.values()), text_width(spec))
    return convert(spec, dict(zip(words, found, strict=True)))


def _of_shape(found: ColumnType, shape: tuple[int, ...]) -> ColumnType:
    """Return the type of a list of numbers that has one length in all messages.

    Raises:
        UsageError: it can't have this shape.
    """
    is_list = found.kind == "array" and found.dtype.names is None and found.dtype.kind in "iufb"
    if not is_list or len(found.shape) != 1 or found.shape[0] not in (None, math.prod(shape)):
        why = f"shape: {list(shape)} is for a list of as many numbers, got {found}; leave out `shape`"
        raise UsageError(why)
    return replace(found, shape=shape)


def shaped(values: Values, spec: FieldSpec) -> Values:
    """Return lists as arrays of the column's `shape`; without one unchanged.

    Raises:
        UnfitError: a message's list has another length.
    """
    if spec.shape is None:
        return values
    length = math.prod(spec.shape)
    if isinstance(values, Ragged):
        if (odd := values.lengths != length).any():
            row = int(np.argmax(odd))
            own = int(values.lengths[row])
            why = (
                f"a list of {own} numbers; shape {list(spec.shape)} has {length}. Write `shape: [{own}]` "
                "if all lists have that length; `on_error: skip` refuses such messages, and without `shape` "
                "lists may have any length"
            )
            raise UnfitError(row, why)
        values = values.values
    return values.reshape(-1, *spec.shape)


def may_lack_value(spec: FieldSpec) -> bool:
    """Return whether messages of the definition may lack what a column takes, by its adapter."""
    return spec.adapter is not None and _adapter(spec).has_value is not None


def may_lack_value_at(spec: FieldSpec, lengths: NDArray[np.int64]) -> NDArray[np.intp]:
    """Return which messages, by their lengths, may lack a value for a column with `may_lack_value`."""
    limit = _adapter(spec).value_bytes
    return np.arange(len(lengths)) if limit is None else np.flatnonzero(lengths <= limit)


def has_value(spec: FieldSpec, root: Struct, read: Read) -> NDArray[np.bool_]:
    """Return which messages have a value for a column with `may_lack_value`."""
    if spec.adapter == joints.NAME:
        return joints.holds(spec, root, read)
    adapter = _adapter(spec)
    assert adapter.has_value is not None
    words = {word: path for word, path in paths(spec, root).items() if word in adapter.value_words}
    found = read(list(words.values()), text_width(spec))
    return adapter.has_value(spec, dict(zip(words, found, strict=True)))


def text_width(spec: FieldSpec) -> int:
    """Return the number of characters to read of text inside arrays."""
    if spec.adapter in _JOINTS:
        return max(spec.strings, joints.NAME_LENGTH)
    return point_clouds.NAME_LENGTH if point_clouds.NAME in (spec.adapter or "") else spec.strings


def rotation_matrix(quaternions: NDArray[Any]) -> NDArray[np.float64]:
    """Return rotation matrices of quaternions (x, y, z, w), which needn't be normalised.

    With s = 2 / (x² + y² + z² + w²) the matrix is
    [1 − s(yy + zz), s(xy − wz), s(xz + wy); s(xy + wz), 1 − s(xx + zz), s(yz − wx);
    s(xz − wy), s(yz + wx), 1 − s(xx + yy)]: sums, products and one quotient, so its bits are the same on
    every CPU.

    Args:
        quaternions: (n, 4).

    Returns:
        (n, 3, 3) float64.

    Raises:
        ValueError: a quaternion of norm zero, or not finite.
    """
    x, y, z, w = np.asarray(quaternions, np.float64).reshape(-1, 4).T
    square = x * x + y * y + z * z + w * w
    bad = ~((square > 0) & (square < np.inf))
    if bad.any():
        row = int(np.argmax(bad))
        raise ValueError(f"quaternion {np.asarray(quaternions)[row].tolist()} (number {row}) is no rotation")
    s = 2.0 / square
    rows = [
        [1.0 - s * (y * y + z * z), s * (x * y - w * z), s * (x * z + w * y)],
        [s * (x * y + w * z), 1.0 - s * (x * x + z * z), s * (y * z - w * x)],
        [s * (x * z - w * y), s * (y * z + w * x), 1.0 - s * (x * x + y * y)],
    ]
    return np.ascontiguousarray(np.moveaxis(np.array(rows), 2, 0))


def _adapter(spec: FieldSpec) -> Adapter:
    match = _CALL.fullmatch(spec.adapter or "")
    adapter = ADAPTERS.get(match["name"]) if match else None
    if match is None or adapter is None:
        known = ", ".join(_written(name) for name in ADAPTERS if name not in _INTERNAL)
        raise UsageError(f"as {spec.adapter}: known are {known}")
    if match["words"] is not None and not adapter.takes_words:
        raise UsageError(f"as {spec.adapter}: write {match['name']} alone")
    if (spec.resize or spec.encode or spec.shape) and match["name"] not in ("image", VIDEO):
        raise UsageError(f"as {spec.adapter}: resize, encode and shape are for images")
    return adapter


def _written(name: str) -> str:
    return f"{name} or {name}[x,y,z]" if ADAPTERS[name].takes_words else name


def _array(values: Values) -> NDArray[Any]:
    return values.values if isinstance(values, Ragged) else values


def _columns(dtype: np.dtype[Any], *words: str) -> Callable[[FieldSpec, Found], Values]:
    def stacked(spec: FieldSpec, found: Found) -> Values:
        return np.stack([_array(found[word]) for word in words], axis=1).astype(dtype)

    return stacked


def _scan(spec: FieldSpec, found: Found) -> Values:
    ranges = found["ranges"]
    assert isinstance(ranges, Ragged)
    return Ragged(ranges.values.astype(_FLOAT32, copy=False), ranges.shapes)


def _camera_matrix(spec: FieldSpec, found: Found) -> Values:
    k = found["k"]
    if isinstance(k, Ragged):  # protobuf has no fixed lengths
        if (odd := k.lengths != 9).any():
            row = int(np.argmax(odd))
            raise UnfitError(row, f"a camera matrix of {int(k.lengths[row])} numbers; it has 9")
        k = k.values
    return np.ascontiguousarray(k, _FLOAT64).reshape(-1, 3, 3)


def _distortion(spec: FieldSpec, found: Found) -> Values:
    d = found["d"]
    if isinstance(d, Ragged):
        return Ragged(d.values.astype(_FLOAT64, copy=False), d.shapes)
    return Ragged(np.ascontiguousarray(d, _FLOAT64).reshape(-1), np.full(len(d), d.shape[1]))


def _transforms_type(spec: FieldSpec) -> ColumnType:
    text = f"<U{spec.strings}"
    members = [("parent", text), ("child", text), ("translation", "<f8", (3,)), ("rotation", "<f8", (4,))]
    return ColumnType(np.dtype(members), (None,))


def _transforms(spec: FieldSpec, found: Found) -> Values:
    child = found["child"]
    is_one = isinstance(found["rotation.w"], np.ndarray)  # a transform a message, whose names are whole texts
    shapes = np.ones(len(child), np.int64) if is_one or not isinstance(child, Ragged) else child.shapes
    values = np.empty(int(shapes.sum()), _transforms_type(spec).dtype)
    for word in ("parent", "child"):
        values[word] = _short_texts(found[word], spec.strings) if is_one else _array(found[word])
    for word, axes in _TRANSFORM.items():
        for i, axis in enumerate(axes):
            values[word][:, i] = _array(found[f"{word}.{axis}"])
    return Ragged(values, shapes)


def _short_texts(texts: Values, width: int) -> list[str]:
    short = []
    for row in range(len(texts)):
        try:
            text = texts[row].tobytes().decode("utf-8")
        except UnicodeDecodeError as error:
            raise UnfitError(row, f"a frame's name is no text: {error}") from error
        if len(text) > width:
            raise UnfitError(
                row,
                f"text {text[:80]!r} has {len(text)} characters, the column keeps {width}; raise `strings`",
            )
        short.append(text)
    return short


def _transform_paths(parent: str, prefix: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the paths of a list of transforms, or of a message that is one."""
    axes = [f"{word}.{axis}" for word, axes in _TRANSFORM.items() for axis in axes]
    one = {"parent": parent, "child": "child_frame_id", **{path: f"{prefix}{path}" for path in axes}}
    return {word: f"transforms[].{path}" for word, path in one.items()}, one


def _same(*words: str) -> dict[str, str]:
    return {word: word for word in words}


def _no_picture(spec: FieldSpec, found: Found) -> Values:
    raise UnfitError(0, "what a packet of video is depends on those before it")


_QUATERNION = ("x", "y", "z", "w")
_POSITION = ("latitude", "longitude", "altitude")
# nav_msgs/Odometry: the pose of its child frame in that of its header.
_ODOMETRY = {
    "parent": "header.frame_id",
    "child": "child_frame_id",
    **{f"translation.{axis}": f"pose.pose.position.{axis}" for axis in "xyz"},
    **{f"rotation.{axis}": f"pose.pose.orientation.{axis}" for axis in "xyzw"},
}
_OF_PACKETS = (_same("format", "data"), _same("encoding", "data"))

ADAPTERS: dict[str, Adapter] = {
    "image": Adapter(
        images.SHAPES,
        images.column_type,
        images.convert,
        has_value=images.has_value,
        value_words=images.VALUE_WORDS,
        value_bytes=images.MAX_EMPTY,
    ),
    FORMS: Adapter(
        images.SHAPES,
        lambda spec: images.FORMS_TYPE,
        images.forms,
        has_value=images.has_value,
        value_words=images.VALUE_WORDS,
        value_bytes=images.MAX_EMPTY,
    ),
    point_clouds.NAME: Adapter(
        point_clouds.SHAPES, point_clouds.column_type, point_clouds.convert, takes_words=True
    ),
    point_clouds.TIMES: Adapter(
        point_clouds.SHAPES, point_clouds.column_type, point_clouds.convert, takes_words=True
    ),
    "scan": Adapter((_same("ranges"),), lambda spec: ColumnType(_FLOAT32, (None,)), _scan),
    "navsat": Adapter(
        (_same(*_POSITION),), lambda spec: ColumnType(_FLOAT64, (3,)), _columns(_FLOAT64, *_POSITION)
    ),
    # The matrix is made after resampling, which interpolates quaternions, not elements of matrices.
    "rotation_matrix": Adapter(
        (_same(*_QUATERNION),), lambda spec: ColumnType(_FLOAT64, (4,)), _columns(_FLOAT64, *_QUATERNION)
    ),
    # ROS 1 and Foxglove write K and D as capitals, ROS 2 doesn't.
    "camera_matrix": Adapter(
        ({"k": "k"}, {"k": "K"}), lambda spec: ColumnType(_FLOAT64, (3, 3)), _camera_matrix
    ),
    "distortion": Adapter(({"d": "d"}, {"d": "D"}), lambda spec: ColumnType(_FLOAT64, (None,)), _distortion),
    joints.EACH: Adapter((), lambda spec: ColumnType(_FLOAT64, (len(spec.names), 2)), joints.convert),
    joints.NAME: Adapter(
        (), lambda spec: ColumnType(_FLOAT64, (len(spec.names),)), joints.convert, has_value=joints.has_value
    ),
    "transforms": Adapter(
        (
            *_transform_paths("header.frame_id", "transform."),
            *_transform_paths("parent_frame_id", ""),
            _ODOMETRY,
        ),
        _transforms_type,
        _transforms,
    ),
    VIDEO: Adapter(_OF_PACKETS, images.column_type, _no_picture),
    PACKETS: Adapter(_OF_PACKETS, lambda spec: BYTES, _no_picture),
    KEYFRAME: Adapter(_OF_PACKETS, lambda spec: ColumnType(np.dtype("<i4")), _no_picture),
}
