"""Decoding of foreign zarr arrays by CF conventions, as in xarray.

Here: `decoding_of`, which chooses how to decode an array's values, and `column_of` and `times_as_int64`,
which make a column of decoded values.
Elsewhere: the arrays (foreign_source).

Values that are `_FillValue` or `missing_value` become NaN, and packed ones are multiplied and shifted by
`scale_factor` and `add_offset`, in xarray's types. Counts "since" a date are times, counts of units whose
`dtype` is timedelta64 are durations; columns have both as int64 ns. Units and descriptions are those of
`units` and `long_name`; a column keeps all other attributes that are true of decoded values.
"""

from __future__ import annotations

import base64
import contextlib
import datetime
import json
import re
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from logloom.blocks import Array
from logloom.io.rows.inference.types import RawColumn, UnfitValuesError, plain_dtype, stacked
from logloom.schema import STRING, ColumnType
from logloom.values import dataclass

_SINCE = re.compile(
    r"(?P<unit>[A-Za-z]+) since (?P<year>\d{4})-(?P<month>\d\d?)-(?P<day>\d\d?)"
    r"(?:[T ](?P<hour>\d\d?):(?P<minute>\d\d?)(?::(?P<second>\d\d?)(?:\.(?P<fraction>\d{1,9}))?)?)?"
    r"(?: ?(?:Z|UTC|\+00:?00))?"
)
_NS = {
    "nanoseconds": 1,
    "microseconds": 10**3,
    "milliseconds": 10**6,
    "seconds": 10**9,
    "minutes": 60 * 10**9,
    "hours": 3600 * 10**9,
    "days": 86400 * 10**9,
}
_CALENDARS = ("standard", "gregorian", "proleptic_gregorian")
_REFORM = datetime.date(1582, 10, 15)  # before it, the calendar "standard" is another than Python's
_EPOCH = datetime.date(1970, 1, 1)
_MIN, _MAX = -(2**63), 2**63
_EXACT = 1 << 53  # integers up to it are exact in float64
_ENCODING = ("add_offset", "calendar", "dtype", "long_name", "missing_value", "scale_factor", "units")
# Of arrays that rows don't have, or have by other names.
_LINKS = ("ancillary_variables", "bounds", "cell_measures", "coordinates", "formula_terms", "grid_mapping")
_STORED = ("actual_range", "valid_max", "valid_min", "valid_range")  # of values as they are packed


@dataclass(frozen=True)
class Decoding:
    """The steps of decoding an array, in this order.

    Attributes:
        dtype: of decoded values.
        signed: the type of integers that are stored with the other signedness; None if they aren't.
        fills: values that mean missing.
        masked: the type in which these are compared, and replaced by NaN, or NaT's bits.
        packed: the type in which values are multiplied and shifted; None if they aren't packed.
        scale, offset: factor and offset of packed values.
        since: ns of the unit, and of the date since the Unix epoch; None if values are no times.
        unit, description: of the column.
        attributes: others that are true of decoded values, as of `ColumnType`.
    """

    dtype: np.dtype[Any]
    signed: np.dtype[Any] | None = None
    fills: tuple[Any, ...] = ()
    masked: np.dtype[Any] | None = None
    packed: np.dtype[Any] | None = None
    scale: Any = None
    offset: Any = None
    since: tuple[int, int] | None = None
    unit: str = ""
    description: str = ""
    attributes: tuple[tuple[str, str], ...] = ()

    def decode(self, values: Array) -> Array:
        """Decodes some values.

        Raises:
            UnfitValuesError: a time that int64 ns can't hold.
        """
        if self.signed is not None:
            values = values.astype(self.signed)
        if self.fills:
            values = np.array(values, self.masked)
            missing = np.zeros(values.shape, np.bool_)
            for fill in self.fills:
                missing |= values == fill
            values[missing] = _MIN if values.dtype.kind == "i" else np.nan
        if self.packed is not None:
            values = values.astype(self.packed)
            if self.scale is not None:
                values *= self.scale
            if self.offset is not None:
                values += self.offset
        if self.since is not None:
            values = _times(values, *self.since).view(f"{self.dtype.kind}8[ns]")
        return values.astype(self.dtype, copy=False)


