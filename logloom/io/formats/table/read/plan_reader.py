"""Execution of read plans: rows of a window one by one, or stacked.

Here: `PlanReader`, its checks of hashes, and the errors that name the damaged chunk.
Elsewhere: plans (logloom.io.formats.table.read.plans), windows (logloom.io.formats.table.read.windows), the
public interface (logloom.io.formats.table.read.loader).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from logloom.errors import DatasetError
from logloom.io.formats.table.blobs import chunk_hash
from logloom.io.formats.table.description import part_of, table_of
from logloom.io.formats.table.read.batches import StepBatch, missing_value, prepare
from logloom.io.formats.table.read.frames import Ints, OpenFrame
from logloom.io.formats.table.read.large_chunks import LargeChunks
from logloom.io.formats.table.read.plans import ReadPlan, Step
from logloom.io.formats.table.read.range_reader import Bytes, RangeReader, Ranges
from logloom.io.formats.table.read.windows import RowWindow, Windows


class PlanReader:
    """Reads the chunks of plans. Pickles, and serves many threads, as its parts do."""

    def __init__(self, frame: OpenFrame, windows: Windows, reader: RangeReader, check: bool):
        """Takes the parts of a loader; `check`: compare chunks with their hashes."""
        self._slots, self._windows, self._reader = frame.slots, windows, reader
        self._log_ids, self._stamps = frame.log_ids, frame.stamps
        self._check = check

    def run(self, plan: ReadPlan, start: int, stop: int) -> list[dict[str, Any]]:
        """Read rows of the frame that are neighbours as stored.

        Args:
            start, stop: positions in the frame.
        """
        template = plan.template.copy()
        if self._log_ids is not None:
            template["log_id"] = self._log_ids[1][self._log_ids[0].item(start)]
        rows = [template.copy() for _ in range(start, stop)]
        if self._stamps is not None:
            for row, stamp in zip(rows, self._stamps[start:stop], strict=False):
                row["timestamp"] = stamp
        for step in plan.steps:
            lacks = step.places.codes.item(start) < 0
            if self._check or lacks or not step.places.follow(start, stop - 1):
                self._read_step(step, at_positions(np.arange(start, stop)), rows)
                continue
            places = step.places
            file, first = places.files[places.codes.item(start)], places.offsets.item(start)
            length = places.offsets.item(stop - 1) + places.lengths.item(stop - 1) - first
            try:
                if step.large is not None and step.large.is_lone and self._reader.is_local(file):
                    lengths = places.lengths[start:stop].tolist()
                    step.large.neighbours(self._reader, file, first, lengths, rows)
                    continue
                data = self._reader.read(file, first, length)
                if not step.unstack(data, rows):
                    ends = places.lengths[start:stop].cumsum().tolist()
                    begin = 0
                    for row, end in zip(rows, ends, strict=True):
                        step.decode(data[begin:end], row)
                        begin = end
            except DatasetError:
                self._read_step(step, at_positions(np.arange(start, stop)), rows)  # says which chunk it was
                raise
        return rows

    def rows(self, plan: ReadPlan, window: RowWindow) -> list[dict[str, Any]]:
        """Read rows of any window; those that don't exist have missing values."""
        rows = [plan.template.copy() for _ in window.exists]
        for key, values in self._keys(window):
            for row, value in zip(rows, values, strict=True):
                row[key] = value
        for step in plan.steps:
            self._read_step(step, window, rows)
        return rows

    def _read_step(self, step: Step, window: RowWindow, rows: Sequence[dict[str, Any]]) -> None:
        """Adds one group's columns to rows."""
        present = self._windows.present(step, window)
        existing = np.flatnonzero(present).tolist()
        files, offsets, lengths = (part.tolist() for part in self._windows.ranges(step, window))
        if len(existing) < len(rows):
            for number in np.flatnonzero(~present).tolist():
                rows[number].update((name, missing_value(name, ctype)) for name, ctype in step.types.items())
            files, offsets, lengths = ([part[i] for i in existing] for part in (files, offsets, lengths))
        try:
            chunks = read_neighbours(self._reader, files, offsets, lengths)
        except DatasetError:
            self._blame_read(step, window, existing, files, offsets, lengths)
            raise
        for number, chunk in zip(existing, chunks, strict=True):
            try:
                if self._check:
                    self._check_chunk(step, window, number, (chunk.data,))
                step.decode(chunk, rows[number])
            except DatasetError as error:
                self._blame(step, window, number, error)

    def batch(
        self, plan: ReadPlan, windows: Sequence[RowWindow], out: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        """Read rows of windows, stacked column by column."""
        steps: list[tuple[Step, StepBatch, Ints]] = []
        large: dict[str, Any] = {}
        try:
            found_places = [self._places(step, windows) for step in plan.steps]
            if found_places:  # none where no column is wanted
                self._reader.check(*_joined([own for own, _ in found_places]))
            wanted, apart = [], []
            for step, (own, present) in zip(plan.steps, found_places, strict=True):
                whole = bool(present.all())
                if step.large is not None and whole and self._reads_large(step.large, own[0], own[2]):
                    apart.append((step.large, own))
                    continue
                existing: Ints = np.flatnonzero(present)
                steps.append((step, prepare(step, own[2], existing, len(present), out or {}), existing))
                wanted.append(own)
            # Last, since memory that was kept for them may be too short for arrays of many rows.
            for group, own in apart:
                large |= group.batch(self._reader, *own, out or {})
            if steps:
                targets = [target for _, batch, _ in steps for target in batch.targets]
                self._reader.read_into(_joined(wanted), targets)
        except DatasetError:
            for window in windows:
                self.rows(plan, window)  # chunk by chunk, so that the error can say which it was
            raise
        found = plan.template.copy()
        for window in windows:
            for key, values in self._keys(window):
                found[key] = values if found[key] is None else [*found[key], *values]
        if isinstance(found.get("timestamp"), list):
            found["timestamp"] = np.array(found["timestamp"], np.int64)
        found.update(large)
        for step, batch, existing in steps:
            found.update(self._finish(step, batch, windows, existing))
        return found

    def _places(self, step: Step, windows: Sequence[RowWindow]) -> tuple[Ranges, NDArray[np.bool_]]:
        """(file, offset, length) of a group's chunks for those rows of all windows that have any, and (k,)
        which do."""
        if len(windows) == 1:
            files, offsets, lengths = self._windows.ranges(step, windows[0])
            present = self._windows.present(step, windows[0])
        else:
            files, offsets, lengths = _joined([self._windows.ranges(step, window) for window in windows])
            present = np.concatenate([self._windows.present(step, window) for window in windows])
        if present.all():
            return (files, offsets, lengths), present
        return (files[present], offsets[present], lengths[present]), present

    def _reads_large(self, large: LargeChunks, files: Ints, lengths: Ints) -> bool:
        if self._check or int(lengths.min()) < large.batch_limit:
            return False
        return all(self._reader.is_local(number) for number in set(files.tolist()))

    def _finish(
        self, step: Step, batch: StepBatch, windows: Sequence[RowWindow], existing: Ints
    ) -> Mapping[str, Any]:
        def owner(number: int) -> tuple[RowWindow, int]:
            for window in windows:
                if number < len(window.exists):
                    return window, number
                number -= len(window.exists)
            raise AssertionError("a row beyond the batch")

        def failed(number: int, error: Exception) -> NoReturn:
            self._blame(step, *owner(number), error)

        if self._check:
            for number, buffers in zip(existing.tolist(), batch.targets, strict=True):
                try:
                    self._check_chunk(step, *owner(number), buffers)
                except DatasetError as error:
                    failed(number, error)
        return batch.finish(failed)

    def _keys(self, window: RowWindow) -> Iterator[tuple[str, Any]]:
        """Return log_id and timestamp of a window's rows if the frame has them; 0 for missing rows."""
        if self._log_ids is not None:
            codes, texts = self._log_ids
            if window.positions is None:
                yield "log_id", [texts[codes[window.origin]]] * len(window.exists)
            else:
                yield "log_id", [texts[code] for code in codes[window.positions].tolist()]
        if self._stamps is not None:
            stamps = self._windows.stamps(window)
            yield "timestamp", np.where(window.exists, stamps, 0) if window.positions is None else stamps

    def _check_chunk(self, step: Step, window: RowWindow, number: int, buffers: Sequence[memoryview]) -> None:
        uri, row = self.stored_row(step.slot, window, number)
        wanted = self._windows.log(step.slot, uri, hashes=True).hashes[step.group][row]
        if chunk_hash(tuple(buffers)) != wanted:
            raise DatasetError("the stored bytes don't match their hash; copy or build the part again")

    def _blame_read(
        self, step: Step, window: RowWindow, existing: Sequence[int], *ranges: Sequence[int]
    ) -> None:
        """Read ranges one by one after reading them together failed, and name the row that fails."""
        for number, file, offset, length in zip(existing, *ranges, strict=True):
            try:
                self._reader.read(file, offset, length)
            except DatasetError as error:
                self._blame(step, window, number, error)

    def _blame(self, step: Step, window: RowWindow, number: int, error: Exception) -> NoReturn:
        uri, row = self.stored_row(step.slot, window, number)
        files, offsets, _ = self._windows.ranges(step, window)
        part = part_of(self._reader.uris[int(files[number])])
        log = uri.rpartition("/")[2].removesuffix(".parquet")
        raise DatasetError(
            f"{table_of(uri) or step.table}: part {part}, group {step.group} ({', '.join(step.columns)}), "
            f"row {row} of log {log}, byte {offsets[number]}: {error}"
        ) from error

    def stored_row(self, slot: int, window: RowWindow, number: int) -> tuple[str, int]:
        """Find the index file of a window's row, and its row in that."""
        if window.positions is None:
            log, rows = window.stored[slot]
            assert log is not None  # or no row would have been read from it
            return log.uri, int(rows[number])
        position, own = int(window.positions[number]), self._slots[slot]
        return own.logs[int(own.log_codes[position])], int(own.rows[position])


def _joined(parts: Sequence[Ranges]) -> Ranges:
    """Concatenate ranges."""
    files, offsets, lengths = map(np.concatenate, zip(*parts, strict=True))
    return files, offsets, lengths


def read_neighbours(
    reader: RangeReader, files: Sequence[int], offsets: Sequence[int], lengths: Sequence[int]
) -> list[Bytes]:
    """Read the chunks of a window: with one read if they are contiguous, as for most rows of a log."""
    if not files:
        return []
    first = end = offsets[0]
    gap = reader.file(files[0]).gap
    for file, offset, length in zip(files, offsets, lengths, strict=True):
        if file != files[0] or not 0 <= offset - end <= gap:
            break
        end = offset + length
    else:
        data = reader.read(files[0], first, end - first)
        return [data[o - first : o - first + n] for o, n in zip(offsets, lengths, strict=True)]
    return reader.read_all(list(zip(files, offsets, lengths, strict=True)))


def at_positions(positions: Ints) -> RowWindow:
    """Make a window of the given rows of the frame."""
    return RowWindow(np.ones(len(positions), np.bool_), int(positions[0]) if len(positions) else 0, positions)
