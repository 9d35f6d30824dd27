"""Images: from sensor_msgs/Image, CompressedImage and Foxglove's equivalents to pixels or encoded bytes.

Here: encodings, padding of rows, byte order, decoding, `resize` and `encode`.
Elsewhere: recognizing messages with images (adapters).

An image is (height, width, channels) of uint8, or of uint16 or float32 by the spec's `dtype`: the encoding is
declared in each message, on which a column's type must not depend. Channels are R, G, B and perhaps alpha;
Bayer mosaics stay as they are, one channel. A column is ragged in all three axes, or (h, w, c) of `shape`;
with `resize` it is (height, width, c), c being that of `shape`, else 3. JPEG and PNG messages that aren't
resized pass `encode` of the same kind untouched, if they decode. Pillow is imported when needed.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import numpy as np

from logloom.blocks import Ragged, Values
from logloom.errors import UsageError
from logloom.io.logs.interface import FieldSpec
from logloom.io.logs.messages.values import UnfitError
from logloom.schema import BYTES, ColumnType

MAX_PIXELS = 1 << 27  # of a compressed image: a few bytes can declare any size
JPEG_QUALITY = 95
# Limit of pixels per byte: in a JPEG, blocks of 64 take a bit each at least; deflate packs 1032 bytes into
# one, of which a PNG has 8 pixels each at most. Else a broken header would reserve memory in vain.
_PER_BYTE = {"JPEG": 1024, "PNG": 8 * 1032}
_FEW_PIXELS = 1 << 20
# Limit of all images of one call: above the first, their bytes are at most this many times those of the
# messages.
_FREE_BYTES, _BYTES_PER_BYTE = 1 << 30, 1024

SHAPES: tuple[Mapping[str, str], ...] = (
    {name: name for name in ("height", "width", "encoding", "is_bigendian", "step", "data")},
    {name: name for name in ("height", "width", "encoding", "step", "data")},
    {name: name for name in ("format", "data")},
)

Pixels = np.ndarray[Any, Any]  # (h, w, c)

_BAYER = [f"bayer_{pattern}" for pattern in ("rggb", "bggr", "gbrg", "grbg")]
# encoding: (dtype, order of channels)
_ENCODINGS: dict[str, tuple[str, tuple[int, ...]]] = {
    **{f"mono{bits}": (f"u{bits // 8}", (0,)) for bits in (8, 16)},
    **{f"{name}{bits}": (f"u{bits // 8}", (0,)) for name in _BAYER for bits in (8, 16)},
    **{f"rgb{bits}": (f"u{bits // 8}", (0, 1, 2)) for bits in (8, 16)},
    **{f"bgr{bits}": (f"u{bits // 8}", (2, 1, 0)) for bits in (8, 16)},
    **{f"rgba{bits}": (f"u{bits // 8}", (0, 1, 2, 3)) for bits in (8, 16)},
    **{f"bgra{bits}": (f"u{bits // 8}", (2, 1, 0, 3)) for bits in (8, 16)},
    **{
        f"{kind}C{n}": (dtype, tuple(range(n)))
        for kind, dtype in (("8U", "u1"), ("16U", "u2"), ("32F", "f4"))
        for n in (1, 2, 3, 4)
    },
}
_DTYPES = {"uint8": "u1", "uint16": "<u2", "float32": "<f4"}
_ENCODED = {"jpg": "JPEG", "png": "PNG"}
_PLAIN_MODES = {"1": "L", "P": "RGB", "PA": "RGBA", "LA": "RGBA", "CMYK": "RGB", "YCbCr": "RGB"}
_FORMATS = ("JPEG", "PNG", "WEBP")


def column_type(spec: FieldSpec) -> ColumnType:
    """See the module; bytes with `encode`."""
    if spec.encode is not None and spec.encode not in _ENCODED:
        raise UsageError(f"encode {spec.encode!r}: known are {', '.join(_ENCODED)}")
    if spec.dtype is not None and spec.dtype not in _DTYPES:
        raise UsageError(f"dtype {spec.dtype!r} of an image: known are {', '.join(_DTYPES)}")
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
    return ColumnType(np.dtype(_DTYPES[spec.dtype or "uint8"]), shape or (None, None, None))


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
    if compressed and spec.encode and not spec.resize and _is(spec.encode, message["data"]):
        check_decodes(np.asarray(message["data"]).tobytes())
        return np.asarray(message["data"])
    pixels = _decoded(message) if compressed else raw_pixels(message)
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
    if spec.resize is not None:
        if name.startswith("bayer_"):
            raise ValueError(f"a {name} mosaic can't be resized")
        pixels = resized(pixels, spec.resize)
    shape = ctype.shape if spec.encode is None else spec.shape
    if shape and None not in shape and pixels.shape != shape:
        raise ValueError(f"its (height, width, channels) are {pixels.shape}, the column's {shape}; set shape")
    if spec.encode is not None:
        return np.frombuffer(encoded(pixels, spec.encode), np.uint8)
    if pixels.dtype.newbyteorder("=") != ctype.dtype.newbyteorder("="):
        raise ValueError(
            f"its {name} pixels are {pixels.dtype.name}, the column {ctype.dtype.name}; set dtype"
        )
    return pixels.astype(ctype.dtype, copy=False)


def _text(value: Pixels) -> str:
    return value.tobytes().decode("utf-8")


def _is(encode: str, data: Pixels) -> bool:
    magic = {"jpg": b"\xff\xd8\xff", "png": b"\x89PNG\r\n\x1a\n"}[encode]
    return data[: len(magic)].tobytes() == magic


def raw_pixels(message: Mapping[str, Any]) -> Pixels:
    """Return (h, w, c) pixels of a raw image; a view if channels and bytes are in order.

    Raises:
        ValueError: an unknown encoding, or too few bytes for height and step.
    """
    encoding = _text(message["encoding"])
    if encoding not in _ENCODINGS:
        raise ValueError(f"images of encoding {encoding!r} aren't read; known are {', '.join(_ENCODINGS)}")
    name, channels = _ENCODINGS[encoding]
    big = bool(message.get("is_bigendian", False))
    dtype = np.dtype((">" if big else "<") + name)
    height, width, step = (int(message[word]) for word in ("height", "width", "step"))
    line = width * len(channels) * dtype.itemsize
    data = np.asarray(message["data"])
    if height and (step < line or (height - 1) * step + line > len(data)):
        size = f"{height} x {width} {encoding} pixels in rows of {step} bytes"
        raise ValueError(f"{size} don't fit {len(data)} bytes of data")
    strides = (step, len(channels) * dtype.itemsize, dtype.itemsize)
    pixels: Pixels = np.ndarray((height, width, len(channels)), dtype, data, 0, strides)
    return pixels if channels == tuple(range(len(channels))) else pixels[:, :, list(channels)]


def _decoded(message: Mapping[str, Any]) -> Pixels:
    """Decode a JPEG, PNG or WebP to (h, w, c) pixels.

    Raises:
        ValueError: it doesn't decode, or is something else.
    """
    from PIL import Image

    data, form = np.asarray(message["data"]), _text(message["format"])
    if "compressedDepth" in form:
        data = data[12:]  # the parameters of a lossy depth; lossless ones follow as a plain PNG
        if not form.startswith("16UC1"):
            raise ValueError(f"images of format {form!r} aren't read")
    try:
        with Image.open(io.BytesIO(data.tobytes()), formats=_FORMATS) as image:
            if image.width * image.height > _most_pixels(image.format, len(data)):
                raise ValueError(f"it claims {image.height} x {image.width} pixels in {len(data)} bytes")
            mode = _PLAIN_MODES.get(image.mode)
            pixels = np.asarray(image.convert(mode) if mode else image)
    except Exception as error:  # Pillow raises many types of errors
        raise ValueError(f"an image of format {form!r} that doesn't decode ({error})") from error
    if pixels.dtype == np.int32:  # how Pillow gives some 16-bit grey
        pixels = pixels.astype("<u2")
    return pixels if pixels.ndim == 3 else pixels[:, :, None]


def check_decodes(data: bytes) -> None:
    """
    Check that a picture decodes.

    Raises:
        ValueError: a picture doesn't decode.
    """
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data), formats=_FORMATS) as image:
            if image.width * image.height > _most_pixels(image.format, len(data)):
                raise ValueError(f"it claims {image.height} x {image.width} pixels in {len(data)} bytes")
            image.draft("L", (1, 1))  # a JPEG's whole entropy code is read, its pixels aren't made
            image.load()
    except Exception as error:  # Pillow raises many types of errors
        raise ValueError(f"a picture that doesn't decode ({error})") from error


def _most_pixels(form: str | None, num_bytes: int) -> int:
    return min(MAX_PIXELS, _FEW_PIXELS + _PER_BYTE.get(form or "", MAX_PIXELS) * num_bytes)


def resized(pixels: Pixels, size: tuple[int, int]) -> Pixels:
    """Resize to (height, width, c) by Pillow's bilinear filter; 16 bits and floats are converted through
    float32.
    """
    from PIL import Image

    if 0 in pixels.shape:
        raise ValueError(f"an image of {pixels.shape} can't be resized")
    height, width = size
    layers = []
    for channel in range(pixels.shape[2]):
        layer = np.ascontiguousarray(pixels[:, :, channel])
        plain = layer if layer.dtype == np.uint8 else layer.astype(np.float32)
        scaled = np.asarray(Image.fromarray(plain).resize((width, height), Image.Resampling.BILINEAR))
        layers.append(np.rint(scaled) if layer.dtype.kind == "u" else scaled)
    return np.stack(layers, axis=2).astype(pixels.dtype)


def encoded(pixels: Pixels, encode: str) -> bytes:
    """Encode as a JPEG of quality 95, or a PNG.

    Raises:
        ValueError: the format can't hold such pixels.
    """
    from PIL import Image

    channels, deep = pixels.shape[2], pixels.dtype.itemsize > 1
    fits = channels in (1, 3) if encode == "jpg" else channels in (1, 3, 4)
    if not fits or (deep and (encode == "jpg" or channels != 1 or pixels.dtype.kind != "u")):
        raise ValueError(f"{channels} channels of {pixels.dtype.name} can't be encoded as {encode}")
    native = np.ascontiguousarray(pixels.astype(pixels.dtype.newbyteorder("="), copy=False))
    image = Image.fromarray(native[:, :, 0] if channels == 1 else native)
    file = io.BytesIO()
    options: dict[str, Any] = {"quality": JPEG_QUALITY} if encode == "jpg" else {}
    image.save(file, _ENCODED[encode], **options)
    return file.getvalue()
