"""A dataset as text that fits a screen of 80 columns and 24 lines.

Here: `described`, which is a dataset's repr.
Elsewhere: the dataset (logloom.datasets.dataset).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from logloom.datasets.views.positions import Rows, array_of
from logloom.io.rows.log_ranges import Stretches
from logloom.schema import ColumnType

_WIDTH = 80
_COLUMNS = 16  # that are listed
_LOGS = 3
_NAME = 48  # letters of a column's name


def described(
    place: str,
    stretches: Stretches,
    positions: Rows,
    columns: Sequence[str],
    types: Mapping[str, ColumnType],
    notes: Sequence[str],
) -> str:
    """Name, rows, logs and columns.

    Args:
        types: of the columns; others are Python objects.
        notes: what else there is to say, a line each.
    """
    logs = sorted({stretches.log_ids[number] for number in _touched(stretches, positions)})
    named = ", ".join([*logs[:_LOGS], *(["…"] if len(logs) > _LOGS else [])])
    rows = f"{_count(len(positions), 'row')} of {_count(len(logs), 'log')}{named and ': '}{named}"
    lines = [f"<Dataset {_shortened(place, _WIDTH - 10)}", rows, *notes, f"{_count(len(columns), 'column')}:"]
    shown = columns if len(columns) <= _COLUMNS else columns[: _COLUMNS - 1]
    wide = min(_NAME, max(map(len, shown), default=0))
    for name in shown:
        ctype = types.get(name)
        unit = f"  {ctype.unit}" if ctype is not None and ctype.unit else ""
        short = name if len(name) <= _NAME else f"{name[: _NAME - 1]}…"
        lines.append(f"  {short:{wide}}  {ctype or 'object'}{unit}")
    if len(shown) < len(columns):
        lines.append(f"  … and {len(columns) - len(shown)} more")
    return "\n".join([lines[0], *(_cut(f"  {line}") for line in lines[1:])]) + ">"


def _touched(stretches: Stretches, positions: Rows) -> list[int]:
    """The stretches that rows lie in."""
    if isinstance(positions, range) and positions and abs(positions.step) == 1:
        first, last = np.sort(stretches.number_of(np.array([positions[0], positions[-1]]))).tolist()
        numbers = first + np.flatnonzero(stretches.counts[first : last + 1])
    else:
        numbers = np.unique(stretches.number_of(array_of(positions))) if len(positions) else np.empty(0)
    return [int(number) for number in numbers]


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _cut(line: str) -> str:
    return line if len(line) < _WIDTH else f"{line[: _WIDTH - 2]}…"


def _shortened(place: str, width: int) -> str:
    """The end of a URI, which tells more than its beginning."""
    return place if len(place) <= width else f"…{place[1 - width :]}"
