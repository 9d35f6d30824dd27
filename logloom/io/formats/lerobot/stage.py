"""Writer and reader of a staged unit of a LeRobot dataset.

A staged unit is these files, little-endian:

    rows         a packed structure for each row: timestamp, number of the task, numbers of the features
    sizes        (rows, images) u4: bytes of each image, or of each frame's packet of video
    images.0     concatenated image files, for each feature that is an image; or of each run, as video:
    video.0.1    an MP4 file of the rows of a run, between two gaps
    keys         (rows, images) u1: which packets are keyframes
    statistics   of the numbers of all rows; see `NumberStatistics`
    pixels       (segments, images, 3, 256) i8: how often each value occurs in each channel

Here: `LeRobotStageWriter`, `LeRobotStageReader`.
Elsewhere: mapping rows to features (features), ranges of the files (staged_rows), assembly of units to one
dataset (assemble).
"""

from __future__ import annotations

import itertools
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np
from pydantic import model_validator

from logloom.blocks import Array, Block, Ragged, Values, cut_by_bytes
from logloom.caching import cached_property
from logloom.digests import ColumnDigest, RowsDigest
from logloom.errors import UsageError
from logloom.io.formats.interface import UnitContext
from logloom.io.formats.lerobot import staged_rows
from logloom.io.formats.lerobot.episodes import is_gap, period_problem, segments_of
from logloom.io.formats.lerobot.features import TASK, mapping_of
from logloom.io.formats.lerobot.options import LeRobotOptions
from logloom.io.formats.lerobot.statistics import NumberStatistics, PixelStatistics
from logloom.io.formats.lerobot.video_encoder import RunCopier, RunEncoder, RunPackets, is_packet
from logloom.io.formats.stages import StageReader, StageWriter
from logloom.io.formats.unit_summary import Closed
from logloom.io.storage.metadata import Count, Int64, Text
from logloom.row_splits import COLUMN
from logloom.schema import BYTES, Schema

_PACKETS_AT_ONCE = 64


