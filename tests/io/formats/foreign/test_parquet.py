"""Parquet files written by pyarrow, and Lance tables by pylance: types and values stay."""

import datetime
import decimal
import fnmatch
import itertools
import re
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import logloom as ll
from logloom.blocks import Block
from logloom.errors import DatasetError, UsageError
from logloom.io.arrow.columns import columns_of, raw_columns
from logloom.io.arrow.layout import ArrowLayout
from logloom.io.formats.foreign import open_foreign
from logloom.io.formats.parquet import ParquetWriter, foreign_files
from logloom.schema import NO_AGE, ColumnType, Schema
from tests.absent import needs
from tests.files import flip

POSE = pa.struct([("x", pa.float32()), ("n", pa.list_(pa.int16(), 2))])
IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def test_a_file_of_others_is_rows_whose_columns_keep_unit_and_description(tmp_path):
    field = pa.field("speed", pa.float64(), metadata={"unit": "m s-1", "description": "of the car"})
    pq.write_table(pa.table([pa.array([1.0, 2.5])], pa.schema([field])), tmp_path / "drive.parquet")
    rows = open_foreign(str(tmp_path / "drive.parquet"))
    assert (rows.kind, len(rows), list(rows.schema.columns)) == ("parquet", 2, ["speed"])
    ctype = rows.schema.columns["speed"]
    assert (str(ctype), ctype.unit, ctype.description) == ("float64", "m s-1", "of the car")
    assert [log.log_id for log in rows.logs()] == ["drive"]
    assert rows[1] == {"speed": 2.5}


def table(rows=5):
    n = range(rows)
    return pa.table(
        {
            "speed": pa.array([i / 3 for i in n], pa.float32()),
            "Gear Box": pa.array([-i for i in n], pa.int8()),
            "on": pa.array([i % 2 == 0 for i in n]),
            "half": pa.array(np.arange(rows, dtype=np.float16)),
            "name": pa.array([f"é{i}" * i for i in n]),
            "kind": pa.array([f"k{i % 2}" for i in n]).dictionary_encode(),
            "jpg": pa.array([b"\xff\xd8" + bytes(i) for i in n]),
            "seen": pa.array([datetime.datetime(2024, 1, 1, 0, 0, i) for i in n], pa.timestamp("us")),
            "points": pa.array([[float(j) for j in range(i)] for i in n], pa.list_(pa.float64())),
            "boxes": pa.array([[[i, j] for j in range(i)] for i in n], pa.list_(pa.list_(pa.int32(), 2))),
            "matrix": pa.array([[i, 1, 2] for i in n], pa.list_(pa.uint8(), 3)),
            "pose": pa.array([{"x": i, "n": [i, -i]} for i in n], POSE),
            "image": pa.array([{"bytes": b"x" * i, "path": f"{i}.png"} for i in n], IMAGE),
            "tags": pa.array([["a" * j for j in range(i)] for i in n], pa.list_(pa.string())),
            "grid": pa.array([[[i, 2], [3, 4]] for i in n], pa.list_(pa.list_(pa.int64()))),
        }
    )


def check(dataset, rows):
    types = {name: str(ctype) for name, ctype in dataset.schema.columns.items()}
    assert types == {
        "speed": "float32",
        "gear_box": "int8",
        "on": "bool",
        "half": "float16",
        "name": "string",
        "kind": "string",
        "jpg": "bytes",
        "seen": "int64",
        "points": "float64[?]",
        "boxes": "int32[?, 2]",
        "matrix": "uint8[3]",
        "pose": "struct",
        "image.bytes": "bytes",
        "image.path": "string",
        "tags": "<U3[?]",
        "grid": "int64[?, 2]",
    }
    row = rows[3]
    assert row["speed"] == np.float32(1)
    assert (row["gear_box"], row["on"], row["half"], row["name"]) == (-3, False, 3, "é3é3é3")
    assert (row["kind"], row["jpg"], row["image.bytes"]) == ("k1", b"\xff\xd8\0\0\0", b"xxx")
    assert row["seen"] == 1704067203 * 10**9
    assert dataset.schema.columns["seen"].unit == "ns"
    assert row["boxes"].tolist() == [[3, 0], [3, 1], [3, 2]]
    assert (row["pose"]["x"], row["pose"]["n"].tolist()) == (3, [3, -3])
    assert row["tags"].tolist() == ["", "a", "aa"]
    assert row["grid"].tolist() == [[3, 2], [3, 4]]
    assert rows[0]["points"].shape == (0,)
    assert [row["timestamp"] for row in rows] == list(range(len(rows)))


