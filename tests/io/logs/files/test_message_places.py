"""Where messages lie, by each kind of log: the bytes there are looked at without logloom."""

import bz2
import sqlite3
import struct

import lz4.frame
import numpy as np
import pandas as pd
import pytest
import zstandard

from logloom.errors import UsageError
from logloom.io.logs.opening import open_log
from tests.absent import needs
from tests.io.logs.making import make_messages, payloads_of, read_all, ros1_payload, write_bag, write_mcap
from tests.io.logs.rosbag2.test_rosbag2 import db3_file


def all_places(log):
    """By topic: its messages, and their places, which are numbered in the order of the log."""
    found = {}
    for topic, messages in read_all(log, "log").items():
        places = log.places(topic, messages.position)
        assert [place.number for place in places] == list(range(len(messages)))
        assert log.places(topic, messages.position[::-1]) == places[::-1]
        found[topic] = messages, places
    return found


def record_at(data, at):
    """(code, content) of an MCAP record."""
    code, length = struct.unpack_from("<BQ", data, at)
    return code, data[at + 9 : at + 9 + length]


def mcap_chunk(content):
    (size,) = struct.unpack_from("<I", content, 28)
    name, inside = content[32 : 32 + size].decode(), content[32 + size + 8 :]
    if name == "zstd":
        return zstandard.ZstdDecompressor().decompress(inside, 1 << 28)
    return lz4.frame.decompress(inside) if name == "lz4" else inside


@pytest.mark.parametrize("compression", ["zstd", "lz4", "none"])
@pytest.mark.parametrize("chunked", [True, False])
@pytest.mark.usefixtures("toy")
def test_a_message_of_an_mcap_file_lies_where_its_place_says(tmp_path, compression, chunked):
    messages = make_messages(120)
    path = write_mcap(tmp_path / "a.mcap", messages, compression=compression, use_chunking=chunked)
    data = path.read_bytes()
    for topic, (found, places) in all_places(open_log([str(path)])).items():
        mine = [message for message in messages if message.topic == topic]
        for message, place, log_time in zip(mine, places, found.log_time.tolist(), strict=True):
            assert (place.uri, place.unit, log_time) == (str(path), "byte", message.log_time)
            assert (place.within is not None) == chunked
            code, content = record_at(data, place.offset)
            if chunked:
                assert code == 6
                code, content = record_at(mcap_chunk(content), place.within)
            assert code == 5
            assert struct.unpack_from("<Q", content, 6) == (message.log_time,)
            assert content[22:] == message.data


@pytest.mark.usefixtures("toy")
def test_messages_are_numbered_over_all_files_of_a_log(tmp_path):
    messages = make_messages(150)
    paths = []
    for n in range(3):
        path = tmp_path / f"part-{2 - n}.mcap"  # their names run against their times
        paths.append(str(write_mcap(path, messages[50 * n : 50 * n + 50])))
    for topic, (found, places) in all_places(open_log(paths)).items():
        mine = [m for m in messages if m.topic == topic]
        expected = [paths[messages.index(message) // 50] for message in mine]
        assert [place.uri for place in places] == expected
        assert payloads_of(found.raw) == [m.data for m in mine]


def bag_record(data, at):
    """(fields, data) of a record of a ROS 1 bag."""
    (size,) = struct.unpack_from("<I", data, at)
    header, at, fields = data[at + 4 : at + 4 + size], at + 4 + size, {}
    while header:
        (length,) = struct.unpack_from("<I", header)
        name, _, value = header[4 : 4 + length].partition(b"=")
        fields[name.decode()], header = value, header[4 + length :]
    (size,) = struct.unpack_from("<I", data, at)
    return fields, data[at + 4 : at + 4 + size]


@pytest.mark.parametrize("compression", ["none", "bz2"])
def test_a_message_of_a_ros_1_bag_lies_where_its_place_says(tmp_path, compression):
    messages = make_messages(120, payload=ros1_payload)
    path = write_bag(tmp_path / "a.bag", messages, compression=compression)
    data = path.read_bytes()
    for topic, (_, places) in all_places(open_log([str(path)])).items():
        mine = [message for message in messages if message.topic == topic]
        for message, place in zip(mine, places, strict=True):
            fields, chunk = bag_record(data, place.offset)
            assert fields["op"] == b"\x05"
            chunk = bz2.decompress(chunk) if compression == "bz2" else chunk
            fields, payload = bag_record(chunk, place.within)
            assert (fields["op"], payload) == (b"\x02", message.data)


def test_a_message_of_a_ros_2_bag_has_its_rowid(tmp_path, monkeypatch):
    needs("rosbag2")
    monkeypatch.setattr("logloom.io.logs.rosbag2.db3.STRETCH_BYTES", 2000)  # so that stretches interleave
    path = db3_file(tmp_path)
    with sqlite3.connect(path) as database:
        rows = database.execute(
            "SELECT messages.rowid, name, timestamp, data FROM messages JOIN topics ON topics.id = topic_id "
            "ORDER BY messages.rowid"
        ).fetchall()
    for topic, (found, places) in all_places(open_log([str(path)])).items():
        mine = [row for row in rows if row[1] == topic]
        assert [place.offset for place in places] == [row[0] for row in mine]
        assert {(place.unit, place.within) for place in places} <= {("rowid", None)}
        assert payloads_of(found.raw) == [row[3] for row in mine]


@pytest.mark.parametrize("suffix", [".parquet", ".feather", ".csv"])
def test_a_row_of_a_table_has_its_number_in_its_file(tmp_path, suffix):
    times = 1_700_000_000_000_000_000 + np.arange(100) * 10**7
    frame = pd.DataFrame({"timestamp": times, "v": np.arange(100.0)})
    path = tmp_path / f"speed{suffix}"
    if suffix == ".parquet":
        frame.to_parquet(path, row_group_size=30)
    elif suffix == ".feather":
        frame.to_feather(path, chunksize=30)
    else:
        frame.to_csv(path, index=False)
    ((found, places),) = all_places(open_log([str(path)])).values()
    assert len(found) == 100
    assert [(p.uri, p.unit, p.offset, p.within) for p in places] == [
        (str(path), "row", n, None) for n in range(100)
    ]
    assert found.log_time.tolist() == times.tolist()


def test_a_position_of_no_message_is_refused(tmp_path):
    path = write_bag(tmp_path / "a.bag", make_messages(60, payload=ros1_payload))
    log = open_log([str(path)])
    found = read_all(log, "log")
    other = np.setdiff1d(found["/b"].position, found["/a"].position)[:1]
    with pytest.raises(UsageError, match=r"no message of /a at position"):
        log.places("/a", other)
    with pytest.raises(UsageError, match=r"no message of /a at position"):
        log.places("/a", np.array([1 << 60]))
