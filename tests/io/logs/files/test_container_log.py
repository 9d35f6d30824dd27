"""Logs made of container files: what a request selects, several files as one, sidecars, opening."""

import dataclasses
import pickle
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logloom.errors import LogReadError, StorageError, UsageError
from logloom.io.logs.files import log_part as part_module
from logloom.io.logs.files.container import CHUNKS
from logloom.io.logs.interface import MAX_TIME, MIN_TIME, FieldSpec, OpenOptions, TopicRequest
from logloom.io.logs.mcap.reader import McapFile
from logloom.io.logs.opening import open_log
from tests.files import flip
from tests.io.logs.making import (
    MS,
    SECOND,
    START,
    Message,
    contents,
    everything,
    expected,
    make_messages,
    payloads_of,
    read_all,
    ros1_payload,
    toy_payload,
    write_bag,
    write_mcap,
)

pytestmark = pytest.mark.usefixtures("toy")
SALVAGE = OpenOptions(on_error="salvage")


def times(low, high):
    return st.integers(low, high).map(lambda ms: START + ms * MS)


def test_messages_are_read_by_topic_and_time_and_their_fields_are_columns(logs_of):
    path = str(min(logs_of(1, 1).glob("*.mcap")))
    log = open_log([path])
    imu = log.summary.topics["/imu"]
    assert (imu.type, imu.num_messages) == ("sensor_msgs/msg/Imu", 70)
    spec = FieldSpec(("angular_velocity", "linear_acceleration"))
    assert str(log.column_type("/imu", spec)) == "float64[6]"
    request = TopicRequest(imu.first, imu.first + 100 * MS)
    found = log.read({"/imu": request})["/imu"]
    assert ((request.start <= found.time) & (found.time < request.stop)).all()
    assert found.take(spec, np.array([0, 2])).shape == (2, 6)
    assert not found.refused
    (place,) = log.places("/imu", found.position[:1])
    assert (place.uri, place.unit) == (path, "byte")


@given(
    rows=st.lists(st.tuples(st.sampled_from(["/a", "/b"]), times(0, 3000), times(-500, 3500)), max_size=40),
    span=st.tuples(times(-100, 3200), times(-100, 3200)) | st.just((MIN_TIME, MAX_TIME)),
    source=st.sampled_from(["header", "log", "publish"]),
    max_delay=st.sampled_from([0, 100 * MS, SECOND, MAX_TIME, None]),
    form=st.sampled_from([{}, {"chunk_size": 1 << 20}, {"use_chunking": False}]),
)
def test_a_request_selects_by_message_time_and_names_what_it_refuses(
    tmp_path, rows, span, source, max_delay, form
):
    messages = [
        Message(topic, log, stamp, stamp, toy_payload(stamp, bytes([i])))
        for i, (topic, log, stamp) in enumerate(rows)
    ]
    CHUNKS.clear()
    path = write_mcap(tmp_path / "drive.mcap", messages, **{"chunk_size": 150, **form})
    start, stop = span
    log = open_log([str(path)], SALVAGE)
    found = log.read(
        {topic: TopicRequest(start, stop, (source,), max_delay) for topic in ("/a", "/b", "/none")}
    )
    assert found.keys() == {m.topic for m in messages}
    for topic, got in found.items():
        mine = [m for m in messages if m.topic == topic]
        time_of = {m.data: m.log_time if source == "log" else m.stamp for m in mine}
        fine = [m for m in mine if max_delay is None or abs(time_of[m.data] - m.log_time) <= max_delay]
        want = [m for m in fine if start <= time_of[m.data] < stop]
        assert payloads_of(got.raw) == [m.data for m in want]
        assert got.time.tolist() == [time_of[m.data] for m in want]
        assert got.log_time.tolist() == [m.log_time for m in want]
        refused = [m.log_time for m in mine if m not in fine and start <= m.log_time < stop]
        assert sorted(r.log_time for r in got.refused) == sorted(refused)


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_several_files_are_one_log_ordered_by_time(tmp_path, compression):
    messages = make_messages(300)
    parts = [messages[200:], messages[:100], messages[100:200]]
    uris = [
        str(write_mcap(tmp_path / f"{i}.mcap", part, compression=compression)) for i, part in enumerate(parts)
    ]
    log = open_log(uris)
    assert log.summary.uris == (uris[1], uris[2], uris[0])
    found = read_all(log)
    assert contents(found) == expected(messages)
    for topic in found:
        assert (np.diff(found[topic].position) > 0).all()
        info = log.summary.topics[topic]
        mine = [m.log_time for m in messages if m.topic == topic]
        assert (info.num_messages, info.first, info.last) == (len(mine), mine[0], mine[-1])
    alone = open_log(uris[1:2]).summary
    assert alone.content_id != log.summary.content_id
    assert log.summary.chunk_times.shape == (len(log.summary.chunk_bytes), 2)