def decoding_of(array: Any, has_dimensions: bool) -> Decoding:
    """Choose how to decode a zarr array.

    Args:
        has_dimensions: whether its axes have names; xarray opens no other arrays, and in format 2 takes the
            fill value of these for missing.

    Raises:
        UnfitValuesError: xarray gives no plain values, or values that logloom can't; with the reason.
    """
    attributes, dtype = _attributes_of(array, has_dimensions), np.dtype(array.dtype)
    unit, description = (str(attributes.get(name) or "") for name in ("units", "long_name"))
    is_packed = "scale_factor" in attributes or "add_offset" in attributes
    if dtype.kind in "mM":
        others = _others(attributes, is_packed)
        return Decoding(dtype, unit=unit, description=description, attributes=others)
    signed = _signed(attributes, dtype)
    stored = dtype if signed is None else signed
    fills = _fills(attributes, dtype)
    if (fills or is_packed) and stored.kind not in "iufc":
        raise UnfitValuesError(f"{stored} values that are packed, or have a fill value")
    counted = _counted(attributes, unit)
    if fills and counted is None and unit in _NS and stored.kind in "iu" and not is_packed:
        raise UnfitValuesError(f"whole {unit} with a fill value, for which xarray returns -2^63")
    masked = _masked_type(stored, is_packed, attributes, counted is not None) if fills else None
    packed = None
    if is_packed:
        has_fill = any(name in attributes for name in ("_FillValue", "missing_value"))
        packed = _packed_type(masked or stored, attributes) if counted or not has_fill else masked or stored
        if fills and packed.kind != "f":
            raise UnfitValuesError("packed by a whole scale_factor, so no value can mean missing")
    result = packed or masked or stored
    if counted is not None:
        result, unit = counted[0], ""
    elif attributes.get("dtype") == "bool":
        result = np.dtype(np.bool_)
    return Decoding(
        result,
        signed,
        fills,
        masked,
        packed,
        attributes.get("scale_factor"),
        attributes.get("add_offset"),
        None if counted is None else counted[1],
        unit,
        description,
        _others(attributes, is_packed),
    )


def _attributes_of(array: Any, has_dimensions: bool) -> dict[str, Any]:
    """The attributes of an array, with its fill value as a number to compare.

    Raises:
        UnfitValuesError: the fill value is not of the array's type.
    """
    attributes, dtype = dict(array.attrs), np.dtype(array.dtype)
    if has_dimensions and getattr(array.metadata, "zarr_format", 3) == 2 and array.fill_value is not None:
        attributes["_FillValue"] = array.fill_value
    elif "_FillValue" in attributes:
        attributes["_FillValue"] = _fill_value(attributes["_FillValue"], dtype)
    for name in ("missing_value", "_FillValue"):
        if dtype.kind in "iu" and name in attributes and not _numbers_of(attributes[name]):
            del attributes[name]  # as if it were missing
    signed = _signed(attributes, dtype)
    if signed is not None and "_FillValue" in attributes:  # as it is stored, unlike missing_value
        try:
            fill = np.array(attributes["_FillValue"], dtype.newbyteorder("="))
        except (OverflowError, ValueError, TypeError) as error:
            raise UnfitValuesError(f"a fill value that {dtype} can't store ({error})") from error
        attributes["_FillValue"] = fill.view(signed)
    return attributes


def _others(attributes: Mapping[str, Any], is_packed: bool) -> tuple[tuple[str, str], ...]:
    """The attributes that are true of decoded values, without those in other fields of the column."""
    untrue = {*_ENCODING, *_LINKS, *(_STORED if is_packed else ())}
    kept = []
    for name in sorted(attributes):
        if name not in untrue and not name.startswith("_"):
            with contextlib.suppress(ValueError, TypeError):  # NaN is no JSON
                kept.append((name, json.dumps(attributes[name], sort_keys=True, allow_nan=False)))
    return tuple(kept)


