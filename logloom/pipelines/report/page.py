"""The page of `logloom report`: one HTML file that asks no network for anything.

Here: `page_of`, from the data of a report to the bytes of a page; templates/page.html says how it looks.
Elsewhere: the data (report), charts as paths of SVG (charts).

Charts are drawn here, and not by a plotting library: those that write SVG (matplotlib) make each of the
hundreds of small ones 30 kB of paths, text among them, which no style sheet turns dark, and those that draw
in the browser bring megabytes of script. Names come from logs and may hold anything, so that templates escape
all they are given, and the page's own policy lets just its one script run, named by its digest.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from logloom import __version__
from logloom.io.catalog.manifest import Manifest
from logloom.io.storage.store import Store
from logloom.pipelines.report.charts import Bars, MapView, bars_of, lanes_of, map_of, shares
from logloom.pipelines.report.report import DatasetReport, report_of
from logloom.pipelines.stats.stats import elements, sample_note
from logloom.text import counted, human_number, human_time, printable
from logloom.values import dataclass

MAX_COLUMNS = 120
MAX_ELEMENTS = 16  # of a column
MAX_TEXTS = 10  # texts, or whole numbers, that are shown with their counts
MAX_TEXT = 100_000  # characters of the recipe, and of how it changed
_HEADS = ("count", "min", "1", "10", "50", "90", "99", "max", "mean", "std")


@dataclass(frozen=True)
class Series:
    """An element of a column, for people.

    Attributes:
        label: distinguishes it from others of its column; "" if it is the only one.
        cells: its statistics as text, one for each of `_HEADS`.
        bars: its histogram; None where there is none.
        texts: (value, count, share of the most frequent one) of the most frequent values.
        texts_left_out: how many others there are.
        same: the one number that all are; "" where they differ.
        odd: how many are NaN or infinite, in words; statistics are of the others.
    """

    label: str
    cells: tuple[str, ...]
    bars: Bars | None
    texts: tuple[tuple[str, int, float], ...]
    texts_left_out: int
    same: str
    odd: str


@dataclass(frozen=True)
class ColumnCard:
    """A column, for people.

    Attributes:
        note: what of large values was not looked at.
        series: by split.
        left_out: elements that aren't shown.
    """

    name: str
    type: str
    unit: str
    description: str
    note: str
    series: Mapping[str, tuple[Series, ...]]
    left_out: int

    @property
    def is_wide(self) -> bool:
        return max(map(len, self.series.values()), default=0) > 2


@dataclass(frozen=True)
class AgeLine:
    """How often a column has a usable message in a split, and how old these are; times as text.

    Attributes:
        available: share of rows.
        bars: of ages; None without any.
    """

    name: str
    rows: int
    unavailable: int
    available: float
    median: str = ""
    low: str = ""
    high: str = ""
    jitter: str = ""
    bars: Bars | None = None


def page_at(store: Store, manifest: Manifest, *, every_log: bool = False, num_workers: int = 1) -> bytes:
    """Draw the page of a version; see `report_of` and `page_of`."""
    return page_of(report_of(store, manifest, every_log=every_log, num_workers=num_workers))


def page_of(report: DatasetReport) -> bytes:
    """Draws the page of a version.

    Args:
        report: as `report_of` gives it.

    Returns:
        One HTML file, as UTF-8; the same bytes for the same report.
    """
    import jinja2
    from markupsafe import Markup

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("logloom.pipelines.report", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalized,
    )
    environment.filters |= {"time": human_time, "number": lambda number: f"{number:,}"}
    # A line each: no name has a line break once it is printable.
    lines = {"lines": lambda names: Markup("\n").join(map(printable, names))}
    environment.globals |= {"counted": counted, **lines}
    style, script = (environment.get_template(name).render() for name in ("page.css", "page.js"))
    text = environment.get_template("page.html").render(
        view_of(report),
        report=report,
        style=Markup(style),  # nosec B704 - our own file, without a word of a dataset
        script=Markup(script),  # nosec B704 - our own file as well
        policy=f"default-src 'none'; img-src data:; style-src {_digest(style)}; script-src {_digest(script)};"
        " base-uri 'none'; form-action 'none'",
    )
    return text.encode("utf-8", "backslashreplace")


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _finalized(value: Any) -> Any:
    """What a template writes: text without what hides in it or turns its direction."""
    return printable(value) if type(value) is str else value


def view_of(report: DatasetReport) -> dict[str, Any]:
    """What the template asks for beside the report itself."""
    whole = report.statistics[""]
    planned = report.totals["ticks_planned"]
    groups = {split: found.columns() for split, found in report.statistics.items()}
    cards = list(_cards(report, groups))
    colours = {one.name: number % 6 for number, one in enumerate(report.splits)}
    view = map_of(report.samples.tracks, [one.place for one in report.samples.rows])
    return {
        "version": __version__,
        "facts": _facts(report),
        "ticks": shares({"rows": report.totals["rows"], **report.dropped}) if planned else (),
        "splits": [one.name for one in report.splits],
        "filters": [split for split in report.statistics if split],
        "colour_of": lambda names: colours.get(names[0], 0) if len(names) == 1 else 0,
        "split_shares": shares({one.name: one.rows for one in report.splits}),
        "heads": [f"{head} %" if head.isdecimal() else head for head in _HEADS],
        "cards": cards[:MAX_COLUMNS],
        "cards_left_out": max(0, len(cards) - MAX_COLUMNS),
        "ages": {split: list(_ages(columns)) for split, columns in groups.items()},
        "has_ages": any(name.endswith(".age") for name in groups[""]),
        "read": whole.read,
        "lanes": lanes_of(report.lines),
        "lines_left_out": report.totals["logs"] - report.erased - len(report.lines),
        "map": view,
        "places": _places(report, view),
        "recipe": _cut(report.recipe),
        "changes": list(_changes(report)),
        "outputs": {name: json.dumps(options, sort_keys=True) for name, options in report.outputs.items()},
    }


def _facts(report: DatasetReport) -> list[tuple[str, str]]:
    """The line of figures below the title."""
    totals = report.totals
    lost = totals["ticks_planned"] - totals["rows"]
    facts = [
        counted(totals["rows"], "row"),
        counted(totals["logs"], "log"),
        *([counted(totals["skipped"], "log skipped", "logs skipped")] if totals["skipped"] else []),
        counted(len(report.columns.columns), "column"),
        counted(len(report.splits), "split"),
        counted(lost, "tick dropped", "ticks dropped"),
        counted(totals["refused"], "message refused", "messages refused"),
    ]
    return [(noun, figure) for figure, _, noun in (one.partition(" ") for one in facts)]


def _cards(
    report: DatasetReport, groups: Mapping[str, Mapping[str, Mapping[str, Any]]]
) -> Iterator[ColumnCard]:
    for name, stats in groups[""].items():
        if name.endswith(".age"):
            continue
        found = {
            split: [_series(name, *pair) for pair in elements(name, columns[name]) if "count" in pair[1]]
            for split, columns in groups.items()
            if name in columns
        }
        ctype = report.columns.columns.get(name)
        yield ColumnCard(
            name,
            stats["type"],
            stats.get("unit", ""),
            ctype.description if ctype is not None else "",
            sample_note(stats),
            {split: tuple(series[:MAX_ELEMENTS]) for split, series in found.items()},
            max(0, max(map(len, found.values())) - MAX_ELEMENTS),
        )


def _series(name: str, label: str, stats: Mapping[str, Any]) -> Series:
    quantiles, unit = stats.get("quantiles", {}), stats.get("unit", "")
    numbers = [stats.get(head, quantiles.get(head)) for head in _HEADS[1:]]
    distinct = stats.get("distinct") or {}
    values, counts = (distinct.get(key) or [] for key in ("values", "counts"))
    pairs = list(zip(counts, values, strict=True))
    are_texts = bool(values) and isinstance(values[0], str)
    ranked = sorted(pairs, key=lambda pair: (-pair[0], pair[1])) if are_texts else pairs
    shown = ranked[:MAX_TEXTS] if are_texts or len(ranked) <= MAX_TEXTS else []
    low, high = stats.get("min"), stats.get("max")
    counts_of_odd = {"NaN": stats.get("nan"), "infinite": stats.get("infinite")}
    odd = ", ".join(f"{count:,} {word}" for word, count in counts_of_odd.items() if count)
    same = human_number(low, unit) if low is not None and low == high and not odd else ""
    shown = [] if same else shown
    return Series(
        label.removeprefix(name).strip(),
        (f"{stats.get('count', 0):,}", *(human_number(number, unit) for number in numbers)),
        bars_of(stats.get("histogram")) if not shown and not same else None,
        tuple((str(value)[:80], count, count / max(counts)) for count, value in shown),
        len(ranked) - len(shown) if shown else 0,
        same,
        odd,
    )


def _ages(columns: Mapping[str, Mapping[str, Any]]) -> Iterator[AgeLine]:
    for name, stats in columns.items():
        if name.endswith(".age") or "unavailable" not in stats:
            continue
        rows, missing = stats["rows"], stats["unavailable"]
        share = 1 - missing / rows if rows else 0.0
        age = columns.get(f"{name}.age", {})
        if age.get("mean") is None:
            yield AgeLine(name, rows, missing, share)
            continue
        quantiles = age["quantiles"]
        median, low, high = (human_number(quantiles[key], "ns") for key in ("50", "1", "99"))
        jitter = human_number(age["std"], "ns")
        bars = bars_of(age.get("histogram"), 1e6)
        yield AgeLine(name, rows, missing, share, median, low, high, jitter, bars)


def _places(report: DatasetReport, view: MapView | None) -> list[tuple[float, float] | None]:
    """Where on the map each sample is."""
    if view is None:
        return [None for _ in report.samples.rows]
    return [view.at(one.place) if one.place else None for one in report.samples.rows]


def _cut(text: str) -> str:
    lost = len(text) - MAX_TEXT
    return text if lost <= 0 else f"{text[:MAX_TEXT]}\n… and {counted(lost, 'character')} more"


def _changes(report: DatasetReport) -> Iterator[tuple[str, Sequence[tuple[str, str, str]]]]:
    """(heading, lines) of what changed; a line is a sign, a name, and what became of it."""
    compared = report.changes
    if compared is None:
        return
    yield (
        "Totals",
        [
            ("~", name.replace("_", " "), f"{_total(before)} → {_total(after)}")
            for name, (before, after) in compared.totals.items()
            if before != after
        ],
    )
    yield "Logs", list(_changed_logs(report))
    for heading in ("columns", "outputs", "software"):
        yield heading.capitalize(), [_pair(*one) for one in getattr(compared, heading).items()]
    availability, ranges, others = compared.statistics_in_words("→")
    yield "Less available columns", [("~", *one) for one in availability]
    yield "Splits", [("~", *one) for one in compared.splits_in_words()]
    changed = [*ranges, *others]
    lines = [("~", *one) for one in changed[:MAX_COLUMNS]]
    if len(changed) > len(lines):
        lines.append(("…", f"and {len(changed) - len(lines):,} more", "`logloom diff --all` shows all"))
    yield "Statistics", lines
    yield "Recipe", [("", _cut("\n".join(compared.recipe)), "")] if compared.recipe else []


def _changed_logs(report: DatasetReport) -> Iterator[tuple[str, str, str]]:
    assert report.changes is not None
    logs = report.changes.logs
    named = {"added": logs.added, "gone": logs.gone}
    for sign, kind in (("+", "added"), ("−", "gone")):
        yield from ((sign, log_id, "") for log_id in named[kind])
    yield from (("~", one["log_id"], f"differs in {', '.join(one['differs'])}") for one in logs.changed)
    for kind, count in logs.counts.items():
        shown = len(getattr(logs, kind)) if kind in ("added", "gone", "changed") else count
        if count > shown:
            yield "…", f"and {count - shown:,} more {kind}", "`logloom diff --logs` names all"


def _total(count: int | None) -> str:
    return "unknown" if count is None else f"{count:,}"


def _pair(name: str, pair: tuple[Any, Any]) -> tuple[str, str, str]:
    before, after = pair
    if before is None:
        return "+", name, str(after)
    return ("−", name, str(before)) if after is None else ("~", name, f"{before} → {after}")
