"""Logs of a listing, stored as columns to save memory for large archives.

Here: `LogFiles`, the files of one log; `LogList`, all of them; and digests that identify them in later
listings.
Elsewhere: finding and naming them (match), caching them (log_cache).
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, overload

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from logloom.io.logs.bag_metadata import METADATA
from logloom.io.logs.listings import SIZE, size_in
from logloom.io.storage.filesystems import file_name_of
from logloom.text import counted

if TYPE_CHECKING:
    import pyarrow as pa

PRINT = np.dtype([("high", ">u8"), ("low", ">u8")])
_TEXTS = ("uris", "stamps", "given")
_OPTIONAL = ("split", "catalogue")
SAMPLE = 64  # logs that are opened to check a recipe, if there are more to read
_BATCH = 4096  # logs that are Python objects at a time
_ANY = "surrogatepass"  # names of files may be invalid UTF-8


class LogFiles(NamedTuple):
    """The files of one log.

    Attributes:
        uris: absolute, without credentials, in name order; joined in the order of their first log times. The
            last one of an incomplete ROS 2 bag is the metadata.yaml that shows this.
        stamps: stamp of each, see `logloom.io.logs.listings`; "" if unknown.
        given: original URIs of files that were given with credentials.
        split: from a catalogue; "" if there is none.
        catalogue: values from it and from tables of labels, see `logloom.io.catalog.log_tables`; "" if none.
    """

    log_id: str
    uris: tuple[str, ...]
    stamps: tuple[str, ...] = ()
    given: tuple[str, ...] = ()
    split: str = ""
    catalogue: str = ""

    @property
    def size(self) -> int | None:
        """Bytes of all files; None if a listing doesn't have them."""
        sizes = [size_in(stamp) for stamp in self.stamps]
        known = [size for size in sizes if size is not None]
        return sum(known) if known and len(known) == len(self.uris) else None

    @property
    def recordings(self) -> tuple[str, ...]:
        """The files with messages."""
        return tuple(uri for uri in self.uris if file_name_of(uri) != METADATA)


def in_name_order(uris: Iterable[str]) -> tuple[str, ...]:
    """Return the files of a log in the order of a listing."""
    return tuple(sorted(uris, key=lambda uri: (file_name_of(uri) == METADATA, uri)))


def print_of(files: LogFiles) -> str:
    """Identify a log in later listings, in hex: a digest of the URIs and stamps of its files.

    "" if listings can't identify it.
    """
    return _digest_of_stamps(files).hex()


def _digest_of_stamps(files: LogFiles) -> bytes:
    if len(files.stamps) != len(files.uris) or not all(files.stamps):
        return b""
    text = "\0".join((*files.uris, *files.stamps))
    return blake3(text.encode(errors=_ANY)).digest(length=PRINT.itemsize)


