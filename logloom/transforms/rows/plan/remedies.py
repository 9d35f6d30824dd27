"""What to write in a recipe where a column can't be planned as it is.

Here: lines for types that differ by log, that a resample policy or an output doesn't take, and for properties
of JSON without a schema.
Elsewhere: types of columns (types), lines for fields (logloom.io.logs.messages.fields).
"""

from __future__ import annotations

import contextlib
import difflib
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from logloom.errors import OF_CONTENT
from logloom.io.formats.registry import storing
from logloom.io.logs.interface import FieldSpec, Log
from logloom.io.logs.messages.fields import line_of
from logloom.recipe import TopicColumn
from logloom.resample.policies import POLICIES
from logloom.schema import ColumnType
from logloom.text import counted, some_of
from logloom.transforms.rows.plan.row_plan import is_numeric
from logloom.transforms.rows.plan.topics import ResolvedTopic

_ANY = np.dtype(np.float64)

# What to do about a log that defines a field differently from others.
WAYS_ON = (
    "leave logs that differ out (on_error: skip, or `!` in `logs`), or make the column unavailable in them "
    "(on_error: salvage)"
)


def disagreement(
    kinds: Mapping[ColumnType, str], column: TopicColumn, known: ColumnType | None = None
) -> str:
    """Describe types of a field that differ by log, and what to write in the recipe.

    Args:
        kinds: where each type is, in words.
        known: the column in the previous version.
    """
    words = " but ".join(f"{kind} {place}" for kind, place in kinds.items())
    remedy = remedy_of(kinds, column)
    kept = known is not None and known.dtype in [kind.dtype for kind in kinds] and known.dtype.name
    if kept and remedy.startswith("add ") and f"`dtype: {kept}`" not in remedy:
        remedy += f"add `dtype: {kept}`, which the dataset has, so that only new logs are built; or "
    return f"logs disagree about its type: {words}; {remedy}{WAYS_ON}"


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
    stores = "stores both" if len(several) == 2 else "stores all of them"
    note = f"which {stores}" if exact and not rounds else "which rounds integers beyond 2**53"
    return f"add `dtype: {wide.name}`, {note}; or "


def ways_of_json(log: Log, column: TopicColumn) -> str:
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


def ways_to_resample(column: TopicColumn, message: ColumnType, shape: str) -> Iterator[str]:
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
    others = [other for other in storing(name, ctype) if other != output]
    ways_on = f"; write {' or '.join(ways)} for {name}" if ways else ""
    return f"{ways_on}; outputs that store it as it is: {', '.join(others) or 'none'}"
