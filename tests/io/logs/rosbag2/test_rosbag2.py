"""ROS 2 bags give what rosbags' own reader gives, message by message, however they are stored or broken."""

import os
import pickle
import random
import shutil
import sqlite3
import tempfile
from urllib.parse import quote

import fsspec
import numpy as np
import pytest
from rosbags.rosbag2 import CompressionFormat, CompressionMode, Reader, StoragePlugin, Writer
from rosbags.typesys import Stores, get_typestore

from logloom.errors import LogloomError, LogReadError, TruncatedLogError, UnknownEncodingError
from logloom.io.logs.interface import FieldSpec, OpenOptions
from logloom.io.logs.opening import open_log
from logloom.io.logs.rosbag2 import db3, local_copies
from tests.io.logs.making import MS, SECOND, START, as_rosbags_reads, contents, everything, read_all
from tests.tier import by_tier

STORE = get_typestore(Stores.ROS2_HUMBLE)
SALVAGE = OpenOptions(on_error="salvage")
KINDS = [
    (version, plugin, mode)
    for version in (8, 9)
    for plugin, modes in (
        (StoragePlugin.SQLITE3, ("NONE", "FILE", "MESSAGE")),
        (StoragePlugin.MCAP, ("NONE", "FILE", "MESSAGE", "STORAGE")),
    )
    for mode in modes
]


def strings(rng):
    return STORE.types["std_msgs/msg/String"](data="x" * rng.randrange(60))