def test_every_type_of_a_parquet_file_is_kept(tmp_path, read):
    pq.write_table(table(), tmp_path / "drive.parquet", row_group_size=2)
    dataset, rows = read(tmp_path / "drive.parquet")
    assert [(log.log_id, len(log.parts)) for log in dataset.logs()] == [("drive", 3)]
    check(dataset, rows)


def test_a_lance_table_reads_as_the_parquet_file_of_the_same_rows(tmp_path, read):
    needs("lance")
    lance = pytest.importorskip("lance")
    # Lance holds fewer types than Parquet.
    plain = table(9).drop_columns(["pose", "boxes", "half", "grid", "tags"])
    lance.write_dataset(plain, str(tmp_path / "drive.lance"), max_rows_per_file=4)
    pq.write_table(plain, tmp_path / "drive.parquet")
    dataset, rows = read(tmp_path / "drive.lance")
    other, expected = read(tmp_path / "drive.parquet")
    assert dataset.kind == "lance"
    assert len(dataset.logs()[0].parts) == 3
    assert dataset.schema == other.schema
    assert [str(row) for row in rows] == [str(row) for row in expected]


def test_files_of_a_folder_follow_by_name_and_their_logs_and_times_are_used(tmp_path, read):
    for number, (log, first) in enumerate([("a", 5), ("a", 8), ("b", 1)]):
        rows = {"log_id": [log] * 3, "timestamp": [first, first + 1, first + 2], "v": [number] * 3}
        pq.write_table(pa.table(rows), tmp_path / f"{number}.parquet")
    dataset, rows = read(tmp_path)
    assert [(log.log_id, [(p.start, p.stop) for p in log.parts]) for log in dataset.logs()] == [
        ("a", [(5, 8), (8, 11)]),
        ("b", [(1, 4)]),
    ]
    assert [(row["log_id"], row["timestamp"], row["v"]) for row in rows[2:5]] == [
        ("a", 7, 0),
        ("a", 8, 1),
        ("a", 9, 1),
    ]
    assert list(dataset.schema.columns) == ["v"]


def test_times_that_dont_ascend_and_logs_in_two_places_are_columns_like_others(tmp_path, read):
    rows = {"log_id": ["a", "b", "a"], "timestamp": [3, 3, 1], "v": [1, 2, 3]}
    pq.write_table(pa.table(rows), tmp_path / "x.parquet")
    dataset, rows = read(tmp_path / "x.parquet")
    assert list(dataset.schema.columns) == ["log_id_", "timestamp_", "v"]
    assert [row["log_id_"] for row in rows] == ["a", "b", "a"]
    assert [row["timestamp"] for row in rows] == [0, 1, 2]
    assert len(dataset.about.notes) == 2


def test_a_null_is_a_row_without_a_value_and_says_so(tmp_path, read):
    # (A fixed list that is null can be written, but not be read by Arrow itself.)
    flat = pa.struct([("x", pa.float32()), ("n", pa.int16())])
    columns = {
        "a": pa.array([1, None, 3], pa.int32()),
        "b": pa.array([1.5, 2.5, None]),
        "c": pa.array(["x", None, ""]),
        "d": pa.array([[1], None, []], pa.list_(pa.int8())),
        "e": pa.array([None, {"x": 1, "n": 5}, {"x": 2, "n": 6}], flat),
        "f": pa.array([1, 2, 3]),
        "h": pa.array([True, None, False]),
    }
    pq.write_table(pa.table(columns), tmp_path / "x.parquet")
    dataset, rows = read(tmp_path / "x.parquet")
    assert dataset.schema.sampled == ("a", "b", "c", "d", "e", "h")
    assert [row["a"] for row in rows] == [1, 0, 3]
    assert np.isnan(rows[2]["b"])
    assert [row["c"] for row in rows] == ["x", "", ""]
    assert [row["d"].tolist() for row in rows] == [[1], [], []]
    assert np.isnan(rows[0]["e"]["x"])
    assert (rows[0]["e"]["n"], rows[1]["e"]["n"]) == (0, 5)
    (log,) = dataset.logs()
    (block,) = dataset.scan_part(log.parts[0], ["a.available", "a.age", "f"], 64 << 20)
    assert block.columns["a.available"].tolist() == [True, False, True]
    assert block.columns["a.age"].tolist() == [0, NO_AGE, 0]


