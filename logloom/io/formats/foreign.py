"""Foreign datasets, not built by logloom, as rows with a schema.

See docs/convert.md.

Here: `open_foreign`; the kinds of folders that can be opened for training and conversion: `kinds` and
`kind_of`.
Elsewhere: opening a folder of one format (logloom.io.formats.interface.Format); files that don't declare
types (logloom.io.rows.inference.files, logloom.io.rows.inference.types, logloom.io.rows.inference.source).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from logloom import parts
from logloom.errors import UsageError
from logloom.io.catalog.manifest import check_not_of_root, of_other_kind
from logloom.io.formats.interface import FolderKind
from logloom.io.formats.registry import formats
from logloom.io.rows.sources import RowSource
from logloom.io.storage.missing_paths import missing_words
from logloom.io.storage.store import Store


def open_foreign(
    uri: str,
    kind: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    *,
    columns: Sequence[str] | None = None,
    num_workers: int = 1,
    on_error: str = "fail",
) -> RowSource:
    """Open a dataset; if its files don't declare all types, read it once to infer them.

    Args:
        uri: of a folder, of a single .tar, .parquet or .arrow file, or of many in braces
            (train-{000..099}.tar).
        kind: one of `kinds`; None detects it by the files.
        storage_options: fsspec options by protocol: {"gs": {"token": "anon"}}.
        columns: names or globs of columns to read, so that others can't cause errors; all by default.
        num_workers: processes that infer types.
        on_error: "skip" leaves out files that are found damaged while types are inferred, each as a skipped
            log.

    Returns:
        The dataset's rows, with their types.

    Raises:
        UsageError: there is no dataset, or none of a known kind.
        DatasetError: it is damaged.
    """
    store = Store.at(uri, storage_options)
    found = kinds()
    if kind is not None and kind not in found:
        raise UsageError(f"--from {kind!r}: there are {', '.join(found)}{_broken_note()}")
    if kind is None:
        check_not_of_root(store)
    form = found[kind] if kind is not None else kind_of(store)
    if form is None:
        unknown = (
            f"neither a version of logloom nor {', '.join(found)}; if it is one of these, name it by --from"
            f"{_broken_note()}"
        )
        raise UsageError(f"{store.uri}: {missing_words(store) or of_other_kind(store) or unknown}")
    return form.typed_rows(store, columns, num_workers=num_workers, on_error=on_error)


def _broken_note() -> str:
    return parts.broken_note("outputs", "folders")


def kinds() -> dict[str, FolderKind]:
    """All kinds of folders that can be opened, by name, in the order in which they are tried."""
    found: list[FolderKind] = [*formats(), *(kind for _, kind in parts.usable("folders"))]
    return {form.kind or form.name: form for form in sorted(found, key=lambda form: form.is_generic)}


def kind_of(store: Store) -> FolderKind | None:
    """Detect the kind of a folder, or of the files that a URI names; None if it is of no known kind."""
    return next((form for form in kinds().values() if form.recognises(store)), None)
