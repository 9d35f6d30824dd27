"""The splits of a dataset, counted, and how near they come to each other.

Elsewhere: making splits, and the distance between two (logloom.datasets.splitting).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from logloom.datasets import opening
from logloom.datasets.dataset import Dataset
from logloom.datasets.splitting import Nearest, nearest, split
from logloom.errors import UsageError
from logloom.io.manifest import open_root, split_root
from logloom.io.row_counts import row_split_names
from logloom.io.storage import Store
from logloom.row_splits import left_out_of

Options = Mapping[str, Any] | None


@dataclass(frozen=True)
class Separation:
    """What splits there are.

    Attributes:
        counts: by split, its `logs` and `rows`; those of nothing, too.
        left_out: rows that are in none.
        nearest: of any two splits with positions, their rows that lie nearest.
        of_rows: whether single rows are split, not whole logs.
        guaranteed: the distance, or time, that a build kept between splits, as its recipe says it; "" for
            none.
    """

    counts: Mapping[str, dict[str, int]]
    left_out: int
    nearest: tuple[Nearest, ...]
    of_rows: bool = True
    guaranteed: str = ""

    def to_json(self) -> dict[str, Any]:
        """For machines; metres are null where two splits have no two positions."""
        pairs = [
            {
                "splits": list(one.splits),
                "metres": one.metres if math.isfinite(one.metres) else None,
                "rows": [{"log_id": log_id, "timestamp": stamp} for log_id, stamp in one.rows],
            }
            for one in self.nearest
        ]
        said = {"splits": dict(self.counts), "left_out": self.left_out, "nearest": pairs}
        return said | ({"gap": self.guaranteed} if self.guaranteed else {})


def version_splits(root: str, position: str | None, options: Options = None) -> Separation:
    """The splits of a version.

    Args:
        root: with @version or without.
        position: see `logloom.datasets.split`; None: distances aren't asked for.

    Raises:
        UsageError: no such version or column, or it holds no positions.
    """
    place, version = split_root(root)
    _, manifest = open_root(Store.at(place, options), version or "latest")
    named = (manifest.recipe.get("order") or {}).get("split") or []
    single = row_split_names(manifest.logs.column("splits"))
    names = list(dict.fromkeys([*named, *(single or sorted(set(manifest.logs.column("split").to_pylist())))]))
    whole = opening.open(root, columns=position, storage_options=options)
    splits = whole.index["split"]
    parts = {name: whole.take((splits == name).to_numpy()) for name in names}
    found = _separation(parts, len(whole), position)
    if not single:
        return replace(found, of_rows=False)
    left_out = left_out_of(manifest.logs.dropped)
    guaranteed = (manifest.recipe.get("split") or {}).get("gap") or ""
    return replace(found, left_out=left_out, guaranteed=str(guaranteed))


def asked_splits(
    root: str,
    shares: Sequence[str],
    by: str,
    cell: float | None,
    gap: float,
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
    said = dict(one.rpartition("=")[::2] for one in shares)
    if "" in said or len(said) < len(shares):
        raise UsageError(f"--share {' '.join(shares)}: write each split once, as in train=0.8")
    whole = opening.open(root, where=where, storage_options=options)
    parts = split(whole, said, by=by, cell=cell, gap=gap, position=position)
    return _separation(parts, len(whole), position)


def _separation(parts: Mapping[str, Dataset[Any]], rows: int, position: str | None) -> Separation:
    counts = {
        name: {"logs": int(part.index["log_id"].nunique()), "rows": len(part)} for name, part in parts.items()
    }
    left_out = rows - sum(map(len, parts.values()))
    return Separation(counts, left_out, tuple(nearest(parts, position)) if position else ())
