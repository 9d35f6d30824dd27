"""Read the windows of rows: each row once, even if several windows share it.

Here: the arguments of `Dataset.window`, checked; batches of windows of stored rows; and windows of the rows
that functions given to `Dataset.map` return. If columns have different windows, a column is read only at the
rows of its own.
Elsewhere: the rows of a window (logloom.datasets.views.positions).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logloom.blocks import Array, empty
from logloom.datasets.views.column_choice import names_of
from logloom.datasets.views.positions import (
    ON_EDGE,
    Offsets,
    OnEdge,
    SampleWindows,
    WindowSpec,
    runs_of,
    steps_of,
)
from logloom.durations import Time, nanoseconds_of
from logloom.errors import UsageError
from logloom.io.rows import batches
from logloom.io.rows.batches import Batch
from logloom.io.rows.log_ranges import Ints
from logloom.io.rows.sources import RowSource, batched

_MASKED = ("pad", "repeat")


def sample_windows(
    source: RowSource,
    offsets: Offsets | Mapping[str, Offsets],
    stride: int,
    on_edge: OnEdge,
    max_gap: Time | None,
    tolerance: Time | None,
    mask: str,
    columns: Sequence[str] | None,
    borders: Array | None = None,
) -> SampleWindows:
    """See `Dataset.window` and `Dataset.borders`.

    Args:
        columns: that samples have; None where functions give them, and names can't be checked.

    Raises:
        UsageError: an argument makes no sense.
    """
    if on_edge not in ON_EDGE:
        raise UsageError(f"window: on_edge={on_edge!r}; there are {', '.join(ON_EDGE)}")
    is_each = isinstance(offsets, Mapping)
    named = dict(_named(source, offsets, columns)) if isinstance(offsets, Mapping) else {"": offsets}
    steps = {name: steps_of(one, stride) for name, one in named.items()}
    has_times = any(is_time for _, is_time in steps.values())
    if has_times and source.stamps is None:
        raise UsageError(
            f"window: rows of {source.place} have no timestamps; give offsets in rows, range(-10, 1)"
        )
    gap = source.max_gap if max_gap == "recipe" else None
    if max_gap not in ("recipe", None):
        gap = nanoseconds_of(max_gap, "window: max_gap")
    if gap is not None and max_gap != "recipe" and source.stamps is None:
        raise UsageError(f"window: rows of {source.place} have no timestamps: max_gap=None")
    runs = runs_of(source.stretches, source.stamps if gap is not None else None, gap, borders)
    near = _tolerance(source, tolerance) if has_times else None
    known: dict[Any, WindowSpec] = {}  # columns of equal windows share one, and are read together
    for one, is_time in steps.values():
        key = one.tobytes(), is_time
        known.setdefault(key, WindowSpec(one, runs, on_edge, is_time, near if is_time else None))
    specs = {name: known[one.tobytes(), is_time] for name, (one, is_time) in steps.items()}
    windows = (
        SampleWindows(None, specs, on_edge, mask) if is_each else SampleWindows(specs[""], {}, on_edge, mask)
    )
    taken = {"log_id", "timestamp", *(columns or ())}
    if twice := next((key for key in windows.masks(columns or ()) if key in taken), ""):
        raise UsageError(f"window: {twice!r} is a column; name the mask otherwise, with mask=…")
    return windows


def _named(
    source: RowSource, offsets: Mapping[str, Offsets], columns: Sequence[str] | None
) -> Iterator[tuple[str, Offsets]]:
    """The offsets of each column that patterns name.

    Raises:
        UsageError: a pattern matches nothing, or a column twice; integers that may be rows or seconds.
    """
    if not offsets:
        raise UsageError('window: no columns; name some, as in {"action": range(0, 16)}')
    in_seconds = [name for name, one in offsets.items() if _has(one, float | np.floating)]
    seen: dict[str, str] = {}
    for pattern, one in offsets.items():
        is_range = isinstance(one, range | np.ndarray)
        if in_seconds and not is_range and not _has(one, float | np.floating | str) and any(one):
            raise UsageError(
                f"window: {pattern}={one!r:.60}: rows, or seconds as {in_seconds[0]} has? Write "
                "range(-1, 1) for rows, [-1.0, 0.0] for seconds"
            )
        if columns is None or (pattern == "timestamp" and source.has_stamps):
            names: Sequence[str] = [pattern]
        else:
            names = names_of([pattern], source.schema, columns, source.place, source.left_out)
        for name in names:
            if name in seen:
                raise UsageError(f"window: {seen[name]!r} and {pattern!r} both name {name}; name it once")
            seen[name] = pattern
            yield name, one


def _has(offsets: Any, kind: Any) -> bool:
    return np.iterable(offsets) and any(isinstance(one, kind) for one in offsets)


def _tolerance(source: RowSource, tolerance: Time | None) -> int | None:
    """ns from a time of a window to its row; by default half a period of the recipe's clock."""
    if tolerance != "recipe":
        return None if tolerance is None else nanoseconds_of(tolerance, "window: tolerance")
    try:
        gap = source.max_gap  # one and a half periods
    except UsageError as error:
        raise UsageError(f"window: clocks of {source.place} differ; pass one tolerance=") from error
    return None if gap is None else gap // 3


