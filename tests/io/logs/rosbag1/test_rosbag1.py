"""ROS 1 bags: equal to what the `rosbags` package reads, however they were written."""

import pytest
from rosbags.rosbag1 import Reader

from logloom.errors import LogReadError, TruncatedLogError, UnknownEncodingError
from logloom.io.logs.interface import OpenOptions
from logloom.io.logs.log_list import LogFiles
from logloom.io.logs.opening import open_log
from logloom.pipelines.doctor.doctor import examine
from tests.io.logs.making import (
    BYTES,
    ROS1,
    as_rosbags_reads,
    contents,
    expected,
    make_messages,
    read_all,
    ros1_payload,
    write_bag,
)
from tests.tier import by_tier

SALVAGE = OpenOptions(on_error="salvage")
COMPRESSIONS = ["none", "lz4", "bz2"]


def ros1_messages(count=200, **options):
    return make_messages(count, payload=ros1_payload, **options)


def without_index(path):
    """Leaves the file as a recorder that died would: the header doesn't point to an index."""
    data = bytearray(path.read_bytes())
    at = data.index(b"index_pos=") + 10
    data[at : at + 8] = bytes(8)
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("indexed", [True, False])
@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("chunk_size", [1, 2000, 1 << 20])
def test_every_message_equals_what_the_rosbags_package_reads(tmp_path, compression, chunk_size, indexed):
    messages = ros1_messages(by_tier(80, 200))
    path = write_bag(tmp_path / "drive.bag", messages, compression=compression, chunk_size=chunk_size)
    rows = as_rosbags_reads(Reader(path))
    if not indexed:
        without_index(path)
    log = open_log([str(path)])
    found = read_all(log)
    assert contents(found) == rows == expected(messages, publish=False)
    for topic, info in log.summary.topics.items():
        times = [m.log_time for m in messages if m.topic == topic]
        assert (info.num_messages, info.first, info.last) == (len(times), times[0], times[-1])
        assert (info.type, info.encoding, info.definition_encoding) == (
            "test_msgs/Stamped",
            "ros1",
            "ros1msg",
        )
        assert info.definition.decode() == ROS1[1]
    assert (log.summary.first, log.summary.last) == (messages[0].log_time, messages[-1].log_time)


def test_stamps_and_fields_come_from_the_definition_in_the_bag(tmp_path):
    messages = ros1_messages(topics=["/a"])
    log = open_log([str(write_bag(tmp_path / "drive.bag", messages))])
    found = read_all(log, "header")["/a"]
    assert found.time.tolist() == [m.stamp for m in messages]
    assert [bytes(row) for row in found.take(BYTES, range(200))] == [m.data[20:] for m in messages]


def test_bytes_between_the_last_index_record_and_the_bags_own_index_are_no_damage(tmp_path):
    messages = ros1_messages()
    whole = write_bag(tmp_path / "drive.bag", messages).read_bytes()
    field = whole.index(b"index_pos=") + 10
    place = int.from_bytes(whole[field : field + 8], "little")
    for filler in (bytes(49), bytes(1), bytes(5000), b"\x01" * 49):
        data = bytearray(whole[:place] + filler + whole[place:])
        data[field : field + 8] = (place + len(filler)).to_bytes(8, "little")
        path = tmp_path / f"padded{len(filler)}{filler[0]}.bag"
        path.write_bytes(data)
        for options in (OpenOptions(), SALVAGE):
            log = open_log([str(path)], options)
            assert contents(read_all(log)) == expected(messages, publish=False)
            assert log.summary.refusals == ()
        found = examine(LogFiles("drive", (str(path),)), SALVAGE)
        assert not [f for f in found.findings if f.kind in ("damaged", "index")]


@pytest.mark.parametrize("indexed", [True, False])
def test_zero_bytes_between_chunks_and_at_the_end_of_the_index_are_no_damage(tmp_path, indexed):
    messages = ros1_messages()
    path = write_bag(tmp_path / "drive.bag", messages)
    second, data = chunk_offsets(path.read_bytes())[1], path.read_bytes()
    field = data.index(b"index_pos=") + 10
    place = int.from_bytes(data[field : field + 8], "little")
    if indexed:
        data = bytearray(data + bytes(30))
    else:
        data = bytearray(data[:second] + bytes(49) + data[second:place])
        data[field : field + 8] = bytes(8)
    path.write_bytes(data)
    log = open_log([str(path)])
    assert contents(read_all(log)) == expected(messages, publish=False)


@pytest.mark.parametrize("name", ["tilt_laser.bag", "turtlesim.bag"])
def test_the_shared_bags_equal_what_the_rosbags_package_reads(shared_data, name):
    path = shared_data / "logs" / name
    log = open_log([str(path)])
    found = {topic: sorted(rows) for topic, rows in contents(read_all(log)).items()}
    rows = {topic: sorted(rows) for topic, rows in as_rosbags_reads(Reader(path)).items()}
    assert found == rows
    for topic, info in log.summary.topics.items():
        times = [row[0] for row in rows[topic]]
        assert (info.num_messages, info.first, info.last) == (len(times), min(times), max(times))


def chunk_offsets(data):
    """Where chunk records start: their headers hold `op=\\x05`."""
    found, at = [], data.find(b"op=\x05")
    while at >= 0:
        found.append(at - 8)
        at = data.find(b"op=\x05", at + 1)
    return found


