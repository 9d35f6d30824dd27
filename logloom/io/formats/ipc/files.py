"""Arrow IPC files of any origin as rows: streams, and files with a footer.

Files with a footer include Feather (version 2).

Here: `ArrowFiles`, and `ArrowFile`, the record batches of one file.
Elsewhere: which files belong to a dataset, and types of its features (saved_datasets), Arrow's types as
column types (logloom.io.arrow.columns).

Local files are mapped into memory: columns of many rows may share the memory of the map, so a file must not
change while its rows are used, and chosen rows are copies. Other files are read from their start.
All buffers of a column are validated before its values are used, since Arrow doesn't check lengths and
offsets by itself.
"""

from __future__ import annotations

import contextlib
import copy
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from logloom.digests import digest_of
from logloom.errors import DatasetError
from logloom.io.arrow.columns import ArrowColumn, columns_of, raw_columns, without_name
from logloom.io.arrow.files import arrow_file
from logloom.io.formats.ipc.saved_datasets import converted, declared, files_by_split, fixed_bytes
from logloom.io.rows.inference.files import Batch, DatasetPiece, RawRows, absent, rows_between
from logloom.io.rows.inference.types import RawColumn
from logloom.io.rows.log_ranges import Ints
from logloom.io.storage.folders import content_of
from logloom.io.storage.known_files import check_file
from logloom.io.storage.lru_cache import LruCache
from logloom.io.storage.store import Store
from logloom.row_splits import COLUMN as SPLIT
from logloom.schema import STRING

_FOOTED = b"ARROW1"  # first bytes of a file with a footer
_MOST_ROWS = 1 << 20  # of a batch whose buffers contain fewer, such as one of nulls
_PIECE_BYTES = 64 << 20  # about
_KEPT_BYTES = 256 << 20  # of open files in a process, without mapped memory
_FILE_BYTES = 1 << 20  # that an open file counts at least


class ArrowFile:
    """Record batches of one file, by number.

    Attributes:
        nbytes: about how much memory it takes, without mapped memory.
        num_batches: None of a stream that is read from its start: of a file that isn't mapped, or
            a compressed one that takes too much memory.
    """

    def __init__(self, data: Any):
        """Read the schema, and of a mapped stream the places of its batches.

        Args:
            data: a buffer of the whole file, or a readable file.

        Raises:
            ArrowException, OSError: the file is damaged.
        """
        self._sound: set[tuple[int, str]] = set()
        self._data, self._kept = data, list[Any]()
        self.nbytes = _FILE_BYTES
        self.num_batches: int | None = None
        is_buffer = isinstance(data, pa.Buffer)
        head = bytes(memoryview(data)[: len(_FOOTED)]) if is_buffer else data.read(len(_FOOTED))
        self._footed = None
        if head == _FOOTED:
            self._footed = pa.ipc.open_file(data)
            self.schema = self._footed.schema
            self.num_batches = self._footed.num_record_batches
            if is_buffer and self._footed.num_record_batches:
                self._footed.get_batch(0)  # reads dictionaries, which threads must not do at once
        else:
            if not is_buffer:
                data.seek(0)
            self._stream = pa.ipc.open_stream(data)
            self.schema = self._stream.schema
            if is_buffer:
                self._keep_batches()
        self.declared = declared(self.schema)
        self.columns = columns_of(self.declared)

    def _keep_batches(self) -> None:
        """Keep the batches of a mapped stream, which are views unless compressed, if they fit into memory."""
        for batch in self._stream:
            self.nbytes += _bytes_outside(batch, self._data)
            if self.nbytes > _KEPT_BYTES:
                self._kept, self.nbytes = [], _FILE_BYTES
                return
            self._kept.append(batch)
        self.num_batches = len(self._kept)

    def batches(self, first: int, stop: int | None) -> Iterator[tuple[int, Any]]:
        """Batches [first, stop) and their numbers; of a stream from its start, all of them."""
        if stop is None:
            is_buffer = isinstance(self._data, pa.Buffer)
            yield from enumerate(pa.ipc.open_stream(self._data) if is_buffer else self._stream)
        elif self._footed is not None:
            yield from ((number, self._footed.get_batch(number)) for number in range(first, stop))
        else:
            yield from zip(range(first, stop), self._kept[first:stop], strict=True)

    def of_roots(self, number: int, batch: Any, roots: Sequence[str]) -> Any:
        """Some columns of a batch, as `declared`, validated.

        Raises:
            ArrowException, ValueError: they are damaged.
        """
        if len(batch) > max(_MOST_ROWS, 8 * batch.get_total_buffer_size()):
            raise ValueError(f"batch {number} claims {len(batch)} rows")
        chosen = batch.select(list(roots))
        for name in roots:
            if (number, name) not in self._sound:
                chosen.column(name).validate(full=True)
                self._sound.add((number, name))
        return chosen

    def nbytes_of(self, batch: Any) -> int:
        """How many bytes some rows have with their declared shapes, nulls included."""
        fixed = sum(fixed_bytes(self.declared.field(name).type) for name in batch.schema.names)
        return max(int(batch.nbytes), len(batch) * fixed)

    def declared_batch(self, batch: Any) -> tuple[Any, dict[str, str]]:
        """A batch with the shapes that features declare; and why columns can't have theirs, by name."""
        problems: dict[str, str] = {}
        if self.declared.types == self.schema.types:
            return batch, problems
        arrays = {}
        for name, array in zip(batch.schema.names, batch.columns, strict=True):
            try:
                arrays[name] = converted(array, self.declared.field(name).type)
            except ValueError as error:
                arrays[name], problems[name] = array, str(error)
        return pa.RecordBatch.from_pydict(arrays), problems


