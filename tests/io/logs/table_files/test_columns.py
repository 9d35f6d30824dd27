"""Columns of tables: any names, types that messages lack, and cells without a value."""

import datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.feather as pf
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from logloom.blocks import Ragged
from logloom.errors import LogReadError, UsageError
from logloom.io.logs.interface import MAX_TIME, MIN_TIME, FieldSpec, OpenOptions, TopicRequest
from logloom.io.logs.opening import open_log
from logloom.io.logs.table_dialects import TableDialect, unique
from logloom.io.logs.table_files.files import ParquetTable
from tests.cases import case

T0 = 1_700_000_000_000_000_000
ALL = TopicRequest(MIN_TIME, MAX_TIME, ("log",))


def write(path, table):
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=2)
    elif path.suffix == ".feather":
        pf.write_feather(table, str(path), chunksize=2)
    return path


def taken(log, *fields, **more):
    messages = log.read({"/t": ALL})["/t"]
    return messages.take(FieldSpec(fields, **more), np.arange(len(messages)))


def held(log, *fields, **more):
    messages = log.read({"/t": ALL})["/t"]
    found = messages.has_value(FieldSpec(fields, **more))
    return [True] * len(messages) if found is None else found.tolist()


NAMES = [
    "speed [m/s]",
    "Torque, Request",
    "a.b",
    "%load",
    'say "x"',
    "Länge",
    "日本",
    "x y[0]",
    "#1",
    "1st",
    "a/b\\c",
]


@pytest.mark.parametrize("suffix", [".parquet", ".feather"])
def test_a_path_names_a_column_of_any_name(tmp_path, suffix):
    inner = pa.array([{"b": -1.0, "c d": -2.0, "x y[0]": -3.0}] * 3)
    arrays = [pa.array([i + 0.5] * 3) for i in range(len(NAMES))]
    pairs = pa.FixedSizeListArray.from_arrays(np.arange(6.0), 2)
    names = ["timestamp_ns", *NAMES, "a", "s.t", "list [2]"]
    table = pa.table([pa.array(T0 + np.arange(3)), *arrays, inner, inner, pairs], names=names)
    log = open_log([str(write(tmp_path / f"t{suffix}", table))])
    for i, name in enumerate(NAMES):
        with case(name):
            assert taken(log, name).tolist() == [i + 0.5] * 3
    assert taken(log, "a.b").tolist() == [2.5] * 3  # the column, not the field of `a`
    for path in ("a.c d", "s.t.c d"):
        assert taken(log, path).tolist() == [-2.0] * 3
    assert taken(log, "s.t.x y[0]", "a.x y[0]").tolist() == [[-3.0, -3.0]] * 3
    assert taken(log, "list [2]").tolist() == [[0, 1], [2, 3], [4, 5]]
    assert taken(log, "list [2][1]").tolist() == [1, 3, 5]
    for path, message in [
        ("speed", r"no 'speed'; did you mean .*speed \[m/s\]"),
        ("speed [m/s", r"paths look like.*speed \[m/s\]"),
        ("speed [m/s][0]", "no array"),
        ("s.t.q", "has no 'q'"),
        ("list [2][7]", "has 2 elements"),
        ("", "paths look like"),
    ]:
        with case(path), pytest.raises(UsageError, match=message):
            log.column_type("/t", FieldSpec((path,)))


@pytest.mark.parametrize("suffix", [".parquet", ".feather"])
def test_a_name_that_is_there_twice_has_a_number(tmp_path, suffix):
    names = ["timestamp_ns", "v", "w", "v", "v_2", "v"]
    columns = [pa.array(T0 + np.arange(3)), *(pa.array([i] * 3) for i in range(5))]
    path = write(tmp_path / f"t{suffix}", pa.table(columns, names=names))
    log = open_log([str(path)])
    found = {name: taken(log, name)[0] for name in ("v", "w", "v_3", "v_2", "v_4")}
    assert found == {"v": 0, "w": 1, "v_3": 2, "v_2": 3, "v_4": 4}
    renamed = TableDialect("*", columns=(("v_3", "second"), ("w", "my w")))
    log = open_log([str(path)], OpenOptions(tables=(renamed,)))
    assert [taken(log, name)[0] for name in ("v", "second", "my w", "v_4")] == [0, 2, 1, 4]
    for pairs, message in [
        ((("u", "x"),), r"tables\.columns: .*no column 'u'.*timestamp_ns, v, w, v_3, v_2, v_4"),
        ((("w", "v"),), "two columns 'v'"),
    ]:
        with pytest.raises(UsageError, match=message):
            open_log([str(path)], OpenOptions(tables=(TableDialect("*", columns=pairs),))).summary  # noqa: B018


