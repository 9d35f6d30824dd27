"""Export frames for labelling tools: images named by keys, and a table of keys.

    images/drive-01@1700000000000000000.jpg
    keys.parquet                            file, log_id, timestamp

Elsewhere: importing labels (import_labels), names (logloom.io.labels.frame_names).
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from logloom.errors import UsageError
from logloom.io.catalog.manifest import entries_of, open_root
from logloom.io.formats.registry import by_preference
from logloom.io.labels.frame_names import frame_name
from logloom.io.logs.messages.images import encoded
from logloom.io.storage.filesystems import explained
from logloom.io.storage.store import Store
from logloom.pipelines.verify.verify import reading_of
from logloom.values import dataclass

IMAGES, KEYS = "images", "keys.parquet"
_MAGIC = {b"\xff\xd8\xff": "jpg", b"\x89PNG\r\n\x1a\n": "png"}


@dataclass(frozen=True)
class Exported:
    """Result of an export.

    Attributes:
        without: rows without an image.
    """

    folder: str
    frames: int
    without: int


def export_frames(
    root: str,
    version: int | str,
    column: str,
    folder: str,
    *,
    output: str | None = None,
    logs: Collection[str] = (),
    every: int = 1,
    storage_options: Mapping[str, Any] | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Exported:
    """Write the images of a column of a version into a new folder, and the table of their keys last.

    Args:
        folder: on a disk; new or empty.
        output: None for the default of `logloom.datasets.open`.
        logs: log_ids; empty for all.
        every: export one of this many rows of each log.

    Raises:
        UsageError: no such version, output, column or log, the column has no images, or the folder isn't
            empty.
    """
    store, manifest = open_root(Store.at(root, storage_options), version)
    output = output or by_preference(manifest.outputs)[0]
    if output not in manifest.outputs:
        raise UsageError(f"no output {output!r} in version {manifest.version}; {', '.join(manifest.outputs)}")
    if unknown := sorted(set(logs) - set(manifest.logs.column("log_id").to_pylist())):
        raise UsageError(f"{store.uri}: version {manifest.version} has no log {unknown[0]!r}")
    target, reading = _new_folder(folder), reading_of(store, manifest)
    keys: list[tuple[str, str, int]] = []
    without, seen, last = 0, 0, ""
    for record, entry in entries_of(store, manifest.logs):
        if entry.output != output or (logs and record.log_id not in logs):
            continue
        seen = seen if record.log_id == last else 0
        last = record.log_id
        reader = reading.open(entry)
        (name,) = reader.schema.select([column])
        for index in range(-seen % every, entry.rows, every):
            row = reader.row(index, [name])
            stamp = int(row["timestamp"])
            data, suffix = _image(row[name], f"{record.log_id} at {stamp} ns: {column}")
            if not data:
                without += 1
                continue
            file = f"{frame_name(record.log_id, stamp)}.{suffix}"
            with explained(str(target)):
                (target / IMAGES / file).write_bytes(data)
            keys.append((file, record.log_id, stamp))
        seen += entry.rows
        on_progress(len(keys), len(keys))
    _write_keys(target, keys)
    return Exported(str(target), len(keys), without)


def _new_folder(folder: str) -> pathlib.Path:
    target = pathlib.Path(folder)
    if target.is_file() or (target.is_dir() and any(target.iterdir())):
        raise UsageError(f"{folder}: not an empty or new folder; exports need their own folder")
    with explained(folder):
        (target / IMAGES).mkdir(parents=True, exist_ok=True)
    return target


def _image(value: Any, place: str) -> tuple[bytes, str]:
    """Return an image's file and its suffix; no bytes if there is no image.

    Raises:
        UsageError: not an image.
    """
    if isinstance(value, bytes):
        suffix = next((suffix for magic, suffix in _MAGIC.items() if value.startswith(magic)), "")
        if value and not suffix:
            raise UsageError(f"{place}: not a JPEG or PNG, the formats of labelling tools")
        return value, suffix
    pixels = np.asarray(value)
    if pixels.dtype.names or pixels.ndim != 3:
        raise UsageError(f"{place}: not an image: {pixels.dtype} of shape {pixels.shape}")
    if not pixels.size:
        return b"", ""
    try:
        return encoded(pixels, "png"), "png"
    except ValueError as error:
        raise UsageError(f"{place}: {error}") from error


def _write_keys(target: pathlib.Path, keys: list[tuple[str, str, int]]) -> None:
    import pyarrow.parquet as pq

    files, log_ids, stamps = zip(*sorted(keys), strict=True) if keys else ((), (), ())
    columns = {
        "file": pa.array(files, pa.string()),
        "log_id": pa.array(log_ids, pa.string()),
        "timestamp": pa.array(stamps, pa.int64()),
    }
    with explained(str(target)):
        pq.write_table(pa.table(columns), str(target / KEYS))
