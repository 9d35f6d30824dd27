"""Examining logs: damage of known kinds at known places, strange times, and logs that have neither."""

import dataclasses
import json
import os
import random
import sqlite3
import struct
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logloom.errors import LogReadError
from logloom.io.logs.files.container import CHUNKS
from logloom.io.logs.interface import MAX_TIME, MIN_TIME, OpenOptions
from logloom.io.logs.log_list import LogFiles
from logloom.io.logs.opening import open_log
from logloom.pipelines.doctor import doctor
from logloom.pipelines.doctor.doctor import examine, examine_all, spans
from logloom.pipelines.doctor.observations import Thinned
from logloom.pipelines.doctor.tables import null_rows
from logloom.pipelines.info.info import COLUMNS, describe
from tests.absent import needs
from tests.forking import command
from tests.io.logs.conftest import toy  # noqa: F401 (a fixture)
from tests.io.logs.making import (
    MS,
    SECOND,
    START,
    Message,
    make_messages,
    ros1_payload,
    toy_payload,
    write_bag,
    write_mcap,
)
from tests.io.logs.rosbag2.test_rosbag2 import write_bag as write_bag2

pytestmark = pytest.mark.usefixtures("toy")


def look(path):
    CHUNKS.clear()
    return examine(LogFiles("drive", (str(path),)), OpenOptions("salvage"))


def kinds(diagnosis):
    return sorted({finding.kind for finding in diagnosis.findings})


def regular(count=200, topic="/a", step=10 * MS, late=5 * MS):
    """Messages at one rate, each logged `late` after its stamp."""
    times = [START + i * step for i in range(count)]
    return [Message(topic, t, t, t - late, toy_payload(t - late, b"x" * 32)) for t in times]


def flip(path, offset):
    data = bytearray(path.read_bytes())
    data[offset] ^= 0x55
    path.write_bytes(data)


def test_a_whole_log_is_healthy(tmp_path):
    messages = regular() + regular(topic="/b", step=20 * MS, count=100)
    found = look(write_mcap(tmp_path / "drive.mcap", sorted(messages, key=lambda m: m.log_time)))
    assert found.is_healthy
    assert found.bytes_lost == 0
    a, b = found.topics
    assert (a.topic, a.messages, a.promised, a.period, a.longest[0].length) == (
        "/a",
        200,
        200,
        10 * MS,
        10 * MS,
    )
    assert a.skew == (-5 * MS, -5 * MS, -5 * MS)
    assert b.hz == pytest.approx(50)
    assert list(found.lines()) == ["drive: healthy"]


def test_a_flipped_byte_in_a_chunk_is_reported_with_its_offset_and_what_it_cost(tmp_path):
    path = write_mcap(tmp_path / "drive.mcap", regular())
    whole = open_log([str(path)])
    row = whole.parts[0].index.stretches[3]
    CHUNKS.clear()
    flip(path, int(row["offset"] + row["record"] - 20))
    found = look(path)
    assert kinds(found) == ["damaged"]
    (damage,) = found.findings
    assert (damage.uri, damage.offset, damage.topic) == (str(path), int(row["offset"]), "/a")
    (topic,) = found.topics
    assert damage.count == topic.lost == topic.promised - topic.messages > 0
    assert [(lost.offset, lost.length) for lost in found.lost] == [(row["offset"], row["record"])]
    assert "salvage" in damage.remedy


