"""The types of topics' columns, from message definitions and the recipe.

Here: the values to take from a message, and the types of messages and rows.
Elsewhere: topics of logs (topics), the plan of all columns (resolve).
"""

from __future__ import annotations

import contextlib
import difflib
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np
from pydantic import ValidationError

from logloom.blocks import numbers_in
from logloom.errors import OF_CONTENT
from logloom.io.formats.interface import Format
from logloom.io.formats.registry import formats
from logloom.io.logs.interface import FieldSpec, Log
from logloom.io.logs.messages.adapters import KEYFRAME, PACKETS, VIDEO
from logloom.io.logs.messages.fields import UntypedError, line_of
from logloom.io.logs.messages.images import DEPTH_UNITS
from logloom.io.logs.messages.point_clouds import settled
from logloom.io.video.preview import PACKETS as PACKET_TYPES
from logloom.io.video.preview import holds_video
from logloom.recipe import TopicColumn
from logloom.recipe.columns import TEXT
from logloom.recipe.mistakes import Mistake
from logloom.resample.policies import POLICIES
from logloom.schema import ColumnType, Schema
from logloom.text import counted, some_of
from logloom.transforms.rows.plan.row_plan import is_numeric, row_type
from logloom.transforms.rows.plan.topics import ResolvedTopic
from logloom.validation import Path

OF_VIDEO = (VIDEO, PACKETS, KEYFRAME)
_VIDEO = re.compile(r"CompressedVideo|FFMPEGPacket|H26[45]|ffmpeg_image|theora", re.IGNORECASE)
_ROTATION = "rotation_matrix"
_ANY = np.dtype(np.float64)


# What to do about a log that defines a field differently from others.
WAYS_ON = (
    "leave logs that differ out (on_error: skip, or `!` in `logs`), or make the column unavailable in them "
    "(on_error: salvage)"
)


def disagreement(kinds: Mapping[ColumnType, str], column: TopicColumn) -> str:
    """Describe types of a field that differ by log, and what to write in the recipe.

    Args:
        kinds: where each type is, in words.
    """
    words = " but ".join(f"{kind} {place}" for kind, place in kinds.items())
    return f"logs disagree about its type: {words}; {remedy_of(kinds, column)}{WAYS_ON}"


