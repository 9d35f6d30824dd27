"""The contract of kinds of logs.

Here: `LogContract`, to be subclassed, and `Recording`, the expected contents of a log.
Elsewhere: kinds and logs (logloom.io.logs.opening, logloom.io.logs.interface), damage and failing stores
(damage).
"""

from __future__ import annotations

import pathlib
import pickle
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from logloom.errors import LogloomError, StorageError
from logloom.io.logs.files.container import CHUNKS
from logloom.io.logs.interface import MAX_TIME, MIN_TIME, FieldSpec, Log, OnError, OpenOptions, TopicRequest
from logloom.io.logs.opening import HEAD_BYTES, Kind, kind_named, open_log
from logloom.schema import ColumnType
from logloom.testing.damage import FAULTS, FailingStore, cuts_of, files_in, flips_of, names, replaced, sampled
from logloom.testing.processes import in_fork, in_threads, without_beam
from logloom.values import dataclass

_DAMAGED_FILES = 4
Row = tuple[int, tuple[bytes, ...]]  # log time, and the bytes of each value


@dataclass(frozen=True)
class Recorded:
    """The messages of a topic, in any order.

    Attributes:
        log_time: (N,) ns since the Unix epoch.
        values: what columns take from each message: (N, *shape), or N arrays, bytes or texts.
    """

    log_time: Sequence[int] | NDArray[np.int64]
    values: Mapping[FieldSpec, Sequence[Any] | NDArray[Any]]


@dataclass(frozen=True)
class Recording:
    """A log that was recorded for a test.

    Attributes:
        uris: its files.
        topics: what it holds, or some of it, by topic.
    """

    uris: Sequence[str | pathlib.Path]
    topics: Mapping[str, Recorded]

    @property
    def paths(self) -> list[pathlib.Path]:
        """Its files."""
        return [pathlib.Path(uri) for uri in self.uris]

    def rows(self, log: Log) -> dict[str, list[Row]]:
        """What is to be read of each topic, by time."""
        found = {}
        for topic, recorded in self.topics.items():
            types = [log.column_type(topic, spec) for spec in recorded.values]
            columns = [
                [_bytes_of(value, ctype) for value in values]
                for values, ctype in zip(recorded.values.values(), types, strict=True)
            ]
            times = np.asarray(recorded.log_time, np.int64).tolist()
            found[topic] = sorted((time, tuple(row)) for time, *row in zip(times, *columns, strict=True))
        return found

    def read(self, log: Log, start: int = MIN_TIME, stop: int = MAX_TIME) -> dict[str, list[Row]]:
        """What is read of each topic, by time, of messages with a log time in a range."""
        there = [topic for topic in self.topics if topic in log.summary.topics]
        found = log.read({topic: TopicRequest(start, stop, ("log",)) for topic in there})
        rows = {}
        for topic, messages in found.items():
            every = np.arange(len(messages))
            columns = [
                [np.asarray(value).tobytes() for value in messages.take(spec, every)]
                for spec in self.topics[topic].values
            ]
            times = messages.log_time.tolist()
            rows[topic] = sorted((time, tuple(row)) for time, *row in zip(times, *columns, strict=True))
        return rows


def _bytes_of(value: Any, ctype: ColumnType) -> bytes:
    if isinstance(value, str):
        return value.encode()
    return value if isinstance(value, bytes) else np.asarray(value, ctype.dtype).tobytes()


