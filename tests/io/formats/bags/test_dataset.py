"""Datasets of bags: masks, ranges, bad input, unfinished folders, every file system."""

import json
import os
import pathlib
import pickle
import shutil
import subprocess
import sys

import fsspec
import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import logloom.io.formats.bags as granular
from logloom.errors import DatasetError, LogloomError, UsageError
from logloom.io.formats.bags.bag import RecordFile

PLAIN = {"foo": "utf8", "bar": "int"}
MIXED = PLAIN | {"baz": "utf8[]"}


def plain_points(count=10):
    return [{"foo": f"word {i}", "bar": i} for i in range(count)]


def mixed_points(count=10):
    return [{"foo": f"word {i}", "bar": i, "baz": [f"item{j}" for j in range(i)]} for i in range(count)]


def test_datapoints_are_appended_and_read_by_number_and_in_part(tmp_path):
    points = mixed_points(3)
    with granular.DatasetWriter(tmp_path / "data", MIXED, granular.encoders) as writer:
        assert [writer.append(point) for point in points] == [0, 1, 2]
    with granular.DatasetReader(tmp_path / "data", granular.decoders) as reader:
        assert reader[2] == {"foo": "word 2", "bar": 2, "baz": ["item0", "item1"]}
        assert reader[np.int64(2), {"bar": True, "baz": range(1, 2)}] == {"bar": 2, "baz": ["item1"]}
    with granular.ShardedDatasetWriter(tmp_path / "root", MIXED, granular.encoders, shardlen=2) as writer:
        for point in points:
            writer.append(point)
    with granular.ShardedDatasetReader(tmp_path / "root", granular.decoders) as reader:
        assert (reader.shards, list(reader)) == (2, points)


def write(directory, spec, points, **options):
    with granular.DatasetWriter(directory, spec, granular.encoders, **options) as writer:
        assert [writer.append(point) for point in points] == list(range(len(points)))
    return directory


def read(directory, *arguments, **options):
    return granular.DatasetReader(directory, granular.decoders, *arguments, **options)


READ = [
    {},
    {"cache_index": False},
    {"cache_keys": ("refs", "foo")},
    {"parallel": True},
    {"parallel": True, "cache_index": False, "cache_keys": ["bar"]},
]


@pytest.mark.parametrize("options", READ)
@pytest.mark.parametrize("generation", [1, 3])
def test_plain_datapoints_read_back_one_by_one_and_in_ranges(tmp_path, generation, options):
    points = plain_points()
    write(tmp_path / "data", PLAIN, points, generation=generation)
    with read(tmp_path / "data", **options) as reader:
        assert list(reader) == points
        assert reader[-1] == points[-1]
        assert pickle.loads(pickle.dumps(reader))[3] == reader.copy()[3] == points[3]
        assert reader[2:5] == {"foo": ["word 2", "word 3", "word 4"], "bar": [2, 3, 4]}
        assert reader[7:99, {"bar": True, "foo": False}] == {"bar": [7, 8, 9]}
        assert reader[4:4] == {"foo": [], "bar": []}
        assert reader[range(1, 2)]["bar"] == [1]
        assert reader[3, ["bar"]] == {"bar": 3}
        assert reader.available(0) == {"foo": True, "bar": True}
        assert reader.__getitems__([4, 0]) == [points[4], points[0]]


@pytest.mark.parametrize("options", READ)
def test_sequences_read_back_whole_in_part_and_as_available(tmp_path, options):
    points = mixed_points()
    write(tmp_path / "data", MIXED, points)
    with read(tmp_path / "data", **options) as reader:
        assert list(reader) == points
        assert reader[3, {}] == {}
        for i, point in enumerate(points):
            assert reader.available(i) == {"bar": True, "baz": range(i), "foo": True}
            assert reader[i, reader.available(i)] == point
        assert reader[5, {"baz": range(1, 3)}] == {"baz": ["item1", "item2"]}
        assert reader[5, {"baz": slice(3, None)}] == {"baz": ["item3", "item4"]}
        assert reader[0, {"baz": True}] == {"baz": []}
        with pytest.raises(UsageError, match="baz is a sequence"):
            reader[0:2]


