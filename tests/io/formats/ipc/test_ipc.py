"""Arrow files: as pyarrow writes them, and in the layout of Hugging Face's `save_to_disk`."""

import json
import pickle
import re
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest

import logloom as ll
from logloom.errors import DatasetError, UsageError
from logloom.io.formats.foreign import kind_of, open_foreign
from logloom.io.formats.ipc import files
from logloom.io.formats.registry import format_named
from logloom.io.storage.store import Store
from logloom.schema import ColumnType, Schema

FEATURES = {
    "label": {"names": ["cat", "dog"], "_type": "ClassLabel"},
    "image": {"_type": "Image"},
    "grid": {"shape": [2, 3], "dtype": "float32", "_type": "Array2D"},
    "clip": {"shape": [None, 2], "dtype": "uint8", "_type": "Array2D"},
}
SPLIT_ROWS = {"train": [1, 2], "test": [3, 4]}
NESTED = pa.list_(pa.list_(pa.float32()))


def table(rows=5, start=0):
    n = range(start, start + rows)
    grids = [[[i, 1, 2], [3, 4, 5]] for i in n]
    columns = {
        "label": pa.array([i % 2 for i in n], pa.int64()),
        "image": pa.array(
            [{"bytes": b"x" * i, "path": f"{i}.png"} for i in n],
            pa.struct([("bytes", pa.binary()), ("path", pa.string())]),
        ),
        "grid": pa.array(grids, NESTED),
        "clip": pa.array([[[i % 256, j] for j in range(i % 3)] for i in n], pa.list_(pa.list_(pa.uint8()))),
        "at": pa.array([1000 * i for i in n], pa.timestamp("ms")),
        "text": pa.array([f"é{i}" for i in n]),
        "maybe": pa.array([i if i % 2 else None for i in n], pa.int32()),
        "pose": pa.array(
            [{"x": i / 2, "y": -i} for i in n], pa.struct([("x", pa.float64()), ("y", pa.int64())])
        ),
    }
    return pa.table(columns).replace_schema_metadata(huggingface(FEATURES))


def huggingface(features):
    """The metadata of a schema that declare some features."""
    return {"huggingface": json.dumps({"info": {"features": features}})}


def save(folder, tables):
    """Write tables as one dataset, or those of each split as a folder of datasets."""
    folder.mkdir()
    if isinstance(tables, dict):
        (folder / "dataset_dict.json").write_text(json.dumps({"splits": [*tables]}))
        for split, own in tables.items():
            save(folder / split, own)
        return
    names = [f"data-{number:05}-of-{len(tables):05}.arrow" for number in range(len(tables))]
    for name, one in zip(names, tables, strict=True):
        with pa.ipc.new_stream(folder / name, one.schema) as stream:
            stream.write_table(one, max_chunksize=2)
    state = {"_data_files": [{"filename": name} for name in names], "_split": None}
    (folder / "state.json").write_text(json.dumps(state))
    (folder / "dataset_info.json").write_text(json.dumps({"features": FEATURES}))


def check(rows, numbers):
    assert len(rows) == len(numbers)
    batch = rows.get_many(range(len(rows)))
    np.testing.assert_array_equal(batch["label"], np.array(numbers) % 2)
    np.testing.assert_array_equal(batch["at"], np.array(numbers) * 10**9)
    assert batch["text"] == [f"é{number}" for number in numbers]
    assert batch["image.bytes"] == [b"x" * number for number in numbers]
    assert batch["image.path"] == [f"{number}.png" for number in numbers]
    assert batch["grid"].shape == (len(numbers), 2, 3)
    np.testing.assert_array_equal(batch["grid"][:, 0, 0], numbers)
    np.testing.assert_array_equal(batch["clip"][1], np.array(numbers) % 3)
    np.testing.assert_array_equal(batch["pose"]["x"], np.array(numbers) / 2)
    available = rows.get_many(range(len(rows)), ["maybe.available"])["maybe.available"]
    np.testing.assert_array_equal(available, np.array(numbers) % 2 == 1)