@given(st.lists(st.sampled_from(["a", "a_2", "a_3", "", " a", "unnamed", "b"]), max_size=8))
def test_names_become_unique_and_those_that_are_stay(names):
    found = unique(names)
    assert len(set(found)) == len(found) == len(names)
    plain = [name.strip() or "unnamed" for name in names]
    assert all(found[plain.index(name)] == name for name in plain)


def test_types_that_messages_lack_have_the_nearest(tmp_path):
    day = datetime.date(2023, 11, 14)
    columns = {
        "timestamp_ns": pa.array([T0, T0 + 1]),
        "price": pa.array([Decimal("0.10"), Decimal("123456789012345.67")], pa.decimal128(20, 2)),
        "whole": pa.array([Decimal(7), Decimal(-(10**17))], pa.decimal128(18, 0)),
        "id": pa.array([Decimal(2**53 + 1), Decimal(-(2**63))], pa.decimal128(38, 0)),
        "huge": pa.array([Decimal(-1), Decimal(2**63)], pa.decimal256(40, 0)),
        "day": pa.array([day, day]),
        "hour": pa.array([datetime.time(1, 2, 3, 4)] * 2),
        "u": pa.array([1, (1 << 64) - 1], pa.uint64()),
        "text": pa.array(["a", "ü"], pa.string_view()),
        "large": pa.array(["a", "b"], pa.large_string()),
        "bytes": pa.array([b"a", b"bc"], pa.binary_view()),
        "views": pa.array([[1, 2], []], pa.list_view(pa.int32())),
        "wait": pa.array([1, 2], pa.duration("ms")),
        "one": pa.array(["a", "b"]).dictionary_encode(),
        "map": pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int64())),
        "deep": pa.array([[[1]], []]),
        "nothing": pa.nulls(2),
    }
    path = tmp_path / "t.feather"
    pf.write_feather(pa.table(columns), str(path), compression="uncompressed")
    log = open_log([str(path)])
    midnight = 1699920000 * 10**9
    for name, expected in [
        ("price", [0.10, 123456789012345.67]),
        ("whole", [7, -(10**17)]),
        ("id", [2**53 + 1, -(2**63)]),
        ("day", [midnight] * 2),
        ("hour", [3_723_000_004_000] * 2),
        ("u", [1, (1 << 64) - 1]),
        ("wait", [10**6, 2 * 10**6]),
    ]:
        with case(name):
            values = taken(log, name)
            assert values.tolist() == expected
            assert log.column_type("/t", FieldSpec((name,))).dtype == values.dtype
    for name, texts in [("text", "aü"), ("large", "ab"), ("one", "ab")]:
        assert [row.tobytes().decode() for row in taken(log, name)] == list(texts)
    assert [row.tobytes() for row in taken(log, "bytes")] == [b"a", b"bc"]
    assert [row.tolist() for row in taken(log, "views")] == [[1, 2], []]
    with pytest.raises(LogReadError, match=r"huge at row 1: huge is 9223372036854775808, which doesn't fit"):
        taken(log, "huge")
    left_out = log.left_out("/t")
    assert set(left_out) == {"timestamp_ns", "map", "deep", "nothing"}
    assert left_out["map"] == "map<string, int64>: no column has this type"


HOLES = {
    "i": pa.array([1, None, 3]),
    "f": pa.array([None, 2.0, float("nan")], from_pandas=False),
    "b": pa.array([True, None, False]),
    "t": pa.array(["a", "", None]),
    "d": pa.array(["a", None, "b"]).dictionary_encode(),
    "when": pa.array([None, 5, 6], pa.timestamp("ns")),
    "list": pa.array([[1, None], None, [3]]),
    "floats": pa.array([[1.0, None], None, []]),
    "s": pa.array([{"x": 1, "y": None}, {"x": None, "y": 1.0}, None]),
    "boxes": pa.array([[{"n": "a", "w": 1.0}], [{"n": None, "w": 1.0}], [{"n": "b", "w": None}]]),
    "dec": pa.array([Decimal("1.5"), None, None], pa.decimal128(5, 1)),
}