def _window_rows(source: RowSource, window: WindowSpec, positions: Ints) -> tuple[Ints, NDArray[np.bool_]]:
    rows, exists = window.rows(positions, source.stamps if window.is_time else None)
    if window.on_edge not in _MASKED and not exists.all():
        number = int((~exists).any(axis=1).argmax())
        stretches = source.stretches
        stretch = int(stretches.number_of(positions[number : number + 1])[0])
        row = int(positions[number] - stretches.log_starts()[stretch])
        lacking = window.steps[~exists[number]].tolist()
        shown = [f"{one / 1e9:g} s" for one in lacking] if window.is_time else lacking
        raise UsageError(
            f"{source.place}: row {row} of log {stretches.log_ids[stretch]!r} has no rows at "
            f"offsets {shown}: the log ends there or has a gap; "
            'on_edge="drop", "pad" or "repeat" goes on'
        )
    return rows, exists


def window_batch(
    source: RowSource,
    windows: SampleWindows,
    positions: Ints,
    columns: Sequence[str],
    out: Mapping[str, Array],
) -> Batch:
    """The windows of some rows, folded.

    Args:
        out: arrays (n, k, *shape) to fill, by column.

    Raises:
        UsageError: one leaves its log, and may not.
    """
    if windows.all is not None:
        batch, exists = _folded_rows(source, windows.all, positions, columns, out)
        log_ids = {"log_id": _log_ids(source, positions)} if source.has_stamps else {}
        return {**log_ids, **batch, **dict.fromkeys(windows.masks(columns), exists)}
    groups: dict[int, list[str]] = {}
    for name in columns:
        groups.setdefault(id(windows.of(name)), []).append(name)
    found: Batch = {}
    masks: dict[int, NDArray[np.bool_]] = {}
    single = groups.pop(id(None), [])
    if single or source.key_name:
        found = source.take(positions, single, {name: out[name] for name in single if name in out})
    for names in groups.values():
        spec = windows.columns[names[0]]
        own = {name: out[name] for name in names if name in out}
        batch, masks[id(spec)] = _folded_rows(source, spec, positions, names, own)
        found |= {name: batch[name] for name in names}
    stamps = _stamps(source, windows.of("timestamp"), positions, masks) if source.has_stamps else {}
    keys = (source.key_name, *columns) if source.key_name else columns
    made = {**stamps, **{name: found[name] for name in keys}}
    return made | {key: masks[id(spec)] for key, spec in windows.masks(columns).items()}


def stored_batch(
    source: RowSource,
    windows: SampleWindows | None,
    positions: Ints,
    columns: Sequence[str],
    out: Mapping[str, Array],
) -> Batch:
    """Rows, or windows, as stored; of no rows, too, with the types of columns."""
    if len(positions):
        if windows is None:
            return source.take(positions, columns, out)
        return window_batch(source, windows, positions, columns, out)
    types = source.schema.all
    stamps: Batch = {"log_id": [], "timestamp": np.empty(0, np.int64)} if source.has_stamps else {}
    stamps |= {source.key_name: []} if source.key_name else {}
    batch = stamps | {name: batched(source.place, name, empty(types[name]), types[name]) for name in columns}
    if windows is None:
        return batch
    for name in batch:
        if spec := windows.of(name):
            batch |= batches.folded({name: batch[name]}, 0, len(spec.steps))
    masks = windows.masks(columns).items()
    return batch | {key: np.empty((0, len(spec.steps)), np.bool_) for key, spec in masks}


