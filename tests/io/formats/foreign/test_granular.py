"""Folders of bags as rows, written by our own writers in all generations (granular's own: tests/interop)."""

import numpy as np
import pytest

import logloom.datasets
import logloom.io.formats.bags as granular
from logloom.errors import DatasetError, UsageError
from logloom.io.formats.foreign import open_foreign
from logloom.schema import NO_AGE

SPEC = {
    "name": "utf8",
    "frame": "jpg",
    "speed": "int",
    "tick": "i64",
    "id": "u64",
    "pose": "array",
    "cloud": "array",
    "boxes": "tree",
    "extra": "msgpack",
}
SEQUENCES = {"words": "utf8[]", "counts": "int[]", "tracks": "array[]"}


def points(count, sequences):
    for i in range(count):
        boxes = np.zeros(i % 3, [("x", "<f4"), ("corner", "<i2", (2,))])
        boxes["x"] = i
        point = {
            "name": f"é{i}",
            "frame": b"\xff\xd8" + bytes(i),
            "speed": -i * 100,
            "tick": i - 5,
            "id": 2**64 - 1 - i,
            "pose": np.full((3, 2), i, "<f4"),
            "cloud": np.full((i, 4), i, ">i2"),
            "boxes": boxes,
            "extra": {"a": [i, None]},
        }
        if sequences:
            point |= {
                "words": ["w" * j for j in range(i)],
                "counts": [i] * (i % 3),
                "tracks": [np.full(2, j, "<f8") for j in range(i)],
            }
        yield point


def write(path, count, sequences, generation=1, shardlen=None):
    spec = SPEC | (SEQUENCES if sequences else {})
    writer = granular.ShardedDatasetWriter(path, spec, granular.encoders, shardlen, generation=generation)
    with writer:
        for point in points(count, sequences):
            writer.append(point)


def check(rows, expected):
    assert len(rows) == len(expected)
    for row, point in zip(rows, expected, strict=True):
        assert (row["name"], row["frame"]) == (point["name"], point["frame"])
        assert (row["speed"], row["tick"], row["id"]) == (point["speed"], point["tick"], point["id"])
        np.testing.assert_array_equal(row["pose"], point["pose"])
        np.testing.assert_array_equal(row["cloud"], point["cloud"])
        np.testing.assert_array_equal(row["boxes"], point["boxes"])
        assert granular.decoders["msgpack"](row["extra"]) == point["extra"]
        for key in SEQUENCES.keys() & point.keys():
            assert np.asarray(row[key]).tolist() == np.asarray(point[key]).tolist()


@pytest.mark.parametrize(("generation", "sequences"), [(1, False), (1, True), (3, False)])
def test_every_type_is_a_column_that_keeps_it(tmp_path, read, generation, sequences):
    write(tmp_path / "set", 7, sequences, generation, shardlen=3)
    dataset, rows = read(tmp_path / "set")
    types = {name: str(ctype) for name, ctype in dataset.schema.columns.items()}
    expected = {
        "boxes": "struct[?]",
        "cloud": "int16[?, 4]",
        "extra": "bytes",
        "frame": "bytes",
        "id": "uint64",
        "name": "string",
        "pose": "float32[3, 2]",
        "speed": "int64",
        "tick": "int64",
    }
    if sequences:
        expected |= {"counts": "int64[?]", "tracks": "float64[?, 2]", "words": "<U5[?]"}
    assert types == expected
    assert dataset.schema.columns["boxes"].dtype == np.dtype([("x", "<f4"), ("corner", "<i2", (2,))])
    check(rows, list(points(7, sequences)))


def test_shards_are_parts_of_one_log_named_after_the_folder_in_row_order(tmp_path, read):
    write(tmp_path / "drive", 7, False, shardlen=3)
    dataset, rows = read(tmp_path / "drive")
    (log,) = dataset.logs()
    assert log.log_id == "drive"
    assert [(part.name, part.start, part.stop) for part in log.parts] == [
        ("000000", 0, 3),
        ("000001", 3, 6),
        ("000002", 6, 7),
    ]
    assert [row["timestamp"] for row in rows] == list(range(7))
    hints = {"extra": "msgpack", "frame": "jpg"}
    assert dataset.about.hints["bags"]["types"] == hints


def test_a_sequence_has_a_ragged_axis_even_where_all_rows_are_of_one_length(tmp_path, read):
    with granular.DatasetWriter(tmp_path / "set", {"x": "int[]"}, granular.encoders) as writer:
        for _ in range(3):
            writer.append({"x": [1, 2]})
    dataset, _ = read(tmp_path / "set")
    assert dataset.schema.columns["x"].shape == (None,)


def test_a_tree_that_is_no_structured_array_stays_bytes(tmp_path, read):
    trees = [{"a": [1, "x"]}, {"b": np.zeros(2)}][:1] * 2
    with granular.DatasetWriter(tmp_path / "set", {"x": "tree"}, granular.encoders) as writer:
        for tree in trees:
            writer.append({"x": tree})
    dataset, rows = read(tmp_path / "set")
    assert dataset.schema.columns["x"].kind == "bytes"
    assert granular.decoders["tree"](rows[0]["x"]) == trees[0]


