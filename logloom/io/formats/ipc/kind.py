"""Folders of Arrow IPC files as foreign datasets: the kind `arrow`.

Here: `KIND`, which recognises such folders, also those that Hugging Face's `save_to_disk` wrote, and opens
their rows.
Elsewhere: the rows of the files (files), the layout of saved datasets (saved_datasets).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from logloom.io.formats.interface import FolderKind
from logloom.io.formats.ipc.files import ArrowFiles
from logloom.io.formats.ipc.saved_datasets import DATASET, SPLITS, SUFFIXES
from logloom.io.rows.log_ranges import Stretches
from logloom.io.rows.sources import RowSource
from logloom.io.storage.braces import files_named
from logloom.io.storage.store import Store


class ArrowKind(FolderKind):
    """Arrow IPC files as rows; a dataset with splits has the column `split`."""

    name = "ipc"
    kind = "arrow"
    is_generic = True

    def recognises(self, store: Store) -> bool:
        """Whether a folder was saved by `save_to_disk` or contains Arrow files, or a URI names these."""
        if names := store.names():
            has_files = any(name.lower().endswith(SUFFIXES) for name in names)
            return has_files or SPLITS in names or {DATASET, "dataset_info.json"} <= {*names}
        return files_named(store.uri)[0].lower().endswith(SUFFIXES)

    def rows(
        self, store: Store, columns: Sequence[str] | None = None, known: Stretches | None = None
    ) -> RowSource:
        """Open the rows of all files, which are read once to find missing values."""
        return self.typed_rows(store, columns, by_name=False)

    def typed_rows(self, store: Store, columns: Sequence[str] | None = None, **how: Any) -> RowSource:
        """See `rows`; `how`: as of `SurveyedSource`."""
        from logloom.io.rows.inference.source import SurveyedSource

        return SurveyedSource(ArrowFiles(store), columns, **how)


KIND = ArrowKind()
"""The kind of folders, for functions that take a format as an object."""