def _stamps(
    source: RowSource, spec: WindowSpec | None, positions: Ints, masks: dict[int, NDArray[np.bool_]]
) -> Batch:
    """Log_id and timestamp, of the rows themselves or in windows."""
    assert source.stamps is not None
    log_ids = _log_ids(source, positions)
    if spec is None:
        return {"log_id": log_ids, "timestamp": source.stamps[positions]}
    rows, masks[id(spec)] = exists = _window_rows(source, spec, positions)
    is_real = exists[1] | (spec.on_edge == "repeat")
    return {"log_id": log_ids, "timestamp": np.where(is_real, source.stamps[np.where(is_real, rows, 0)], 0)}


def _folded_rows(
    source: RowSource, window: WindowSpec, positions: Ints, columns: Sequence[str], out: Mapping[str, Array]
) -> tuple[Batch, NDArray[np.bool_]]:
    """Columns of the rows in windows, folded, with timestamps; and which of these rows exist."""
    rows, exists = _window_rows(source, window, positions)
    count, steps = rows.shape
    flat = {
        name: array.reshape(count * steps, *array.shape[2:])
        for name, array in out.items()
        if (name == "timestamp" or name in columns)
        and array.shape[:2] == (count, steps)
        and array.flags.c_contiguous
    }
    is_real = exists if window.on_edge != "repeat" else np.ones_like(exists)
    wanted, is_whole = rows[is_real], bool(is_real.all())
    unique, back = np.unique(wanted, return_inverse=True)
    if len(unique) == len(wanted) and len(wanted):
        batch = source.take(wanted, columns, flat if is_whole else None)
    else:  # rows that several windows share are read once; types stand in the row itself if none is there
        read = unique if len(wanted) else positions[:1]
        batch = batches.take(source.take(read, columns), back)
    batch.pop("log_id", None)
    if not is_whole:
        batch = batches.filled_up(batch, is_real.reshape(-1), source.schema.all, flat)
    return batches.folded(batch, count, steps), exists


def _log_ids(source: RowSource, positions: Ints) -> list[str]:
    stretches = source.stretches
    return [stretches.log_ids[number] for number in stretches.number_of(positions).tolist()]


def mapped_windows(
    source: RowSource,
    windows: SampleWindows,
    positions: Ints,
    columns: Sequence[str],
    row_fns: Sequence[Callable[[Any], Any]],
) -> list[Any]:
    """Windows of rows that went through functions, each row once."""
    found = {id(spec): _window_rows(source, spec, positions) for spec in windows.specs}
    real = {
        key: exists if windows.on_edge != "repeat" else np.ones_like(exists)
        for key, (_, exists) in found.items()
    }
    wanted = np.unique(np.concatenate([positions, *(rows[real[key]] for key, (rows, _) in found.items())]))
    mapped: list[Any] = source.rows(wanted, columns)
    for fn in row_fns:
        mapped = [fn(row) for row in mapped]
    made = dict(zip(wanted.tolist(), mapped, strict=True))
    samples = []
    for number, position in enumerate(positions.tolist()):
        like = made[position]
        around = {
            key: [
                made[row] if is_real else None
                for row, is_real in zip(rows[number].tolist(), real[key][number].tolist(), strict=True)
            ]
            for key, (rows, _) in found.items()
        }
        samples.append(_mapped_sample(source, windows, like, around))
        for key, spec in windows.masks(tuple(like)).items():
            samples[-1][key] = found[id(spec)][1][number]
    return samples


def _mapped_sample(
    source: RowSource, windows: SampleWindows, like: Mapping[str, Any], around: Mapping[int, Sequence[Any]]
) -> dict[str, Any]:
    """A sample of a row and the rows around it, by the identity of their windows.

    Raises:
        UsageError: functions left no column of a name that has a window.
    """
    if windows.all is not None:
        return batches.stacked_window(around[id(windows.all)], like)
    if lacking := [name for name in windows.columns if name not in like]:
        raise UsageError(
            f"{source.place}: window: functions given to map left no {lacking[0]!r}; they gave "
            f"{', '.join(map(str, like))}"
        )
    sample = dict(like)
    for name, spec in windows.columns.items():
        rows = [None if row is None else {name: row[name]} for row in around[id(spec)]]
        sample |= batches.stacked_window(rows, {name: like[name]})
    return sample
