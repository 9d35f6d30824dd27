"""Tables for terminals: aligned columns, in which long texts are folded.

Here: pure functions from texts to lines. A table that fits is aligned here, not by Rich, whose import costs a
short command 34 ms of processor time, and which takes fifty times as long for each row.
Elsewhere: printing them (logloom.cli.terminal).
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterator, Sequence

from rich.cells import cell_len

_GAP = "   "
_LEAST = 24  # cells of a column of texts that are folded
_INDENT = "  "
_RULE = "─"

Row = Sequence[str]


def table_lines(columns: Row, rows: Sequence[Row], width: int) -> Iterator[str]:
    """Return the lines of a table, without trailing blanks.

    Numbers are aligned right. If the table is too wide, columns without any value are left out; then long
    texts are folded within their column; and if that isn't enough, the columns are split into several blocks,
    one below the other, each of which begins with the first column.

    Args:
        columns: the names; none of them is shown where all are "".
        width: of the terminal, in cells.
    """
    names, cells = columns, rows
    if _width(names, cells) > width:
        shown = [position == 0 or any(row[position] for row in rows) for position in range(len(columns))]
        names, *cells = [list(itertools.compress(row, shown)) for row in (columns, *rows)]
    if _width(names, cells) <= width:
        yield from _lines(names, cells)
        return
    for number, block in enumerate(_blocks(names, cells, width)):
        if number:
            yield ""
        of_block = [[row[position] for position in block] for row in (names, *cells)]
        yield from _folded_lines(of_block[0], of_block[1:], width)


def _lines(names: Row, cells: Sequence[Row]) -> Iterator[str]:
    """Return the lines of a table that fits."""
    widths = _widths(names, cells)
    right = [_is_right(cells, position) for position in range(len(names))]
    for number, row in enumerate((names, *cells) if any(names) else cells):
        yield " " + _GAP.join(map(_aligned, row, widths, right)).rstrip()
        if any(names) and not number:
            yield f" {_RULE * (_width(names, cells) - 1)}"


def _blocks(names: Row, cells: Sequence[Row], width: int) -> Iterator[list[int]]:
    """Return the columns of each block: as many as fit with folded texts."""
    widths = [
        min(_LEAST, full) if _is_folded(full, position, cells, width) else full
        for position, full in enumerate(_widths(names, cells))
    ]
    block, taken = [0], 1 + widths[0]
    for position in range(1, len(names)):
        taken += len(_GAP) + widths[position]
        if taken > width and len(block) > 1:
            yield block
            block, taken = [0], 1 + widths[0] + len(_GAP) + widths[position]
        block.append(position)
    yield block


def _is_folded(full: int, position: int, cells: Sequence[Row], width: int) -> bool:
    """Return whether cells of a column may be folded: no numbers, and labels only if very long."""
    return full > width // 2 if position == 0 else full > _LEAST and not _is_numeric(cells, position)


def _folded_lines(names: Row, cells: Sequence[Row], width: int) -> Iterator[str]:
    """Return the lines of a table with texts folded within their column."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(
        box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, show_header=any(names), header_style=""
    )
    for position, (name, full) in enumerate(zip(names, _widths(names, cells), strict=True)):
        table.add_column(
            Text(name),
            justify="right" if _is_right(cells, position) else "left",
            no_wrap=not _is_folded(full, position, cells, width),
            overflow="fold",
        )
    for row in cells:
        table.add_row(*map(Text, row))
    console = Console(file=io.StringIO(), width=width - 1, color_system=None, legacy_windows=False)
    with console.capture() as capture:
        console.print(table)
    for line in capture.get().splitlines():
        yield f" {line}".rstrip()


def folded(text: str, width: int) -> Iterator[str]:
    """Break a text between words if it is wider; its further lines are indented."""
    line, *words = text.rstrip().split(" ")
    for word in words:
        if line.strip() and cell_len(f"{line} {word}") > width:
            yield line
            line = f"{_INDENT}{word}"
        else:
            line += f" {word}"
    if line:
        yield line


def _widths(columns: Row, rows: Sequence[Row]) -> list[int]:
    return [max(cell_len(row[position]) for row in (columns, *rows)) for position in range(len(columns))]


def _width(columns: Row, rows: Sequence[Row]) -> int:
    """Return the cells of a line."""
    widths = _widths(columns, rows)
    return 1 + sum(widths) + len(_GAP) * (len(widths) - 1)


def _is_right(rows: Sequence[Row], position: int) -> bool:
    return position > 0 and _is_numeric(rows, position)


def _is_numeric(rows: Sequence[Row], position: int) -> bool:
    return all(row[position][:1] in "≥0123456789-" for row in rows)


def _aligned(value: str, width: int, right: bool) -> str:
    blanks = " " * (width - cell_len(value))
    return blanks + value if right else value + blanks
