"""Small pictures for pages and notebooks: thumbnails, and point clouds from above.

Here: pure functions from bytes and arrays to the bytes of a file, always the same ones.
Elsewhere: which values are shown (logloom.pipelines.version_rows, logloom.datasets.notebook).
"""

from __future__ import annotations

import base64
import io
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from logloom.values import dataclass

if TYPE_CHECKING:
    from PIL import Image

_MAGIC = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n")
_MAX_PIXELS = 80_000_000  # of an image that is opened; of more, Pillow warns of bombs
_CHANNELS = (1, 3, 4)
_NIGHT = (16, 22, 32)  # behind clouds, in light pages and dark ones
# Even steps in lightness, also for colour-blind people: matplotlib's viridis, from its second fifth on.
_HEIGHTS = np.array([(65, 105, 158), (33, 145, 140), (53, 183, 121), (144, 215, 67), (253, 231, 37)], float)


@dataclass(frozen=True)
class Picture:
    """A picture as a file.

    Attributes:
        width, height: in pixels.
        original: width and height of the image that it was made from, where it was.
    """

    data: bytes
    mime: str
    width: int
    height: int
    original: tuple[int, int] = (0, 0)

    @property
    def uri(self) -> str:
        """A data: URI, for the src of an img."""
        return f"data:{self.mime};base64,{base64.b64encode(self.data).decode()}"


def is_image(value: Any) -> bool:
    """Return whether a value looks like an image: JPEG or PNG as bytes, or (height, width[, channels])
    uint8.
    """
    if isinstance(value, bytes):
        return value.startswith(_MAGIC)
    if not isinstance(value, np.ndarray) or value.dtype != np.uint8 or min(value.shape, default=0) == 0:
        return False
    is_colour = value.ndim == 3 and value.shape[2] in _CHANNELS
    return is_colour or (value.ndim == 2 and min(value.shape) > 8)


def thumbnail(value: Any, width: int = 320, quality: int = 72) -> Picture | None:
    """Make an image small, as JPEG.

    Args:
        value: see `is_image`; bytes from logs may be anything.
        width: of the picture in pixels, at most; as high as twice that.

    Returns:
        None if it isn't an image that decodes.
    """
    from PIL import Image

    try:
        if isinstance(value, np.ndarray):
            gray = value.squeeze(axis=2) if value.shape[2:] == (1,) else value
            return _small(Image.fromarray(gray), (gray.shape[1], gray.shape[0]), width, quality)
        with Image.open(io.BytesIO(value), formats=("JPEG", "PNG")) as image:
            if image.width * image.height > _MAX_PIXELS:
                return None
            original = image.size
            image.draft("RGB", (width, 2 * width))  # a large JPEG is decoded at an eighth of its size
            return _small(image, original, width, quality)
    except Exception:  # Pillow raises many kinds
        return None


def _small(image: Image.Image, original: tuple[int, int], width: int, quality: int) -> Picture:
    if image.mode.startswith("I"):  # depth, 16 bit gray: by its own range
        image = image.convert("F")
        image.thumbnail((width, 2 * width))  # before arrays of its size are made
        values = np.asarray(image, np.float64)
        low, high = values.min(), values.max()
        gray = (values - low) * (255 / (high - low) if high > low else 0.0)
        from PIL import Image as Images

        image = Images.fromarray(gray.astype(np.uint8))
    small = image.convert("RGB")
    small.thumbnail((width, 2 * width))
    buffer = io.BytesIO()
    small.save(buffer, "JPEG", quality=quality, optimize=True)
    return Picture(buffer.getvalue(), "image/jpeg", small.width, small.height, original)


def seen_from_above(points: NDArray[Any], reach: float, size: int = 288) -> Picture:
    """Points from above as PNG: x (ahead) points up, y (left) to the left, lighter is higher.

    Args:
        points: (N, 2 or more) x, y and z; points that aren't finite are left out.
        reach: how far the picture's edges are from the origin, in the points' unit; above 0.
        size: of the square picture in pixels.
    """
    from PIL import Image

    found = np.asarray(points, np.float64)[:, :3]
    found = found[np.isfinite(found).all(axis=1)]
    across, down = (((1 - found[:, axis] / reach) * (size / 2)) for axis in (1, 0))
    inside = (across >= 0) & (across < size) & (down >= 0) & (down < size)
    columns, rows = across[inside].astype(np.intp), down[inside].astype(np.intp)
    picture = np.empty((size, size, 3), np.uint8)
    picture[:] = _NIGHT
    if len(columns):
        heights = found[inside, 2] if found.shape[1] > 2 else np.zeros(len(columns))
        order = np.argsort(heights, kind="stable")  # the highest of a pixel is what is seen
        picture[rows[order], columns[order]] = _coloured(heights[order])
    buffer = io.BytesIO()
    Image.fromarray(picture).quantize(64).save(buffer, "PNG", optimize=True)
    return Picture(buffer.getvalue(), "image/png", size, size)


def _coloured(heights: NDArray[np.float64]) -> NDArray[np.uint8]:
    """(N, 3) colours of ascending heights, most of which are between a few of the lowest and highest."""
    low, high = np.quantile(heights, [0.02, 0.98])
    share = np.clip((heights - low) / (high - low if high > low else 1.0), 0, 1) * (len(_HEIGHTS) - 1)
    steps = np.arange(len(_HEIGHTS))
    return np.stack([np.interp(share, steps, _HEIGHTS[:, c]) for c in range(3)], axis=1).astype(np.uint8)
