"""MCAP files: equal to what the `mcap` package reads, however they were written."""

import struct

import pytest
from mcap.reader import NonSeekingReader, make_reader
from mcap.writer import Writer

from logloom.errors import LogReadError, TruncatedLogError, UnknownEncodingError
from logloom.io.logs.interface import OpenOptions, TopicRequest
from logloom.io.logs.opening import open_log
from tests.files import flip
from tests.io.logs.making import (
    MS,
    SECOND,
    START,
    TOY,
    contents,
    everything,
    expected,
    make_messages,
    payloads_of,
    read_all,
    toy_payload,
    write_mcap,
)
from tests.tier import by_tier

pytestmark = pytest.mark.usefixtures("toy")
SALVAGE = OpenOptions(on_error="salvage")

FORMS = {
    "zstd": {},
    "lz4": {"compression": "lz4"},
    "uncompressed": {"compression": "none"},
    "one-chunk": {"chunk_size": 1 << 20},
    "one-message-chunks": {"chunk_size": 1},
    "unchunked": {"use_chunking": False},
    "unchunked-with-data-crc": {"use_chunking": False, "enable_data_crcs": True},
    "no-message-index": {"index_types": ["CHUNK"]},
    "no-chunk-index": {"index_types": ["MESSAGE"]},
    "no-index": {"index_types": []},
    "no-statistics": {"use_statistics": False},
    "no-channels-in-summary": {"repeat_channels": False, "repeat_schemas": False},
    "no-summary-offsets": {"use_summary_offsets": False},
    "no-crcs": {"enable_crcs": False},
    "no-summary": {
        "index_types": [],
        "use_statistics": False,
        "repeat_channels": False,
        "repeat_schemas": False,
        "use_summary_offsets": False,
    },
}


def as_mcap_reads(path):
    """By topic, what the mcap package gives, in file order."""
    found = {}
    with path.open("rb") as file:
        for _, channel, message in NonSeekingReader(file, validate_crcs=True).iter_messages(
            log_time_order=False
        ):
            row = (message.log_time, message.publish_time, message.data)
            found.setdefault(channel.topic, []).append(row)
    return found


@pytest.mark.parametrize("form", FORMS)
def test_every_message_equals_what_the_mcap_package_reads(tmp_path, form):
    messages = make_messages(by_tier(120, 300))
    path = write_mcap(tmp_path / "drive.mcap", messages, **FORMS[form])
    log = open_log([str(path)])
    found = read_all(log)
    assert contents(found) == as_mcap_reads(path) == expected(messages)
    for topic, info in log.summary.topics.items():
        times = [m.log_time for m in messages if m.topic == topic]
        assert (info.num_messages, info.first, info.last) == (len(times), times[0], times[-1])
        assert (info.type, info.definition_encoding, info.definition) == TOY
        assert (found[topic].position[1:] > found[topic].position[:-1]).all()
    assert (log.summary.first, log.summary.last) == (messages[0].log_time, messages[-1].log_time)


def test_the_shared_log_equals_what_the_mcap_package_reads(shared_data):
    path = shared_data / "logs" / "l5kit_scene.mcap"
    log = open_log([str(path)])
    with path.open("rb") as file:
        rows = {}
        for _, channel, m in make_reader(file, validate_crcs=True).iter_messages(log_time_order=False):
            rows.setdefault(channel.topic, []).append((m.log_time, m.publish_time, m.data))
    assert contents(read_all(log)) == rows
    assert {topic: info.num_messages for topic, info in log.summary.topics.items()} == {
        topic: len(found) for topic, found in rows.items()
    }


