"""Lineage of values in columns of labels: the labels' time, and their rows in the table.

Here: `LabelExplainer`, which reads the version's own copy of the labels, and the table.
Elsewhere: showing it (why), labels of a version (logloom.io.catalog.labels).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from logloom.errors import LogloomError
from logloom.io.catalog.labels import digest_of_labels, read_labels
from logloom.io.catalog.pages import LogRecord
from logloom.io.catalog.tombstones import Purged
from logloom.io.storage.store import Store
from logloom.recipe import LabelColumn, Recipe
from logloom.recipe.labels import RecipeLabels
from logloom.transforms.rows.plan.row_plan import Sampling
from logloom.transforms.rows.resample import choose
from logloom.values import dataclass


@dataclass(frozen=True)
class LabelLineage:
    """The labels of a row.

    Attributes:
        time: of them, in ns; None without any.
        rows: the file and the row of each, rows from 0; None if unknown.
        reason: why there are no labels, or no rows.
    """

    time: int | None = None
    rows: tuple[tuple[str, int], ...] | None = None
    reason: str = ""


class LabelExplainer:
    """Finds the labels of rows of one version; each table is read once."""

    def __init__(self, store: Store, recipe: Recipe):
        self._store, self._recipe = store, recipe
        self._tables: dict[str, RecipeLabels | str] = {}

    def why(
        self, record: LogRecord, columns: Mapping[str, LabelColumn], tick: int
    ) -> dict[str, LabelLineage]:
        """Return the lineage of some columns at a tick; a missing or changed table is a reason, not an error.

        Raises:
            DatasetError: the version's own labels are missing or damaged.
        """
        stored, found = read_labels(self._store, record.catalogue), dict[str, LabelLineage]()
        for name, column in columns.items():
            labels = stored.get(name)
            if labels is None:
                found[name] = LabelLineage(reason="the log has no labels")
                continue
            sampling = Sampling("nearest", column.tolerance)
            choice = choose(sampling, labels.stamps, np.array([tick], np.int64))
            if not choice.available[0]:
                found[name] = LabelLineage(reason=f"no label within {column.tolerance} ns of the tick")
                continue
            time = int(labels.stamps[choice.lo[0]])
            table, log_id = self._table(name, column), record.log_id
            if isinstance(table, str):
                found[name] = LabelLineage(time, reason=table)
            elif table.digests_of(log_id).get(name) != digest_of_labels(labels.to_bytes()):
                found[name] = LabelLineage(time, reason="the table has changed since the build")
            else:
                found[name] = LabelLineage(time, tuple(table.places(name, log_id, time)))
        return found

    def _table(self, name: str, column: LabelColumn) -> RecipeLabels | str:
        if name not in self._tables:
            store, alone = self._store, self._recipe.model_copy(update={"columns": {name: column}})
            try:
                erased = Purged(store).redactions
                self._tables[name] = RecipeLabels(alone, None, store.options, erased)
            except (LogloomError, OSError) as error:
                self._tables[name] = f"the table can't be read: {error}"
        return self._tables[name]
