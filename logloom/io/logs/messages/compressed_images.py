"""Compressed images: JPEG, PNG and WebP, and depth images of ROS.

Depth images are those of ROS's compressed_depth_image_transport.

Here: pixels of one image, and what its header says of them.
Elsewhere: columns of images (images), their structure without decoding (picture_structure), RVL (rvl).

A depth image has a header of 12 bytes before its PNG or RVL: a number, and the parameters A and B of float32
images, which are quantised inverse depth. There a value n > 0 is A / (n - B) metres, and 0 is NaN.
Pillow keeps 8 bits of PNGs with several channels of 16: a second pass decodes their low bytes. It is imported
when needed.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from logloom.io.logs.messages import rvl
from logloom.io.logs.messages.pixel_encodings import Form, Pixels, demosaiced, is_mosaic

if TYPE_CHECKING:
    from PIL.ImageFile import ImageFile

MAX_PIXELS = 1 << 27  # of a compressed image: a few bytes can declare any size
# Limit of pixels per byte: in a JPEG, blocks of 64 take a bit each at least; deflate packs 1032 bytes into
# one, of which a PNG has 8 pixels each at most. Else a broken header would reserve memory in vain.
_PER_BYTE = {"JPEG": 1024, "PNG": 8 * 1032}
_FEW_PIXELS = 1 << 20
_FORMATS = ("JPEG", "PNG", "WEBP")
_PLAIN_MODES = {"1": "L", "P": "RGB", "PA": "RGBA", "LA": "RGBA", "CMYK": "RGB", "YCbCr": "RGB"}
_CHANNELS = {"RGB": 3, "RGBA": 4}

# How Pillow unpacks PNGs of 16 bits, which keeps the high byte of each value, and what unpacks the low ones
# instead, or both as if a pixel of two values were one of four.
_DEEP = {"RGB;16B": "RGB;16L", "RGBA;16B": "RGBA;16L", "LA;16B": "RGBA"}

DEPTH_HEADER = struct.Struct("<iff")
_DEPTH = "compressedDepth"
_DEPTH_TYPES = {"16UC1": "u2", "mono16": "u2", "32FC1": "f4"}
_RVL_HEADER = struct.Struct("<II")  # width and height
_PNG = b"\x89PNG\r\n\x1a\n"


class _Depth(NamedTuple):
    """The parts of a depth image."""

    encoding: str
    is_rvl: bool
    scale: float
    offset: float
    body: Pixels


def is_depth(form: str) -> bool:
    """Return whether a format is that of a depth image."""
    return _DEPTH in form


def is_plain(form: str) -> bool:
    """Return whether a picture of this format shows what it is: neither depth nor a mosaic."""
    return not is_depth(form) and not is_mosaic(_encoding(form))


def pixels_of(message: Mapping[str, Any]) -> Pixels:
    """Decode a compressed image to (h, w, c) pixels.

    Raises:
        ValueError: it doesn't decode, or is something else.
    """
    data, form = np.asarray(message["data"]), message["format"].tobytes().decode("utf-8")
    if (depth := _depth(form, data)) is not None:
        return _depth_pixels(form, depth)
    pixels = _file_pixels(form, data)
    encoding = _encoding(form)
    if is_mosaic(encoding) and pixels.shape[2] == 1:
        return demosaiced(pixels[:, :, 0], encoding)
    return pixels


def form_of(message: Mapping[str, Any]) -> Form:
    """Return dtype and shape of the pixels of a compressed image by its header.

    Raises:
        ValueError: it has none.
    """
    data, form = np.asarray(message["data"]), message["format"].tobytes().decode("utf-8")
    if (depth := _depth(form, data)) is not None:
        dtype = np.dtype(_DEPTH_TYPES[depth.encoding])
        shape = (*_rvl_size(form, depth.body), 1) if depth.is_rvl else _file_form(form, depth.body).shape
        return Form(dtype, shape)
    found = _file_form(form, data)
    is_color = is_mosaic(_encoding(form)) and found.shape[2] == 1
    return Form(found.dtype, (*found.shape[:2], 3)) if is_color else found


def is_empty(form: str, data: Pixels) -> bool:
    """Return whether a message has no image, as drivers send before the first one."""
    return len(data) <= (DEPTH_HEADER.size if is_depth(form) else 0)


def check_decodes(data: bytes) -> None:
    """
    Check that a picture decodes.

    Raises:
        ValueError: a picture doesn't decode.
    """
    with _opened(data, "a picture that doesn't decode") as image:
        image.draft("L", (1, 1))  # a JPEG's whole entropy code is read, its pixels aren't made
        image.load()


def _encoding(form: str) -> str:
    """Return the encoding of the image before it was compressed, as image_transport writes it."""
    return form.partition(";")[0].strip()


@contextmanager
def _opened(data: bytes, problem: str) -> Iterator[ImageFile]:
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data), formats=_FORMATS) as image:
            if image.width * image.height > _most_pixels(image.format, len(data)):
                raise ValueError(f"it claims {image.height} x {image.width} pixels in {len(data)} bytes")
            yield image
    except Exception as error:  # Pillow raises many types of errors
        raise ValueError(f"{problem} ({error})") from error


def _most_pixels(form: str | None, num_bytes: int) -> int:
    return min(MAX_PIXELS, _FEW_PIXELS + _PER_BYTE.get(form or "", MAX_PIXELS) * num_bytes)


def _undecoded(form: str) -> str:
    return f"an image of format {form!r} that doesn't decode"


def _file_pixels(form: str, data: Pixels) -> Pixels:
    octets = data.tobytes()
    with _opened(octets, _undecoded(form)) as image:
        packing = _packing(image)
        mode = _PLAIN_MODES.get(image.mode)
        pixels = np.asarray(image.convert(mode) if mode and packing not in _DEEP else image)
    if packing in _DEEP:
        pixels = _deep(form, octets, packing, pixels)
    if pixels.dtype == np.int32:  # how Pillow gives some 16-bit grey
        pixels = pixels.astype("<u2")
    return pixels if pixels.ndim == 3 else pixels[:, :, None]


def _packing(image: ImageFile) -> str:
    """Return how Pillow is going to unpack the pixels of an opened file."""
    return str(image.tile[0][3]) if image.format == "PNG" and image.tile else ""


def _deep(form: str, data: bytes, packing: str, high: Pixels) -> Pixels:
    """Return the (h, w, c) uint16 pixels of a PNG with several channels.

    Args:
        high: their high bytes, as Pillow gives them.
    """
    with _opened(data, _undecoded(form)) as image:
        opened: Any = image
        opened.tile = [(*image.tile[0][:3], _DEEP[packing])]
        low = np.asarray(image)
    if packing == "LA;16B":
        deep: Pixels = low.view(">u2").astype(np.uint16)  # grey and alpha
        return deep[:, :, [0, 0, 0, 1]]
    deep = high.astype(np.uint16)
    deep <<= 8
    deep |= low
    return deep


def _file_form(form: str, data: Pixels) -> Form:
    with _opened(data.tobytes(), _undecoded(form)) as image:
        mode = _PLAIN_MODES.get(image.mode, image.mode)
        is_deep = mode.startswith("I") or _packing(image) in _DEEP
        channels = _CHANNELS.get(mode, 1)
        return Form(np.dtype("u2" if is_deep else "u1"), (image.height, image.width, channels))


# --- depth ----------------------------------------------------------------------------------------------


def _depth(form: str, data: Pixels) -> _Depth | None:
    """Return the parts of a depth image; None for other images.

    Raises:
        ValueError: there is none, or one of an unknown kind.
    """
    encoding = _encoding(form)
    start = DEPTH_HEADER.size
    # Early publishers named the encoding alone.
    if not is_depth(form) and not (
        encoding in _DEPTH_TYPES and data[start : start + len(_PNG)].tobytes() == _PNG
    ):
        return None
    codec = form.partition(_DEPTH)[2].strip() or "png"
    if encoding not in _DEPTH_TYPES or codec not in ("png", "rvl"):
        raise ValueError(f"images of format {form!r} aren't read")
    if len(data) <= start:
        raise ValueError(f"an image of format {form!r} in {len(data)} bytes")
    _, scale, offset = DEPTH_HEADER.unpack(data[:start].tobytes())
    return _Depth(encoding, codec == "rvl", scale, offset, data[start:])


def _rvl_size(form: str, body: Pixels) -> tuple[int, int]:
    """Return height and width."""
    if len(body) < _RVL_HEADER.size:
        raise ValueError(f"{_undecoded(form)} (it has no size)")
    width, height = _RVL_HEADER.unpack(body[: _RVL_HEADER.size].tobytes())
    if width * height > MAX_PIXELS:
        raise ValueError(f"it claims {height} x {width} pixels in {len(body)} bytes")
    return height, width


def _depth_pixels(form: str, depth: _Depth) -> Pixels:
    if depth.is_rvl:
        height, width = _rvl_size(form, depth.body)
        try:
            values = rvl.decode(depth.body[_RVL_HEADER.size :], height * width)
        except ValueError as error:
            raise ValueError(f"{_undecoded(form)} ({error})") from error
        pixels: Pixels = values.reshape(height, width, 1)
    else:
        pixels = _file_pixels(form, depth.body)
    if pixels.dtype != np.uint16 or pixels.shape[2] != 1:
        raise ValueError(
            f"an image of format {form!r} with {pixels.shape[2]} channels of {pixels.dtype.name}"
        )
    if depth.encoding != "32FC1":
        return pixels
    with np.errstate(all="ignore"):
        metres = np.float32(depth.scale) / (pixels.astype(np.float32) - np.float32(depth.offset))
    metres[pixels == 0] = np.nan
    return metres
