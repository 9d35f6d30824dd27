"""COCO's annotation files: `read_coco`.

    {"images": [{"id", "file_name"}], "categories": [{"id", "name"}],
     "annotations": [{"image_id", "category_id", "bbox": [x, y, width, height], "segmentation": [[x, y, …]]}]}

Format: https://cocodataset.org/#format-data. Many tools add `score`, `track_id` and `attributes`.
A label without `bbox` has the box around its polygon.
Masks, of run lengths or of several polygons, are counted and left out; their boxes are kept.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from logloom.errors import DatasetError
from logloom.io.labels.tools.image_labels import Box, Category, Id, ToolFile, ToolLabel, box_around
from logloom.io.storage.metadata import checked, parsed
from logloom.values import dataclass

_WAY_OUT = "export it again"


@dataclass(frozen=True)
class _CocoImage:
    id: Id
    file_name: str


@dataclass(frozen=True)
class _CocoLabel:
    image_id: Id
    category_id: Id
    bbox: Box | None = None
    segmentation: Any = None
    score: float | None = None
    track_id: int | None = None
    attributes: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class _Coco:
    images: tuple[_CocoImage, ...]
    annotations: tuple[_CocoLabel, ...]
    categories: tuple[Category, ...]


def read_coco(data: bytes, place: str) -> ToolFile:
    """Read the labels of a COCO file.

    Args:
        place: names the file in messages.

    Raises:
        DatasetError: not such a file, truncated, or it refers to missing items.
    """
    content = checked(_Coco, parsed(data, place, _WAY_OUT), place, _WAY_OUT)
    images = _by_id(((image.id, image.file_name) for image in content.images), "images", place)
    names = _by_id(((category.id, category.name) for category in content.categories), "categories", place)
    found = ToolFile(images=set(images.values()))
    for number, one in enumerate(content.annotations):
        if one.image_id not in images or one.category_id not in names:
            what = "image" if one.image_id not in images else "category"
            raise DatasetError(f"{place}: annotation {number} is of an {what} that the file doesn't list")
        polygon: tuple[float, ...] = ()
        if one.segmentation:
            polygon = _polygon(one.segmentation)
            found.skipped["mask"] += not polygon
        box = None
        if one.bbox is not None:
            x, y, width, height = one.bbox
            box = x, y, x + width, y + height
        elif polygon:
            box = box_around(polygon)
        found.labels.append(
            ToolLabel(
                images[one.image_id],
                names[one.category_id],
                box,
                polygon,
                -1 if one.track_id is None else one.track_id,
                math.nan if one.score is None else one.score,
                one.attributes or {},
            )
        )
    return found


def _by_id(pairs: Iterable[tuple[Id, str]], what: str, place: str) -> dict[Id, str]:
    """
    Index items by id.

    Raises:
        DatasetError: two have one id.
    """
    found: dict[Id, str] = {}
    for number, name in pairs:
        if number in found:
            raise DatasetError(f"{place}: {found[number]!r} and {name!r} of {what} have one id, {number!r}")
        found[number] = name
    return found


def _polygon(segmentation: Any) -> tuple[float, ...]:
    """Return a segmentation that is one polygon; () for any other."""
    if not isinstance(segmentation, list) or len(segmentation) != 1 or not isinstance(segmentation[0], list):
        return ()
    numbers = segmentation[0]
    fits = len(numbers) % 2 == 0 and all(isinstance(n, int | float) for n in numbers)
    return tuple(map(float, numbers)) if fits else ()
