"""The small values of a sample as one line of JSON, and back without losing a bit.

Here: `write_meta`, `parse_meta` and `read_column` for scalars and strings of many rows.
Elsewhere: which columns these are (logloom.io.tar.samples).
JSON has no NaN and no infinity: such a float is {"f8": "7ff8000000000000"}, its bits in hex, most significant
first. Bytes of a string that are no UTF-8 are escaped as lone surrogates, as Python's surrogateescape does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from logloom.blocks import Array, Ragged, Values
from logloom.schema import ColumnType


def fits_meta(ctype: ColumnType) -> bool:
    """Whether values of this type are kept in JSON: strings and plain numbers of at most 8 bytes."""
    if ctype.kind == "string":
        return True
    return (
        ctype.kind == "array"
        and ctype.shape == ()
        and ctype.dtype.kind in "biuf"
        and ctype.dtype.itemsize <= 8
    )


def write_meta(
    log_id: str,
    timestamps: Array,
    columns: Mapping[str, Array | Sequence[Array]],
    types: Mapping[str, ColumnType],
) -> list[bytes]:
    """A JSON object per row: log_id, timestamp, then the columns in the order of `types`.

    Args:
        columns: (n,) numbers, or the UTF-8 bytes of n strings.
    """
    head = {"log_id": log_id}
    keys = ["timestamp", *types]
    form = json.dumps(head)[:-1].replace("%", "%%") + "".join(f', "{key}": %s' for key in keys) + "}\n"
    texts = [_texts(columns[name], ctype) for name, ctype in types.items()]
    rows = zip(timestamps.tolist(), *texts, strict=True)
    return [(form % row).encode("ascii") for row in rows]


def _texts(values: Array | Sequence[Array], ctype: ColumnType) -> list[Any]:
    """The JSON text of each row's value; ints stay ints."""
    if not isinstance(values, np.ndarray):
        return [json.dumps(row.tobytes().decode("utf-8", "surrogateescape")) for row in values]
    if ctype.dtype.kind == "b":
        return ["true" if value else "false" for value in values.tolist()]
    if ctype.dtype.kind != "f":
        return list(values.tolist())
    texts: list[Any] = [repr(value) for value in values.tolist()]
    size = ctype.dtype.itemsize
    bits = np.ascontiguousarray(values, ctype.dtype).view(f"<u{size}")
    for row in np.flatnonzero(~np.isfinite(values)).tolist():
        texts[row] = f'{{"f{size}": "{int(bits[row]):0{2 * size}x}"}}'
    return texts


def parse_meta(data: bytes) -> dict[str, Any]:
    """One row's JSON object.

    Raises:
        ValueError: not a JSON object.
    """
    try:
        found = _DECODER.decode(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not a JSON object ({error})") from error
    if not isinstance(found, dict):
        raise ValueError("not a JSON object")
    return found


def own_meta(key: str, data: bytes) -> dict[str, Any] | None:
    """What meta.json says in a shard that logloom wrote, without its schema; None in others' shards.

    Args:
        key: of the sample, which such a shard repeats.
    """
    try:
        found = parse_meta(data)
    except ValueError:
        return None
    if f"{found.get('log_id')}/{found.get('timestamp')}" != key:
        return None
    return {name: _number(value) if isinstance(value, dict) else value for name, value in found.items()}


def _number(bits: Mapping[str, Any]) -> float | None:
    """A float that JSON has no number for; None for what is none."""
    try:
        ((kind, digits),) = bits.items()
        size = {"f2": 2, "f4": 4, "f8": 8}[kind]
        return float(np.array([int(digits, 16)], f"<u{size}").view(f"<f{size}")[0])
    except (ValueError, KeyError, TypeError, OverflowError):
        return None


def _refuse_constant(text: str) -> None:
    raise ValueError(f"{text} is no JSON")


_LARGEST = {size: float(np.finfo(f"<f{size}").max) for size in (2, 4, 8)}
_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


def read_column(name: str, ctype: ColumnType, rows: Sequence[Mapping[str, Any]]) -> Values:
    """The values of one column.

    Args:
        rows: what `parse_meta` gave for each.

    Raises:
        ValueError: a value is missing, or of another type.
    """
    try:
        values = [row[name] for row in rows]
    except KeyError:
        raise ValueError(f"it has no {name}") from None
    try:
        return _from_json(values, ctype)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{name} is no {ctype}: {error}") from error


def _from_json(values: list[Any], ctype: ColumnType) -> Values:
    kind, size = ctype.dtype.kind, ctype.dtype.itemsize
    if ctype.kind == "string":
        _require(values, str)
        return Ragged.from_bytes([value.encode("utf-8", "surrogateescape") for value in values])
    if kind != "f":
        _require(values, bool if kind == "b" else int)
        return np.array(values, ctype.dtype)
    special = [row for row, value in enumerate(values) if isinstance(value, dict)]
    plain = [0.0 if isinstance(value, dict) else value for value in values] if special else values
    _require(plain, float)
    fits = max(map(abs, plain), default=0.0) <= _LARGEST[size]
    numbers = np.array(plain if fits else [], ctype.dtype)
    if numbers.tolist() != plain:
        raise ValueError(f"a number that f{size} can't hold")
    bits = numbers.view(f"<u{size}")
    for row in special:
        bits[row] = _bits(values[row], size)
        if np.isfinite(numbers[row]):
            raise ValueError(f"{values[row]} stands for a finite number")
    return numbers


def _bits(value: dict[str, Any], size: int) -> int:
    digits = value.get(f"f{size}")
    if len(value) != 1 or not isinstance(digits, str) or len(digits) != 2 * size:
        raise ValueError(f"{value} is no float")
    return int.from_bytes(bytes.fromhex(digits), "big")


def _require(values: list[Any], kind: type) -> None:
    for value in values:
        if type(value) is not kind:  # not isinstance: True is an int
            raise TypeError(repr(value)[:80])
