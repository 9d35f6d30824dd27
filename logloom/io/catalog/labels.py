"""Label files: a root's own copy of the labels joined to the rows of a log.

    logs/<digest>.labels     for one column of one log; the log's record names it
                             (logloom.io.catalog.log_tables)

    "LLLABEL1" | length of the header (u32) | header, canonical JSON | times (N,) | lengths (N, r) | values

Here: `LogLabels`, writing and reading them.
Elsewhere: the tables that they come from (logloom.io.labels.label_tables), the rows that they go to
(logloom.transforms.rows.label_columns).
All numbers are little-endian; times and lengths are int64. The digest is that of the file's bytes.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from logloom.blocks import Ragged, Values, empty, take
from logloom.caching import cached_property
from logloom.errors import DatasetError
from logloom.io.catalog.log_tables import catalogued
from logloom.io.storage.lru_cache import LruCache
from logloom.io.storage.metadata import STRICT, Count, Unicode, canonical, checked, parsed
from logloom.io.storage.store import Store
from logloom.schema import ColumnType, Schema
from logloom.values import dataclass

MAGIC = b"LLLABEL1"
KEPT_BYTES = 64 << 20  # of labels read last: partitions of a log follow each other

_COLUMN = "labels"
WAY_OUT = "put it back from a copy of the root; a build that finds other labels of the log writes its own"


@dataclass(frozen=True)
class LogLabels:
    """The labels of one log for one column, in the order of their times, then in that of their tables.

    Attributes:
        ctype: of one label.
        times: (N,) int64 ns since the Unix epoch.
        values: N of `ctype`.
    """

    log_id: str
    ctype: ColumnType
    times: NDArray[np.int64]
    values: Values

    @classmethod
    def none(cls, ctype: ColumnType) -> LogLabels:
        """Return the labels of an unlabelled log."""
        return cls("", ctype, np.empty(0, np.int64), empty(ctype))

    def __len__(self) -> int:
        return len(self.times)

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return self.times.nbytes + self.values.nbytes

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """(S + 1,) where the labels of each stamp begin, and the number of labels."""
        first = np.flatnonzero(np.append(True, self.times[1:] != self.times[:-1])[: len(self)])
        return np.append(first, len(self)).astype(np.int64)

    @cached_property
    def stamps(self) -> NDArray[np.int64]:
        """(S,) the times, each once."""
        return self.times[self.starts[:-1]]

    def without(self, erased: NDArray[np.bool_]) -> LogLabels:
        """Return the labels outside of a mask (N,)."""
        left = np.flatnonzero(~erased)
        return LogLabels(self.log_id, self.ctype, self.times[left], take(self.values, left))

    def to_bytes(self) -> bytes:
        """See this module's header."""
        schema = Schema({_COLUMN: self.ctype}).to_json()
        header = canonical({"log_id": self.log_id, "labels": len(self), "schema": schema})
        shapes, values = np.empty(0, np.int64), self.values
        if isinstance(self.values, Ragged):
            shapes, values = self.values.shapes, self.values.values
        parts = [np.asarray(part) for part in (self.times, shapes, values)]
        return b"".join(
            [
                MAGIC,
                struct.pack("<I", len(header)),
                header,
                *(np.ascontiguousarray(p).tobytes() for p in parts),
            ]
        )

    @classmethod
    def from_bytes(cls, data: bytes, place: str) -> LogLabels:
        """Parse the bytes of a file of labels.

        Args:
            place: names the file in messages.

        Raises:
            DatasetError: these are not the bytes that `to_bytes` gives.
        """
        if data[:8] != MAGIC or len(data) < 12:
            raise DatasetError(f"{place}: no labels of a log; {WAY_OUT}")
        stop = 12 + struct.unpack_from("<I", data, 8)[0]
        header = checked(_Header, parsed(data[12:stop], place, WAY_OUT), place, WAY_OUT)
        try:
            ctype = Schema.from_json(header.schema).columns[_COLUMN]
            return cls(header.log_id, ctype, *_arrays(memoryview(data)[stop:], header.labels, ctype))
        except (ValueError, KeyError) as error:
            raise DatasetError(f"{place}: damaged ({error}); {WAY_OUT}") from error


@dataclass(frozen=True)
class _Header:
    __pydantic_config__ = STRICT

    log_id: Unicode
    labels: Count
    schema: Mapping[str, object]


def _arrays(data: memoryview, count: int, ctype: ColumnType) -> tuple[NDArray[np.int64], Values]:
    """Times and values; raises ValueError where the bytes aren't those of so many labels."""
    ends = 8 * count, 8 * count * (1 + ctype.num_ragged)
    if len(data) < ends[1]:
        raise ValueError(f"{len(data)} bytes for {count} labels")
    times = np.frombuffer(data[: ends[0]], np.int64)
    shapes = np.frombuffer(data[ends[0] : ends[1]], np.int64).reshape(count, ctype.num_ragged)
    flat = np.frombuffer(data[ends[1] :], ctype.dtype)
    if (times[1:] < times[:-1]).any() or (shapes < 0).any():
        raise ValueError("times or lengths that can't be")
    values = flat.reshape(-1, *ctype.tail) if math.prod(ctype.tail) else flat
    if ctype.is_ragged:
        return times, Ragged(values, shapes)
    if len(values) != count:
        raise ValueError(f"{len(values)} values for {count} labels")
    return times, values


def labels_file(digest: str) -> str:
    """The file of a root that has labels of a log."""
    return f"logs/{digest}.labels"


def digest_of_labels(data: bytes) -> str:
    """Return the digest that names a file of these bytes."""
    return blake3(data).hexdigest()


def read_labels(store: Store, catalogue: str) -> dict[str, LogLabels]:
    """The labels of a log by column, by `LogRecord.catalogue`; those read last are kept.

    Raises:
        DatasetError: they are missing or damaged; names the file.
    """
    found = {}
    for name, digest in catalogued(catalogue).labels.items():
        key = (store.uri, digest)
        labels = _kept.get(key)
        if labels is None:
            labels = _read(store, digest)
            _kept.put(key, labels)
        found[name] = labels
    return found


_kept: LruCache[LogLabels] = LruCache(KEPT_BYTES, least=1)


def _read(store: Store, digest: str) -> LogLabels:
    name = labels_file(digest)
    place = store.uri_of(name)
    if (data := store.read_if_there(name)) is None:
        raise DatasetError(f"{place}: the labels of a log are missing; {WAY_OUT}")
    if digest_of_labels(data) != digest:
        raise DatasetError(f"{place}: damaged, its bytes don't match its name; {WAY_OUT}")
    return LogLabels.from_bytes(data, place)
