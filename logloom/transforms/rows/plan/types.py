"""The types of topics' columns, from message definitions and the recipe.

Here: the values to take from a message, and the types of messages and rows.
Elsewhere: topics of logs (topics), the plan of all columns (resolve).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from logloom.blocks import numbers_in
from logloom.errors import OF_CONTENT
from logloom.io.logs.interface import FieldSpec, Log
from logloom.io.logs.messages.adapters import KEYFRAME, PACKETS, VIDEO
from logloom.io.logs.messages.fields import UntypedError
from logloom.io.logs.messages.images import DEPTH_UNITS
from logloom.io.logs.messages.point_clouds import settled
from logloom.io.video.preview import PACKETS as PACKET_TYPES
from logloom.io.video.preview import holds_video
from logloom.recipe import TopicColumn
from logloom.recipe.columns import TEXT
from logloom.recipe.mistakes import Mistake
from logloom.resample.policies import POLICIES
from logloom.schema import ColumnType
from logloom.transforms.rows.plan.remedies import disagreement, ways_of_json, ways_to_resample
from logloom.transforms.rows.plan.row_plan import is_numeric, row_type
from logloom.transforms.rows.plan.topics import ResolvedTopic
from logloom.validation import Path

OF_VIDEO = (VIDEO, PACKETS, KEYFRAME)
_VIDEO = re.compile(r"CompressedVideo|FFMPEGPacket|H26[45]|ffmpeg_image|theora", re.IGNORECASE)
_ROTATION = "rotation_matrix"


def casts(column: TopicColumn) -> bool:
    """Return whether `dtype` decides the type of a column's numbers, whatever they are in messages."""
    return column.dtype not in (None, TEXT) and column.adapter != "image"


def as_cast(column: TopicColumn, message: ColumnType) -> ColumnType:
    """Return the type of a message for a plan, which counts numbers that `dtype` casts as of that type."""
    return (
        replace(message, dtype=np.dtype(column.dtype)) if casts(column) and is_numeric(message) else message
    )


class MistakenError(Exception):
    """A column can't be planned; its message is the mistake, if that isn't reported yet."""

    def __init__(self, *mistakes: Mistake):
        super().__init__(*mistakes)
        self.mistakes = mistakes


def spec_of(column: TopicColumn, topic: ResolvedTopic) -> FieldSpec:
    """Return the values to take from a message, by the recipe and the topic's definitions."""
    untyped = any(info.encoding == "json" for info in topic.variants.values())
    dtype = column.dtype if untyped or column.adapter == "image" else None
    if dtype == "float16" and column.adapter != "image":
        dtype = "float64"  # rows are cast, which finds numbers beyond it
    if (column.adapter or "").startswith("points[") and column.dtype not in (None, "float32", TEXT):
        dtype = "float64"  # which all fields fit, so that only a narrower `dtype` loses digits
    packets = column.adapter == "image" and any(PACKET_TYPES.search(i.type) for i in topic.variants.values())
    return FieldSpec(
        paths=column.field,
        adapter=VIDEO if packets else column.adapter,
        strings=column.strings,
        shape=column.shape,
        resize=column.resize,
        encode=column.encode,
        dtype=dtype,
        names=column.names,
        skips_nan=column.nan == "unavailable",
        unit=column.unit if column.adapter == "image" and (dtype, column.unit) in DEPTH_UNITS else "",
    )


def settled_spec(
    path: Path,
    column: TopicColumn,
    spec: FieldSpec,
    topic: ResolvedTopic,
    logs: Mapping[str, Log],
    tries: int = 1,
) -> FieldSpec:
    """Complete a spec that depends on messages, from the first log that has any.

    Args:
        tries: number of logs to try.
    """
    failed: list[Mistake] = []
    for log_id in topic.some[:tries]:
        try:
            log = logs[log_id]
            if column.adapter == "image" and holds_video(log, column.topic):
                return replace(spec, adapter=VIDEO)
            return settled(log, column.topic, spec)
        except OF_CONTENT as error:
            failed.append(Mistake((*path, "as"), f"{error} (log {log_id})"))
    if failed:
        raise MistakenError(failed[0])
    return spec


