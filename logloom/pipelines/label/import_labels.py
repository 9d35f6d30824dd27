"""Import labelling tools' files to a table of labels that a recipe joins to rows.

Elsewhere: exporting frames (export_frames), the files of tools (logloom.io.labels), the join
(docs/labels.md).
"""

from __future__ import annotations

import inspect
import pathlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import Any

import pyarrow as pa

from logloom import parts
from logloom.errors import DatasetError, UsageError
from logloom.io.labels.frame_names import Key, SentFrames
from logloom.io.labels.tools.image_labels import LabelImporter, ToolLabel, label_table
from logloom.io.storage.disk import PARTIAL, own_name
from logloom.io.storage.faults import MISSING
from logloom.io.storage.filesystems import contents, explained
from logloom.io.storage.missing_paths import missing_words
from logloom.io.storage.store import Store
from logloom.uris import shown
from logloom.values import dataclass

MAX_BYTES = 1 << 30  # of a tool's file
_NAMED = 5  # images listed in a report


@dataclass(frozen=True)
class ImportedLabels:
    """Result of an import.

    Attributes:
        file: the table.
        images: that the tool lists; labelled: of these, those that have a label.
        unknown: names of the first labelled images without a known key, and their number.
        skipped: unsupported labels, by kind.
    """

    file: str
    labels: int
    images: int
    labelled: int
    unknown: tuple[str, ...]
    num_unknown: int
    skipped: Mapping[str, int] = field(default_factory=dict)


def import_labels(
    files: Sequence[str],
    tool: str,
    to: str,
    *,
    keys: str = "",
    label_set: str = "",
    storage_options: Mapping[str, Any] | None = None,
) -> ImportedLabels:
    """Write a table of labels, on a disk, from a tool's files.

    Args:
        files: of the tool, on disks or in stores.
        tool: of which a part offers an importer: coco.
        to: the Parquet file, which is replaced.
        keys: `keys.parquet` of the export; "" if names of images contain their keys.
        label_set: of Segments.ai's; "" is its first, ground-truth.

    Raises:
        DatasetError: a file is damaged, not of the tool, or lacks the label set; names it and the place.
        UsageError: no such tool or file, no image has a known key, or a key is ambiguous.
    """
    importer = parts.load("importers", tool)
    if not to.endswith(".parquet"):
        raise UsageError(f"{to}: labels become a .parquet file")
    if label_set and "label_set" not in inspect.signature(importer).parameters:
        raise UsageError(f"{tool} has no label sets; leave out --label-set")
    read: LabelImporter = partial(importer, label_set=label_set) if label_set else importer
    sent = SentFrames.load(keys, storage_options) if keys else SentFrames()
    found: list[tuple[Key, ToolLabel]] = []
    images, unknown = set[tuple[str, str | int]](), Counter[str]()
    skipped: Counter[str] = Counter()
    for file in files:
        place = shown(file)
        labelled = read(_bytes_of(file, storage_options), place)
        # Numbers are those of frames of a file, names are names everywhere.
        images |= {(place if isinstance(image, int) else "", image) for image in labelled.images}
        skipped += labelled.skipped
        for label in labelled.labels:
            key = sent.find(label.image, place)
            if key is None:
                unknown[str(label.image)] += 1
            else:
                found.append((key, label))
    if unknown and not found:
        raise UsageError(
            f"{shown(files[0])}: no known key of {next(iter(unknown))!r}, or any other image; pass the "
            "keys.parquet of the export (--keys), or name images like `logloom label export`"
        )
    _write(to, _table_of(found, shown(files[0])))
    return ImportedLabels(
        to,
        len(found),
        len(images),
        len({key for key, _ in found}),
        tuple(sorted(unknown)[:_NAMED]),
        len(unknown),
        dict(sorted((kind, count) for kind, count in skipped.items() if count)),
    )


def _bytes_of(uri: str, storage_options: Mapping[str, Any] | None) -> bytes:
    try:
        data = contents(uri, storage_options, MAX_BYTES + 1)
    except MISSING:
        problem = missing_words(Store.at(uri, storage_options)) or "is a folder; give a file"
        raise UsageError(f"{shown(uri)}: {problem}") from None
    if len(data) > MAX_BYTES:
        raise DatasetError(f"{shown(uri)}: larger than {MAX_BYTES >> 30} GiB; export it in parts")
    return data


def _table_of(found: Sequence[tuple[Key, ToolLabel]], place: str) -> pa.Table:
    """
    Make the table of labels.

    Raises:
        DatasetError: text that isn't UTF-8, or numbers that are not finite or beyond 64 bits.
    """
    try:
        return label_table(found)
    except (ValueError, OverflowError) as error:
        raise DatasetError(f"{place}: labels aren't supported in tables: {error}") from error


def _write(to: str, table: pa.Table) -> None:
    """Write the table atomically."""
    import pyarrow.parquet as pq

    path = pathlib.Path(to)
    partial = path.with_name(f".{own_name()}{PARTIAL}")
    with explained(to):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            pq.write_table(table, str(partial))
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