def test_messages_outside_chunks_are_read_with_those_inside(tmp_path):
    messages = make_messages(100)
    path = write_mcap(tmp_path / "drive.mcap", messages)
    data = path.read_bytes()
    chunk = data.index(b"\x06", 8 + 9 + struct.unpack_from("<Q", data, 9)[0])
    loose = toy_payload(START + 5, b"loose")
    # After the first chunk and its message index, where channels are known.
    at = chunk
    while data[at] in (6, 7):
        at += 9 + struct.unpack_from("<Q", data, at + 1)[0]
        if data[at] == 6:
            break
    topic = messages[0].topic
    record = struct.pack("<BQHIQQ", 5, 22 + len(loose), 1, 0, START + 5, START + 5) + loose
    end = data.index(bytes([0x0F, 4, 0, 0, 0, 0, 0, 0, 0]))
    footer = struct.pack("<BQQQI", 2, 20, 0, 0, 0) + data[-8:]
    path.write_bytes(data[:at] + record + data[at:end] + data[end : end + 13] + footer)
    found = contents(read_all(open_log([str(path)])))
    want = as_mcap_reads(path)
    assert found == want
    assert (START + 5, START + 5, loose) in found[topic]


def test_channels_of_one_topic_and_definition_are_one_topic(tmp_path):
    path = tmp_path / "drive.mcap"
    with path.open("wb") as file:
        writer = Writer(file, 200)
        writer.start()
        schema = writer.register_schema(*TOY)
        channels = [writer.register_channel("/a", "toy", schema) for _ in range(2)]
        for i in range(50):
            writer.add_message(channels[i % 2], START + i, toy_payload(START, bytes([i])), START + i)
        writer.finish()
    messages = read_all(open_log([str(path)]))["/a"]
    assert [payload[-1] for payload in payloads_of(messages.raw)] == list(range(50))


def test_channels_of_one_topic_with_two_definitions_are_an_error_for_who_wants_it(tmp_path):
    path = tmp_path / "drive.mcap"
    with path.open("wb") as file:
        writer = Writer(file)
        writer.start()
        for topic, name in (("/a", "toy/One"), ("/a", "toy/Two"), ("/b", "toy/One")):
            schema = writer.register_schema(name, *TOY[1:])
            writer.add_message(writer.register_channel(topic, "toy", schema), START, bytes(8), START)
        writer.finish()
    log = open_log([str(path)])
    assert len(log.read({"/b": everything()})["/b"]) == 1
    with pytest.raises(
        LogReadError, match=r"drive.mcap: topic /a has 2 different definitions \(toy/One .*toy/Two"
    ):
        log.read({"/a": everything()})


def test_an_encoding_that_nobody_decodes_is_named(tmp_path):
    path = write_mcap(tmp_path / "drive.mcap", make_messages(5), encoding="morse")
    with pytest.raises(UnknownEncodingError, match=r"drive.mcap: topic /\w: .*'morse'; there are cdr"):
        read_all(open_log([str(path)]))


def chunk_offsets(path):
    with path.open("rb") as file:
        return [chunk.chunk_start_offset for chunk in make_reader(file).get_summary().chunk_indexes]


@pytest.mark.parametrize("compression", ["zstd", "lz4", "none"])
def test_a_flipped_byte_in_a_chunk_is_reported_with_its_offset(tmp_path, compression):
    messages = make_messages(200)
    path = write_mcap(tmp_path / "drive.mcap", messages, compression=compression)
    chunk = chunk_offsets(path)[3]
    flip(path, chunk + 120)
    place = rf"drive\.mcap: /a, /b, /c: .* at byte {chunk}"
    with pytest.raises(LogReadError, match=f"{place}.*mcap recover.*salvage"):
        read_all(open_log([str(path)]))


@pytest.mark.parametrize("compression", ["zstd", "lz4", "none"])
def test_salvage_reads_around_a_damaged_chunk_and_counts_what_was_lost(tmp_path, compression):
    messages = make_messages(200)
    path = write_mcap(tmp_path / "drive.mcap", messages, compression=compression)
    chunk = chunk_offsets(path)[3]
    flip(path, chunk + 120)
    log = open_log([str(path)], SALVAGE)
    found = read_all(log)
    whole = contents(found)
    for topic, rows in expected(messages).items():
        lost = [row for row in rows if row not in whole[topic]]
        assert lost
        assert [row for row in rows if row not in lost] == whole[topic]
        assert sum(refusal.num_messages for refusal in found[topic].refused) == len(lost)
        assert {refusal.offset for refusal in found[topic].refused} == {chunk}
        assert log.summary.topics[topic].num_messages == len(rows)