def _bytes_outside(batch: Any, data: pa.Buffer) -> int:
    """How many bytes of a batch are in other memory than a buffer."""
    start, stop = data.address, data.address + data.size
    buffers = [buffer for column in batch.columns for buffer in column.buffers() if buffer is not None]
    return sum(one.size for one in buffers if not start <= one.address <= stop)


_open_files: LruCache[ArrowFile] = LruCache(_KEPT_BYTES)


class ArrowFiles(RawRows):
    """Arrow files as `RawRows`; a piece is some record batches of a file, about 64 MiB, or a whole stream."""

    kind = "arrow"
    is_direct = True

    def __init__(self, store: Store):
        """Find the files.

        Raises:
            DatasetError: there is none, or one that is listed is missing.
        """
        self.place = store.uri
        self._store, self._files = files_by_split(store)

    def names(self) -> Sequence[str]:
        """Of all files that can be read, and `split` if there are splits."""
        names: dict[str, None] = {}
        for name in self._files:
            with contextlib.suppress(DatasetError), self._opened(name) as file:
                names |= dict.fromkeys(column.name for column in self._columns_in(name, file))
        return list(names | dict.fromkeys(SPLIT for split in self._files.values() if split is not None))

    def pieces(self, names: Sequence[str] | None) -> Sequence[DatasetPiece]:
        """Neighbouring batches of each file."""
        found = []
        for name, split in self._files.items():
            content, size = content_of(self._store, [name])
            if split is not None:
                content = digest_of([content, split])
            try:
                with self._opened(name) as file:
                    count = file.num_batches
            except DatasetError:
                count = None  # reading it raises an error; readers of other files can go on
            if count is None:
                found.append(DatasetPiece(self._store.uri_of(name), (name, 0, None), content, size))
                continue
            step = max(1, count * _PIECE_BYTES // max(1, size))
            for first in range(0, count, step):
                stop = min(first + step, count)
                place = f"{self._store.uri_of(name)}: batches {first} to {stop - 1}"
                own = size * (stop - first) // count
                found.append(DatasetPiece(place, (name, first, stop), content, own))
        return found

    def part(self, piece: DatasetPiece) -> ArrowFiles:
        part = copy.copy(self)
        part._files = {piece.where[0]: self._files[piece.where[0]]}
        return part

    def batches(self, piece: DatasetPiece, names: Sequence[str] | None, max_bytes: int) -> Iterator[Batch]:
        with self._opened(piece.where[0]) as file:
            columns, roots = self._chosen(piece, file, names)
            for _, batch in self._batches_of(piece, file, roots):
                step = min(_MOST_ROWS, max(1, max_bytes * len(batch) // max(1, file.nbytes_of(batch))))
                for start in range(0, len(batch), step):
                    yield self._columns_of(piece, file, batch.slice(start, step), columns, names)

    def pick(
        self, piece: DatasetPiece, names: Sequence[str] | None, rows: Ints, max_bytes: int
    ) -> Iterator[Batch]:
        """See `RawRows.pick`; nothing but these rows is read from a mapped file."""
        with self._opened(piece.where[0]) as file:
            columns, roots = self._chosen(piece, file, names)
            at, taken, size = 0, list[Any](), 0
            for _, batch in self._batches_of(piece, file, roots):
                own = rows_between(rows, at, at + len(batch))
                at += len(batch)
                if len(own):
                    taken.append(_taken(batch, own))
                    size += file.nbytes_of(taken[-1])
                if taken and (size > max_bytes or at > rows[-1]):
                    yield self._columns_of(piece, file, _joined(taken), columns, names)
                    taken, size = [], 0
                if at > rows[-1]:
                    return

    def _columns_in(self, name: str, file: ArrowFile) -> Sequence[ArrowColumn]:
        """The columns of a file; its own column `split` is `split_` where folders are the splits."""
        return file.columns if self._files[name] is None else without_name(file.columns, SPLIT)

    def _chosen(
        self, piece: DatasetPiece, file: ArrowFile, names: Sequence[str] | None
    ) -> tuple[list[ArrowColumn], list[str]]:
        """The named columns of a piece, and the columns of Arrow that contain them: at least one."""
        wanted = None if names is None else set(names)
        own = self._columns_in(piece.where[0], file)
        columns = [column for column in own if wanted is None or column.name in wanted]
        readable = [column for column in columns if not column.problem] or columns or own[:1]
        return columns, list(dict.fromkeys(column.path[0] for column in readable))

    def _batches_of(self, piece: DatasetPiece, file: ArrowFile, roots: Sequence[str]) -> Iterator[Any]:
        """The batches of a piece, of some columns of the file."""
        _, first, stop = piece.where
        for number, batch in file.batches(first, stop):
            yield number, file.of_roots(number, batch, roots)

    def _columns_of(
        self,
        piece: DatasetPiece,
        file: ArrowFile,
        batch: Any,
        columns: Sequence[ArrowColumn],
        names: Sequence[str] | None,
    ) -> Batch:
        declared, problems = file.declared_batch(batch)
        known = [replace(one, problem=problems.get(one.path[0], one.problem)) for one in columns]
        found = raw_columns(declared, known if problems else columns)
        split = self._files[piece.where[0]]
        if split is not None:
            found[SPLIT] = RawColumn([split] * len(batch), STRING)
        wanted = found if names is None else names
        return {name: found.get(name) or absent(len(batch)) for name in wanted}

    @contextlib.contextmanager
    def _opened(self, name: str) -> Iterator[ArrowFile]:
        """Open a file; a local one stays open for the next time.

        Raises:
            DatasetError: it is missing or damaged, or Arrow finds damage within the block.
        """
        uri = self._store.uri_of(name)
        check_file(uri, self._store.options)

        def damaged(reason: str) -> DatasetError:
            return DatasetError(f"{uri}: not an Arrow IPC file, or damaged ({reason}); copy it again")

        with arrow_file(uri, self._store.options, damaged) as stream:
            if self._store.local is None:
                yield ArrowFile(stream)
                return
            path = os.fsencode(self._store.path_of(name))
            about = os.stat(path)
            key = (uri, about.st_ino, about.st_size, about.st_mtime_ns)
            file = _open_files.get(key)
            if file is None:
                file = ArrowFile(pa.memory_map(path).read_buffer(about.st_size))
                _open_files.put(key, file)
            yield file


def _taken(batch: Any, rows: Ints) -> Any:
    """Some rows of a batch, as a copy where Arrow can copy rows of its types."""
    try:
        return batch.take(pa.array(rows))
    except pa.ArrowNotImplementedError:
        parts = [batch.slice(row, 1) for row in rows.tolist()]
        return _joined(parts)


def _joined(batches: Sequence[Any]) -> Any:
    """Batches as one; of neighbours without a copy."""
    if len(batches) == 1:
        return batches[0]
    names = batches[0].schema.names
    arrays = [pa.concat_arrays([batch.column(name) for batch in batches]) for name in names]
    return pa.RecordBatch.from_arrays(arrays, schema=batches[0].schema)
