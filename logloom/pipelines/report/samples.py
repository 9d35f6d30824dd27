"""What a page shows of some rows of a version: pictures, clouds from above, places on a map, values.

Here: which rows those are, and reading them. What is read is bounded, however large the version is.
Elsewhere: the rest of the page (report), boxes on images (boxes), pictures (logloom.pictures), how
values are put in words (logloom.pipelines.head.head).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logloom.caching import cached_property
from logloom.io.catalog.entries import Entry, LogUnits, read_log_part
from logloom.io.catalog.manifest import Manifest
from logloom.io.catalog.pages import LogRecord
from logloom.io.catalog.row_counts import runs_of_unit
from logloom.io.formats.registry import by_preference, format_named
from logloom.io.rows.sources import RowSource
from logloom.io.storage.store import Store
from logloom.pictures import Picture, is_image, seen_from_above, thumbnail
from logloom.pipelines.head.head import brief
from logloom.pipelines.report.boxes import BoxColumns, Outlines
from logloom.pipelines.verify.verify import reading_of
from logloom.schema import NO_AGE, ColumnType, Schema
from logloom.transforms.build.read_back import Reading

MAX_SAMPLES = 24
MAX_PICTURES = 120  # on a page, some 15 kB each
MAX_IMAGES, MAX_CLOUDS, MAX_VALUES = 6, 2, 60  # columns of a sample that are shown
MAX_TRACKS, TRACK_POINTS = 24, 40
MAX_POINTS = 100_000  # of a cloud that are drawn
_PLACES = frozenset({"position", "translation", "location", "xy", "xyz", "centroid"})
_CLOUDS = frozenset({"points", "cloud", "pointcloud", "lidar", "radar"})


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


class RowsOfLogs:
    """The rows of a version by number, each column from the output whose rows are quickest to reach."""

    def __init__(self, store: Store, manifest: Manifest):
        self._store, self._manifest = store, manifest
        self._reading = reading_of(store, manifest)
        self.ends = np.cumsum(manifest.logs.column("rows").to_numpy())
        self._units: tuple[str, LogUnits] | None = None
        self._sources: dict[str, RowSource] = {}
        self._labels: tuple[str, list[str]] = "", []

    @cached_property
    def schema(self) -> Schema:
        """Of the columns as they were built; where no output keeps them so, as that one has them."""
        if any(format_named(name).keeps_columns for name in self.outputs()):
            return self._reading.schema
        for _, record, number in self.found(range(min(1, len(self)))):
            for source, _ in self.parts(record, [number], self.outputs()[0]):
                return source.schema
        return Schema({})

    @property
    def reading(self) -> Reading:
        return self._reading

    def __len__(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else 0

    def found(self, rows: Iterable[int]) -> Iterator[tuple[int, LogRecord, int]]:
        """(row, its log, its number in the log), for ascending numbers of rows."""
        wanted = list(rows)
        positions = np.searchsorted(self.ends, wanted, side="right").tolist()
        numbers = sorted(set(positions))
        records = dict(zip(numbers, self._manifest.logs.take(numbers), strict=True))
        for row, position in zip(wanted, positions, strict=True):
            first = int(self.ends[position - 1]) if position else 0
            yield row, records[position], row - first

    def units(self, record: LogRecord) -> LogUnits:
        """The units of a log; those of the last one that was asked for are kept."""
        if self._units is None or self._units[0] != record.part:
            self._units = record.part, read_log_part(self._store, record.part, brief=True)
            self._sources = {}
        return self._units[1]

    def parts(
        self, record: LogRecord, rows: Sequence[int], output: str
    ) -> Iterator[tuple[RowSource, NDArray[np.int64]]]:
        """The units of an output that hold some rows of a log, each with those rows of its own.

        Args:
            rows: ascending numbers within the log.
        """
        numbers, counts = self.units(record).with_rows(output, record.rows)
        ends = np.cumsum(counts)
        at = np.searchsorted(ends, rows, side="right")
        for place in np.unique(at).tolist():
            own = np.asarray(rows, np.int64)[at == place] - (int(ends[place - 1]) if place else 0)
            yield self.source(self.units(record)[int(numbers[place])]), own

    def source(self, entry: Entry) -> RowSource:
        """The rows of a unit of the last log whose units were asked for; opened once."""
        if entry.folder not in self._sources:
            self._sources[entry.folder] = self._reading.open(entry)
        return self._sources[entry.folder]

    def split_of(self, record: LogRecord, number: int) -> str:
        """The split that a row of a log is in."""
        if not record.splits:
            return record.split
        if self._labels[0] != record.part:
            place = self._store.uri_of(f"logs/{record.part}.parquet")
            units = read_log_part(self._store, record.part)
            numbers, _ = units.with_rows(self.outputs()[0], record.rows)
            entries = (units[int(number)] for number in numbers)
            runs = (run for one in entries for run in runs_of_unit(one.tally, one.rows, place))
            self._labels = record.part, [name for name, count in runs for _ in range(count)]
        labels = self._labels[1]
        return labels[number] if number < len(labels) else record.split

    def outputs(self) -> list[str]:
        """Those with rows, the quickest first; only those that keep columns as they are, where some do."""
        readable = [name for name in by_preference(self._manifest.outputs) if format_named(name).has_rows]
        return [name for name in readable if format_named(name).keeps_columns] or readable[:1]

    def row(self, record: LogRecord, number: int) -> dict[str, Any]:
        """A row of a log with all columns, ages and availabilities that outputs hold."""
        found: dict[str, Any] = {}
        for output in self.outputs():
            for source, own in self.parts(record, [number], output):
                names = [name for name in source.schema.all if name not in found]
                if names:
                    found |= source.row(int(own[0]), names)
        return found


def samples_of(rows: RowsOfLogs, recipe: Mapping[str, Any]) -> Samples:
    """Rows evenly spread over a version, and the tracks of some of its logs.

    Args:
        recipe: of the version; says which columns are clouds.
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


