"""Guesses of how tables are written, held to what wrote them: pandas, in random dialects."""

import csv
import glob

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logloom.errors import LogloomError, LogReadError
from logloom.io.logs.interface import MAX_TIME, MIN_TIME, FieldSpec, OpenOptions, TopicRequest
from logloom.io.logs.opening import open_log
from logloom.io.logs.table_files.guesses import guess
from tests.cases import case

T0 = 1_700_000_000_000_000_000
ALL = TopicRequest(MIN_TIME, MAX_TIME, ("log",))
GUESSING = OpenOptions(guesses_tables=True)
ROWS = "1700000000,1.5,a\n1700000001,2.5,b\n"

TEXTS = [  # text, what is guessed
    (f"timestamp,v,note\n{ROWS}", {}),
    ("timestamp,v\n1700000000.5,1\n", {}),
    (f"%time,v,note\n{ROWS}", {"time": {"column": "%time", "unit": "s"}}),
    ("#timestamp [ns],v\n1700000000000000000,1\n", {"time": {"column": "#timestamp [ns]", "unit": "ns"}}),
    ("Time [s],v\n0.01,1\n0.02,2\n", {"time": {"column": "Time [s]", "unit": "s"}}),
    ("t,v\n0.01,1\n0.02,2\n", {"time": {"column": "t", "unit": "s"}}),
    ("time,v\n0.01,1\n0.02,2\n", {"time": {"column": "time", "unit": "s"}}),
    ("GPS time (ms),v\n17,1\n18,2\n", {"time": {"column": "GPS time (ms)", "unit": "ms"}}),
    (
        "Zeit;x\n1700000000,5;1,5\n",
        {"delimiter": ";", "decimal": ",", "time": {"column": "Zeit", "unit": "s"}},
    ),
    ("timestamp\tv\n1700000000\t1.5\n", {"delimiter": "tab"}),
    ("timestamp|v\n1700000000|1,5\n1700000001|1.5\n", {"delimiter": "|"}),
    ("timestamp;v\n1700000000;1,5\n", {"delimiter": ";", "decimal": ","}),
    (
        "%time;v\n1700000000;1,5\n",
        {"delimiter": ";", "decimal": ",", "time": {"column": "%time", "unit": "s"}},
    ),
    (
        "# time;v\n1700000000,5;1,5\n1700000001,5;2,5\n",
        {"delimiter": ";", "decimal": ",", "time": {"column": "# time", "unit": "s"}},
    ),
    ("# made by x, 2023\n# on y\ntimestamp,v\n1700000000,1\n", {"skip": 2}),
    ("sep=;\ntimestamp;v\n1700000000;1\n", {"delimiter": ";", "skip": 1}),
    (
        "# time x y z\n1700000000.5 1 2 3\n1700000000.6 1 2 3\n",
        {"delimiter": "space", "header": ["time", "x", "y", "z"], "skip": 1},
    ),
    (",v\n2023-11-14 22:13:20,1\n", {"time": {"column": "unnamed"}}),
    ("Date,Time,v\n2023-11-14,22:13:20,1\n", {"time": {"column": ["Date", "Time"]}}),
    (
        "Datum;Uhrzeit;v\n14.11.2023;22:13:20,5;1\n",
        {"delimiter": ";", "time": {"column": ["Datum", "Uhrzeit"]}},
    ),
    ("secs,nsecs,v\n1700000000,5,1\n", {"time": {"seconds": "secs", "nanoseconds": "nsecs"}}),
    (
        "field.header.seq,header.stamp.secs,header.stamp.nsecs,pose.x\n1,1700000000,5,1\n",
        {"time": {"seconds": "header.stamp.secs", "nanoseconds": "header.stamp.nsecs"}},
    ),
    ("v,header_stamp\n1,1700000000000\n", {"time": {"column": "header_stamp", "unit": "ms"}}),
    ("speed,lap_times\n1,2\n", {}),
    ("place,recorded_at,v\na,2023-11-14T22:13:20.25Z,1\n", {"time": {"column": "recorded_at"}}),
    ("place,seen\na,14.11.2023 22:13:20\n", {"time": {"column": "seen"}}),
    ("v,seen,utc\n1,2023-11-14 22:13:20,2023-11-14 22:13:21\n", {"time": {"column": "utc"}}),
    ("day,released\n1,2023-11-14\n", {}),
]


