"""`open`: from a URI to a dataset of rows.

Here: recognizing what is at a URI, and choosing columns, split and rows.
Elsewhere: reading each kind (logloom.io.formats.interface.FolderKind), the dataset itself
(logloom.datasets.dataset).
"""

from __future__ import annotations

import functools
import os
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from logloom.datasets.dataset import Dataset
from logloom.datasets.search.log_matches import INDEX_NAMES, passing
from logloom.datasets.splits.folders import SplitsSource
from logloom.datasets.splits.labels import labels_of_column
from logloom.datasets.version import open_version
from logloom.datasets.views.column_choice import given_names, names_of, without_keys
from logloom.datasets.views.positions import Rows, array_of
from logloom.errors import DatasetError, UsageError
from logloom.io.catalog.manifest import (
    Manifest,
    check_not_of_root,
    no_version_at,
    of_other_kind,
    open_root,
    split_root,
)
from logloom.io.catalog.version_files import version_numbers
from logloom.io.formats.foreign import kind_of, kinds
from logloom.io.formats.interface import FolderKind
from logloom.io.formats.registry import without_suffix
from logloom.io.rows.chain import UnitsSource
from logloom.io.rows.log_ranges import Ints
from logloom.io.rows.sources import RowSource
from logloom.io.storage.filesystems import absolute_uri, check_named
from logloom.io.storage.known_files import UncheckedWarning, with_check
from logloom.io.storage.metadata import parsed
from logloom.io.storage.missing_paths import missing_words
from logloom.io.storage.store import Store
from logloom.query.where import parse
from logloom.row_splits import COLUMN, has_row_splits
from logloom.schema import Schema
from logloom.text import near_to, some_of
from logloom.values import dataclass

WRITTEN = "_written.json"  # what the connectors for Beam write about a folder
_MOST_SHOWN = 2000  # characters of a warning

# A folder in the view of a version: its rows are told by the manifest, which knows more than the folder.
_IN_VIEW = re.compile(r"(?P<root>.+)/v(?P<version>\d{8})(/(?P<output>[^/]+)(/(?P<split>[^/]+))?)?")


@dataclass(frozen=True)
class PlainFolders:
    """How to open plain folders.

    Attributes:
        form: of their datasets; None recognizes it by the files.
        schema: of their rows, for formats whose files don't define types; None reads the one that the
            connectors for Beam wrote beside the files, if any.
        is_typed: whether to infer types that files don't define from all values, so that rows are blocks.
    """

    form: FolderKind | None = None
    schema: Schema | None = None
    is_typed: bool = False

    def source(
        self, place: str, columns: str | Sequence[str] | None, options: Mapping[str, Any]
    ) -> RowSource | None:
        """Open the dataset at a place; None if no known kind recognizes its files.

        Raises:
            UsageError: it has another schema than this.
        """
        store = Store.at(place, options)
        form = self.form or kind_of(store)
        if form is None:
            return None
        names = [columns] if isinstance(columns, str) else columns
        schema = self.schema or _written_schema(store, form)
        units = None if schema is None else form.declared_units(store, schema)
        if units is not None:
            return UnitsSource(store, form.kind or form.name, units)
        source = form.typed_rows(store, names) if self.is_typed else form.rows(store, names)
        if self.schema is not None and source.schema != self.schema:
            raise UsageError(f"{place}: has other columns than schema=; leave schema= out")
        return source


def _written_schema(store: Store, form: FolderKind) -> Schema | None:
    """The schema that the connectors for Beam wrote beside a dataset's files."""
    name = f"{form.mark_folder}/{WRITTEN}".lstrip("/")
    data = store.read_if_there(name)
    if data is None:
        return None
    place = store.uri_of(name)
    try:
        mark = parsed(data, place)
        if mark.get("whole") is False:
            raise DatasetError(f"{store.uri}: a pipeline is still writing it, or was ended; run it again")
        return Schema.from_json(mark["schema"])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise DatasetError(f"{place}: no description of a dataset ({error!r}); write it again") from error