def test_a_mask_beyond_the_end_is_clipped(tmp_path):
    reader = read(write(tmp_path / "data", MIXED, mixed_points()))
    assert reader[3, {"baz": range(1, 100)}] == {"baz": ["item1", "item2"]}
    assert reader[3, {"baz": range(50, 100)}] == {"baz": []}


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        ({"qux": True}, "qux"),
        ({"foo": 12}, "12"),
        ({"bar": range(1)}, "no sequence"),
        ({"baz": 12}, "12"),
        ({"baz": range(3, 1)}, "forward"),
        ({"baz": range(0, 4, 2)}, "forward"),
        ({"baz": slice(-2, None)}, "forward"),
    ],
)
def test_a_mask_that_makes_no_sense_is_refused(tmp_path, mask, words):
    reader = read(write(tmp_path / "data", MIXED, mixed_points()))
    with pytest.raises(UsageError, match=words):
        reader[3, mask]


@pytest.mark.parametrize(
    ("point", "words"),
    [
        ({"foo": "x"}, "lacks bar"),
        ({"foo": "x", "bar": 1, "qux": 2}, "has qux"),
        ({"foo": "x", "baz": 1}, "lacks bar"),
    ],
)
def test_a_datapoint_of_other_keys_is_refused_and_adds_nothing(tmp_path, point, words):
    with granular.DatasetWriter(tmp_path / "data", PLAIN, granular.encoders) as writer:
        with pytest.raises(UsageError, match=words):
            writer.append(point)
        writer.append({"bar": 1, "foo": "in any order"})
    assert list(read(tmp_path / "data")) == [{"foo": "in any order", "bar": 1}]


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=12))
def test_a_value_that_can_not_be_encoded_takes_its_whole_datapoint_back(tmp_path_factory, plan):
    directory = tmp_path_factory.mktemp("bags") / "data"
    kept = []
    with granular.DatasetWriter(directory, MIXED, granular.encoders) as writer:
        for number, (count, good) in enumerate(plan):
            words = [f"{number}-{k}" for k in range(count)]
            point = {"foo": "x" * number, "bar": number, "baz": words}
            if good:
                assert writer.append(point) == len(kept)
                kept.append(point)
            else:
                with pytest.raises(UsageError, match="'baz' can't be encoded as utf8"):
                    writer.append(point | {"baz": [*words, 3]})
        if number_flushed := len(plan):
            assert number_flushed
            writer.flush()
    assert list(read(directory)) == kept


def test_a_type_without_codec_is_refused_on_both_sides(tmp_path):
    with pytest.raises(UsageError, match="'nonsense' of 'foo'"):
        granular.DatasetWriter(tmp_path / "data", {"foo": "nonsense"}, granular.encoders)
    write(tmp_path / "data", PLAIN, plain_points(1))
    with pytest.raises(UsageError, match="'int' of 'bar'"):
        granular.DatasetReader(tmp_path / "data", {"utf8": bytes.decode})
    assert granular.DatasetReader(tmp_path / "data", None)[0] == {"foo": b"word 0", "bar": b"\0"}


def test_an_encoder_that_gives_no_bytes_is_named(tmp_path):
    with (
        granular.DatasetWriter(tmp_path / "data", {"foo": "text"}, {"text": str}) as writer,
        pytest.raises(UsageError, match=r"'foo' can't be encoded as text.*bytes"),
    ):
        writer.append({"foo": "x"})


@pytest.mark.parametrize(
    "key", ["../x", "a/b", "/etc/x", ".hidden", "", "a\0b", "a\nb", "X", "x" * 300, "\ud800", "a\\b"]
)
def test_a_key_can_not_leave_the_folder(tmp_path, key):
    with pytest.raises(UsageError, match="can't name a bag"):
        granular.DatasetWriter(tmp_path / "data", {key: "utf8"}, granular.encoders)
    (tmp_path / "hostile").mkdir()
    (tmp_path / "hostile" / "spec.json").write_text(json.dumps({key: "utf8"}))
    with pytest.raises(UsageError, match="can't name a bag"):
        read(tmp_path / "hostile")
    assert [path.name for path in tmp_path.iterdir()] == ["hostile"]


def test_a_finished_dataset_is_never_written_onto(tmp_path):
    write(tmp_path / "data", PLAIN, plain_points(2))
    with pytest.raises(UsageError, match="finished dataset already"):
        granular.DatasetWriter(tmp_path / "data", PLAIN, granular.encoders)
    first = granular.DatasetWriter(tmp_path / "race", PLAIN, granular.encoders)
    second = granular.DatasetWriter(tmp_path / "race", PLAIN, granular.encoders)
    second.append(plain_points(1)[0])
    second.close()
    with pytest.raises(UsageError, match="finished dataset already"):
        first.close()
    assert len(read(tmp_path / "race")) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "race"]