def has_value(values: Mapping[str, Any], name: str) -> bool:
    """Whether a row has a usable value of a column that isn't empty."""
    return name in values and bool(values.get(f"{name}.available", True)) and np.size(values[name]) > 0


def is_cloud(name: str, ctype: ColumnType, recipe: Mapping[str, Any]) -> bool:
    """Whether a column holds clouds of points: by its type, and its name or what the recipe says of it."""
    if ctype.kind != "array" or ctype.num_ragged != 1:
        return False
    if ctype.dtype.names:
        axes = [ctype.dtype[name] for name in ("x", "y", "z") if name in ctype.dtype.names]
        is_plain = all(axis.kind in "biuf" and not axis.shape for axis in axes)
        return len(ctype.shape) == 1 and {"x", "y"} <= set(ctype.dtype.names) and is_plain
    if len(ctype.shape) != 2 or not 2 <= (ctype.shape[1] or 0) <= 16 or ctype.dtype.kind != "f":
        return False
    column = recipe.get("columns", {}).get(name)
    adapter = str(column.get("as", "")) if isinstance(column, Mapping) else ""
    return adapter.startswith("points") or bool(_CLOUDS & set(name.split(".")))


def points_of(value: NDArray[Any]) -> NDArray[np.float64]:
    """(N, 2 or 3) x, y and z."""
    if value.dtype.names:
        names = [name for name in ("x", "y", "z") if name in value.dtype.names]
        return np.stack([value[name].astype(np.float64) for name in names], axis=1)
    return np.asarray(value[:, :3], np.float64)


def _drawn_points(value: NDArray[Any]) -> NDArray[np.float32]:
    """(N, 2 or 3) x, y and z of at most MAX_POINTS points; what float32 can't hold is infinite."""
    with np.errstate(over="ignore"):
        return points_of(value[:: max(1, -(-len(value) // MAX_POINTS))]).astype(np.float32)


def _reach(clouds: Sequence[NDArray[np.float32]]) -> float:
    """How far almost all points lie from the origin along an axis, rounded up to 1, 2, 3, 5 or 8 times a
    power of ten; 0 without any."""
    furthest = [np.abs(one[np.isfinite(one).all(axis=1), :2]).max(axis=1) for one in clouds]
    reaches = [float(np.quantile(one, 0.95)) for one in furthest if len(one)]
    most = max((one for one in reaches if one < 1e15), default=0.0)  # a broken cloud hides no other
    if most <= 1e-9:
        return 0.0
    power = 10.0 ** math.floor(math.log10(most))
    return next(step * power for step in (1, 2, 3, 5, 8, 10) if most <= step * power)


def _place_column(schema: Schema) -> str:
    """The column of where the car is; "" where no name says so."""
    return next((name for name, ctype in schema.columns.items() if is_place(name, ctype)), "")


def is_place(name: str, ctype: ColumnType) -> bool:
    """Whether a column holds places: vectors of two or three floats, by the end of its name."""
    fits = ctype.kind == "array" and ctype.shape in ((2,), (3,)) and ctype.dtype.kind == "f"
    return fits and name.rpartition(".")[2] in _PLACES


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
            np.asarray(source.batch(own, [place])[place], np.float64)[:, :2]
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
