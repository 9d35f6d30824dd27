"""Features of a LeRobot dataset, and the mapping of columns to them.

Here: `Feature`, `FeatureMapping`, and the features in meta/info.json.
Elsewhere: options (options), files (files), reading any LeRobot dataset (reader).

A feature is a vector of numbers, or an image. Numbers of several columns are concatenated, in numpy's common
type of them. LeRobot has no missing values, so no row may lack one, and all numbers are finite.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow.compute as pc

from logloom.blocks import Array, Block, Ragged, Values
from logloom.errors import UsageError
from logloom.io.arrow.columns import typed_values
from logloom.io.arrow.images import image_array, image_problem
from logloom.io.formats.lerobot.options import LeRobotOptions, TaskFrom, VideoOptions
from logloom.row_splits import COLUMN, has_row_splits
from logloom.schema import BYTES, STRING, ColumnType, Schema
from logloom.values import dataclass

TASK = "task"
PNG_LEVEL = 1  # a quarter of the time of the default level, for a sixth more bytes of a camera
_IMAGE_SHAPE = ("height", "width", "channels")
_KINDS = "biuf"


@dataclass(frozen=True)
class Feature:
    """One feature.

    Attributes:
        key: its name.
        columns: its columns, in order.
        ctype: of a row: one number, (n,) numbers, or the bytes of an image file.
        names: of its numbers.
    """

    key: str
    columns: tuple[str, ...]
    ctype: ColumnType
    names: tuple[str, ...] = ()

    @property
    def is_image(self) -> bool:
        return self.ctype.kind == "bytes"

    def info(self, shape: Sequence[int] = (), video: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Make its object in meta/info.json.

        Args:
            shape: height, width and channels of an image.
            video: the object of images that are video.
        """
        if self.is_image:
            described = {"shape": list(shape), "names": list(_IMAGE_SHAPE)}
            if video is None:
                return {"dtype": "image", **described}
            size = dict(zip(("video.height", "video.width", "video.channels"), shape, strict=True))
            return {"dtype": "video", **described, "info": {**video, **size}}
        dtype = self.ctype.dtype
        name = "bool" if dtype.kind == "b" else dtype.name
        return {"dtype": name, "shape": [len(self.names)], "names": list(self.names)}


# LeRobot's fields of each frame, and the row's own time.
FRAME_INFO: dict[str, dict[str, Any]] = {
    name: {"dtype": dtype, "shape": [1], "names": None}
    for name, dtype in {
        "timestamp": "float32",
        "frame_index": "int64",
        "episode_index": "int64",
        "index": "int64",
        "task_index": "int64",
        "timestamp_ns": "int64",
    }.items()
}


@dataclass(frozen=True)
class FeatureMapping:
    """The columns of each feature.

    Attributes:
        video: the encoding of images as video; None if they stay images.
    """

    features: tuple[Feature, ...]
    source: Schema
    task: str | TaskFrom
    video: VideoOptions | None = None

    @property
    def schema(self) -> Schema:
        """The schema of the dataset's rows."""
        columns = {feature.key: feature.ctype for feature in self.features}
        return Schema({**columns, **dict.fromkeys(self.texts, STRING)})

    @property
    def texts(self) -> tuple[str, ...]:
        """Columns besides features: the task, and if rows are split the split."""
        return (TASK, COLUMN) if self.has_splits else (TASK,)

    @property
    def has_splits(self) -> bool:
        """Whether rows have a column of their split; no episode has rows of two."""
        return has_row_splits(self.source)

    @property
    def stored(self) -> tuple[Feature, ...]:
        """Features in the files of data."""
        return self.features if self.video is None else self.numbers

    @property
    def images(self) -> tuple[Feature, ...]:
        return tuple(feature for feature in self.features if feature.is_image)

    @property
    def numbers(self) -> tuple[Feature, ...]:
        return tuple(feature for feature in self.features if not feature.is_image)

    @property
    def videos(self) -> tuple[str, ...]:
        """Keys of features that are video."""
        return () if self.video is None else tuple(feature.key for feature in self.images)

    def apply(self, block: Block) -> Block:
        """Convert rows to features, except those that become video.

        Raises:
            UsageError: a value is missing or isn't finite; names log, time and column.
        """
        columns: dict[str, Values] = {"timestamp": block.timestamp}
        for feature in self.features:
            for name in feature.columns:
                _check_available(block, name)
            if not feature.is_image:
                columns[feature.key] = _joined(feature, block)
            elif self.video is None:
                columns[feature.key] = self._image(feature, block)
        columns[TASK] = self._tasks(block)
        if self.has_splits:
            columns[COLUMN] = block.columns[COLUMN]
        return Block(block.log_id, block.partition, block.first_row, columns)

    def _image(self, feature: Feature, block: Block) -> Values:
        (name,) = feature.columns
        values, ctype = block.columns[name], self.source.columns[name]
        if ctype.kind != "bytes":
            try:
                encoded = image_array(values, ctype, PNG_LEVEL)
            except ValueError as error:
                raise UsageError(f"{block.log_id}: column {name}: {error}") from error
            values = typed_values(pc.fill_null(pc.struct_field(encoded, "bytes"), b""), BYTES)
        assert isinstance(values, Ragged)
        _check_rows(block, name, values.lengths > 0, "has no image")
        return values

    def pictures(self, feature: Feature, block: Block) -> Iterator[Any]:
        """Return the images of a feature as arrays of pixels, or as bytes of image files."""
        (name,) = feature.columns
        values = block.columns[name]
        if isinstance(values, Ragged):
            _check_rows(block, name, values.lengths > 0, "has no image")
        yield from values

    def _tasks(self, block: Block) -> Ragged:
        if isinstance(self.task, str):
            return Ragged.from_bytes([self.task.encode()] * len(block))
        texts = block.columns[self.task.column]
        assert isinstance(texts, Ragged)
        _check_available(block, self.task.column)
        return texts


