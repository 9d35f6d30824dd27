"""The times of rows: text, floats, pairs and local times, held to decimals and to `zoneinfo`."""

import datetime
import zoneinfo
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logloom.errors import LogReadError, UsageError
from logloom.io.logs.interface import MAX_TIME, MIN_TIME, OpenOptions
from logloom.io.logs.opening import open_log
from logloom.io.logs.table_dialects import TableDialect, TableTime
from logloom.io.logs.table_files.row_times import float_times, local_times, pair_times, text_times
from tests.cases import case
from tests.tier import by_tier

T0 = 1_700_000_000_000_000_000  # 2023-11-14 22:13:20 UTC
SECONDS = T0 // 10**9


def times(path, time=None, **dialect):
    how = TableDialect(path.name, time=time, **dialect)
    log = open_log([str(path)], OpenOptions("salvage", tables=(how,)))
    return log._topics["/t"].time.tolist()


CSV = [  # text, time, dialect, ns
    ("timestamp,v\n1700000000.123456789,1\n1700000000.1,2\n", None, {}, [T0 + 123456789, T0 + 10**8]),
    ("timestamp,v\n1700000000.1234567899,1\n1.7e9,2\n", None, {}, [T0 + 123456789, T0]),
    ("time_ms;v\n1700000000000,25;1\n", TableTime(("time_ms",), "ms"), {"delimiter": ";"}, [T0 + 250_000]),
    ("t,v\n-0.5,1\n+.25,2\n3.,1\n", TableTime(("t",), "s"), {}, [-5 * 10**8, 25 * 10**7, 3 * 10**9]),
    ("t,v\n5,1\n7,2\n", TableTime(("t",), "us"), {}, [5000, 7000]),
    ("timestamp,v\n1700000000.5,1\n,2\nNaN,3\nbroken,4\n", None, {}, [T0 + 5 * 10**8] + [MIN_TIME] * 3),
    (
        "s,n,v\n1700000000,5,1\n,5,2\n1700000001,,3\n",
        TableTime((), "", "", "s", "n"),
        {},
        [T0 + 5, *[MIN_TIME] * 2],
    ),
    ("time\n2023-11-14T23:13:20.123456789+01:00\n2023-11-14 22:13:20Z\n", None, {}, [T0 + 123456789, T0]),
    ("Zeit;v\n14.11.2023 22:13:20,5;1\n", TableTime(("Zeit",)), {"delimiter": ";"}, [T0 + 5 * 10**8]),
    ("time,v\n2023/11/14 22:13:20,1\n2023-02-30 00:00:00,2\n", None, {}, [T0, MIN_TIME]),
    ("d,h\n2023-11-14,22:13:20.000000001\n", TableTime(("d", "h")), {}, [T0 + 1]),
    ("d,h\n4.1.2023,1:02:03\n", TableTime(("d", "h")), {}, [1672794123 * 10**9]),
    ("time,v\n2023-11-14 23:13:20,1\n", TableTime(("time",), "", "Europe/Berlin"), {}, [T0]),
    ("time,v\n2023-11-14 17:13:20.5,1\n", TableTime(("time",), "", "-05:00"), {}, [T0 + 5 * 10**8]),
    (
        "time,v\n2023-10-29 02:30:00,1\n2023-10-29 03:30:00,2\n2023-03-26 02:30:00,3\n",
        TableTime(("time",), "", "Europe/Berlin"),
        {},
        [MIN_TIME, 1698546600 * 10**9, MIN_TIME],
    ),
    ("# made by x\n\n1700000000,1\n", TableTime(("column_1",)), {"header": False, "skip": 1}, [T0]),
    ("1700000000 1\n", TableTime(("t",)), {"header": ("t", "v"), "delimiter": " "}, [T0]),
    ("time,v\n\n", None, {}, []),
]


def test_times_in_csv_are_exact(tmp_path):
    path = tmp_path / "t.csv"
    for text, time, dialect, expected in CSV:
        path.write_text(text)
        with case(text):
            assert times(path, time, **dialect) == expected