DAY = datetime.datetime(2024, 1, 1)


@pytest.mark.parametrize(
    ("kind", "value", "stored"),
    [
        (pa.timestamp("us"), DAY, 1704067200 * 10**9),
        (pa.timestamp("ns", "UTC"), DAY, 1704067200 * 10**9),
        (pa.duration("ms"), datetime.timedelta(seconds=1), 10**9),
        (pa.date32(), DAY.date(), 1704067200 * 10**9),
        (pa.date64(), DAY.date(), 1704067200 * 10**9),
        (pa.time32("s"), datetime.time(0, 0, 2), 2 * 10**9),
        (pa.time64("us"), datetime.time(0, 0, 2), 2 * 10**9),
    ],
)
def test_a_missing_time_is_numpys_missing_time_beside_other_values(tmp_path, read, kind, value, stored):
    pq.write_table(pa.table({"t": pa.array([value, None], kind), "x": [1, 2]}), tmp_path / "x.parquet")
    dataset, rows = read(tmp_path / "x.parquet")
    assert [row["x"] for row in rows] == [1, 2]
    assert rows[0]["t"] == stored
    assert np.isnat(np.asarray(rows[1]["t"]).view("M8[ns]"))
    assert dataset.schema.sampled == ("t",)


LEAVES = [
    (pa.float32(), [[[0.1, 2], [3, 4]], [[5]]]),
    (pa.float16(), [[[np.float16(0.5)]], [[np.float16(2)]]]),
    (pa.int8(), [[[1, 2]], []]),
    (pa.uint64(), [[[2**64 - 1, 1]], [[1, 2]]]),
    (pa.int64(), [[[]], [[5]], [[], []], []]),
    (pa.bool_(), [[[True]], [[False], [True]]]),
    (pa.string(), [[["a"], ["é"]], [[]], []]),
    (pa.list_(pa.uint16(), 2), [[[[1, 2]], [[3, 4]]], [[[5, 6]]]]),
]


@pytest.mark.parametrize(("kind", "values"), LEAVES, ids=[str(kind) for kind, _ in LEAVES])
def test_lists_of_lists_keep_the_type_of_their_leaves_and_empty_ones(tmp_path, read, kind, values):
    column = pa.array(values, pa.list_(pa.list_(kind)))
    pq.write_table(pa.table({"v": column}), tmp_path / "x.parquet", row_group_size=2)
    dataset, rows = read(tmp_path / "x.parquet")
    leaf = kind.value_type if pa.types.is_fixed_size_list(kind) else kind
    if kind == pa.string():
        assert dataset.schema.columns["v"].dtype.kind == "U"
    else:
        assert dataset.schema.columns["v"].dtype == leaf.to_pandas_dtype()
    read_back = pq.read_table(tmp_path / "x.parquet")["v"].to_pylist()
    assert [row["v"].tolist() for row in rows] == read_back


def test_times_in_lists_of_lists_are_nanoseconds(tmp_path, read):
    column = pa.array([[[1, 2]], [[3]]], pa.list_(pa.list_(pa.timestamp("s"))))
    pq.write_table(pa.table({"v": column}), tmp_path / "x.parquet")
    _, rows = read(tmp_path / "x.parquet")
    assert [row["v"].tolist() for row in rows] == [[[10**9, 2 * 10**9]], [[3 * 10**9]]]