def open(
    uri: str | os.PathLike[str],
    version: int | str | None = None,
    output: str | None = None,
    *,
    columns: str | Sequence[str] | None = None,
    where: str | None = None,
    split: str | Sequence[str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    check: bool = False,
) -> Dataset:
    """Opens the rows of a dataset: of a version that logloom built, or of a folder that others made.

    Args:
        uri: a root that `logloom build` writes, or a folder in the view of a version; or a table, a zarr or
            L5Kit dataset, a folder of bags (granular) or of such folders, a folder of tar shards (.tar, .tgz,
            .tar.gz, .tar.zst, …), one shard, or many in braces (train-{000..099}.tar); Parquet files, Arrow
            files or folders of Hugging Face's `save_to_disk`; a Lance table; or a plain folder of a format
            of another package; or a folder with one of these for each split. Anything fsspec opens.
        version: of a root: its number, a tag, or "latest" (the default); or write ROOT@VERSION.
        output: of a version: the format to read; by default the one with the quickest rows, the first of
            table, zarr, bags, tar, parquet, lance, any of other packages, l5kit, lerobot.
        columns: names or globs in which `*` crosses dots; None is all but ages and availabilities.
        where: keeps rows that pass: "ego.speed > 3 and available(camera.front)", as in a recipe's `rows`;
            it may also name log_id, timestamp, partition, split and row, look at rows around a row
            ("ego.speed < 1 for 2s") and at intervals that `find` saved ("in(hard_braking)").
        split: one or more of the recipe's, of the folders, or of a column `split` of texts; None for all.
        storage_options: fsspec options by protocol: {"gs": {"token": "anon"}}.
        check: whether to compare what is read with checksums: of a version with the digests in its manifest,
            chunk by chunk in tables and zarr format 3, else each file whole when a process first opens it.
            Of datasets without a manifest their formats' own checksums; a warning names files that have none.

    Returns:
        The rows, ordered by (log_id, timestamp).

    Raises:
        UsageError: there is no dataset, version, tag, output, split or column; names the nearest.
        DatasetError: it is damaged.

    Examples:
        >>> rows = logloom.datasets.open("demo/dataset", columns=["ego.speed", "camera.front"])
        >>> row = rows[0]  # a dict from name to numpy value
        >>> row["log_id"], row["ego.speed"].dtype, row["camera.front"][:2]
        ('drive-00', dtype('float64'), b'\\xff\\xd8')
        >>> past = rows.select("ego.speed").window(range(-10, 1)).shuffle(seed=1)
        >>> past[0]["ego.speed"].shape
        (11,)
        >>> fast = logloom.datasets.open("demo/dataset", where="ego.speed > 9")
        >>> 0 < len(fast) < len(rows)
        True
    """
    options = storage_options or {}
    read = columns_read(columns, where)
    source, rows = open_rows(os.fspath(uri), version, output, split, read, options, check, where)
    for warning in _warnings_of(source, check):
        warnings.warn(warning, stacklevel=2)
    if where is not None:
        rows = passing(source, array_of(rows), where)
    chosen = None if columns is None else without_keys(columns, source.has_stamps)
    return Dataset(source, rows, names_of(chosen, source.schema, None, source.place))


def columns_read(columns: str | Sequence[str] | None, where: str | None) -> Sequence[str] | None:
    """The columns that are read, those of a filter included; None for all."""
    if columns is None:
        return None
    given = without_keys(columns, has_stamps=True)
    return [*given, *(name for name in parse(where).columns if name not in INDEX_NAMES)] if where else given


def _warnings_of(source: RowSource, check: bool) -> Iterator[Warning]:
    """What users should know of a dataset that was opened."""
    if check and source.unknown:
        yield UncheckedWarning(
            f"{source.place}: check=True can't find damage to {source.unknown}: no manifest here has their "
            "digests. Open the root that `logloom build` or `logloom convert` wrote"
        )
    if source.refused:
        listed = "; ".join(f"{name}: {why}" for name, why in source.refused.items())
        yield UserWarning(
            f"{source.place}: left out, since they can't be read: {listed[:_MOST_SHOWN]}. Choose others by "
            "columns=[…]; rows.left_out lists them"
        )


def open_rows(
    uri: str,
    version: int | str | None,
    output: str | None,
    split: str | Sequence[str] | None,
    columns: str | Sequence[str] | None,
    options: Mapping[str, Any],
    check: bool,
    where: str | None,
    plain: PlainFolders | None = None,
) -> tuple[RowSource, Rows]:
    """Open the rows that `open` filters, and their positions.

    Args:
        where: needn't be applied; may leave out logs that it excludes.
        plain: how to open what isn't of a root.
    """
    plain = plain or PlainFolders()
    splits = None if split is None else given_names(split, "split")
    check_named(uri)
    place = absolute_uri(uri).rstrip("/")
    found = _IN_VIEW.fullmatch(place)
    if found and plain.form is None and version_numbers(store := Store.at(found["root"], options)):
        store, manifest = open_root(store, int(found["version"]))
        inside = [without_suffix(found["split"])] if found["split"] else None
        return open_version(store, manifest, output or found["output"], splits or inside, check, where)
    if at := root_at(uri, version, options):
        output = output or getattr(plain.form, "name", None)
        return open_version(*at, output, splits, check, where)
    for name, value in (("version", version), ("output", output)):
        if value is not None:
            _check_there(Store.at(place, options))
            raise UsageError(f"{place}: no root of logloom, so it has no {name}; leave {name}= out")
    options = with_check(options) if check else options
    source = plain.source(place, columns, options)
    if source is None:
        return _open_splits(place, splits, columns, options, plain)
    if has_row_splits(source.schema):
        source.find_splits = functools.partial(labels_of_column, source)
    if splits is None:
        return source, range(len(source))
    if source.row_splits is None:
        raise UsageError(
            f"{place}: one dataset, not a folder for each split, nor has it a column `{COLUMN}` of texts; "
            "leave split= out"
        )
    for name in splits:
        if name not in source.row_splits.names:
            raise UsageError(f"{place}: no split {name!r}{near_to(name, source.row_splits.names)}")
    return source, np.flatnonzero(source.row_splits.are_in(splits)).astype(np.int64)


def root_at(uri: str, version: int | str | None, options: Mapping[str, Any]) -> tuple[Store, Manifest] | None:
    """The root at ROOT[@VERSION], and the version that is meant; None where there is no root.

    Raises:
        UsageError: there is no such version, or the URI names another one than `version`.
    """
    check_named(uri)
    place = absolute_uri(uri).rstrip("/")
    root, at_version = split_root(place)
    places = {place: version, **({} if root == place else {root: at_version if version is None else version})}
    for candidate, given in places.items():
        store = Store.at(candidate, options)
        if store.names("versions"):
            if candidate != place and str(given) != at_version:
                raise UsageError(
                    f"{place}: names version {at_version}, and version={given!r} another one; leave one out"
                )
            return open_root(store, "latest" if given is None else given)
        check_not_of_root(store)
    return None


def _open_splits(
    place: str,
    splits: Sequence[str] | None,
    columns: str | Sequence[str] | None,
    options: Mapping[str, Any],
    plain: PlainFolders,
) -> tuple[RowSource, Rows]:
    """The datasets in the folders of a folder, such as a copy of a version's view, each of which is a split.

    Raises:
        UsageError: a folder contains no dataset; there is no such split, or they have different columns.
    """
    store = Store.at(place, options)
    names = store.names()
    if not names:
        _check_there(store)
    folders = {without_suffix(name): name for name in names if not name.startswith((".", "_"))}
    for split in splits or ():
        if split not in folders:
            raise UsageError(f"{place}: no split {split!r}{near_to(split, folders)}")
    wanted = list(folders if splits is None else splits)
    for split in wanted:
        inside = Store.at(f"{place}/{folders[split]}", options)
        if inside.names("versions"):
            raise UsageError(f"{place}: no dataset, but the folder of the root {inside.uri}; open that")
        check_not_of_root(inside)
    parts = {split: plain.source(f"{place}/{folders[split]}", columns, options) for split in wanted}
    found = {split: part for split, part in parts.items() if part is not None}
    if len(found) < len(parts) or not found:
        if "versions" in names:
            raise no_version_at(store)
        if other := of_other_kind(store):
            raise UsageError(f"{place}: {other}")
        is_file = not names and store.local is not None and store.local.is_file()
        what = f"it contains {some_of(names)}" if names else "a file" if is_file else "an empty folder"
        raise UsageError(
            f"{place}: no dataset that can be opened ({what}); open a root of logloom, which contains "
            f"versions/, or a dataset of {', '.join(kinds())}"
        )
    source = SplitsSource(place, found)
    return source, _by_log(source) if source.has_stamps else range(len(source))


def _check_there(store: Store) -> None:
    """
    Raises:
        UsageError: nothing is at a place; names the nearest file or folder.
    """
    if problem := missing_words(store):
        raise UsageError(f"{store.uri}: {problem}")


def _by_log(source: RowSource) -> Ints:
    """The positions in the order of log_ids."""
    stretches = source.stretches
    order = sorted(range(len(stretches.log_ids)), key=lambda number: stretches.log_ids[number])
    bounds = stretches.bounds.tolist()
    pieces = [np.arange(bounds[number], bounds[number + 1], dtype=np.int64) for number in order]
    return np.concatenate([np.empty(0, np.int64), *pieces])
