"""A dataset as text that fits a screen of 80 columns and 24 lines.

Here: `described`, which is a dataset's repr.
Elsewhere: the dataset (logloom.datasets.dataset).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from logloom.datasets.sources.base import Ints, Stretches
from logloom.schema import ColumnType

_WIDTH = 80
_COLUMNS = 16  # that are listed
_LOGS = 3


def described(
    place: str,
    stretches: Stretches,
    positions: Ints,
    columns: Sequence[str],
    types: Mapping[str, ColumnType],
    notes: Sequence[str],
) -> str:
    """Name, rows, logs and columns.

    Args:
        types: of the columns; others are Python objects.
        notes: what else there is to say, a line each.
    """
    numbers = np.unique(stretches.number_of(positions)).tolist() if len(positions) else []
    logs = sorted({stretches.log_ids[number] for number in numbers})
    rows = f"{len(positions):,} rows" if len(positions) != 1 else "1 row"
    told = ", ".join([*logs[:_LOGS], *([f"… and {len(logs) - _LOGS} more"] if len(logs) > _LOGS else [])])
    lines = [f"<Dataset {_shortened(place, _WIDTH - 10)}", f"{rows}, logs: {told or 'none'}", *notes]
    lines += [f"columns: {len(columns)}" if columns else "no columns"]
    shown = columns if len(columns) <= _COLUMNS else columns[: _COLUMNS - 1]
    wide = min(48, max(map(len, shown), default=0))
    for name in shown:
        ctype = types.get(name)
        unit = f"  {ctype.unit}" if ctype is not None and ctype.unit else ""
        lines.append(f"  {name:{wide}}  {ctype or 'object'}{unit}")
    if len(shown) < len(columns):
        lines.append(f"  … and {len(columns) - len(shown)} more")
    return "\n".join([lines[0], *(_cut(f"  {line}") for line in lines[1:])]) + ">"


def _cut(line: str) -> str:
    return line if len(line) < _WIDTH else f"{line[: _WIDTH - 2]}…"


def _shortened(place: str, width: int) -> str:
    """The end of a URI, which tells more than its beginning."""
    return place if len(place) <= width else f"…{place[1 - width :]}"
