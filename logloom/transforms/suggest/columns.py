"""Suggested columns for messages of a type, and their resample policies.

Here: `candidates`, a function of a definition only, from its names and sub-messages.
Elsewhere: checks against messages (samples), the recipe around it (recipe). A position may be interpolated
linearly, a rotation by slerp, a heading that its message defines by angle; integers, enums, booleans,
matrices and other values without a meaningful mean take the nearest message. A name alone doesn't make an
angle: a steering wheel may turn several times, and `angle` would bend its values.
"""

from __future__ import annotations

import contextlib
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

import numpy as np

from logloom.errors import UsageError
from logloom.io.logs.interface import TABLE_ROW, FieldSpec, TopicInfo
from logloom.io.logs.messages import joints
from logloom.io.logs.messages.definitions import Array, Field, Number, Struct, Text
from logloom.io.logs.table_files.times import TIME_COLUMNS
from logloom.values import dataclass

MAX_COLUMNS = 24  # of one topic
MAX_DEPTH = 6  # depth of sub-messages to search

_AXES = ("x", "y", "z")
_QUATERNION = ("x", "y", "z", "w")
# Fields of messages of joints, and their policies; which of them a message has depends on its type.
_JOINTS: Mapping[str, str] = {
    "position": "linear",
    "velocity": "linear",
    "effort": "nearest",
    "transforms": "nearest",
    "twist": "linear",
    "wrench": "nearest",
    "joints[].position": "linear",
    "joints[].velocity": "linear",
    "joints[].effort": "nearest",
    "points[0].positions": "previous",
    "points[0].transforms": "previous",
    "actual.positions": "linear",
    "feedback.positions": "linear",
    "desired.positions": "linear",
    "reference.positions": "linear",
    "interface_values.position": "linear",
    "interface_values.velocity": "linear",
    "interface_values.effort": "nearest",
    "displacements": "previous",
    "velocities": "previous",
}
# Names of sub-messages that are omitted in a column's name.
_WRAPPERS = frozenset({"pose", "twist", "accel", "wrench", "transform", "vector", "point"})

# Fields that are headings in radians by the definition of their type, by `pkg/Name`.
_HEADINGS: Mapping[str, str] = {
    "geometry_msgs/Pose2D": "theta",
    "nav_2d_msgs/Pose2D32": "theta",
    "px4_msgs/VehicleLocalPosition": "heading",
    "turtlesim/Pose": "theta",
    "vision_msgs/Pose2D": "theta",
}
# Values without a meaningful mean, though they may be floats.
_APART = frozenset(
    {
        "id", "ids", "mode", "status", "state", "type", "kind", "class", "label", "index", "flag", "flags",
        "gear", "enum", "code", "matrix", "rotation", "orientation", "quaternion", "quat", "attitude",
        "covariance", "intrinsics", "extrinsics", "transform", "homography", "deg", "degree", "degrees",
        "lon", "lng", "longitude", "q", "q0", "q1", "q2", "q3", "q4",
    }
)  # fmt: skip
_TURNED = frozenset({"rotation", "orientation", "attitude", "quaternion", "quat"})
_COVARIANCE = "covariances; add them by hand where they are wanted"
_MANY = f"the first {MAX_COLUMNS} columns are enough to start with"