@pytest.mark.parametrize(
    ("kind", "said"), [(pa.int16(), "int16[?, ?]"), (pa.list_(pa.float32(), 3), "float32[?, ?, 3]")]
)
def test_a_column_in_which_all_lists_are_empty_or_null_has_its_type(tmp_path, read, kind, said):
    column = pa.array([[], None, []], pa.list_(pa.list_(kind)))
    pq.write_table(pa.table({"v": column}), tmp_path / "x.parquet", row_group_size=1)
    dataset, rows = read(tmp_path / "x.parquet")
    assert str(dataset.schema.columns["v"]) == said
    assert [row["v"].size for row in rows] == [0, 0, 0]


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (pa.array([[[[1], [2, 3]]]]), "their lengths differ"),
        (pa.array([[[1], None]]), "a null within"),
        (pa.array([[[1, None]]]), "a null within"),
        (pa.array([["a", None]]), "a null within"),
        (pa.array([["a", "b\0"]]), "ends in a zero character"),
        (pa.array([{"x": [1, None]}], pa.struct([("x", pa.list_(pa.int8(), 2))])), "a null within"),
    ],
)
def test_a_column_of_values_that_an_array_would_change_is_left_out_and_named(tmp_path, read, column, words):
    pq.write_table(pa.table({"ok": [1], "odd": column}), tmp_path / "x.parquet")
    dataset, rows = read(tmp_path / "x.parquet")
    assert (list(dataset.schema.columns), rows[0]["ok"]) == (["ok"], 1)
    assert re.search(rf"x\.parquet: row group 0: .*{words}", dataset.left_out["odd"])
    assert dataset.about.notes == (f"odd is left out: {dataset.left_out['odd']}",)
    with pytest.raises(UsageError, match=rf"column odd: .*x.parquet: row group 0: .*{words}"):
        open_foreign(str(tmp_path / "x.parquet"), columns=["ok", "odd"])
    assert list(open_foreign(str(tmp_path / "x.parquet"), columns=["o*"]).schema.columns) == ["ok"]
    assert dict(open_foreign(str(tmp_path / "x.parquet"), columns=["ok"]).left_out) == {}
    with pytest.warns(UserWarning, match="left out, since they can't be read: odd: ") as told:
        opened = ll.open(tmp_path / "x.parquet")
    assert (len(told), told[0].filename) == (1, __file__)
    with pytest.raises(UsageError, match=rf"no column 'odd': .*{words}"):
        opened.select("odd")


def test_a_column_that_only_one_row_group_refuses_is_left_out_of_all(tmp_path, read):
    lists = pa.array([[1], [2], [None]], pa.list_(pa.int8()))
    pq.write_table(pa.table({"v": lists, "n": [0, 1, 2]}), tmp_path / "x.parquet", row_group_size=1)
    dataset, rows = read(tmp_path / "x.parquet")
    assert [row["n"] for row in rows] == [0, 1, 2]
    assert "row group 2: a null within a list" in dataset.left_out["v"]


def test_a_null_among_a_dictionarys_values_is_one():
    array = pa.DictionaryArray.from_arrays(pa.array([0, 1, None], pa.int8()), pa.array([None, "a"]))
    batch = pa.RecordBatch.from_arrays([array], ["v"])
    found = raw_columns(batch, columns_of(batch.schema))["v"]
    assert found.available.tolist() == [False, True, False]


@pytest.mark.parametrize(
    "odd",
    [pa.array([[b"x"]]), pa.array([[[b"x"]]]), pa.array([[("a", b"x")]], pa.map_(pa.string(), pa.binary()))],
)
def test_a_type_without_counterpart_is_refused_by_the_columns_name(tmp_path, odd):
    pq.write_table(pa.table({"odd": odd}), tmp_path / "x.parquet")
    with pytest.raises(UsageError, match=r"column odd: .*binary has no counterpart; cast it"):
        open_foreign(str(tmp_path / "x.parquet"))


def test_a_file_that_lacks_a_column_or_has_only_nulls_of_it_has_rows_without_a_value(tmp_path, read):
    pq.write_table(
        pa.table({"n": [0], "v": [1.5], "seen": pa.array([5], pa.timestamp("ns"))}), tmp_path / "a.parquet"
    )
    pq.write_table(pa.table({"n": [1], "v": pa.nulls(1), "w": ["x"]}), tmp_path / "b.parquet")
    dataset, rows = read(tmp_path)
    assert dataset.schema.sampled == ("v", "seen", "w")
    assert [row["v.available"] for row in rows] == [True, False]
    assert [row["w.available"] for row in rows] == [False, True]
    assert [row["seen"] for row in rows] == [5, np.iinfo(np.int64).min]
    assert [row["w"] for row in rows] == ["", "x"]
    assert [row["w"] for row in read(tmp_path, columns=["w"])[1]] == ["", "x"]


