"""Vanished labels: logs that had them in the latest version, and lost them since.

A log lost the labels of a column if the table has none of it any more; or if one of their files is missing,
some of their times have no label now, and none of these has one in a new file, as after a move. Labels that
change or disappear in existing files are a delivery. A column that isn't of labels any more is a change of
the recipe.

Here: finding them, and treating them by `vanished`.
Elsewhere: tables of labels (logloom.recipe.labels), logs that vanished (logloom.pipelines.plan.plan).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from logloom.errors import DatasetError, InputError, UsageError
from logloom.io.catalog.labels import read_labels
from logloom.io.catalog.log_tables import catalogued, with_labels
from logloom.io.storage.store import Store
from logloom.pipelines.plan.next_version import Before
from logloom.recipe import Recipe
from logloom.recipe.labels import KeptLabels, RecipeLabels
from logloom.schema import ColumnType
from logloom.text import counted, some_of
from logloom.uris import shown

_SHOWN = 20  # logs, and files, listed in a message
_CONTENT = ("on", "field", "expect", "strings")  # keys that select values of the table


class _Lost(NamedTuple):
    """The labels that a log lost in a column, and the names of missing files."""

    log_id: str
    labels: KeptLabels
    missing: Sequence[str]


def label_types_before(recipe: Recipe, before: Before) -> dict[str, ColumnType]:
    """Return types of the label columns that take the same values of their tables as in the latest
    version.
    """
    schema, columns = before.schema, before.recipe.get("columns") or {}
    if schema is None or not recipe.label_columns:
        return {}
    now = recipe.identity_json()["columns"]
    return {
        name: schema.columns[name]
        for name in recipe.label_columns
        if name in schema.columns and "table" in (old := columns.get(name) or {})
        if all(old.get(key) == now[name][key] for key in _CONTENT)
    }


def settle_vanished_labels(
    recipe: Recipe,
    labels: RecipeLabels,
    before: Before,
    store: Store,
    log_ids: pa.Array,
    purged_parts: Collection[str],
    types_before: Mapping[str, ColumnType],
) -> tuple[dict[str, tuple[str, ...]], dict[str, tuple[str, ...]], list[str]]:
    """Fail because labels vanished, keep those of the latest version, or drop them, as `vanished` defines.

    Args:
        labels: of the current tables; kept ones are added.
        log_ids: of the recipe's logs.
        purged_parts: `LogRecord.part` of erased records.
        types_before: see `label_types_before`.

    Returns:
        By column the logs built without their labels, and those that keep them; notes.

    Raises:
        InputError: `vanished: fail`, the default; names the logs.
        UsageError: labels can't be kept.
    """
    found: dict[str, list[_Lost]] = {name: [] for name in labels.missing}
    for log_id, catalogue in _labelled_before(before, log_ids, purged_parts):
        said = catalogued(catalogue)
        for name in sorted(said.labels.keys() & labels.types.keys()):
            kept = KeptLabels(said.labels[name], tuple(said.label_files.get(name, ())))
            missing = labels.lacking(name, kept.files)
            if _is_lost(labels, store, log_id, catalogue, name, missing):
                found.setdefault(name, []).append(_Lost(log_id, kept, missing))
    words = [_in_words(recipe, labels, before, name, lost) for name, lost in sorted(found.items())]
    if words and recipe.vanished == "fail":
        are_files = {
            name in labels.missing or any(one.missing for one in lost) for name, lost in found.items()
        }
        what = "files" if are_files == {True} else "rows" if are_files == {False} else "files and rows"
        raise InputError(
            "\n".join(words)
            + (
                f"; restore the {what}, or set `vanished: keep` to keep these labels, or `vanished: drop` to "
                "build without them"
            )
        )
    losing = {name: tuple(one.log_id for one in lost) for name, lost in sorted(found.items())}
    if recipe.vanished == "keep":
        waiting = [_waiting(labels, store, name, lost) for name, lost in sorted(found.items())]
        _keep(labels, found, types_before)
        pairs = zip(words, waiting, strict=True)
        return {}, losing, [f"{line}; these labels are kept{more}" for line, more in pairs]
    return losing, {}, [f"{line}; built without them" for line in words]


def _waiting(labels: RecipeLabels, store: Store, name: str, lost: Sequence[_Lost]) -> str:
    """Report the logs that keep labels although the table has new ones of them; "" without any."""
    new = [one.log_id for one in lost if _has_new(labels, store, name, one)]
    if not new:
        return ""
    return f"; new labels of {some_of(new, _SHOWN)} are ignored until the missing files are restored"


def _has_new(labels: RecipeLabels, store: Store, name: str, one: _Lost) -> bool:
    """Return whether a table has labels of a log that aren't among those that it lost."""
    now = labels.of(one.log_id).get(name)
    if now is None:
        return False
    try:
        stored = read_labels(store, with_labels("", {name: one.labels.digest}, {}))[name]
    except DatasetError:
        return False
    same = stored.without(~np.isin(stored.stamps, now.stamps))
    return bool(same.to_bytes() != now.to_bytes())