_TWIST = {"linear": ("linear_velocity", "m s-1"), "angular": ("angular_velocity", "rad s-1")}
_ACCEL = {"linear": ("linear_acceleration", "m s-2"), "angular": ("angular_acceleration", "rad s-2")}
# Units by the name of a vector; conventions of ROS and Foxglove.
_VECTORS = {
    "position": "m",
    "translation": "m",
    "point": "m",
    "linear_velocity": "m s-1",
    "angular_velocity": "rad s-1",
    "linear_acceleration": "m s-2",
    "angular_acceleration": "rad s-2",
    "magnetic_field": "T",
    "force": "N",
    "torque": "N m",
}
# Units of the fields of a type, by `pkg/Name`.
_UNITS: Mapping[str, Mapping[str, str]] = {
    "turtlesim/Pose": {"x": "m", "y": "m", "linear_velocity": "m s-1", "angular_velocity": "rad s-1"},
    "geometry_msgs/Pose2D": {"x": "m", "y": "m"},
    "geometry_msgs/Point": {"": "m"},
    "geometry_msgs/Point32": {"": "m"},
    "sensor_msgs/Temperature": {"temperature": "degC", "variance": "degC2"},
    "sensor_msgs/FluidPressure": {"fluid_pressure": "Pa", "variance": "Pa2"},
    "sensor_msgs/Illuminance": {"illuminance": "lx", "variance": "lx2"},
    "sensor_msgs/Range": {"range": "m", "min_range": "m", "max_range": "m", "field_of_view": "rad"},
    "sensor_msgs/BatteryState": {"voltage": "V", "current": "A", "temperature": "degC"},
}


@dataclass(frozen=True)
class Candidate:
    """A column that may be suggested, with `keys` of a recipe, without topic and tolerance.

    Attributes:
        is_text: it is a comment, unless no column of the recipe has numbers.
        parts: columns to suggest in its place if it can't be built.
    """

    suffix: str
    keys: Mapping[str, Any]
    is_text: bool = False
    parts: tuple[Candidate, ...] = ()

    @property
    def policy(self) -> str:
        return str(self.keys["resample"])

    def with_keys(self, **keys: Any) -> Candidate:
        """Replace keys; those that are None are dropped."""
        merged = {**self.keys, **keys}
        return replace(self, keys={key: value for key, value in merged.items() if value is not None})


@dataclass
class Candidates:
    """Suggested columns of a topic.

    Attributes:
        left_out: names by the reason why they aren't columns.
    """

    columns: list[Candidate] = field(default_factory=list)
    left_out: dict[str, list[str]] = field(default_factory=dict)

    def add(self, columns: Iterable[Candidate]) -> None:
        """Add columns, as many as are useful."""
        for column in columns:
            if sum(other.is_text == column.is_text for other in self.columns) == MAX_COLUMNS:
                self.leave_out(column.suffix, _MANY)
            else:
                self.columns.append(column)

    def leave_out(self, name: str, reason: str) -> None:
        self.left_out.setdefault(reason, []).append(name)


def short_type(info: TopicInfo) -> str:
    """Return pkg/Name for any spelling in logs."""
    parts = re.split(r"/|::|\.", info.type)
    return "/".join(part for part in parts if part not in ("msg", "srv", ""))


def known(info: TopicInfo) -> list[Candidate]:
    """Return the columns of a type that an adapter reads, or of which few fields are useful columns."""
    return list(_KNOWN.get(short_type(info).rsplit("/", 1)[-1], ()))


def joint_columns(root: Struct) -> list[Candidate]:
    """Return the columns of joints by name; messages tell which joints there are."""
    found = []
    for path, policy in _JOINTS.items():
        with contextlib.suppress(UsageError):
            joints.column_type(FieldSpec((path,), joints.NAME), root)
            suffix = _suffix([re.sub(r"\[.*", "", part) for part in path.split(".")])
            keys = {"as": joints.NAME, "field": path, "resample": policy}
            found.append(Candidate(suffix, keys))
    return found


def with_joints(made: Candidates, root: Struct) -> Candidates:
    """Return the columns of a message, with those of joints instead of the lists that they read."""
    own = joint_columns(root)
    specs = [FieldSpec((str(column.keys["field"]),), joints.NAME) for column in own]
    read = {re.split(r"[.\[]", path)[0] for spec in specs for path in joints.paths(spec, root).values()}

    def is_other(column: Candidate) -> bool:
        fields = column.keys.get("field", ())
        paths = (fields,) if isinstance(fields, str) else fields
        return not {re.split(r"[.\[]", path)[0] for path in paths} & read

    return Candidates(own + [column for column in made.columns if is_other(column)], made.left_out)