def test_decimals_are_the_nearest_number_and_exact_where_they_are_whole(tmp_path, read):
    texts = ["0.1", "-99999999999999999.123456789012345678", "123456789012345.678901234567890123"]
    whole = [10**18 - 1, 1 - 10**18, 0]
    columns = {
        "v": pa.array([decimal.Decimal(text) for text in texts], pa.decimal128(38, 18)),
        "n": pa.array(map(decimal.Decimal, whole), pa.decimal128(18)),
    }
    pq.write_table(pa.table(columns), tmp_path / "x.parquet")
    dataset, rows = read(tmp_path / "x.parquet")
    assert [row["v"] for row in rows] == [float(text) for text in texts]
    assert [row["n"] for row in rows] == whole
    assert [str(ctype) for ctype in dataset.schema.columns.values()] == ["float64", "int64"]


@pytest.mark.parametrize(
    ("names", "odd"),
    [(["a", "a", "b"], "a"), (["b", "s.x", "s"], r"s\.x"), (["s", "b", "s"], "s")],
)
def test_a_name_that_occurs_twice_is_refused_and_never_gives_another_columns_values(
    tmp_path, read, names, odd
):
    struct = pa.array([{"x": 1, "t": "u"}, {"x": 2, "t": "v"}])
    arrays = [struct if name == "s" else pa.array([len(names), number]) for number, name in enumerate(names)]
    pq.write_table(pa.Table.from_arrays(arrays, names=names), tmp_path / "x.parquet")
    with pytest.raises(UsageError, match=f"column {odd}: .*x.parquet: row group 0: the name occurs twice"):
        open_foreign(str(tmp_path / "x.parquet"), columns=["b", odd.replace("\\", "")])
    dataset, rows = read(tmp_path / "x.parquet")
    assert list(dataset.left_out) == [odd.replace("\\", "")]
    assert [row["b"] for row in rows] == arrays[names.index("b")].to_pylist()


@pytest.mark.parametrize("wrap", [lambda kind: kind, pa.list_, lambda kind: pa.struct([("t", kind)])])
def test_tensors_of_permuted_axes_are_refused_and_others_have_their_shape(tmp_path, read, wrap):
    tensor = pa.fixed_shape_tensor(pa.int32(), [2, 3], permutation=[0, 1])
    values = pa.ExtensionArray.from_storage(tensor, pa.array([[*range(6)]], pa.list_(pa.int32(), 6)))
    odd = wrap(pa.fixed_shape_tensor(pa.int32(), [2, 3], permutation=[1, 0]))
    pq.write_table(pa.table({"v": values, "odd": pa.nulls(1, odd)}), tmp_path / "x.parquet")
    dataset, rows = read(tmp_path / "x.parquet")
    assert "a tensor whose axes are permuted [1, 0]" in " ".join(dataset.left_out.values())
    assert rows[0]["v"].tolist() == [[0, 1, 2], [3, 4, 5]]


def test_a_struct_with_two_fields_of_one_name_is_refused(tmp_path):
    kind = pa.struct([("x", pa.string()), ("x", pa.string())])
    pq.write_table(pa.table({"s": pa.array([None], kind)}), tmp_path / "x.parquet")
    with pytest.raises(UsageError, match=r"column s: .*x: the name occurs twice"):
        open_foreign(str(tmp_path / "x.parquet"))


def test_a_null_within_a_list_is_nan_or_nat_where_the_type_has_one(tmp_path, read):
    columns = {
        "v": pa.array([[1.5, None]], pa.list_(pa.float32(), 2)),
        "t": pa.array([[5, None]], pa.list_(pa.timestamp("ns"))),
    }
    pq.write_table(pa.table(columns), tmp_path / "x.parquet")
    _, rows = read(tmp_path / "x.parquet")
    np.testing.assert_array_equal(rows[0]["v"], [1.5, np.nan])
    assert rows[0]["t"].tolist() == [5, np.iinfo(np.int64).min]