def _fill_value(value: Any, dtype: np.dtype[Any]) -> Any:
    """A fill value as xarray writes it into attributes: floats in base64.

    Raises:
        UnfitValuesError: it is not valid.
    """

    def unpacked(text: Any) -> float:
        found: float = struct.unpack("<d", base64.standard_b64decode(text))[0]
        return found

    try:
        if dtype.kind == "f" and isinstance(value, str):
            return unpacked(value)
        if dtype.kind == "c" and isinstance(value, list):
            return complex(*map(unpacked, value))
        return int(value) if dtype.kind in "iu" else value
    except (ValueError, TypeError, OverflowError, struct.error) as error:
        raise UnfitValuesError(f"_FillValue {value!r:.80} is no {dtype} ({error})") from error


def _fills(attributes: Mapping[str, Any], dtype: np.dtype[Any]) -> tuple[Any, ...]:
    """The values that mean missing."""
    found = [
        one
        for name in ("missing_value", "_FillValue")
        for one in (_numbers_of(attributes[name]) if name in attributes else ())
    ]
    if dtype.kind in "iufc" and not all(isinstance(one, np.number) for one in found):
        raise UnfitValuesError("a fill value that is no number")
    return tuple(dict.fromkeys(found))


def _numbers_of(value: Any) -> list[Any]:
    """Parse one or more fill values, without NaN and null, which need no mark."""
    return [one for one in np.ravel(np.array(value)) if one is not None and one == one]


def _signed(attributes: Mapping[str, Any], dtype: np.dtype[Any]) -> np.dtype[Any] | None:
    said = attributes.get("_Unsigned")
    kind = (
        "u" if dtype.kind == "i" and said == "true" else "i" if dtype.kind == "u" and said == "false" else ""
    )
    return np.dtype(f"{kind}{dtype.itemsize}") if kind else None


def _masked_type(
    dtype: np.dtype[Any], is_packed: bool, attributes: Mapping[str, Any], is_counted: bool
) -> np.dtype[Any]:
    """The type in which values are compared with fill values."""
    if is_packed:
        return _packed_type(dtype, attributes)
    if is_counted and dtype.kind in "iu":
        return np.dtype(np.int64)
    if dtype.kind in "iu":
        return np.dtype(np.float32 if dtype.itemsize <= 2 else np.float64)
    return dtype


def _packed_type(dtype: np.dtype[Any], attributes: Mapping[str, Any]) -> np.dtype[Any]:
    """The type in which packed values are multiplied and shifted, as in xarray.

    Raises:
        UnfitValuesError: scale_factor or add_offset is no number.
    """
    scale, offset = (attributes.get(name) for name in ("scale_factor", "add_offset"))
    for value in (scale, offset):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise UnfitValuesError(f"packed by {value!r:.80}, which is no number")
    # JSON's floats are float64, whatever they were.
    return np.dtype(np.int64 if offset is None and isinstance(scale, int) else np.float64)


def _counted(attributes: Mapping[str, Any], unit: str) -> tuple[np.dtype[Any], tuple[int, int]] | None:
    """Parse the unit of times: the type, ns of the unit and of its origin; None if values are no times.

    Raises:
        UnfitValuesError: times of an unknown unit, date or calendar.
    """
    if " since " in unit:
        calendar = str(attributes.get("calendar") or "standard").lower()
        return np.dtype("M8[ns]"), _epoch(unit, calendar)
    named = attributes.get("dtype")
    if unit in _NS and isinstance(named, str) and named.startswith("timedelta64"):
        try:
            kind = np.dtype(named)
        except TypeError:
            raise UnfitValuesError(f"durations of type {named!r:.80}") from None
        if np.datetime_data(kind)[0] not in ("s", "ms", "us", "ns"):
            raise UnfitValuesError(f"durations of type {named!r}")
        return kind, (_NS[unit], 0)
    return None