class LeRobotStageWriter(StageWriter):
    """Writes the staged files of one partition into a local folder."""

    def __init__(
        self, directory: pathlib.Path, schema: Schema, options: LeRobotOptions, context: UnitContext
    ):
        """Prepares a unit.

        Raises:
            UsageError: the columns don't fit, or the clock ticks at another rate than `fps`.
        """
        super().__init__(directory, context)
        if problem := period_problem(context.period, options):
            raise UsageError(f"outputs: lerobot: fps: {problem}")
        self._mapping = mapping = mapping_of(options, schema)
        self._options = options
        stored = [feature.key for feature in mapping.stored]
        self._digest = RowsDigest(mapping.schema.part([*stored, *mapping.texts]))
        self._dtype = staged_rows.row_dtype(mapping)
        self._numbers = NumberStatistics(mapping.numbers)
        self._pixels = [PixelStatistics(one.columns[0]) for one in mapping.images]
        self._tasks: dict[bytes, int] = {}
        self._times: list[Array] = []
        self._sizes: list[Array] = []
        self._task_of: list[Array] = []
        self._splits: list[str] = []  # of each row, where rows are split
        self._borders: list[Array] = []
        self._encoders: list[RunEncoder | RunCopier] = []
        self._runs: list[list[RunPackets]] = []

    def stage(self, block: Block) -> None:
        mapped = self._mapping.apply(block)
        self._digest.update(mapped)
        rows = np.zeros(len(mapped), self._dtype)
        rows["timestamp"] = mapped.timestamp
        texts = mapped.columns[TASK]
        rows["task"] = [self._task(text.tobytes(), mapped) for text in texts]
        for number, feature in enumerate(self._mapping.numbers):
            rows[str(number)] = mapped.columns[feature.key]
        self.put(staged_rows.ROWS, rows)
        self._borders.append(self._take_splits(mapped))
        self._numbers.update(mapped)
        if self._mapping.video is None:
            self._stage_images(mapped, block)
        else:
            self._stage_video(block)
        self._times.append(mapped.timestamp)
        self._task_of.append(rows["task"].astype(np.int64))

    def _task(self, text: bytes, block: Block) -> int:
        """Return the number of a task's text in this unit."""
        if text not in self._tasks:
            _decoded(text, "a task", block)
            self._tasks[text] = len(self._tasks)
        return self._tasks[text]

    def _take_splits(self, mapped: Block) -> Array:
        """Add the splits of rows; return (n,) bool, whether another split begins with each."""
        if not self._mapping.has_splits:
            return np.zeros(len(mapped), bool)
        texts = [text.tobytes() for text in mapped.columns[COLUMN]]
        known = {text: _decoded(text, "a split", mapped) for text in set(texts)}
        own = [known[text] for text in texts]
        before = [*self._splits[-1:], *own]
        self._splits += own
        borders = [one != other for one, other in itertools.pairwise(before)]
        return np.array([False] * (len(own) - len(borders)) + borders, bool)

    def _stage_images(self, mapped: Block, block: Block) -> None:
        """Write the image files of rows, and count the pixels, which needn't be decoded anew."""
        images = self._mapping.images
        sizes = np.zeros((len(mapped), len(images)), np.int64)
        for number, (feature, pixels) in enumerate(zip(images, self._pixels, strict=True)):
            column = mapped.columns[feature.key]
            assert isinstance(column, Ragged)
            sizes[:, number] = column.lengths
            pictures = zip(column, self._mapping.pictures(feature, block), strict=True)
            for row, (image, picture) in enumerate(pictures):
                pixels.update(picture, _place(mapped, row))
                self.write(staged_rows.images_file(number), image.data)
        self._sizes.append(sizes)

    def _stage_video(self, block: Block) -> None:
        columns = [self._mapping.pictures(feature, block) for feature in self._mapping.images]
        before = int(self._times[-1][-1]) if self._times else None
        borders = self._borders[-1]
        for row, time in enumerate(block.timestamp.tolist()):
            place = _place(block, row)
            if before is None or is_gap(before, time, self._options, place) or borders[row]:
                self._end_run(place)
            for number, (pixels, column) in enumerate(zip(self._pixels, columns, strict=True)):
                self._encode(number, pixels, next(column), place)
            before = time

    def _encode(self, number: int, pixels: PixelStatistics, image: Array, place: str) -> None:
        """Encode the next frame of a camera; the first one of a run decides between pictures and packets."""
        video, fps = self._mapping.video, self._options.fps
        assert video is not None
        path = self.directory / staged_rows.video_file(number, len(self._runs))
        encoder = self._encoders[number] if number < len(self._encoders) else None
        if encoder is None and image.ndim == 1 and is_packet(image[:4].tobytes(), video.codec):
            encoder = RunCopier(path, video, fps, pixels.column)
            self._encoders.append(encoder)
        if isinstance(encoder, RunCopier):
            for shown in encoder.add(image.tobytes(), place):
                pixels.update(shown, place, as_color=True)
            return
        picture = pixels.update(image, place, as_color=True)
        if encoder is None:
            encoder = RunEncoder(path, video, fps, (picture.height, picture.width))
            self._encoders.append(encoder)
        encoder.add(picture)

    def _end_run(self, place: str) -> None:
        for encoder, pixels in zip(self._encoders, self._pixels, strict=False):
            if isinstance(encoder, RunCopier):
                for shown in encoder.flush(place):
                    pixels.update(shown, place, as_color=True)
        if self._encoders:
            self._runs.append([encoder.close() for encoder in self._encoders])
            self._encoders = []

    def metadata(self) -> dict[str, Any]:
        """
        Returns:
            The common fields and: columns, digests of the rows as features; tasks, their texts; shapes, of
                the images; segments, which rows may begin a file (see `segments_of`); of video runs, each
                with its rows and where packets begin, and heads, what decoders must know; where rows are
                split, splits, of each segment.
        """
        if not self.num_rows:
            return super().metadata()
        place = f"{self.context.log_id} {self.context.partition}"
        self._end_run(place)
        video, begins = self._close_video()
        arrays = (self._times, self._sizes, self._task_of, self._borders)
        times, sizes, tasks, borders = map(np.concatenate, arrays)
        if self._pixels:
            self.put(staged_rows.SIZES, sizes.astype(staged_rows.SIZE))
        self.write(staged_rows.STATISTICS, self._numbers.close().to_bytes())
        kinds = np.full((self.num_rows, 1), self._dtype.itemsize)
        kinds = np.concatenate([kinds, sizes], axis=1) if video else kinds + sizes.sum(axis=1, keepdims=True)
        segments = segments_of(times, kinds, begins, tasks, self._options, place, borders)
        if self._pixels:
            counts = [pixels.counts([segment[0] for segment in segments]) for pixels in self._pixels]
            self.put(staged_rows.PIXELS, np.stack(counts, axis=1).astype("<i8"))
        starts = itertools.accumulate((segment[0] for segment in segments[:-1]), initial=0)
        splits = {"splits": [self._splits[start] for start in starts]} if self._splits else {}
        return {
            **super().metadata(),
            **video,
            **splits,
            "columns": self._digest.hexdigests() | self._video_digests(sizes),
            "tasks": [text.decode() for text in self._tasks],
            "shapes": [list(pixels.shape) for pixels in self._pixels],
            "segments": segments,
        }

    def _close_video(self) -> tuple[dict[str, Any], Array]:
        """Finish a video; return its runs, and (n,) whether a file may begin with a row."""
        if not self._runs:
            return {}, np.ones(self.num_rows, bool)
        heads = [packets.head for packets in self._runs[0]]
        if any([packets.head for packets in run] != heads for run in self._runs):
            raise UsageError("outputs: lerobot: the encoder doesn't encode all pictures of one size alike")
        self._sizes = [np.stack([packets.sizes for packets in run], axis=1) for run in self._runs]
        keys = np.concatenate([np.stack([packets.keys for packets in run], axis=1) for run in self._runs])
        self.put(staged_rows.KEYS, keys.astype(np.uint8))
        runs = [[len(run[0].sizes), [packets.offset for packets in run]] for run in self._runs]
        begins: Array = np.asarray(keys.all(axis=1))
        return {"runs": runs, "heads": heads}, begins

    def _video_digests(self, sizes: Array) -> dict[str, str]:
        """Digests of the packets of features that are video."""
        if not self._runs:
            return {}
        found = {}
        for number, feature in enumerate(self._mapping.images):
            digest = ColumnDigest(feature.key, BYTES)
            for run, packets in enumerate(self._runs):
                with (self.directory / staged_rows.video_file(number, run)).open("rb") as file:
                    file.seek(packets[number].offset)
                    own = packets[number].sizes
                    for at in range(0, len(own), _PACKETS_AT_ONCE):
                        some = own[at : at + _PACKETS_AT_ONCE]
                        digest.update(Ragged(np.frombuffer(file.read(int(some.sum())), np.uint8), some))
            found[feature.key] = digest.hexdigest()
        return found


