"""A recipe for logs that nobody wrote a recipe for yet; it builds as it stands.

Here: which columns, clock, tolerances and max_delay suit what the logs hold, and the text.
Elsewhere: what is asked of the messages themselves (sampling), what a recipe means (resolve).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from logloom.errors import LogloomError, UsageError
from logloom.io.logs.base import FieldSpec, Log, TopicInfo
from logloom.recipe import Recipe
from logloom.recipe import yaml as text
from logloom.recipe.values import duration_text
from logloom.schema import RESERVED_LAST_PARTS, RESERVED_NAMES, ColumnType
from logloom.transforms.match import TEMPLATES, fill_template, naming_uri, unique_template
from logloom.transforms.resolve import resolve
from logloom.transforms.sampling import Sample, sample

RATES = (0.1, 0.2, 0.5, 1, 2, 5, 10)  # Hz; nobody is surprised by rows at these
MIN_TICKS = 10  # a log shorter than this many ticks gets its rows from a topic
MAX_COLUMNS = 24  # of one topic whose type is not known here
_MS = 1_000_000
_NICE = (1, 2, 5)


@dataclass(frozen=True)
class _Topic:
    """A topic over all logs.

    Attributes:
        info, log: of the first log that has messages of it.
        messages: in all logs.
        period: ns between messages, in the log where that is longest; 0 where there are fewer than two.
    """

    info: TopicInfo
    log: Log
    messages: int
    period: int

    @property
    def name(self) -> str:
        return self.info.topic

    @property
    def type(self) -> str:
        """pkg/Name, however the log writes it."""
        return "/".join(
            part for part in re.split(r"/|::|\.", self.info.type) if part not in ("msg", "srv", "")
        )

    @property
    def base(self) -> str:
        """What the columns of the topic start with."""
        parts = [re.sub(r"[^a-z0-9_]", "_", part.lower()) for part in self.name.split("/") if part]
        return ".".join(f"_{part}" if part[0].isdigit() else part for part in parts) or "topic"


@dataclass(frozen=True)
class _Column:
    """A column that may be suggested; `keys` as a recipe has them, without topic and tolerance."""

    suffix: str
    keys: Mapping[str, Any]


def suggest(logs: Mapping[str, Log], storage_options: Mapping[str, Any] | None = None) -> str:
    """A recipe, as YAML, whose URIs are absolute; every column has a comment that says where it comes from.

    Args:
        logs: by log_id. Some messages are looked at, for their stamps and encodings.
        storage_options: for fsspec, by protocol.

    Raises:
        UsageError: no log, or none with messages that a column can hold.
    """
    topics = _topics(logs)
    if not topics:
        raise UsageError("no log has messages, so there is nothing to make a recipe of")
    found = sample({topic.name: topic.info for topic in topics}, [logs[log_id] for log_id in sorted(logs)])
    head = {
        "name": _dataset_name(logs),
        "logs": [uri for log_id in sorted(logs) for uri in logs[log_id].summary.uris],
        "log_id": _template(logs, storage_options),
        "time": _time(topics, found),
        "clock": _clock(logs, topics),
    }
    lines: list[str] = []
    taken: set[str] = set()
    for topic in topics:
        lines += _topic_lines(topic, found, head, logs, taken)
    if not taken:
        raise UsageError("no topic of these logs has a field that a column can hold:\n" + "\n".join(lines))
    return "\n".join([*_head_lines(head, found), "columns:", *lines, "outputs:", "  tar: {}", ""])


def _topics(logs: Mapping[str, Log]) -> list[_Topic]:
    """Topics with messages, in name order."""
    found: dict[str, _Topic] = {}
    for log_id in sorted(logs):
        for name, info in logs[log_id].summary.topics.items():
            if info.num_messages:
                period = (info.last - info.first) // (info.num_messages - 1) if info.num_messages > 1 else 0
                known = found.get(name) or _Topic(info, logs[log_id], 0, 0)
                messages = known.messages + info.num_messages
                found[name] = _Topic(known.info, known.log, messages, max(known.period, period))
    return [found[name] for name in sorted(found)]


# --- the head -------------------------------------------------------------------------------------------


def _dataset_name(logs: Mapping[str, Log]) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", min(logs)).strip("-.")[:60] or "dataset"


def _template(logs: Mapping[str, Log], options: Mapping[str, Any] | None) -> str:
    """The template that names the logs as they are named here."""
    uris = {log_id: naming_uri(log.summary.uris[0], options) for log_id, log in logs.items()}
    for template in TEMPLATES:
        if all(fill_template(template, uri) == log_id for log_id, uri in uris.items()):
            return template
    return unique_template(uris.values()) or "{path}"


def _time(topics: Sequence[_Topic], found: Sample) -> dict[str, Any]:
    by_log = {topic.name: "log" for topic in topics if topic.name in found.by_log_time}
    delay = "none" if found.max_delay is None else duration_text(found.max_delay)
    return {"by": ["header", "log"], "max_delay": delay} | ({"topics": by_log} if by_log else {})


def _clock(logs: Mapping[str, Log], topics: Sequence[_Topic]) -> dict[str, Any]:
    """The rate of the busiest topic, at most 10 Hz; a topic where a log is too short for a rate."""
    periods = [topic.period for topic in topics if topic.period > 0]
    fastest = 1e9 / min(periods) if periods else 0.0
    # A little slower than the next step still counts: 9.98 Hz is 10.
    rate = max((rate for rate in RATES if rate <= fastest * 1.05), default=RATES[0])
    shortest = min(log.summary.last - log.summary.first for log in logs.values())
    if shortest * rate >= MIN_TICKS * 10**9:
        return {"rate": rate}
    return {"topic": max(topics, key=lambda topic: topic.messages).name}


def _head_lines(head: Mapping[str, Any], found: Sample) -> Iterator[str]:
    comments = {
        "logs": "URIs and globs; relative ones start at this file's folder",
        "time": found.comment,
        "clock": "Hz, or {topic: ...} for a row per message",
    }
    for key, value in head.items():
        comment = f"  # {comments[key]}" if key in comments else ""
        if key == "logs":
            yield f"logs:{comment}"
            yield from (f"- {text.flow(uri)}" for uri in value)
        else:
            yield f"{key}: {text.flow(value)}{comment}"


# --- columns --------------------------------------------------------------------------------------------


def _topic_lines(
    topic: _Topic, found: Sample, head: Mapping[str, Any], logs: Mapping[str, Log], taken: set[str]
) -> Iterator[str]:
    """The columns of one topic, and as comments what was left out of it."""
    hertz = f"{1e9 / topic.period:.4g} Hz" if topic.period else "once"
    many = "1 message" if topic.messages == 1 else f"{topic.messages} messages"
    yield f"  # {topic.name}: {topic.info.type}, {many}, {hertz}"
    reason = found.unusable.get(topic.name)
    if reason:
        yield f"  # left out: {reason}"
        return
    candidates, left_out = _candidates(topic, found)
    for column in candidates:
        name = _free_name(topic.base, column.suffix, taken)
        keys = {"topic": topic.name, **column.keys, **_resampling(topic, column.keys)}
        problem = _problem(name, keys, head, logs)
        if problem is None:
            taken.add(name)
            yield f"  {name}: {text.flow(keys)}"
        else:
            left_out.append(f"{column.suffix or topic.name}: {problem}")
    yield from (f"  # left out: {reason}" for reason in left_out)


def _free_name(base: str, suffix: str, taken: set[str]) -> str:
    is_new = suffix and suffix != base.rsplit(".", 1)[-1]
    name = f"{base}.{suffix}" if is_new else base
    if name in RESERVED_NAMES or name.rsplit(".", 1)[-1] in RESERVED_LAST_PARTS:
        name += "_"
    while name in taken:
        name += "_"
    return name


def _resampling(topic: _Topic, keys: Mapping[str, Any]) -> dict[str, Any]:
    if keys.get("resample") == "static" or not topic.period:
        return {"resample": "static"}
    return {
        "resample": keys.get("resample", "nearest"),
        "tolerance": duration_text(nice(topic.period * 3 // 2)),
    }


def nice(nanoseconds: int) -> int:
    """The next of 1, 2, 5, 10, 20, … ms."""
    step = _MS
    while True:
        for digit in _NICE:
            if digit * step >= nanoseconds:
                return digit * step
        step *= 10


def _problem(
    name: str, keys: Mapping[str, Any], head: Mapping[str, Any], logs: Mapping[str, Log]
) -> str | None:
    """Why this column can't be built; None if it can."""
    # The clock is left aside: it is checked with the whole, and may be a topic that lacks a stamp here.
    data = {**head, "clock": {"rate": 1}, "columns": {name: dict(keys)}, "outputs": {"tar": {}}}
    try:
        resolve(Recipe.model_validate(data), logs)
    except LogloomError as error:
        return str(error).splitlines()[0].removeprefix(f"recipe: columns.{name}").lstrip(".: ")
    return None


