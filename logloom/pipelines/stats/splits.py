"""Logs and rows by split, counted before a build and after it.

Elsewhere: assigning logs to splits (logloom.recipe.logs).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from logloom.io.catalog.manifest import Manifest
from logloom.pipelines.plan.build_plan import BuildPlan
from logloom.pipelines.plan.next_version import Before
from logloom.recipe.yaml import flow
from logloom.text import counted
from logloom.transforms.rows.notices import BuildWarning

Counts = dict[str, dict[str, int]]

_MANY = 1000  # logs; with as many, shares leave no split empty, and a line that names logs says LOG_ID


def planned_splits(plan: BuildPlan) -> Counts:
    """By split, `logs` and `rows_at_most`: rows of logs that stay, and ticks of those that will be read.

    Of those that workers open first, ticks are guessed. Where single rows are split, any row of a log that
    will be read may fall into any split, so each split has all of its ticks.
    """
    recipe, of_left = plan.job.recipe, plan.ticks_of_left
    read: Iterable[tuple[str, int, int]] = itertools.chain(
        ((log.task.split, 1, log.num_ticks) for log in plan.logs),
        ((task.split, 1, of_left) for task in plan.left),
    )
    if splits_rows(recipe):
        names = recipe["order"]["split"]
        read = ((name, number, rows) for _, number, rows in read for name in names)
    return _count(recipe, itertools.chain(plan.kept.splits, read), "rows_at_most")


def built_splits(manifest: Manifest) -> Counts:
    """By split, its `logs` and `rows`."""
    return _count(manifest.recipe, Before(manifest).kept().splits, "rows")


def splits_rows(recipe: Mapping[str, Any]) -> bool:
    """Whether a recipe, as a manifest has it, splits single rows."""
    split = recipe.get("split") or {}
    return isinstance(split.get("by"), Mapping) or split.get("cell") is not None


def _count(recipe: Mapping[str, Any], logs: Iterable[tuple[str, int, int]], unit: str) -> Counts:
    """Splits in the recipe's order, those that get nothing too; "all" for a recipe without."""
    listed = isinstance(keys := recipe.get("logs"), Mapping) and keys.get("split")
    named = (recipe.get("order") or {}).get("split") or ([] if listed else ["all"])
    counts: Counts = {name: {"logs": 0, unit: 0} for name in named}
    for split, number, rows in logs:
        if rows or not splits_rows(recipe):  # a log without rows is in none
            found = counts.setdefault(split, {"logs": 0, unit: 0})
            found["logs"] += number
            found[unit] += rows
    return counts


def in_words(counts: Counts, *, is_guessed: bool = False) -> str:
    """One line for people: "train 900 of 2 logs, val 40 of 1 log"; of a plan "train at most 900 rows of …".

    Args:
        is_guessed: see `BuildPlan.is_guessed`.
    """
    (unit,) = {unit for found in counts.values() for unit in found} - {"logs"}
    bound = ("at most about " if is_guessed else "at most ") if unit == "rows_at_most" else ""
    shown = (
        f"{name} {bound}{counted(found[unit], 'row') if bound else f'{found[unit]:,}'} "
        f"of {counted(found['logs'], 'log')}"
        for name, found in counts.items()
    )
    return ", ".join(shown)


def planned_warnings(plan: BuildPlan) -> list[BuildWarning]:
    """`built_warnings` for a plan, without what is known only after a build."""
    counts, recipe = planned_splits(plan), plan.job.recipe
    if splits_rows(recipe):
        return [] if plan.logs or plan.left else _warnings(empty_row_splits(counts))
    guessed = {task.split for task in plan.left}
    return _warnings(empty_splits(counts, guessed, recipe_parts(recipe), _names(plan, counts)))


def _names(plan: BuildPlan, counts: Counts) -> list[str]:
    """Return log_ids for the line that names logs."""
    return list(plan.log_ids)[: -1 - len(counts) : -1] if plan.num_logs < _MANY else []


def built_warnings(plan: BuildPlan, counts: Counts) -> list[BuildWarning]:
    """A warning for each split of the version that a plan made that gets nothing."""
    recipe = plan.job.recipe
    if splits_rows(recipe):
        return _warnings(empty_row_splits(counts))
    return _warnings(empty_splits(counts, (), recipe_parts(recipe), _names(plan, counts)))


def recipe_parts(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Return the share, or the list of logs, of each split of a recipe, as a manifest has it."""
    given = recipe.get("split") or {}
    return {name: given.get(name, 1) for name in (recipe.get("order") or {}).get("split") or ()}


def _warnings(texts: Iterable[str]) -> list[BuildWarning]:
    few = re.compile(" gets none of (?!1 log:)")  # one log can't be in two splits
    return [BuildWarning(text, is_doubtful=bool(few.search(text)), kind="split") for text in texts]


def _with_lists(counts: Counts, parts: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return a `split` in which the largest takes the logs that no other one lists."""
    given = iter(names)
    listed = {name: part for name, part in parts.items() if isinstance(part, list)}
    rest = max((name for name in counts if name not in listed), key=lambda name: counts[name]["logs"])
    return {name: 1 if name == rest else listed.get(name) or [next(given, "LOG_ID")] for name in counts}


def empty_row_splits(counts: Mapping[str, Mapping[str, int]]) -> list[str]:
    """A warning for each split that gets no row, where single rows are split."""
    return [
        f"split {name!r} gets no row: shares are those of many cells, or values, for a hash decides where "
        "each falls; make cells smaller, or change the shares"
        for name, found in counts.items()
        if not any(n for unit, n in found.items() if unit != "logs")
    ]


def empty_splits(
    counts: Counts,
    guessed: Collection[str] = (),
    parts: Mapping[str, Any] = MappingProxyType({}),
    names: Sequence[str] = (),
) -> list[str]:
    """A warning for each split that gets nothing, where another gets something.

    Args:
        guessed: splits whose rows are unknown yet.
        parts: see `recipe_parts`; a split that takes all logs that no list names may get none.
        names: log_ids for the line that names logs.
    """
    total = sum(found["logs"] for found in counts.values())
    warnings = []
    for name, found in counts.items():
        if total and not found["logs"]:
            part = parts.get(name)
            if isinstance(part, list):
                warnings.append(f"split {name!r}: no log has a name that its list matches; correct {part}")
            elif part not in (0, 1):
                warnings.append(
                    f"split {name!r} gets none of {counted(total, 'log')}: shares are those of many logs, "
                    "for a hash of its log_id (of `split.by`) decides where a log falls; name logs, as in "
                    f"`split: {flow(_with_lists(counts, parts, names))}`, or add logs"
                )
        elif total and name not in guessed and not any(n for unit, n in found.items() if unit != "logs"):
            warnings.append(f"split {name!r} gets no row of its {counted(found['logs'], 'log')}")
    return warnings