def _decoded(text: bytes, what: str, block: Block) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"{block.log_id}: {what} isn't UTF-8 ({error})") from error


def _place(block: Block, row: int) -> str:
    return f"{block.log_id} at {block.timestamp[row]} ns"


class ClosedLeRobot(Closed):
    """The result of `LeRobotStageWriter.close`."""

    span: tuple[Int64, ...]
    tasks: tuple[Text, ...] = ()
    shapes: tuple[tuple[Count, Count, Count], ...] = ()
    segments: tuple[tuple[Count, Int64, Int64, tuple[Count, ...], tuple[Count, ...]], ...] = ()
    runs: tuple[tuple[Count, tuple[Count, ...]], ...] = ()
    heads: tuple[Text, ...] = ()
    splits: tuple[Text, ...] = ()

    @model_validator(mode="after")
    def _of_segments(self) -> Self:
        if self.splits and len(self.splits) != len(self.segments):
            raise ValueError("splits of other segments than the unit has")
        return self


class LeRobotStageReader(StageReader):
    """The rows of a staged unit, as features; of video the packets."""

    closed = ClosedLeRobot

    def __init__(
        self,
        folder: str,
        mapping: Any,
        unit: Mapping[str, Any],
        storage_options: Mapping[str, Any] | None = None,
    ):
        super().__init__(folder, mapping.schema, unit, storage_options)
        self._mapping = mapping
        self._arguments = (folder, mapping, unit, storage_options)

    @cached_property
    def _staged(self) -> staged_rows.StagedRows:
        return staged_rows.StagedRows(self.file, self._mapping, len(self), self.unit.get("runs", ()))

    def read(self, names: Sequence[str], start: int, stop: int, max_bytes: int) -> Iterator[Block]:
        images = [number for number, one in enumerate(self._mapping.images) if one.key in names]
        limits = np.arange(len(self) + 1) * staged_rows.row_dtype(self._mapping).itemsize
        if images:
            limits = limits + self._staged.ends[:, images].sum(axis=1)
        for low, high in cut_by_bytes(limits[start : stop + 1], max_bytes):
            first, last = start + low, start + high
            rows = self._staged.numbers(first, last)
            columns: dict[str, Values] = {"timestamp": rows["timestamp"].copy()}
            for name in names:
                columns[name] = self._column(name, rows, first, last)
            yield Block(self.unit["log_id"], self.unit["partition"], first, columns)

    def _column(self, name: str, rows: Array, start: int, stop: int) -> Values:
        if name == TASK:
            return staged_rows.text_column(
                self.unit["tasks"], rows["task"], self.store.uri_of(staged_rows.ROWS)
            )
        if name == COLUMN and self._mapping.has_splits:
            counts = [segment[0] for segment in self.unit["segments"]]
            numbers = np.repeat(np.arange(len(counts)), counts)[start:stop]
            return staged_rows.text_column(
                self.unit.get("splits", ()), numbers, self.store.uri_of(staged_rows.ROWS)
            )
        for number, feature in enumerate(self._mapping.images):
            if feature.key == name:
                return self._staged.images(number, start, stop)
        number = [feature.key for feature in self._mapping.numbers].index(name)
        return np.ascontiguousarray(rows[str(number)])
