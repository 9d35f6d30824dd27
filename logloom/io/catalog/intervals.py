"""Saved searches: intervals of a version's logs, in files beside its manifest.

    versions/intervals/00000007/hard_braking.parquet   a row for each interval; the search, as metadata

Here: `Intervals`, their files, and which versions have them.
Elsewhere: searching (logloom.datasets.search.find), the rows in them (logloom.datasets.search.log_matches).

Intervals are half-open, [start, stop), int64 ns; those of a log ascend and don't touch. They belong to the
logs of one version, and to any other version with equal content, such as one after a rollback.
"""

from __future__ import annotations

import functools
import io
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from logloom.errors import DatasetError, UsageError
from logloom.io.catalog.manifest import Manifest, manifest_at
from logloom.io.catalog.version_files import version_numbers
from logloom.io.storage.faults import MISSING
from logloom.io.storage.metadata import STRICT, Count, Text, canonical, checked, parsed
from logloom.io.storage.store import Store
from logloom.query.grammar import INTERVALS as NAME
from logloom.text import near_to
from logloom.values import dataclass

if TYPE_CHECKING:
    import pyarrow as pa

INTERVALS = "versions/intervals"
Ints = NDArray[np.int64]
_FILE = re.compile(rf"({NAME.pattern})\.parquet")
_NUMBER = re.compile(r"[0-9]{8}")
_KEY = b"logloom.intervals"
_MAX_ROWS, _MAX_BYTES = 50_000_000, 2 << 30


@dataclass(frozen=True)
class Search:
    """The search that found intervals.

    Attributes:
        where: a filter; see `logloom.query.where`.
        before, after: ns, by which intervals begin before and end after the rows for which it holds.
    """

    __pydantic_config__ = STRICT

    where: Text
    before: Count = 0
    after: Count = 0


@dataclass(frozen=True)
class _Metadata:
    __pydantic_config__ = STRICT

    search: Search
    digest: Text


class Intervals:
    """Intervals of logs, by log_id and start.

    Attributes:
        search: that found them.
        log_ids: (n,) of each.
        starts, stops: (n,) ns.
    """

    def __init__(self, search: Search, log_ids: Sequence[str], starts: Ints, stops: Ints):
        """
        Raises:
            ValueError: they are in another order, overlap, or hold no time.
        """
        self.search, self.log_ids = search, tuple(log_ids)
        self.starts, self.stops = np.asarray(starts, np.int64), np.asarray(stops, np.int64)
        self._spans: dict[str, tuple[int, int]] = {}
        first = 0
        for number, log_id in enumerate(self.log_ids, 1):
            if number == len(self.log_ids) or self.log_ids[number] != log_id:
                if log_id in self._spans:
                    raise ValueError(f"intervals of log {log_id!r} don't follow each other")
                self._spans[log_id] = first, number
                first = number
        apart = [a != b for a, b in zip(self.log_ids[1:], self.log_ids[:-1], strict=True)]
        if (self.stops <= self.starts).any() or not (
            np.asarray(apart, np.bool_) | (self.starts[1:] > self.stops[:-1])
        ).all():
            raise ValueError("intervals hold no time, overlap, or don't ascend")

    def __len__(self) -> int:
        return len(self.log_ids)

    def of(self, log_id: str) -> tuple[Ints, Ints]:
        """(k,) starts and stops of the intervals of a log."""
        first, stop = self._spans.get(log_id, (0, 0))
        return self.starts[first:stop], self.stops[first:stop]

    def mask(self, log_id: str, stamps: Ints) -> NDArray[np.bool_]:
        """Return (n,) which times of a log are in one of its intervals."""
        starts, stops = self.of(log_id)
        if not len(starts):
            return np.zeros(len(stamps), np.bool_)
        number = starts.searchsorted(stamps, side="right") - 1
        return np.asarray((number >= 0) & (stamps < stops[number]))

    def mentions(self, log_ids: Collection[str]) -> bool:
        """Return whether it has intervals of one of these logs, or the search names one."""
        return not self._spans.keys().isdisjoint(log_ids) or self._names(log_ids)

    def _names(self, log_ids: Collection[str]) -> bool:
        texts = {text for log_id in log_ids for text in (f"'{log_id}'", f'"{log_id}"')}
        return any(text in self.search.where for text in texts)

    def without(self, log_ids: Collection[str]) -> Intervals:
        """Those of other logs; the filter is forgotten where it names one of these."""
        stays = np.array([log_id not in log_ids for log_id in self.log_ids], np.bool_)
        where = "" if self._names(log_ids) else self.search.where
        search = Search(where, self.search.before, self.search.after)
        kept = [log_id for log_id, stay in zip(self.log_ids, stays, strict=True) if stay]
        return Intervals(search, kept, self.starts[stays], self.stops[stays])

    def to_bytes(self) -> bytes:
        """A Parquet file."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        schema = _schema()
        table = pa.table([pa.array(self.log_ids, pa.string()), self.starts, self.stops], schema=schema)
        metadata = {"search": asdict(self.search), "digest": self._digest()}
        buffer = io.BytesIO()
        with pq.ParquetWriter(
            buffer, schema, compression="zstd", write_page_checksum=True, store_schema=False
        ) as file:
            file.write_table(table)
            file.add_key_value_metadata({_KEY: canonical(metadata)})
        return buffer.getvalue()

    def _digest(self) -> str:
        texts = canonical([asdict(self.search), self.log_ids])
        numbers = np.stack([self.starts, self.stops]).astype("<i8").tobytes()
        return blake3(texts).update(numbers).hexdigest()

    @classmethod
    def from_bytes(cls, data: bytes, place: str) -> Intervals:
        """
        Raises:
            DatasetError: the file is damaged, or holds something else; names `place`.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        hint = "search again with `logloom find … --save … --replace`, or remove it"
        try:
            with pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True) as file:
                metadata = file.metadata
                sizes = [metadata.row_group(n).total_byte_size for n in range(file.num_row_groups)]
                if file.schema_arrow.remove_metadata() != _schema() or metadata.metadata is None:
                    raise ValueError("its columns are others")
                if metadata.num_rows > _MAX_ROWS or sum(sizes) > _MAX_BYTES:
                    raise ValueError("it is too large")
                stored = checked(_Metadata, parsed(metadata.metadata.get(_KEY, b""), place), place, hint)
                table = file.read(use_threads=False).combine_chunks()
            if any(column.null_count for column in table.columns):
                raise ValueError("a value is missing")
            names, starts, stops = table.columns
            found = cls(stored.search, names.to_pylist(), starts.to_numpy(), stops.to_numpy())
            if found._digest() != stored.digest:
                raise ValueError("its values aren't those that were saved")
        except (pa.ArrowException, OSError, ValueError, TypeError) as error:
            raise DatasetError(f"{place}: not intervals, or damaged ({error}); {hint}") from error
        return found


