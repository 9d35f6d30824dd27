"""The labels of a recipe: the tables that its columns of labels name, and what these say of which log.

Elsewhere: reading a table (logloom.io.labels.tables), what may stand under `columns.<name>` (columns), the
join (logloom.transforms.labels).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from logloom.errors import LogReadError, UsageError
from logloom.io.filesystems import with_access
from logloom.io.labels.stored import LogLabels, digest_of_labels, labels_file
from logloom.io.logs import match
from logloom.io.logs.base import Redactions
from logloom.io.logs.match import FoundLog
from logloom.io.logs.redacted import lie_in
from logloom.io.purged import digest_of_log
from logloom.io.storage import Store
from logloom.recipe.columns import LabelColumn
from logloom.recipe.mistakes import Mistake
from logloom.recipe.model import Recipe
from logloom.schema import ColumnType
from logloom.uris import shown
from logloom.words import counted, some_of

if TYPE_CHECKING:
    from logloom.io.labels.tables import LabelTable

_SHOWN = 20  # names of logs that a note tells


class RecipeLabels:
    """What the tables of a recipe's columns of labels say, in memory.

    Attributes:
        types: of a row of each of these columns.
    """

    def __init__(
        self,
        recipe: Recipe,
        base: str | None = None,
        storage_options: Mapping[str, Any] | None = None,
        redactions: Redactions | None = None,
    ):
        """Reads the tables.

        Args:
            base: URI of the folder that relative URIs start from.
            redactions: see `OpenOptions`; labels of time that was erased are left out.

        Raises:
            RecipeError: a table is missing, damaged, or doesn't fit its column; lists all that are.
        """
        self._redactions = redactions or {}
        self._uris = {name: shown(column.table) for name, column in recipe.label_columns.items()}
        self._tables: dict[str, LabelTable] = {}
        columns = recipe.label_columns
        tables = [column.table for column in columns.values()]
        results = match.find_all(tables, base, storage_options) if tables else []
        mistakes = []
        for (name, column), result in zip(columns.items(), results, strict=True):
            try:
                if isinstance(result, str):
                    raise UsageError(result)
                self._tables[name] = _read(column, list(result), storage_options)
            except (UsageError, LogReadError) as error:
                key = next((key for key in ("field", "on") if f" {key}: " in f" {error}"), "table")
                mistakes.append(Mistake(("columns", name, key), str(error)))
        if mistakes:
            raise recipe.places.error(mistakes)
        self.types: dict[str, ColumnType] = {name: table.ctype for name, table in self._tables.items()}

    def of(self, log_id: str) -> dict[str, LogLabels]:
        """The labels of a log by column; those that it has none for are left out."""
        found = {}
        erased = self._redactions.get(digest_of_log(log_id), ()) if self._redactions else ()
        for name, table in self._tables.items():
            labels = table.of(log_id)
            if labels is not None and erased:
                labels = labels.without(lie_in(labels.times, erased))
            if labels:
                found[name] = labels
        return found

    def places(self, name: str, log_id: str, time: int) -> list[tuple[str, int]]:
        """The file and the row of each label of a log at a time, in a column's table."""
        return self._tables[name].places(log_id, time)

    def digests_of(self, log_id: str) -> dict[str, str]:
        """What names the labels of a log in a root, by column."""
        return {name: digest_of_labels(labels.to_bytes()) for name, labels in self.of(log_id).items()}

    def write(self, store: Store, log_ids: Iterable[str]) -> None:
        """Writes the labels of logs into a root, where builds of them look."""
        for log_id in log_ids if self._tables else ():
            for labels in self.of(log_id).values():
                data = labels.to_bytes()
                store.renew(labels_file(digest_of_labels(data)), data)

    def notes(self, log_ids: Sequence[str]) -> Iterator[str]:
        """Says which labels are of no log, and which logs have no labels.

        Args:
            log_ids: of the logs that there are.
        """
        there = set(log_ids)
        for name, table in self._tables.items():
            lost = {log_id: count for log_id, count in table.counts.items() if log_id not in there}
            if lost:
                labels = counted(sum(lost.values()), "label")
                logs = counted(len(lost), "log that isn't", "logs that aren't")
                names = some_of(sorted(lost), _SHOWN)
                yield f"{name}: {labels} of {self._uris[name]} are of {logs} there ({names})"
            bare = [log_id for log_id in log_ids if log_id not in table.counts]
            if bare:
                logs = counted(len(bare), "log has", "logs have")
                yield f"{name}: {logs} no label in {self._uris[name]} ({some_of(sorted(bare), _SHOWN)})"


def _read(
    column: LabelColumn, found: Sequence[FoundLog], storage_options: Mapping[str, Any] | None
) -> LabelTable:
    from logloom.io.labels.tables import LabelChoice, LabelTable  # Arrow takes a while to load

    choice = LabelChoice(*column.on, column.field, column.expect == "one", column.strings)
    uris = sorted({uri for one in found for uri in one.uris})
    access = with_access(storage_options, [uri for one in found for uri in one.given])
    return LabelTable(uris, choice, access)