def _joined(feature: Feature, block: Block) -> Array:
    """(n,) or (n, k) numbers of a feature, k being those of all its columns."""
    parts = []
    for name in feature.columns:
        values = block.columns[name]
        assert isinstance(values, np.ndarray)
        part = values.reshape(len(block), math.prod(values.shape[1:])).astype(feature.ctype.dtype)
        if part.dtype.kind == "f":
            _check_finite(block, name, part)
        parts.append(part)
    return np.concatenate(parts, axis=1).reshape(len(block), *feature.ctype.shape)


def _check_available(block: Block, name: str) -> None:
    available = block.columns.get(f"{name}.available")
    if isinstance(available, np.ndarray):
        _check_rows(block, name, available, "isn't available")


def _check_finite(block: Block, name: str, numbers: Array) -> None:
    has_nan = np.isnan(numbers).any(axis=1)
    kept = f"leave such rows out by `rows: {{where: isfinite({name})}}`"
    converted = f"`logloom convert` accepts `--where 'isfinite({name})'`"
    next_one = "write `nan: unavailable` at the column, so that its next message counts"
    _check_rows(block, name, ~has_nan, "has NaN", f"{kept}, or {next_one}; {converted}")
    _check_rows(block, name, np.isfinite(numbers).all(axis=1), "is infinite", f"{kept}; {converted}")


def _check_rows(block: Block, name: str, is_sound: Any, what: str, remedy: str = "") -> None:
    if not is_sound.all():
        row = int(np.flatnonzero(~is_sound)[0])
        remedy = remedy or (
            f"leave such rows out by `rows: {{require: [{name}]}}`; `logloom convert` accepts "
            f"`--where 'available({name})'`"
        )
        raise UsageError(
            f"{block.log_id}: {name} {what} at {block.timestamp[row]} ns, and LeRobot has no missing values; "
            f"{remedy}"
        )


def mapping_of(options: LeRobotOptions, schema: Schema) -> FeatureMapping:
    """
    Raises:
        UsageError: the columns don't fit.
    """
    features, problems = plan_features(options, schema)
    if problems:
        raise UsageError("; ".join(f"lerobot: {problem}" for problem in problems))
    video = None if isinstance(options.video, str) else options.video
    return FeatureMapping(tuple(features), schema, options.task, video)