@functools.cache
def _schema() -> pa.Schema:
    import pyarrow as pa

    return pa.schema([("log_id", pa.string()), ("start", pa.int64()), ("stop", pa.int64())])


def intervals_folder(number: int) -> str:
    """Return the folder of a version's intervals."""
    return f"{INTERVALS}/{number:08d}"


def intervals_file(number: int, name: str) -> str:
    """
    Raises:
        UsageError: the name can't be one of a file.
    """
    if not NAME.fullmatch(name):
        raise UsageError(f"{name!r} can't name intervals: up to 100 of a-z, 0-9 and _, not a digit first")
    return f"{intervals_folder(number)}/{name}.parquet"


def intervals_of(store: Store, number: int) -> list[str]:
    """List the names of the intervals saved with a version."""
    found = [_FILE.fullmatch(name) for name in store.names(intervals_folder(number))]
    return [match[1] for match in found if match]


def numbers_with(store: Store) -> Iterator[tuple[str, int | None]]:
    """List folders with intervals and the version number of each; None for other names."""
    for name in store.names(INTERVALS):
        yield f"{INTERVALS}/{name}", int(name) if _NUMBER.fullmatch(name) else None


def write_intervals(store: Store, number: int, name: str, found: Intervals, *, replace: bool = False) -> str:
    """Save intervals with a version; return the file's name.

    Raises:
        UsageError: the name is invalid, or used for other intervals, which these don't replace.
    """
    file, data = intervals_file(number, name), found.to_bytes()
    if replace:
        store.replace(file, data, read_only=True)
    # Another pyarrow writes the same intervals in other bytes.
    elif not store.create(file, data) and read_intervals_file(store, file).to_bytes() != data:
        raise name_taken(store, file)
    return file


def name_taken(store: Store, file: str) -> UsageError:
    return UsageError(
        f"{store.uri_of(file)}: other intervals are saved under this name; --replace overwrites them"
    )


def read_intervals(store: Store, number: int, name: str) -> Intervals:
    """Read intervals of a version, or of one with equal content.

    Raises:
        UsageError: none are saved under this name; lists existing names.
        DatasetError: the file is damaged.
    """
    at = number_with(store, number, name)
    if at is None:
        raise _not_there(store, number, name)
    return read_intervals_file(store, intervals_file(at, name))


def read_intervals_file(store: Store, file: str) -> Intervals:
    """
    Raises:
        DatasetError: it is damaged, or gone.
    """
    try:
        return Intervals.from_bytes(store.read(file), store.uri_of(file))
    except MISSING:
        raise DatasetError(f"{store.uri_of(file)}: gone since it was listed; try again") from None


def number_with(store: Store, number: int, name: str) -> int | None:
    """Return the version with a version's intervals of a name: itself, or the newest with equal content."""
    if store.exists(intervals_file(number, name)):
        return number
    wanted: Any = None
    searched = {other for _, other in numbers_with(store) if other is not None}
    for other in sorted(searched.intersection(version_numbers(store)) - {number}, reverse=True):
        if not store.exists(intervals_file(other, name)):
            continue
        wanted = wanted or _settings_of(manifest_at(store, number))
        if _settings_of(manifest_at(store, other)) == wanted:
            return other
    return None


def _settings_of(manifest: Manifest) -> tuple[Any, ...]:
    """Return everything that a version's rows, and their gaps, depend on."""
    pages = [page.digest for page in manifest.logs.pages]
    return manifest.plan, manifest.schema, manifest.recipe.get("clock"), pages


def _not_there(store: Store, number: int, name: str) -> UsageError:
    own = intervals_of(store, number)
    elsewhere = sorted(
        other for folder, other in numbers_with(store) if other and f"{name}.parquet" in store.names(folder)
    )
    hint = near_to(name, own)
    if elsewhere:
        hint = f"; version {elsewhere[-1]} has; another may have other logs, so search it, too"
    return UsageError(
        f"{store.uri}: version {number} has no intervals {name!r}{hint} "
        f"(`logloom find {store.uri}@{number} … --save {name}`)"
    )


def problems_of(store: Store, number: int) -> Iterator[str]:
    """List problems of the intervals saved with a version."""
    for name in intervals_of(store, number):
        try:
            read_intervals_file(store, intervals_file(number, name))
        except DatasetError as error:
            yield str(error)
