"""The small values of a sample as one line of JSON, without loss.

Here: `write_meta`, `parse_meta` and `read_column` for scalars and strings of many rows, and `own_meta`, which
needs no schema.
Elsewhere: which columns these are (logloom.io.formats.tar.samples).
Floats that aren't finite are NaN, Infinity and -Infinity, as Python's json module writes and reads them. What
JSON can't express is under the key `meta`, which is no column's name: {"dtypes": {"speed": "float32"},
"nan": {"speed": "ffc00001"}}, the types that aren't bool, int64 or float64, and the bits of a NaN that isn't
numpy's own, in hex, most significant first. Bytes of a string that are no UTF-8 are escaped as lone
surrogates, as Python's surrogateescape does.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from logloom.blocks import Array, Ragged, Values
from logloom.schema import ColumnType

MORE = "meta"  # the key of what JSON doesn't tell of the columns


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


def tells_more(ctype: ColumnType) -> bool:
    """Whether meta.json has something to say of a column's values beside the values."""
    return _is_named(ctype) or ctype.dtype.kind == "f"


def _is_named(ctype: ColumnType) -> bool:
    """Whether meta.json names the type, which JSON's numbers don't tell."""
    return ctype.kind == "array" and ctype.dtype.name not in ("bool", "int64", "float64")


def write_meta(
    log_id: str,
    timestamps: Array,
    columns: Mapping[str, Array | Sequence[Array]],
    types: Mapping[str, ColumnType],
) -> list[bytes]:
    """A JSON object per row: log_id, timestamp, the columns in the order of `types`, and `meta` if needed.

    Args:
        columns: (n,) numbers, or the UTF-8 bytes of n strings.
    """
    head = {"log_id": log_id}
    keys = ["timestamp", *types]
    form = json.dumps(head)[:-1].replace("%", "%%") + "".join(f', "{key}": %s' for key in keys) + "%s}\n"
    texts = [_texts(columns[name], ctype) for name, ctype in types.items()]
    more = _more_texts(columns, types, len(timestamps))
    rows = zip(timestamps.tolist(), *texts, more, strict=True)
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
    for row in np.flatnonzero(~np.isfinite(values)).tolist():
        texts[row] = json.dumps(float(values[row]))
    return texts


def _more_texts(
    columns: Mapping[str, Array | Sequence[Array]], types: Mapping[str, ColumnType], rows: int
) -> list[str]:
    """The text after the columns of each row."""
    named = {name: ctype.dtype.name for name, ctype in types.items() if _is_named(ctype)}
    dtypes = {"dtypes": named} if named else {}
    texts = [_more_text(dtypes)] * rows
    odd: dict[int, dict[str, str]] = {}
    for name, ctype in types.items():
        if ctype.dtype.kind == "f":
            bits = np.ascontiguousarray(columns[name], ctype.dtype).view(f"<u{ctype.dtype.itemsize}")
            others = np.isnan(columns[name]) & (bits != _NAN_BITS[ctype.dtype.itemsize])
            for row in np.flatnonzero(others).tolist():
                odd.setdefault(row, {})[name] = f"{int(bits[row]):0{2 * ctype.dtype.itemsize}x}"
    for row, found in odd.items():
        texts[row] = _more_text({**dtypes, "nan": found})
    return texts


def _more_text(more: Mapping[str, Any]) -> str:
    return f', "{MORE}": {json.dumps(more)}' if more else ""