def _epoch(unit: str, calendar: str) -> tuple[int, int]:
    """Parse a unit of time: its ns, and those of the date that it is counted from."""
    found = _SINCE.fullmatch(unit.strip())
    factor = _NS.get(found["unit"].lower().removesuffix("s") + "s") if found else None
    if found is None or factor is None or calendar not in _CALENDARS:
        raise UnfitValuesError(f"it counts {unit!r} ({calendar}), which isn't understood")
    try:
        date = datetime.date(*(int(found[part]) for part in ("year", "month", "day")))
        hour, minute, second = (int(found[part] or 0) for part in ("hour", "minute", "second"))
        time = datetime.time(hour, minute, second)
    except ValueError as error:
        raise UnfitValuesError(f"it counts {unit!r}, which isn't understood ({error})") from None
    if date < _REFORM and calendar != "proleptic_gregorian":
        raise UnfitValuesError(f"it counts {unit!r}, and calendars before {_REFORM} differ")
    seconds = (date - _EPOCH).days * 86400 + time.hour * 3600 + time.minute * 60 + time.second
    return factor, seconds * 10**9 + int((found["fraction"] or "").ljust(9, "0"))


def _times(counts: Array, factor: int, epoch: int) -> Array:
    """Convert counts to (n, …) int64 ns since the Unix epoch; NaT's bits stay, and replace NaN.

    Raises:
        UnfitValuesError: a time that int64 ns can't hold.
    """
    if counts.dtype.kind == "f":
        return _float_times(counts.astype(np.float64), factor, epoch)
    missing = counts == _MIN if counts.dtype.kind == "i" else np.zeros(counts.shape, np.bool_)
    known = counts[~missing]
    low, high = (int(known.min()), int(known.max())) if known.size else (0, 0)
    # Where the date itself is out of range, xarray counts in float64 microseconds.
    exact = _MAX if _MIN <= epoch < _MAX else _EXACT if factor >= 1000 else 0
    if not _MIN < low * factor + epoch <= high * factor + epoch < _MAX or max(-low, high) > exact:
        raise UnfitValuesError("a time that int64 ns can't store")
    times = counts.astype(np.int64).view(np.uint64) * np.uint64(factor)  # on the way they may wrap around
    times = (times + np.uint64(epoch % 2**64)).view(np.int64)
    times[missing] = _MIN
    return times


def _float_times(counts: Array, factor: int, epoch: int) -> Array:
    missing = np.isnan(counts)
    nanoseconds = np.where(missing, 0, counts * np.int64(factor) if factor > 1 else counts)
    low, high = (float(nanoseconds.min()), float(nanoseconds.max())) if nanoseconds.size else (0.0, 0.0)
    fits = _MIN < low + epoch <= high + epoch < _MAX and _MIN < low <= high < _MAX and _MIN <= epoch < _MAX
    if not fits:
        raise UnfitValuesError("a time that int64 ns can't store")
    times = nanoseconds.astype(np.int64) + np.int64(epoch)
    times[missing] = _MIN
    return times


def times_as_int64(values: Array) -> Array:
    """Convert times and durations to int64 ns, NaT to its bits; return other values as they are.

    Raises:
        UnfitValuesError: a time that int64 ns can't store.
    """
    if values.dtype.kind not in "mM":
        return values
    return np.asarray(stacked(RawColumn(values), ColumnType(np.dtype("<i8"), values.shape[1:])))


def column_of(values: Array, decoding: Decoding) -> RawColumn:
    """Convert rows of decoded values to a column; times become int64 ns.

    Raises:
        UnfitValuesError: no column has such values.
    """
    description, attributes = decoding.description, decoding.attributes
    if (values.dtype.kind == "U" and values.ndim == 1) or values.dtype.kind in "TO":
        return _text(values, description, attributes)
    unit = decoding.unit
    if decoding.dtype.kind in "mM":
        values, unit = times_as_int64(values), "ns"
    dtype = plain_dtype(values.dtype)
    ctype = ColumnType(dtype, values.shape[1:], "array", unit, description, attributes)
    return RawColumn(values.astype(dtype, copy=False), ctype)


def _text(values: Array, description: str, attributes: tuple[tuple[str, str], ...]) -> RawColumn:
    found = values.tolist()
    if values.ndim > 1 or not all(isinstance(value, str) for value in found):
        raise UnfitValuesError(
            "values are Python objects" if values.dtype.kind == "O" else "text of several axes"
        )
    return RawColumn(found, ColumnType(STRING.dtype, STRING.shape, "string", "", description, attributes))
