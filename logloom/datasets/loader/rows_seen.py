"""Which rows a training run saw, told from where its Loader stood.

Elsewhere: the order itself (logloom.datasets.loader.orders).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from logloom.datasets import opening
from logloom.datasets.dataset import Dataset
from logloom.datasets.loader.orders import Ints, Order
from logloom.datasets.mixing.mixture import mix
from logloom.errors import UsageError
from logloom.io.rows.chain import grouped

_MOST = 1_000_000  # steps at once


def rows_seen(
    roots: Sequence[str],
    steps: str,
    *,
    seed: int = 0,
    mix_seed: int = 0,
    shuffle: bool = True,
    repeat: bool = True,
    window: str | None = None,
    **options: Any,
) -> list[dict[str, Any]]:
    """The rows at some steps of a Loader, over all its shards.

    Args:
        roots: one dataset, or several as "URI=weight".
        steps: "0:100", half-open.
        seed, shuffle: of the Loader.
        mix_seed, repeat: of the mixture.
        window: "-4:1", the offsets of windows.
        options: of `logloom.datasets.open`.

    Returns:
        step, source (of a mixture), log_id, timestamp where there is one, split, and row, its number in its
        log, of each.

    Raises:
        UsageError: steps, windows or weights make no sense; a dataset has no rows.
    """
    start, stop = _bounds(steps, "--steps")
    if not 0 <= start <= stop < 2**63 or stop - start > _MOST:
        raise UsageError(f"--steps {steps}: from 0 on, ascending, {_MOST:,} at most")
    weights = [_weighed(root) for root in roots] if len(roots) > 1 else [(roots[0], "1")]
    names = [name for name, _ in weights]
    if twice := [name for number, name in enumerate(names) if name in names[:number]]:
        raise UsageError(f"{twice[0]} is named twice: give it once, with the sum of both weights")
    parts: dict[str, Dataset[Any]] = {}
    for name, _ in weights:
        rows: Dataset[Any] = opening.open(name, **options)
        parts[name] = rows.window(range(*_bounds(window, "--window"))) if window else rows
    positions = np.arange(start, stop, dtype=np.int64)
    if len(parts) == 1:
        (part,) = parts.values()
        if not len(part):
            raise UsageError(f"{part.place}: no rows")
        numbers = Order(len(part), shuffle).rows(positions, seed)
    else:
        sources = {name: (parts[name], weight) for name, weight in weights}
        numbers = mix(sources, seed=mix_seed, repeat=repeat).order(shuffle).rows(positions, seed)
    seen: list[dict[str, Any]] = [{} for _ in positions]
    for place, row in _named(parts, numbers):
        seen[place] = {"step": start + place, **row}
    return seen


def _named(parts: dict[str, Dataset[Any]], numbers: Ints) -> Iterator[tuple[int, dict[str, Any]]]:
    bounds = np.cumsum([0, *map(len, parts.values())], dtype=np.int64)
    for source, where, own in grouped(bounds, numbers):
        name = list(parts)[source]
        index = parts[name].take(own).index
        keys = [key for key in ("log_id", "timestamp", "split", "row") if key in index]
        label = {"source": name} if len(parts) > 1 else {}
        columns = [index[key].tolist() for key in keys]
        for place, *values in zip(where.tolist(), *columns, strict=True):
            yield place, {**label, **dict(zip(keys, values, strict=True))}


def _bounds(text: str, option: str) -> tuple[int, int]:
    start, _, stop = text.partition(":")
    try:
        return int(start), int(stop)
    except ValueError as error:
        raise UsageError(f"{option} {text}: write two whole numbers, such as 0:100") from error


def _weighed(root: str) -> tuple[str, str]:
    name, _, weight = root.rpartition("=")
    if not name:
        raise UsageError(f"{root}: of several datasets each has a weight, such as {root}=0.5")
    return name, weight