@pytest.mark.parametrize("compression", ["lz4", "bz2"])
def test_a_damaged_chunk_is_reported_with_its_offset_and_salvage_reads_around_it(tmp_path, compression):
    messages = ros1_messages()
    path = write_bag(tmp_path / "drive.bag", messages, compression=compression)
    data = bytearray(path.read_bytes())
    chunk = chunk_offsets(data)[3]
    data[chunk + 120 : chunk + 124] = bytes(4)
    path.write_bytes(data)
    place = rf"drive\.bag: /a, /b, /c: .* at byte {chunk}"
    with pytest.raises(LogReadError, match=f"{place}.*rosbag reindex.*salvage"):
        read_all(open_log([str(path)]))
    log = open_log([str(path)], SALVAGE)
    found = read_all(log)
    whole = contents(found)
    for topic, rows in expected(messages, publish=False).items():
        lost = [row for row in rows if row not in whole[topic]]
        assert [row for row in rows if row not in lost] == whole[topic]
        assert sum(refusal.num_messages for refusal in found[topic].refused) == len(lost) > 0


def test_an_index_that_lies_never_makes_a_wrong_row(tmp_path):
    messages = ros1_messages(60)
    path = write_bag(tmp_path / "drive.bag", messages)
    whole = path.read_bytes()
    first, second = chunk_offsets(whole)[:2]
    index = whole.index(b"op=\x04", first) - 8
    for at in range(index, second, by_tier(11, 3)):
        data = bytearray(whole)
        data[at] ^= 0x01
        path.write_bytes(data)
        with pytest.raises(LogReadError):
            read_all(open_log([str(path)]))
        assert contents(read_all(open_log([str(path)], SALVAGE))) == expected(messages, publish=False)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_wherever_a_bag_is_cut_salvage_gives_a_prefix_of_each_topic(tmp_path, compression):
    messages = ros1_messages(60)
    path = write_bag(tmp_path / "drive.bag", messages, compression=compression)
    whole = path.read_bytes()
    counts = []
    for stop in [*range(len(whole) - 1, 4096, by_tier(-389, -97)), *range(4001, 0, by_tier(-1000, -500))]:
        path.write_bytes(whole[:stop])
        with pytest.raises(LogReadError):
            open_log([str(path)]).summary  # noqa: B018
        found = contents(read_all(open_log([str(path)], SALVAGE)))
        for topic, rows in found.items():
            assert rows == expected(messages, publish=False)[topic][: len(rows)]
        counts.append(sum(map(len, found.values())))
    assert counts == sorted(counts, reverse=True)
    assert counts[0] == len(messages)


def test_a_bag_cut_before_its_index_says_so(tmp_path):
    path = write_bag(tmp_path / "drive.bag", ros1_messages())
    path.write_bytes(path.read_bytes()[:9000])
    with pytest.raises(
        TruncatedLogError, match=r"drive.bag: truncated at byte 9000, before its index at byte \d+"
    ):
        open_log([str(path)]).summary  # noqa: B018


def test_messages_of_a_chunk_that_was_never_closed_are_salvaged(tmp_path):
    messages = ros1_messages()
    path = without_index(write_bag(tmp_path / "drive.bag", messages, chunk_size=1 << 20))
    data = path.read_bytes()
    (chunk,) = chunk_offsets(data)
    size = data.index(b"size=", chunk) + 5
    # A recorder writes sizes of 0 first, and the true ones when it closes the chunk.
    start = data.index(b"op=\x07", chunk) - 8
    data = data[:size] + bytes(4) + data[size + 4 : start - 4] + bytes(4) + data[start:-9000]
    path.write_bytes(data)
    found = contents(read_all(open_log([str(path)], SALVAGE)))
    assert sum(map(len, found.values())) > 100
    for topic, rows in found.items():
        assert rows == expected(messages, publish=False)[topic][: len(rows)]


@pytest.mark.parametrize("size", [0, 5, 1 << 31])
def test_a_message_of_absurd_length_costs_only_itself(tmp_path, size):
    messages = ros1_messages(60)
    path = without_index(write_bag(tmp_path / "drive.bag", messages, chunk_size=1 << 20))
    data = bytearray(path.read_bytes())
    victim = data.index(messages[30].data) - 4
    data[victim : victim + 4] = size.to_bytes(4, "little")
    path.write_bytes(data)
    with pytest.raises(LogReadError):
        read_all(open_log([str(path)]))
    found = contents(
        read_all(open_log([str(path)], OpenOptions(on_error="salvage", max_chunk_bytes=1 << 20)))
    )
    rows = [row for rows in found.values() for row in rows]
    wanted = [row for rows in expected(messages[:30] + messages[31:], publish=False).values() for row in rows]
    assert set(wanted) <= set(rows)
    assert len(rows) - len(wanted) <= (size != 1 << 31)  # cut short, it is still a message


def test_a_chunk_larger_than_allowed_is_refused(tmp_path):
    path = write_bag(tmp_path / "drive.bag", ros1_messages(), compression="lz4", chunk_size=20_000)
    with pytest.raises(LogReadError, match=r"uncompressed bytes, more than max_chunk_bytes"):
        read_all(open_log([str(path)], OpenOptions(max_chunk_bytes=10_000)))


def test_an_old_bag_says_how_to_migrate(tmp_path):
    path = tmp_path / "old.bag"
    path.write_bytes(b"#ROSBAG V1.2\n" + bytes(100))
    with pytest.raises(UnknownEncodingError, match=r"old.bag: is a bag of another version.*rosbag fix"):
        open_log([str(path)]).summary  # noqa: B018


def test_a_bag_without_messages_reads_as_empty(tmp_path):
    path = write_bag(tmp_path / "drive.bag", [])
    assert dict(open_log([str(path)]).summary.topics) == {}
