"""Which rows a training run saw, by the steps of its Loader.

Elsewhere: the order itself (logloom.datasets.loader.orders).
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from logloom.datasets.dataset import Dataset
from logloom.datasets.loader.orders import Order
from logloom.datasets.loader.row_groups import groups_of
from logloom.datasets.mixing.mixture import Mixture
from logloom.errors import UsageError
from logloom.io.rows.chain import grouped


def rows_seen(
    rows: Dataset[Any] | Mixture,
    steps: range,
    *,
    seed: int = 0,
    shuffle: bool | Literal["groups"] = True,
    shuffle_groups: int = 8,
) -> list[dict[str, Any]]:
    """Name the rows that a Loader gives at some steps, over all its shards.

    Reads indices only. A Loader's `save` has the step that it is at; batch b of a run of batches of B rows on
    S machines begins at step b * B * S.

    Examples:
        >>> rows = logloom.datasets.open("demo/dataset", columns=["ego.speed"])
        >>> with logloom.datasets.Loader(rows, batch=16, workers=0, seed=7) as loader:
        ...     batch = next(loader)
        >>> seen = logloom.datasets.rows_seen(rows, range(16), seed=7)
        >>> [row["timestamp"] for row in seen] == batch["timestamp"].tolist()
        True

    Args:
        rows: what the Loader was given: a dataset, filtered, split and windowed alike, or a mixture.
        steps: positions, as a Loader's state counts them.
        seed: of the Loader.
        shuffle, shuffle_groups: of the Loader.

    Returns:
        For each step a dict of "step", "source" (of a mixture), "log_id", "timestamp", "split" and "row", the
        row's number in its log; without what the dataset has no index of.

    Raises:
        UsageError: a step is negative or beyond 64 bits, or the dataset has no rows.
    """
    if steps and not 0 <= min(steps) <= max(steps) < 2**63:
        raise UsageError(f"rows_seen: {steps}: steps are counted from 0, in 63 bits")
    positions = np.fromiter(steps, np.int64, len(steps))
    if isinstance(rows, Mixture):
        parts = rows.rows.parts
        groups = [groups_of(part) for part in parts.values()] if shuffle == "groups" else []
        numbers = rows.order(bool(shuffle), groups, shuffle_groups).rows(positions, seed)
    else:
        if not len(rows):
            raise UsageError(f"{rows.place}: no rows")
        parts = {"": rows}
        grouping = groups_of(rows) if shuffle == "groups" else None
        numbers = Order(len(rows), bool(shuffle), grouping, shuffle_groups).rows(positions, seed)
    seen: list[dict[str, Any]] = [{} for _ in steps]
    bounds = np.cumsum([0, *map(len, parts.values())], dtype=np.int64)
    names = list(parts)
    for source, places, own in grouped(bounds, numbers):
        index = parts[names[source]].take(own).index
        keys = [key for key in ("log_id", "timestamp", "split", "row") if key in index]
        label = {"source": names[source]} if isinstance(rows, Mixture) else {}
        columns = [index[key].tolist() for key in keys]
        for place, *values in zip(places.tolist(), *columns, strict=True):
            seen[place] = {"step": steps[place], **label, **dict(zip(keys, values, strict=True))}
    return seen
