"""The logs that a listing found, as columns: a plan holds those of an archive, of which few are new.

Here: `LogFiles`, the files of one log; `LogList`, all of them; and digests by which later listings know them.
Elsewhere: finding and naming them (match), what is remembered of them (known_logs).
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

if TYPE_CHECKING:
    import pyarrow as pa

PRINT = np.dtype([("high", ">u8"), ("low", ">u8")])
_TEXTS = ("uris", "stamps", "given")
_OPTIONAL = ("split", "catalogue")
_BATCH = 4096  # logs that are Python objects at a time
_ANY = "surrogatepass"  # names of files may hold what no UTF-8 has


class LogFiles(NamedTuple):
    """The files of one log.

    Attributes:
        uris: absolute, without credentials, in name order; joined in the order of their first log times. Of a
            ROS 2 bag that isn't whole, the metadata.yaml that says so is the last.
        stamps: of each of them what its listing says of its content, see `logloom.io.logs.listings`; "" where
            it doesn't tell.
        given: URIs of those files that were given with credentials, as they were.
        split: that a catalogue says; "" where none does.
        catalogue: what it and tables of labels say, see `logloom.io.catalog.log_tables`; "" likewise.
    """

    log_id: str
    uris: tuple[str, ...]
    stamps: tuple[str, ...] = ()
    given: tuple[str, ...] = ()
    split: str = ""
    catalogue: str = ""

    @property
    def size(self) -> int | None:
        """Bytes of all files; None where a listing doesn't tell."""
        sizes = [size_in(stamp) for stamp in self.stamps]
        known = [size for size in sizes if size is not None]
        return sum(known) if known and len(known) == len(self.uris) else None

    @property
    def recordings(self) -> tuple[str, ...]:
        """The files that hold messages."""
        return tuple(uri for uri in self.uris if file_name_of(uri) != METADATA)


def in_name_order(uris: Iterable[str]) -> tuple[str, ...]:
    """The files of a log as a listing has them."""
    return tuple(sorted(uris, key=lambda uri: (file_name_of(uri) == METADATA, uri)))


def print_of(files: LogFiles) -> str:
    """What tells a log in later listings, in hex: a digest of the URIs and stamps of its files.

    "" where no listing would tell it again.
    """
    return _digest_of_stamps(files).hex()


def _digest_of_stamps(files: LogFiles) -> bytes:
    if len(files.stamps) != len(files.uris) or not all(files.stamps):
        return b""
    text = "\0".join((*files.uris, *files.stamps))
    return blake3(text.encode(errors=_ANY)).digest(length=PRINT.itemsize)


class LogList(Sequence[LogFiles]):
    """Logs in the order of their log_ids, as columns; each becomes an object when it is asked for.

    Attributes:
        ids: (N,) log_ids.
        prints: (N,) PRINT, see `print_of`; zeros where no listing would tell the log again.
    """

    def __init__(self, table: pa.Table, prints: NDArray[np.void]):
        """
        Args:
            table: a column for each field of `LogFiles`.
        """
        self._table = table.combine_chunks()
        self.prints = prints
        self.ids: pa.Array = self.column("log_id")

    @classmethod
    def of(cls, logs: Iterable[LogFiles]) -> LogList:
        """Logs that come in the order of their log_ids, of which few are held as objects at a time."""
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
        """The logs at some positions."""
        for first in range(0, len(rows), _BATCH):
            for row in self._taken(rows[first : first + _BATCH]).to_pylist():
                files = {name: tuple(text.decode(errors=_ANY) for text in row[name]) for name in _TEXTS}
                yield LogFiles(row["log_id"], **files, split=row["split"], catalogue=row["catalogue"])

    def _taken(self, rows: Sequence[int] | NDArray[np.int64]) -> pa.Table:
        if isinstance(rows, range) and rows.step == 1:
            return self._table.slice(rows.start, len(rows))  # `take` imports pyarrow.compute, in 40 ms
        return self._table.take(np.array(rows, np.int64))

    def joined(self, one_of: Callable[[str, list[LogFiles]], LogFiles]) -> LogList:
        """In order; those of one log_id as what `one_of` makes of them, in the order in which they stand."""
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
        """A field of all logs; texts in lists as bytes."""
        return self._table[name].combine_chunks()

    def sizes(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """(M,) bytes of the files of each log at some positions, as `LogFiles.size` has it; -1 for None."""
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
        """How many files the logs at some positions have."""
        import pyarrow as pa
        import pyarrow.compute as pc

        return pc.sum(pc.list_value_length(self.column("uris").take(pa.array(rows)))).as_py() or 0

    def rows_of(self, log_ids: Iterable[str] | pa.Array) -> NDArray[np.int64]:
        """Where these logs stand; -1 for one that isn't there."""
        return rows_in(self.ids, log_ids)

    def with_catalogue(self, texts: Sequence[str]) -> LogList:
        """The same logs, of which tables say something else."""
        import pyarrow as pa

        place = self._table.schema.get_field_index("catalogue")
        return LogList(self._table.set_column(place, "catalogue", pa.array(texts, pa.string())), self.prints)

    def take(self, rows: NDArray[np.int64]) -> LogList:
        """Those at some positions."""
        return LogList(self._table.take(rows), self.prints[rows])


def rows_in(known: pa.Array, wanted: Iterable[str] | pa.Array) -> NDArray[np.int64]:
    """Where the wanted values stand among the known ones; -1 for one that doesn't."""
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
