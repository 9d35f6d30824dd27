"""Times of a table's rows in another column, and with an offset."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from logloom.errors import LogReadError, UsageError
from logloom.io.logs.interface import MAX_TIME, MIN_TIME, OpenOptions, StatedTime, TopicRequest
from logloom.io.logs.opening import open_log

START = 1_700_000_000 * 10**9
TIMES = START + np.arange(6) * 10**8
CLOCK = 1000 * 10**9 + np.arange(6) * 10**8 + 123  # ns since boot


@pytest.fixture
def path(tmp_path):
    stamps = [{"sec": int(t // 10**9), "nanosec": int(t % 10**9)} for t in CLOCK]
    table = pa.table(
        {
            "timestamp_ns": TIMES,
            "boot": pa.array([None, *CLOCK[1:].tolist()], pa.uint64()),
            "seconds": (CLOCK - 123) / 1e9,
            "stamp2": stamps,
            "at": pa.array(TIMES + 5, pa.timestamp("ns", "UTC")),
            "name": ["a"] * 6,
        }
    )
    pq.write_table(table, tmp_path / "gps.parquet", row_group_size=4)
    return str(tmp_path / "gps.parquet")


def read(path, source, on_error="skip", **limits):
    request = TopicRequest(limits.pop("start", MIN_TIME), limits.pop("stop", MAX_TIME), (source,), **limits)
    return open_log([path], OpenOptions(on_error=on_error)).read({"/gps": request})["/gps"]


def test_numbers_stamps_and_timestamps_of_other_columns_are_times(path):
    ahead = START - 1000 * 10**9
    for source, times in (
        (StatedTime(None, "boot", "ns", ahead), (CLOCK + ahead)[1:]),
        (StatedTime(None, "seconds", "s", ahead), CLOCK - 123 + ahead),
        (StatedTime(None, "stamp2", "", ahead), CLOCK + ahead),
        (StatedTime(None, "at"), TIMES + 5),
        (StatedTime("log", offset=-7), TIMES - 7),
    ):
        assert read(path, source).time.tolist() == times.tolist(), source
        some = read(path, source, start=int(times[1]), stop=int(times[3]))
        assert some.time.tolist() == times[1:3].tolist()
        assert set(some.log_time.tolist()) <= set(TIMES.tolist())


def test_rows_without_a_time_or_far_from_their_log_time_are_refused(path):
    boot = StatedTime(None, "boot", "ns", START - 1000 * 10**9)
    (refusal,) = read(path, boot).refused
    assert (refusal.offset, refusal.unit, refusal.reason) == (0, "row", "its field boot has no time")
    with pytest.raises(LogReadError, match="its field boot has no time"):
        read(path, boot, on_error="fail")
    assert len(read(path, StatedTime(None, "boot", "ns")).refused) == 6
    assert len(read(path, StatedTime(None, "boot", "ns"), max_delay=None).refused) == 1


def test_a_column_that_is_no_time_names_the_nearest(path):
    log = open_log([path])
    for field, unit, why in (
        ("boots", "ns", "did you mean boot"),
        ("name", "ns", "is text, not a time"),
        ("boot", "", "without a unit"),
        ("at", "ns", "leave out `unit`"),
    ):
        with pytest.raises(UsageError, match=why):
            log.time_source("/gps", (StatedTime(None, field, unit),))


def test_stamps_without_one_of_their_parts_are_no_times_and_names_may_have_dots(tmp_path):
    kind = pa.struct([("sec", pa.int64()), ("nanosec", pa.int64())])
    stamps = [{"sec": 5, "nanosec": 1}, {"sec": None, "nanosec": 2}, {"sec": 5, "nanosec": None}, None]
    columns = {
        "timestamp_ns": TIMES[:4],
        "stamp": pa.array(stamps, kind),
        "gps.time [s]": [1.5, 2.5, None, 4.5],
    }
    pq.write_table(pa.table(columns), tmp_path / "gps.parquet")
    path = str(tmp_path / "gps.parquet")
    messages = read(path, StatedTime(field="stamp"), "salvage", max_delay=None)
    assert messages.time.tolist() == [5_000_000_001]
    assert len(messages.refused) == 3
    messages = read(path, StatedTime(field="gps.time [s]", unit="s"), "salvage", max_delay=None)
    assert messages.time.tolist() == [1_500_000_000, 2_500_000_000, 4_500_000_000]
