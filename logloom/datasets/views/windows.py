"""Reading the windows of rows: each row once, however many windows share it.

Here: what `Dataset.window` means, windows as batches, and windows of rows that functions made.
Elsewhere: which rows a window has (logloom.datasets.views.positions).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logloom.blocks import Array
from logloom.datasets.views.positions import ON_EDGE, OnEdge, WindowSpec, runs_of
from logloom.durations import Time, nanoseconds_of
from logloom.errors import UsageError
from logloom.io.rows import batches
from logloom.io.rows.batches import Batch
from logloom.io.rows.log_ranges import Ints
from logloom.io.rows.sources import RowSource


def window_spec(
    source: RowSource,
    steps: Ints,
    on_edge: OnEdge,
    max_gap: Time | None,
    mask: str,
    borders: Array | None = None,
) -> WindowSpec:
    """See `Dataset.window` and `Dataset.borders`.

    Raises:
        UsageError: an argument makes no sense.
    """
    if on_edge not in ON_EDGE:
        raise UsageError(f"window: on_edge={on_edge!r}; there are {', '.join(ON_EDGE)}")
    gap = source.max_gap if max_gap == "recipe" else None
    if max_gap not in ("recipe", None):
        gap = nanoseconds_of(max_gap, "window: max_gap")
    if gap is not None and max_gap != "recipe" and source.stamps is None:
        raise UsageError(f"window: rows of {source.place} have no timestamps: max_gap=None")
    runs = runs_of(source.stretches, source.stamps if gap is not None else None, gap, borders)
    return WindowSpec(steps, runs, on_edge, mask)


def _window_rows(source: RowSource, window: WindowSpec, positions: Ints) -> tuple[Ints, NDArray[np.bool_]]:
    rows, exists = window.rows(positions)
    if window.on_edge != "pad" and not exists.all():
        number = int((~exists).any(axis=1).argmax())
        stretches = source.stretches
        stretch = int(stretches.number_of(positions[number : number + 1])[0])
        row = int(positions[number] - stretches.log_starts()[stretch])
        raise UsageError(
            f"{source.place}: row {row} of log {stretches.log_ids[stretch]!r} has no rows at "
            f"offsets {window.steps[~exists[number]].tolist()}: the log ends there or has a gap; "
            'on_edge="drop" or "pad" goes on'
        )
    return rows, exists


def window_batch(
    source: RowSource, window: WindowSpec, positions: Ints, columns: Sequence[str], out: Mapping[str, Array]
) -> Batch:
    """The windows of some rows, folded.

    Args:
        out: arrays (n, k, *shape) to fill, by column.

    Raises:
        UsageError: one leaves its log, and may not.
    """
    rows, exists = _window_rows(source, window, positions)
    count, steps = rows.shape
    flat = {
        name: array.reshape(count * steps, *array.shape[2:])
        for name, array in out.items()
        if name != window.mask and array.shape[:2] == (count, steps) and array.flags.c_contiguous
    }
    wanted, is_whole = rows[exists], bool(exists.all())
    unique, back = np.unique(wanted, return_inverse=True)
    if len(unique) == len(wanted) and len(wanted):
        batch = source.take(wanted, columns, flat if is_whole else None)
    else:  # rows that several windows share are read once; types stand in the row itself if none is there
        read = unique if len(wanted) else positions[:1]
        batch = batches.take(source.take(read, columns), back)
    log_ids = {"log_id": _log_ids(source, positions)} if batch.pop("log_id", None) is not None else {}
    if not is_whole:
        batch = batches.filled_up(batch, exists.reshape(-1), source.schema.all, flat)
    mask = {window.mask: exists} if window.on_edge == "pad" else {}
    return {**log_ids, **batches.folded(batch, count, steps), **mask}


def _log_ids(source: RowSource, positions: Ints) -> list[str]:
    stretches = source.stretches
    return [stretches.log_ids[number] for number in stretches.number_of(positions).tolist()]


def mapped_windows(
    source: RowSource,
    window: WindowSpec,
    positions: Ints,
    columns: Sequence[str],
    row_fns: Sequence[Callable[[Any], Any]],
) -> list[Any]:
    """Windows of rows that went through functions, each row once."""
    rows, exists = _window_rows(source, window, positions)
    wanted, back = np.unique(np.concatenate([rows[exists], positions]), return_inverse=True)
    mapped: list[Any] = source.rows(wanted, columns)
    for fn in row_fns:
        mapped = [fn(row) for row in mapped]
    places = np.full(exists.shape, -1)
    places[exists] = back[: len(back) - len(positions)]
    windows = []
    for number in range(len(positions)):
        own = [mapped[place] if place >= 0 else None for place in places[number].tolist()]
        sample = batches.stacked_window(own, mapped[back[len(back) - len(positions) + number]])
        windows.append({**sample, window.mask: exists[number]} if window.on_edge == "pad" else sample)
    return windows
