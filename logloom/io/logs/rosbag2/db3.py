"""ROS 2 bags in sqlite files (.db3): the container of one file.

Here: the tables of a file, its index, its messages. sqlite reads the pages; local files by its own I/O.
Elsewhere: remote pages of tables (sqlite_pages), grouping files to bags (reader), the log
(logloom.io.logs.files.container_log).

A stretch contains messages of only one topic, so that others are never fetched; its `offset` and `position`
are the id of its first message, its `record` how many ids it spans, and its `length` 0, since sqlite fetches
it. The file has no index of times, so every file is scanned once: ids, topics, times and lengths, no
payloads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain, islice, pairwise
from typing import Any

import apsw
import numpy as np
from numpy.typing import NDArray

from logloom.errors import LogReadError, StorageError, TruncatedLogError
from logloom.io.logs.files.compression import allowance
from logloom.io.logs.files.container import (
    SHARE,
    STRETCH,
    Channel,
    Chunk,
    FileIndex,
    Int64s,
    LostBytes,
    broken_chunk,
    share_of,
    way_on,
)
from logloom.io.logs.files.lazy_attributes import lazy
from logloom.io.logs.files.message_compression import inflate, is_deflated, joined
from logloom.io.logs.files.ranges import LogFile
from logloom.io.logs.interface import OpenOptions, unfinished_words
from logloom.io.logs.rosbag2.local_copies import UnpackedFile
from logloom.io.logs.rosbag2.sqlite_pages import REFUSALS, PagedFile, connected, leaves, limit_steps, tails
from logloom.io.storage.filesystems import with_credentials
from logloom.io.storage.remote.retries import is_forbidden
from logloom.uris import path_of

MAGIC = b"SQLite format 3\0"
STRETCH_BYTES = 4 << 20  # payloads of one stretch
WINDOW_BYTES = 64 << 20  # payloads of all topics between the first and last message of one stretch
ROW_BYTES = 64  # of a message beside its payload, about
MAX_ID = 1 << 48
_BATCH = 1 << 16  # messages listed at a time
_STEPS_PER_ROW = 64  # of sqlite's virtual machine
_FETCH = 1 << 10  # messages fetched at a time
_TABLES = ("messages", "topics", "message_definitions")
_UNIQUE = ("rowid", "_rowid_", "oid")  # names that a hostile table may redefine

_SCAN = """
SELECT rowid,
  CASE WHEN typeof(topic_id) = 'integer' THEN topic_id ELSE -1 END,
  CASE WHEN typeof(timestamp) = 'integer' THEN timestamp ELSE -1 END,
  CASE WHEN typeof(data) = 'blob' THEN length(data) ELSE -1 END
FROM messages NOT INDEXED ORDER BY rowid """
_WANTED = """FROM messages NOT INDEXED
WHERE rowid BETWEEN ? AND ? AND topic_id = ? AND typeof(data) = 'blob'
  AND typeof(timestamp) = 'integer' AND timestamp >= 0 AND length(data) <= ?