def transforms() -> Candidate:
    """Return the column of a topic with transforms of several frames."""
    return _nearest("", **{"as": "transforms", "strings": 64})


def pictures() -> Candidate:
    """Return the column of a topic with images of pixels, or packets of video."""
    return _nearest("", **{"as": "image"})


def candidates(info: TopicInfo, root: Struct) -> Candidates:
    """Return the columns of a message's fields, and the fields that are left out.

    Args:
        root: of the topic's messages.
    """
    found = Candidates()
    walk = _Walk(info, found)
    found.add(walk.struct(root, "", ()))
    return found


def json_candidates(properties: Mapping[str, str]) -> Candidates:
    """Return the columns of JSON messages without a schema.

    Args:
        properties: the `dtype` by path.
    """
    found = Candidates()
    none = Struct("", ())
    for path, dtype in properties.items():
        names = path.replace("[]", "").split(".")
        if path in TIME_COLUMNS or names[0] == "header":
            continue
        is_text = dtype == "string"
        item = Field(
            names[-1], Text() if is_text else Number(np.dtype(dtype)), Array() if "[]" in path else None
        )
        policy = "nearest" if is_text else _policy(item, "".join(names[-2:-1]), none)
        keys = {"field": path, "resample": policy, "dtype": dtype}
        found.add([Candidate(_suffix(names), keys, is_text)])
    return found