def plan_features(options: LeRobotOptions, schema: Schema) -> tuple[list[Feature], list[str]]:
    """Plan the features, and list their problems, one line each."""
    features: list[Feature] = []
    problems: list[str] = []
    for key, names in sorted(options.features.items()):  # as manifests keep them
        missing = [name for name in names if name not in schema.columns]
        problems += [f"features: {key}: no column {name!r}" for name in missing]
        if not missing:
            found = _feature(key, names, schema)
            (problems if isinstance(found, str) else features).append(found)  # type: ignore[arg-type]
    if COLUMN in options.features and has_row_splits(schema):
        problems.append(f"features: {COLUMN}: rows are split, and say so under this name; call it otherwise")
    if isinstance(options.task, TaskFrom):
        column = schema.columns.get(options.task.column)
        if column is None or column.kind != "string":
            problems.append(f"task: no column {options.task.column!r} of text")
    return features, problems


def _feature(key: str, names: tuple[str, ...], schema: Schema) -> Feature | str:
    """Plan a feature, or describe its problem."""
    types = [schema.columns[name] for name in names]
    if any(_is_image(ctype) for ctype in types):
        if len(names) > 1:
            return f"features: {key}: an image is a feature of its own, not with {', '.join(names)}"
        problem = image_problem(types[0], "png") if types[0].kind == "array" else ""
        if problem or types[0].dtype != np.uint8:
            return f"features: {key}: {names[0]} {problem or f'({types[0]}) has more than 8 bits'}"
        return Feature(key, names, BYTES)
    for name, ctype in zip(names, types, strict=True):
        if ctype.kind != "array" or ctype.is_ragged or ctype.dtype.kind not in _KINDS or 0 in ctype.shape:
            problem = f"features: {key}: {name} ({ctype}) is neither numbers of a fixed shape nor an image"
            if ctype.is_list_of_numbers:
                problem += "; if its messages have lists of one length, write it at the column, as shape: [7]"
            return problem
    dtype = np.result_type(*(ctype.dtype for ctype in types)).newbyteorder("<")
    if dtype.kind not in _KINDS or dtype.itemsize > 8:
        return f"features: {key}: {', '.join(names)} have no type in common; cast them"
    elements = tuple(_element_names(names, types))
    shape = (len(elements),) if len(elements) > 1 else ()
    return Feature(key, names, ColumnType(dtype, shape), elements)


def proposed_options(schema: Schema, period: int | None) -> dict[str, Any]:
    """Options by LeRobot's usual names: each image by its own, a column called action, all other numbers.

    Args:
        period: of a rate clock, in ns; None for others.
    """
    features: dict[str, list[str]] = {}
    for name in schema.columns:
        found = _feature(name, (name,), schema)
        if not isinstance(found, str):
            last = name.rpartition(".")[2] if name.startswith("observation.") else name
            key = f"observation.images.{last}" if found.is_image else "observation.state"
            features.setdefault("action" if last == "action" else key, []).append(name)
    texts = [name for name, ctype in schema.columns.items() if ctype.kind == "string" and name == TASK]
    task = {"task": {"column": TASK}} if texts else {}
    return {"fps": round(1e9 / period) if period else 10, **task, "features": features} if features else {}


def _is_image(ctype: ColumnType) -> bool:
    if ctype.kind == "bytes":
        return True
    is_pixels = len(ctype.shape) == 3 or (len(ctype.shape) == 2 and ctype.num_ragged == 2)
    return ctype.kind == "array" and ctype.dtype.kind == "u" and is_pixels


def _element_names(names: Sequence[str], types: Sequence[ColumnType]) -> Iterator[str]:
    """Name the numbers of a feature: by their own names, such as joints, and by their place."""
    own = [name for ctype in types for name in ctype.names]
    are_distinct = len({*own}) == len(own)
    for name, ctype in zip(names, types, strict=True):
        lengths = [length or 0 for length in ctype.shape]
        for place in itertools.product(*map(range, lengths)):
            first = [ctype.names[place[0]], *map(str, place[1:])] if ctype.names else [*map(str, place)]
            yield ".".join(first if ctype.names and are_distinct else [name, *first])


def info_of(
    mapping: FeatureMapping, shapes: Mapping[str, Sequence[int]], fps: int
) -> dict[str, dict[str, Any]]:
    """The features of meta/info.json, in order.

    Args:
        shapes: of images, by key.
    """
    video: dict[str, Any] | None = None
    if mapping.video is not None:
        video = {"video.codec": mapping.video.codec, "video.pix_fmt": "yuv420p", "video.fps": fps}
        video |= {"video.is_depth_map": False, "has_audio": False}
    features = mapping.features
    return {one.key: one.info(shapes.get(one.key, ()), video) for one in features} | FRAME_INFO