def imu(rng, stamp):
    types = STORE.types
    time = types["builtin_interfaces/msg/Time"](sec=stamp // SECOND, nanosec=stamp % SECOND)
    vector = types["geometry_msgs/msg/Vector3"]
    zeros = np.zeros(9)
    return types["sensor_msgs/msg/Imu"](
        header=types["std_msgs/msg/Header"](stamp=time, frame_id="imu"),
        orientation=types["geometry_msgs/msg/Quaternion"](x=0.0, y=0.0, z=0.0, w=1.0),
        orientation_covariance=zeros,
        angular_velocity=vector(x=rng.random(), y=rng.random(), z=rng.random()),
        angular_velocity_covariance=zeros,
        linear_acceleration=vector(x=rng.random(), y=rng.random(), z=rng.random()),
        linear_acceleration_covariance=zeros,
    )


def write_bag(path, count=200, version=9, plugin=StoragePlugin.SQLITE3, mode="NONE", start=START):
    rng = random.Random(0)
    shutil.rmtree(path, ignore_errors=True)
    writer = Writer(path, version=version, storage_plugin=plugin)
    writer.set_compression(CompressionMode[mode], CompressionFormat.ZSTD)
    with writer:
        names = {
            "/imu": "sensor_msgs/msg/Imu",
            "/text": "std_msgs/msg/String",
            "/empty": "std_msgs/msg/Empty",
        }
        connections = {t: writer.add_connection(t, n, typestore=STORE) for t, n in names.items()}
        for i in range(count):
            topic = rng.choice(["/imu", "/imu", "/text"])
            time = start + i * 10 * MS + rng.randrange(-12 * MS, 12 * MS)  # not in order
            message = strings(rng) if topic == "/text" else imu(rng, time - rng.randrange(5 * MS))
            writer.write(connections[topic], time, STORE.serialize_cdr(message, names[topic]))
    return path


def db3_file(tmp_path, **options):
    return write_bag(tmp_path / "bag", **options) / "bag.db3"


@pytest.mark.parametrize("start", ["/", "", "file://"])
def test_a_file_s_name_may_be_any_and_two_slashes_may_begin_its_path(tmp_path, start):
    path = str(db3_file(tmp_path).rename(tmp_path / "a b?#%41.db3"))
    name = quote(path) if start == "file://" else path
    assert open_log([f"{start}{name}"]).summary.num_messages > 0


def in_time(found):
    return {topic: sorted(rows) for topic, rows in found.items() if rows}


@pytest.mark.parametrize(("version", "plugin", "mode"), KINDS)
def test_every_message_equals_what_rosbags_reads(tmp_path, version, plugin, mode):
    path = write_bag(tmp_path / "bag", 120, version, plugin, mode)
    rows = as_rosbags_reads(Reader(path))
    log = open_log([str(path / "metadata.yaml")])
    found = read_all(pickle.loads(pickle.dumps(log)))
    assert in_time(contents(found)) == in_time(rows)
    assert len(log.summary.topics["/imu"].definition) > 100
    assert log.summary.topics["/empty"].num_messages == 0
    for topic, info in log.summary.topics.items():
        if topic in rows:
            times = [row[0] for row in rows[topic]]
            assert (info.num_messages, info.first, info.last) == (len(times), min(times), max(times))
    velocities = found["/imu"].take(FieldSpec(("angular_velocity",)), np.arange(len(found["/imu"])))
    theirs = [STORE.deserialize_cdr(m[2], "sensor_msgs/msg/Imu") for m in contents(found)["/imu"]]
    assert velocities.tolist() == [[*vars(m.angular_velocity).values()][:3] for m in theirs]
    without = open_log([str(file) for file in path.iterdir() if file.name != "metadata.yaml"])
    assert in_time(contents(read_all(without))) == in_time(rows)
    (path / "metadata.yaml").write_text("rosbag2_bagfile_information: {compression_mode: none}")
    wrong = open_log([str(path / "metadata.yaml")])
    assert in_time(contents(read_all(wrong))) == in_time(rows)


def test_messages_come_in_the_order_of_their_rows_and_ranges_choose_by_time(tmp_path, monkeypatch):
    monkeypatch.setattr(db3, "STRETCH_BYTES", 3000)
    path = db3_file(tmp_path)
    log = open_log([str(path)])
    with sqlite3.connect(path) as database:
        query = (
            "SELECT messages.id, timestamp FROM messages JOIN topics ON topic_id = topics.id WHERE name = ?"
        )
        rows = database.execute(query + " ORDER BY messages.id", ("/imu",)).fetchall()
    found = read_all(log)["/imu"]
    assert list(zip(found.position.tolist(), found.time.tolist(), strict=True)) == rows
    assert len(log.summary.chunk_bytes) > 10
    request = everything("log")
    first, stop = START + SECOND // 2, START + SECOND
    some = log.read({"/imu": type(request)(first, stop, ("log",))})["/imu"]
    assert some.time.tolist() == [time for _, time in rows if first <= time < stop]
    assert log.last_message("/imu").time.tolist() == [
        int(found.take(FieldSpec(("header.stamp",)), np.array([len(found) - 1]))[0])
    ]


def test_only_stretches_of_the_wanted_topic_and_time_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(db3, "STRETCH_BYTES", 3000)
    log = open_log([str(db3_file(tmp_path))])
    log.summary  # noqa: B018
    read = []
    decode = db3.Db3File.decode
    monkeypatch.setattr(
        db3.Db3File, "decode", lambda s, stretch, d: read.append(stretch) or decode(s, stretch, d)
    )
    request = type(everything("log"))(START + SECOND // 2, START + SECOND, ("log",))
    assert len(log.read({"/text": request})["/text"])
    assert 0 < len(read) <= 3


def test_splits_are_joined_into_one_log_in_time_order(tmp_path):
    folders = [write_bag(tmp_path / f"part{i}", 50, start=START + i * 60 * SECOND) for i in (1, 0)]
    bag = tmp_path / "bag"
    bag.mkdir()
    for i, folder in enumerate(folders):
        shutil.copy(folder / f"{folder.name}.db3", bag / f"bag_{i}.db3")
    log = open_log([str(path) for path in bag.iterdir()])
    rows = [row for folder in folders for row in as_rosbags_reads(Reader(folder))["/imu"]]
    found = read_all(log)["/imu"]
    assert in_time(contents({"/imu": found})) == in_time({"/imu": rows})
    assert (np.diff(found.position) > 0).all()
    assert [os.path.basename(uri) for uri in log.summary.uris] == ["bag_1.db3", "bag_0.db3"]


def as_before_iron(path):
    """Takes the definitions out, and the tables that only newer recorders write."""
    with sqlite3.connect(path) as database:
        for table in ("message_definitions", "schema", "metadata"):
            database.execute(f"DROP TABLE {table}")
        database.execute("ALTER TABLE topics DROP COLUMN type_description_hash")
    return path


def test_a_bag_without_definitions_reads_with_those_of_rosbags(tmp_path):
    path = db3_file(tmp_path)
    rows = in_time(as_rosbags_reads(Reader(tmp_path / "bag")))
    as_before_iron(path)
    log = open_log([str(path)])
    found = log.read({"/imu": everything("header")})["/imu"]
    assert in_time(contents({"/imu": found})) == {"/imu": rows["/imu"]}
    assert found.take(FieldSpec(("orientation",)), np.arange(2)).tolist() == [[0, 0, 0, 1]] * 2


def test_a_type_that_nobody_defines_is_named(tmp_path):
    path = as_before_iron(db3_file(tmp_path))
    with sqlite3.connect(path) as database:
        database.execute("UPDATE topics SET type = 'mine/msg/Own' WHERE name = '/text'")
    log = open_log([str(path)])
    assert log.summary.topics["/text"].num_messages
    with pytest.raises(UnknownEncodingError, match=r"bag\.db3: .*/text.*doesn't define mine/msg/Own.*Iron"):
        read_all(log)
    assert len(log.read({"/imu": everything("log")})["/imu"])


def test_wherever_a_file_is_cut_it_is_reported_and_salvage_gives_a_part_of_it(tmp_path):
    path = db3_file(tmp_path)
    whole = in_time(contents(read_all(open_log([str(path)]))))
    data = path.read_bytes()
    counts = []
    for stop in range(len(data) - 1, 5000, -(4096 * by_tier(13, 3) + 77)):
        path.write_bytes(data[:stop])
        with pytest.raises(TruncatedLogError, match=rf"bag.db3: it ends at byte {stop} of {len(data)}"):
            open_log([str(path)]).summary  # noqa: B018
        found = in_time(contents(read_all(open_log([str(path)], SALVAGE))))
        for topic, rows in found.items():
            assert set(rows) <= set(whole[topic])
        counts.append(sum(map(len, found.values())))
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > 100


def test_pages_that_are_overwritten_lose_only_their_own_messages(tmp_path):
    path = db3_file(tmp_path, count=400)
    whole = in_time(contents(read_all(open_log([str(path)]))))
    data = bytearray(path.read_bytes())
    with sqlite3.connect(path) as database:
        middle = database.execute("SELECT data FROM messages WHERE id = 200").fetchone()[0]
    page = data.index(middle) // 4096 * 4096
    data[page : page + 4096] = bytes(4096)
    path.write_bytes(data)
    with pytest.raises(LogReadError, match=r"bag.db3: sqlite can't read the messages after id \d+ until \d+"):
        open_log([str(path)]).summary  # noqa: B018
    log = open_log([str(path)], SALVAGE)
    found = in_time(contents(read_all(log)))
    assert all(set(rows) <= set(whole[topic]) for topic, rows in found.items())
    lost = sum(map(len, whole.values())) - sum(map(len, found.values()))
    assert 0 < lost < 40
    assert sum(refusal.num_messages for refusal in log.summary.refusals) == lost


@pytest.mark.parametrize("table", ["messages", "topics"])
def test_pages_that_lead_back_to_earlier_ones_end_with_an_error(tmp_path, table):
    path = db3_file(tmp_path, count=400)
    with sqlite3.connect(path) as database:
        rows = [(f"/t{i}", "std_msgs/msg/Empty", "cdr", "", "") for i in range(500)]
        names = "name, type, serialization_format, offered_qos_profiles, type_description_hash"
        database.executemany(f"INSERT INTO topics ({names}) VALUES (?, ?, ?, ?, ?)", rows)
        query = "SELECT rootpage FROM sqlite_master WHERE name = ?"
        (root,) = database.execute(query, (table,)).fetchone()
    data = bytearray(path.read_bytes())
    page = memoryview(data)[(root - 1) * 4096 : root * 4096]
    assert page[0] == 5  # an interior page: each cell starts with the number of a child
    cells = [int.from_bytes(page[12 + 2 * i : 14 + 2 * i], "big") for i in range(page[4])]
    first = bytes(page[cells[0] : cells[0] + 4])
    for cell in [*cells[1:], 8]:
        page[cell : cell + 4] = first
    del page
    path.write_bytes(data)
    log = open_log([str(path)], SALVAGE)
    found = {topic: len(rows) for topic, rows in contents(read_all(log)).items()}
    assert found["/imu"] > 0
    if table == "messages":
        assert "don't ascend" in log.summary.refusals[0].reason
        with pytest.raises(LogReadError, match="don't ascend"):
            open_log([str(path)]).summary  # noqa: B018


def test_rows_of_other_types_are_refused_one_by_one(tmp_path):
    path = db3_file(tmp_path, count=60)
    whole = sum(map(len, contents(read_all(open_log([str(path)]))).values()))
    with sqlite3.connect(path) as database:
        database.execute("UPDATE messages SET timestamp = 'noon' WHERE id = 3")
        database.execute("UPDATE messages SET timestamp = -5 WHERE id = 4")
        database.execute("UPDATE messages SET data = 'text' WHERE id = 5")
        database.execute("UPDATE messages SET topic_id = 99 WHERE id = 6")
        database.execute("UPDATE messages SET id = -7 WHERE id = 7")
    with pytest.raises(LogReadError, match=r"message -7 has an invalid id.*message 6 belongs to a topic"):
        open_log([str(path)]).summary  # noqa: B018
    log = open_log([str(path)], SALVAGE)
    assert sum(map(len, contents(read_all(log)).values())) == whole - 5
    assert sum(refusal.num_messages for refusal in log.summary.refusals) == 5


def test_messages_of_a_write_ahead_log_that_was_never_merged_are_not_lost_in_silence(tmp_path):
    path = db3_file(tmp_path, count=60)
    database = sqlite3.connect(path)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("UPDATE messages SET timestamp = timestamp + 1")
    database.commit()
    with pytest.raises(LogReadError, match="-wal beside it has data that the recorder never wrote into it"):
        open_log([str(path)]).summary  # noqa: B018
    database.close()
    assert len(read_all(open_log([str(path)]))["/imu"])


@pytest.mark.parametrize(
    "script",
    [
        "CREATE TABLE other(x)",
        "CREATE TABLE topics(id, name, type, serialization_format); CREATE VIEW messages AS "
        "WITH RECURSIVE f(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM f) SELECT n AS id, 1 AS topic_id, "
        "n AS timestamp, x'00' AS data FROM f",
        "CREATE TABLE topics(id, name, type, serialization_format); "
        "CREATE TABLE messages(rowid TEXT, topic_id, timestamp, data)",
        "CREATE TABLE topics(id, name, type, serialization_format); CREATE TABLE messages(id INTEGER PRIMARY "
        "KEY, topic_id, timestamp, data AS (zeroblob(1000000000)))",
    ],
)
def test_a_database_that_is_no_bag_is_refused(tmp_path, script):
    path = tmp_path / "other.db3"
    with sqlite3.connect(path) as database:
        database.executescript(script)
    with pytest.raises(LogReadError, match=r"other.db3: sqlite can't read its tables: it.*table"):
        open_log([str(path)]).summary  # noqa: B018
    assert dict(open_log([str(path)], SALVAGE).summary.topics) == {}


def test_a_message_larger_than_allowed_is_refused(tmp_path):
    with pytest.raises(LogReadError, match="is larger than max_chunk_bytes"):
        open_log([str(db3_file(tmp_path))], OpenOptions(max_chunk_bytes=300)).summary  # noqa: B018


def test_a_compressed_message_that_claims_too_much_is_refused(tmp_path):
    path = db3_file(tmp_path, mode="MESSAGE")
    with pytest.raises(LogReadError, match=r"message \d+: it has \d+ bytes, more than max_chunk_bytes"):
        read_all(open_log([str(path)], OpenOptions(max_chunk_bytes=200)))


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_a_packed_remote_file_is_unpacked_once_and_its_copy_removed(tmp_path, temporary):
    folder = write_bag(tmp_path / "bag", mode="FILE")
    path = folder / "bag.db3.zstd"
    fsspec.filesystem("memory").pipe_file("/drives/bag.db3.zstd", path.read_bytes())
    log = open_log(["memory://drives/bag.db3.zstd"])
    assert in_time(contents(read_all(log))) == in_time(as_rosbags_reads(Reader(folder)))
    assert len(list(temporary.iterdir())) == 1
    del log
    assert list(temporary.iterdir()) == []


def test_a_remote_bag_is_opened_by_its_metadata(tmp_path):
    store = fsspec.filesystem("memory")
    store.put(
        str(write_bag(tmp_path / "bag", plugin=StoragePlugin.MCAP, mode="FILE")), "/far", recursive=True
    )
    log = open_log(["memory://far/metadata.yaml"])
    assert in_time(contents(read_all(log))) == in_time(as_rosbags_reads(Reader(tmp_path / "bag")))


def test_a_packed_file_that_unpacks_beyond_the_limit_is_refused(tmp_path, temporary, monkeypatch):
    monkeypatch.setattr(local_copies, "MAX_UNPACKED", 10_000)
    path = write_bag(tmp_path / "bag", mode="FILE") / "bag.db3.zstd"
    with pytest.raises(LogReadError, match="bytes expand to more than 10000"):
        open_log([str(path)]).summary  # noqa: B018
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("plugin", [StoragePlugin.SQLITE3, StoragePlugin.MCAP])
def test_a_packed_file_that_was_cut_is_reported_and_salvaged(tmp_path, plugin):
    folder = write_bag(tmp_path / "bag", 2000, plugin=plugin, mode="FILE")
    whole = as_rosbags_reads(Reader(folder))
    (path,) = folder.glob("*.zstd")
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * 0.8)])
    with pytest.raises(TruncatedLogError, match=path.name):
        open_log([str(path)]).summary  # noqa: B018
    found = in_time(contents(read_all(open_log([str(path)], SALVAGE))))
    assert all(set(rows) <= set(whole[topic]) for topic, rows in found.items())
    assert sum(map(len, found.values())) > 100