def test_positions_of_unchunked_files_are_their_offsets_and_grow_across_files(tmp_path):
    messages = make_messages(60, topics=["/a"])
    uris = [
        str(write_mcap(tmp_path / f"{i}.mcap", part, use_chunking=False))
        for i, part in enumerate([messages[:30], messages[30:]])
    ]
    alone = read_all(open_log(uris[:1]))["/a"]
    data = (tmp_path / "0.mcap").read_bytes()
    for position, payload in zip(alone.position.tolist(), payloads_of(alone.raw), strict=True):
        assert data[position] == 5
        assert data[position + 31 :].startswith(payload)
    both = read_all(open_log(uris))["/a"]
    assert both.position[:30].tolist() == alone.position.tolist()
    assert (np.diff(both.position) > 0).all()


def test_a_long_unchunked_file_is_read_stretch_by_stretch(tmp_path):
    rows = [(i, START + i * MS, bytes([i % 256]) * (3_000_000 if i == 50 else 40_000)) for i in range(200)]
    messages = [Message(f"/{i % 3}", t, t, t, toy_payload(t, body)) for i, t, body in rows]
    path = write_mcap(tmp_path / "drive.mcap", messages, use_chunking=False)
    log = open_log([str(path)])
    assert contents(read_all(log)) == expected(messages)
    sizes = log.summary.chunk_bytes.tolist()
    assert 8 < len(sizes) < 20
    assert sorted(sizes)[-2] <= 1 << 20
    found = log.read({"/1": TopicRequest(START + 20 * MS, START + 80 * MS, ("log",))})["/1"]
    assert payloads_of(found.raw) == [m.data for m in messages[20:80] if m.topic == "/1"]


def test_a_bag_and_an_mcap_are_not_one_log(tmp_path):
    bag = write_bag(tmp_path / "a.bag", make_messages(5, payload=ros1_payload))
    mcap = write_mcap(tmp_path / "a.mcap", make_messages(5))
    with pytest.raises(LogReadError, match=r"files of different kinds \(mcap, rosbag1\) can't be one log"):
        open_log([str(bag), str(mcap)])


def test_the_last_message_is_the_last_by_position_whatever_its_stamp(tmp_path):
    messages = make_messages(100)
    late = Message("/static", START, START, 0, toy_payload(0, b"early"))
    later = Message("/static", START - 50 * SECOND, START, 0, toy_payload(0, b"late"))
    log = open_log([str(write_mcap(tmp_path / "drive.mcap", [late, *messages, later, *messages]))])
    last = log.last_message("/static")
    assert payloads_of(last.raw) == [later.data]
    assert len(last) == 1
    assert log.last_message("/a").log_time.tolist() == [[m for m in messages if m.topic == "/a"][-1].log_time]
    with pytest.raises(UsageError, match="no topic /nowhere; there are /a, /b, /c, /static"):
        log.last_message("/nowhere")


def test_the_last_message_of_a_damaged_chunk_gives_way_to_the_one_before_under_salvage(tmp_path):
    messages = make_messages(100, topics=["/a"])
    path = write_mcap(tmp_path / "drive.mcap", messages)
    stretches = open_log([str(path)]).parts[0].index.stretches
    flip(path, stretches["offset"][-1] + 100)
    with pytest.raises(LogReadError, match=rf"at byte {stretches['offset'][-1]}"):
        open_log([str(path)]).last_message("/a")
    last = open_log([str(path)], SALVAGE).last_message("/a")
    assert payloads_of(last.raw)[0] in [m.data for m in messages[:-1]]
    assert last.refused[0].offset == stretches["offset"][-1]