class LogList(Sequence[LogFiles]):
    """Logs in the order of their log_ids, as columns; each becomes an object when accessed.

    Attributes:
        ids: (N,) log_ids.
        prints: (N,) PRINT, see `print_of`; zeros if listings can't identify the log.
    """

    def __init__(self, table: pa.Table, prints: NDArray[np.void]):
        """
        Args:
            table: one column per field of `LogFiles`.
        """
        self._table = table.combine_chunks()
        self.prints = prints
        self.ids: pa.Array = self.column("log_id")

    @classmethod
    def of(cls, logs: Iterable[LogFiles]) -> LogList:
        """Make a list of logs in the order of their log_ids, few of which are objects at a time."""
        import pyarrow as pa

        schema = _schema()
        batches, prints = [], [b""]
        logs = iter(logs)
        while some := list(itertools.islice(logs, _BATCH)):
            ids, uris, stamps, given, *optional = zip(*some, strict=True)
            texts = map(_encoded, (uris, stamps, given))
            arrays = [pa.array(ids, pa.string()), *texts, *(pa.array(one, pa.string()) for one in optional)]
            batches.append(pa.record_batch(arrays, schema))
            prints.append(b"".join(_digest_of_stamps(log).ljust(PRINT.itemsize, b"\0") for log in some))
        return cls(pa.Table.from_batches(batches, schema), np.frombuffer(b"".join(prints), PRINT))

    def __len__(self) -> int:
        return len(self._table)

    @overload
    def __getitem__(self, index: int) -> LogFiles: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[LogFiles]: ...
    def __getitem__(self, index: int | slice) -> LogFiles | Sequence[LogFiles]:
        rows = range(len(self))[index]
        if isinstance(rows, range):
            return list(self.at(rows))
        (log,) = self.at(range(rows, rows + 1))
        return log

    def __iter__(self) -> Iterator[LogFiles]:
        return self.at(range(len(self)))

    def at(self, rows: Sequence[int] | NDArray[np.int64]) -> Iterator[LogFiles]:
        """Return the logs at some positions."""
        for first in range(0, len(rows), _BATCH):
            for row in self._taken(rows[first : first + _BATCH]).to_pylist():
                files = {name: tuple(text.decode(errors=_ANY) for text in row[name]) for name in _TEXTS}
                yield LogFiles(row["log_id"], **files, split=row["split"], catalogue=row["catalogue"])

    def _taken(self, rows: Sequence[int] | NDArray[np.int64]) -> pa.Table:
        if isinstance(rows, range) and rows.step == 1:
            return self._table.slice(rows.start, len(rows))  # `take` imports pyarrow.compute, in 40 ms
        return self._table.take(np.array(rows, np.int64))

    def joined(self, one_of: Callable[[str, list[LogFiles]], LogFiles]) -> LogList:
        """Join lists in order; `one_of` merges logs of one log_id, in their order."""
        if len(self) < 2:
            return self
        import pyarrow.compute as pc  # 40 ms

        if pc.all(pc.less(self.ids[:-1], self.ids[1:])).as_py() is not False:
            return self
        order = pc.sort_indices(self.ids).to_numpy()  # stable
        if len(self.ids.unique()) == len(self):
            return self.take(order)
        groups = itertools.groupby(self.at(order), operator.attrgetter("log_id"))
        return LogList.of(one_of(log_id, list(logs)) for log_id, logs in groups)

    @property
    def given(self) -> list[str]:
        """URIs that were given with credentials, as they were."""
        return [text.decode(errors=_ANY) for text in self.column("given").values.to_pylist()]

    def column(self, name: str) -> pa.Array:
        """Return a field of all logs; texts in lists as bytes."""
        return self._table[name].combine_chunks()

    def sizes(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """(M,) bytes of the files of each log at some positions, see `LogFiles.size`; -1 for None."""
        import pyarrow as pa
        import pyarrow.compute as pc

        chosen = pa.array(rows)
        stamps = self.column("stamps").take(chosen)
        counts = [
            pc.list_value_length(lists).to_numpy() for lists in (self.column("uris").take(chosen), stamps)
        ]
        digits = pc.struct_field(pc.extract_regex(stamps.flatten(), pattern=SIZE), [0])
        each = pc.fill_null(digits.cast(pa.string()).cast(pa.int64()), -1).to_numpy()
        of_log = np.repeat(np.arange(len(rows)), counts[1])
        sizes, known = np.zeros((2, len(rows)), np.int64)
        np.add.at(sizes, of_log, each)
        np.add.at(known, of_log, each >= 0)
        return np.where((known == counts[0]) & (counts[0] > 0), sizes, -1)

    def num_files(self, rows: NDArray[np.int64]) -> int:
        """Return the number of files of each log at some positions."""
        import pyarrow as pa
        import pyarrow.compute as pc

        return pc.sum(pc.list_value_length(self.column("uris").take(pa.array(rows)))).as_py() or 0

    def rows_of(self, log_ids: Iterable[str] | pa.Array) -> NDArray[np.int64]:
        """Return the rows of these logs; -1 for missing ones."""
        return rows_in(self.ids, log_ids)

    def with_catalogue(self, texts: Sequence[str]) -> LogList:
        """Return the same logs with other values from catalogues."""
        import pyarrow as pa

        place = self._table.schema.get_field_index("catalogue")
        return LogList(self._table.set_column(place, "catalogue", pa.array(texts, pa.string())), self.prints)

    def take(self, rows: NDArray[np.int64]) -> LogList:
        """Return the logs at some positions."""
        return LogList(self._table.take(rows), self.prints[rows])


def rows_in(known: pa.Array, wanted: Iterable[str] | pa.Array) -> NDArray[np.int64]:
    """Look up wanted values among known ones; -1 for missing ones."""
    import pyarrow as pa
    import pyarrow.compute as pc

    keys = wanted if isinstance(wanted, pa.Array) else pa.array(list(wanted), pa.string())
    found = pc.index_in(keys, value_set=known)
    rows: NDArray[np.int64] = pc.fill_null(found, -1).to_numpy().astype(np.int64)
    return rows


def _encoded(lists: Sequence[Sequence[str]]) -> pa.Array:
    """(n,) lists of texts, as bytes."""
    import pyarrow as pa

    ends = np.cumsum([0, *map(len, lists)], dtype=np.int32)
    texts = [text.encode(errors=_ANY) for texts in lists for text in texts]
    return pa.ListArray.from_arrays(pa.array(ends.tolist(), pa.int32()), pa.array(texts, pa.binary()))


def _schema() -> pa.Schema:
    import pyarrow as pa

    texts = [(name, pa.list_(pa.binary())) for name in _TEXTS]
    return pa.schema([("log_id", pa.string()), *texts, *((name, pa.string()) for name in _OPTIONAL)])


def spread_evenly(rows: NDArray[np.int64], most: int | None) -> NDArray[np.int64]:
    """Select this many positions, including the first and the last; all if there are no more."""
    if most is None or len(rows) <= most:
        return rows
    return rows[np.arange(most) * (len(rows) - 1) // max(most - 1, 1)]


def list_failures(failed: Iterable[str], total: int) -> str:
    """Explain in one text why logs can't be built."""
    lines = list(failed)
    if len(lines) == 1:
        return lines[0]
    return f"{len(lines)} of {counted(total, 'log')} can't be read:\n" + "\n".join(
        f"  {line}" for line in lines
    )
