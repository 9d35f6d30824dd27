"""Count logs and rows of each split, and find the least distance between splits.

Distances between two splits are in metres or seconds.
Elsewhere: making splits, and the distance between two (logloom.datasets.splits.split); whether splits are
as far apart as a version's rule says (logloom.pipelines.stats.split_distances).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from logloom.datasets import opening
from logloom.datasets.dataset import Dataset
from logloom.datasets.splits.split import Nearest, nearest, nearest_in_time, split
from logloom.durations import Time
from logloom.errors import UsageError
from logloom.io.catalog.manifest import Manifest, open_root, split_root
from logloom.io.catalog.row_counts import row_split_names
from logloom.io.formats.registry import by_preference, format_named, options_of
from logloom.io.storage.store import Store
from logloom.row_splits import left_out_of
from logloom.schema import Schema
from logloom.values import dataclass

Options = Mapping[str, Any] | None


@dataclass(frozen=True)
class Separation:
    """What splits there are.

    Attributes:
        counts: by split, its `logs` and `rows`; those of nothing, too.
        left_out: rows that are in none.
        nearest: of any two splits with positions, their rows that are nearest.
        nearest_in_time: of any two splits by time, their rows that were recorded nearest.
        of_rows: whether single rows are split, not whole logs.
        guaranteed: the distance, or time, that a build kept between splits, as its recipe says it; "" for
            none.
        rule: how a build split single rows, as the version's recipe says it; {} where none did.
        position: the column that `nearest` is of; "" for none.
    """

    counts: Mapping[str, dict[str, int]]
    left_out: int
    nearest: tuple[Nearest, ...] = ()
    nearest_in_time: tuple[Nearest, ...] = ()
    of_rows: bool = True
    guaranteed: str = ""
    rule: Mapping[str, Any] = field(default_factory=dict)
    position: str = ""

    @property
    def metres(self) -> float | None:
        """The least between any two splits, by the rule's positions; None where these weren't read."""
        if not self.position or self.position != self.rule.get("position"):
            return None
        return min((pair.apart for pair in self.nearest), default=math.inf)

    @property
    def seconds(self) -> float:
        """The least between any two splits by time."""
        return min((pair.apart for pair in self.nearest_in_time), default=math.inf)

    def to_json(self) -> dict[str, Any]:
        """For machines; metres, or seconds, are null where two splits have no two rows that tell them."""
        data = {
            "splits": dict(self.counts),
            "left_out": self.left_out,
            "nearest": [_pair(one, "metres") for one in self.nearest],
        }
        if self.nearest_in_time:
            data["nearest_in_time"] = [_pair(one, "seconds") for one in self.nearest_in_time]
        return data | ({"gap": self.guaranteed} if self.guaranteed else {})


def _pair(found: Nearest, unit: str) -> dict[str, Any]:
    return {
        "splits": list(found.splits),
        unit: found.apart if math.isfinite(found.apart) else None,
        "rows": [{"log_id": log_id, "timestamp": stamp} for log_id, stamp in found.rows],
    }


def version_splits(root: str, position: str | None, options: Options = None) -> Separation:
    """The splits of a version.

    Args:
        root: with @version or without.
        position: see `logloom.datasets.split`; None for that of the recipe, if it splits by place and an
            output holds it; else distances aren't asked for.

    Raises:
        UsageError: no such version or column, or it holds no positions.
    """
    place, version = split_root(root)
    store, manifest = open_root(Store.at(place, options), version or "latest")
    rule = manifest.recipe.get("split") or {}
    named = (manifest.recipe.get("order") or {}).get("split") or []
    single = row_split_names(manifest.logs.column("splits"))
    names = list(dict.fromkeys([*named, *(single or sorted(set(manifest.logs.column("split").to_pylist())))]))
    output = None
    if position is None and single and rule.get("by") == "place":
        output = _output_with(store, manifest, rule["position"])
        position = rule["position"] if output else None
    whole = opening.open(
        place, version=manifest.version, output=output, columns=position, storage_options=options
    )
    splits = whole.index["split"]
    parts = {name: whole.take((splits == name).to_numpy()) for name in names}
    found = _separation(parts, len(whole), position, by_time=bool(single) and rule.get("by") == "time")
    if not single:
        return replace(found, of_rows=False)
    left_out = left_out_of(manifest.logs.dropped)
    return replace(found, left_out=left_out, guaranteed=str(rule.get("gap") or ""), rule=rule)


def _output_with(store: Store, manifest: Manifest, column: str) -> str | None:
    """The output whose rows are quickest to reach, of those that hold a column."""
    schema, names = Schema.from_json(manifest.schema), by_preference(manifest.outputs)
    chosen = options_of(store, manifest, names)
    for name in names:
        held = format_named(name).columns_of(chosen[name], schema) if format_named(name).has_rows else None
        if held is not None and column in held.columns:
            return name
    return None


def requested_splits(
    root: str,
    shares: Sequence[str],
    by: str,
    cell: Time | None,
    gap: Time,
    position: str | None,
    options: Options = None,
    where: str | None = None,
) -> Separation:
    """What `logloom.datasets.split` makes of the rows of a dataset.

    Args:
        shares: "train=0.8", ….
        where: a filter; None for all rows.

    Raises:
        UsageError: see `logloom.datasets.split`.
    """
    by_split = dict(one.rpartition("=")[::2] for one in shares)
    if "" in by_split or len(by_split) < len(shares):
        raise UsageError(f"--share {' '.join(shares)}: write each split once, as in train=0.8")
    whole = opening.open(root, where=where, storage_options=options)
    parts = split(whole, by_split, by=by, cell=cell, gap=gap, position=position)
    return _separation(parts, len(whole), position, by_time=by == "time")


def _separation(
    parts: Mapping[str, Dataset[Any]], rows: int, position: str | None, *, by_time: bool
) -> Separation:
    counts = {
        name: {"logs": int(part.index["log_id"].nunique()), "rows": len(part)} for name, part in parts.items()
    }
    left_out = rows - sum(map(len, parts.values()))
    places = tuple(nearest(parts, position)) if position else ()
    times = tuple(nearest_in_time(parts)) if by_time else ()
    return Separation(counts, left_out, places, times, position=position or "")