def test_a_saved_dataset_has_the_types_of_its_features(tmp_path):
    save(tmp_path / "set", [table(5), table(4, 5)])
    rows = ll.open(tmp_path / "set")
    types = {name: str(ctype) for name, ctype in rows.schema.columns.items()}
    assert types == {
        "label": "int64",
        "image.bytes": "bytes",
        "image.path": "string",
        "grid": "float32[2, 3]",
        "clip": "uint8[?, 2]",
        "at": "int64",
        "text": "string",
        "maybe": "int32",
        "pose": "struct",
    }
    assert rows.schema.columns["label"].description == "classes: 0 cat, 1 dog"
    assert rows.schema.columns["at"].unit == "ns"
    check(rows, range(9))
    check(pickle.loads(pickle.dumps(rows)).take([7, 0, 7]), [7, 0, 7])
    assert len(ll.open(tmp_path / "set", where="label == 1 and available(maybe)")) == 4


def test_splits_open_alone_and_together(tmp_path):
    save(tmp_path / "set", {"train": [table(5)], "test": [table(3, 5)]})
    check(ll.open(tmp_path / "set"), range(8))
    check(ll.open(tmp_path / "set", split="test"), range(5, 8))
    assert ll.open(tmp_path / "set").index["split"].tolist() == ["train"] * 5 + ["test"] * 3


def test_a_saved_dataset_converts(tmp_path):
    save(tmp_path / "set", {"train": [table(5)], "test": [table(3, 5)]})
    ll.convert(tmp_path / "set", tmp_path / "out", "table", plain=True)
    check(ll.open(tmp_path / "out"), range(8))


@pytest.mark.parametrize("name", ["rows.arrow", "rows.feather"])
@pytest.mark.parametrize("make", [pa.ipc.new_file, pa.ipc.new_stream])
@pytest.mark.parametrize("compression", [None, "zstd"])
def test_single_files_open(tmp_path, name, make, compression):
    whole = table(7)
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with make(tmp_path / name, whole.schema, options=options) as file:
        file.write_table(whole, max_chunksize=3)
    check(ll.open(tmp_path / name), range(7))
    check(ll.open(tmp_path).take([6, 2]), [6, 2])


def test_remote_files_are_read_from_their_start(tmp_path):
    import fsspec

    memory = fsspec.filesystem("memory")
    for name, make in (("a", pa.ipc.new_stream), ("b", pa.ipc.new_file)):
        with memory.open(f"/ipc-remote/{name}.arrow", "wb") as file, make(file, table().schema) as writer:
            writer.write_table(table(4, 4 * (name == "b")), max_chunksize=3)
    check(ll.open("memory://ipc-remote").take([7, 1, 4]), [7, 1, 4])


def test_random_rows_copy_no_others_from_the_map(tmp_path):
    wide = pa.table({"x": np.zeros(1 << 22), "n": np.arange(1 << 22)})
    with pa.ipc.new_stream(tmp_path / "a.arrow", wide.schema) as stream:
        stream.write_table(wide, max_chunksize=1 << 20)
    rows = ll.open(tmp_path / "a.arrow")
    before = pa.total_allocated_bytes()
    assert rows.get_many([5, 3_000_000], ["n"])["n"].tolist() == [5, 3_000_000]
    assert pa.total_allocated_bytes() - before < 1 << 16


STATE = {"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"_data_files": [{"filename": "../a.arrow"}]}, "'../a.arrow' leads out of the folder"),
        ({"_data_files": [{"filename": "/etc/passwd"}]}, "leads out of the folder"),
        ({"_data_files": [{"filename": "gone.arrow"}]}, "lists gone.arrow, which the folder lacks"),
        ({"_data_files": STATE["_data_files"] * 2}, "lists a name twice"),
        ({"_data_files": [{"filename": 3}]}, "no list of names in filename"),
        ({"_data_files": 3}, "no list of files in _data_files"),
        ({"_data_files": []}, "no list of names in filename"),
        ([], "no list of files in _data_files"),
        ({**STATE, "_indices_data_files": [{"filename": "indices.arrow"}]}, "call flatten_indices()"),
    ],
)
def test_a_wrong_state_is_an_error_that_names_it(tmp_path, state, message):
    save(tmp_path / "set", [table()])
    (tmp_path / "set" / "state.json").write_text(json.dumps(state))
    with pytest.raises(DatasetError, match=re.escape(message)) as caught:
        ll.open(tmp_path / "set")
    assert "set/state.json: " in str(caught.value)