@pytest.mark.parametrize("suffix", [".parquet", ".feather"])
def test_a_null_cell_means_that_the_row_has_no_value(tmp_path, suffix):
    table = pa.table({"timestamp_ns": T0 + np.arange(3), **HOLES})
    log = open_log([str(write(tmp_path / f"t{suffix}", table))])
    for fields, expected in [
        (["timestamp_ns"], [1, 1, 1]),
        (["i"], [1, 0, 1]),
        (["f"], [0, 1, 1]),
        (["f", "dec"], [0, 0, 0]),
        (["b"], [1, 0, 1]),
        (["t"], [1, 1, 0]),
        (["d"], [1, 0, 1]),
        (["when"], [0, 1, 1]),
        (["list"], [0, 0, 1]),
        (["floats"], [1, 0, 1]),
        (["s"], [1, 0, 0]),
        (["s.x"], [1, 0, 0]),
        (["s.y"], [0, 1, 0]),
        (["boxes"], [1, 0, 1]),
        (["boxes[].n"], [1, 0, 1]),
        (["boxes[].w"], [1, 1, 1]),
        (["dec"], [1, 0, 0]),
    ]:
        with case(fields):
            assert held(log, *fields) == [bool(one) for one in expected]
            messages = log.read({"/t": ALL})["/t"]
            rows = np.flatnonzero(expected)
            if fields != ["s"]:
                assert len(messages.take(FieldSpec(tuple(fields)), rows)) == len(rows)
    floats = taken(log, "f")
    assert np.isnan(floats[[0, 2]]).all()


LISTS_OF_ROWS = {
    "n": pa.array([[1, 2, 3], [4], [], None, [None, 5]], pa.list_(pa.int64())),
    "b": pa.array([b"\1\2\3", b"\4", b"", None, b"\0\5"]),
    "boxes": pa.array([[{"x": 1, "t": [7, 8]}], [{"x": None, "t": [9]}], [], None, [{"x": 2, "t": []}]]),
}


@pytest.mark.parametrize("suffix", [".parquet", ".feather"])
@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("n[0]", {0: 1, 1: 4}),
        ("n[1]", {0: 2, 4: 5}),
        ("n[1:3]", {0: [2, 3]}),
        ("b[0]", {0: 1, 1: 4, 4: 0}),
        ("b[0:2]", {0: [1, 2], 4: [0, 5]}),
        ("boxes[0].x", {0: 1, 4: 2}),
        ("boxes[0].t", {0: [7, 8], 1: [9], 4: []}),
        ("boxes[0].t[1]", {0: 8}),
    ],
)
def test_a_row_whose_list_is_too_short_has_no_value(tmp_path, suffix, path, expected):
    fields = [pa.field("timestamp_ns", pa.int64(), nullable=False)]
    fields += [pa.field(name, array.type) for name, array in LISTS_OF_ROWS.items()]
    table = pa.table([pa.array(T0 + np.arange(5)), *LISTS_OF_ROWS.values()], pa.schema(fields))
    log = open_log([str(write(tmp_path / f"t{suffix}", table))])
    assert held(log, path) == [row in expected for row in range(5)]
    values = log.read({"/t": ALL})["/t"].take(FieldSpec((path,)), np.array([*expected]))
    assert [row.tolist() for row in values] == list(expected.values())


def test_a_short_list_that_is_never_null_has_no_value_either(tmp_path):
    lists = pa.array([[1], [2, 3]], pa.list_(pa.field("item", pa.int64(), nullable=False)))
    fields = [pa.field("timestamp_ns", pa.int64()), pa.field("n", lists.type, nullable=False)]
    table = pa.table([pa.array(T0 + np.arange(2)), lists], pa.schema(fields))
    assert held(open_log([str(write(tmp_path / "t.parquet", table))]), "n[1]") == [False, True]


def test_a_row_that_lacks_a_joint_has_no_value(tmp_path):
    table = pa.table(
        {
            "timestamp_ns": T0 + np.arange(5),
            "name": [["a", "b"], ["b", "a"], ["a"], None, ["a", "b"]],
            "position": [[1.0, 2.0], [3.0, 4.0], [5.0], [6.0, 7.0], []],
        }
    )
    log = open_log([str(write(tmp_path / "t.parquet", table))])
    spec = FieldSpec(("position",), "joints", names=("a", "b"))
    messages = log.read({"/t": ALL})["/t"]
    assert messages.has_value(spec).tolist() == [True, True, False, False, False]
    assert messages.take(spec, np.array([0, 1])).tolist() == [[1, 2], [4, 3]]


