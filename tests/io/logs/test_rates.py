"""Rates are medians of intervals, with the share of time without messages; by indices alone."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logloom.io.logs.files.log_part import LogPart
from logloom.io.logs.interface import LogSummary, TopicInfo
from logloom.io.logs.opening import open_log
from logloom.io.logs.rates import TopicRate, rate_of, rates_of
from logloom.pipelines.info.info import describe
from logloom.transforms.suggest.recipe import suggest
from tests.io.logs.making import MS, START, Message, ros1_payload, write_bag, write_mcap
from tests.transforms.ros2_logs import COMMAND, write_log

TICKS = START + np.arange(600) * 100 * MS
DROPPED = np.concatenate([TICKS[:200], TICKS[272:]])  # 12 % of a minute


def write_db3(folder, messages):
    from rosbags.rosbag2 import StoragePlugin, Writer
    from rosbags.typesys import Stores, get_typestore

    store = get_typestore(Stores.ROS2_HUMBLE)
    data = bytes(store.serialize_cdr(store.types["std_msgs/msg/String"]("abc"), "std_msgs/msg/String"))
    with Writer(folder, version=9, storage_plugin=StoragePlugin.SQLITE3) as writer:
        topic = writer.add_connection("/x", "std_msgs/msg/String", typestore=store)
        for message in messages:
            writer.write(topic, message.log_time, data)
    return folder


def in_file(kind, folder, times):
    if kind == "table":
        pq.write_table(pa.table({"timestamp_ns": times, "x": np.zeros(len(times))}), folder / "x.parquet")
        return folder / "x.parquet"
    messages = [Message("/x", int(t), int(t), int(t), ros1_payload(int(t), b"abc")) for t in times]
    if kind == "bag":
        return write_bag(folder / "x.bag", messages, chunk_size=300)
    if kind == "db3":
        return write_db3(folder / "x", messages) / "x.db3"
    return write_mcap(folder / "x.mcap", messages, chunk_size=300)


@pytest.mark.parametrize("kind", ["mcap", "bag", "db3", "table"])
def test_a_pause_doesnt_lower_the_rate_and_has_its_share(tmp_path, kind):
    (rate,) = rates_of(open_log([str(in_file(kind, tmp_path, DROPPED))])).values()
    assert rate.hertz == 10
    assert rate.silent == pytest.approx(72 / 599, abs=1e-9)
    assert rate.silence_words == "12 % of the time silent"


@given(st.lists(st.integers(-4, 4), min_size=30, max_size=60), st.integers(0, 400))
def test_jitter_and_a_pause_anywhere_leave_the_rate(jitter, pause):
    times = np.sort(START + np.arange(len(jitter)) * 100 * MS + np.array(jitter) * MS)
    times[len(times) // 2 :] += pause * MS
    info = TopicInfo("/x", "", "", "", b"", len(times), int(times[0]), int(times[-1]))
    summary = LogSummary((), 0, "", {"/x": info}, info.first, info.last, np.empty((0, 2)), np.empty(0))
    rate = rate_of(info, summary, np.diff(times))
    assert 92 <= rate.period / MS <= 108
    share = pause * MS / (times[-1] - times[0])
    assert abs(rate.silent - share) < 0.09


@pytest.mark.parametrize(
    ("times", "period"),
    [
        (np.sort(np.concatenate([TICKS[:50], TICKS[:50] + MS, TICKS[:50] + 2 * MS])), 4_902 * MS / 149),
        (np.repeat(TICKS[:50], 3), 4_900 * MS / 149),
        (TICKS[:4], 100 * MS),
        (TICKS[:1], 0),
        (START + np.cumsum(np.arange(40) ** 3) * MS, sum(i**3 for i in range(1, 40)) * MS / 39),
    ],
)
def test_bursts_events_and_few_messages_have_a_mean_and_no_share(tmp_path, times, period):
    (rate,) = rates_of(open_log([str(in_file("mcap", tmp_path, times))])).values()
    assert rate.period == pytest.approx(period)
    assert rate.silence_words == ""


def test_info_and_suggestions_show_the_share_and_take_tolerances_from_the_rate(tmp_path):
    messages = [(int(t), {"throttle": 1.0, "gains": []}) for t in DROPPED]
    path = write_log(tmp_path / "drive.mcap", {"/cmd": (COMMAND, messages)}, chunk_size=200)
    (found,) = describe([path], {})
    assert found.table_rows()[0][3] == "10.00"
    assert found.table_rows()[0][-1].startswith("12 %")
    topic = json.loads(json.dumps(found.to_json()))["topics"][0]
    assert (topic["hz"], topic["silent"]) == (10.0, 0.12)
    text = suggest({"drive": open_log([path])})
    assert "# /cmd: car_msgs/msg/Command, 528 messages, 10 Hz, 12 % of the time silent" in text
    assert "tolerance: 200ms" in text


def test_rates_of_a_long_log_look_at_few_chunks_and_read_none(tmp_path, monkeypatch):
    path = in_file("mcap", tmp_path, START + np.arange(20_000) * 10 * MS)
    log = open_log([str(path)])
    assert len(log.summary.chunk_bytes) > 1000
    looked = []
    monkeypatch.setattr(LogPart, "chunks", lambda *_: pytest.fail("read messages"))
    entries = LogPart.entries
    monkeypatch.setattr(LogPart, "entries", lambda self, n: looked.append(n) or entries(self, n))
    assert rates_of(log)["/x"] == TopicRate(10.0 * MS)
    assert len(looked) <= 32
