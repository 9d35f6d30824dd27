"""Images: conversion of image messages of ROS and Foxglove to columns.

Such messages are sensor_msgs/Image, CompressedImage and Foxglove's equivalents.

Here: the type of a column, its dtype and shape, `resize` and `encode`.
Elsewhere: recognizing messages with images (adapters), pixels of raw images (pixel_encodings) and of
compressed ones (compressed_images).

An image is (height, width, channels) of uint8, or of the spec's `dtype`: the encoding is declared in each
message, on which a column's type must not depend. Depth of uint16 (millimetres) and float32 (metres) is
converted to the spec's `unit`. Channels are R, G, B and perhaps alpha. A column is ragged
in all three axes, or (h, w, c) of `shape`; with `resize` it is (height, width, c), c being that of `shape`,
else 3. JPEG and PNG messages that aren't resized pass `encode` of the same kind untouched, if they decode.
A message without pixels, as drivers send before the first ones, has no value.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logloom.blocks import Ragged, Values
from logloom.errors import UsageError
from logloom.io.logs.interface import FieldSpec
from logloom.io.logs.messages import compressed_images, pixel_encodings
from logloom.io.logs.messages.compressed_images import MAX_PIXELS
from logloom.io.logs.messages.pixel_encodings import Form, Pixels
from logloom.io.logs.messages.values import UnfitError
from logloom.schema import BYTES, ColumnType

JPEG_QUALITY = 95
# Limit of all images of one call: above the first, their bytes are at most this many times those of the
# messages.
_FREE_BYTES, _BYTES_PER_BYTE = 1 << 30, 1024

SHAPES: tuple[Mapping[str, str], ...] = (
    {name: name for name in ("height", "width", "encoding", "is_bigendian", "step", "data")},
    {name: name for name in ("height", "width", "encoding", "step", "data")},
    {name: name for name in ("format", "data")},
)
VALUE_WORDS = ("height", "width", "format", "data")
MAX_EMPTY = 4096  # bytes of a message without pixels, with its header and names

DTYPES = {
    "uint8": "u1",
    "int8": "i1",
    "uint16": "<u2",
    "int16": "<i2",
    "int32": "<i4",
    "float32": "<f4",
    "float64": "<f8",
}
_DEPTHS = {"uint16": 1000, "float32": 1}  # units in a metre, by dtype (REP 118)
DEPTH_UNITS = {("uint16", "mm"), ("float32", "mm"), ("float32", "m")}  # that a column can have, by dtype
_ENCODED = {"jpg": "JPEG", "png": "PNG"}

DEPTH_LINES = "`dtype: float32, unit: m` or `dtype: uint16, unit: mm`, which convert it"

# (4,) int64 an image: height, width, channels, and the number of its dtype in this order.
FORMS_TYPE = ColumnType(np.dtype("<i8"), (4,))
_NUMBERS = list(DTYPES)


def column_type(spec: FieldSpec) -> ColumnType:
    """See the module; bytes with `encode`."""
    if spec.encode is not None and spec.encode not in _ENCODED:
        raise UsageError(f"encode {spec.encode!r}: known are {', '.join(_ENCODED)}")
    if spec.dtype is not None and spec.dtype not in DTYPES:
        raise UsageError(f"dtype {spec.dtype!r} of an image: known are {', '.join(DTYPES)}")
    shape = spec.shape
    if shape is not None and (len(shape) != 3 or min(shape) < 1):
        raise UsageError(f"shape {list(shape)} of an image: write [height, width, channels]")
    if spec.resize is not None:
        if min(spec.resize) < 1 or spec.resize[0] * spec.resize[1] > MAX_PIXELS:
            raise UsageError(f"resize {list(spec.resize)}: write [height, width]")
        if shape is not None and shape[:2] != tuple(spec.resize):
            raise UsageError(f"shape {list(shape)} of an image resized to {list(spec.resize)}")
        shape = (*spec.resize, shape[2] if shape else 3)
    if spec.encode is not None:
        return BYTES
    return ColumnType(np.dtype(DTYPES[spec.dtype or "uint8"]), shape or (None, None, None))


def convert(spec: FieldSpec, found: Mapping[str, Values]) -> Values:
    """Convert n images to the column of `column_type`; unchanged raw ones are views of their messages."""
    ctype = column_type(spec)
    rows: list[Pixels] = []
    packed = unpacked = 0
    for row in range(len(found["data"])):
        message = {word: values[row] for word, values in found.items()}
        try:
            rows.append(_value(spec, ctype, message))
            packed, unpacked = packed + len(message["data"]), unpacked + rows[-1].nbytes
            if unpacked > max(_FREE_BYTES, _BYTES_PER_BYTE * packed):
                raise ValueError(f"it and the {row} before it hold {unpacked} bytes in {packed}")
        except ValueError as error:
            raise UnfitError(row, str(error)) from error
    return Ragged.from_rows(rows, ctype) if ctype.is_ragged else np.stack(rows)


def _value(spec: FieldSpec, ctype: ColumnType, message: Mapping[str, Any]) -> Pixels:
    compressed = "format" in message
    if compressed and spec.encode and not spec.resize and _passes(spec.encode, message):
        compressed_images.check_decodes(np.asarray(message["data"]).tobytes())
        return np.asarray(message["data"])
    pixels = (compressed_images if compressed else pixel_encodings).pixels_of(message)
    return finished(spec, ctype, pixels, _text(message["format" if compressed else "encoding"]))


def finished(spec: FieldSpec, ctype: ColumnType, pixels: Pixels, name: str) -> Pixels:
    """Resize, encode and convert an image for a column.

    Args:
        ctype: of `column_type`.
        pixels: (h, w, c).
        name: name of its encoding.

    Raises:
        ValueError: it doesn't fit the column.
    """
    height, width, channels = pixels.shape
    if problem := misfit(spec, ctype, Form(pixels.dtype, (height, width, channels)), name):
        raise ValueError(problem)
    is_depth, to_float = _is_converted(spec, pixels.dtype, channels), ctype.dtype.kind == "f"
    if is_depth and to_float:  # first, so that resizing mixes no depth with pixels that have none
        pixels = in_unit(pixels, ctype.dtype, spec.unit)
    elif is_depth and spec.resize is not None:
        pixels = in_unit(pixels, np.dtype(np.float32), "m")
    if spec.resize is not None:
        pixels = resized(pixels, spec.resize)
    if spec.encode is not None:
        return np.frombuffer(encoded(pixels, spec.encode), np.uint8)
    if is_depth and not to_float:
        pixels = in_unit(pixels, ctype.dtype, spec.unit)
    return pixels.astype(ctype.dtype, copy=False)


def _is_converted(spec: FieldSpec, dtype: np.dtype[Any], channels: int) -> bool:
    """Return whether an image is depth that is converted to the column's unit."""
    return bool(spec.unit) and spec.encode is None and channels == 1 and dtype.name in _DEPTHS


