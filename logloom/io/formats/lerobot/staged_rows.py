"""Read ranges of rows from a staged unit of a LeRobot dataset.

A staged unit contains the rows of one partition.

Elsewhere: writing these files, and their content (stage).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from logloom.blocks import Array, Ragged
from logloom.caching import cached_property
from logloom.errors import DatasetError
from logloom.io.catalog.entries import repair_hint
from logloom.io.formats.lerobot.features import FeatureMapping
from logloom.io.formats.stages import read_entries
from logloom.io.storage.files import File

ROWS, SIZES, KEYS, STATISTICS, PIXELS = "rows", "sizes", "keys", "statistics", "pixels"
SIZE = np.dtype("<u4")
Runs = Sequence[Sequence[Any]]  # of a unit's video: rows, and where the packets of each image begin


def images_file(number: int) -> str:
    """Name of the file with the images of a feature, by its number among such features."""
    return f"images.{number}"


def video_file(number: int, run: int) -> str:
    """Name of the file with a run's video of such a feature."""
    return f"video.{number}.{run}"


def row_dtype(mapping: FeatureMapping) -> np.dtype[Any]:
    """Dtype of a row in the file `rows`, where features are numbered."""
    fields: list[Any] = [("timestamp", "<i8"), ("task", "<u4")]
    numbers = enumerate(mapping.numbers)
    return np.dtype([*fields, *((str(n), one.ctype.dtype, one.ctype.shape) for n, one in numbers)])


class StagedRows:
    """Ranges of rows of a staged unit."""

    def __init__(self, files: Callable[[str], File], mapping: FeatureMapping, rows: int, runs: Runs = ()):
        """
        Args:
            files: opens a file of the unit by its name.
            rows: of the unit.
            runs: of its video.
        """
        self._files, self._mapping, self._rows, self._runs = files, mapping, rows, runs
        self._dtype = row_dtype(mapping)

    def numbers(self, start: int, stop: int) -> Array:
        """Rows [start, stop) of the file `rows`, structured."""
        return read_entries(self._files(ROWS), start, stop, self._dtype)

    @cached_property
    def ends(self) -> Array:
        """(rows + 1, images) the end of each image in the unit, after a row of zeros."""
        images = len(self._mapping.images)
        if not images or not self._rows:
            return np.zeros((self._rows + 1, images), np.int64)
        sizes = read_entries(self._files(SIZES), 0, self._rows, SIZE, (images,))
        ends = np.cumsum(sizes, axis=0, dtype=np.int64)
        return np.concatenate([np.zeros((1, images), np.int64), ends])

    def keys(self, number: int, start: int, stop: int) -> Array:
        """(stop - start,) bool, which packets of a feature are keyframes."""
        found = read_entries(self._files(KEYS), start, stop, tail=(len(self._mapping.images),))
        are_keys: Array = found[:, number] != 0
        return are_keys

    def images(self, number: int, start: int, stop: int) -> Ragged:
        """The images or packets of rows [start, stop) of a feature, by its number among such features."""
        ends = self.ends[start : stop + 1, number]
        if start >= stop:
            return Ragged(np.empty(0, np.uint8), np.empty(0, np.int64))
        if self._mapping.video is None:
            return Ragged(
                read_entries(self._files(images_file(number)), int(ends[0]), int(ends[-1])), np.diff(ends)
            )
        parts = [
            read_entries(self._files(video_file(number, run)), first, last)
            for run, first, last in self._stretches(number, start, stop)
        ]
        return Ragged(np.concatenate(parts), np.diff(ends))

    def _stretches(self, number: int, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
        """Find the bytes of runs with rows [start, stop)."""
        bounds = list(itertools.accumulate((rows for rows, _ in self._runs), initial=0))
        ends = self.ends[:, number]
        for run, (low, high) in enumerate(itertools.pairwise(bounds)):
            first, last = max(start, low), min(stop, high)
            if first < last:
                base = int(self._runs[run][1][number]) - int(ends[low])
                yield run, base + int(ends[first]), base + int(ends[last])

    def head(self, number: int, start: int) -> File:
        """Open the file of the run of video that contains a row."""
        run, _, _ = next(self._stretches(number, start, start + 1))
        return self._files(video_file(number, run))


def text_column(texts: Sequence[str], numbers: Array, place: str) -> Ragged:
    """Look up the texts of rows by their numbers.

    Raises:
        DatasetError: there is no such text.
    """
    if len(numbers) and int(numbers.max()) >= len(texts):
        raise DatasetError(f"{place}: names a text that doesn't exist: damaged; {repair_hint(place)}")
    known = [text.encode() for text in texts]
    return Ragged.from_bytes([known[number] for number in numbers.tolist()])