def remedy_of(kinds: Iterable[ColumnType], column: TopicColumn) -> str:
    """Return the `dtype` that holds the numbers of several types, in words; "" if they differ in more.

    Of sub-messages, it is that of the first field that differs, as a column of its own.
    """
    several = list(kinds)
    if len(column.field) == 1 and all(kind.dtype.names for kind in several):
        first, *others = (dict(kind.dtype.fields or {}) for kind in several)
        for name in first:
            parts = [fields[name][0] for fields in (first, *others) if name in fields]
            if (
                len({*parts}) > 1
                and len(parts) == len(several)
                and all(part.kind in "iufb" for part in parts)
            ):
                path = column.field[0].removesuffix("[]") + ("[]" if several[0].shape else "")
                line = f'`{{field: "{path}.{name}", dtype: {np.result_type(*parts).name}}}`'
                found = " or ".join(map(str, dict.fromkeys(parts)))
                return f"{name} is {found}: take it as a column of its own, {line}; or "
    if not all(map(is_numeric, several)) or len({replace(kind, dtype=_ANY) for kind in several}) > 1:
        return ""
    wide = np.result_type(*(kind.dtype for kind in several))
    exact = all(np.can_cast(kind.dtype, wide) for kind in several)
    rounds = wide.kind == "f" and any(
        kind.dtype.kind in "iu" and kind.dtype.itemsize == 8 for kind in several
    )
    holds = "holds both" if len(several) == 2 else "holds all of them"
    note = f"which {holds}" if exact and not rounds else "which rounds integers beyond 2**53"
    return f"add `dtype: {wide.name}`, {note}; or "


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
) -> ColumnType:
    """Return the type of a message's value; see `as_cast`.

    Args:
        num_logs: of the recipe, some of which may not be open.

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
            ways = _ways_of_json(logs[log_id], column) if is_untyped else ""
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
        mistakes.append(Mistake((*path, key), disagreement(types, column)))
    if mistakes:
        raise MistakenError(*mistakes)
    found = next(iter(types))
    return replace(found, unit=column.unit, description=column.description)


def check_nan(path: Path, column: TopicColumn, found: ColumnType) -> None:
    """Check that messages may have NaN if the recipe has a rule for it.

    Raises:
        MistakenError: they can't.
    """
    if column.nan == "unavailable" and not any(
        numbers.dtype.kind == "f" for numbers in numbers_in(np.empty(0, found.dtype))
    ):
        why = f"`nan: unavailable` has no meaning for {found}, which has no NaN; leave it out"
        raise MistakenError(Mistake((*path, "nan"), why))


def _ways_of_json(log: Log, column: TopicColumn) -> str:
    """Return the lines that read properties of JSON to which no schema gives a type, from some messages."""
    if len(column.field) != 1:
        return ""
    from logloom.transforms.suggest.json_properties import properties_of, sampled_objects

    types, left_out = properties_of(*sampled_objects(log, column.topic))
    bare = {property_.replace("[]", ""): property_ for property_ in types}
    wanted = re.sub(r"\[[^\]]*\]", "", column.field[0])
    for property_, why in left_out.items():
        if property_.replace("[]", "") == wanted:
            return f"; its messages have {why} there, so it can't be a column"
    names = [name for name in bare if f"{name}.".startswith(f"{wanted}.")]
    names = names or difflib.get_close_matches(wanted, bare, n=1)
    ways = [_line_of_json(column.field[0], bare[name], types[bare[name]]) for name in names[:3]]
    if ways:
        return f"; by some of its messages, write {' or '.join(ways)}"
    return f"; none of the sampled messages has it, so it can't be a column (they have {some_of(types, 20)})"


def _line_of_json(field: str, property_: str, dtype: str) -> str:
    """Return the line that reads a property, at the elements that the field of the recipe names."""
    own = itertools.zip_longest(field.split("."), property_.split("."), fillvalue="")
    at = ".".join(mine if "[" in mine else there for mine, there in own if there)
    return f"`dtype: {dtype}`" if at == field else f"`{line_of(at)}, dtype: {dtype}`"


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
                f"as: {column.adapter} takes whole messages of compressed video; leave out `field`",
            )
        )
    if column.adapter == "image" and column.dtype not in (None, "uint8"):
        raise MistakenError(Mistake((*path, "dtype"), "pictures of compressed video are uint8"))


def key_of(column: TopicColumn) -> str:
    """Return the key that defines the value of a message in a column."""
    return "as" if column.adapter and not column.field else "field"


def shape_line(
    column: TopicColumn, message: ColumnType, spec: FieldSpec, topic: ResolvedTopic, logs: Mapping[str, Log]
) -> str:
    """Return the line that gives lists of numbers one length, by a list of the first log; "" for others."""
    if not message.is_list_of_numbers or spec.adapter is not None:
        return ""
    for log_id in topic.some[:1]:
        with contextlib.suppress(*OF_CONTENT):
            last = logs[log_id].last_message(column.topic, spec)
            if len(last) and (length := len(last.take(spec, np.arange(1))[0])):
                known = f"{counted(length, 'number')} as the last one of log {log_id}"
                return f"`shape: [{length}]`, if all lists have {known},"
    return ""


def _ways_to_resample(column: TopicColumn, message: ColumnType, shape: str) -> Iterator[str]:
    """Yield lines that make a column of messages which the policy can't be applied to."""
    if POLICIES[column.resample].takes != "quaternions":
        yield from _ways_to_numbers(column, message, shape)
    yield "`resample: previous`"
    yield "`resample: nearest`"


def _ways_to_numbers(column: TopicColumn, kind: ColumnType, shape: str = "") -> Iterator[str]:
    """Yield lines that make numbers of one shape of lists and of sub-messages."""
    if column.adapter is not None or len(column.field) != 1 or kind.kind != "array":
        return
    if kind.is_list_of_numbers:
        yield shape or "`shape: [<length>]`, if it has one length in all messages,"
    elif kind.dtype.names is not None:
        field = column.field[0]
        inside = f"{field}[]" if kind.shape and not field.endswith("]") else field
        numbers = [name for name in kind.dtype.names if kind.dtype[name].base.kind in "iufb"]
        yield from (f"`{line_of(f'{inside}.{name}')}`" for name in numbers[:3])


def ways_to_hold(name: str, column: object, ctype: ColumnType, output: str) -> str:
    """Describe what to do about a column that an output can't hold.

    Args:
        column: in the recipe.
        ctype: of its rows.
        output: name of the output.
    """
    ways = []
    if isinstance(column, TopicColumn):
        is_gathered = POLICIES[column.resample].gathers
        is_number = ctype.kind == "array" and ctype.dtype.kind in "iufb"
        ways = ["`resample: previous`"] * is_number if is_gathered else list(_ways_to_numbers(column, ctype))
    others = [form.name for form in formats() if form.name != output and _holds(form, name, ctype)]
    ways_on = f"; write {' or '.join(ways)} for {name}" if ways else ""
    return f"{ways_on}; outputs that hold it as it is: {', '.join(others) or 'none'}"


def _holds(form: Format, name: str, ctype: ColumnType) -> bool:
    try:
        return form.keeps_columns and not form.check(form.Options(), Schema({name: ctype}))
    except ValidationError:  # it needs options
        return False


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
        why = f"{error}; write {' or '.join(_ways_to_resample(column, message, shape))}"
        raise MistakenError(Mistake((*path, "resample"), why)) from error
    if column.adapter == _ROTATION and message.tail == (4,):
        return replace(ctype, shape=(*ctype.shape[:-1], 3, 3))
    return ctype