def test_dialects_and_times_are_guessed(tmp_path):
    path = tmp_path / "t.csv"
    for text, expected in TEXTS:
        path.write_text(text)
        with case(text):
            assert guess(str(path), GUESSING).to_data() == {"files": "t.csv", **expected}


def test_encodings_are_guessed(tmp_path):
    path, text = tmp_path / "t[1].csv", "timestamp,Länge\n1700000000,1\n"
    for encoding, expected in [
        ("utf-8", {}),
        ("utf-8-sig", {}),
        ("utf-16", {"encoding": "utf-16"}),
        ("utf-16-le", {"encoding": "utf-16-le"}),
        ("latin-1", {"encoding": "latin-1"}),
    ]:
        path.write_bytes(text.encode(encoding))
        with case(encoding):
            how = guess(str(path), GUESSING)
            assert how.to_data() == {"files": glob.escape("t[1].csv"), **expected}
            assert how.fits(str(path))
            log = open_log([str(path)], OpenOptions(tables=(how,)))
            taken = log.read({"/t[1]": ALL})["/t[1]"].take(FieldSpec(("Länge",)), np.array([0]))
            assert taken.tolist() == [1]


def test_times_of_parquet_are_guessed(tmp_path):
    path = tmp_path / "t.parquet"
    times = T0 + np.arange(3)
    stamp = [{"stamp": {"sec": 1700000000, "nanosec": i}, "frame_id": "a"} for i in range(3)]
    index = pd.DataFrame({"v": [1, 2, 3]}, index=pd.DatetimeIndex(times))
    for table, expected in [
        (pa.table({"timestamp_ns": times}), None),
        (pa.table({"timestamp": times / 1e9}), None),
        (pa.table({"v": times, "header": pa.array(stamp)}), {"column": "header.stamp"}),
        (
            pa.table({"sec": times // 10**9, "nanosec": times % 10**9}),
            {"seconds": "sec", "nanoseconds": "nanosec"},
        ),
        (pa.Table.from_pandas(index), {"column": "__index_level_0__"}),
        (pa.table({"v": [1, 2], "GPSTime": pa.array([1, 2], pa.timestamp("s"))}), {"column": "GPSTime"}),
        (pa.table({"v": [1, 2], "time": [0.5, 1e7 - 1]}), {"column": "time", "unit": "s"}),
        (pa.table({"v": [1, 2], "time": [0.5, 1e7]}), None),
        (pa.table({"sensor": [1.5], "speed": [2.5]}), None),
        (pa.table({"v": [1], "when": pa.array([1], pa.timestamp("us"))}), {"column": "when"}),
        (pa.table({"v": [1], "when": pa.array(["2023-11-14 22:13:20"])}), {"column": "when"}),
    ]:
        pq.write_table(table, path)
        with case(table.schema.names):
            assert guess(str(path), GUESSING).to_data().get("time") == expected


NAMES = [
    "speed [m/s]",
    "Torque, Request",
    "a.b.c",
    "Größe",
    "%load",
    'say "x"',
    "x",
    "x_2",
    "brake#1",
    "日本",
]


@st.composite
def dialects(draw):
    """How pandas writes a table, and the frame."""
    count = draw(st.integers(2, 12))
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True))
    floats = st.floats(-1e6, 1e6).map(lambda one: round(one, 4) + 0.00001)
    frame = pd.DataFrame({name: draw(st.lists(floats, min_size=count, max_size=count)) for name in names})
    steps = draw(st.lists(st.integers(1, 10**10), min_size=count, max_size=count))
    delimiter, decimal = draw(st.sampled_from([(",", "."), (";", ","), (";", "."), ("\t", "."), ("|", ",")]))
    encodings = ["utf-8", "utf-8-sig", "utf-16"]
    if "日本" not in names:
        encodings.append("latin-1")
    return frame, T0 + np.cumsum(steps), delimiter, decimal, draw(st.sampled_from(encodings))


