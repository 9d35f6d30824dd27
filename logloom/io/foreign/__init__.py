"""Datasets that logloom didn't build, as rows with a schema; see docs/convert.md.

Here: the kinds there are, and `open_foreign`.
Elsewhere: each kind (a module of its name), what they have in common (base, survey, rows).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

from logloom.errors import UsageError
from logloom.io.braces import braceexpand
from logloom.io.foreign.base import ForeignDataset
from logloom.io.foreign.rows import PieceReader, SurveyedDataset
from logloom.io.storage import Store

# In the order in which a folder is looked at: module, the function that knows such folders, what opens one.
_KINDS = {
    "table": ("own", "is_table", "OwnTable"),
    "l5kit": ("l5kit", "recognises", "L5KitDataset"),
    "zarr": ("zarr", "recognises", "open_zarr"),
    "granular": ("granular", "recognises", "GranularReader"),
    "webdataset": ("webdataset", "recognises", "WebDatasetReader"),
    "lance": ("lance", "recognises", "LanceReader"),
    "parquet": ("parquet", "recognises", "ParquetReader"),
}
KINDS = tuple(_KINDS)
_FILES = {".tar": "webdataset", ".tgz": "webdataset", ".tar.gz": "webdataset", ".tar.zst": "webdataset"}
_FILES |= {".parquet": "parquet", ".pq": "parquet"}


def open_foreign(
    uri: str,
    kind: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    *,
    columns: Sequence[str] | None = None,
    num_workers: int = 1,
    on_error: str = "fail",
) -> ForeignDataset:
    """Opens a dataset; one whose files don't say all types is read once.

    Args:
        uri: of a folder, or of a single .tar or .parquet file, or of many in braces (train-{000..099}.tar).
        kind: one of `KINDS`; None looks at the files.
        columns: names or globs of columns to read, so that others can be what they like; all by default.
        num_workers: processes that read it once.
        on_error: "skip" leaves out damaged files that show when it is read once; `lost` lists them.

    Raises:
        UsageError: there is nothing, or nothing known.
        DatasetError: it is damaged.
    """
    store = Store.at(uri, storage_options)
    if kind is None:
        kind = _kind_of(store)
    elif kind not in _KINDS:
        raise UsageError(f"--from {kind!r}: there are {', '.join(KINDS)}")
    opened: ForeignDataset | PieceReader = _of(kind, 2)(store)
    if isinstance(opened, PieceReader):
        return SurveyedDataset(opened, columns, num_workers=num_workers, on_error=on_error)
    return opened


def _of(kind: str, place: int) -> Callable[..., Any]:
    module = import_module(f"{__name__}.{_KINDS[kind][0]}")
    found: Callable[..., Any] = getattr(module, _KINDS[kind][place])
    return found


def _kind_of(store: Store) -> str:
    if not store.names():
        first = braceexpand(store.uri)[0].lower()
        for suffix, kind in _FILES.items():
            if first.endswith(suffix):
                return kind
        raise UsageError(f"{store.uri}: there is no such dataset")
    for kind in KINDS:
        if _of(kind, 1)(store):
            return kind
    raise UsageError(
        f"{store.uri}: neither a version of logloom nor {', '.join(KINDS)}; if it is one of these, name it "
        "by --from"
    )
