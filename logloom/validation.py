"""Descriptions of pydantic's errors in plain words.

Also here: `adapter_of`, which validates by types; `OneOrKeys`, the type of a key with a single value or
a mapping, whose errors are of the kind that was given; `Duration`, nanoseconds written with a unit;
`InvalidPartsError`, for checks that validate parts of a value.
Elsewhere: mistakes in recipes and their lines (logloom.recipe.mistakes), metadata
(logloom.io.storage.metadata).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Annotated, Any, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    Discriminator,
    PlainSerializer,
    Tag,
    TypeAdapter,
    ValidationError,
)

from logloom.text import shortened
from logloom.values import dataclass

_One = TypeVar("_One")
_Keys = TypeVar("_Keys")
Path = tuple[str | int, ...]  # ("columns", "camera.front", "tolerance")


@dataclass(frozen=True)
class Notation:
    """Names of values in a notation."""

    mapping: str
    null: str


JSON = Notation("an object", "null")
YAML = Notation("a mapping", "nothing")
_EXPECTED = {
    "is_instance_of": "text",
    "string_type": "text",
    "string_unicode": "text",
    "string_pattern_mismatch": "a name that stays in its folder",  # the only pattern that types here have
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
}
_MAPPINGS = ("dict_type", "dataclass_type", "model_type", "model_attributes_type")
UNKNOWN_FIELD = ("unexpected_keyword_argument", "extra_forbidden")


def _tag_of(value: Any) -> str:
    return "<other>" if isinstance(value, Mapping | BaseModel) else "<one>"


# A single value, or a mapping of keys: `OneOrKeys[str, TaskFrom]`.
OneOrKeys = Annotated[
    Annotated[_One, Tag("<one>")] | Annotated[_Keys, Tag("<other>")], Discriminator(_tag_of)
]


@functools.cache
def adapter_of(kind: Any) -> TypeAdapter[Any]:
    """Return the validator of a type, such as a dataclass, which takes longer to make than a file to read."""
    return TypeAdapter(kind)


class InvalidPartsError(ValueError):
    """Parts of a value don't fit the type that a check of the value requires.

    Attributes:
        found: the errors, with paths that begin at the value.
        model: the required type of the parts.
    """

    def __init__(self, found: ValidationError, model: Any):
        super().__init__(describe_first(found, YAML))
        self.found = found
        self.model = model


def dotted(path: Iterable[str | int]) -> str:
    """columns.camera.front.window[1]"""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def describe_first(error: ValidationError, notation: Notation = JSON) -> str:
    """Describe the first error: "logs[3].rows: expected a whole number, got 'x'"."""
    path: list[str | int] = []
    cause: object = error
    while isinstance(cause, ValidationError):  # a check of a value may check a part of it
        first = cause.errors(include_url=False)[0]
        path += first["loc"]
        cause = first.get("ctx", {}).get("error")
    found = describe(first, notation)
    return f"{dotted(path)}: {found}" if path else found


def describe(error: Any, notation: Notation) -> str:
    """Describe one of `ValidationError.errors()`: "expected a whole number, got 'x'"."""
    kind = error["type"]
    if kind == "missing":
        return "is missing"
    if kind in UNKNOWN_FIELD:
        return "is no field of this version of logloom"
    if kind in ("value_error", "assertion_error"):
        return str(error["ctx"]["error"])
    if kind in ("too_short", "too_long"):
        most = "least" if kind == "too_short" else "most"
        limit = error["ctx"]["min_length" if kind == "too_short" else "max_length"]
        return f"expected a list of at {most} {limit}, got {len(error['input'])}"
    got = describe_value(error["input"], notation)
    expected = notation.mapping if kind in _MAPPINGS else _EXPECTED.get(kind)
    if expected:
        return f"expected {expected}, got {got}"
    return f"{error['msg'][:1].lower()}{error['msg'][1:]}, got {got}"


def describe_value(value: Any, notation: Notation) -> str:
    """A value in a message."""
    if isinstance(value, Mapping):
        return notation.mapping
    if isinstance(value, list | tuple):
        return "a list"
    if value is None:
        return notation.null
    return shortened(str(value) if isinstance(value, int | float) else repr(value))


_UNITS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "min": 60 * 10**9, "h": 3600 * 10**9}
_DURATION = re.compile(r"(\d+(?:\.\d+)?) *(ns|us|ms|s|min|h)")


def _nanoseconds(value: Any) -> int:
    match = _DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
    if not match:
        raise ValueError(f"a duration is a number with its unit ({', '.join(_UNITS)}), like 150ms")
    return int(Decimal(match[1]) * _UNITS[match[2]])


Duration = Annotated[int, BeforeValidator(_nanoseconds), PlainSerializer(lambda ns: f"{ns}ns")]