def _candidates(topic: _Topic, found: Sample) -> tuple[list[_Column], list[str]]:
    """The columns that suit a topic, and what was left out, with reasons."""
    columns = _KNOWN.get(topic.type.rsplit("/", 1)[-1])
    if columns is None:
        return _numbers(topic)
    chosen = []
    for column in columns:
        keys = dict(column.keys)
        if keys.get("as") == "image" and topic.name in found.image_dtypes:
            keys["dtype"] = found.image_dtypes[topic.name]
        for path in [keys["field"]] if "field" in keys else []:
            if _type_of(topic, path) is None and _type_of(topic, path.upper()) is not None:
                keys["field"] = path.upper()  # ROS 1 writes K where ROS 2 writes k
        if keys.get("resample") == "slerp" and topic.name in found.zero_rotations:
            keys["resample"] = "nearest"  # which takes quaternions of norm zero as they are
        chosen.append(_Column(column.suffix, keys))
    return chosen, []


def _type_of(topic: _Topic, path: str) -> ColumnType | None:
    try:
        return topic.log.column_type(topic.name, FieldSpec(paths=(path,)))
    except LogloomError:
        return None


def _numbers(topic: _Topic) -> tuple[list[_Column], list[str]]:
    """The fields of a type that is not known here: numbers are taken, text is left out."""
    from logloom.io.logs.decoding.languages import parse

    try:
        root = parse(topic.info)
    except LogloomError as error:
        return [], [str(error).splitlines()[0]]
    columns: list[_Column] = []
    left_out: list[str] = []
    for field in root.fields:
        if field.name == "header":
            continue
        try:
            ctype = topic.log.column_type(topic.name, FieldSpec(paths=(field.name,)))
        except LogloomError as error:
            left_out.append(f"{field.name}: {str(error).splitlines()[0]}")
            continue
        if ctype.kind == "string":
            left_out.append(f"{field.name}: text; add it by hand where it is wanted")
        elif len(columns) == MAX_COLUMNS:
            left_out.append(f"{field.name}: the first {MAX_COLUMNS} fields are enough to start with")
        else:
            columns.append(_Column(_suffix(field.name), {"field": field.name, "resample": _policy(ctype)}))
    return columns, left_out


