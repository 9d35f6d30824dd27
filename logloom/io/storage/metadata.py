"""Metadata: the JSON files of a dataset, read as untrusted input.

Here: strict JSON; checks of values against types by pydantic; types of names that become paths;
canonical JSON (sorted keys, no spaces), so that equal content is equal bytes; objects with a digest of
themselves (`sealed`); `ChosenColumns`, the base class of the options of outputs.
Elsewhere: the content of the files (logloom.io.catalog.entries, logloom.io.catalog.manifest and the formats),
joining names to a folder (logloom.io.storage.store), pydantic's errors in words (logloom.validation).
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar

import numpy as np
from blake3 import blake3
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    InstanceOf,
    Strict,
    StringConstraints,
    ValidationError,
)

from logloom.errors import DatasetError, UsageError
from logloom.schema import Schema
from logloom.validation import adapter_of, describe_first

T = TypeVar("T")
STRICT = ConfigDict(extra="forbid")  # of dataclasses that `checked` creates
MAX_DEPTH = 100  # recursive functions on values need a call for each level
_LARGEST = 2**64 - 1
_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_NESTING = np.zeros(256, np.int8)  # by character, how much deeper it leads outside of strings
_NESTING[[*b"[{"]], _NESTING[[*b"]}"]] = 1, -1
_PART = r"(?:\.{0,2}[^./\\\x00-\x1f]|\.{3})[^/\\\x00-\x1f]*"  # neither empty, nor . or ..


def _encodes(text: str) -> str:
    text.encode()
    return text


# Text may hold what no UTF-8 has, as names of files do, so it isn't pydantic's own kind of str.
Text = InstanceOf[str]
Unicode = Annotated[str, Strict(), AfterValidator(_encodes)]  # what Parquet holds
Count = Annotated[int, Strict(), Field(ge=0, lt=2**63)]
Int64 = Annotated[int, Strict(), Field(ge=-(2**63), lt=2**63)]
Name = Annotated[str, StringConstraints(pattern=f"^{_PART}$", max_length=255)]  # one part of a path
NameOrNone = Annotated[str, StringConstraints(pattern=f"^(?:{_PART})?$", max_length=255)]
FileName = Annotated[str, StringConstraints(pattern=f"^{_PART}(?:/{_PART})*$", max_length=4096)]


def parsed(data: bytes | str, source: str, way_out: str = "") -> Any:
    """Parse a JSON text.

    Args:
        source: names the file in messages.
        way_out: what to do about a damaged file, for the end of the message.

    Raises:
        DatasetError: not JSON in UTF-8, is nested deeper than `MAX_DEPTH`, or holds a key twice, NaN,
            Infinity or a whole number beyond 64 bits.
    """
    try:
        text = data.decode() if isinstance(data, bytes) else data
        if _depth(text) > MAX_DEPTH:
            raise ValueError(f"nested deeper than {MAX_DEPTH} levels")
        return _DECODER.decode(text)
    except ValueError as error:
        raise DatasetError(f"{source}: not readable JSON ({error}){_hint(way_out)}") from error


def checked(kind: type[T], value: Any, source: str, way_out: str = "") -> T:
    """Validate a value and convert it to a type.

    Args:
        kind: anything that pydantic knows, such as a dataclass.
        source, way_out: as of `parsed`.

    Raises:
        DatasetError: it is of another type; names the first field that is wrong.
    """
    try:
        hashable: Any = kind
        made: T = adapter_of(hashable).validate_python(value)
        return made
    except ValidationError as error:
        raise DatasetError(f"{source}: {describe_first(error)}{_hint(way_out)}") from error


def without_number(value: Any, key: str, known: int, source: str, what: str) -> dict[str, Any]:
    """Check the format number of a file's object; return the object without it.

    Args:
        value: as `parsed` gives it.
        key: of the number.
        known: the newest format that this release reads; the first is 1.
        source: names the file in messages.
        what: "not a manifest of logloom", say, where it isn't of this format.

    Raises:
        DatasetError: there is no such number, or it is of a later release.
    """
    fields = dict(checked(dict[str, Any], value, f"{source}: {what}"))
    number = fields.pop(key, ...)
    if number is ...:
        raise DatasetError(f"{source}: {what}: {key}: is missing")
    if type(number) is not int or number < 1:
        raise DatasetError(f"{source}: {what}: {key}: expected a whole number from 1 on, got {number!r:.100}")
    if number > known:
        raise DatasetError(
            f"{source}: {key} {number}, this release of logloom reads up to {known}; install a newer one"
        )
    return fields


def canonical(value: Any) -> bytes:
    """Return JSON bytes that are equal for equal values."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def with_text_keys(value: Any) -> Any:
    """Convert all keys to text, as JSON requires; YAML allows others."""
    return {str(key): item for key, item in value.items()} if isinstance(value, Mapping) else value


