"""Datasets as blocks in Beam: `ReadFrom`, and `ReadAllFrom` for computed places.

Elsewhere: what a place may be and its rows (logloom.datasets.opening), what workers read alone
(`RowSource.shares`), the transforms named after formats (`beam.py` in each format's package), logs as blocks
(logloom.transforms.beam.read_logs).

Places are listed as shares: partitions of versions and datasets, units of folders. Shares are spread over
workers and read in ranges of rows, which Beam splits further where a worker is slow. A place that a process
opened stays open while others of the process's places don't push it out.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, ClassVar

import numpy as np

from logloom import metrics
from logloom.blocks import Block
from logloom.caching import cached_property
from logloom.datasets.opening import PlainFolders, columns_read, open_rows, root_at
from logloom.datasets.search.log_matches import parsed_for, passing, search
from logloom.datasets.views.column_choice import names_of
from logloom.digests import digest_of
from logloom.errors import DatasetError, UsageError
from logloom.extras import beam_needed
from logloom.io.beam.places import datasets_at, format_of
from logloom.io.formats.interface import FolderKind
from logloom.io.rows.log_ranges import Ints
from logloom.io.rows.sources import BLOCK_BYTES, RowSource, Share, values_of
from logloom.io.rows.unit_rows import uris_of
from logloom.io.storage.filesystems import absolute_uri, check_named, with_credentials
from logloom.io.storage.lru_cache import LruCache
from logloom.io.storage.store import Store
from logloom.query.comparison import Mask
from logloom.query.where import parse
from logloom.schema import Schema, base_of
from logloom.text import some_of
from logloom.uris import shown
from logloom.values import dataclass

with beam_needed():
    import apache_beam as beam
    from apache_beam.io.restriction_trackers import OffsetRange, OffsetRestrictionTracker
    from apache_beam.transforms.core import RestrictionProvider

Place = str | os.PathLike[str]

_SPLIT_BYTES = 16 << 20  # the least that is worth a range of its own
_RAGGED_BYTES = 4096  # of a value, where nothing is known of it
_SPARSE = 16  # where fewer rows pass a filter than one of so many, they are read one by one
_FIRST_ROWS = 64  # of these, before anything is known of the size of a row
_PLACES, _UNITS = 8, 64  # that stay open in a process
_OF_PLACE = {"partition", "row", "split"}  # names of filters that a unit alone doesn't know


def _one(source: Any) -> int:
    return 1


@dataclass(frozen=True)
class OpenedPlace:
    """The rows of a place.

    Attributes:
        chosen: ascending positions, if not all rows are read.
        schema: of what is read.
    """

    source: RowSource
    chosen: Ints | None
    schema: Schema


_opened: LruCache[OpenedPlace] = LruCache(_PLACES, _one)
_units: LruCache[RowSource] = LruCache(_UNITS, _one)
_searched: LruCache[Mask] = LruCache(64 << 20, least=1)


@dataclass(frozen=True)
class PlaceReader:
    """What is read of places, and how; small and picklable.

    Attributes:
        format: of plain folders; a name or an object.
        expected: the schema that all places must have; None for any.
        token: identifies the transform in caches of processes; another transform opens places anew.
    """

    format: str | FolderKind | None = None
    columns: str | Sequence[str] | None = None
    max_bytes: int = BLOCK_BYTES
    storage_options: Mapping[str, Any] = field(default_factory=dict)
    where: str | None = None
    splits: str | Sequence[str] | None = None
    output: str | None = None
    schema: Schema | None = None
    expected: Schema | None = None
    token: str = field(default_factory=lambda: f"{os.getpid()}-{time.perf_counter_ns()}")

    def __post_init__(self) -> None:
        if not isinstance(self.max_bytes, int) or self.max_bytes < 1:
            raise UsageError(f"max_bytes={self.max_bytes!r}: must be a number of bytes, one at least")
        format_of(self.format)
        if self.where is not None:
            parse(self.where)

    def opened(self, place: str) -> OpenedPlace:
        """Open a place, or return it from the cache of this process.

        Raises:
            UsageError: there is no such dataset, column, split or output; names the nearest.
            DatasetError: it is damaged.
        """
        found = _opened.get((self.token, place))
        if found is None:
            found = self._open(place)
            _opened.put((self.token, place), found)
        return found

    def _open(self, place: str) -> OpenedPlace:
        source, positions = self._rows_at(place)
        chosen = None if isinstance(positions, range) else np.sort(np.asarray(positions, np.int64))
        if chosen is not None and len(chosen) == len(source):
            chosen = None
        if self.where is not None:
            parsed_for(source, self.where)
        return OpenedPlace(source, chosen, _part_of(source, self.columns))

    def _rows_at(self, place: str) -> tuple[RowSource, Any]:
        plain = PlainFolders(format_of(self.format), self.schema, is_typed=True)
        where = self.where
        read = columns_read(self.columns, where)
        return open_rows(
            place, None, self.output, self.splits, read, self.storage_options, False, where, plain
        )

    def pinned(self, place: str) -> str:
        """Name the version of a root that is the latest now, so that all workers read one."""
        at = root_at(place, None, self.storage_options)
        if at is None:
            return place
        path, query, rest = with_credentials(at[0].uri, at[0].options).partition("?")
        return f"{path}@{at[1].version}{query}{rest}"

    # --- what workers do --------------------------------------------------------------------------------

    def datasets(self, named: tuple[str, str]) -> Iterator[tuple[str, str]]:
        """Find the datasets that a glob means, each with what its partitions begin with."""
        prefix, place = named
        found = datasets_at(place, self.storage_options)
        for number, one in enumerate(found):
            yield (f"{prefix}.{number:06}".lstrip(".") if len(found) > 1 else prefix), one

    def shares(self, named: tuple[str, str]) -> Iterator[PlacedShare]:
        """List what workers read alone."""
        prefix, place = named
        place = self.pinned(place)
        opened = self.opened(place)
        if self.expected is not None:
            _check_columns(place, opened.schema, self.expected)
        is_of_version = opened.source.intervals is not None
        shares = self._with_sizes(place, opened)
        rows, is_filtered = self._rows_of_units(opened, shares)
        first = 0
        for share in shares:
            if prefix and not is_of_version:
                share = replace(share, partition=f"{prefix}.{share.partition}".rstrip("."))
            own = None
            if rows is not None:
                stop = len(share.source) if share.stop is None and share.source is not None else share.stop
                after = first + (stop or 0) - share.start
                low, high = rows.searchsorted([first, after]).tolist()
                own, first = rows[low:high] - first + share.start, after
                if not len(own):
                    continue
            has_rows = own is not None and share.source is not None
            yield PlacedShare(
                place, share, _least_bytes(opened.schema), own if has_rows else None, is_filtered and has_rows
            )

    def _with_sizes(self, place: str, opened: OpenedPlace) -> list[Share]:
        """The shares of a place with their sizes; 0 where all rows have the same size.

        Where nothing has recorded the sizes, all bytes of the place are divided.
        """
        shares = list(opened.source.shares())
        if not any(ctype.is_ragged for ctype in opened.schema.columns.values()):
            return [replace(share, size=0) for share in shares]
        if any(share.size for share in shares) or not shares:
            return shares
        store = Store.at(place, self.storage_options)
        if store.local is not None and not store.local.is_dir():
            total = store.size("") or 0
        else:
            total = sum(store.sizes("").values())
        counts = [None if share.stop is None else share.stop - share.start for share in shares]
        parts = [count or 0 for count in counts]
        if None in counts or not any(parts):
            parts = [1] * len(shares)
        return [
            replace(share, size=total * part // sum(parts)) for share, part in zip(shares, parts, strict=True)
        ]

    def _rows_of_units(self, opened: OpenedPlace, shares: Sequence[Share]) -> tuple[Ints | None, bool]:
        """The positions that units are read at, None for all, and whether these pass the filter.

        A filter that a unit can't evaluate alone is evaluated here.
        """
        if self.where is None or all(share.source is None for share in shares):
            return opened.chosen, False
        found = parsed_for(opened.source, self.where)
        if not found.beyond and not _OF_PLACE & {*found.columns}:
            return opened.chosen, False
        rows = np.arange(len(opened.source)) if opened.chosen is None else opened.chosen
        return passing(opened.source, rows, self.where), True

    def source_of(self, placed: PlacedShare) -> RowSource:
        share = placed.share
        if share.source is None:
            return self.opened(placed.place).source
        key = self.token, placed.place, share.partition, share.log_id
        found = _units.get(key)
        if found is None:
            found = share.source
            _units.put(key, found)
        return found

    def chosen_of(self, placed: PlacedShare, source: RowSource, start: int, stop: int) -> Ints | None:
        """The rows that are read of the rows [start, stop) of a share's source; None for all."""
        rows = placed.rows
        if placed.share.source is None:
            rows = self.opened(placed.place).chosen
        if rows is not None:
            low, high = rows.searchsorted([start, stop]).tolist()
            rows = rows[low:high]
        if self.where is None or placed.is_filtered:
            return rows
        rows = np.arange(start, stop) if rows is None else rows
        if not len(rows):
            return rows
        return self._passing(placed, source, rows)

    def _passing(self, placed: PlacedShare, source: RowSource, rows: Ints) -> Ints:
        assert self.where is not None
        found = parsed_for(source, self.where)
        if not found.beyond:
            return passing(source, rows, self.where)
        # A filter that looks at other rows is evaluated for a whole log, once for all of its partitions.
        first = int(source.stretches.log_starts()[source.stretches.number_of(rows[:1])[0]])
        key = self.token, placed.place, first
        holds = _searched.get(key)
        if holds is None:
            (log,) = search(source, found, rows)
            holds = log.holds
            _searched.put(key, holds)
        return rows[holds[rows - first]]