def message_type(
    path: Path,
    column: TopicColumn,
    spec: FieldSpec,
    topic: ResolvedTopic,
    logs: Mapping[str, Log],
    num_logs: int,
    known: ColumnType | None = None,
) -> ColumnType:
    """Return the type of a message's value; see `as_cast`.

    Args:
        num_logs: of the recipe, some of which may not be open.
        known: the column in the previous version.

    Raises:
        MistakenError: a definition lacks the field, or logs disagree.
    """
    key = key_of(column)
    types: dict[ColumnType, str] = {}
    mistakes = []
    for log_id, info in topic.variants.items():
        try:
            found = as_cast(column, logs[log_id].column_type(column.topic, spec))
            types.setdefault(found, f"in log {log_id}")
        except OF_CONTENT as error:
            whose = f" (log {log_id})" if num_logs > 1 else ""
            is_untyped = isinstance(error, UntypedError) and info.encoding == "json"
            ways = ways_of_json(logs[log_id], column) if is_untyped else ""
            mistakes.append(Mistake((*path, key), f"{error}{ways}{whose}"))
            continue
        takes_data = column.adapter or "data" in "".join(column.field)
        if _VIDEO.search(info.type) and takes_data and spec.adapter not in OF_VIDEO:
            is_packet = PACKET_TYPES.search(info.type)
            way = "write `as: image` without a `field`" if is_packet else "record or transcode it as images"
            why = (
                f"{column.topic} is compressed video ({info.type}): a single message of it is not an image; "
                f"{way}, or leave the column out"
            )
            mistakes.append(Mistake((*path, "topic"), why))
    if len(types) > 1:
        mistakes.append(Mistake((*path, key), disagreement(types, column, known)))
    if mistakes:
        raise MistakenError(*mistakes)
    found = next(iter(types))
    return replace(found, unit=column.unit, description=column.description)


def check_nan(path: Path, column: TopicColumn, found: ColumnType) -> None:
    """Check that messages may have NaN if the recipe has a rule for it.

    Those whose numbers `dtype` casts may be floats in some logs, whatever it is.

    Raises:
        MistakenError: they can't.
    """
    if column.nan != "unavailable" or (casts(column) and is_numeric(found)):
        return
    if not any(numbers.dtype.kind == "f" for numbers in numbers_in(np.empty(0, found.dtype))):
        why = f"`nan: unavailable` has no meaning for {found}, which has no NaN; leave it out"
        raise MistakenError(Mistake((*path, "nan"), why))


def check_video(path: Path, column: TopicColumn) -> None:
    """Check a column of compressed video.

    Raises:
        MistakenError: the recipe is invalid for video.
        UsageError: no decoder is installed.
    """
    if column.adapter == "image":
        from logloom.io.video.frames import pyav

        pyav()
    rules = POLICIES[column.resample]
    if rules.uses != "one" and rules.takes != "nothing":
        known = ", ".join(name for name, rule in POLICIES.items() if rule.uses == "one")
        why = f"{column.resample} isn't supported for compressed video: write one of {known}, count"
        raise MistakenError(Mistake((*path, "resample"), why))
    if column.field:
        raise MistakenError(
            Mistake(
                (*path, "field"),
                f"as: {column.adapter} accepts whole messages of compressed video; leave out `field`",
            )
        )
    if column.adapter == "image" and column.dtype not in (None, "uint8"):
        raise MistakenError(Mistake((*path, "dtype"), "pictures of compressed video are uint8"))


def key_of(column: TopicColumn) -> str:
    """Return the key that defines the value of a message in a column."""
    return "as" if column.adapter and not column.field else "field"


def row_type_of(path: Path, column: TopicColumn, message: ColumnType, shape: str = "") -> ColumnType:
    """Return the type of the column's rows.

    Args:
        shape: the line that gives values one length, if there is one; see `shape_line`.

    Raises:
        MistakenError: the messages don't support what the recipe asks for.
    """
    # An image has the dtype that it is read as, without a cast.
    dtype = None if column.adapter == "image" else column.dtype
    if dtype == TEXT:
        if message.kind != "string" and message.dtype.kind != "U":
            why = f"string is for text of JSON without a schema; {column.topic} has {message} here"
            raise MistakenError(Mistake((*path, "dtype"), why))
        dtype = None
    try:
        ctype = row_type(message, column.resample, dtype, column.strings)
    except ValueError as error:
        if str(error).startswith("dtype"):
            why = f"{error}; leave out `dtype: {dtype}`"
            raise MistakenError(Mistake((*path, "dtype"), why)) from error
        why = f"{error}; write {' or '.join(ways_to_resample(column, message, shape))}"
        raise MistakenError(Mistake((*path, "resample"), why)) from error
    if column.adapter == _ROTATION and message.tail == (4,):
        return replace(ctype, shape=(*ctype.shape[:-1], 3, 3))
    return ctype
