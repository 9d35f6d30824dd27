"""Properties of JSON messages without a schema, and their types, from a sample.

Here: `properties_of`, a function of parsed messages, and `sampled_objects`, which parses some of a log.
Elsewhere: the columns made of them (columns), reading by a `dtype` (logloom.io.logs.messages.json).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from logloom.io.logs.files.container_log import ContainerLog, DecodedMessages
from logloom.io.logs.interface import Log, TopicRequest
from logloom.io.logs.messages.definitions import MAX_DEPTH
from logloom.io.logs.messages.object_decoders import ObjectDecoder
from logloom.transforms.suggest.samples import stretches

MAX_BYTES = 8 << 20  # of messages that are parsed
MAX_MESSAGES = 2000  # of each stretch
MAX_PROPERTIES = 1000

_SMALL = "int"  # which int64 and float64 hold
MIXED = "values of several types"
NESTED = "arrays in arrays"
EMPTY = "no value in the sampled messages"
UNNAMED = "a dot or brackets in its name, so that no path leads to it"


def sampled_objects(log: Log, topic: str) -> tuple[list[Any], bool]:
    """Return some of a topic's messages as objects, and whether they are all; none if they aren't parsed to
    objects.

    Raises:
        LogReadError: the log is damaged.
    """
    decoder = log.decoder(topic) if isinstance(log, ContainerLog) else None
    found: list[Any] = []
    if not isinstance(decoder, ObjectDecoder):
        return found, True
    ranges, is_whole = stretches(log, MAX_BYTES)
    for start, stop in ranges:
        messages = log.read({topic: TopicRequest(start, stop, ("log",), 0)}).get(topic)
        if isinstance(messages, DecodedMessages) and len(messages):
            some = np.linspace(0, len(messages) - 1, min(len(messages), MAX_MESSAGES)).astype(np.intp)
            found += decoder.objects(messages.raw.take(np.unique(some)))
            is_whole &= len(some) == len(messages)
    return found, is_whole


def properties_of(messages: Iterable[Any], is_whole: bool = True) -> tuple[dict[str, str], dict[str, str]]:
    """Return the `dtype` of each property by its path, and why others can't be columns.

    Args:
        is_whole: whether there are no other messages, in which whole numbers may have fractions.

    >>> properties_of([{"v": 1, "a": [1.5, None]}, {"v": 2.5, "name": "x", "mixed": True}, {"mixed": "on"}])
    ({'v': 'float64', 'a[]': 'float64', 'name': 'string'}, {'mixed': 'values of several types'})
    """
    kinds: dict[str, set[str]] = {}
    for message in messages:
        for path, kind in _walk(message, "", 0):
            if path in kinds or len(kinds) < MAX_PROPERTIES:
                kinds.setdefault(path, set()).add(kind)
    found, left_out = {}, {}
    for path, own in kinds.items():
        dtype = _common(own - {""})
        if dtype == _SMALL:
            dtype = "int64" if is_whole else "float64"
        if dtype.startswith(("float", "int", "uint", "bool", "string")):
            found[path] = dtype
        elif not any(other.startswith((f"{path}.", f"{path}[")) for other in kinds):
            left_out[path] = dtype or EMPTY
    return found, left_out


def _walk(value: Any, path: str, depth: int) -> Iterator[tuple[str, str]]:
    """Yield the paths in a value, and what is there: a dtype, "" for nothing, or why it can't be a column."""
    if isinstance(value, dict) and depth < MAX_DEPTH:
        if path:
            yield path, ""
        for name, inner in value.items():
            where = f"{path}.{name}" if path else name
            if not name or set(name) & set(".[]"):
                yield where, UNNAMED
            else:
                yield from _walk(inner, where, depth + 1)
    elif isinstance(value, list) and path.endswith("[]"):
        yield path, NESTED
    elif isinstance(value, list):
        yield f"{path}[]", ""
        for inner in value:
            yield from _walk(inner, f"{path}[]", depth + 1)
    else:
        yield path, _dtype(value)


def _dtype(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        if abs(value) <= 2**53:
            return _SMALL
        return "int64" if -(2**63) <= value < 2**63 else "uint64" if 0 <= value < 2**64 else "float64"
    return {float: "float64", str: "string"}.get(type(value), "")


def _common(kinds: set[str]) -> str:
    """Return the dtype that holds values of all these types; or why there is none."""
    if len(kinds) < 2:
        return next(iter(kinds), "")
    if kinds <= {_SMALL, "int64"}:
        return "int64"
    if kinds <= {_SMALL, "int64", "uint64", "float64"}:
        return "float64"
    return next((kind for kind in (UNNAMED, NESTED) if kind in kinds), MIXED)