@dataclass(frozen=True)
class PlacedShare:
    """A share of a place.

    Attributes:
        least_bytes: about how many bytes a row has whose ragged values are short.
        rows: of the share's own source that are read, ascending; None for all.
        is_filtered: whether `rows` are those that pass the filter.
    """

    place: str
    share: Share
    least_bytes: int
    rows: Ints | None = None
    is_filtered: bool = False


def _part_of(source: RowSource, columns: str | Sequence[str] | None) -> Schema:
    """The schema of the columns that are read.

    Raises:
        UsageError: a pattern matches nothing; names the nearest column.
    """
    schema = source.schema
    if columns is None:
        return schema
    names = names_of(columns, schema, None, source.place)
    bases = {base_of(name) for name in names}
    sampled = {base_of(name) for name in names if name in schema.meta}
    kept = {name: ctype for name, ctype in schema.columns.items() if name in bases}
    return Schema(kept, tuple(name for name in schema.sampled if name in sampled))


def _check_columns(place: str, found: Schema, expected: Schema) -> None:
    """
    Raises:
        UsageError: the columns of a place have other names or types than those of the first.
    """
    own, first = (
        {name: (str(c.dtype), c.shape, c.kind) for name, c in schema.all.items()}
        for schema in (found, expected)
    )
    odd = sorted(name for name in own.keys() | first.keys() if own.get(name) != first.get(name))
    if odd:
        raise UsageError(
            f"{place}: has other columns than the first place ({some_of(odd)}); choose common ones by "
            "columns=, declare them by schema=, or read it by a transform of its own"
        )


