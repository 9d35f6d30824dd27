"""Tables for terminals: aligned columns that no word is broken for.

Here: pure functions from texts to lines.
Elsewhere: printing them (common).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len

_GAP = "   "
_INDENT = "  "
_RULE = "─"

Row = Sequence[str]


def table_lines(columns: Row, rows: Sequence[Row], width: int) -> Iterator[str]:
    """The lines of a table, without blanks at their ends.

    Numbers stand right. Where the table is too wide, columns without any value are left out, and then the
    first columns get lines of their own, one after the other, each row's further values indented below. What
    is longer than a line even so goes on below, and a single word that is longer is left to the terminal.

    Args:
        columns: the names; none of them is shown where all are "".
        width: of the terminal, in cells.
    """
    shown = [True] * len(columns)
    if _width(columns, rows) > width:
        shown = [position == 0 or any(row[position] for row in rows) for position in range(len(columns))]
    names = _chosen(columns, shown)
    cells = [_chosen(row, shown) for row in rows]
    alone = next((n for n in range(len(names)) if n * len(_INDENT) + _width(names, cells, n) <= width), None)
    alone = max(0, len(names) - 1) if alone is None else alone
    widths = _widths(names, cells)
    right = [position > 0 and _is_numeric(cells, position) for position in range(len(names))]

    def lines_of(row: Row) -> Iterator[str]:
        for depth in range(alone):
            if row[depth]:
                yield from folded(f" {_INDENT * depth}", row[depth], width)
        rest = [
            _aligned(row[position], widths[position], right[position]) for position in range(alone, len(row))
        ]
        start, line = f" {_INDENT * alone}", _GAP.join(rest).rstrip()
        if len(rest) == 1:
            yield from folded(start, line, width)
        elif line:
            yield start + line

    if any(columns):
        yield from lines_of(names)
        longest = max(alone * len(_INDENT) + _width(names, cells, alone), *widths[:alone], 0)
        yield " " + _RULE * (min(longest, width) - 1)
    for row in cells:
        yield from lines_of(row)


def folded(start: str, text: str, width: int) -> Iterator[str]:
    """The lines of a text that starts so, broken between words where it is too wide."""
    line, *words = f"{start}{text}".rstrip().split(" ")
    for word in words:
        if line.strip() and cell_len(f"{line} {word}") > width:
            yield line
            line = f"{' ' * len(start)}{_INDENT}{word}"
        else:
            line += f" {word}"
    if line:
        yield line


def _chosen(row: Row, shown: Sequence[bool]) -> list[str]:
    return [value for value, is_shown in zip(row, shown, strict=True) if is_shown]


def _widths(columns: Row, rows: Sequence[Row]) -> list[int]:
    return [max(cell_len(row[position]) for row in (columns, *rows)) for position in range(len(columns))]


def _width(columns: Row, rows: Sequence[Row], first: int = 0) -> int:
    """Cells that a line of the columns from `first` takes."""
    widths = _widths(columns, rows)[first:]
    return 1 + sum(widths) + len(_GAP) * (len(widths) - 1)


def _is_numeric(rows: Sequence[Row], position: int) -> bool:
    return all(row[position][:1] in "≥0123456789-" for row in rows)


def _aligned(value: str, width: int, right: bool) -> str:
    blanks = " " * (width - cell_len(value))
    return blanks + value if right else value + blanks