def _suffix(field: str) -> str:
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", field).lower()
    return f"_{name}" if name[0].isdigit() else name


def _policy(ctype: ColumnType) -> str:
    is_float = ctype.kind == "array" and ctype.dtype.names is None and ctype.dtype.kind == "f"
    return "linear" if is_float and not ctype.is_ragged else "nearest"


def _linear(suffix: str, field: str, unit: str) -> _Column:
    return _Column(suffix, {"field": field, "resample": "linear"} | ({"unit": unit} if unit else {}))


def _nearest(suffix: str, **keys: Any) -> _Column:
    return _Column(suffix, {**keys, "resample": "nearest"})


def _static(suffix: str, **keys: Any) -> _Column:
    return _Column(suffix, {**keys, "resample": "static"})


def _pose(prefix: str) -> list[_Column]:
    return [
        _linear("position", f"{prefix}position", "m"),
        _Column("rotation", {"field": f"{prefix}orientation", "resample": "slerp"}),
    ]


def _twist(prefix: str) -> list[_Column]:
    return [
        _linear("linear_velocity", f"{prefix}linear", "m s-1"),
        _linear("angular_velocity", f"{prefix}angular", "rad s-1"),
    ]


# By the last part of the type's name: packages differ between ROS 1 and 2, the names of their types don't.
_KNOWN: Mapping[str, Sequence[_Column]] = {
    "Imu": [
        _linear("angular_velocity", "angular_velocity", "rad s-1"),
        _linear("linear_acceleration", "linear_acceleration", "m s-2"),
        _nearest("orientation", field="orientation"),
    ],
    "Odometry": _pose("pose.pose.") + _twist("twist.twist."),
    "PoseStamped": _pose("pose."),
    "PoseWithCovarianceStamped": _pose("pose.pose."),
    "TwistStamped": _twist("twist."),
    "TwistWithCovarianceStamped": _twist("twist.twist."),
    "Twist": _twist(""),
    "Vector3Stamped": [_linear("", "vector", "")],
    "PointStamped": [_linear("", "point", "m")],
    "MagneticField": [_linear("", "magnetic_field", "T")],
    "NavSatFix": [_nearest("", **{"as": "navsat"})],
    "LocationFix": [_nearest("", **{"as": "navsat"})],
    "LaserScan": [_nearest("", **{"as": "scan", "unit": "m"})],
    "PointCloud2": [_nearest("", **{"as": "points[x,y,z]", "unit": "m"})],
    "PointCloud": [_nearest("", **{"as": "points[x,y,z]", "unit": "m"})],
    "CompressedImage": [_nearest("", field="data")],
    "Image": [_nearest("", **{"as": "image"})],
    "RawImage": [_nearest("", **{"as": "image"})],
    "CameraInfo": [_static("intrinsics", field="k"), _static("distortion", field="d")],
    "TFMessage": [_nearest("", **{"as": "transforms", "strings": 64})],
    "tfMessage": [_nearest("", **{"as": "transforms", "strings": 64})],
    "FrameTransforms": [_nearest("", **{"as": "transforms", "strings": 64})],
    "JointState": [_nearest(name, field=name) for name in ("position", "velocity", "effort")],
}
