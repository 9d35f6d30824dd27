"""Lance tables, read through the package `pylance`: a row for each of theirs, fragment after fragment.

Elsewhere: which columns Arrow's types become (arrow).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from logloom.digests import digest_of
from logloom.errors import DatasetError, UsageError
from logloom.io.arrow import chosen, columns_of, raw_columns
from logloom.io.pieces import Batch, DatasetPiece, RawRows
from logloom.io.storage import Store

_BATCH_ROWS = 1024


class LanceTable(RawRows):
    """See `RawRows`; a piece is a fragment of the newest version."""

    kind = "lance"

    def __init__(self, store: Store):
        """Finds the newest version.

        Raises:
            UsageError: pylance isn't installed.
            DatasetError: there is no table.
        """
        self.place, self._store = store.uri, store
        self._version = int(self._table(None).version)

    def _table(self, version: int | None) -> Any:
        try:
            import lance  # type: ignore[import-not-found,import-untyped,unused-ignore]
        except ImportError as error:
            raise UsageError(f"{self.place}: Lance tables need pylance: pip install pylance") from error
        options = dict(self._store.options.get(self.place.partition("://")[0], {})) or None
        try:
            return lance.dataset(self.place, version=version, storage_options=options)
        except (ValueError, OSError) as error:
            raise DatasetError(f"{self.place}: no Lance table, or a damaged one ({error})") from error

    def names(self) -> Sequence[str]:
        """Of the table."""
        return [column.name for column in columns_of(self._table(self._version).schema)]

    def pieces(self, names: Sequence[str] | None) -> Sequence[DatasetPiece]:
        """The fragments in their order."""
        found = []
        for fragment in self._table(self._version).get_fragments():
            said = fragment.metadata.to_json()
            content = digest_of(said if isinstance(said, dict) else json.loads(said))
            number = fragment.fragment_id
            size = sum(file.file_size_bytes or 0 for file in fragment.metadata.files)
            found.append(DatasetPiece(f"{self.place}: fragment {number}", number, content, size))
        return found

    def batches(self, piece: DatasetPiece, names: Sequence[str] | None, max_bytes: int) -> Iterator[Batch]:
        """See `RawRows.batches`."""
        table = self._table(self._version)
        columns = chosen(columns_of(table.schema), names, piece.place)
        roots = list(dict.fromkeys(column.path[0] for column in columns))
        fragment = table.get_fragment(piece.where)
        if fragment is None:
            raise DatasetError(f"{piece.place}: is gone")
        try:
            for batch in fragment.to_batches(columns=roots, batch_size=_BATCH_ROWS):
                yield raw_columns(batch, columns)
        except (ValueError, OSError) as error:
            raise DatasetError(f"{piece.place}: {error}") from error