ORDER BY rowid"""
_READ = f"SELECT rowid, timestamp, data {_WANTED}"
_READ_IDS = f"SELECT rowid {_WANTED}"


class Db3File:
    """The container of one sqlite file. Every call opens the file anew, so that threads share nothing."""

    remedy = "rebuild the file with `sqlite3 FILE .recover | sqlite3 NEW.db3`"
    unit = "rowid"

    def __init__(self, file: LogFile, options: OpenOptions):
        self.file = file
        self._max_chunk_bytes = self.settings = options.max_chunk_bytes
        self._storage_options = options.storage_options
        self._unpacked = file.copy if isinstance(file, UnpackedFile) else None

    def read_index(self) -> FileIndex | None:
        head = self.file.read(0, min(self.file.size, len(MAGIC)))
        if head != MAGIC:
            raise LogReadError(f"{self.file.uri}: is no sqlite file, it starts with {head!r}")
        torn = [lost.reason for lost in self._outer_damage() if lost.torn]
        if torn:
            raise TruncatedLogError(f"{self.file.uri}: {torn[0]}; {way_on(self.remedy)}")
        return None

    def scan(self) -> FileIndex:
        lost = self._outer_damage()
        try:
            with self._opened() as (database, paged):
                channels = _channels(database)
                if paged:
                    paged.expect(leaves(paged, _root(database), -MAX_ID, MAX_ID))
                rows, gap, problems = _walk(database)
        except (apsw.Error, ValueError) as error:
            lost.append(LostBytes(0, self.file.size, f"sqlite can't read its tables: {error}"))
            return FileIndex({}, np.empty(0, STRETCH), np.empty(0, SHARE), 1, tuple(lost), is_scanned=True)
        for problem, after, count in problems:
            lost.append(LostBytes(after, 0, problem, num_messages=count, unit=self.unit))
        usable, refused = self._usable(rows, channels)
        window = np.cumsum(np.maximum(rows[:, 3], 0) + ROW_BYTES) // WINDOW_BYTES
        window[gap:] += len(rows)  # unreadable messages between them are in no stretch
        stretches, shares = _stretches(rows[usable], window[usable])
        last = int(rows[usable, 0].max()) if usable.any() else 0
        return FileIndex(channels, stretches, shares, (last >> 32) + 1, (*lost, *refused), is_scanned=True)

    def decode(self, stretch: np.void, data: memoryview) -> Chunk:
        first = int(stretch["offset"])
        rows: list[tuple[int, int, bytes]] = []
        problems: list[str] = []
        topic, is_cdr = -1, False
        try:
            with self._opened() as (database, paged):
                topic, is_cdr = _topic_of(database, first)
                span = int(stretch["record"])
                limit_steps(database, _STEPS_PER_ROW * span)
                wanted = (first, first + span - 1, topic, self._longest)
                if paged:
                    self._expect(paged, database, wanted, int(stretch["size"]))
                _fill(rows, _settled(database.execute(_READ, wanted)), int(stretch["size"]))
        except (apsw.Error, ValueError) as error:
            last_read = rows[-1][0] if rows else first - 1
            problems.append(f"sqlite can't read beyond message {last_read}: {error}")
        if is_cdr and any(is_deflated(payload) for _, _, payload in rows):
            rows = self._inflated(rows, problems)
        if not rows:
            return broken_chunk("; ".join(problems) or "its messages are gone")
        ids, times, payloads = zip(*rows, strict=True)
        log_time = np.array(times, np.int64)
        buffer, start, length = joined(payloads)
        channel, offset = np.full(len(rows), topic, np.int64), np.array(ids, np.int64) - first
        return Chunk(buffer, channel, log_time, log_time, offset, start, length, tuple(problems))

    def _inflated(
        self, rows: Sequence[tuple[int, int, bytes]], problems: list[str]
    ) -> list[tuple[int, int, bytes]]:
        """Decompress the payloads of rows; failures are added to `problems`."""
        packed = sum(len(payload) for _, _, payload in rows)
        plain, left = [], min(self._max_chunk_bytes, allowance(packed))
        for number, time, payload in rows:
            try:
                unpacked = inflate(payload, left) if is_deflated(payload) else payload
            except ValueError as error:
                problems.append(f"message {number}: {error}")
                continue
            left -= len(unpacked)
            plain.append((number, time, unpacked))
        return plain

    @property
    def _longest(self) -> int:
        """The longest payload to read; one beyond the file's size would be computed by the file."""
        return min(self._max_chunk_bytes, self.file.size)

    def _expect(
        self, paged: PagedFile, database: apsw.Connection, wanted: tuple[int, ...], size: int
    ) -> None:
        """Announce pages of messages; returns the arguments of `_READ` and the bytes to expect."""
        found = leaves(paged, _root(database), *wanted[:2])
        paged.expect(found)
        ids: set[int] = set()
        with suppress(apsw.Error):  # reading the messages reports it
            ids.update(row[0] for row in database.execute(_READ_IDS, wanted))
        rest = chain.from_iterable((leaf, *tails(paged, leaf, ids, self._head[20])) for leaf in found)
        paged.expect(islice(rest, len(found) + len(ids) + 2 * size // paged.page_size))

    @contextmanager
    def _opened(self) -> Iterator[tuple[apsw.Connection, PagedFile | None]]:
        """Return a connection, and its page source if sqlite doesn't open the file itself."""
        paged = PagedFile(self.file, self._page) if self._is_torn or not self.file.is_local else None
        path = self._unpacked.path if self._unpacked else path_of(self.file.uri)
        with connected(paged or path, self._max_chunk_bytes) as database:
            yield database, paged

    @lazy
    def _head(self) -> bytes:
        return self.file.read(0, min(self.file.size, 100)).ljust(100, b"\0")

    @property
    def _page(self) -> int:
        size = int.from_bytes(self._head[16:18], "big")
        return 65536 if size == 1 else size

    @property
    def _promised(self) -> int:
        """Return the bytes that the file should have; 0 if it doesn't declare them."""
        head = self._head
        return self._page * int.from_bytes(head[28:32], "big") if head[24:28] == head[92:96] else 0

    @property
    def _is_torn(self) -> bool:
        """Whether the file ends within a page, which sqlite would pad with zeros: as wrong messages."""
        return self.file.size < self._promised and self.file.size % self._page > 0

    def _outer_damage(self) -> list[LostBytes]:
        """Find damage that is visible without sqlite."""
        size, promised = self.file.size, self._promised
        lost = []
        if self._unpacked and self._unpacked.problem:
            lost.append(LostBytes(size, 0, self._unpacked.problem, torn=True))
        if size < promised:
            reason = f"it ends at byte {size} of {promised}; its recorder crashed, or it was truncated"
            lost.append(LostBytes(size, promised - size, reason, torn=True))
        if self.unfinished:
            lost.append(LostBytes(size, 0, unfinished_words(self.unfinished)))
        return lost

    @lazy
    def unfinished(self) -> str:
        """Why the file counts as not closed by its recorder; "" if it was closed."""
        beside = "-wal" if self._head[18] == 2 else "-journal"
        if self._unpacked or not self._has_content(beside):
            return ""
        return (
            f"the file {beside} beside it has data that the recorder never wrote into it; run `sqlite3 FILE "
            "'PRAGMA wal_checkpoint'` in their folder once nothing writes to it"
        )

    def _has_content(self, suffix: str) -> bool:
        """Return whether such a file is beside it; no if that can't be checked, as with a signed URL."""
        uri = with_credentials(self.file.uri, self._storage_options)
        path, mark, query = uri.partition("?") if uri.startswith("http") else (uri, "", "")
        try:
            return LogFile(f"{path}{suffix}{mark}{query}", self._storage_options).size > 0
        except LogReadError:
            return False
        except StorageError as error:
            if not is_forbidden(error):
                raise
            return False

    def _usable(
        self, rows: Int64s, channels: dict[int, Channel]
    ) -> tuple[NDArray[np.bool_], list[LostBytes]]:
        """Select usable messages and describe the others; (N, 4) id, topic, time, length."""
        ids, topics, times, lengths = rows.T
        faults = {
            "has an invalid id": (ids < 0) | (ids >= MAX_ID),
            "belongs to a topic that isn't described": ~np.isin(topics, list(channels)),
            "has no time, or one before 1970": times < 0,
            "is empty": lengths < 0,
            "is larger than max_chunk_bytes or than its file": lengths > self._longest,
        }
        usable = np.ones(len(rows), np.bool_)
        lost = []
        for fault, where in faults.items():
            mine = np.flatnonzero(where & usable)
            usable[mine] = False
            for topic in np.unique(topics[mine]).tolist():
                here = mine[topics[mine] == topic]
                name = channels[topic].topic if topic in channels else ""
                first = int(ids[here[0]])
                others = f" (and {len(here) - 1} more)" if len(here) > 1 else ""
                reason = f"message {first} {fault}{others}"
                position, time = min(max(first, 0), MAX_ID), max(0, int(times[here[0]]))
                lost.append(LostBytes(position, 0, reason, name, len(here), position, time, unit=self.unit))
        return usable, lost


def _channels(database: apsw.Connection) -> dict[int, Channel]:
    """Return the topics of a file, by id.

    Raises:
        ValueError: not a bag.
        apsw.Error: it is damaged.
    """
    tables = {name for name in _TABLES if _root(database, name)}
    if not {"messages", "topics"} <= tables:
        raise ValueError("it has no tables `messages` and `topics`, so it is no ROS 2 bag")
    columns = {row[1].lower() for row in database.execute("PRAGMA table_info(messages)")}
    if not {"topic_id", "timestamp", "data"} <= columns or columns.intersection(_UNIQUE):
        raise ValueError(f"its table `messages` has the columns {', '.join(sorted(columns))}")
    definitions: dict[str, tuple[str, bytes]] = {}
    if "message_definitions" in tables:
        names = ("topic_type", "encoding", "encoded_message_definition")
        for _, name, encoding, text in _texts(database, "message_definitions", "rowid", *names):
            if text is not None and encoding in ("ros2msg", "ros2idl"):
                definitions.setdefault(str(name), (encoding, text.encode()))
    channels = {}
    for number, *words in _texts(database, "topics", "id", "name", "type", "serialization_format"):
        if isinstance(number, int):
            topic, name, encoding = map(str, words)
            channels[number] = Channel(number, topic, name, encoding, *definitions.get(name, ("", b"")))
    return channels


def _root(database: apsw.Connection, table: str = "messages") -> int:
    """Return the first page of a table; 0 if it doesn't exist."""
    query = "SELECT rootpage FROM sqlite_master WHERE type = 'table' AND rootpage > 0 AND name = ?"
    return next((int(root) for (root,) in database.execute(query, (table,))), 0)


def _texts(database: apsw.Connection, table: str, key: str, *columns: str) -> Iterator[tuple[Any, ...]]:
    """Return the rows of a table by a key, with texts in which damaged characters are replaced."""
    ((encoding,),) = database.execute("PRAGMA encoding")
    as_bytes = ", ".join(f"CAST({column} AS BLOB)" for column in columns)
    for number, *row in database.execute(f"SELECT {key}, {as_bytes} FROM {table} ORDER BY {key}"):
        yield number, *(None if text is None else text.decode(encoding, "replace") for text in row)


def _walk(database: apsw.Connection) -> tuple[Int64s, int, list[tuple[str, int, int]]]:
    """Return id, topic, time and length of each message, by id; continue after damage.

    Returns:
        (N, 4); the number of them before the damage; what is wrong, after which id, and how many messages
        were lost.
    """
    database.set_progress_handler(None, 0)  # `_rows` checks itself whether ids ascend
    before, problem = _rows(database, "ASC")
    if not problem:
        return before, len(before), []
    after, _ = _rows(database, "DESC")
    after = after[::-1]
    last = int(before[-1, 0]) if len(before) else -1
    after = after[after[:, 0] > last]
    missing = int(after[0, 0]) - last - 1 if len(after) and len(before) else 0
    until = f" until {int(after[0, 0])}" if len(after) else ""
    what = f"sqlite can't read the messages after id {last}{until}: {problem}"
    return np.concatenate([before, after]), len(before), [(what, max(last, 0), missing)]


def _rows(database: apsw.Connection, order: str) -> tuple[Int64s, str]:
    """Return (N, 4) as far as sqlite can read, and the error that stopped it."""
    parts = [np.empty((0, 4), np.int64)]
    # A query runs to its first row when executed, so execute it inside the `try`.
    found = (row for query in [_SCAN + order] for row in _settled(database.execute(query)))
    sign = 1 if order == "ASC" else -1
    while True:
        batch: list[tuple[int, int, int, int]] = []
        problem = ""
        try:
            batch.extend(islice(found, _BATCH))
        except REFUSALS:
            raise
        except apsw.Error as error:
            problem = str(error)
        rows = np.array(batch, np.int64).reshape(-1, 4)
        ids = np.concatenate([parts[-1][-1:, 0], rows[:, 0]])
        # Pages that refer to earlier ones would return their messages endlessly.
        wrong = np.flatnonzero(sign * np.diff(ids) <= 0)
        if len(wrong):
            rows, problem = rows[: wrong[0] + len(rows) - len(ids) + 1], "its ids don't ascend"
        parts.append(rows)
        if problem or len(batch) < _BATCH:
            return np.concatenate(parts), problem


def _settled(found: Iterator[Any]) -> Iterator[Any]:
    """Yield rows once sqlite has read beyond them: only reading the last one before damage fails."""
    return (row for row, _ in pairwise(chain(found, [None])))


def _stretches(rows: Int64s, window: Int64s) -> tuple[NDArray[Any], NDArray[Any]]:
    """Split the messages of each topic into stretches.

    Args:
        rows: (N, 4) id, topic, time and length, by id.
        window: (N,) ascending numbers; no stretch spans two.
    """
    cut: list[tuple[tuple[Any, ...], tuple[int, ...]]] = []
    for topic in np.unique(rows[:, 1]).tolist():
        mine = rows[:, 1] == topic
        ids, _, times, lengths = rows[mine].T
        filled = np.cumsum(lengths) // STRETCH_BYTES
        starts = np.flatnonzero(np.diff(filled, prepend=-1) | np.diff(window[mine], prepend=-1))
        stops = np.append(starts[1:], len(ids))
        for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
            first, span = int(ids[start]), int(ids[stop - 1] - ids[start] + 1)
            share = share_of(times[start:stop])
            size = int(lengths[start:stop].sum())
            cut.append(((first, first, 0, span, size, *share[1:3], True, False), (topic, *share)))
    cut.sort()
    stretches = np.array([stretch for stretch, _ in cut], STRETCH)
    return stretches, np.array([(i, *share) for i, (_, share) in enumerate(cut)], SHARE)


def _fill(rows: list[tuple[int, int, bytes]], found: Iterator[Any], size: int) -> None:
    """Add rows up to `size` bytes of payload, including those before an error.

    Raises:
        ValueError: there are more.
        apsw.Error: damage.
    """
    while True:
        count = len(rows)
        rows.extend(islice(found, _FETCH))
        size -= sum(len(payload) for _, _, payload in rows[count:])
        if size < 0:
            raise ValueError("it has more bytes than in the index")
        if len(rows) < count + _FETCH:
            return


def _topic_of(database: apsw.Connection, message: int) -> tuple[int, bool]:
    """Return the topic of a message, and whether its messages are CDR.

    Raises:
        ValueError: there is no such message.
    """
    query = """SELECT topics.id, serialization_format = 'cdr' FROM messages JOIN topics
    ON topic_id = topics.id WHERE messages.rowid = ?"""
    for topic, is_cdr in database.execute(query, (message,)):
        return int(topic), is_cdr == 1
    raise ValueError(f"message {message} is gone")