def test_damage_that_most_messages_of_a_topic_share_is_told_in_a_line(tmp_path):
    path = write_mcap(tmp_path / "drive.mcap", regular(400))
    rows = open_log([str(path)]).parts[0].index.stretches
    CHUNKS.clear()
    for row in rows[: len(rows) * 2 // 3]:
        flip(path, int(row["offset"] + row["record"] - 20))
    found = look(path)
    lost = found.topics[0].lost
    lines = list(found.lines())
    assert f"lost: /a: most of it, {lost} of 400 messages" in lines
    assert len([line for line in lines if line.startswith("damaged: /") or "byte" in line]) == 3
    assert f"damaged: {len(found.findings) - 3} more; --json lists them all" in lines


def test_damage_that_costs_no_message_is_reported_too(tmp_path):
    path = write_mcap(tmp_path / "drive.mcap", regular())
    row = open_log([str(path)]).parts[0].index.stretches[3]
    flip(path, int(row["offset"] + row["record"] + 20))  # in the message index behind the chunk
    found = look(path)
    assert [(f.kind, f.offset, f.count) for f in found.findings] == [("damaged", int(row["offset"]), 0)]
    assert found.lost == ()
    assert found.topics[0].messages == 200


def test_a_cut_file_is_truncated_and_has_no_index(tmp_path):
    path = write_mcap(tmp_path / "drive.mcap", regular())
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[: size // 2])
    found = look(path)
    assert kinds(found) == ["index", "truncated"]
    truncated = next(f for f in found.findings if f.kind == "truncated")
    assert 0 < truncated.offset < size // 2
    assert 50 < found.topics[0].messages < 150


@pytest.mark.parametrize("compression", ["zstd", "none"])
@pytest.mark.parametrize("options", [{"enable_crcs": False}, {"use_chunking": False}])
def test_a_file_without_checksums_is_not_said_to_be_whole(tmp_path, options, compression):
    checked = look(write_mcap(tmp_path / "drive.mcap", regular(), compression=compression))
    assert (checked.unchecked, checked.to_json()["unchecked"]) == (0, 0)
    path = write_mcap(tmp_path / "bare.mcap", regular(), compression=compression, **options)
    bare = look(path)
    assert (bare.unchecked, bare.to_json()["unchecked"]) == (200, 200)
    (note,) = [line for line in bare.lines() if "have no checksum" in line]
    assert note == "note: 200 messages have no checksum, so that a change of their bytes can't be detected"


def test_a_checksum_of_the_whole_data_section_counts(tmp_path):
    path = write_mcap(tmp_path / "drive.mcap", regular(), use_chunking=False, enable_data_crcs=True)
    assert look(path).unchecked == 0


def test_bags_of_ros_1_have_no_checksums(tmp_path):
    messages = [dataclasses.replace(m, data=ros1_payload(m.stamp, b"x" * 30)) for m in regular()]
    assert look(write_bag(tmp_path / "drive.bag", messages)).unchecked == 200


def test_a_whole_sqlite_bag_is_healthy_and_has_no_checksums(tmp_path):
    found = examine(*bag(tmp_path))
    assert (but_for_times(found), found.unchecked) == ([], 60)


def but_for_times(found):
    """What is wrong apart from the log times of `write_bag2`, which run back."""
    return [finding for finding in found.findings if finding.kind != "back"]


def bag(tmp_path, **options):
    path = write_bag2(tmp_path / "bag", 60, **options) / "bag.db3"
    return LogFiles("bag", (str(path),)), OpenOptions("salvage")


def test_damage_in_a_sqlite_bag_names_rows_and_not_bytes(tmp_path):
    files, options = bag(tmp_path)
    with sqlite3.connect(files.uris[0]) as database:
        database.execute("UPDATE messages SET timestamp = 'noon' WHERE id = 17")
    found = examine(files, options)
    (damage,) = but_for_times(found)
    assert (damage.kind, damage.offset, damage.unit, damage.count) == ("damaged", 17, "rowid", 1)
    assert damage.place == f"{files.uris[0]} at rowid 17 of its table `messages`"
    assert "has no time" in damage.message
    assert ".recover | sqlite3 NEW.db3" in damage.remedy
    assert (found.lost, sum(topic.lost for topic in found.topics)) == ((), 1)
    with pytest.raises(LogReadError, match="at rowid 17 of its table `messages`"):
        open_log(files.uris).summary  # noqa: B018


def test_an_unfit_message_of_a_sqlite_bag_is_placed_by_its_row(tmp_path):
    files, options = bag(tmp_path)
    with sqlite3.connect(files.uris[0]) as database:
        database.execute("UPDATE messages SET data = x'0001' WHERE id = 23")
    (unfit,) = but_for_times(examine(files, options))
    assert (unfit.kind, unfit.offset, unfit.unit) == ("unfit", 23, "rowid")


def test_a_split_that_metadata_lists_and_that_is_missing_is_found(tmp_path):
    folder = write_bag2(tmp_path / "bag", 60)
    metadata = (folder / "metadata.yaml").read_text()
    (folder / "metadata.yaml").write_text(metadata.replace("- bag.db3", "- bag.db3\n  - bag_1.db3"))
    (found,) = examine_all([str(folder)], {})
    (missing,) = but_for_times(found)
    assert (missing.kind, missing.place) == ("missing", str(folder / "bag_1.db3"))
    assert "metadata.yaml lists it" in missing.message
    assert sum(topic.messages for topic in found.topics) == 60


@pytest.mark.parametrize("options", [{"index_types": ["NONE"]}, {"use_chunking": False}])
def test_a_log_without_index_is_whole_but_slow(tmp_path, options):
    found = look(write_mcap(tmp_path / "drive.mcap", regular(), **options))
    assert kinds(found) == ["index"]
    assert found.topics[0].messages == 200
    assert "mcap" in found.findings[0].remedy


@pytest.mark.parametrize("length", [0, 1 << 62], ids=["zero", "absurd"])
def test_a_record_of_impossible_length_is_found_and_reading_goes_on_behind_it(tmp_path, length):
    path = write_mcap(tmp_path / "drive.mcap", regular(), use_chunking=False)
    data = bytearray(path.read_bytes())
    messages = open_log([str(path)]).read({"/a": doctor.TopicRequest(MIN_TIME, MAX_TIME, ("log",))})["/a"]
    offset = int(messages.position[77])
    struct.pack_into("<Q", data, offset + 1, length)
    path.write_bytes(data)
    found = look(path)
    assert "damaged" in kinds(found)
    damage = next(f for f in found.findings if f.kind == "damaged")
    assert damage.offset == offset
    assert found.topics[0].messages == 199
    (lost,) = found.lost
    assert lost.length == int(messages.position[78]) - offset


def test_messages_that_do_not_fit_their_definition_are_counted_and_the_first_is_placed(tmp_path):
    messages = regular()
    for i in (50, 60, 61):
        messages[i] = dataclasses.replace(messages[i], data=b"abc")
    path = write_mcap(tmp_path / "drive.mcap", messages, use_chunking=False)
    found = look(path)
    unfit = next(f for f in found.findings if f.kind == "unfit")
    assert (unfit.topic, unfit.count) == ("/a", 3)
    assert path.read_bytes()[unfit.offset + 31 :].startswith(b"abc")
    assert (found.topics[0].messages, found.topics[0].unfit) == (197, 3)


def test_topics_that_nothing_decodes_are_named_and_still_timed(tmp_path):
    found = look(write_mcap(tmp_path / "drive.mcap", regular(), encoding="klingon"))
    assert kinds(found) == ["undecodable"]
    assert found.topics[0].messages == 200
    assert found.topics[0].skew is None


def test_strange_stamps_are_counted(tmp_path):
    messages = regular()

    def stamped(i, stamp):
        messages[i] = dataclasses.replace(messages[i], stamp=stamp, data=toy_payload(stamp, b""))

    stamped(20, messages[19].stamp)  # twice
    stamped(40, messages[40].stamp - 30 * MS)  # back, and again, the stamp of message 37
    stamped(60, messages[60].stamp - 5 * SECOND)  # late
    stamped(80, 0)  # unstamped
    topic = look(write_mcap(tmp_path / "drive.mcap", messages)).topics[0]
    assert (topic.duplicates, topic.steps_back, topic.late, topic.unstamped) == (2, 1, 1, 1)
    assert topic.skew == (-5 * SECOND - 5 * MS, -5 * MS, -5 * MS)


def test_a_log_time_that_runs_back_is_seen_across_chunks(tmp_path):
    messages = regular()
    messages = messages[:50] + messages[100:150] + messages[50:100] + messages[150:]
    found = look(write_mcap(tmp_path / "drive.mcap", messages))
    assert found.topics[0].log_steps_back == 1
    assert kinds(found) == ["back"]
    assert not found.is_damaged
    assert [line.partition(": /a")[0] for line in found.lines()] == [
        "drive: no damage; 2 notes",
        "note: back",
        "note: back",
    ]


def test_equal_log_times_of_a_topic_without_stamps_are_counted(tmp_path):
    messages = regular()
    for i in (30, 60, 61):
        messages[i] = dataclasses.replace(messages[i], log_time=messages[29].log_time + i // 60 * 300 * MS)
    path = write_mcap(tmp_path / "drive.mcap", messages, encoding="klingon")  # nobody knows its stamps
    found = look(path)
    twice = next(f for f in found.findings if f.kind == "twice")
    assert (found.topics[0].duplicates, twice.count, twice.severity) == (3, 3, "note")
    assert kinds(found) == ["twice", "undecodable"]
    assert twice.remedy == "of equal log times the last in the log is used"


def test_a_silence_is_a_gap_where_its_topic_is_not_usually_silent(tmp_path):
    messages = regular(300)
    messages = messages[:100] + messages[180:]
    found = look(write_mcap(tmp_path / "drive.mcap", messages))
    assert kinds(found) == ["gap"]
    assert found.topics[0].gaps == ((messages[99].stamp, 810 * MS),)
    assert look(write_mcap(tmp_path / "slow.mcap", regular(20, step=3 * SECOND))).is_healthy


@pytest.mark.parametrize("options", [{}, {"index_types": ["NONE"]}], ids=["indexed", "scanned"])
def test_info_shows_the_silences_that_the_index_proves(tmp_path, options):
    pausing, steady = regular(400), regular(400, topic="/b")
    messages = pausing[:100] + pausing[200:] + steady
    path = write_mcap(tmp_path / "drive.mcap", sorted(messages, key=lambda m: m.log_time), **options)
    (log,) = describe([str(path)], {})
    assert 800 * MS < log.silences["/a"] <= 1010 * MS
    assert log.silences["/b"] < 20 * MS
    shown = {row[0]: row[COLUMNS.index("silent")] for row in log.table_rows()}
    assert shown == {"/a": f"25 %, ≥ {log.silences['/a'] / 1e9:.3f} s", "/b": ""}


def test_a_damaged_bag_is_examined_like_an_mcap_file(tmp_path):
    messages = [dataclasses.replace(m, data=ros1_payload(m.stamp, b"x" * 30)) for m in regular()]
    path = write_bag(tmp_path / "drive.bag", messages)
    assert look(path).is_healthy
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])
    found = look(path)
    assert "index" in kinds(found)
    assert 50 < found.topics[0].messages < 200


def test_an_unreadable_file_does_not_keep_others_from_being_examined(tmp_path):
    (tmp_path / "a.mcap").write_bytes(b"")
    write_mcap(tmp_path / "b.mcap", regular())
    bad, good = examine_all([str(tmp_path / "*.mcap")], {})
    assert not bad.is_readable
    assert "empty file (the writer probably crashed); exclude it" in bad.findings[0].message
    assert good.is_healthy


def test_a_log_of_any_kind_is_examined_by_what_the_protocol_offers(tmp_path, monkeypatch):
    messages = make_messages(400)
    path = write_mcap(tmp_path / "drive.mcap", messages)
    by_files = look(path)
    monkeypatch.setattr(doctor, "ContainerLog", type("Other", (), {}))
    monkeypatch.setattr(doctor, "STRETCH_BYTES", 4000)
    by_spans = look(path)
    assert list(map(but_for_short_intervals, by_spans.topics)) == list(
        map(but_for_short_intervals, by_files.topics)
    )


def but_for_short_intervals(topic):
    """What doesn't depend on where messages that come late are read."""
    return dataclasses.replace(topic, longest=topic.longest[:1], num_intervals=0, periods=topic.periods[1:2])


def write_table(path, **columns):
    path.parent.mkdir(exist_ok=True)
    times = pa.array([START + n * SECOND // 10 for n in range(6)])
    pq.write_table(
        pa.table({"timestamp_ns": times, **columns}), path, row_group_size=4, write_page_checksum=True
    )


def test_nulls_of_tables_are_counted_by_column_and_the_first_is_placed(tmp_path):
    boxes = pa.array([[{"w": 1}], [], None, [{"w": 1}, {"w": None}, None], [{"w": None}], []])
    write_table(
        tmp_path / "drive" / "imu.parquet",
        speed=pa.array([None, 1.5, None, 2.0, 3.0, None]),
        gear=pa.array([1, 2, 3, 4, 5, None]),
        whole=pa.array(["a"] * 6).dictionary_encode(),
        boxes=boxes,
    )
    (found,) = examine_all([str(tmp_path / "drive")], {})
    assert kinds(found) == ["nulls"]
    seen = {f.message.split()[1]: (f.count, f.offset, f.unit, f.topic) for f in found.findings}
    assert seen == {
        "speed": (3, 0, "row", "/imu"),
        "gear": (1, 5, "row", "/imu"),
        "boxes": (1, 2, "row", "/imu"),
        "boxes[]": (1, 3, "row", "/imu"),
        "boxes[].w": (2, 3, "row", "/imu"),
    }
    assert {f.severity for f in found.findings} == {"note"}
    assert all("have no value" in f.remedy for f in found.findings)


@given(st.data())
def test_nulls_are_found_at_any_depth_of_any_slice(data):
    kind = data.draw(
        st.sampled_from(
            [
                pa.list_(pa.struct([("x", pa.int64()), ("y", pa.list_(pa.float64()))])),
                pa.struct([("x", pa.list_(pa.int64(), 2))]),
                pa.large_list(pa.list_(pa.string())),
            ]
        )
    )

    def value(kind):
        if data.draw(st.integers(0, 3)) == 0:
            return None
        if pa.types.is_struct(kind):
            return {field.name: value(field.type) for field in kind}
        if pa.types.is_fixed_size_list(kind):
            return [value(kind.value_type) for _ in range(kind.list_size)]
        if pa.types.is_list(kind) or pa.types.is_large_list(kind):
            return [value(kind.value_type) for _ in range(data.draw(st.integers(0, 2)))]
        return "a" if pa.types.is_string(kind) else 1

    expected = {}

    def look(value, path, row):
        if value is None:
            expected.setdefault(path, []).append(row)
        for name, part in value.items() if isinstance(value, dict) else ():
            look(part, f"{path}.{name}", row)
        for part in value if isinstance(value, list) else ():
            look(part, f"{path}[]", row)

    values = [value(kind) for _ in range(data.draw(st.integers(1, 6)))]
    start = data.draw(st.integers(0, len(values) - 1))
    for row, item in enumerate(values[start:]):
        look(item, "c", row)
    found = null_rows(pa.array(values, kind)[start:], "c")
    assert {path: rows.tolist() for path, (rows, _) in found.items()} == expected


def test_columns_of_other_types_than_in_the_tables_before_are_named_with_both_files(tmp_path):
    write_table(tmp_path / "a" / "imu.parquet", speed=pa.array([1.5] * 6), name=pa.array(["x"] * 6))
    write_table(
        tmp_path / "b" / "imu.parquet",
        speed=pa.array([1] * 6),
        name=pa.array(["x"] * 6).dictionary_encode(),  # which reads as the same
    )
    first, second = examine_all([str(tmp_path / "a"), str(tmp_path / "b")], {})
    assert first.is_healthy
    (finding,) = second.findings
    assert (finding.kind, finding.topic) == ("types", "/imu")
    assert finding.message == f"column speed is int64 here and double in {tmp_path}/a/imu.parquet"
    assert finding.uri == f"{tmp_path}/b/imu.parquet"


def test_types_that_keep_files_from_being_one_topic_are_named_too(tmp_path):
    needs("tables")
    write_table(tmp_path / "a" / "imu.parquet", speed=pa.array([1.5] * 6))
    write_table(tmp_path / "b" / "imu.parquet", speed=pa.array([1] * 6))
    files = LogFiles("drive", (f"{tmp_path}/a/imu.parquet", f"{tmp_path}/b/imu.parquet"))
    assert kinds(examine(files, OpenOptions("salvage"))) == ["types", "unreadable"]


def test_damage_in_a_column_of_a_table_is_placed_by_its_rows(tmp_path):
    path = tmp_path / "drive" / "imu.parquet"
    write_table(path, speed=pa.array(np.arange(6.0)))
    chunk = pq.ParquetFile(path).metadata.row_group(1).column(1)
    flip(path, chunk.dictionary_page_offset + chunk.total_compressed_size - 2)
    (found,) = examine_all([str(path.parent)], {})
    (finding,) = found.findings
    assert (finding.kind, finding.offset, finding.unit, finding.count) == ("damaged", 4, "row", 2)


def test_spans_follow_each_other_and_bound_the_bytes_of_each(tmp_path):
    summary = open_log([str(write_mcap(tmp_path / "drive.mcap", regular(500)))]).summary
    edges = list(spans(summary, 10_000))
    assert len(edges) > 3
    assert edges[0][0] == MIN_TIME
    assert edges[-1][1] == MAX_TIME
    assert all(one[1] == other[0] for one, other in pairwise(edges))


def test_a_thinned_sample_keeps_every_nth_value_and_stays_small():
    sample, rng = Thinned(), random.Random(0)
    values = np.arange(1_000_000)
    at = 0
    while at < len(values):
        count = rng.randrange(1, 30_000)
        sample.add(values[at : at + count])
        at += count
    assert len(sample._kept) <= Thinned.LIMIT
    assert len(np.unique(np.diff(sample._kept))) == 1
    assert sample.quantile(0.5) == pytest.approx(500_000, rel=0.001)


def run(*arguments):
    return command("doctor", *arguments, env={**os.environ, "COLUMNS": "100"})


def test_the_command_ends_with_a_code_that_says_what_it_found(tmp_path, shared_data):
    healthy = run(shared_data / "logs" / "l5kit_scene.mcap")
    assert (healthy.returncode, healthy.stderr) == (0, "")
    assert "healthy" in healthy.stdout
    strange = run(shared_data / "logs" / "tilt_laser.bag", "--json")
    assert strange.returncode == 0  # it has nothing but notes
    damaged = tmp_path / "cut.mcap"
    damaged.write_bytes((shared_data / "logs" / "l5kit_scene.mcap").read_bytes()[:-200_000])
    assert run(damaged).returncode == 3
    (said,) = json.loads(strange.stdout)["logs"]
    assert (said["healthy"], said["damaged"]) == (False, False)
    assert {finding["severity"] for finding in said["findings"]} == {"note"}
    topics = {topic["topic"]: topic for topic in said["topics"]}
    assert sum(topic["messages"] for topic in said["topics"]) == 4093
    assert topics["/temperature"]["duplicates"] == 356
    assert -0.72e9 < topics["/tf"]["skew_ns"]["min"] < -0.7e9
    (tmp_path / "broken.mcap").write_bytes(b"")
    assert run(tmp_path / "broken.mcap").returncode == 1
    assert run(tmp_path / "none.mcap").returncode == 2


@pytest.mark.parametrize("length", [0, 1 << 31], ids=["zero", "absurd"])
def test_a_chunk_of_impossible_length_in_a_bag_is_found_and_reading_goes_on_behind_it(tmp_path, length):
    messages = [dataclasses.replace(m, data=ros1_payload(m.stamp, b"x" * 30)) for m in regular()]
    path = write_bag(tmp_path / "drive.bag", messages)
    row = open_log([str(path)]).parts[0].index.stretches[3]
    data = bytearray(path.read_bytes())
    (header,) = struct.unpack_from("<I", data, int(row["offset"]))
    struct.pack_into("<I", data, int(row["offset"]) + 4 + header, length)
    path.write_bytes(data)
    found = look(path)
    damage = [f for f in found.findings if f.kind == "damaged"]
    assert [f.offset for f in damage] == [int(row["offset"])]
    (topic,) = found.topics
    assert topic.messages + topic.lost == 200
    assert 0 < topic.lost < 60