def in_unit(depth: Pixels, dtype: np.dtype[Any], unit: str) -> Pixels:
    """Convert depth: uint16 in millimetres where 0 is none, or float32 in metres where NaN is none.

    Args:
        depth: (h, w, 1) uint16 or float32.
        dtype: uint16 or float32; integers round half to even, and have 0 for what isn't a positive number.
        unit: "mm" or "m".

    Raises:
        ValueError: a depth is too large.

    >>> in_unit(np.array([0, 1500], np.uint16), np.dtype("f4"), "m").tolist()
    [nan, 1.5]
    >>> in_unit(np.array([np.nan, 1.5, np.inf], np.float32), np.dtype("u2"), "mm").tolist()
    [0, 1500, 0]
    """
    per_metre, wanted = _DEPTHS[depth.dtype.name], 1000 if unit == "mm" else 1
    values = depth.astype(np.float64) * wanted / per_metre
    if dtype.kind == "f":
        if depth.dtype.kind == "u":
            values[depth == 0] = np.nan
        return values.astype(dtype)
    values[~(np.isfinite(values) & (values > 0))] = 0
    rounded = np.rint(values)
    limit = np.iinfo(dtype).max
    if (rounded > limit).any():
        far = float(values.max())
        raise ValueError(
            f"its depth of {far:.6g} {unit} doesn't fit {dtype.name}; write `dtype: float32, unit: m`"
        )
    return rounded.astype(dtype)