def sealed(value: Mapping[str, Any]) -> bytes:
    """Return canonical JSON of an object with the digest of the rest as `digest`; `unsealed` reads it.

    For files that no manifest names, in which bit rot would go unnoticed.

    >>> sealed({"a": 1})[:17]
    b'{"a":1,"digest":"'
    """
    return canonical({**value, "digest": _digest(value)})


def unsealed(value: Any, source: str, way_out: str) -> Any:
    """Check the digest in an object; return the object without it.

    Args:
        value: as `parsed` gives it.
        source, way_out: as of `parsed`.

    Raises:
        DatasetError: not an object, no digest, or a digest of other values.
    """
    if not isinstance(value, dict) or "digest" not in value:
        raise DatasetError(f"{source}: damaged: expected an object with a digest; {way_out}")
    rest = {name: item for name, item in value.items() if name != "digest"}
    if value["digest"] != _digest(rest):
        raise DatasetError(
            f"{source}: damaged or changed, its values don't match the digest in it; {way_out}"
        )
    return rest


def _digest(value: Mapping[str, Any]) -> str:
    return blake3(canonical(value)).hexdigest()


def _hint(way_out: str) -> str:
    return f"; {way_out}" if way_out else ""


def _depth(text: str) -> int:
    """Return how deep brackets are nested outside of strings; less than that if there are few brackets."""
    most = text.count("[") + text.count("{")
    if most <= MAX_DEPTH:
        return most
    if "\\" in text:  # or quotes would begin and end strings by turns
        text = _STRING.sub("", text)
    codes = np.frombuffer(text.encode(errors="surrogatepass"), np.uint8)
    codes = codes[(_NESTING[codes] != 0) | (codes == ord('"'))]
    is_outside = np.cumsum(codes == ord('"')) % 2 == 0
    return int(np.cumsum(_NESTING[codes[is_outside]]).max(initial=0))


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        twice, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise ValueError(f"the key {twice!r} occurs twice in one object")
    return made


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is no number")
    return value


def _whole(text: str) -> int:
    if len(text) > 20 or not -(2**63) <= (value := int(text)) <= _LARGEST:
        raise ValueError(f"{text[:20]}{'…' if len(text) > 20 else ''} doesn't fit 64 bits")
    return value


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object, parse_float=_finite, parse_int=_whole, parse_constant=_finite
)


class ChosenColumns(BaseModel):
    """Options of an output that may hold fewer columns than the recipe has; formats add their own.

    Attributes:
        columns: names or globs of the columns to write; all by default.
    """

    model_config = ConfigDict(extra="forbid", defer_build=True)

    columns: list[str] | None = None

    def stored(self, schema: Schema) -> Schema:
        """Return the part of a schema that this output contains.

        Args:
            schema: of all columns of the recipe.

        Raises:
            UsageError: a pattern matches nothing.
        """
        return schema.part(self.columns)

    def problems(self, schema: Schema, find: Callable[[Schema], list[str]]) -> list[str]:
        """List what an output with these options can't contain, a line each.

        Args:
            schema: of all columns of the recipe.
            find: gives the lines for the columns that it holds.
        """
        try:
            stored = self.stored(schema)
        except UsageError as error:
            return [f"columns: {error}"]
        return find(stored)