def test_a_folder_appears_whole_and_an_exception_leaves_nothing(tmp_path):
    writer = granular.DatasetWriter(tmp_path / "data", PLAIN, granular.encoders)
    writer.append(plain_points(1)[0])
    writer.flush()
    assert not (tmp_path / "data").exists()
    writer.close()
    assert len(read(tmp_path / "data")) == 1
    with pytest.raises(ZeroDivisionError), granular.DatasetWriter(tmp_path / "x", PLAIN, granular.encoders):
        raise ZeroDivisionError
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
    with pytest.raises(UsageError, match="closed"):
        writer.append(plain_points(1)[0])


def test_a_killed_writer_leaves_no_folder_of_that_name(tmp_path):
    code = f"""
import os, logloom.io.formats.bags as granular
root = {str(tmp_path / "root")!r}
writer = granular.ShardedDatasetWriter(root, {{"a": "int"}}, granular.encoders, shardlen=3)
for i in range(8):
    writer.append({{"a": i}})
writer.flush()
os._exit(9)
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run([sys.executable, "-c", code], env=environment).returncode == 9
    assert sorted(path.name for path in (tmp_path / "root").glob("*")) == ["000000", "000001"]
    reader = granular.ShardedDatasetReader(tmp_path / "root", granular.decoders)
    assert [point["a"] for point in reader] == list(range(6))


def test_the_third_generation_has_no_references_and_no_sequences_and_may_have_a_key_refs(tmp_path):
    write(tmp_path / "data", PLAIN, plain_points(3), generation=3)
    names = {path.name for path in (tmp_path / "data").iterdir()}
    assert names == {"spec.json", "foo.bag", "foo.idx", "bar.bag", "bar.idx"}
    with pytest.raises(UsageError, match="baz is a sequence"):
        granular.DatasetWriter(tmp_path / "x", MIXED, granular.encoders, generation=3)
    with pytest.raises(UsageError, match="generation 2"):
        granular.DatasetWriter(tmp_path / "x", PLAIN, granular.encoders, generation=2)
    with pytest.raises(UsageError, match="refs"):
        granular.DatasetWriter(tmp_path / "x", {"refs": "int"}, granular.encoders)
    write(tmp_path / "x", {"refs": "int"}, [{"refs": 4}], generation=3)
    assert read(tmp_path / "x")[0] == {"refs": 4}


def foreign_folder(directory, spec, columns, refs):
    """A first-generation folder as others may write it: references in any order, no .idx files."""
    directory.mkdir()
    (directory / "spec.json").write_text(json.dumps(spec))
    for name, records in {**columns, "refs": [msgpack.packb(ref) for ref in refs]}.items():
        file = RecordFile(directory / f"{name}.bag")
        for record in records:
            file.append(record)
        file.finish(table=True, idx=False)
    return directory


def test_references_of_others_are_followed(tmp_path):
    folder = foreign_folder(tmp_path / "x", {"a": "utf8"}, {"a": [b"zero", b"one"]}, [[1], [0], [1]])
    reader = read(folder)
    assert [point["a"] for point in reader] == ["one", "zero", "one"]
    assert reader[0:3] == {"a": ["one", "zero", "one"]}


@pytest.mark.parametrize(
    "ref", [[5], [-1], ["x"], [], [0, 1], {"a": 0}, 3, [[0, 1]], [None], [True], [2**63]]
)
@pytest.mark.parametrize("cache_index", [True, False])
def test_damaged_references_are_errors_that_name_folder_and_datapoint(tmp_path, ref, cache_index):
    folder = foreign_folder(tmp_path / "x", {"a": "utf8"}, {"a": [b"zero", b"one"]}, [[0], ref])
    reader = read(folder, cache_index)
    assert reader[0] == {"a": "zero"}
    with pytest.raises(DatasetError, match=r"x: .*datapoint 1"):
        reader[1]


@pytest.mark.parametrize("ref", [[[0, 9]], [[-1, 1]], [[0]], [3], [[0, 1, 2]], [["a", 1]], [[1, 2**62]]])
def test_damaged_ranges_are_errors(tmp_path, ref):
    folder = foreign_folder(tmp_path / "x", {"a": "utf8[]"}, {"a": [b"zero", b"one"]}, [[[0, 2]], ref])
    reader = read(folder)
    assert reader[0] == {"a": ["zero", "one"]}
    with pytest.raises(DatasetError, match="datapoint 1"):
        reader[1]


def test_a_damaged_table_names_file_and_byte(tmp_path):
    write(tmp_path / "data", PLAIN, plain_points())
    path = tmp_path / "data" / "bar.bag"
    path.chmod(0o644)
    data = bytearray(path.read_bytes())
    data[10 + 8 * 3 + 7] = 255
    path.write_bytes(data)
    with pytest.raises(DatasetError, match=r"bar\.bag: damaged limit at byte 34"):
        read(tmp_path / "data")[0]


def test_a_bag_of_another_length_is_found(tmp_path):
    write(tmp_path / "data", PLAIN, plain_points(10))
    write(tmp_path / "other", PLAIN, plain_points(9))
    for generation in ("foo.bag",):
        shutil.copy(tmp_path / "other" / generation, tmp_path / "copy.bag")
        os.replace(tmp_path / "copy.bag", tmp_path / "data" / generation)
    with pytest.raises(DatasetError, match=r"foo\.bag: 9 records, refs\.bag has 10"):
        read(tmp_path / "data")[0]


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a": 3}', '{"a": "x[]y"}', "[" * 100_000])
def test_a_damaged_spec_is_an_error(tmp_path, text):
    (tmp_path / "spec.json").write_text(text)
    with pytest.raises(LogloomError, match=r"spec\.json"):
        read(tmp_path)


def test_missing_files_are_named(tmp_path):
    with pytest.raises(DatasetError, match=r"spec\.json"):
        read(tmp_path / "nowhere")
    write(tmp_path / "data", MIXED, mixed_points(2))
    (tmp_path / "data" / "baz.bag").unlink()
    with pytest.raises(DatasetError, match=r"baz\.bag"):
        read(tmp_path / "data")[1]
    (tmp_path / "data" / "refs.bag").unlink()
    with pytest.raises(DatasetError, match=r"refs\.bag is missing"):
        read(tmp_path / "data")


def test_a_closed_reader_refuses(tmp_path):
    with read(write(tmp_path / "data", PLAIN, plain_points())) as reader:
        assert reader[0]
    for index in (0, slice(0, 2), (0, {"foo": True})):
        with pytest.raises(UsageError, match="closed"):
            reader[index]


@pytest.mark.parametrize("index", [10, -11, 10**30])
def test_a_datapoint_that_is_not_there_is_an_index_error(tmp_path, index):
    reader = read(write(tmp_path / "data", PLAIN, plain_points()))
    with pytest.raises(IndexError, match="of 10"):
        reader[index]


def test_many_datapoints_are_read_into_arrays(tmp_path):
    spec = {"image": "array", "label": "int", "name": "utf8", "stamp": "i64"}
    points = [{"image": np.full((3, 2), i, "f4"), "label": i, "name": "x", "stamp": -i} for i in range(9)]
    write(tmp_path / "data", spec, points)
    indices = np.array([7, 0, 7, 3])
    for options in ({}, {"cache_index": False}, {"cache_keys": ["image"]}):
        out = {"image": np.empty((4, 3, 2), "f4"), "label": np.empty(4, np.int64)}
        out["stamp"] = np.empty(4, np.int64)
        found = read(tmp_path / "data", **options).get_many(indices, out)
        assert found["label"].tolist() == (-found["stamp"]).tolist() == indices.tolist()
        assert (found["image"] == indices[:, None, None]).all()
    for wrong in (np.empty((4, 3, 2), "f8"), np.empty((4, 6), "f4"), np.empty((4, 2, 3), "f4")):
        with pytest.raises(ValueError, match="image"):
            read(tmp_path / "data").get_many(indices, {"image": wrong})
    every_second = np.empty((8, 3, 2), "f4")[::2]  # no read can fill rows that are no single piece of memory
    for out in ({"image": every_second}, {"stamp": np.empty(4, "f8")}):
        key, found = next(iter(read(tmp_path / "data").get_many(indices, out).items()))
        assert found.reshape(4, -1)[:, 0].tolist() == [(-i if key == "stamp" else i) for i in indices]
    for wrong_number in (np.empty((4, 1), np.int64), np.empty(4, "f4")):
        with pytest.raises(ValueError, match="stamp"):
            read(tmp_path / "data").get_many(indices, {"stamp": wrong_number})


@pytest.mark.parametrize("spec", [PLAIN, MIXED])
def test_datasets_lie_on_any_file_system(tmp_path, spec):
    uri = f"memory://bags-{len(spec)}/data"
    points = (plain_points if spec is PLAIN else mixed_points)(4)
    write(uri, spec, points)
    fs = fsspec.filesystem("memory")
    local = write(tmp_path / "data", spec, points)
    assert {pathlib.PurePath(p).name: fs.cat_file(p) for p in fs.ls(uri, detail=False)} == {
        path.name: path.read_bytes() for path in local.iterdir()
    }
    assert list(read(uri)) == points
    with pytest.raises(UsageError, match="already"):
        write(uri, spec, points)
    with granular.ShardedDatasetWriter(uri + "-sharded", spec, granular.encoders, shardlen=3) as writer:
        for point in points:
            writer.append(point)
    assert list(granular.ShardedDatasetReader(uri + "-sharded", granular.decoders)) == points


class OwnPath:
    """What granular asks of a path that is none of Python's."""

    def __init__(self, path):
        self.path = pathlib.Path(path)

    def __truediv__(self, name):
        return OwnPath(self.path / name)

    def __str__(self):
        return str(self.path)

    def open(self, mode):
        return self.path.open(mode)

    def exists(self):
        return self.path.exists()

    def mkdir(self):
        self.path.mkdir()

    def glob(self, pattern):
        return [OwnPath(path) for path in self.path.glob(pattern)]