def parse_meta(data: bytes) -> dict[str, Any]:
    """One row's JSON object.

    Raises:
        ValueError: it is not a JSON object, or its `meta` is none.
    """
    try:
        found = _DECODER.decode(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not a JSON object ({error})") from error
    if not isinstance(found, dict):
        raise ValueError("not a JSON object")
    more = found.get(MORE, {})
    if not isinstance(more, dict) or not all(isinstance(part, dict) for part in more.values()):
        raise ValueError(f"{MORE} is no object of objects")
    return found


def own_meta(key: str, data: bytes) -> dict[str, Any] | None:
    """What meta.json says in a shard that logloom wrote, without its schema; None in others' shards.

    Numbers are numpy's, of the recorded type; None for what is no value.

    Args:
        key: of the sample, which such a shard repeats.
    """
    try:
        found = parse_meta(data)
    except ValueError:
        return None
    if f"{found.get('log_id')}/{found.get('timestamp')}" != key:
        return None
    more = found.pop(MORE, {})
    dtypes, nan = more.get("dtypes", {}), more.get("nan", {})
    return {name: _typed(value, dtypes.get(name), nan.get(name)) for name, value in found.items()}


def _typed(value: Any, said: Any, bits: Any) -> Any:
    """A value of the type that is said, if it fits; the read of others will find that types differ."""
    if isinstance(value, str):
        return value
    if said is None and bits is None:  # as most are
        if type(value) is float and math.isfinite(value):  # 1e999 is no number
            return np.float64(value)
        if type(value) is int and _MIN <= value <= _MAX:
            return np.int64(value)
    kind = {bool: "b", int: "iu", float: "f", _NamedFloat: "f"}.get(type(value), "")
    if kind == "b":
        return np.bool_(value)
    names = [name for name in (said, "int64", "uint64", "float64") if isinstance(name, str)]
    for dtype in (_DTYPES[name] for name in names if name in _DTYPES):
        if dtype.kind in kind and _fits(value, dtype):
            found = np.array([value], dtype)
            if isinstance(bits, str) and np.isnan(found[0]):
                with contextlib.suppress(ValueError):
                    found.view(f"<u{dtype.itemsize}")[0] = _nan_bits(bits, dtype.itemsize)
            return found[0]
    return None


def _fits(value: Any, dtype: np.dtype[Any]) -> bool:
    if dtype.kind == "f":
        if type(value) is _NamedFloat:
            return True
        return bool(abs(value) <= _LARGEST[dtype.itemsize] and float(dtype.type(value)) == value)
    info = np.iinfo(dtype)
    return bool(info.min <= value <= info.max)


class _NamedFloat(float):
    """A NaN or an infinity by its name; a number like 1e999 is none."""


_MIN, _MAX = -(2**63), 2**63 - 1
_NAMES = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_DTYPES = {name: np.dtype(name).newbyteorder("<") for name in (*_NAMES, "float16", "float32", "float64")}
_LARGEST = {size: float(np.finfo(f"<f{size}").max) for size in (2, 4, 8)}
_NAN_BITS = {size: int(np.array([np.nan], f"<f{size}").view(f"<u{size}")[0]) for size in (2, 4, 8)}
_DECODER = json.JSONDecoder(parse_constant=_NamedFloat)


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
    more: list[Mapping[str, Any]] = [row.get(MORE, {}) for row in rows] if tells_more(ctype) else []
    said = {str(one["dtypes"].get(name, ctype.dtype.name)) for one in more if "dtypes" in one}
    if said - {ctype.dtype.name}:
        raise ValueError(f"{name} is no {ctype}: it has {sorted(said)[0]:.80}")
    try:
        found = _from_json(values, ctype)
        if ctype.dtype.kind == "f":
            _set_bits(found, [one.get("nan", {}).get(name) for one in more])
        return found
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{name} is no {ctype}: {error}") from error


def _set_bits(numbers: Values, bits: Sequence[Any]) -> None:
    """Gives NaNs the bits that are noted, in hex; None leaves one as it is."""
    assert isinstance(numbers, np.ndarray)
    size = numbers.dtype.itemsize
    for row, digits in enumerate(bits):
        if digits is not None:
            if not np.isnan(numbers[row]):
                raise ValueError(f"{numbers[row]} with the bits of a NaN")
            numbers.view(f"<u{size}")[row] = _nan_bits(digits, size)


def _from_json(values: list[Any], ctype: ColumnType) -> Values:
    kind, size = ctype.dtype.kind, ctype.dtype.itemsize
    if ctype.kind == "string":
        _require(values, str)
        return Ragged.from_bytes([value.encode("utf-8", "surrogateescape") for value in values])
    if kind != "f":
        _require(values, bool if kind == "b" else int)
        return np.array(values, ctype.dtype)
    special = [row for row, value in enumerate(values) if isinstance(value, _NamedFloat)]
    plain = [0.0 if isinstance(value, _NamedFloat) else value for value in values] if special else values
    _require(plain, float)
    fits = max(map(abs, plain), default=0.0) <= _LARGEST[size]
    numbers = np.array(plain if fits else [], ctype.dtype)
    if numbers.tolist() != plain:
        raise ValueError(f"a number that f{size} can't store")
    for row in special:
        numbers[row] = values[row]
    return numbers


def _nan_bits(digits: Any, size: int) -> int:
    """The bits of a NaN.

    Raises:
        ValueError: they are none.
    """
    if not isinstance(digits, str) or len(digits) != 2 * size:
        raise ValueError(f"{digits!r:.80} is no float")
    bits = int.from_bytes(bytes.fromhex(digits), "big")
    if not np.isnan(np.array([bits], f"<u{size}").view(f"<f{size}")[0]):
        raise ValueError(f"{digits} are the bits of no NaN")
    return bits


def _require(values: list[Any], kind: type) -> None:
    for value in values:
        if type(value) is not kind:  # not isinstance: True is an int
            raise TypeError(repr(value)[:80])
