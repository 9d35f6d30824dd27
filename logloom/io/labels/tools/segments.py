"""Segments.ai's release files, of vector labels on images: `read_segments`.

    {"dataset": {"task_attributes": {"categories": [{"id", "name"}]},
                 "samples": [{"name", "labels": {"ground-truth": {"attributes": {"annotations":
                     [{"category_id", "type": "bbox" | "polygon", "points": [[x, y], …], "track_id"}]},
                     "label_status": "REVIEWED" | …}}}]}}

Format: https://docs.segments.ai/reference/label-types, and its release files. A sample has a label in each
label set, of which one is used. Boxes and polygons are labels; other types are counted and left out, and so
are frames of sequences, and labels that weren't approved. Bitmaps of segmentations are in separate files, and
not supported.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from logloom.errors import DatasetError
from logloom.io.labels.tools.image_labels import Category, Id, ToolFile, ToolLabel, box_around
from logloom.io.storage.metadata import checked, parsed
from logloom.values import dataclass

_WAY_OUT = "download the release again"
_TAKEN = ("bbox", "polygon")
LABEL_SET = "ground-truth"  # what Segments.ai calls the first one
# By people; others are of models, unfinished, or refused.
_USABLE = ("LABELED", "REVIEWING_IN_PROGRESS", "REVIEWED")


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
    frames: tuple[Any, ...] = ()


@dataclass(frozen=True)
class _SegmentsLabel:
    attributes: _Shapes | None = None
    label_status: str | None = None


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


def read_segments(data: bytes, place: str, label_set: str = LABEL_SET) -> ToolFile:
    """Read the labels of a release.

    Args:
        place: names the file in messages.
        label_set: the label set to use.

    Raises:
        DatasetError: not such a file, truncated, without the label set, or it refers to a missing category.
    """
    dataset = checked(_Release, parsed(data, place, _WAY_OUT), place, _WAY_OUT).dataset
    names = {category.id: category.name for category in dataset.task_attributes.categories}
    sets = {name for sample in dataset.samples for name in sample.labels}
    if sets and label_set not in sets:
        known = ", ".join(map(repr, sorted(sets)))
        raise DatasetError(f"{place}: has no label set {label_set!r}; there are {known} (--label-set)")
    found = ToolFile(images={sample.name for sample in dataset.samples})
    for sample in dataset.samples:
        label = sample.labels.get(label_set)
        if label is None or label.attributes is None:
            continue
        shapes = label.attributes
        if label.label_status is not None and label.label_status not in _USABLE:
            found.skipped[label.label_status.lower()] += len(shapes.annotations) + len(shapes.frames)
            continue
        if shapes.frames:
            found.skipped["frame of a sequence"] += len(shapes.frames)
        for one in shapes.annotations:
            if one.type in _TAKEN:
                found.labels.append(_label(one, sample.name, names, f"{place}: sample {sample.name!r}"))
            else:
                found.skipped[one.type or "bitmap"] += 1
    return found


def _label(one: _Shape, image: str, names: Mapping[Id, str], place: str) -> ToolLabel:
    """
    Convert an annotation.

    Raises:
        DatasetError: its category is missing, or its points are invalid.
    """
    if one.category_id not in names:
        raise DatasetError(f"{place}: no category {one.category_id}")
    points = checked(tuple[tuple[float, float], ...], one.points, place, _WAY_OUT)
    if not points:
        raise DatasetError(f"{place}: a {one.type} without points; {_WAY_OUT}")
    flat = tuple(number for point in points for number in point)
    return ToolLabel(
        image,
        names[one.category_id],
        box_around(flat),
        flat if one.type == "polygon" else (),
        -1 if one.track_id is None else one.track_id,
        attributes=one.attributes or {},
    )