def test_damage_elsewhere_does_not_disturb_who_reads_other_times(tmp_path):
    messages = make_messages(200)
    path = write_mcap(tmp_path / "drive.mcap", messages)
    flip(path, chunk_offsets(path)[-1] + 120)
    request = TopicRequest(START, START + 500 * MS, ("log",))
    found = open_log([str(path)]).read({"/a": request})
    assert contents(found)["/a"] == [r for r in expected(messages)["/a"] if r[0] < START + 500 * MS]


def test_an_unknown_compression_is_an_error(tmp_path):
    path = write_mcap(tmp_path / "drive.mcap", make_messages(50))
    data = path.read_bytes().replace(b"zstd", b"zipp")
    path.write_bytes(data[:-12] + bytes(4) + data[-8:])  # no summary CRC
    with pytest.raises(LogReadError, match="compression 'zipp' is not one of"):
        read_all(open_log([str(path)]))


def test_a_flipped_byte_in_the_summary_is_an_error_and_salvage_scans(tmp_path):
    messages = make_messages(100)
    path = write_mcap(tmp_path / "drive.mcap", messages)
    flip(path, path.stat().st_size - 100)
    with pytest.raises(LogReadError, match=r"the summary's CRC doesn't match its bytes \(at byte \d+\)"):
        open_log([str(path)]).summary  # noqa: B018
    assert contents(read_all(open_log([str(path)], SALVAGE))) == expected(messages)


def test_a_message_index_that_lies_never_makes_a_wrong_row(tmp_path):
    messages = make_messages(100)
    path = write_mcap(tmp_path / "drive.mcap", messages)
    whole = path.read_bytes()
    with path.open("rb") as file:
        chunk = make_reader(file).get_summary().chunk_indexes[1]
    start = chunk.chunk_start_offset + chunk.chunk_length
    for at in range(start, start + chunk.message_index_length, by_tier(13, 2)):
        data = bytearray(whole)
        data[at] ^= 0x01
        path.write_bytes(data)
        with pytest.raises(LogReadError, match="message ind"):
            read_all(open_log([str(path)]))
        assert contents(read_all(open_log([str(path)], SALVAGE))) == expected(messages)


def test_a_truncated_file_is_an_error_with_its_offset_and_salvage_uses_what_is_whole(tmp_path):
    messages = make_messages(100)
    path = write_mcap(tmp_path / "drive.mcap", messages, compression="none", chunk_size=1000)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(
        TruncatedLogError, match=rf"ends at byte {len(whole) // 2} without a footer.*mcap recover"
    ):
        open_log([str(path)]).summary  # noqa: B018
    log = open_log([str(path)], SALVAGE)
    found = contents(read_all(log))
    assert sum(map(len, found.values())) > 30
    for topic, rows in found.items():
        assert rows == expected(messages)[topic][: len(rows)]
    assert log.summary.refusals


@pytest.mark.parametrize("form", ["zstd", "lz4", "uncompressed", "unchunked"])
def test_wherever_a_file_is_cut_salvage_gives_a_prefix_of_each_topic(tmp_path, form):
    messages = make_messages(60)
    path = write_mcap(tmp_path / "drive.mcap", messages, **FORMS[form])
    whole = path.read_bytes()
    counts = []
    for stop in range(len(whole) - 1, 0, by_tier(-389, -97)):
        path.write_bytes(whole[:stop])
        found = contents(read_all(open_log([str(path)], SALVAGE)))
        for topic, rows in found.items():
            assert rows == expected(messages)[topic][: len(rows)]
        counts.append(sum(map(len, found.values())))
    assert counts == sorted(counts, reverse=True)
    assert counts[0] == len(messages)