@pytest.mark.parametrize("count", [1, 2])
def test_last_messages_that_do_not_decode_give_way_to_the_one_before_under_salvage(tmp_path, count):
    messages = make_messages(20, topics=["/a"])
    broken = [dataclasses.replace(m, data=m.data[:5]) for m in messages[-count:]]
    log = open_log([str(write_mcap(tmp_path / "drive.mcap", [*messages[:-count], *broken]))], SALVAGE)
    last = log.last_message("/a")
    assert payloads_of(last.raw) == [messages[-count - 1].data]
    assert len(last.refused) == count


def test_overlapping_reads_decompress_each_chunk_once(tmp_path, monkeypatch):
    decoded = []
    real = McapFile.decode

    def counted(self, stretch, data):
        decoded.append(int(stretch["offset"]))
        return real(self, stretch, data)

    monkeypatch.setattr(McapFile, "decode", counted)
    messages = make_messages(300)
    log = open_log([str(write_mcap(tmp_path / "drive.mcap", messages))])
    for k in range(30):
        start = START + k * 100 * MS
        log.read({"/a": TopicRequest(start, start + 200 * MS, ("header",))})
    assert len(decoded) == len(set(decoded)) > 10


def test_a_file_that_was_replaced_is_read_anew(tmp_path):
    for seed in (0, 1):
        messages = make_messages(50, seed=seed)
        log = open_log([str(write_mcap(tmp_path / "drive.mcap", messages))])
        assert contents(read_all(log)) == expected(messages)


@pytest.mark.parametrize("form", [{"use_chunking": False}, {"index_types": []}])
def test_a_log_without_an_index_is_scanned_once_into_a_sidecar(tmp_path, monkeypatch, form):
    messages = make_messages(200)
    path = write_mcap(tmp_path / "drive.mcap", messages, **form)
    options = OpenOptions(sidecars=str(tmp_path / "index"))
    first = open_log([str(path)], options)
    summary = first.summary
    (sidecar,) = (tmp_path / "index").iterdir()
    assert sidecar.name == f"{summary.content_id}.index"
    monkeypatch.setattr(McapFile, "scan", lambda self: pytest.fail("scanned again"))
    again = open_log([str(path)], options)
    assert contents(read_all(again)) == expected(messages)
    assert again.summary.topics == summary.topics


def test_sidecars_have_the_same_bytes_every_time_and_a_damaged_one_is_made_anew(tmp_path):
    path = write_mcap(tmp_path / "drive.mcap", make_messages(200), index_types=[])
    made = []
    for folder in ("one", "two"):
        options = OpenOptions(sidecars=str(tmp_path / folder))
        read_log = open_log([str(path)], options)
        read_log.read(
            {"/a": everything("header", max_delay=None), "/b": everything("header", max_delay=None)}
        )
        made.append({p.name: p.read_bytes() for p in (tmp_path / folder).iterdir()})
    assert made[0] == made[1]
    assert len(made[0]) == 3
    for name, whole in made[0].items():
        (tmp_path / "one" / name).write_bytes(whole[:-1])
    options = OpenOptions(sidecars=str(tmp_path / "one"))
    open_log([str(path)], options).read({t: everything("header", max_delay=None) for t in ("/a", "/b")})
    assert {p.name: p.read_bytes() for p in (tmp_path / "one").iterdir()} == made[0]


def test_a_replayed_log_is_indexed_by_message_time_and_then_read_in_part(tmp_path, monkeypatch):
    # Stamps lie a year before the log times, so log times say nothing about where a stamp is.
    messages = [
        Message("/a", START + i * MS, START, stamp, toy_payload(stamp, b"x" * 20))
        for i in range(500)
        for stamp in [START - 365 * 86400 * SECOND + i * SECOND]
    ]
    path = write_mcap(tmp_path / "drive.mcap", messages)
    options = OpenOptions(sidecars=str(tmp_path / "index"))
    middle = messages[250].stamp
    request = TopicRequest(middle, middle + 10 * SECOND, ("header",), None)
    first = open_log([str(path)], options).read({"/a": request})["/a"]
    assert first.time.tolist() == [m.stamp for m in messages[250:260]]
    decoded = []
    real = McapFile.decode
    monkeypatch.setattr(McapFile, "decode", lambda *a: (decoded.append(1), real(*a))[1])
    CHUNKS.clear()
    again = open_log([str(path)], options).read({"/a": request})["/a"]
    assert again.time.tolist() == first.time.tolist()
    assert len(decoded) <= 2


