"""Dataset card of `report --card`: a README.md with Hugging Face's YAML head.

Here: `card_of`; templates/card.md says how it reads.
Elsewhere: the page (page). What the head may hold: https://huggingface.co/docs/hub/datasets-cards
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from logloom.io.catalog.manifest import Manifest
from logloom.io.formats.registry import format_named, format_names
from logloom.io.storage.store import Store
from logloom.pipelines.report.logs import split_counts
from logloom.pipelines.stats.stats import elements, sample_note, statistics_of
from logloom.pipelines.versions.log_counts import logs_in_words
from logloom.text import counted, human_number, printable

_SIZES = (10**3, 10**4, 10**5, 10**6, 10**7, 10**8, 10**9, 10**10, 10**11, 10**12)
_NAMES = ("1K", "10K", "100K", "1M", "10M", "100M", "1B", "10B", "100B", "1T")
_HEADS = ("min", "1", "50", "99", "max", "mean", "std")
_MAX_LINES = 200


def card_of(store: Store, manifest: Manifest, *, num_workers: int = 1) -> bytes:
    """The card, as UTF-8; the same for the same version.

    Args:
        num_workers: processes that read the rows of logs without statistics.

    Raises:
        DatasetError: statistics, or rows that must be read, are missing or damaged.
    """
    import jinja2

    # Markdown: what comes from a dataset stands in code, see `_code`.
    environment = jinja2.Environment(  # nosec B701
        loader=jinja2.PackageLoader("logloom.pipelines.report", "templates"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    found = statistics_of(store, manifest, num_workers=num_workers).columns()
    lines = [one for name, stats in found.items() for one in elements(name, stats)]
    sums = manifest.counts
    text = environment.get_template("card.md").render(
        head=yaml.safe_dump(head_of(manifest), sort_keys=False, allow_unicode=True).rstrip(),
        name=_code(manifest.name),
        manifest=manifest,
        rows=counted(sums["rows"], "row"),
        logs=logs_in_words(manifest.logs.statuses),
        planned=sums["ticks_planned"],
        kept=f"{sums['rows']:,}",
        refused=sums["refused"],
        dropped=[(_code(reason), f"{count:,}") for reason, count in sorted(manifest.logs.dropped.items())],
        splits=[(_code(one.name), f"{one.logs:,}", f"{one.rows:,}") for one in split_counts(manifest)],
        types=[
            (
                _code(name),
                _code(stats["type"]),
                _code(stats.get("unit", "")),
                f"{stats.get('unavailable', 0):,}",
            )
            for name, stats in found.items()
            if not name.endswith(".age")
        ],
        heads=[f"{head} %" if head.isdecimal() else head for head in _HEADS],
        numbers=[(_code(label), *_cells(stats)) for label, stats in lines[:_MAX_LINES] if "mean" in stats],
        left_out=max(0, len(lines) - _MAX_LINES),
        sampled=[(_code(name), note) for name, stats in found.items() if (note := sample_note(stats))],
        outputs=[_code(name) for name in manifest.outputs],
        software=[(_code(name), _code(version)) for name, version in manifest.software.items()],
    )
    return text.encode("utf-8", "backslashreplace")


def _cells(stats: Mapping[str, Any]) -> Iterator[str]:
    quantiles = stats.get("quantiles", {})
    unit = stats.get("unit", "")
    return (human_number(stats.get(head, quantiles.get(head)), unit) for head in _HEADS)


def head_of(manifest: Manifest) -> dict[str, Any]:
    """The YAML head: what the hub lists the dataset by, and which files its viewer opens.

    It has no licence, which only the owner of the logs can add.
    """
    rows = manifest.counts["rows"]
    number = next((at for at, size in enumerate(_SIZES) if rows < size), len(_SIZES))
    low, high = (_NAMES[at] if 0 <= at < len(_NAMES) else "" for at in (number - 1, number))
    size = f"n<{high}" if not number else f"{low}<n<{high}" if high else f"n>{low}"
    head: dict[str, Any] = {
        "pretty_name": printable(manifest.name),
        "tags": ["robotics", "autonomous-driving", "logloom"],
        "size_categories": [size],
    }
    if configs := list(_configs(manifest)):
        head["configs"] = configs
    return head


def _configs(manifest: Manifest) -> Iterator[dict[str, Any]]:
    """The outputs of which the hub's viewer opens files."""
    for output in format_names():
        if output in manifest.outputs and (files := format_named(output).hub_files):
            paths = [
                {"split": _split_name(split, in_rows), "path": f"{output}/{split}/{files}"}
                for split, in_rows in _folders(manifest)
            ]
            yield {"config_name": output, "data_files": paths}


def _folders(manifest: Manifest) -> Iterator[tuple[str, bool]]:
    """The splits that the view has folders of, and whether their rows are of several splits."""
    logs = manifest.logs.columns("split", "rows", "splits").to_pylist()
    in_rows = {log["split"]: log["splits"] is not None for log in logs if log["rows"]}
    yield from sorted(in_rows.items())


def _split_name(name: str, in_rows: bool) -> str:
    """A split as the datasets library may call it: words, and not `all`, which means all splits there."""
    if in_rows:
        return "rows"  # not `train`, for rows to validate with are among them
    return "train" if name == "all" else re.sub(r"\W", "_", name, flags=re.ASCII) or "train"


def _code(text: str) -> str:
    """A text from a dataset as code, which no Markdown or HTML gets out of; a table's cell too."""
    shown = printable(text).replace("|", "\\|")
    if not shown:
        return ""
    fence = "`" * (1 + max(map(len, re.findall("`+", shown)), default=0))
    gap = " " if shown.startswith("`") or shown.endswith("`") else ""
    return f"{fence}{gap}{shown}{gap}{fence}"
