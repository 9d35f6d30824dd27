"""Every file of MCAP's conformance suite opens, and holds what its case records."""

import hashlib
import struct

import numpy as np
import pytest

from logloom.io.logs.files.container import CHUNKS
from logloom.io.logs.interface import OpenOptions
from logloom.io.logs.log_list import LogFiles
from logloom.io.logs.opening import open_log
from logloom.pipelines.doctor.doctor import examine
from tests.io.logs.mcap.conformance import CASES, MESSAGE, PAYLOAD, Writer, digests, files, make
from tests.tier import by_tier

MODES = [OpenOptions(on_error=mode) for mode in ("fail", "salvage")]


def test_the_files_made_here_are_those_of_the_suite():
    made = {name: hashlib.sha256(make(case, features)).hexdigest() for name, case, features in files()}
    assert made == digests()


@pytest.mark.parametrize("length", [1, 3, 16, 40])
@pytest.mark.parametrize("index", [["mx", "chx", "rch", "rsh", "st", "sum"], ["mx"], []])
def test_bytes_after_the_last_field_of_any_record_are_passed_over(tmp_path, length, index):
    for chunks in (["ch"], []):
        if index and not chunks:
            continue
        path = tmp_path / "grown.mcap"
        features = frozenset([*chunks, *index, "pad"])
        path.write_bytes(Writer(CASES["TenMessages"], features, b"\x05" * length, pads_chunks=True).write())
        for options in MODES:
            CHUNKS.clear()
            log = open_log([str(path)], options)
            assert log.summary.refusals == ()
            assert [time for time, *_ in messages(log)] == [
                time for time, *_ in CASES["TenMessages"].messages
            ]


def test_private_records_in_a_chunk_are_passed_over_with_an_index_and_without(tmp_path, monkeypatch):
    whole = Writer.record

    def with_private(self, opcode, content, in_chunk=False):
        private = struct.pack("<BQ", 0x91, 5) + b"mine!" if in_chunk and opcode == MESSAGE else b""
        return whole(self, opcode, content, in_chunk) + private

    monkeypatch.setattr(Writer, "record", with_private)
    for index in (["mx", "chx", "rch", "rsh", "st"], []):
        path = tmp_path / "private.mcap"
        path.write_bytes(make(CASES["TenMessages"], frozenset(["ch", *index])))
        CHUNKS.clear()
        assert len(messages(open_log([str(path)]))) == 10


def messages(log):
    """(log time, publish time, payload) of each, in the order of the file."""
    found = []
    for part in log.parts:
        for _, chunk in part.chunks(np.arange(len(part.index.stretches))):
            assert chunk.problems == ()
            stops = chunk.start + chunk.length
            for time, published, start, stop in zip(
                chunk.log_time, chunk.publish_time, chunk.start, stops, strict=True
            ):
                found.append((time, published, chunk.buffer[start:stop].tobytes()))
    return found


@pytest.mark.parametrize("base", CASES)
def test_every_file_of_a_case_holds_its_topics_counts_and_times(tmp_path, base):
    count = 0
    for name, case, features in files():
        if not name.startswith(base + "-") and name != base:
            continue
        count += 1
        if count % by_tier(3, 1):
            continue
        path = tmp_path / f"{name}.mcap"
        path.write_bytes(make(case, features))
        times = [time for time, *_ in case.messages]
        for options in MODES:
            log = open_log([str(path)], options)
            topics = {
                topic: (info.num_messages, info.first, info.last)
                for topic, info in log.summary.topics.items()
            }
            want = {"example": (len(times), min(times), max(times))} if times else {}
            assert (topics, log.summary.refusals) == (want, ()), (name, options.on_error)
            assert messages(log) == [(time, published, PAYLOAD) for time, published, _ in case.messages]
        for info in log.summary.topics.values():
            schema = ("Example", "c", b"\x04\x05\x06") if case.schema else ("", "", b"")
            assert (info.type, info.definition_encoding, info.definition) == schema
        found = examine(LogFiles(name, (str(path),)), MODES[1])
        assert found.is_readable, name
        assert not [f for f in found.findings if f.kind in ("damaged", "truncated")], name
    assert count == sum(name.split("-")[0] == base for name in digests())