def test_without_max_delay_stamps_of_zero_are_still_refused_by_their_log_time(tmp_path):
    messages = [
        Message("/a", START + i * SECOND, 0, 0, toy_payload(0 if i == 7 else START + i, b""))
        for i in range(20)
    ]
    log = open_log([str(write_mcap(tmp_path / "drive.mcap", messages, chunk_size=10))], SALVAGE)
    request = TopicRequest(START + 7 * SECOND, START + 8 * SECOND, ("header",), None)
    found = log.read({"/a": request})["/a"]
    assert len(found) == 0
    assert [(r.log_time, r.topic) for r in found.refused] == [(START + 7 * SECOND, "/a")]


def test_content_ids_depend_on_size_and_both_ends(tmp_path):
    path = write_mcap(tmp_path / "drive.mcap", make_messages(50))
    one = open_log([str(path)]).summary.content_id
    copy = tmp_path / "copy.mcap"
    copy.write_bytes(path.read_bytes())
    assert open_log([str(copy)]).summary.content_id == one
    from blake3 import blake3

    data = path.read_bytes()
    assert one == blake3(len(data).to_bytes(8, "little") + data + data).hexdigest()


def test_what_cannot_be_opened_says_why(tmp_path):
    empty = tmp_path / "empty.mcap"
    empty.touch()
    other = tmp_path / "photo.jpg"
    other.write_bytes(b"\xff\xd8\xff\xe0" + bytes(100))
    for path, what in [
        (tmp_path / "gone.mcap", "there is no such file"),
        (empty, "empty file"),
        (other, r"no installed part reads a log that starts with b\'.*; there are mcap, rosbag1"),
        (tmp_path, "can't be read"),
    ]:
        with pytest.raises(LogReadError, match=f"{path}: {what}"):
            open_log([str(path)])
    with pytest.raises(LogReadError, match=r"memory://gone\.mcap: there is no such file"):
        open_log(["memory://gone.mcap"])
    with pytest.raises(UsageError):
        open_log([])


def test_a_suffix_decides_where_the_first_bytes_are_damaged(tmp_path):
    messages = make_messages(50)
    path = write_mcap(tmp_path / "drive.mcap", messages, index_types=[])
    path.write_bytes(b"\0" + path.read_bytes()[1:])
    with pytest.raises(LogReadError, match="is no MCAP file"):
        open_log([str(path)]).summary  # noqa: B018
    assert contents(read_all(open_log([str(path)], SALVAGE))) == expected(messages)


def test_a_read_only_place_for_sidecars_is_a_storage_error(tmp_path):
    path = write_mcap(tmp_path / "drive.mcap", make_messages(5), index_types=[])
    with pytest.raises(StorageError):
        open_log([str(path)], OpenOptions(sidecars="/proc/nowhere")).summary  # noqa: B018


def test_a_file_cut_while_it_is_read_is_an_error(tmp_path):
    messages = make_messages(200)
    path = write_mcap(tmp_path / "drive.mcap", messages)
    log = open_log([str(path)])
    log.summary  # noqa: B018
    CHUNKS.clear()
    path.write_bytes(path.read_bytes()[:3000])
    with pytest.raises(LogReadError, match="was truncated"):
        read_all(log)


def test_errors_name_only_the_first_few_places(tmp_path):
    messages = [Message("/a", START + i, START, 0, toy_payload(0, b"")) for i in range(100)]
    with pytest.raises(LogReadError, match=r"and 95 more") as caught:
        read_all(open_log([str(write_mcap(tmp_path / "drive.mcap", messages))]), "header")
    assert str(caught.value).count("its header time is 0") == part_module.LISTED
    assert str(caught.value).count("drive.mcap: ") == 1
    assert pickle.loads(pickle.dumps(caught.value)).args == caught.value.args


def test_opening_logs_does_not_import_heavy_packages():
    code = (
        "import sys, logloom.io.logs.opening as o; [*o.kinds()];"
        "print(sorted({'apache_beam', 'pandas', 'pyarrow', 'zarr', 'mcap', 'rosbags'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