def _labelled_before(
    before: Before, log_ids: pa.Array, purged_parts: Collection[str]
) -> Iterator[tuple[str, str]]:
    """Return log_id and `LogRecord.catalogue` of the found logs that had labels, without purged ones."""
    if before.parent is None:
        return
    rows = np.sort(before.rows_of(log_ids))
    rows = rows[rows >= 0]
    columns = (before.column(name).take(rows).to_pylist() for name in ("log_id", "catalogue", "part"))
    for log_id, catalogue, part in zip(*columns, strict=True):
        if catalogue and not (part and part in purged_parts):
            yield log_id, catalogue


def _is_lost(
    labels: RecipeLabels, store: Store, log_id: str, catalogue: str, name: str, missing: Sequence[str]
) -> bool:
    if not labels.is_labelled(name, log_id):
        return True
    if not missing or labels.digests_of(log_id).get(name) == catalogued(catalogue).labels[name]:
        return False
    try:
        stored = read_labels(store, catalogue)[name]
    except DatasetError:  # erased with some time of the log, or lost: then they are unknown
        return not labels.is_redacted(log_id)
    now = labels.times_of(name, log_id)
    known = set(catalogued(catalogue).label_files.get(name, ()))
    moved = [times for file, times in now.items() if file not in known]
    if any(np.isin(times, stored.stamps).any() for times in moved):
        return False
    return not np.isin(stored.stamps, np.concatenate([*now.values()])).all()


def _in_words(recipe: Recipe, labels: RecipeLabels, before: Before, name: str, lost: Sequence[_Lost]) -> str:
    assert before.parent is not None
    table = shown(recipe.label_columns[name].table)
    files = sorted({file for one in lost for file in one.missing})
    if name in labels.missing:
        why = labels.missing[name]
    elif files:
        why = f"{table}: not found any more: {some_of(files, _SHOWN)}"
    else:
        why = f"{table} has none of {'it' if len(lost) == 1 else 'them'} any more"
    names = some_of((one.log_id for one in lost), _SHOWN)
    logs = f"{counted(len(lost), 'log')} lost labels that version {before.parent.version} has ({names}): "
    return f"{name}: {logs if lost else ''}{why}"


def _keep(
    labels: RecipeLabels, found: Mapping[str, Sequence[_Lost]], types_before: Mapping[str, ColumnType]
) -> None:
    """Keep the lost labels of logs.

    Raises:
        UsageError: their column takes other values than before, or some time of a log was erased.
    """
    for name, lost in found.items():
        was, now = types_before.get(name), labels.types[name]
        if was is None or replace(was, unit=now.unit, description=now.description) != now:
            names = some_of((one.log_id for one in lost), _SHOWN)
            raise UsageError(
                f"{name}: labels vanished ({names}) whose values differ from those of this recipe, so they "
                "can't be kept; restore the files, undo the change, or set `vanished: drop`"
            )
        for one in lost:
            if labels.is_redacted(one.log_id):
                raise UsageError(
                    f"{name}: labels of {one.log_id} vanished, and some time of this log was purged, so they "
                    "can't be kept unchanged; restore the files, or set `vanished: drop`"
                )
            labels.keep(one.log_id, name, one.labels)