def test_a_time_is_named_as_in_the_file_also_if_its_column_is_renamed(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("Zeit,v\n2023-11-14 22:13:20,1\n")
    assert times(path, TableTime(("Zeit",)), columns=(("Zeit", "when"),)) == [T0]
    assert times(path, TableTime(("when",)), columns=(("Zeit", "when"),)) == [T0]


def test_times_in_parquet_have_the_type_of_their_columns(tmp_path):
    path, three = tmp_path / "t.parquet", [T0 + 123, None, T0 + 10**9 + 7]
    stamps = [one and {"sec": one // 10**9, "nanosec": one % 10**9} for one in three]
    exact, lost = [one or MIN_TIME for one in three], [T0, MIN_TIME, T0 + 10**9]
    for column, time, expected in [
        (pa.array(three), TableTime(("t",)), exact),
        (pa.array([one and {"stamp": one} for one in stamps]), TableTime(("t.stamp",)), exact),
        (pa.array(stamps), TableTime(("t",)), exact),
        (pa.array([one and {"a": one} for one in three]), TableTime(("t.a",), "ns"), exact),
        (pa.array([one and one / 1e9 for one in three]), TableTime(("t",)), lost),
        (pa.array([one and Decimal(one) / 10**9 for one in three]), TableTime(("t",)), exact),
        (pa.array([one and str(one) for one in three]).dictionary_encode(), TableTime(("t",)), exact),
        (pa.array(three, pa.timestamp("ns", "Asia/Tokyo")), TableTime(("t",)), exact),
        (pa.nulls(3), TableTime(("t",)), [MIN_TIME] * 3),
    ]:
        pq.write_table(pa.table({"t": column, "v": [1, 2, 3]}), path)
        with case(str(column.type)):
            assert times(path, time) == expected


def test_times_that_are_none_are_refused(tmp_path):
    path = tmp_path / "t.csv"
    for text, time, message in [
        ("time,v\nsoon,1\n", None, r"t\.csv: column time: its times are text such as 'soon'"),
        ("t,v\n1,1\n", TableTime(("when",)), r"tables\.time: .*t\.csv has no column 'when'.*has t, v"),
        ("t,v\n0.5,1\n", TableTime(("t",)), r"integers 0 to 0, of unknown unit.*unit: ms"),
        ("t,v\n99999999999.5,1\n", TableTime(("t",), "s"), "don't fit 64 bits"),
        ("t,v\n1e300,1\n", TableTime(("t",), "s"), "don't fit 64 bits"),
        ("t,v\ntrue,1\n", TableTime(("t",)), "its times are bool"),
        ("time,v\n5,1\n", TableTime(("time",), "", "Europe/Berlin"), "int64, which have no zone"),
        ("time,v\n2023-11-14 23:13:20Z,1\n", TableTime(("time",), "", "Asia/Tokyo"), "have the zone UTC"),
        ("s,n\n5,0.5\n", TableTime((), "", "", "s", "n"), "truncated"),
        ("s,n\nx,5\n", TableTime((), "", "", "s", "n"), "not whole numbers"),
    ]:
        path.write_text(text)
        options = OpenOptions(tables=(TableDialect("t.csv", time=time),))
        with case(text), pytest.raises((LogReadError, UsageError), match=message):
            open_log([str(path)], options).summary  # noqa: B018


DECIMALS = st.decimals("-9000000000", "9000000000", places=12, allow_nan=False)


@given(
    st.lists(DECIMALS, min_size=1), st.sampled_from([("s", 9), ("ms", 6), ("us", 3), ("ns", 0)]), st.data()
)
def test_decimal_text_is_read_like_decimals(numbers, unit, data):
    unit, digits = unit
    ways = [lambda one: f"{one:f}", lambda one: f"{one:e}", lambda one: f" {one:f}".replace(".", ",")]
    texts = [data.draw(st.sampled_from(ways))(one) for one in numbers]
    (found,) = text_times("t", [pa.chunked_array([texts])], TableTime(("t",), unit))
    assert found.tolist() == [int(one.scaleb(digits)) for one in numbers]


@given(st.lists(st.floats(-9e9, 9e9) | st.just(float("nan")), min_size=1))
def test_floats_are_rounded_to_the_nearest_nanosecond(numbers):
    (found,) = float_times("t", [pa.chunked_array([pa.array(numbers, from_pandas=False)])], "s")
    for one, time in zip(numbers, found.tolist(), strict=True):
        if np.isnan(one):
            assert time == MIN_TIME
        else:
            assert abs(Decimal(one) * 10**9 - time) <= Decimal("0.5")


@given(
    st.lists(st.integers(0, 2_114_000_000), min_size=1),
    st.sampled_from(["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "UTC", "+05:30"]),
)
def test_local_times_are_those_of_zoneinfo(seconds, zone):
    plain = [datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=one) for one in seconds]
    found = local_times(pa.chunked_array([pa.array(plain, pa.timestamp("s"))]), zone).tolist()
    offset = datetime.timezone(datetime.timedelta(hours=5, minutes=30))
    clock = offset if zone == "+05:30" else zoneinfo.ZoneInfo(zone)
    for one, time in zip(plain, found, strict=True):
        both = {int(one.replace(tzinfo=clock, fold=fold).timestamp()) for fold in (0, 1)}
        assert time == (both.pop() * 10**9 if len(both) == 1 else MIN_TIME)


def test_local_times_whose_rules_nobody_knows_are_none():
    late = pa.array([datetime.datetime(2036, 7, 1), datetime.datetime(2037, 7, 1)], pa.timestamp("s"))
    found = local_times(pa.chunked_array([late]), "Europe/Berlin").tolist()
    assert found == [2_098_476_000 * 10**9, MIN_TIME]


@given(st.lists(st.text("0123456789.,-+eE :TZnaif/", max_size=24), min_size=1))
def test_any_text_is_a_time_or_none(texts):
    try:
        (found,) = text_times("t", [pa.chunked_array([texts])], TableTime(("t",), "s"))
    except UsageError:
        return
    assert all(time == MIN_TIME or -MAX_TIME <= time <= MAX_TIME for time in found.tolist())


def test_reading_a_million_decimal_texts_takes_no_python_for_each():
    count = by_tier(200_000, 1_000_000)
    texts = pa.array(np.arange(count)).cast(pa.string())
    texts = pa.compute.binary_join_element_wise(pa.scalar("17"), texts, ".5", "")
    (found,) = text_times("t", [pa.chunked_array([texts])], TableTime(("t",), "ms"))
    assert len(np.unique(found)) == count


def test_times_whose_fraction_leaves_64_bits_are_refused():
    last = MAX_TIME // 10**9  # whole seconds
    text = pa.chunked_array([[f"{last}.9"]])
    with pytest.raises(UsageError, match="don't fit 64 bits"):
        text_times("t", [text], TableTime(("t",), "s"))
    with pytest.raises(UsageError, match="don't fit 64 bits"):
        pair_times(pa.chunked_array([[last]]), pa.chunked_array([[10**9]]))
    assert pair_times(pa.chunked_array([[5]]), pa.chunked_array([[4 * 10**9]])).tolist() == [9 * 10**9]


@pytest.mark.parametrize(("kind", "step"), [(pa.float64(), 238), (pa.float32(), 128 * 10**9)])
def test_notes_say_what_floats_of_a_type_resolve(tmp_path, kind, step):
    path = tmp_path / "t.parquet"
    pq.write_table(
        pa.table(
            {"timestamp": pa.array([float(SECONDS), SECONDS + 500.0]).cast(kind, safe=False), "v": [1, 2]}
        ),
        path,
    )
    how = TableDialect(path.name, time=TableTime(("timestamp",), "s"))
    log = open_log([str(path)], OpenOptions(tables=(how,)))
    assert log.time_notes(str(path)) == [f"float seconds resolve {step} ns here"]