def _least_bytes(schema: Schema) -> int:
    """About how many bytes a row has whose ragged values are short."""
    types = schema.all.values()
    fixed = sum(int(np.prod(c.tail)) * c.dtype.itemsize for c in types if not c.is_ragged)
    return max(1, fixed + sum(c.is_ragged for c in types) * _RAGGED_BYTES)


_RANGE = beam.DoFn.RestrictionParam()  # of the DoFn itself


@beam.typehints.with_output_types(Block)
class _ReadShare(beam.DoFn, RestrictionProvider):
    """Reads shares; a restriction is a range of rows of a share's source."""

    def __init__(self, reader: PlaceReader):
        self._reader = reader

    def initial_restriction(self, placed: PlacedShare) -> OffsetRange:
        share = placed.share
        stop = len(self._reader.source_of(placed)) if share.stop is None else share.stop
        return OffsetRange(share.start, stop)

    def _row_bytes(self, placed: PlacedShare) -> int:
        """About how many bytes a row has."""
        if not placed.share.size:
            return placed.least_bytes
        whole = self.initial_restriction(placed)
        rows: int = whole.stop - whole.start
        return max(placed.least_bytes, placed.share.size // max(1, rows))

    def create_tracker(self, restriction: OffsetRange) -> OffsetRestrictionTracker:
        return OffsetRestrictionTracker(restriction)

    def split(self, placed: PlacedShare, restriction: OffsetRange) -> Iterator[OffsetRange]:
        if placed.share.is_stream:
            return iter([restriction])
        rows = max(self._reader.max_bytes, _SPLIT_BYTES) // self._row_bytes(placed)
        return iter(restriction.split(max(1, rows)))

    def restriction_size(self, placed: PlacedShare, restriction: OffsetRange) -> int:
        rows: int = restriction.stop - restriction.start
        return rows * self._row_bytes(placed)

    def process(self, placed: PlacedShare, tracker: Any = _RANGE) -> Iterator[Block]:
        restriction = tracker.current_restriction()
        start, stop = restriction.start, restriction.stop
        if start == stop:
            return
        source = self._reader.source_of(placed)
        rows = self._reader.chosen_of(placed, source, start, stop)
        names = tuple(_part_of(source, self._reader.columns).all)
        label = _Labels(placed.share, source)
        if start == placed.share.start:
            metrics.count(units_read=1)
        for positions, block in _blocks(source, names, self._reader.max_bytes, start, stop, rows):
            last = int(positions[-1])
            is_whole = tracker.try_claim(last)
            if not is_whole:  # others read what is from here on
                count = int(positions.searchsorted(tracker.current_restriction().stop))
                positions, block = positions[:count], _rows_of(block, slice(0, count))
            if len(positions):
                metrics.count(rows_read=len(block), bytes_read=block.nbytes)
                yield label.labelled(block, int(positions[0]))
            if not is_whole:
                return
        if rows is not None and not (len(rows) and rows[-1] == stop - 1):
            tracker.try_claim(stop - 1)


class _Labels:
    """The log, partition and number of the rows of a share."""

    def __init__(self, share: Share, source: RowSource):
        self._share, self._source = share, source

    @cached_property
    def _firsts(self) -> list[int]:
        """The number of the first row of each stretch of the source, in its log."""
        counts: dict[str, int] = {}
        firsts = []
        for log_id, start, stop in self._source.stretches.spans():
            firsts.append(counts.get(log_id, 0))
            counts[log_id] = firsts[-1] + stop - start
        return firsts

    def labelled(self, block: Block, position: int) -> Block:
        """Return a block with its log, partition and first row.

        Args:
            position: of the first row in the source.
        """
        share = self._share
        if share.log_id is not None:
            first = share.first_row + position - share.start
            return replace(block, log_id=share.log_id, partition=share.partition, first_row=first)
        stretches = self._source.stretches
        number = int(stretches.number_of(np.array([position]))[0])
        first = self._firsts[number] + position - int(stretches.bounds[number])
        return replace(block, partition=share.partition, first_row=first)


def _blocks(
    source: RowSource, names: Sequence[str], max_bytes: int, start: int, stop: int, rows: Ints | None
) -> Iterator[tuple[Ints, Block]]:
    """Blocks of the rows [start, stop), or of some of them, each with its rows' positions.

    Args:
        rows: the wanted ones, ascending; None for all.
    """
    if rows is not None and not len(rows):
        return
    if rows is not None and len(rows) * _SPARSE < rows[-1] - rows[0]:
        yield from _single_rows(source, names, max_bytes, rows)
        return
    at, end = (start, stop) if rows is None else (int(rows[0]), int(rows[-1]) + 1)
    for block in source.scan(names, max_bytes, at, end):
        after = at + len(block)
        if rows is None:
            yield np.arange(at, after), block
        else:
            low, high = rows.searchsorted([at, after]).tolist()
            if low < high:
                own = rows[low:high]
                yield own, _rows_of(block, own - at)
        at = after
    if at != end:
        raise DatasetError(f"{source.place}: {end - at} rows fewer than before; read it again")


def _single_rows(
    source: RowSource, names: Sequence[str], max_bytes: int, rows: Ints
) -> Iterator[tuple[Ints, Block]]:
    """Blocks of rows that are far from each other, each of one log."""
    at, step, stretches = 0, _FIRST_ROWS, source.stretches
    while at < len(rows):
        some = rows[at : at + step]
        number = int(stretches.number_of(some[:1])[0])
        some = some[: int(some.searchsorted(stretches.bounds[number + 1]))]
        batch = source.take(some, names)
        columns = {name: values_of(batch[name], f"{source.place}: {name}") for name in names}
        stamps = batch["timestamp"] if source.has_stamps else some
        block = Block(stretches.log_ids[number], "", 0, {"timestamp": stamps, **columns})
        yield some, block
        at += len(some)
        step = max(1, min(max_bytes * len(some) // max(1, block.nbytes), 4 * step))


def _rows_of(block: Block, rows: Ints | slice) -> Block:
    return replace(block, columns=block.take(rows))


class _ReadPlaces(beam.PTransform):
    """Reads places, each of which comes with what the partitions of its plain folders begin with."""

    def __init__(self, reader: PlaceReader):
        super().__init__()
        self._reader = reader

    def expand(self, places: Any) -> Any:
        reader = self._reader
        return (
            places
            | "FindDatasets" >> beam.FlatMap(reader.datasets)
            | "SpreadDatasets" >> beam.Reshuffle()
            | "ListShares" >> beam.FlatMap(reader.shares)
            | "SpreadShares" >> beam.Reshuffle()
            | "ReadShare" >> beam.ParDo(_ReadShare(reader))
        )


class ReadAllFrom(beam.PTransform):
    """Reads the datasets whose names are the elements of a PCollection; see `ReadFrom`."""

    def __init__(
        self,
        format: str | FolderKind | None = None,
        columns: str | Sequence[str] | None = None,
        max_bytes: int = BLOCK_BYTES,
        storage_options: Mapping[str, Any] | None = None,
        *,
        where: str | None = None,
        splits: str | Sequence[str] | None = None,
        output: str | None = None,
        schema: Schema | None = None,
    ):
        """Opens nothing; mistakes show when a worker opens the first place.

        Args:
            format, columns, max_bytes, storage_options, where, splits, output, schema: see `ReadFrom`.
        """
        super().__init__()
        options = dict(storage_options or {})
        self._reader = PlaceReader(format, columns, max_bytes, options, where, splits, output, schema)

    def expand(self, places: Any) -> Any:
        return places | "NamePlaces" >> beam.Map(_named) | "Read" >> _ReadPlaces(self._reader)

    def display_data(self) -> dict[str, Any]:
        return _shown(self._reader)


def _named(place: Place) -> tuple[str, str]:
    """A place, and a name for it that is no other's."""
    if not isinstance(place, str | os.PathLike):
        raise UsageError(f"ReadAllFrom: {place!r}: must be a path or a URI; give names of datasets")
    uri = _uri_of(place)
    return digest_of([uri])[:8], uri


def _uri_of(place: Place) -> str:
    check_named(os.fspath(place))
    return absolute_uri(os.fspath(place))


def _shown(reader: PlaceReader, places: Iterable[str] = ()) -> dict[str, Any]:
    form = reader.format
    items = {
        "place": some_of([shown(place) for place in places]) if places else None,
        "format": form if isinstance(form, str) else getattr(form, "name", None),
        "columns": None if reader.columns is None else ", ".join(uris_of(reader.columns)),
        "where": reader.where,
        "output": reader.output,
    }
    return {name: value for name, value in items.items() if value}


class ReadFrom(beam.PTransform):
    """Reads the rows of datasets as blocks (`logloom.blocks.Block`).

    A block contains rows of one partition of one log, and has their `log_id`, `partition` and `first_row`:
    the number of the first one within the partition. Blocks come in any order.

    Attributes:
        schema: of the blocks.
    """

    def __init__(
        self,
        places: Place | Sequence[Place],
        format: str | FolderKind | None = None,
        columns: str | Sequence[str] | None = None,
        max_bytes: int = BLOCK_BYTES,
        storage_options: Mapping[str, Any] | None = None,
        *,
        where: str | None = None,
        splits: str | Sequence[str] | None = None,
        output: str | None = None,
        schema: Schema | None = None,
    ):
        """Opens the first place, so that mistakes show when the pipeline is made.

        Args:
            places: of datasets with the same columns: roots that `logloom build` writes, or versions of them
                (ROOT@3, ROOT@tag); folders in the view of a version; plain folders of any format, or folders
                with one for each split; globs (drives/*.zarr) and braces (train-{000..099}.tar). Anything
                fsspec opens.
            format: of plain folders that aren't recognized by their files; a name or an object.
            columns: names or globs; all, ages and availabilities too, by default.
            max_bytes: about how much a block holds.
            storage_options: fsspec options by protocol: {"gs": {"token": "anon"}}.
            where: keeps rows that pass, as in `logloom.open`.
            splits: one or more of the recipe's, of the folders, or of a column `split`; None for all.
            output: of a version, as in `logloom.open`.
            schema: of plain folders of tar shards or bags, whose files don't define types; by default that of
                the writer, or inferred by reading each file once.

        Raises:
            UsageError: there is no such column, split, output or format; names the nearest.
            DatasetError: nothing is at the first place, or it is damaged.

        Examples:
            >>> import apache_beam as beam
            >>> from logloom.io.beam import ReadFrom
            >>> rows = ReadFrom("demo/dataset", columns=["ego.speed"], where="ego.speed > 9")
            >>> list(rows.schema.columns)
            ['ego.speed']
            >>> with beam.Pipeline() as pipeline:
            ...     _ = pipeline | rows | beam.Map(lambda block: block.columns["ego.speed"].max())
        """
        super().__init__()
        self._places = [_uri_of(place) for place in uris_of(places)]
        if not self._places:
            raise UsageError("ReadFrom: no places; name one at least")
        options = dict(storage_options or {})
        reader = PlaceReader(format, columns, max_bytes, options, where, splits, output, schema)
        first = next(iter(datasets_at(self._places[0], options)))
        self.schema = reader.opened(reader.pinned(first)).schema
        self._reader = replace(reader, expected=self.schema)

    def expand(self, begin: Any) -> Any:
        return begin | "NamePlaces" >> beam.Create(self._named_places()) | "Read" >> _ReadPlaces(self._reader)

    def _named_places(self) -> list[tuple[str, str]]:
        many = len(self._places) > 1
        return [(f"{number:06}" if many else "", uri) for number, uri in enumerate(self._places)]

    def display_data(self) -> dict[str, Any]:
        return _shown(self._reader, self._places)


class ReadDataset(ReadFrom):
    """Reads the rows of datasets of one format as blocks; the base of `ReadFromZarr` and its like."""

    form: ClassVar[FolderKind]

    def __init__(
        self,
        path: Place | Sequence[Place],
        columns: str | Sequence[str] | None = None,
        max_bytes: int = BLOCK_BYTES,
        storage_options: Mapping[str, Any] | None = None,
    ):
        """See `ReadFrom`.

        Args:
            path: of a dataset, or of several.
            columns, max_bytes, storage_options: see `ReadFrom`.
        """
        super().__init__(path, self.form, columns, max_bytes, storage_options)


class ReadUnits(ReadFrom):
    """Reads the rows of units whose files don't define types; the base of `ReadFromTar` and its like."""

    form: ClassVar[FolderKind]

    def __init__(
        self,
        uris: Place | Sequence[Place],
        schema: Schema,
        columns: str | Sequence[str] | None = None,
        max_bytes: int = BLOCK_BYTES,
        storage_options: Mapping[str, Any] | None = None,
    ):
        """See `ReadFrom`.

        Args:
            uris: of units, or of folders of them.
            schema: of their rows.
            columns, max_bytes, storage_options: see `ReadFrom`.
        """
        super().__init__(uris, self.form, columns, max_bytes, storage_options, schema=schema)
