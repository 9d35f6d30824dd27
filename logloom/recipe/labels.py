"""Labels of a recipe: the tables of its label columns, and labels of each log.

Elsewhere: reading a table (logloom.io.labels.label_tables), the keys under `columns.<name>` (columns), the
join (logloom.transforms.rows.label_columns).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logloom.errors import LogReadError, UsageError
from logloom.io.catalog.labels import LogLabels, digest_of_labels, labels_file
from logloom.io.catalog.tombstones import digest_of_log
from logloom.io.logs import match
from logloom.io.logs.interface import Redactions
from logloom.io.logs.listings import MAGIC, as_glob, literal
from logloom.io.logs.match import FoundLog
from logloom.io.logs.redaction import lie_in
from logloom.io.storage.filesystems import absolute_uri, with_access
from logloom.io.storage.store import Store
from logloom.recipe.columns import LabelColumn
from logloom.recipe.mistakes import Mistake
from logloom.recipe.model import Recipe
from logloom.schema import ColumnType
from logloom.text import counted, some_of
from logloom.uris import is_local, shown

if TYPE_CHECKING:
    from logloom.io.labels.label_tables import LabelTable

_SHOWN = 20  # names of logs that a note lists


class KeptLabels(NamedTuple):
    """Labels of a log in a column as in the previous version: their digest and the names of their files."""

    digest: str
    files: tuple[str, ...]


class RecipeLabels:
    """Contents of the tables of a recipe's label columns, in memory.

    Attributes:
        types: of a row of each of these columns.
        missing: why a column's table can't be found, for those that use `known` instead.
    """

    def __init__(
        self,
        recipe: Recipe,
        base: str | None = None,
        storage_options: Mapping[str, Any] | None = None,
        redactions: Redactions | None = None,
        known: Mapping[str, ColumnType] | None = None,
    ):
        """Read the tables.

        Args:
            base: URI of the folder that relative URIs are resolved against.
            redactions: see `OpenOptions`; labels of erased time are left out.
            known: types types of the columns whose tables may be missing; such a table counts as empty.

        Raises:
            RecipeError: a table is missing, damaged, or doesn't fit its column; lists all of them.
        """
        self._redactions, self._kept = redactions or {}, dict[str, dict[str, KeptLabels]]()
        self.missing: dict[str, str] = {}
        self._uris = {name: shown(column.table) for name, column in recipe.label_columns.items()}
        self._tables: dict[str, LabelTable] = {}
        columns, known = recipe.label_columns, known or {}
        self._folders = {name: _folder_of(one.table, base) for name, one in columns.items()}
        self._files: dict[str, frozenset[str]] = {}
        tables = [column.table for column in columns.values()]
        results = match.find_all(tables, base, storage_options) if tables else []
        mistakes = []
        for (name, column), result in zip(columns.items(), results, strict=True):
            if isinstance(result, match.Missing) and name in known:
                self.missing[name] = result
                continue
            try:
                if isinstance(result, str):
                    raise UsageError(result)
                found = list(result)
                uris = sorted({uri for one in found for uri in one.uris})
                self._files[name] = frozenset(self._name(name, uri) for uri in uris)
                self._tables[name] = _read(column, uris, found, storage_options)
            except (UsageError, LogReadError) as error:
                key = next((key for key in ("field", "on") if f" {key}: " in f" {error}"), "table")
                mistakes.append(Mistake(("columns", name, key), str(error)))
        if mistakes:
            raise recipe.places.error(mistakes)
        self.types: dict[str, ColumnType] = {
            name: known[name] if name in self.missing else self._tables[name].ctype for name in columns
        }

    def of(self, log_id: str) -> dict[str, LogLabels]:
        """Return a log's labels in the tables by column, without columns that have none."""
        found, kept = {}, self._kept.get(log_id, {})
        erased = self._redactions.get(digest_of_log(log_id), ()) if self._redactions else ()
        for name, table in self._tables.items():
            labels = None if name in kept else table.of(log_id)
            if labels is not None and erased:
                labels = labels.without(lie_in(labels.times, erased))
            if labels:
                found[name] = labels
        return found

    def keep(self, log_id: str, name: str, labels: KeptLabels) -> None:
        """Keep the labels of the previous version for a log and column, whatever the table contains."""
        self._kept.setdefault(log_id, {})[name] = labels

    def is_labelled(self, name: str, log_id: str) -> bool:
        """Return whether a column's table has labels of a log."""
        return name in self._tables and log_id in self._tables[name].counts

    def times_of(self, name: str, log_id: str) -> dict[str, NDArray[np.int64]]:
        """Return the times of a log's labels by file of a column's table, including erased time."""
        found = self._tables[name].times_of(log_id) if name in self._tables else {}
        return {self._name(name, uri): times for uri, times in found.items()}

    def is_redacted(self, log_id: str) -> bool:
        """Return whether some time of a log was erased."""
        return bool(self._redactions) and digest_of_log(log_id) in self._redactions

    def lacking(self, name: str, files: Collection[str]) -> list[str]:
        """Return those of these files, named as in `files_of`, that a column's table once included."""
        return sorted(set(files) - self._files.get(name, frozenset()))

    def files_of(self, log_id: str) -> dict[str, tuple[str, ...]]:
        """Return the files with labels of a log by column, named relative to the folder in the recipe."""
        found = {
            name: tuple(self._name(name, uri) for uri in table.times_of(log_id))
            for name, table in self._tables.items()
            if log_id in table.counts
        }
        return found | {name: one.files for name, one in self._kept.get(log_id, {}).items()}

    def _name(self, column: str, uri: str) -> str:
        return uri.removeprefix(self._folders[column])

    def places(self, name: str, log_id: str, time: int) -> list[tuple[str, int]]:
        """Return the file and row of each label of a log at a time, in a column's table."""
        return self._tables[name].places(log_id, time)

    def digests_of(self, log_id: str) -> dict[str, str]:
        """Return the digests that name a log's labels in a root, by column."""
        found = {name: digest_of_labels(labels.to_bytes()) for name, labels in self.of(log_id).items()}
        return found | {name: kept.digest for name, kept in self._kept.get(log_id, {}).items()}

    def write(self, store: Store, log_ids: Iterable[str]) -> None:
        """Write the labels of logs into a root, where builds read them; kept labels are there already."""
        for log_id in log_ids if self._tables else ():
            for labels in self.of(log_id).values():
                data = labels.to_bytes()
                store.renew(labels_file(digest_of_labels(data)), data)

    def notes(self, log_ids: Sequence[str], staying: Collection[str] = ()) -> Iterator[tuple[str, str]]:
        """List labels without a log and logs without labels, as column and text.

        Args:
            log_ids: of all logs of the recipe.
            staying: logs of the latest version that this build skips, keeping their rows.
        """
        there, stay = {*log_ids, *staying}, set(staying).difference(log_ids)
        for name, table in self._tables.items():
            lost = {log_id: count for log_id, count in table.counts.items() if log_id not in there}
            if lost:
                labels = counted(sum(lost.values()), "label")
                logs = counted(len(lost), "unknown log", "unknown logs")
                names = some_of(sorted(lost), _SHOWN)
                yield name, f"{name}: {labels} of {self._uris[name]} belong to {logs} ({names})"
            if held := [log_id for log_id in table.counts if log_id in stay]:
                labels = counted(sum(table.counts[log_id] for log_id in held), "label")
                logs = counted(
                    len(held),
                    "log that isn't built now and keeps its rows",
                    "logs that aren't built now and keep their rows",
                )
                names = some_of(sorted(held), _SHOWN)
                yield name, f"{name}: {labels} of {self._uris[name]} belong to {logs} ({names})"
            bare = [
                log_id
                for log_id in log_ids
                if not (log_id in table.counts or name in self._kept.get(log_id, ()))
            ]
            if bare:
                logs = counted(len(bare), "log has", "logs have")
                yield name, f"{name}: {logs} no label in {self._uris[name]} ({some_of(sorted(bare), _SHOWN)})"


def _folder_of(table: str, base: str | None) -> str:
    """Return the folder of the files of a URI or glob, with its slash."""
    uri = shown(absolute_uri(table, base))
    glob = as_glob(uri, absolute_uri(base) if base else "", is_local=is_local(uri))
    special = MAGIC.search(glob)
    return literal(glob[: glob.rfind("/", 0, special.start() if special else len(glob)) + 1])


def _read(
    column: LabelColumn,
    uris: Sequence[str],
    found: Sequence[FoundLog],
    storage_options: Mapping[str, Any] | None,
) -> LabelTable:
    from logloom.io.labels.label_tables import LabelChoice, LabelTable  # Arrow takes a while to load

    choice = LabelChoice(*column.on, column.field, column.expect == "one", column.strings)
    access = with_access(storage_options, [uri for one in found for uri in one.given])
    return LabelTable(uris, choice, access)
