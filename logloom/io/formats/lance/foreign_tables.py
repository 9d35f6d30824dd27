"""Lance tables of any origin as rows: one row per row of the table, fragment after fragment.

Here: `LanceTable`, which pylance opens by its own access to disks and object stores.
Elsewhere: the columns that Arrow's types become (logloom.io.arrow.columns), tables that record the types of
their columns (reader).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from logloom.digests import digest_of
from logloom.errors import DatasetError
from logloom.io.arrow.columns import chosen, columns_of, raw_columns
from logloom.io.formats.lance.pylance import anywhere, damage, lance
from logloom.io.rows.inference.files import Batch, DatasetPiece, RawRows
from logloom.io.storage.store import Store

_BATCH_ROWS = 1024
_READ_BYTES = 32 << 20  # about, of a fragment, that are read at a time


class LanceTable(RawRows):
    """A Lance table as `RawRows`; a piece is a fragment of the newest version."""

    kind = "lance"

    def __init__(self, store: Store):
        """Find the newest version.

        Raises:
            UsageError: pylance isn't installed.
            DatasetError: there is no table.
        """
        self.place = store.uri
        self._options = dict(store.options.get(self.place.partition("://")[0], {}))
        self._version, self._schema = _newest(self.place, self._options)

    def names(self) -> Sequence[str]:
        """Of the table."""
        return [column.name for column in columns_of(self._schema)]

    def pieces(self, names: Sequence[str] | None) -> Sequence[DatasetPiece]:
        """The fragments in their order."""
        return [
            DatasetPiece(f"{self.place}: fragment {number}", (number, rows), content, size)
            for number, rows, content, size in _fragments(self.place, self._options, self._version)
        ]

    def batches(self, piece: DatasetPiece, names: Sequence[str] | None, max_bytes: int) -> Iterator[Batch]:
        columns = chosen(columns_of(self._schema), names, piece.place)
        roots = list(dict.fromkeys(column.path[0] for column in columns))
        number, rows = piece.where
        step = max(_BATCH_ROWS, rows * _READ_BYTES // piece.size if piece.size else 0)
        for start in range(0, rows, step):
            wanted = number, roots, start, min(step, rows - start)
            for batch in _rows(self.place, self._options, self._version, *wanted):
                try:
                    yield raw_columns(batch, columns)
                except ValueError as error:
                    raise DatasetError(f"{piece.place}: {error}") from error


def _table(place: str, options: Mapping[str, Any], version: int | None) -> Any:
    package = lance()
    with damage(place):
        return package.dataset(place, version=version, storage_options=dict(options) or None)


@anywhere
def _newest(place: str, options: Mapping[str, Any]) -> tuple[int, Any]:
    """The number and the schema of the newest version."""
    table = _table(place, options, None)
    return int(table.version), table.schema


@anywhere
def _fragments(place: str, options: Mapping[str, Any], version: int) -> list[tuple[int, int, str, int]]:
    """The number, rows, digest and bytes of each fragment."""
    found = []
    for fragment in _table(place, options, version).get_fragments():
        metadata = fragment.metadata.to_json()
        content = digest_of(metadata if isinstance(metadata, dict) else json.loads(metadata))
        size = sum(file.file_size_bytes or 0 for file in fragment.metadata.files)
        found.append((fragment.fragment_id, fragment.count_rows(), content, size))
    return found


@anywhere
def _rows(
    place: str,
    options: Mapping[str, Any],
    version: int,
    number: int,
    columns: list[str],
    start: int,
    rows: int,
) -> list[Any]:
    """Rows [start, start + rows) of a fragment, as record batches."""
    fragment = _table(place, options, version).get_fragment(number)
    if fragment is None:
        raise DatasetError(f"{place}: fragment {number}: is gone")
    with damage(f"{place}: fragment {number}"):
        return list(fragment.to_batches(columns=columns, batch_size=_BATCH_ROWS, offset=start, limit=rows))
