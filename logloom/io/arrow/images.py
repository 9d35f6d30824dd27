"""Images in Arrow tables, laid out as in Hugging Face: structs of bytes and path.

Here: `image_array`, `image_values`, and a check of columns.
Elsewhere: the tables (layout).

Bytes are stored unchanged; without any, the image is null. Pixels are stored as lossless PNG. `path` is
always null. See https://huggingface.co/docs/datasets/image_dataset
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logloom.blocks import Array, Ragged, Values
from logloom.io.arrow.columns import typed_values
from logloom.schema import BYTES, ColumnType

IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
FORMS = ("bmp", "gif", "jpeg", "jpg", "png", "tif", "tiff", "webp")
MAX_PIXELS = 1 << 27  # a few bytes can declare any size
_CHANNELS = (1, 3, 4)
_NO_IMAGE = b""


def image_problem(ctype: ColumnType, form: str) -> str:
    """Explain why a column can't contain images of a kind; "" if it can."""
    if ctype.kind == "bytes":
        return ""
    dtype, shape = ctype.dtype.str, ctype.shape
    is_image = ctype.kind == "array" and len(shape) in (2, 3) and dtype in ("|u1", "<u2") and 0 not in shape
    last = shape[2] if len(shape) == 3 else 1
    if not is_image or (last is not None and last not in (_CHANNELS if dtype == "|u1" else (1,))):
        return f"({ctype}) is neither bytes nor pixels of 8 bits, or of 16 bits and one channel"
    return (
        "" if form == "png" else f"({ctype}) is pixels, which are kept as png; `encode: {form}` makes bytes"
    )


def image_array(values: Values, ctype: ColumnType, png_level: int | None = None) -> Any:
    """Convert n images.

    Args:
        png_level: how hard PNG compresses pixels, 0 to 9; None is zlib's default.

    Raises:
        ValueError: pixels that PNG can't hold.
    """
    if ctype.kind == "bytes":
        rows = [row.tobytes() for row in values]
    else:
        rows = [_png(row, ctype, png_level) for row in values]
    found = pa.array([row or None for row in rows], pa.binary())
    paths = pa.nulls(len(rows), pa.string())
    return pa.StructArray.from_arrays([found, paths], ["bytes", "path"], mask=found.is_null())


def image_values(array: Any, ctype: ColumnType) -> Values:
    """Inverse of `image_array`.

    Raises:
        ValueError: no image, or one of another shape.
    """
    data = pc.fill_null(pc.struct_field(array, "bytes"), _NO_IMAGE)
    encoded = typed_values(data, BYTES)
    if ctype.kind == "bytes":
        return encoded
    assert isinstance(encoded, Ragged)
    rows = [_pixels(row, ctype) for row in encoded]
    return Ragged.from_rows(rows, ctype) if ctype.is_ragged else np.stack(rows)


def _png(pixels: Array, ctype: ColumnType, level: int | None) -> bytes:
    from PIL import Image

    if not pixels.size:
        if any(pixels.shape[: ctype.num_ragged]):
            raise ValueError(f"an image of shape {pixels.shape}")
        return _NO_IMAGE
    gray = pixels.ndim == 2 or pixels.shape[2] == 1
    if not gray and (pixels.shape[2] not in _CHANNELS or pixels.dtype.itemsize > 1):
        raise ValueError(f"an image of {pixels.shape[2]} channels of {pixels.dtype}")
    native = np.ascontiguousarray(pixels, pixels.dtype.newbyteorder("="))
    file = io.BytesIO()
    how = {} if level is None else {"compress_level": level}
    Image.fromarray(native.reshape(native.shape[:2]) if gray else native).save(file, "PNG", **how)
    return file.getvalue()


def _pixels(data: Array, ctype: ColumnType) -> Array:
    from PIL import Image

    if not len(data):
        if not ctype.is_ragged:
            raise ValueError("a row without an image")
        return np.zeros([length or 0 for length in ctype.shape], ctype.dtype)
    try:
        with Image.open(io.BytesIO(data.tobytes()), formats=("PNG",)) as image:
            if image.width * image.height > MAX_PIXELS:
                raise ValueError(f"it claims {image.height} x {image.width} pixels")
            pixels = np.asarray(image)
    except Exception as error:  # Pillow raises many types of errors
        raise ValueError(f"an image that doesn't decode ({error})") from error
    if pixels.ndim == 2 and len(ctype.shape) == 3:
        pixels = pixels[:, :, None]
    wanted = ctype.shape
    fits = len(wanted) == pixels.ndim and all(
        length in (None, own) for length, own in zip(wanted, pixels.shape, strict=True)
    )
    if not fits or (pixels.dtype == np.uint8) != (ctype.dtype == np.uint8):
        raise ValueError(f"an image of {pixels.shape} {pixels.dtype}, should be {ctype}")
    return pixels.astype(ctype.dtype)
