"""HTML fragments for notebooks; all text is escaped, as names come from logs."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from logloom.text import printable

MAX_ROWS = 40  # of a table
# Wide tables scroll, by keyboard too: notebooks are read on phones.
_WRAPS = "style='overflow-wrap:anywhere'"
_SCROLLS = "tabindex='0' style='overflow-x:auto'"


def escaped(text: object) -> str:
    """Escape a text for HTML, in one line, without invisible characters and changes of direction.

    >>> escaped("<script>")
    '&lt;script&gt;'
    """
    return html.escape(printable(str(text)))


def table(title: str, heads: Sequence[str], rows: Iterable[Sequence[object]], more: str = "") -> str:
    """Return a table below its title; the first rows of many.

    Args:
        more: HTML that follows it.
    """
    found = list(rows)
    head = "".join(f"<th style='text-align:left'>{escaped(one)}</th>" for one in heads)
    body = "".join(
        "<tr>" + "".join(f"<td style='text-align:left'>{escaped(cell)}</td>" for cell in row) + "</tr>"
        for row in found[:MAX_ROWS]
    )
    left = f"<p>… and {len(found) - MAX_ROWS:,} more</p>" if len(found) > MAX_ROWS else ""
    grid = f"<table style='overflow-wrap:normal'><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    shown = f"<div role='group' aria-label='{escaped(title)}' {_SCROLLS}>{grid}</div>" if found else ""
    return f"<div {_WRAPS}><p><b>{escaped(title)}</b></p>{shown}{left}{more}</div>"


def preformatted(title: str, text: str) -> str:
    """Return a text of several lines below its title."""
    lines = "\n".join(map(escaped, text.split("\n")))
    shown = f"<pre role='group' aria-label='{escaped(title)}' {_SCROLLS}>{lines}</pre>"
    return f"<div {_WRAPS}><p><b>{escaped(title)}</b></p>{shown}</div>"
