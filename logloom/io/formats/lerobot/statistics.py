"""Exact statistics of features, from units to meta/stats.json.

Here: `NumberStatistics` and `PixelStatistics`, which accumulate rows, and `stats_json`.
Elsewhere: exact sums and quantiles (logloom.statistics).

Each element of a vector of numbers has statistics of its own. Of images all pixels count, by channel, as
numbers from 0 to 1.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logloom.blocks import Array, Block
from logloom.errors import UsageError
from logloom.io.arrow.images import MAX_PIXELS
from logloom.io.formats.lerobot.features import Feature
from logloom.schema import ColumnType, Schema
from logloom.statistics.columns import VALUES, Key, Statistics
from logloom.statistics.exact_sums import Dyadic, mean_of, std_of
from logloom.statistics.rows import MAX_LANES, RowStatistics
from logloom.statistics.summary import PERCENTS, describe

CHANNELS, LEVELS = 3, 256
QUANTITIES = ("min", "max", "mean", "std", *(f"q{percent:02d}" for percent in PERCENTS))
_MODES = {"L": 1, "RGB": 3}
_COUNT = np.dtype("<u4")
_SPOOLED = 4 << 20  # bytes of counts that stay in memory
_AT_ONCE = 256  # images whose counts are summed


class NumberStatistics:
    """Statistics of features that are numbers."""

    def __init__(self, features: Sequence[Feature]):
        # Vectors longer than `MAX_LANES` would share lanes, so they go in pieces.
        self._pieces = [
            (_piece(feature.key, at), feature.key, slice(at, at + MAX_LANES))
            for feature in features
            for at in range(0, len(feature.names), MAX_LANES)
        ]
        sizes = {feature.key: len(feature.names) for feature in features}
        types = {feature.key: feature.ctype.dtype for feature in features}
        columns = {
            name: ColumnType(types[key], (len(range(sizes[key])[own]),)) for name, key, own in self._pieces
        }
        self._rows = RowStatistics(Schema(columns))

    def update(self, block: Block) -> None:
        """Add the next rows, as features."""
        columns = {"timestamp": block.timestamp}
        for name, key, own in self._pieces:
            values = block.columns[key]
            assert isinstance(values, np.ndarray)
            columns[name] = values.reshape(len(block), -1)[:, own]
        self._rows.update(Block(block.log_id, block.partition, 0, columns))

    def close(self) -> Statistics:
        """Return the statistics of all rows."""
        return self._rows.close()


def _piece(key: str, at: int) -> str:
    return f"{key}/{at:06d}"


class PixelStatistics:
    """How often each value occurs in each channel of the images of a feature.

    Attributes:
        shape: height, width and channels, which all have.
    """

    def __init__(self, column: str):
        self.column = column
        self.shape: tuple[int, int, int] = (0, 0, 0)
        # Of each image, since segments are known only after the last one.
        self._counts = tempfile.SpooledTemporaryFile(_SPOOLED)  # noqa: SIM115 - it lives as long as this

    def update(self, image: Array, place: str, *, as_color: bool = False) -> Any:
        """Add an image, as bytes of a file or pixels, and return its picture.

        Args:
            place: for messages.
            as_color: whether to convert grey images to colour.

        Raises:
            UsageError: it is no image, or of another shape than those before.
        """
        place = f"{place}: {self.column}"
        picture = _picture(image, place)
        if as_color and picture.mode == "L":
            picture = picture.convert("RGB")
        if picture.mode not in _MODES:
            raise UsageError(
                f"{place}: pixels of mode {picture.mode}, which LeRobot doesn't accept; {_AS_IMAGE}"
            )
        shape = picture.height, picture.width, _MODES[picture.mode]
        if not any(self.shape):
            self.shape = shape
        if shape != self.shape:
            raise UsageError(f"{place}: an image of {shape}, those before are {self.shape}; {_AS_IMAGE}")
        found = np.array(picture.histogram(), np.int64).reshape(-1, LEVELS)
        counts = np.zeros((CHANNELS, LEVELS), _COUNT)
        counts[: len(found)] = found
        self._counts.write(counts.tobytes())
        return picture

    def counts(self, rows: Sequence[int]) -> NDArray[np.int64]:
        """Sum counts over groups of images, in order: (n, 3, 256); of grey ones the first channel alone."""
        sums = np.zeros((len(rows), CHANNELS, LEVELS), np.int64)
        size = CHANNELS * LEVELS * _COUNT.itemsize
        self._counts.seek(0)
        for own, count in zip(sums, rows, strict=True):
            for at in range(0, count, _AT_ONCE):
                data = self._counts.read(min(_AT_ONCE, count - at) * size)
                own += np.frombuffer(data, _COUNT).reshape(-1, CHANNELS, LEVELS).sum(axis=0, dtype=np.int64)
        return sums


def _picture(image: Array, place: str) -> Any:
    from PIL import Image

    try:
        if image.ndim > 1:
            grey = image.ndim == 3 and image.shape[-1] == 1
            return Image.fromarray(np.ascontiguousarray(image[..., 0] if grey else image))
        picture = Image.open(io.BytesIO(image.tobytes()))
        if picture.width * picture.height > MAX_PIXELS:
            raise ValueError(f"it claims {picture.height} x {picture.width} pixels")
        picture.load()
    except Exception as error:  # Pillow raises many kinds
        raise UsageError(
            f"{place}: an image that doesn't decode ({error}); leave such rows out by `rows`"
        ) from error
    return picture


_AS_IMAGE = "`as: image` with `resize` makes one kind of them"


def stats_json(
    features: Sequence[Feature],
    numbers: Statistics,
    pixels: Mapping[str, NDArray[np.int64]],
    channels: Mapping[str, int],
    rows: int,
) -> dict[str, dict[str, Any]]:
    """Make the statistics of all rows for meta/stats.json, or of an episode for meta/episodes.

    Args:
        numbers: of the rows.
        pixels: of images by key, (3, 256) counts.
        channels: of images by key.
    """
    found: dict[str, dict[str, Any]] = {}
    for feature in features:
        if feature.is_image:
            known = [_of_pixels(lane) for lane in pixels[feature.key][: channels[feature.key]]]
            found[feature.key] = {name: [[[one[name]]] for one in known] for name in known[0]}
        else:
            known = [_of_numbers(feature, numbers, place) for place in range(len(feature.names))]
            found[feature.key] = {name: [one[name] for one in known] for name in known[0]}
        found[feature.key]["count"] = [rows]
    return found


def _of_numbers(feature: Feature, numbers: Statistics, place: int) -> dict[str, Any]:
    at = place - place % MAX_LANES
    lane = numbers.lanes[Key(_piece(feature.key, at), "", VALUES, place - at)]
    stats = describe(lane, feature.ctype.dtype)
    quantiles = {f"q{percent:02d}": stats["quantiles"][str(percent)] for percent in PERCENTS}
    return {name: stats[name] for name in ("min", "max", "mean", "std")} | quantiles


def _of_pixels(counts: NDArray[np.int64]) -> dict[str, float]:
    """Quantities of one channel's values, divided by 255."""
    occurring = np.flatnonzero(counts)
    number = int(counts.sum())
    total = sum(value * count for value, count in enumerate(counts.tolist()))
    squares = sum(value**2 * count for value, count in enumerate(counts.tolist()))
    found: dict[str, float] = {"min": float(occurring[0]), "max": float(occurring[-1])}
    found["mean"] = mean_of(Dyadic.of(total), number)
    found["std"] = std_of(Dyadic.of(total), Dyadic.of(squares), number)
    ends = np.cumsum(counts)
    for percent in PERCENTS:
        rank, rest = divmod((number - 1) * percent, 100)
        low, high = (int(np.searchsorted(ends, min(one, number - 1), "right")) for one in (rank, rank + 1))
        found[f"q{percent:02d}"] = low + (high - low) * rest / 100
    return {name: value / (LEVELS - 1) for name, value in found.items()}