@pytest.mark.parametrize("splits", [["../set"], ["train", "gone"], [], "train"])
def test_wrong_splits_are_an_error(tmp_path, splits):
    save(tmp_path / "set", {"train": [table()]})
    (tmp_path / "set" / "dataset_dict.json").write_text(json.dumps({"splits": splits}))
    with pytest.raises(DatasetError, match="save_to_disk"):
        ll.open(tmp_path / "set")


@pytest.mark.parametrize("make", [pa.ipc.new_file, pa.ipc.new_stream])
def test_cut_files_are_an_error(tmp_path, make):
    path = tmp_path / "a.arrow"
    with make(path, table().schema) as file:
        file.write_table(table())
    data = path.read_bytes()
    for size in range(0, len(data) - 16, 97):
        path.write_bytes(data[:size])
        with pytest.raises(DatasetError):
            ll.open(path)


def test_offsets_beyond_a_buffer_are_an_error(tmp_path):
    path = tmp_path / "a.arrow"
    texts = pa.table({"text": ["one", "two", "three"]})
    with pa.ipc.new_stream(path, texts.schema) as stream:
        stream.write_table(texts)
    data = path.read_bytes()
    offsets = np.array([0, 3, 6, 11], "<i4").tobytes()
    assert data.count(offsets) == 1
    path.write_bytes(data.replace(offsets, np.array([0, 3, 6, 1 << 30], "<i4").tobytes()))
    with pytest.raises(DatasetError, match=r"a\.arrow: not an Arrow IPC file, or damaged"):
        ll.open(path)


def test_an_array_of_another_shape_than_declared_is_left_out(tmp_path):
    odd = table(2).set_column(2, "grid", pa.array([[[1, 2, 3]], [[4, 5, 6]]], NESTED))
    save(tmp_path / "set", [odd])
    with pytest.warns(UserWarning, match="grid: .* another shape than the declared one"):
        rows = ll.open(tmp_path / "set")
    assert "grid" not in rows.columns
    assert rows[1]["text"] == "é1"


def test_its_kind_is_recognized(tmp_path):
    save(tmp_path / "set", [table()])
    assert kind_of(Store.at(str(tmp_path / "set"))).kind == "arrow"
    assert open_foreign(str(tmp_path / "set")).kind == files.ArrowFiles.kind


def test_it_is_no_output(tmp_path):
    from logloom.io.beam import WriteTo

    schema = Schema({"x": ColumnType(np.dtype("f8"))})
    with pytest.raises(UsageError, match=r"'arrow' can only be read; use .*parquet"):
        WriteTo(tmp_path / "out", "arrow", schema)
    with pytest.raises(UsageError, match="no installed part offers output 'arrow'; here it is parquet"):
        format_named("arrow")


def test_files_with_dictionaries_are_read_by_many_threads(tmp_path):
    words = pa.table({"word": pa.array(["a", "b", "c"] * 40).dictionary_encode()})
    with pa.ipc.new_file(tmp_path / "a.arrow", words.schema) as file:
        file.write_table(words, max_chunksize=7)
    rows = ll.open(tmp_path / "a.arrow")
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda row: rows[row]["word"], range(120)))
    assert found == words["word"].to_pylist()
    fresh = files.ArrowFile(pa.py_buffer((tmp_path / "a.arrow").read_bytes()))
    assert fresh._footed.stats.num_dictionary_batches == 1  # before threads read batches


@pytest.mark.parametrize("name", ["split", "Split"])
def test_folders_decide_the_split_whatever_a_column_says(tmp_path, name):
    odd = {split: pa.table({"x": x, name: ["test", "train"]}) for split, x in SPLIT_ROWS.items()}
    save(tmp_path / "set", {split: [one] for split, one in odd.items()})
    rows = ll.open(tmp_path / "set", split="train").get_many([0, 1])
    assert (rows["x"].tolist(), rows["split"]) == ([1, 2], ["train", "train"])
    assert rows["split_"] == ["test", "train"]
    assert ll.open(tmp_path / "set", columns=["split_"])[3]["split_"] == "train"