def misfit(spec: FieldSpec, ctype: ColumnType, form: Form, name: str) -> str:
    """Return why an image doesn't fit a column, and what to change; "" if it does.

    Args:
        spec, ctype: of the column.
        form: of the image, before it is resized.
        name: name of its encoding; "" if unknown.
    """
    shape = ctype.shape if spec.encode is None else spec.shape
    found = (*(spec.resize or form.shape[:2]), form.shape[2])
    problems, changes = [], []
    if shape and None not in shape and found != shape:
        problems.append(f"its (height, width, channels) are {found}, the column's {tuple(shape)}")
        changes.append(f"shape: {list(found)}" + (" (or none, if it changes)" if spec.shape else ""))
    differs = form.dtype.newbyteorder("=") != ctype.dtype.newbyteorder("=")
    if spec.encode is None and differs and not _is_converted(spec, form.dtype, form.shape[2]):
        dtype = form.dtype
        words = f"{name} pixels" if name else "pixels"
        problems.append(f"its {words} are {dtype.name}, the column {ctype.dtype.name}")
        may_be_depth = form.shape[2] == 1 and {dtype.name, ctype.dtype.name} == _DEPTHS.keys()
        changes.append(f"dtype: {dtype.name}" + (f", or for depth {DEPTH_LINES}" if may_be_depth else ""))
    return f"{', and '.join(problems)}; set {', '.join(changes)}" if problems else ""


def forms(spec: FieldSpec, found: Mapping[str, Values]) -> Values:
    """Return the numbers of `FORMS_TYPE` of n images, without decoding them."""
    rows = np.empty((len(found["data"]), 4), np.int64)
    for row in range(len(rows)):
        message = {word: values[row] for word, values in found.items()}
        try:
            form = (compressed_images if "format" in message else pixel_encodings).form_of(message)
        except ValueError as error:
            raise UnfitError(row, str(error)) from error
        rows[row] = *form.shape, _NUMBERS.index(form.dtype.name)
    return rows


def form_of(numbers: NDArray[np.int64]) -> Form:
    """Return what the numbers of an image in `forms` mean."""
    height, width, channels, number = numbers.tolist()
    return Form(np.dtype(_NUMBERS[number]), (height, width, channels))


def has_value(spec: FieldSpec, found: Mapping[str, Values]) -> NDArray[np.bool_]:
    """(n,) whether messages have pixels; of compressed ones whether there is any data."""
    if "format" in found:
        return np.array(
            [
                not compressed_images.is_empty(_text(form), data)
                for form, data in zip(found["format"], found["data"], strict=True)
            ],
            np.bool_,
        )
    is_sized = (np.asarray(found["height"]) != 0) & (np.asarray(found["width"]) != 0)
    return np.array([known and len(data) > 0 for known, data in zip(is_sized, found["data"], strict=True)])


def _text(value: Pixels) -> str:
    return value.tobytes().decode("utf-8")


def _passes(encode: str, message: Mapping[str, Any]) -> bool:
    """Return whether a compressed image is one of this kind, showing what it is."""
    magic = {"jpg": b"\xff\xd8\xff", "png": b"\x89PNG\r\n\x1a\n"}[encode]
    is_kind = message["data"][: len(magic)].tobytes() == magic
    return is_kind and compressed_images.is_plain(_text(message["format"]))


def resized(pixels: Pixels, size: tuple[int, int]) -> Pixels:
    """Resize to (height, width, c) by Pillow's bilinear filter, unless of uint8 and int32 through float32."""
    from PIL import Image

    if 0 in pixels.shape:
        raise ValueError(f"an image of {pixels.shape} can't be resized")
    height, width = size
    layers = []
    for channel in range(pixels.shape[2]):
        layer = np.ascontiguousarray(pixels[:, :, channel])
        is_kept = layer.dtype in (np.uint8, np.int32)
        plain = layer if is_kept else layer.astype(np.float32)
        scaled = np.asarray(Image.fromarray(plain).resize((width, height), Image.Resampling.BILINEAR))
        layers.append(np.rint(scaled) if layer.dtype.kind in "iu" else scaled)
    return np.stack(layers, axis=2).astype(pixels.dtype)


def encoded(pixels: Pixels, encode: str) -> bytes:
    """Encode as a JPEG of quality 95, or a PNG.

    Raises:
        ValueError: the format can't hold such pixels.
    """
    from PIL import Image

    channels, deep = pixels.shape[2], pixels.dtype != np.uint8
    fits = channels in (1, 3) if encode == "jpg" else channels in (1, 3, 4)
    if not fits or (deep and (encode == "jpg" or channels != 1 or pixels.dtype.kind != "u")):
        raise ValueError(f"{channels} channels of {pixels.dtype.name} can't be encoded as {encode}")
    native = np.ascontiguousarray(pixels.astype(pixels.dtype.newbyteorder("="), copy=False))
    image = Image.fromarray(native[:, :, 0] if channels == 1 else native)
    file = io.BytesIO()
    options: dict[str, Any] = {"quality": JPEG_QUALITY} if encode == "jpg" else {}
    image.save(file, _ENCODED[encode], **options)
    return file.getvalue()