def test_columns_of_a_lance_table_that_cant_be_read_are_left_out_and_named(tmp_path, read):
    needs("lance")
    lance = pytest.importorskip("lance")
    columns = {"v": pa.array([[1], [None]], pa.list_(pa.int8())), "n": [1, 2], "w": pa.array([[b"x"], []])}
    lance.write_dataset(pa.table(columns), str(tmp_path / "drive.lance"))
    dataset, rows = read(tmp_path / "drive.lance")
    assert [row["n"] for row in rows] == [1, 2]
    assert "drive.lance: fragment 0: a null within" in dataset.left_out["v"]
    assert "binary has no counterpart" in dataset.left_out["w"]
    with pytest.raises(UsageError, match="column w: "):
        open_foreign(str(tmp_path / "drive.lance"), columns=["w"])


def test_a_column_whose_type_differs_by_file_is_left_out_and_the_file_named(tmp_path, read):
    pq.write_table(pa.table({"v": pa.array([1], pa.int8()), "n": [1]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"v": pa.array([1], pa.int16()), "n": [2]}), tmp_path / "b.parquet")
    dataset, rows = read(tmp_path)
    assert [row["n"] for row in rows] == [1, 2]
    assert "b.parquet: row group 0: files say different types" in dataset.left_out["v"]
    skipped = open_foreign(str(tmp_path), on_error="skip")
    assert list(skipped.schema.columns) == ["v", "n"]
    assert [
        "b.parquet: row group 0: v: files" in reason
        for log in skipped.logs()
        for reason in log.record.reasons
    ] == [True]


def test_two_names_that_would_be_one_column_are_left_out(tmp_path, read):
    pq.write_table(pa.table({"Speed": [1], "speed": [2], "n": [3]}), tmp_path / "x.parquet")
    dataset, rows = read(tmp_path / "x.parquet")
    assert rows[0]["n"] == 3
    assert set(dataset.left_out) == {"Speed", "speed"}
    with pytest.raises(UsageError, match="'Speed' and 'speed' would both be column 'speed'"):
        open_foreign(str(tmp_path / "x.parquet"), columns=["speed"])


def test_a_flipped_byte_or_a_cut_file_is_an_error_that_names_it(tmp_path):
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"v": np.arange(1000)}), path, write_page_checksum=True, compression="none")
    data = path.read_bytes()
    path.write_bytes(data[:-9])
    with pytest.raises(DatasetError, match=r"x\.parquet"):
        open_foreign(str(path))
    path.write_bytes(data)
    flip(path, 1000)
    with pytest.raises(DatasetError, match=r"x\.parquet"):
        open_foreign(str(path))


def test_a_name_that_is_no_text_is_an_error_that_names_the_file(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"name": [1, 2]}), path)
    path.write_bytes(path.read_bytes().replace(b"name", b"n\xe9me"))
    with pytest.raises(DatasetError, match=r"a\.parquet"):
        open_foreign(str(path))


HIVE = [
    {"split": ["train", "val"], "day": ["3", "-12"]},
    {"day": ["3", "x"], "year": ["2024", "2025"]},
    {"big": ["3", "3000000000"], "none": ["a b/c%", None]},
]


@pytest.mark.parametrize("keys", HIVE)
def test_names_of_folders_are_columns_as_pyarrow_has_them(tmp_path, keys):
    names = list(keys)
    for number, values in enumerate(itertools.product(*keys.values())):
        texts = ["__HIVE_DEFAULT_PARTITION__" if value is None else quote(value, safe="") for value in values]
        folder = tmp_path.joinpath("x", *map("=".join, zip(names, texts, strict=True)))
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"v": [number * 10, number * 10 + 1]}), folder / "x.parquet")
    given = ds.dataset(tmp_path / "x", partitioning="hive").to_table().sort_by("v").to_pydict()
    wanted = {row[0]: row[1:] for row in zip(given["v"], *(given[name] for name in names), strict=True)}
    opened = ll.open(tmp_path / "x")

    def values_of(row):
        return tuple(
            row[name].item() if isinstance(row[name], np.generic) else row[name] or None for name in names
        )

    assert {row["v"]: values_of(row) for row in opened} == wanted
    assert values_of(opened[5]) == wanted[opened[5]["v"]]
    assert set(opened.schema.sampled) == {name for name in names if None in keys[name]}
    first, others = given[names[0]][0], ll.open(tmp_path / "x", columns=names[:1])
    assert {type(row[names[0]]) for row in others} == {type(opened[0][names[0]])}
    chosen = ll.open(tmp_path / "x", columns=["v"], where=f"{names[0]} == {first!r}")
    assert sorted(row["v"] for row in chosen) == [v for v, own in wanted.items() if own[0] == first]
    ll.convert(str(tmp_path / "x"), str(tmp_path / "root"), "table")
    assert {row["v"]: values_of(row) for row in ll.open(tmp_path / "root")} == wanted