def test_an_empty_cell_of_csv_is_none_and_nan_a_number(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text('timestamp_ns,i,f,t,n\n1,1,NaN,a,\n2,,2.5,,\n3,NA,,"",\n4,4,inf,NA,\n')
    log = open_log([str(path)], OpenOptions(tables=(TableDialect("*"),)))
    assert held(log, "i") == [True, False, False, True]
    assert held(log, "f") == [True, True, False, True]
    assert held(log, "t") == [True, False, False, True]
    np.testing.assert_array_equal(taken(log, "f"), [np.nan, 2.5, np.nan, np.inf])
    texts = taken(log, "t")
    assert isinstance(texts, Ragged)
    assert texts[3].tobytes() == b"NA"
    assert "n" in log.left_out("/t")
    assert [len(log.last_message("/t", FieldSpec((name,)))) for name in ("i", "f")] == [1, 1]
    assert log.last_message("/t", FieldSpec(("t",))).time.tolist() == [4]


@pytest.mark.parametrize(
    ("cells", "dtype", "expected"),
    [
        ([2**63 + 1, 2**64 - 1, 5], "uint64", [2**63 + 1, 2**64 - 1, 5]),
        ([5] * 200_000 + [f" {2**63 + 1} "], "uint64", [5] * 200_000 + [2**63 + 1]),
        ([2**63 + 1, -1], "string", [b"9223372036854775809", b"-1"]),
        ([2**64, 7], "string", [b"18446744073709551616", b"7"]),
        ([2**53 + 1, 7], "int64", [2**53 + 1, 7]),
        ([f"+{2**62 + 1}", "-07"], "int64", [2**62 + 1, -7]),
        ([f"+{2**63 + 1}", 7], "uint64", [2**63 + 1, 7]),
        ([2**53 + 1, 0.5], "float64", [2.0**53, 0.5]),
        (["1e300", "-inf"], "float64", [1e300, -np.inf]),
    ],
)
def test_integers_of_csv_are_exact_unless_a_cell_is_no_integer(tmp_path, cells, dtype, expected):
    path = tmp_path / "t.csv"
    path.write_text("timestamp_ns,v\n" + "".join(f"{row},{cell}\n" for row, cell in enumerate(cells)))
    log = open_log([str(path)])
    values = taken(log, "v")
    if dtype == "string":
        assert [row.tobytes() for row in values] == expected
    else:
        assert (values.dtype, values.tolist()) == (np.dtype(dtype), expected)


def test_large_integers_of_csv_have_no_value_where_cells_are_empty_or_nan(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(f"timestamp_ns,v\n1,{2**62 + 1}\n2,\n3,NA\n4,nan\n5,7\n")
    log = open_log([str(path)])
    assert held(log, "v") == [True, False, False, False, True]
    messages = log.read({"/t": ALL})["/t"]
    assert messages.take(FieldSpec(("v",)), np.array([0, 4])).tolist() == [2**62 + 1, 7]


@pytest.mark.parametrize("rows", [3, 100_000])
def test_cells_of_csv_in_quotes_may_have_line_breaks(tmp_path, rows):
    path = tmp_path / "t.csv"
    path.write_text("timestamp_ns,v\n" + "".join(f'{row},"{row}\n""b"","\n' for row in range(rows)))
    values = taken(open_log([str(path)]), "v")
    assert [row.tobytes().decode() for row in values] == [f'{row}\n"b",' for row in range(rows)]


def test_the_last_message_with_a_value_is_looked_for_from_the_end(tmp_path, monkeypatch):
    values = [5, None, None, None, None, None, 7, None]
    table = pa.table({"timestamp_ns": T0 + np.arange(8), "v": pa.array(values), "w": pa.nulls(8, pa.int8())})
    log = open_log([str(write(tmp_path / "t.parquet", table))])
    log.summary  # noqa: B018 (reads the times)
    plain, read = ParquetTable.read, []
    monkeypatch.setattr(ParquetTable, "read", lambda *a: read.append(a[1]) or plain(*a))
    assert log.last_message("/t", FieldSpec(("v",))).time.tolist() == [T0 + 6]
    assert read == [3]
    assert len(log.last_message("/t", FieldSpec(("w",)))) == 0
    assert log.last_message("/t").time.tolist() == [T0 + 7]


@given(st.lists(st.one_of(st.none(), st.integers(-9, 9)), min_size=1, max_size=9))
def test_rows_with_values_have_those_that_were_written(tmp_path_factory, numbers):
    path = tmp_path_factory.mktemp("holes") / "t.parquet"
    write(path, pa.table({"timestamp_ns": T0 + np.arange(len(numbers)), "v": pa.array(numbers, pa.int8())}))
    log = open_log([str(path)])
    known = held(log, "v")
    assert known == [one is not None for one in numbers]
    values = log.read({"/t": ALL})["/t"].take(FieldSpec(("v",)), np.flatnonzero(known))
    assert values.tolist() == [one for one in numbers if one is not None]


POINT = pa.struct([("x", pa.float64()), ("n", pa.int32()), ("many", pa.list_(pa.int32()))])
LISTS = st.none() | st.lists(st.none() | st.integers(-9, 9), max_size=4)
POINTS = st.none() | st.lists(
    st.none()
    | st.fixed_dictionaries({"x": st.none() | st.just(0.5), "n": st.none() | st.just(7), "many": LISTS}),
    max_size=3,
)


@given(rows=st.lists(st.tuples(LISTS, POINTS), min_size=1, max_size=7))
@example(rows=[([None, 1, 2], None), ([3, 4, 5, None], None)])
def test_rows_have_the_picked_elements_that_a_loop_finds(tmp_path_factory, rows):
    numbers, points = zip(*rows, strict=True)
    table = pa.table(
        {
            "timestamp_ns": [T0 + i for i in range(len(rows))],
            "a": pa.array(numbers, pa.list_(pa.int32())),
            "p": pa.array(points, pa.list_(POINT)),
        }
    )
    log = open_log([str(write(tmp_path_factory.mktemp("lists") / "t.parquet", table))], OpenOptions())
    nan = float("nan")
    loops = {
        "a": lambda a, p: a,
        "a[0]": lambda a, p: a[0],
        "a[2]": lambda a, p: a[2],
        "a[1:3]": lambda a, p: [a[1], a[2]],
        "p[].n": lambda a, p: [one["n"] for one in p],
        "p[].x": lambda a, p: [nan if one["x"] is None else one["x"] for one in p],
        "p[0].x": lambda a, p: nan if p[0]["x"] is None else p[0]["x"],
        "p[1].many": lambda a, p: p[1]["many"],
        "p[0].many[1]": lambda a, p: p[0]["many"][1],
    }
    for field, loop in loops.items():
        expected = []
        for a, p in rows:
            try:
                found = loop(a, p)
            except (TypeError, IndexError):  # of null, or too short
                found = None
            nothing = found is None or (isinstance(found, list) and None in found)
            expected.append(None if nothing else found)
        assert held(log, field) == [one is not None for one in expected], field
        messages = log.read({"/t": ALL})["/t"]
        usable = [i for i, one in enumerate(expected) if one is not None]
        values = messages.take(FieldSpec((field,)), np.array(usable, np.intp))
        for row, value in zip(usable, values, strict=True):
            np.testing.assert_array_equal(value, expected[row], field)


def test_lists_that_may_not_be_null_may_be_short(tmp_path):
    field = pa.field("a", pa.list_(pa.field("item", pa.int8(), nullable=False)), nullable=False)
    columns = [pa.array([T0, T0 + 1]), pa.array([[1], [2, 3]], field.type)]
    schema = pa.schema([pa.field("timestamp_ns", pa.int64(), nullable=False), field])
    path = write(tmp_path / "t.parquet", pa.Table.from_arrays(columns, schema=schema))
    assert held(open_log([str(path)], OpenOptions()), "a[1]") == [False, True]


def test_text_columns_within_lists_of_lists_name_no_files_and_those_with_nulls_do(tmp_path):
    for name in ("a.bin", "b.bin"):
        (tmp_path / name).write_bytes(b"1")
    table = pa.table(
        {
            "timestamp_ns": [T0, T0 + 1, T0 + 2],
            "file": ["a.bin", None, "b.bin"],
            "p": pa.array([[], None, []], pa.list_(POINT)),
        }
    )
    path = str(write(tmp_path / "t.parquet", table))
    before = open_log([path], OpenOptions()).summary.content_id
    (tmp_path / "a.bin").write_bytes(b"12")  # in a row group with a null
    assert open_log([path], OpenOptions()).summary.content_id != before


def test_rows_lack_the_joints_of_other_publishers_as_messages_do(tmp_path):
    interfaces = pa.struct([("interface_names", pa.list_(pa.string())), ("values", pa.list_(pa.float64()))])
    both = [{"interface_names": ["effort", "position"], "values": [9, value]} for value in (1, 2)]
    table = pa.table(
        {
            "timestamp_ns": [T0 + i for i in range(5)],
            "name": [["a", "b"], ["b"], ["b", "a"], None, ["b", "b"]],
            "position": pa.array([[1, 2], [3], [], [4], [5, 6]], pa.list_(pa.float64())),
            "states": pa.array([both, both[:1], both, [], both], pa.list_(interfaces)),
        }
    )
    log = open_log([str(write(tmp_path / "t.parquet", table))], OpenOptions())
    messages = log.read({"/t": ALL})["/t"]
    for field, names, has, values in (
        ("position", ("a",), [0], [[1]]),
        ("position", ("b", "a"), [0], [[2, 1]]),
        ("position", ("b",), [0, 1, 4], [[2], [3]]),  # the last has it twice
        ("states.position", ("a",), [0, 2], [[1], [2]]),
    ):
        spec = FieldSpec((field,), adapter="joints", names=names)
        assert np.flatnonzero(messages.has_value(spec)).tolist() == has
        assert messages.take(spec, np.array(has[: len(values)])).tolist() == values
    with pytest.raises(LogReadError, match="at row 4: it has the joint 'b' twice"):
        messages.take(FieldSpec(("position",), adapter="joints", names=("b",)), np.array([0, 4]))


def test_rows_of_images_without_pixels_have_no_value(tmp_path):
    table = pa.table({"timestamp_ns": [T0, T0 + 1], "format": ["png", "png"], "data": [b"", b"x"]})
    assert held(open_log([str(write(tmp_path / "t.parquet", table))], OpenOptions()), adapter="image") == [
        False,
        True,
    ]


def test_thousands_of_columns_are_named_and_opened_in_linear_time(tmp_path):
    names = unique(["v"] * 100_000)
    assert names[:3] == ["v", "v_2", "v_3"]
    assert len(set(names)) == len(names)
    path = tmp_path / "t.csv"
    path.write_text("timestamp_ns" + ",v.s" * 20_000 + "\n" + str(T0) + ",1" * 20_000 + "\n")
    assert taken(open_log([str(path)], OpenOptions()), "v.s_20000").tolist() == [1]


@pytest.mark.parametrize("suffix", [".parquet", ".feather"])
def test_lists_within_lists_of_structs_are_read_with_both_lengths(suffix, tmp_path):
    deep = pa.struct([("name", pa.string()), ("values", pa.list_(pa.float64()))])
    rows = [[[1.0, 2.0], []], [], [[3.0]], [[4.0, 5.0, 6.0], [7.0], [8.0]]]
    structs = [[{"name": "a", "values": values} for values in row] for row in rows]
    stamps = pa.array([T0 + i for i in range(len(rows))], pa.timestamp("ns"))
    table = pa.table({"timestamp": stamps, "deeps": pa.array(structs, pa.list_(deep))})
    log = open_log([str(write(tmp_path / f"t{suffix}", table))])
    found = taken(log, "deeps[].values")
    assert [[values.tolist() for values in row] for row in found] == rows
    first = taken(log, "deeps[].values[0]")
    expected = [[row[0] if row else np.nan for row in one] for one in rows]
    for values, wanted in zip(first, expected, strict=True):
        np.testing.assert_array_equal(values, wanted)
    assert held(log, "deeps[].values[0]") == [True] * len(rows)
    assert held(log, "deeps[0:2].values") == [True, False, False, True]
    messages = log.read({"/t": ALL})["/t"]
    pairs = messages.take(FieldSpec(("deeps[0:2].values",)), np.array([0, 3]))
    assert [[values.tolist() for values in row] for row in pairs] == [rows[0], rows[3][:2]]
