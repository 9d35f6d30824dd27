"""The types of columns from topics, as message definitions and the recipe give them.

Here: what a column takes of a message, and the types that follow for messages and for rows.
Elsewhere: which topics there are (topics), the plan of all columns (resolve).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from logloom.errors import OF_CONTENT
from logloom.io.logs.interface import FieldSpec, Log
from logloom.io.logs.messages.adapters import KEYFRAME, PACKETS, VIDEO
from logloom.io.logs.messages.point_clouds import settled
from logloom.io.video.preview import PACKETS as PACKET_TYPES
from logloom.io.video.preview import holds_video
from logloom.recipe import TopicColumn
from logloom.recipe.columns import TEXT
from logloom.recipe.mistakes import Mistake
from logloom.resample.policies import POLICIES
from logloom.schema import ColumnType
from logloom.transforms.rows.plan.row_plan import row_type
from logloom.transforms.rows.plan.topics import ResolvedTopic
from logloom.validation import Path

OF_VIDEO = (VIDEO, PACKETS, KEYFRAME)
_VIDEO = re.compile(r"CompressedVideo|FFMPEGPacket|H26[45]|ffmpeg_image|theora", re.IGNORECASE)
_ROTATION = "rotation_matrix"


# What to do about a log that defines a field otherwise than others.
WAYS_ON = (
    "leave logs that differ out (on_error: skip, or `!` in `logs`), or make the column unavailable in them "
    "(on_error: salvage)"
)


class MistakenError(Exception):
    """A column can't be planned; what is wrong with it, where that isn't listed yet."""

    def __init__(self, *mistakes: Mistake):
        super().__init__(*mistakes)
        self.mistakes = mistakes


def spec_of(column: TopicColumn, topic: ResolvedTopic) -> FieldSpec:
    """What a column takes of a message, by the recipe and the topic's definitions."""
    untyped = any(info.encoding == "json" for info in topic.variants.values())
    packets = column.adapter == "image" and any(PACKET_TYPES.search(i.type) for i in topic.variants.values())
    return FieldSpec(
        paths=column.field,
        adapter=VIDEO if packets else column.adapter,
        strings=column.strings,
        shape=column.shape,
        resize=column.resize,
        encode=column.encode,
        dtype=column.dtype if untyped or column.adapter == "image" else None,
    )


def settled_spec(
    path: Path,
    column: TopicColumn,
    spec: FieldSpec,
    topic: ResolvedTopic,
    logs: Mapping[str, Log],
    tries: int = 1,
) -> FieldSpec:
    """The spec with what only a message tells; one of the first log that has any stands for all.

    Args:
        tries: how many logs are asked where the first ones can't tell.
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
) -> ColumnType:
    """The type of a message's value.

    Args:
        num_logs: of the recipe, of which some may not be open.

    Raises:
        MistakenError: a definition lacks the field, or logs disagree.
    """
    key = key_of(column)
    types: dict[ColumnType, str] = {}
    mistakes = []
    for log_id, info in topic.variants.items():
        try:
            types.setdefault(logs[log_id].column_type(column.topic, spec), log_id)
        except OF_CONTENT as error:
            whose = f" (log {log_id})" if num_logs > 1 else ""
            mistakes.append(Mistake((*path, key), f"{error}{whose}"))
            continue
        takes_data = column.adapter or "data" in "".join(column.field)
        if _VIDEO.search(info.type) and takes_data and spec.adapter not in OF_VIDEO:
            way = "write as: image" if PACKET_TYPES.search(info.type) else "record or transcode it as images"
            why = (
                f"{column.topic} is compressed video ({info.type}): a single message of it is no image; "
                f"{way}, or leave the column out"
            )
            mistakes.append(Mistake((*path, "topic"), why))
    if len(types) > 1:
        kinds = " but ".join(f"{kind} in log {log_id}" for kind, log_id in types.items())
        mistakes.append(Mistake((*path, key), f"logs disagree about its type: {kinds}; {WAYS_ON}"))
    if mistakes:
        raise MistakenError(*mistakes)
    found = next(iter(types))
    return replace(found, unit=column.unit, description=column.description)


def check_video(path: Path, column: TopicColumn) -> None:
    """Checks a column of compressed video.

    Raises:
        MistakenError: video can't be taken as the recipe says.
        UsageError: nothing here decodes video.
    """
    if column.adapter == "image":
        from logloom.io.video.frames import pyav

        pyav()
    rules = POLICIES[column.resample]
    if rules.uses != "one" and rules.takes != "nothing":
        known = ", ".join(name for name, rule in POLICIES.items() if rule.uses == "one")
        why = f"{column.resample} of compressed video isn't possible: write one of {known}, count"
        raise MistakenError(Mistake((*path, "resample"), why))
    if column.field:
        raise MistakenError(
            Mistake((*path, "field"), f"as: {column.adapter} takes a message of compressed video whole")
        )
    if column.adapter == "image" and column.dtype not in (None, "uint8"):
        raise MistakenError(Mistake((*path, "dtype"), "pictures of compressed video are uint8"))


def key_of(column: TopicColumn) -> str:
    """The key that says which value of a message a column is."""
    return "as" if column.adapter and not column.field else "field"


def row_type_of(path: Path, column: TopicColumn, message: ColumnType) -> ColumnType:
    """The type of a column's rows.

    Raises:
        MistakenError: the recipe asks for what the messages don't hold.
    """
    # An image's dtype is what it is read as; there is nothing left to cast.
    dtype = None if column.adapter == "image" else column.dtype
    if dtype == TEXT:
        if message.kind != "string" and message.dtype.kind != "U":
            why = f"string is for text of JSON without a schema; {column.topic} has {message} here"
            raise MistakenError(Mistake((*path, "dtype"), why))
        dtype = None
    try:
        ctype = row_type(message, column.resample, dtype, column.strings)
    except ValueError as error:
        key = "dtype" if str(error).startswith("dtype") else "resample"
        raise MistakenError(Mistake((*path, key), str(error))) from error
    if column.adapter == _ROTATION and message.tail == (4,):
        return replace(ctype, shape=(*ctype.shape[:-1], 3, 3))
    return ctype