@pytest.mark.parametrize("length", [0, 3, 1 << 20, 1 << 62])
def test_a_record_of_absurd_length_costs_only_itself(tmp_path, length):
    messages = make_messages(60)
    path = write_mcap(tmp_path / "drive.mcap", messages, use_chunking=False)
    data = bytearray(path.read_bytes())
    victim = data.index(messages[30].data) - 31
    data[victim + 1 : victim + 9] = length.to_bytes(8, "little")
    path.write_bytes(data)
    with pytest.raises(LogReadError, match=f"at byte {victim}"):
        read_all(open_log([str(path)]))
    found = contents(read_all(open_log([str(path)], SALVAGE)))
    assert found == expected(messages[:30] + messages[31:])


def test_a_chunk_whose_length_is_broken_costs_only_itself(tmp_path):
    messages = make_messages(100)
    path = write_mcap(tmp_path / "drive.mcap", messages, index_types=[])
    with path.open("rb") as file:
        data = bytearray(file.read())
    chunks = [i for i in range(len(data) - 60) if data[i] == 6 and data[i + 37 : i + 45] == b"\x04\0\0\0zstd"]
    assert len(chunks) > 3
    data[chunks[2] + 3] ^= 0x40
    path.write_bytes(data)
    found = contents(read_all(open_log([str(path)], SALVAGE)))
    lost = [m for m in messages if (m.log_time, m.publish_time, m.data) not in found[m.topic]]
    first = messages.index(lost[0])
    assert messages[first : first + len(lost)] == lost
    assert found == expected(messages[:first] + messages[first + len(lost) :])


def test_a_chunk_larger_than_allowed_is_refused(tmp_path):
    path = write_mcap(tmp_path / "drive.mcap", make_messages(300), chunk_size=20_000)
    with pytest.raises(LogReadError, match="uncompressed bytes, more than max_chunk_bytes"):
        read_all(open_log([str(path)], OpenOptions(max_chunk_bytes=10_000)))


def test_a_zstd_frame_that_claims_more_than_the_chunk_is_refused_before_allocation(tmp_path):
    path = tmp_path / "bomb.mcap"
    write_mcap(path, make_messages(50))
    data = bytearray(path.read_bytes())
    chunk = chunk_offsets(path)[0]
    data[chunk + 25 : chunk + 33] = (100).to_bytes(8, "little")  # uncompressed size in the chunk
    path.write_bytes(data)
    with pytest.raises(LogReadError, match=r"declares .* bytes, 100 are expected"):
        read_all(open_log([str(path)]))


def test_a_stamp_too_far_from_its_log_time_or_zero_is_refused(tmp_path):
    messages = make_messages(50, topics=["/a"])
    bad = {10: messages[10].log_time - 2 * SECOND, 20: 0}
    for i, stamp in bad.items():
        data = toy_payload(stamp, b"x")
        messages[i] = type(messages[i])("/a", messages[i].log_time, messages[i].publish_time, stamp, data)
    path = write_mcap(tmp_path / "drive.mcap", messages)
    with pytest.raises(LogReadError, match=r"-2.000 s from its log time.*its header time is 0"):
        read_all(open_log([str(path)]), "header")
    found = read_all(open_log([str(path)], SALVAGE), "header")["/a"]
    assert found.time.tolist() == [m.stamp for i, m in enumerate(messages) if i not in bad]
    assert [refusal.log_time for refusal in found.refused] == [messages[i].log_time for i in bad]
    assert contents(read_all(open_log([str(path)]))) == expected(messages)  # by log time they are fine


def test_a_file_without_messages_reads_as_empty(tmp_path):
    path = write_mcap(tmp_path / "drive.mcap", [])
    log = open_log([str(path)])
    assert (dict(log.summary.topics), log.summary.first, log.summary.last) == ({}, 0, 0)
    assert log.read({"/a": everything()}) == {}