@pytest.mark.parametrize("mode", ["NONE", "FILE", "MESSAGE"])
def test_mutated_files_are_read_salvaged_or_refused(tmp_path, mode):
    folder = write_bag(tmp_path / "bag", 60, mode=mode)
    (path,) = folder.glob("bag.db3*")
    data = path.read_bytes()
    rng = random.Random(1)
    read = 0
    for _ in range(by_tier(30, 310)):
        changed = bytearray(data)
        for _ in range(rng.randrange(1, 9)):
            changed[rng.randrange(len(changed))] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])
        path.write_bytes(changed[: rng.randrange(len(changed))] if rng.random() < 0.2 else changed)
        for options in (OpenOptions(), SALVAGE):
            try:
                log = open_log([str(path)], options)
                for topic in log.summary.topics:
                    messages = log.read({topic: everything("log")})[topic]
                    read += len(messages)
                    if topic == "/imu" and len(messages):
                        messages.take(FieldSpec(("header.frame_id",)), np.arange(len(messages)))
            except LogloomError:
                pass
    assert read


def test_a_large_message_that_the_end_of_the_file_cuts_is_lost_whole(tmp_path):
    with Writer(tmp_path / "bag", version=9) as writer:
        connection = writer.add_connection("/text", "std_msgs/msg/String", typestore=STORE)
        for i in range(8):
            text = STORE.types["std_msgs/msg/String"](data=chr(97 + i) * 20_000)
            writer.write(connection, START + i, STORE.serialize_cdr(text, "std_msgs/msg/String"))
    whole = set(as_rosbags_reads(Reader(tmp_path / "bag"))["/text"])
    path = tmp_path / "bag" / "bag.db3"
    data = path.read_bytes()
    for stop in range(len(data) - 1, 40_000, by_tier(-7919, -1237)):
        path.write_bytes(data[:stop])
        found = contents(read_all(open_log([str(path)], SALVAGE)))["/text"]
        assert set(found) <= whole
    path.write_bytes(data[: len(data) * 3 // 4])
    assert len(contents(read_all(open_log([str(path)], SALVAGE)))["/text"]) >= 4


def test_a_file_is_scanned_once_where_indices_are_kept(tmp_path, monkeypatch):
    path = db3_file(tmp_path)
    options = OpenOptions(sidecars=str(tmp_path / "index"))
    first = contents(read_all(open_log([str(path)], options)))
    monkeypatch.setattr(db3.Db3File, "scan", None)
    assert contents(read_all(open_log([str(path)], options))) == first