@dataclass
class _Walk:
    """A single walk through a definition."""

    info: TopicInfo
    found: Candidates

    @property
    def has_conventions(self) -> bool:
        """Whether lengths are metres and angles radians, as in ROS and Foxglove."""
        return self.info.encoding in ("cdr", "ros1") or self.info.type.startswith("foxglove.")

    def struct(self, struct: Struct, path: str, names: tuple[str, ...]) -> Iterator[Candidate]:
        """Add columns of a message or sub-message.

        Args:
            path: of the sub-message, with a dot at its end; "" for the message.
            names: prefix of a column's suffix.
        """
        fields = [f for f in struct.fields if f.name != "header" and (path or not self._is_stamp(f))]
        if vector := self._vector(fields, path, names, struct):
            yield vector
            return
        grouped = _quaternions(fields, alone=False)
        for prefix, parts in grouped.items():
            suffix = _suffix((*names, "rotation" if prefix in ("q", "q_") else prefix.rstrip("_")))
            yield _slerp(suffix, [path + part for part in parts])
        inside = {part for parts in grouped.values() for part in parts}
        for item in fields:
            if item.name not in inside:
                yield from self._field(item, path, names, struct)

    def _vector(
        self, fields: Sequence[Field], path: str, names: tuple[str, ...], struct: Struct
    ) -> Candidate | None:
        """Return the only column of a sub-message (or message) that is a quaternion or a vector."""
        here = path.rstrip(".")
        quaternion = _quaternions(fields, alone=True).get("")
        if quaternion:
            in_order = [f.name for f in fields] == list(_QUATERNION)
            paths = [here] if here and in_order else [path + axis for axis in quaternion]
            return _slerp(_suffix(names) or "rotation", paths)
        if not fields or not all(_is_float(f) and f.array is None for f in fields):
            return None
        is_vector = [f.name for f in fields] in (list(_AXES), list(_AXES[:2]))
        policy, *others = {_policy(f, _last(path), struct) for f in fields}
        dtypes = {f.type.dtype.str if isinstance(f.type, Number) else "" for f in fields}
        if others or len(dtypes) > 1:
            return None
        if not (is_vector or (here and policy == "linear")):
            return None
        word = names[-1] if names else here.rsplit(".", 1)[-1]
        unit = self._unit(struct, "") or (_VECTORS.get(word, "") if is_vector else "")
        unit = "rad" if policy == "angle" else unit
        paths = [here] if here else [f.name for f in fields]
        keys = {"field": _paths(paths), "resample": policy}
        return Candidate(_suffix(names), keys | ({"unit": unit} if unit and self.has_conventions else {}))

    def _field(self, item: Field, path: str, names: tuple[str, ...], owner: Struct) -> Iterator[Candidate]:
        where, kind = path + item.name, item.type
        if "covariance" in item.name.lower():
            self.found.leave_out(where, _COVARIANCE)
        elif isinstance(kind, Text) and item.array is None:
            yield Candidate(_suffix((*names, item.name)), {"field": where, "resample": "nearest"}, True)
        elif isinstance(kind, Struct) and item.array is None and not kind.is_time and _may_interpolate(kind):
            inner = self._inner_names(item, owner, names)
            yield from self.struct(kind, f"{where}.", inner)
        else:
            policy = _policy(item, _last(path), owner)
            keys: dict[str, Any] = {"field": where, "resample": policy}
            unit = self._unit(owner, item.name) or ("rad" if policy == "angle" else "")
            if unit and self.has_conventions:
                keys["unit"] = unit
            suffix = (*names, item.name)
            parts: tuple[Candidate, ...] = ()
            if isinstance(kind, Struct) and item.array is not None:
                parts = tuple(self._elements(kind, f"{where}[].", suffix, MAX_DEPTH))
            yield Candidate(_suffix(suffix), keys, parts=parts)

    def _elements(self, struct: Struct, path: str, names: tuple[str, ...], depth: int) -> Iterator[Candidate]:
        """Yield the columns of a list's elements, for a list that can't be one column."""
        plain = [f for f in struct.fields if f.array is None]
        axes = [f.name for f in plain]
        if len(plain) == len(struct.fields) and axes in (list(_AXES), list(_AXES[:2]), list(_QUATERNION)):
            yield _nearest(_suffix(names), field=[path + axis for axis in axes])
            return
        for item in struct.fields:
            suffix = (*names, item.name)
            if isinstance(item.type, Struct) and not item.type.is_time:
                # A column holds lists of lists, but no lists within these.
                index = "" if item.array is None else "[]" if path.count("[]") < 2 else "[0]"
                if not depth or item.name == "header":
                    continue
                parts = self._elements(item.type, f"{path}{item.name}{index}.", suffix, depth - 1)
                if item.array is None:
                    yield from parts
                else:
                    whole = _nearest(_suffix(suffix), field=path + item.name)
                    yield replace(whole, parts=tuple(parts))
            else:
                one = _nearest(_suffix(suffix), field=path + item.name)
                yield replace(one, is_text=isinstance(item.type, Text))

    def _is_stamp(self, item: Field) -> bool:
        """Return whether a field of a message is its time, which all rows have."""
        kind = item.type
        if item.array is not None:
            return False
        if self.info.type == TABLE_ROW:
            return item.name in TIME_COLUMNS
        is_time = (
            kind.is_time
            if isinstance(kind, Struct)
            else isinstance(kind, Number) and kind.dtype.itemsize == 8
        )
        return is_time and item.name in TIME_COLUMNS

    def _inner_names(self, item: Field, owner: Struct, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return the prefix of a sub-message's columns."""
        present = {f.name for f in owner.fields}
        if item.name in _WRAPPERS:
            return names
        if present == {"linear", "angular"}:
            words = _ACCEL if owner.name.rsplit("/", 1)[-1].lower().startswith("accel") else _TWIST
            return (*names, words[item.name][0])
        if item.name == "orientation" and "position" in present:
            return (*names, "rotation")
        return (*names, item.name)

    def _unit(self, owner: Struct, name: str) -> str:
        return _UNITS.get(_type_name(owner), {}).get(name, "")


def _is_float(item: Field) -> bool:
    return isinstance(item.type, Number) and item.type.dtype.kind == "f"


def _may_interpolate(struct: Struct, depth: int = 0) -> bool:
    """Return whether a sub-message has a float outside arrays, so that its fields are checked one by one."""
    if depth > MAX_DEPTH:
        return False
    return any(
        f.array is None
        and (_is_float(f) or (isinstance(f.type, Struct) and _may_interpolate(f.type, depth + 1)))
        for f in struct.fields
    )


def _policy(item: Field, within: str, owner: Struct) -> str:
    """Return the policy for a field of numbers, by its type, its name and its sub-message."""
    ragged = item.array is not None and item.array.length is None
    if ragged or not _is_float(item) or set(_words(item.name)) & _APART:
        return "nearest"
    if item.name == _HEADINGS.get(_type_name(owner)):
        return "angle"
    return "nearest" if set(_words(within)) & _TURNED and item.name in _AXES else "linear"


def _type_name(struct: Struct) -> str:
    """Return pkg/Name of a message or sub-message."""
    return re.sub(r"[.]|::", "/", struct.name).replace("/msg/", "/")


def _last(path: str) -> str:
    """Return the name of the sub-message at the end of a path."""
    return path.rstrip(".").rpartition(".")[2]


def _words(name: str) -> list[str]:
    return re.split(r"[^0-9a-z]+", _snake(name).strip("_"))


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _quaternions(fields: Sequence[Field], alone: bool) -> dict[str, list[str]]:
    """Find floats named {prefix}x, y, z and w, by prefix; without one only if there is nothing else."""
    plain = {f.name for f in fields if _is_float(f) and f.array is None}
    found = {}
    for name in sorted(plain):
        prefix = name[:-1]
        parts = [prefix + axis for axis in _QUATERNION]
        if name.endswith("w") and plain.issuperset(parts) and (not prefix) == alone:
            found[prefix] = parts
    return found if not alone or len(fields) == len(_QUATERNION) else {}


def _suffix(names: Sequence[str]) -> str:
    """Convert names of fields to parts of a column's name."""
    parts = [part for name in names if name for part in _parts(name)]
    return ".".join(f"_{part}" if part[0].isdigit() else part for part in parts)


def _parts(name: str) -> list[str]:
    """Convert a field's name; that of a table's column may have any characters, and dots part it."""
    snake = _snake(name)
    if re.fullmatch(r"[a-z0-9_]+", snake):
        return [snake[:60]]
    plain = unicodedata.normalize("NFKD", snake.casefold()).encode("ascii", "ignore").decode()
    parts = [re.sub(r"[^a-z0-9]+", "_", part).strip("_")[:60] for part in plain.split(".")]
    return [part for part in parts if part] or ["column"]


def _paths(paths: Sequence[str]) -> str | list[str]:
    return paths[0] if len(paths) == 1 else list(paths)


def _slerp(suffix: str, paths: Sequence[str]) -> Candidate:
    return Candidate(suffix, {"field": _paths(paths), "resample": "slerp"})


def _nearest(suffix: str, **keys: Any) -> Candidate:
    return Candidate(suffix, {**keys, "resample": "nearest"})


def _static(suffix: str, **keys: Any) -> Candidate:
    return Candidate(suffix, {**keys, "resample": "static"})


# By the last part of the type's name: packages differ between ROS 1 and 2, the names of their types don't.
_KNOWN: Mapping[str, Sequence[Candidate]] = {
    "NavSatFix": [_nearest("", **{"as": "navsat"})],
    "LocationFix": [_nearest("", **{"as": "navsat"})],
    "LaserScan": [_nearest("", **{"as": "scan", "unit": "m"})],
    "PointCloud2": [_nearest("", **{"as": "points[x,y,z]", "unit": "m"})],
    "PointCloud": [_nearest("", **{"as": "points[x,y,z]", "unit": "m"})],
    "CompressedImage": [_nearest("", field="data")],
    "Image": [pictures()],
    "RawImage": [pictures()],
    "CameraInfo": [_static("intrinsics", field="k"), _static("distortion", field="d")],
    "CameraCalibration": [_static("intrinsics", field="k"), _static("distortion", field="d")],
    "TFMessage": [transforms()],
    "tfMessage": [transforms()],
    "FrameTransforms": [transforms()],
}
