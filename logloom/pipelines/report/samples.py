"""Sample rows on a page: pictures, clouds from above, places on a map, values.

Here: which rows those are. What is read is bounded, however large the version is.
Elsewhere: reading rows (logloom.pipelines.version_rows), the rest of the page (report), boxes on images
(boxes), pictures (logloom.pictures), how values are put in words (logloom.pipelines.head.head).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logloom.io.formats.registry import format_named
from logloom.pictures import Picture, is_image, seen_from_above, thumbnail
from logloom.pipelines.head.head import brief
from logloom.pipelines.report.boxes import BoxColumns, Outlines
from logloom.pipelines.version_rows import RowsOfLogs, has_value, is_cloud, is_place, points_of
from logloom.schema import NO_AGE, Schema
from logloom.values import dataclass

MAX_SAMPLES = 24
MAX_PICTURES = 120  # on a page, some 15 kB each
MAX_IMAGES, MAX_CLOUDS, MAX_VALUES = 6, 2, 60  # columns of a sample that are shown
MAX_TRACKS, TRACK_POINTS = 24, 40
MAX_POINTS = 100_000  # of a cloud that are drawn


@dataclass(frozen=True)
class ReportSample:
    """A row that is shown.

    Attributes:
        row: its number in the version, from 0.
        images, clouds: by column.
        boxes: on images, by column; of those that show some.
        values: (column, value, age) in words, but for images; an age of "" is none.
        place: x and y, where a column says where the car is.
        missing: columns without a usable message.
    """

    row: int
    log_id: str
    split: str
    timestamp: int
    images: Mapping[str, Picture]
    clouds: Mapping[str, Picture]
    boxes: Mapping[str, Outlines]
    values: tuple[tuple[str, str, str], ...]
    place: tuple[float, float] | None
    missing: tuple[str, ...]


@dataclass(frozen=True)
class Track:
    """Where a log went: (N, 2) x and y of some of its rows, in order; and the splits that its rows are in."""

    log_id: str
    splits: tuple[str, ...]
    points: NDArray[np.float64]


@dataclass(frozen=True)
class Samples:
    """The rows that are shown, and the tracks.

    Attributes:
        place: the column that says where the car is; "" without one.
        reach: how far clouds are drawn from the origin; 0 without clouds.
        images_left_out: columns of images that are too many to be shown.
    """

    rows: tuple[ReportSample, ...]
    tracks: tuple[Track, ...]
    place: str
    reach: float
    images_left_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class _SmallRow:
    """What is kept of a row that was read: raw images of many cameras would fill the memory.

    Attributes:
        images: those that decode, by column.
        points: of what may be a cloud, by column.
        geometry: what boxes on images take, by column.
        values: see `ReportSample`, of all columns.
    """

    row: int
    log_id: str
    split: str
    timestamp: int
    images: Mapping[str, Picture]
    points: Mapping[str, NDArray[np.float32]]
    geometry: Mapping[str, Any]
    values: tuple[tuple[str, str, str], ...]
    place: tuple[float, float] | None
    missing: tuple[str, ...]


def samples_of(rows: RowsOfLogs, recipe: Mapping[str, Any]) -> Samples:
    """Rows evenly spread over a version, and the tracks of some of its logs.

    Args:
        recipe: of the version; determines the columns of clouds.
    """
    place = _place_column(rows.schema)
    may_be_clouds = [name for name, ctype in rows.schema.columns.items() if is_cloud(name, ctype, recipe)]
    boxes = BoxColumns(rows.schema.columns, recipe)
    found = [
        _small_row(
            number,
            rows.split_of(record, own),
            rows.row(record, own),
            rows.schema,
            may_be_clouds,
            boxes.names,
            place,
        )
        for number, record, own in rows.found(evenly(len(rows), MAX_SAMPLES))
    ]
    images = [name for name in rows.schema.columns if any(name in one.images for one in found)]
    clouds = [name for name in may_be_clouds if any(name in one.points for one in found)][:MAX_CLOUDS]
    shown = images[:MAX_IMAGES]
    reach = _reach([one.points[name] for one in found for name in clouds if name in one.points])
    kept = found
    if shown and len(found) * len(shown) > MAX_PICTURES:
        kept = [found[at] for at in evenly(len(found), MAX_PICTURES // len(shown))]
    made = [_sample(one, shown, clouds, reach, _boxes_of(one, boxes, shown, images)) for one in kept]
    return Samples(tuple(made), tuple(tracks_of(rows, place)), place, reach, tuple(images[MAX_IMAGES:]))


def evenly(total: int, most: int) -> list[int]:
    """At most so many of the numbers below `total`, evenly spread.

    >>> evenly(3, 5), evenly(10, 2)
    ([0, 1, 2], [2, 7])
    """
    count = min(total, most)
    return [(2 * number + 1) * total // (2 * count) for number in range(count)]


def _drawn_points(value: NDArray[Any]) -> NDArray[np.float32]:
    """(N, 2 or 3) x, y and z of at most MAX_POINTS points; what float32 can't hold is infinite."""
    with np.errstate(over="ignore"):
        return points_of(value[:: max(1, -(-len(value) // MAX_POINTS))]).astype(np.float32)


def _reach(clouds: Sequence[NDArray[np.float32]]) -> float:
    """How far almost all points are from the origin along an axis, rounded up to 1, 2, 3, 5 or 8 times a
    power of ten; 0 without any."""
    furthest = [np.abs(one[np.isfinite(one).all(axis=1), :2]).max(axis=1) for one in clouds]
    reaches = [float(np.quantile(one, 0.95)) for one in furthest if len(one)]
    most = max((one for one in reaches if one < 1e15), default=0.0)  # a broken cloud hides no other
    if most <= 1e-9:
        return 0.0
    power = 10.0 ** math.floor(math.log10(most))
    return next(step * power for step in (1, 2, 3, 5, 8, 10) if most <= step * power)


def _place_column(schema: Schema) -> str:
    """Return the column of the car's position; "" if no name suggests one."""
    return next((name for name, ctype in schema.columns.items() if is_place(name, ctype)), "")


def _small_row(
    number: int,
    split: str,
    values: Mapping[str, Any],
    schema: Schema,
    may_be_clouds: Sequence[str],
    for_boxes: Collection[str],
    place: str,
) -> _SmallRow:
    usable = [name for name in schema.columns if has_value(values, name)]
    images = {name: thumbnail(values[name]) for name in usable if is_image(values[name])}
    where = np.asarray(values[place][:2], np.float64) if place in usable else np.array([np.nan])
    return _SmallRow(
        number,
        str(values["log_id"]),
        split,
        int(values["timestamp"]),
        {name: picture for name, picture in images.items() if picture is not None},
        {name: _drawn_points(values[name]) for name in may_be_clouds if name in usable},
        {n: values[n] for n in for_boxes if n in values and values.get(f"{n}.available", True)},
        tuple((name, _text(values, name), _age(values, name)) for name in schema.columns if name in values),
        (float(where[0]), float(where[1])) if np.isfinite(where).all() else None,
        tuple(
            name for name in schema.sampled if name in values and not values.get(f"{name}.available", True)
        ),
    )


def _boxes_of(
    found: _SmallRow, boxes: BoxColumns, shown: Sequence[str], images: Sequence[str]
) -> dict[str, Outlines]:
    pictures = {name: found.images[name] for name in shown if name in found.images}
    drawn = {name: boxes.outlines(name, images, found.geometry, one) for name, one in pictures.items()}
    return {name: outlines for name, outlines in drawn.items() if outlines.boxes}


def _sample(
    found: _SmallRow, shown: Sequence[str], clouds: Sequence[str], reach: float, boxes: Mapping[str, Outlines]
) -> ReportSample:
    return ReportSample(
        found.row,
        found.log_id,
        found.split,
        found.timestamp,
        {name: found.images[name] for name in shown if name in found.images},
        {
            name: seen_from_above(found.points[name], reach)
            for name in clouds
            if reach and name in found.points
        },
        boxes,
        tuple(one for one in found.values if one[0] not in found.images)[:MAX_VALUES],
        found.place,
        found.missing,
    )


def _text(values: Mapping[str, Any], name: str) -> str:
    return brief(values[name]) if values.get(f"{name}.available", True) else "unavailable"


def _age(values: Mapping[str, Any], name: str) -> str:
    age = int(values.get(f"{name}.age", NO_AGE))
    return "" if age == NO_AGE else f"{age / 1e6:.1f} ms"


def tracks_of(rows: RowsOfLogs, place: str) -> Iterator[Track]:
    """Where some logs went, by a column that says it."""
    output = next((name for name in rows.outputs() if place and _holds(rows, name, place)), None)
    if output is None:
        return
    logs = np.flatnonzero(np.diff(rows.ends, prepend=0))
    chosen = [int(logs[at]) for at in evenly(len(logs), MAX_TRACKS)]
    for _, record, _ in list(rows.found(int(rows.ends[at]) - 1 for at in chosen)):
        parts = [
            np.asarray(source.take(own, [place])[place], np.float64)[:, :2]
            for source, own in rows.parts(record, _ends_and_between(record.rows), output)
        ]
        points = np.concatenate(parts)
        yield Track(record.log_id, record.split_names, points[np.isfinite(points).all(axis=1)])


def _holds(rows: RowsOfLogs, output: str, column: str) -> bool:
    held = format_named(output).columns_of(rows.reading.outputs[output], rows.schema)
    return column in (held or rows.schema).columns


def _ends_and_between(total: int) -> list[int]:
    ends = np.linspace(0, total - 1, min(total, TRACK_POINTS))
    return [int(number) for number in np.unique(ends.round())]
