"""Labels of images from any labelling tool, and their table.

Here: `ToolLabel`, `LabelImporter`, and `label_table`.
Elsewhere: the files of single tools, a module each, the keys of images
(logloom.io.labels.frame_names), tables as rows are joined with them (logloom.io.labels.label_tables).
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from logloom.io.labels.frame_names import Key
from logloom.io.storage.metadata import canonical
from logloom.values import dataclass

Box = tuple[float, float, float, float]
Id = int | str


@dataclass(frozen=True)
class Category:
    """A class as tools list it."""

    id: Id
    name: str


@dataclass(frozen=True)
class ToolLabel:
    """One label of one image.

    Attributes:
        image: its name in the tool, or its number among all images.
        name: the class.
        box: x_min, y_min, x_max, y_max in pixels; None for a label of the whole image.
        polygon: x, y, x, y, … in pixels.
        track: identifies an object across images; -1 if unknown.
        attributes: other attributes, as JSON.
        numbers: further columns of float32, each of as many numbers in all labels.
    """

    image: str | int
    name: str
    box: Box | None
    polygon: tuple[float, ...] = ()
    track: int = -1
    score: float = math.nan
    attributes: Mapping[str, Any] = field(default_factory=dict)
    numbers: Mapping[str, tuple[float, ...]] = field(default_factory=dict)


@dataclass
class ToolFile:
    """Contents of a tool's file.

    Attributes:
        images: names of all its images, labelled or not.
        skipped: unsupported labels, by kind.
    """

    labels: list[ToolLabel] = field(default_factory=list)
    images: set[str | int] = field(default_factory=set)
    skipped: Counter[str] = field(default_factory=Counter)


class LabelImporter(Protocol):
    """Read the labels of a tool's file; may also take `label_set`, the name of one of several sets in it."""

    def __call__(self, data: bytes, place: str) -> ToolFile:
        """Read a file.

        Args:
            place: the file's URI, also for messages.

        Raises:
            DatasetError: it is no such file, or is damaged.
        """


def box_around(polygon: Iterable[float]) -> Box:
    """The smallest box with all points of a polygon."""
    points = np.array(list(polygon), float).reshape(-1, 2)
    (x0, y0), (x1, y1) = points.min(axis=0).tolist(), points.max(axis=0).tolist()
    return x0, y0, x1, y1


def label_table(labels: Iterable[tuple[Key, ToolLabel]]) -> pa.Table:
    """Make a table of labels by log_id and time; those of one image are in the tool's order.

    Columns log_id, timestamp (ns), class and bbox (4 float32, NaN for none); and if any label has them track,
    score, attributes (JSON), polygon and other columns of the tool.

    Raises:
        ValueError: text that isn't UTF-8, or a number beyond 32 bits of a float.
        OverflowError: a track beyond 64 bits.
    """
    rows = sorted(labels, key=lambda pair: pair[0])
    said = [label for _, label in rows]
    nan4 = (math.nan,) * 4
    columns: dict[str, pa.Array] = {
        "log_id": pa.array([key[0] for key, _ in rows], pa.string()).dictionary_encode(),
        "timestamp": pa.array([key[1] for key, _ in rows], pa.int64()),
        "class": pa.array([label.name for label in said], pa.string()),
        "bbox": _float32s("bbox", [label.box or nan4 for label in said], 4),
    }
    if any(label.track >= 0 for label in said):
        columns["track"] = pa.array([label.track for label in said], pa.int64())
    if not all(math.isnan(label.score) for label in said):
        columns["score"] = _float32s("score", [(label.score,) for label in said], 1)
    for name, numbers in said[0].numbers.items() if said else ():
        columns[name] = _float32s(name, [label.numbers[name] for label in said], len(numbers))
    if any(label.attributes for label in said):
        texts = [canonical(label.attributes).decode() if label.attributes else "" for label in said]
        columns["attributes"] = pa.array(texts, pa.string())
    if any(label.polygon for label in said):
        columns["polygon"] = _float32s("polygon", [label.polygon for label in said], -1)
    return pa.table(columns)


def _float32s(name: str, rows: Sequence[Sequence[float]], length: int) -> pa.Array:
    """Make a column with this number of values per row, any number for -1; plain numbers for 1.

    Raises:
        ValueError: a number is beyond float32.
    """
    wide = np.fromiter(itertools.chain.from_iterable(rows), np.float64)
    with np.errstate(over="ignore"):
        values = wide.astype(np.float32)
    if np.isinf(values).any():
        raise ValueError(f"{name}: {wide[np.isinf(values)][0]:g} is beyond the numbers of 32 bits")
    if length == 1:
        return pa.array(values)
    if length > 1:
        return pa.FixedSizeListArray.from_arrays(pa.array(values), length)
    offsets = np.cumsum([0, *map(len, rows)], dtype=np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values))