class LogContract:
    """The contract of kinds of logs. Subclasses record a log.

    Attributes:
        kind: the kind to test.
        has_checksums: whether any flipped bit is detected.
        knows_lengths: whether a file truncated in a value is detected.
    """

    kind: ClassVar[Any]
    has_checksums: ClassVar[bool] = False
    knows_lengths: ClassVar[bool] = True

    def record(self, folder: pathlib.Path) -> Recording:
        """Records one log into an empty folder, with the same bytes each time; to be overridden."""
        raise NotImplementedError(f"{type(self).__name__}.record must return the content of a log")

    @pytest.fixture
    def recording(self, tmp_path: pathlib.Path) -> Recording:
        """A log in a folder of its own."""
        (tmp_path / "log").mkdir()
        CHUNKS.clear()
        return self.record(tmp_path / "log")

    def opened(self, uris: Sequence[str | pathlib.Path], on_error: OnError = "fail") -> Log:
        """The log, opened anew."""
        CHUNKS.clear()
        kind: Kind = self.kind
        return kind.open(list(map(str, uris)), OpenOptions(on_error))

    # --- what it is -------------------------------------------------------------------------------------

    def test_it_is_found_by_its_entry_point(self, recording: Recording) -> None:
        assert type(kind_named(self.kind.name)) is type(self.kind)
        log = open_log(list(map(str, recording.uris)))
        assert recording.read(log) == recording.rows(log)

    def test_its_files_are_told_by_their_first_bytes_or_their_names(self, recording: Recording) -> None:
        for path in recording.paths:
            with path.open("rb") as file:
                head = file.read(HEAD_BYTES)
            assert self.kind.matches(str(path), head) or str(path).endswith(tuple(self.kind.suffixes))
            assert not self.kind.matches("/notes.txt", b"These are notes, and no log.")

    def test_which_files_of_a_folder_are_one_log_depends_on_their_names_alone(
        self, recording: Recording
    ) -> None:
        files_in = getattr(self.kind, "files_in", None)
        if files_in is None:
            return  # no folder is a log of this kind
        names = sorted(path.name for path in recording.paths)
        assert set(files_in([*names, "notes.txt"])) <= set(names)
        assert list(files_in(["notes.txt"])) == list(files_in([])) == []

    # --- messages ---------------------------------------------------------------------------------------

    def test_the_summary_says_what_was_recorded(self, recording: Recording) -> None:
        summary = self.opened(recording.uris).summary
        for topic, recorded in recording.topics.items():
            info = summary.topics[topic]
            times = np.asarray(recorded.log_time)
            assert (info.num_messages, info.first, info.last) == (len(times), times.min(), times.max())
        assert list(summary.topics) == sorted(summary.topics)
        assert summary.refusals == ()

    def test_every_message_reads_back(self, recording: Recording) -> None:
        for on_error in ("fail", "skip", "salvage"):
            log = self.opened(recording.uris, on_error)
            assert recording.read(log) == recording.rows(log)

    def test_ranges_of_time_that_touch_give_every_message_once(self, recording: Recording) -> None:
        log = self.opened(recording.uris)
        times = sorted(np.concatenate([own.log_time for own in recording.topics.values()]).tolist())
        for middle in (times[0], times[len(times) // 2], times[-1], times[-1] + 1):
            before, after = recording.read(log, MIN_TIME, middle), recording.read(log, middle, MAX_TIME)
            for topic, rows in recording.rows(log).items():
                assert sorted(before.get(topic, []) + after.get(topic, [])) == sorted(rows)
                assert all(time < middle for time, _ in before.get(topic, []))

    def test_values_have_the_type_that_the_definition_gives(self, recording: Recording) -> None:
        log = self.opened(recording.uris)
        for topic, recorded in recording.topics.items():
            messages = log.read({topic: TopicRequest(MIN_TIME, MAX_TIME, ("log",))})[topic]
            for spec in recorded.values:
                ctype = log.column_type(topic, spec)
                for rows in (np.arange(len(messages)), np.arange(len(messages))[::-1], np.arange(0)):
                    values = messages.take(spec, rows)
                    assert (len(values), values.dtype) == (len(rows), ctype.dtype)
                    if isinstance(values, np.ndarray):
                        assert values.shape[1:] == ctype.shape

    def test_places_name_the_file_of_each_message(self, recording: Recording) -> None:
        log = self.opened(recording.uris)
        for topic in recording.topics:
            messages = log.read({topic: TopicRequest(MIN_TIME, MAX_TIME, ("log",))})[topic]
            assert (np.diff(messages.position) > 0).all()
            places = log.places(topic, messages.position)
            assert {place.uri for place in places} <= set(map(str, recording.uris))
            assert len({(place.uri, place.offset, place.within) for place in places}) == len(messages)

    # --- elsewhere --------------------------------------------------------------------------------------

    def test_a_log_pickles_before_and_after_it_was_read(self, recording: Recording) -> None:
        data = pickle.dumps(self.opened(recording.uris))
        log: Log = pickle.loads(data)
        expected = recording.rows(log)
        assert recording.read(log) == expected
        assert len(pickle.dumps(log)) == len(data), "a log pickles as what it was opened with"
        assert recording.read(pickle.loads(pickle.dumps(log))) == expected

    def test_a_forked_process_reads_what_its_parent_does(self, recording: Recording) -> None:
        log = self.opened(recording.uris)
        expected = recording.read(log)
        assert in_fork(lambda: recording.read(log)) == expected
        assert recording.read(log) == expected

    def test_many_threads_read_at_the_same_time(self, recording: Recording) -> None:
        log = self.opened(recording.uris)
        expected = recording.rows(log)
        assert in_threads(lambda _: recording.read(log), 8) == [expected] * 8

    def test_another_process_without_beam_reads_the_same(self, recording: Recording) -> None:
        log = self.opened(recording.uris)
        assert without_beam(Recording.read, recording, log) == recording.read(log)

    def test_a_copy_has_the_content_id_of_its_log(self, recording: Recording, tmp_path: pathlib.Path) -> None:
        content = self.opened(recording.uris).summary.content_id
        log = tmp_path / "log"
        shutil.copytree(log, tmp_path / "copy")
        copies = [tmp_path / "copy" / path.relative_to(log) for path in recording.paths]
        assert self.opened(copies).summary.content_id == content

    # --- faults -----------------------------------------------------------------------------------------

    def _stored(self, recording: Recording, monkeypatch: Any) -> tuple[FailingStore, Recording]:
        """The log in a store in memory."""
        folder = recording.paths[0].parent
        store = FailingStore(monkeypatch, files_in(folder), "log")
        uris = [f"{store.uri}/{path.relative_to(folder).as_posix()}" for path in recording.paths]
        return store, replace(recording, uris=uris)

    def test_a_log_in_an_object_store_reads_as_one_on_a_disk(
        self, recording: Recording, monkeypatch: Any
    ) -> None:
        _, stored = self._stored(recording, monkeypatch)
        log = self.opened(stored.uris)
        assert stored.read(log) == stored.rows(log)

    @pytest.mark.parametrize("fault", FAULTS)
    def test_a_store_that_fails_is_a_storage_error(
        self, recording: Recording, fault: str, monkeypatch: Any
    ) -> None:
        store, stored = self._stored(recording, monkeypatch)
        expected = recording.read(self.opened(recording.uris))
        failed = 0
        for _ in store.failures(fault):
            try:
                assert stored.read(self.opened(stored.uris)) == expected
            except StorageError as error:
                failed += names(error, store.uri)
        assert failed

    def test_a_cut_file_is_an_error_and_salvage_reads_what_is_whole(self, recording: Recording) -> None:
        self._damage(recording, cuts_of, self.knows_lengths)

    def test_a_flipped_bit_is_an_error_or_changes_no_value(self, recording: Recording) -> None:
        self._damage(recording, flips_of, self.has_checksums)

    def _damage(self, recording: Recording, injuries: Any, never_wrong: bool) -> None:
        """Damages file after file, and reads the log each time, as it is and to salvage it."""
        rng = np.random.default_rng(0)
        whole = recording.rows(self.opened(recording.uris))
        found = 0
        for path in sampled(recording.paths, _DAMAGED_FILES):
            for damaged in injuries(path.read_bytes(), rng):
                for on_error in ("fail", "salvage"):
                    with replaced(path, damaged):
                        try:
                            rows = recording.read(self.opened(recording.uris, on_error))
                        except LogloomError as error:
                            found += names(error, str(path))
                            continue
                    found += rows != whole
                    for topic, own in rows.items() if never_wrong else ():
                        assert set(own) <= set(whole[topic]), f"{path}: a value that no message had"
        assert found
        assert recording.read(self.opened(recording.uris)) == whole