def test_two_columns_of_one_name_beside_a_split_are_left_out(tmp_path):
    twice = pa.table({"x": [1, 2], "split": ["a", "b"], "split_": ["c", "d"]})
    save(tmp_path / "set", {"train": [twice]})
    rows = ll.open(tmp_path / "set")
    assert "the name occurs twice" in rows.left_out["split_"]
    assert rows[0]["split"] == "train"


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([None] * 4, "needs 8,000,000,000 bytes"),
        ([[None] * 1000] * 2, "needs 8,000,000 bytes, and nulls may need 268,435,456"),
    ],
)
def test_nulls_of_a_huge_declared_shape_are_left_out(tmp_path, rows, why):
    kind = pa.list_(pa.list_(pa.list_(pa.int64())))
    features = {"x": {"_type": "Array3D", "shape": [1000, 1000, 1000], "dtype": "int64"}}
    bomb = pa.table({"x": pa.array(rows, kind), "y": range(len(rows))})
    save(tmp_path / "set", [bomb.replace_schema_metadata(huggingface(features))])
    with pytest.warns(UserWarning, match="left out"):
        found = ll.open(tmp_path / "set")
    assert re.search(rf"data-00000-of-00001\.arrow.*{why}", found.left_out["x"])
    assert (found.columns, found[1]["y"]) == (("y",), 1)


def test_many_nulls_of_a_declared_shape_are_read_in_small_batches(tmp_path):
    features = {"x": {"_type": "Array2D", "shape": [64, 256], "dtype": "float64"}}  # 128 KiB
    bomb = pa.table({"x": pa.nulls(2000, pa.list_(pa.list_(pa.float64()))), "y": range(2000)})
    with pa.ipc.new_stream(tmp_path / "a.arrow", bomb.schema.with_metadata(huggingface(features))) as stream:
        stream.write_table(bomb.replace_schema_metadata(huggingface(features)))
    raw = files.ArrowFiles(Store.at(str(tmp_path / "a.arrow")))
    (piece,) = raw.pieces(None)
    sizes = [len(batch["y"].values) for batch in raw.batches(piece, None, 16 << 20)]
    assert (sum(sizes), max(sizes)) == (2000, 127)


def test_compressed_streams_are_kept_in_memory_up_to_a_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_KEPT_BYTES", 4 << 20)
    monkeypatch.setattr(files._open_files, "max_bytes", 4 << 20)
    files._open_files.clear()
    before = pa.total_allocated_bytes()
    for name, rows in (("a", 1 << 20), ("b", 2 << 20), ("c", 3 << 20), ("d", 8 << 20)):
        zeros = pa.table({"x": np.arange(rows) % 100}).cast(pa.schema({"x": pa.int8()}))
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with pa.ipc.new_stream(tmp_path / f"{name}.arrow", zeros.schema, options=options) as stream:
            stream.write_table(zeros, max_chunksize=1 << 18)
        del zeros
        found = ll.open(tmp_path / f"{name}.arrow")
        assert found.get_many([5, rows - 1])["x"].tolist() == [5, (rows - 1) % 100]
        del found
        assert pa.total_allocated_bytes() - before < 4 << 20
        file = files.ArrowFile(pa.py_buffer((tmp_path / f"{name}.arrow").read_bytes()))
        assert (file.num_batches is None) == (rows > 4 << 20)
        assert pa.total_allocated_bytes() - before < 8 << 20  # two files, one of them also in the cache
        del file


def test_a_remote_stream_is_read_once_when_it_is_opened(monkeypatch):
    import fsspec

    own = pa.table({"x": np.arange(1 << 16)})
    memory = fsspec.filesystem("memory")
    with memory.open("/ipc-once/a.arrow", "wb") as file, pa.ipc.new_stream(file, own.schema) as stream:
        stream.write_table(own, max_chunksize=1 << 12)
    monkeypatch.setattr(files, "_PIECE_BYTES", 1 << 16)
    decoded = []

    class Stream:
        def __init__(self, data, read=pa.ipc.open_stream):
            self._stream = read(data)
            self.schema = self._stream.schema

        def __iter__(self):
            for batch in self._stream:
                decoded.append(len(batch))
                yield batch

    monkeypatch.setattr(pa.ipc, "open_stream", Stream)
    rows = ll.open("memory://ipc-once")
    assert decoded == [1 << 12] * 16
    assert rows.to_arrow()["x"].to_pylist() == own["x"].to_pylist()
    assert decoded == [1 << 12] * 32