@given(dialects(), st.sampled_from(["timestamp_ns", "Time [s]", "Zeit", "%time"]), st.integers(0, 2))
def test_guessed_tables_have_the_values_that_pandas_wrote(tmp_path_factory, written, time, comments):
    frame, times, delimiter, decimal, encoding = written
    path = tmp_path_factory.mktemp("guessed") / "t.csv"
    texts = {
        "timestamp_ns": [str(one) for one in times],
        "Time [s]": [f"{one // 10**9}{decimal}{one % 10**9:09d}" for one in times],
        "Zeit": [pd.Timestamp(one, tz="UTC").isoformat() for one in times],
        "%time": [str(one) for one in times],
    }
    frame = frame.assign(**{time: texts[time]})[[time, *frame.columns]]
    with path.open("w", encoding=encoding, newline="") as file:
        file.write("# a comment\n" * comments)
        frame.to_csv(file, index=False, sep=delimiter, decimal=decimal, quoting=csv.QUOTE_MINIMAL)
    log = open_log([str(path)], GUESSING)
    stated = OpenOptions(tables=tuple(log.dialects().values()))
    for options in (GUESSING, stated):
        log = open_log([str(path)], options)
        messages = log.read({"/t": ALL})["/t"]
        assert messages.time.tolist() == times.tolist()
        for name in frame.columns[1:]:
            values = messages.take(FieldSpec((name,)), np.arange(len(frame)))
            np.testing.assert_array_equal(values, frame[name].to_numpy())


def test_sweeps_have_their_times_from_their_names_whatever_their_columns_are(tmp_path):
    for i in range(3):
        table = pa.table({"time": [0.1, 0.2], "x": [1.0, 2.0]})
        pq.write_table(table, tmp_path / f"{T0 + i}.parquet")
    log = open_log([str(path) for path in tmp_path.iterdir()], GUESSING)
    (info,) = log.summary.topics.values()
    assert (info.num_messages, info.first) == (3, T0)


def test_a_build_never_guesses_but_prints_what_to_add(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("Zeit;x\n1700000000,5;1,5\n")
    with pytest.raises(LogReadError, match=r"write in the recipe") as caught:
        open_log([str(path)]).summary  # noqa: B018
    entry = "- {files: t.csv, delimiter: ;, decimal: ',', time: {column: Zeit, unit: s}}"
    assert str(caught.value).splitlines()[-2:] == ["tables:", entry]


HOSTILE = [
    (b"x" * (3 << 20), "1 is longer|first lines are longer"),
    (b"timestamp,v\n" + b"1" * (3 << 20), "straddling|fit 64"),
    (b"a\0b,c\n1,2\n", "line 1 has a NUL byte"),
    (b"timestamp,v\n1700000000,1\n1700000001,\0\n", "line 3 has a NUL byte"),
    (b"timestamp,v\n1700000000,1,5\n", r"line 2: Expected 2 columns, got 3"),
    (b"\xff\xfe\x00", "utf-16|has no"),
    (b"\n\n\n", "no lines"),
    (b'"when', "no time column"),
    (b'timestamp,v\n"1700000000,1\n', "can't be read"),
]


def test_hostile_text_is_refused_with_its_place(tmp_path):
    path = tmp_path / "t.csv"
    for data, message in HOSTILE:
        path.write_bytes(data)
        with case(data[:40]), pytest.raises(LogReadError, match=message) as caught:
            open_log([str(path)], GUESSING).summary  # noqa: B018
        assert str(path) in str(caught.value)


@given(st.binary(max_size=200) | st.text(',;\t|"#%.0123456789 \n\r\0äatime', max_size=200).map(str.encode))
def test_any_bytes_are_guessed_or_refused(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("any") / "t.csv"
    path.write_bytes(data)
    refusal = str(path)
    try:
        open_log([str(path)], GUESSING).summary  # noqa: B018
    except LogloomError as error:
        refusal = str(error)
    assert str(path) in refusal