def test_path_like_objects_of_ones_own_are_enough(tmp_path):
    points = mixed_points(5)
    write(OwnPath(tmp_path / "data"), MIXED, points)
    reader = read(OwnPath(tmp_path / "data"))
    assert list(pickle.loads(pickle.dumps(reader))) == points
    with granular.ShardedDatasetWriter(OwnPath(tmp_path / "root"), MIXED, granular.encoders, 2) as writer:
        for point in points:
            writer.append(point)
    assert list(granular.ShardedDatasetReader(OwnPath(tmp_path / "root"), granular.decoders)) == points


@pytest.mark.parametrize("shardlen", [None, 1, 3, 10, 15])
@pytest.mark.parametrize("parallel", [False, True])
def test_shards_read_as_one(tmp_path, shardlen, parallel):
    points = plain_points()
    with granular.ShardedDatasetWriter(tmp_path / "root", PLAIN, granular.encoders, shardlen) as writer:
        assert [writer.append(point) for point in points] == list(range(10))
    shards = writer.shards
    assert shards == -(-10 // (shardlen or 10))
    with granular.ShardedDatasetReader(tmp_path / "root", granular.decoders, parallel=parallel) as reader:
        assert (reader.shards, len(reader), reader.size, reader.spec) == (shards, 10, writer.size, PLAIN)
        assert list(reader) == points
        for start in range(11):
            for stop in range(start, 12):
                expected = {key: [point[key] for point in points[start:stop]] for key in PLAIN}
                assert reader[start:stop] == expected
        assert reader[2:4, {"bar": True}] == {"bar": [2, 3]}
        assert reader[-1, {"bar": True}] == {"bar": 9}
        assert reader.copy()[4] == pickle.loads(pickle.dumps(reader))[4] == points[4]
        assert reader.available(9) == {"foo": True, "bar": True}
        out = {"bar": np.empty(3, np.int64)}
        assert reader.get_many([9, 0, 4], out)["bar"].tolist() == [9, 0, 4]
        with pytest.raises(IndexError):
            reader[10]


def test_writers_that_share_a_root_never_show_unfinished_shards(tmp_path):
    root = tmp_path / "root"
    writers = [granular.ShardedDatasetWriter(root, PLAIN, granular.encoders, 2, k, 3) for k in range(3)]
    for writer in writers:
        writer.append(plain_points(1)[0])
    assert list(root.iterdir()) == []
    for writer in writers:
        writer.append(plain_points(1)[0])
        writer.close()
    assert sorted(path.name for path in root.iterdir()) == ["000000", "000001", "000002"]
    assert list(tmp_path.iterdir()) == [root]
    with (
        granular.ShardedDatasetWriter(root, PLAIN, granular.encoders) as late,
        pytest.raises(UsageError, match="finished dataset already"),
    ):
        late.append(plain_points(1)[0])


@pytest.mark.parametrize("arguments", [(0,), (None, 1), (None, 0, 2), (3, -1), (3, 0, 0)])
def test_shard_numbers_out_of_range_are_refused(tmp_path, arguments):
    with pytest.raises(UsageError):
        granular.ShardedDatasetWriter(tmp_path / "root", PLAIN, granular.encoders, *arguments)
    assert not (tmp_path / "root").exists()


def test_a_root_with_gaps_or_rubbish_is_refused(tmp_path):
    root = tmp_path / "root"
    with granular.ShardedDatasetWriter(root, PLAIN, granular.encoders, 1) as writer:
        for point in plain_points(3):
            writer.append(point)
    with pytest.raises(UsageError, match="none from 3"):
        granular.ShardedDatasetReader(root, granular.decoders, shardstart=3)
    shutil.move(root / "000001", tmp_path / "aside")
    with pytest.raises(DatasetError, match="'000002' is no shard"):
        granular.ShardedDatasetReader(root, granular.decoders)
    write(root / "000001", {"foo": "utf8"}, [{"foo": "x"}])
    with pytest.raises(DatasetError, match="shard 000001 has another spec"):
        granular.ShardedDatasetReader(root, granular.decoders)


def test_closed_says_whether_a_reader_or_writer_was_closed(tmp_path):
    made = {
        "bag": (granular.BagWriter(tmp_path / "one.bag"), lambda: granular.BagReader(tmp_path / "one.bag")),
        "dataset": (
            granular.DatasetWriter(tmp_path / "data", PLAIN, granular.encoders),
            lambda: granular.DatasetReader(tmp_path / "data", granular.decoders),
        ),
        "shards": (
            granular.ShardedDatasetWriter(tmp_path / "root", PLAIN, granular.encoders),
            lambda: granular.ShardedDatasetReader(tmp_path / "root", granular.decoders),
        ),
    }
    for writer, open_reader in made.values():
        assert not writer.closed
        with writer:
            writer.append(b"x" if isinstance(writer, granular.BagWriter) else plain_points(1)[0])
        assert writer.closed
        with open_reader() as reader:
            assert not reader.closed
        assert reader.closed
        with pytest.raises(UsageError, match="is closed"):
            reader[0]
        assert not reader.copy().closed
        assert pickle.loads(pickle.dumps(reader))[0] is not None
        assert not pickle.loads(pickle.dumps(reader)).closed
    with (
        pytest.raises(KeyError),
        granular.DatasetWriter(tmp_path / "no", PLAIN, granular.encoders) as writer,
    ):
        raise KeyError
    assert writer.closed


def test_negative_numbers_count_from_the_end_in_batches_too(tmp_path):
    points = [{"x": np.full(2, number, "f4")} for number in range(5)]
    write(tmp_path / "one", {"x": "array"}, points)
    with granular.ShardedDatasetWriter(tmp_path / "root", {"x": "array"}, granular.encoders, 2) as writer:
        for point in points:
            writer.append(point)
    for reader in (
        granular.DatasetReader(tmp_path / "one", granular.decoders),
        granular.ShardedDatasetReader(tmp_path / "root", granular.decoders),
    ):
        out = {"x": np.empty((3, 2), "f4")}
        assert reader.get_many([-1, 0, -5], out)["x"][:, 0].tolist() == [4, 0, 0]
        with pytest.raises(IndexError, match="datapoint -6 of 5"):
            reader.get_many([-6], {"x": np.empty((1, 2), "f4")})


def test_many_open_shards_do_not_run_out_of_descriptors(tmp_path):
    code = f"""
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (160, 160))
import logloom.io.formats.bags as granular
root = {str(tmp_path / "root")!r}
with granular.ShardedDatasetWriter(root, {{"a": "int", "b": "int"}}, granular.encoders, 1) as writer:
    for i in range(150):
        writer.append({{"a": i, "b": -i}})
reader = granular.ShardedDatasetReader(root, granular.decoders)
for _ in range(2):
    assert [(p["a"], p["b"]) for p in reader] == [(i, -i) for i in range(150)]
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