@pytest.mark.parametrize(
    ("type_name", "values", "words"),
    [
        ("array", [np.zeros(2), np.zeros((2, 2))], "dimensions"),
        ("array", [np.zeros(2), np.zeros(2, "<i4")], "different types"),
        ("int", [2**80, 1], "datapoints 0 to 2"),
        ("bytes[]", [[b"x"], []], "a sequence of bytes is no column"),
        ("array[]", [[np.zeros(2), np.zeros(3)], []], "different shapes"),
        ("utf8[]", [["a\0"], []], "NUL"),
    ],
)
def test_what_makes_no_column_is_an_error_that_names_the_key_and_can_be_left_out(
    tmp_path, type_name, values, words
):
    spec = {"good": "int", "odd": type_name}
    with granular.DatasetWriter(tmp_path / "set", spec, granular.encoders) as writer:
        for value in values:
            writer.append({"good": 1, "odd": value})
    with pytest.raises((DatasetError, UsageError), match=words) as caught:
        open_foreign(str(tmp_path / "set"), columns=["odd"])
    assert "odd" in str(caught.value)
    dataset = open_foreign(str(tmp_path / "set"), columns=["good"])
    assert list(dataset.schema.columns) == ["good"]


def test_a_missing_shard_a_strange_one_and_a_cut_bag_are_errors_that_name_them(tmp_path):
    write(tmp_path / "set", 7, False, shardlen=3)
    bag = tmp_path / "set" / "000001" / "pose.bag"
    data = bag.read_bytes()
    bag.chmod(0o644)
    bag.write_bytes(data[: len(data) // 2])
    with pytest.raises(DatasetError, match=r"000001/pose\.bag"):
        open_foreign(str(tmp_path / "set"))
    bag.write_bytes(data)
    (tmp_path / "set" / "notes").mkdir()
    with pytest.raises(DatasetError, match="'notes' is no shard"):
        open_foreign(str(tmp_path / "set"))
    (tmp_path / "set" / "notes").rmdir()
    (tmp_path / "set" / "000001").rename(tmp_path / "gone")
    with pytest.raises(DatasetError, match=r"'000002'"):
        open_foreign(str(tmp_path / "set"))


OURS = {"log_id": "utf8", "timestamp": "i64", "a": "i64", "label": "i64", "meta": "msgpack", "z": "utf8"}


def write_with_meta(path, metas):
    with granular.DatasetWriter(path, OURS, granular.encoders) as writer:
        for number, meta in enumerate(metas):
            row = {"log_id": "drive", "timestamp": number, "a": 10 * number, "label": 1, "z": "word"}
            writer.append({**row, "meta": meta})


def test_ages_and_availabilities_in_meta_are_columns_and_give_the_order(tmp_path, read):
    metas = [
        {"z.age": 5, "z.available": True, "a.age": NO_AGE, "a.available": False},
        {"z.age": 7, "z.available": True, "a.age": 3, "a.available": True},
    ]
    write_with_meta(tmp_path / "set", metas)
    opened = logloom.datasets.open(tmp_path / "set")
    assert opened.schema == read(tmp_path / "set")[0].schema
    assert (list(opened.schema.columns), opened.schema.sampled) == (["z", "a", "label"], ("z", "a"))
    assert list(opened[0]) == ["log_id", "timestamp", "z", "a", "label"]
    ages = opened.select(["z.age", "a.age", "a.available"])
    assert ages[0] == {"log_id": "drive", "timestamp": 0, "z.age": 5, "a.age": NO_AGE, "a.available": False}
    batch = ages.get_many([1, 0])
    assert (batch["z.age"].dtype, batch["z.age"].tolist()) == (np.int64, [7, 5])
    assert (batch["a.available"].dtype, batch["a.available"].tolist()) == (np.bool_, [True, False])
    assert [row["a"] for row in logloom.datasets.open(tmp_path / "set", where="available(a)")] == [10]


def test_a_split_without_datapoints_opens_beside_one_that_has_ages(tmp_path):
    write_with_meta(tmp_path / "train", [{"a.age": 5, "a.available": True}])
    write_with_meta(tmp_path / "val", [])
    opened = logloom.datasets.open(tmp_path, columns=["a", "a.age"])
    assert [(row["a"], row["a.age"]) for row in opened] == [(0, 5)]


def test_a_row_whose_meta_lacks_an_age_is_an_error_that_names_it(tmp_path):
    write_with_meta(tmp_path / "set", [{"a.age": 5, "a.available": True}, {"a.available": True}])
    opened = logloom.datasets.open(tmp_path / "set", columns=["a", "a.age"])
    assert opened[0]["a.age"] == 5
    with pytest.raises(DatasetError, match=r"meta of datapoint 1 has no a\.age"):
        opened[1]
    with pytest.raises(DatasetError, match=r"meta\.bag lacks ages of a"):
        open_foreign(str(tmp_path / "set"))


@pytest.mark.parametrize("meta", [{"weather": "rain"}, {"a.age": 5}, {"b.age": 5, "b.available": True}, [1]])
def test_a_meta_of_something_else_is_a_column_like_any_other(tmp_path, read, meta):
    write_with_meta(tmp_path / "set", [meta, meta])
    opened = logloom.datasets.open(tmp_path / "set")
    assert (list(opened.schema.columns), opened.schema.sampled) == (["a", "label", "meta", "z"], ())
    assert opened[1]["meta"] == meta
    rows = read(tmp_path / "set")[1]
    assert granular.decoders["msgpack"](rows[1]["meta_"]) == meta
