"""Raw image encodings: those of ROS's sensor_msgs, and others of drivers.

The encodings of ROS are those in sensor_msgs/image_encodings.

Here: pixels of one image, with its padding of rows and byte order; demosaicing, and YUV to RGB.
Elsewhere: columns of images, compressed images (images).

Pixels are (height, width, channels), channels being R, G, B and perhaps alpha. Bayer mosaics are demosaiced
by bilinear interpolation, and YUV (BT.601, limited range) becomes RGB by integer arithmetic; both have the
bits of OpenCV's cvtColor. A step of 0 means rows without padding.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

Pixels = np.ndarray[Any, Any]  # (h, w, c), or (h, w)

_DEPTHS = {"8U": "u1", "8S": "i1", "16U": "u2", "16S": "i2", "32S": "i4", "32F": "f4", "64F": "f8"}
_ORDERS = {"mono": (0,), "rgb": (0, 1, 2), "bgr": (2, 1, 0), "rgba": (0, 1, 2, 3), "bgra": (2, 1, 0, 3)}
# encoding: (dtype, order of channels)
_INTERLEAVED: dict[str, tuple[str, tuple[int, ...]]] = {
    **{f"{name}{bits}": (f"u{bits // 8}", order) for name, order in _ORDERS.items() for bits in (8, 16)},
    **{f"{kind}C{n}": (dtype, tuple(range(n))) for kind, dtype in _DEPTHS.items() for n in (1, 2, 3, 4)},
}
# encoding: (dtype, row and column of the first red pixel)
_BAYER: dict[str, tuple[str, tuple[int, int]]] = {
    f"bayer_{name}{bits}": (f"u{bits // 8}", red)
    for name, red in {"rggb": (0, 0), "bggr": (1, 1), "gbrg": (1, 0), "grbg": (0, 1)}.items()
    for bits in (8, 16)
}
# Four bytes are two pixels. encoding: places of Y of the first one, U and V
_UYVY, _YUYV = (1, 0, 2), (0, 1, 3)
_YUV_PAIRS = {"yuv422": _UYVY, "uyvy": _UYVY, "yuv422_yuy2": _YUYV, "yuyv": _YUYV}
# A plane of Y, and one of pairs. encoding: (places of U and V in a pair, pixels that share one in each axis)
_YUV_PLANES = {"nv12": (0, 1, 2), "nv21": (1, 0, 2), "nv24": (0, 1, 1)}
_KNOWN = (
    f"{', '.join(_ORDERS)} with 8 or 16 bits, {', '.join(_DEPTHS)} with C1 to C4, {', '.join(_BAYER)}, "
    f"{', '.join((*_YUV_PAIRS, *_YUV_PLANES))}"
)
ENCODINGS = frozenset((*_INTERLEAVED, *_BAYER, *_YUV_PAIRS, *_YUV_PLANES))

# BT.601 as integers of 20 fractional bits
_SHIFT, _BLACK, _GREY = 20, 16, 128
_Y, _R_V, _G_V, _G_U, _B_U = 1220542, 1673527, -852492, -409993, 2116026
_BAND = 1 << 16  # pixels that are converted together: temporary arrays of that size stay in the cache
_LEAST_MOSAIC = 3  # rows and columns, as the border is copied from what it encloses


class Form(NamedTuple):
    """What a column of images has to declare about one."""

    dtype: np.dtype[Any]
    shape: tuple[int, int, int]


def form_of(message: Mapping[str, Any]) -> Form:
    """Return dtype and shape of the pixels of a raw image, without decoding it.

    Raises:
        ValueError: an unknown encoding.
    """
    encoding = _encoding(message)
    if encoding in _INTERLEAVED:
        name, order = _INTERLEAVED[encoding]
        channels = len(order)
    else:
        name, channels = _BAYER[encoding][0] if encoding in _BAYER else "u1", 3
    height, width = _size(message, encoding)
    return Form(np.dtype(name), (height, width, channels))


def pixels_of(message: Mapping[str, Any]) -> Pixels:
    """Return (h, w, c) pixels of a raw image; a view if channels and bytes are in order.

    Raises:
        ValueError: an unknown encoding, or too few bytes for height and step.
    """
    encoding = _encoding(message)
    if encoding in _INTERLEAVED:
        name, order = _INTERLEAVED[encoding]
        pixels = _rows(message, encoding, name, len(order))
        return pixels if order == tuple(range(len(order))) else pixels[:, :, list(order)]
    if encoding in _BAYER:
        return demosaiced(_rows(message, encoding, _BAYER[encoding][0], 1)[:, :, 0], encoding)
    if encoding in _YUV_PAIRS:
        y, u, v = _YUV_PAIRS[encoding]
        _, width = _size(message, encoding)
        pairs = _rows(message, encoding, "u1", 4, -(-width // 2))
        return _rgb(
            pairs.reshape(len(pairs), pairs.shape[1] * 4)[:, y::2][:, :width], pairs[..., u], pairs[..., v]
        )
    return _from_planes(message, encoding)


def is_mosaic(encoding: str) -> bool:
    """Return whether it is one of a Bayer mosaic."""
    return encoding in _BAYER


def _encoding(message: Mapping[str, Any]) -> str:
    encoding: str = message["encoding"].tobytes().decode("utf-8")
    if encoding not in ENCODINGS:
        raise ValueError(f"images of encoding {encoding!r} aren't read; known are {_KNOWN}")
    return encoding


def _size(message: Mapping[str, Any], encoding: str) -> tuple[int, int]:
    """Return height and width of the picture; some drivers count the rows of both planes as height."""
    height, width = int(message["height"]), int(message["width"])
    if encoding in _YUV_PLANES and height % 3 == 0:
        size, step, share = len(message["data"]), int(message["step"]), _YUV_PLANES[encoding][2]
        if size in (step * height, width * height) and size != _packed_size(height, width, share):
            return height * 2 // 3 if share == 2 else height // 3, width
    return height, width


def _packed_size(height: int, width: int, share: int) -> int:
    """Return the bytes of both planes without padding, if `share` pixels of an axis share U and V."""
    return height * width + -(-height // share) * -(-width // share) * 2


def _misfit(message: Mapping[str, Any], encoding: str) -> ValueError:
    height, width, step = (int(message[word]) for word in ("height", "width", "step"))
    size = f"{height} x {width} {encoding} pixels in rows of {step} bytes"
    return ValueError(f"{size} don't fit {len(message['data'])} bytes of data")


def _rows(
    message: Mapping[str, Any], encoding: str, name: str, channels: int, width: int | None = None
) -> Pixels:
    """Return (h, w, channels) values as they are in the data.

    Args:
        width: that of the message if None.
    """
    big = bool(message.get("is_bigendian", False))
    dtype = np.dtype((">" if big else "<") + name)
    height, step = int(message["height"]), int(message["step"])
    width = int(message["width"]) if width is None else width
    line = width * channels * dtype.itemsize
    step = step or line
    data = np.asarray(message["data"])
    if height and (step < line or (height - 1) * step + line > len(data)):
        raise _misfit(message, encoding)
    return np.ndarray(
        (height, width, channels), dtype, data, 0, (step, channels * dtype.itemsize, dtype.itemsize)
    )


# --- mosaics --------------------------------------------------------------------------------------------


def demosaiced(mosaic: Pixels, encoding: str) -> Pixels:
    """Interpolate the two colours that each pixel of a Bayer mosaic lacks.

    Args:
        mosaic: (h, w) of uint8 or uint16.
        encoding: of `is_mosaic`; its pattern.

    Returns:
        (h, w, 3). Pixels at the border are those beside them.

    Raises:
        ValueError: the mosaic has no pixel inside its border.
    """
    height, width = mosaic.shape
    if min(height, width) < _LEAST_MOSAIC:
        raise ValueError(f"a {encoding} mosaic of {height} x {width} pixels is too small to interpolate")
    row, column = _BAYER[encoding][1]
    rgb = np.empty((height, width, 3), mosaic.dtype.newbyteorder("="))
    wide = np.uint16 if rgb.itemsize == 1 else np.uint32
    for start, stop in _bands(height - 2, width):
        # Rows of the mosaic start .. stop + 2 enclose rows start + 1 .. stop + 1 of the result.
        part: Any = mosaic[start : stop + 2].astype(wide)
        inside, out = part[1:-1, 1:-1], rgb[start + 1 : stop + 1, 1:-1]
        beside = part[:, :-2] + part[:, 2:]
        above = part[:-2, 1:-1] + part[2:, 1:-1]
        diagonal = (beside[:-2] + beside[2:] + wide(2)) >> wide(2)
        beside = beside[1:-1]
        around = (beside + above + wide(2)) >> wide(2)
        beside, above = (beside + wide(1)) >> wide(1), (above + wide(1)) >> wide(1)
        for i, j, values in (
            (0, 0, (inside, around, diagonal)),
            (0, 1, (beside, inside, above)),
            (1, 0, (above, inside, beside)),
            (1, 1, (diagonal, around, inside)),
        ):
            of_color = slice((row + i + start + 1) % 2, None, 2), slice((column + j + 1) % 2, None, 2)
            for channel, value in enumerate(values):
                out[(*of_color, channel)] = value[of_color]
    rgb[1:-1, 0], rgb[1:-1, -1] = rgb[1:-1, 1], rgb[1:-1, -2]
    rgb[0], rgb[-1] = rgb[1], rgb[-2]
    return rgb


def _bands(height: int, width: int) -> Iterator[tuple[int, int]]:
    """Cut rows into bands of `_BAND` pixels, of an even number of rows."""
    step = max(2, _BAND // max(1, width) & ~1)
    return ((start, min(height, start + step)) for start in range(0, height, step))


# --- YUV ------------------------------------------------------------------------------------------------


def _from_planes(message: Mapping[str, Any], encoding: str) -> Pixels:
    """Return the pixels of a plane of Y followed by one of pairs of U and V.

    The step is that of a row of Y, or without padding whatever a driver gives.
    """
    first, second, share = _YUV_PLANES[encoding]
    height, width = _size(message, encoding)
    rows, pairs = -(-height // share), -(-width // share)
    data = np.asarray(message["data"])
    pitch = int(message["step"])
    if pitch == 0 or len(data) == _packed_size(height, width, share):
        pitch = width
    # A row of pairs takes as many bytes as one of Y if two pixels share a pair, else twice as many.
    pair_pitch = max(pitch * 2 // share, 2 * pairs)
    start = pitch * height
    if height and width and (pitch < width or start + (rows - 1) * pair_pitch + 2 * pairs > len(data)):
        raise _misfit(message, encoding)
    if not height or not width:
        return np.empty((height, width, 3), np.uint8)
    y = np.ndarray((height, width), np.uint8, data, 0, (pitch, 1))
    chroma = np.ndarray((rows, pairs, 2), np.uint8, data, start, (pair_pitch, 2, 1))
    return _rgb(y, chroma[..., first], chroma[..., second])


def _rgb(y: Pixels, u: Pixels, v: Pixels) -> Pixels:
    """Convert YUV to RGB.

    Args:
        y: (h, w).
        u, v: (h or half of it, w or half of it), halves rounded up.
    """
    height, width = y.shape
    rgb = np.empty((height, width, 3), np.uint8)
    if not rgb.size:
        return rgb
    down, right = math.ceil(height / len(u)), math.ceil(width / u.shape[1])
    for start, stop in _bands(height, width):
        rows = slice(start // down, -(-stop // down))
        tints = _tints(u[rows], v[rows])
        for i in range(down):
            for j in range(right):
                luma = np.multiply(
                    np.maximum(y[start + i : stop : down, j::right], _BLACK), _Y, dtype=np.int32
                )
                for channel, tint in enumerate(tints):
                    value = luma + tint[: luma.shape[0], : luma.shape[1]]
                    value >>= _SHIFT
                    out = rgb[start + i : stop : down, j::right, channel]
                    np.copyto(out, np.clip(value, 0, 255, out=value), casting="unsafe")
    return rgb


def _tints(u: Pixels, v: Pixels) -> tuple[Pixels, Pixels, Pixels]:
    """Return what is added to the scaled Y for R, G and B, with what rounds."""
    blue, red = u.astype(np.int32) - _GREY, v.astype(np.int32) - _GREY
    rest = np.int32((1 << (_SHIFT - 1)) - _BLACK * _Y)
    return red * _R_V + rest, blue * _G_U + red * _G_V + rest, blue * _B_U + rest
