"""Datasets in notebooks: a table with thumbnails, and plots of columns over time.

Here: `html_of`, what notebooks show of a dataset; `plot_of`, and which columns are `drawable`.
Elsewhere: the same as text (dataset_view), a page about a whole version (`logloom report`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from logloom.errors import LogloomError, UsageError
from logloom.extras import needed
from logloom.io.rows.log_ranges import Ints
from logloom.io.rows.sources import RowSource
from logloom.markup import escaped, table
from logloom.pictures import is_image, thumbnail
from logloom.schema import NO_AGE, ColumnType, Schema

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from logloom.datasets.dataset import Dataset

_PICTURED = 3  # rows with pictures
_PICTURES = 4  # columns
_WIDTH = 160  # of a picture in pixels
MAX_LINES = 16  # numbers of a column that are drawn
MAX_PANELS = 60  # a higher figure is no picture any more
_INCHES = 9.0


def html_of(dataset: Dataset[Any]) -> str:
    """A dataset as a table of columns, with pictures of its first rows where these are plain ones."""
    schema = dataset.source.schema.all
    rows = [(name, *_type(schema.get(name))) for name in dataset.columns]
    lines = repr(dataset).removeprefix("<").splitlines()
    title = "; ".join(line.strip() for line in lines[:2])
    return table(title, ("column", "type", "unit"), rows, "".join(_pictures(dataset)))


def _type(ctype: ColumnType | None) -> tuple[str, str]:
    return ("object", "") if ctype is None else (str(ctype), ctype.unit)


def _pictures(dataset: Dataset[Any]) -> Iterator[str]:
    """Images of the first rows; none where functions or windows make other things of them."""
    if dataset.is_mapped or dataset.window_steps:
        return
    kinds = {name: dataset.source.schema.all.get(name) for name in dataset.columns}
    names = [name for name, ctype in kinds.items() if ctype is not None and _may_be_image(ctype)]
    if not names or not len(dataset):
        return
    view = dataset.select(names)
    try:
        rows = [view[number] for number in range(min(_PICTURED, len(view)))]
    except LogloomError:  # the columns are worth a look all the same
        return
    shown = [name for name in names if any(is_image(row[name]) for row in rows)][:_PICTURES]
    for name in shown:
        found = [thumbnail(row[name], _WIDTH, 60) for row in rows if is_image(row[name])]
        images = "".join(
            f"<img src='{one.uri}' width='{one.width}' height='{one.height}' alt='{escaped(name)}' "
            "style='display:inline-block;margin:2px;max-width:100%;height:auto'>"
            for one in found
            if one is not None
        )
        yield f"<p>{escaped(name)}<br>{images}</p>"


def _may_be_image(ctype: ColumnType) -> bool:
    return ctype.kind == "bytes" or (
        ctype.dtype == np.uint8 and ctype.kind == "array" and len(ctype.shape) > 1
    )


def drawable(schema: Schema, columns: Sequence[str]) -> tuple[str, ...]:
    """The columns of numbers and short vectors."""
    return tuple(
        name for name in columns if name in schema.columns and not _why_not(name, schema.columns[name])
    )


def _why_not(name: str, ctype: ColumnType) -> str:
    """Why a column can't be drawn; "" where it can."""
    if ctype.kind != "array" or ctype.is_ragged or ctype.dtype.kind not in "biuf":
        return f"{name} is {ctype}; numbers and vectors of fixed length can be drawn"
    if math.prod(ctype.tail) > MAX_LINES:
        return f"{name} has {math.prod(ctype.tail)} numbers a row; at most {MAX_LINES} can be drawn"
    return ""


def plot_of(dataset: Dataset[Any], names: Sequence[str], most: int) -> Figure:
    """Columns of numbers over time, one below the other; see `Dataset.plot`."""
    source = dataset.source
    for name in names:
        if problem := _why_not(name, source.schema.all[name]):
            raise UsageError(f"plot: {problem}")
    if not names or not len(dataset):
        raise UsageError(f"plot: {source.place}: no {'rows' if names else 'columns of numbers'} to draw")
    if len(names) > MAX_PANELS:
        raise UsageError(f"plot: {len(names)} columns; name at most {MAX_PANELS}, or write a glob: 'imu*'")
    with needed("matplotlib", "plot"):
        from matplotlib.figure import Figure
    chosen = np.unique(np.linspace(0, len(dataset) - 1, min(len(dataset), most)).astype(np.int64))
    positions = dataset.positions[chosen]
    flags = [flag for name in names if (flag := f"{name}.available") in source.schema.all]
    values = source.take(positions, tuple(dict.fromkeys([*names, *flags])))
    times, breaks, label = _times(source, positions, values)
    figure = Figure(figsize=(_INCHES, 0.6 + 1.9 * len(names)), layout="constrained")
    panels = figure.subplots(len(names), sharex=True, squeeze=False)[:, 0]
    for panel, name in zip(panels, names, strict=True):
        ctype = source.schema.all[name]
        lanes = _lanes(name, values)
        panel.plot(np.insert(times, breaks, np.nan), np.insert(lanes, breaks, np.nan, axis=0), linewidth=1.2)
        panel.set_title(name, loc="left", fontsize="medium", parse_math=False)
        panel.set_ylabel(ctype.unit, parse_math=False)
        panel.grid(alpha=0.3)
        if 1 < lanes.shape[1] <= 6:
            panel.legend(
                [f"[{number}]" for number in range(lanes.shape[1])], fontsize="small", loc="upper right"
            )
    panels[-1].set_xlabel(label)
    return figure


def _lanes(name: str, values: Mapping[str, Any]) -> np.ndarray[Any, Any]:
    """(N, lines) numbers of a column; NaN, where lines break, for rows that have none."""
    numbers = np.asarray(values[name])
    lanes = numbers.astype(np.float64).reshape(len(numbers), -1)
    if f"{name}.available" in values:
        lanes[~np.asarray(values[f"{name}.available"], bool)] = np.nan
    if name.endswith(".age"):
        lanes[numbers == NO_AGE] = np.nan
    return lanes


def _times(source: RowSource, positions: Ints, values: Any) -> tuple[np.ndarray[Any, Any], Ints, str]:
    """Where rows are along the axis, in which places lines break, and what the axis is called.

    Logs follow each other along it, each from its own first row on.
    """
    numbers = source.stretches.number_of(positions)
    logs = np.array(source.stretches.log_ids, object)[numbers]
    breaks = np.flatnonzero(logs[1:] != logs[:-1]) + 1
    if not source.has_stamps:
        return positions.astype(np.float64), breaks, "row"
    stamps = np.asarray(values["timestamp"], np.int64)
    times, at = np.empty(len(stamps)), 0.0
    for first, stop in zip([0, *breaks.tolist()], [*breaks.tolist(), len(stamps)], strict=True):
        own = (stamps[first:stop] - stamps[first:stop].min()) / 1e9
        times[first:stop] = at + own
        at += float(own.max())
    several = "; logs one after the other" if len(breaks) else ""
    return times, breaks, f"seconds since the first row{several}"
