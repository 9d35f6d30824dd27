"""Segments.ai's release files, of vector labels on images: `read_segments`.

    {"dataset": {"task_attributes": {"categories": [{"id", "name"}]},
                 "samples": [{"name", "labels": {"ground-truth": {"attributes": {"annotations":
                     [{"category_id", "type": "bbox" | "polygon", "points": [[x, y], …], "track_id"}]}}}}]}}

Format: https://docs.segments.ai/reference/label-types, and its release files.
Boxes and polygons are labels; other types are counted and left out. Bitmaps of segmentations lie in files of
their own, and are no labels here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from logloom.errors import DatasetError
from logloom.io.labels.tool_labels import Category, ToolFile, ToolLabel, box_around
from logloom.io.metadata import checked, parsed

_WAY_OUT = "download the release again"
_TAKEN = ("bbox", "polygon")


@dataclass(frozen=True)
class _Shape:
    category_id: int
    type: str = ""
    points: Any = None
    track_id: int | None = None
    attributes: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class _Shapes:
    annotations: tuple[_Shape, ...] = ()


@dataclass(frozen=True)
class _SegmentsLabel:
    attributes: _Shapes | None = None


@dataclass(frozen=True)
class _SegmentsSample:
    name: str
    labels: Mapping[str, _SegmentsLabel | None] = field(default_factory=dict)


@dataclass(frozen=True)
class _SegmentsTask:
    categories: tuple[Category, ...]


@dataclass(frozen=True)
class _SegmentsDataset:
    samples: tuple[_SegmentsSample, ...]
    task_attributes: _SegmentsTask


@dataclass(frozen=True)
class _Release:
    dataset: _SegmentsDataset


def read_segments(data: bytes, place: str) -> ToolFile:
    """The labels of a release.

    Args:
        place: names the file in messages.

    Raises:
        DatasetError: it is no such file, is cut, or names a category that it doesn't list.
    """
    said = checked(_Release, parsed(data, place, _WAY_OUT), place, _WAY_OUT).dataset
    names = {category.id: category.name for category in said.task_attributes.categories}
    found = ToolFile(images={sample.name for sample in said.samples})
    for sample in said.samples:
        for label in filter(None, sample.labels.values()):
            for one in label.attributes.annotations if label.attributes else ():
                if one.type not in _TAKEN:
                    found.skipped[one.type or "bitmap"] += 1
                    continue
                if one.category_id not in names:
                    raise DatasetError(f"{place}: sample {sample.name!r}: no category {one.category_id}")
                place_of = f"{place}: sample {sample.name!r}"
                points = checked(tuple[tuple[float, float], ...], one.points, place_of, _WAY_OUT)
                if not points:
                    raise DatasetError(f"{place_of}: a {one.type} without points; {_WAY_OUT}")
                flat = tuple(number for point in points for number in point)
                found.labels.append(
                    ToolLabel(
                        sample.name,
                        names[one.category_id],
                        box_around(flat),
                        flat if one.type == "polygon" else (),
                        -1 if one.track_id is None else one.track_id,
                        attributes=one.attributes or {},
                    )
                )
    return found