def test_a_column_of_the_files_counts_more_than_the_name_of_their_folder(tmp_path, read):
    (tmp_path / "day=1").mkdir()
    pq.write_table(pa.table({"v": [1], "day": [7]}), tmp_path / "day=1" / "x.parquet")
    assert read(tmp_path)[1][0]["day"] == 7


def test_folders_of_keys_that_name_logs_give_logs(tmp_path, read):
    for name in ("a", "b"):
        (tmp_path / f"log_id={name}").mkdir()
        pq.write_table(
            pa.table({"timestamp": [1, 2], "v": [1, 2]}), tmp_path / f"log_id={name}" / "x.parquet"
        )
    _, rows = read(tmp_path)
    assert [(row["log_id"], row["timestamp"]) for row in rows] == [("a", 1), ("a", 2), ("b", 1), ("b", 2)]


def test_files_that_logloom_wrote_have_the_keys_of_their_folders(tmp_path, read):
    schema = Schema({"v": ColumnType(np.dtype("i8"))})
    for day in range(2):
        (tmp_path / f"day={day}").mkdir()
        writer = ParquetWriter(tmp_path / f"day={day}" / "x.parquet", ArrowLayout(schema), 1 << 20)
        writer.append(Block("a", "", 0, {"timestamp": np.array([day]), "v": np.array([day + 5])}))
        writer.close()
    _, rows = read(tmp_path)
    assert [(row["v"], row["day"]) for row in rows] == [(5, 0), (6, 1)]


def test_an_empty_file_has_no_rows(tmp_path):
    pq.write_table(pa.table({"v": pa.array([], pa.int8())}), tmp_path / "x.parquet")
    with pytest.raises(DatasetError, match="no rows"):
        open_foreign(str(tmp_path / "x.parquet"))


def test_braces_choose_files(tmp_path, read):
    for number in range(3):
        pq.write_table(pa.table({"n": [number, number + 10]}), tmp_path / f"part-{number}.parquet")
    _, rows = read(tmp_path / "part-{0,2}.parquet")
    assert [row["n"] for row in rows] == [0, 10, 2, 12]


def test_what_a_file_of_many_columns_takes_grows_with_their_number_alone(tmp_path, monkeypatch):
    names = [f"c{number}" for number in range(100)]
    (tmp_path / "set").mkdir()
    for part in range(2):
        pq.write_table(pa.table({name: [part, 1] for name in names}), tmp_path / "set" / f"{part}.parquet")
    asked = []
    for module, name in (
        (foreign_files, "columns_of"),
        (fnmatch, "fnmatchcase"),
        (Schema, "all"),
        (pq.ParquetFile, "schema_arrow"),
    ):
        own = getattr(module, name)
        if isinstance(own, property):
            counted = property(lambda schema, own=own, name=name: asked.append(name) or own.fget(schema))
        else:
            counted = lambda *given, own=own, name=name: asked.append(name) or own(*given)  # noqa: E731
        monkeypatch.setattr(module, name, counted)
    dataset = open_foreign(str(tmp_path / "set"))
    rows = dataset.take(np.array([3, 0]), names)
    assert [rows[name].tolist() for name in names] == [[1, 0]] * 100
    assert dataset.schema.part(names).columns == dataset.schema.columns
    ll.convert(str(tmp_path / "set"), str(tmp_path / "zarr"), "zarr", plain=True, workers=1)
    assert ll.open(str(tmp_path / "zarr"))[3]["c7"] == 1
    assert asked.count("columns_of") == 2
    assert asked.count("fnmatchcase") < 3000  # of what else is matched; all names by all were 30,000
    assert asked.count("all") < 200  # one of them for each array that is written
    assert asked.count("schema_arrow") < 100
