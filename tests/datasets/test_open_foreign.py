"""`logloom.datasets.open` over folders that stand by themselves: tables, bags, tars, zarr, L5Kit."""

import io
import json
import pickle
import tarfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xarray
import zarr

import logloom.datasets
import logloom.io.formats.table as tt
from logloom.datasets import Loader
from logloom.datasets import open as opened
from logloom.errors import DatasetError, UsageError
from logloom.io.formats import bags
from logloom.io.formats.l5kit import ChunkedDataset
from logloom.io.formats.l5kit.dtypes import AGENTS, FRAMES, SCENES, TL_FACES
from tests.absent import needs, present
from tests.forking import command
from tests.io.formats.table.making import drive


def write_bags(folder, numbers, spec, generation=1):
    with bags.DatasetWriter(folder, spec, bags.encoders, generation=generation) as writer:
        for number in numbers:
            writer.append(datapoint(number, spec))
    return folder


def datapoint(number, spec):
    whole = {
        "log_id": f"drive-{number // 5}",
        "timestamp": number * 10**8,
        "pose": np.arange(4, dtype=np.float32) + number,
        "points": np.full((number % 3 + 1, 2), number, np.int16),
        "name": f"n{number}",
        "image": bytes([number]) * 3,
        "count": number - 4,
        "labels": [number, number + 1],
        "tree": {"a": np.int64(number), "b": ["x"]},
    }
    return {key: whole[key] for key in spec}


SPEC = {
    "pose": "array", "points": "array", "name": "utf8", "image": "jpg", "count": "int", "labels": "int[]",
    "tree": "tree",
}  # fmt: skip


def test_a_log_id_that_names_no_logs_is_a_value_like_any_other(tmp_path):
    with bags.DatasetWriter(tmp_path / "set", {"log_id": "i64", "x": "i64"}, bags.encoders) as writer:
        for number in range(4):
            writer.append({"log_id": number, "x": 2 * number})
    rows = logloom.datasets.open(tmp_path / "set")
    assert rows.spec["log_id"] == (np.dtype(np.int64), ())
    with Loader(rows, 4, workers=0, shuffle=False) as loader:
        assert next(loader)["log_id"].tolist() == [0, 1, 2, 3]


def test_the_datapoints_of_a_folder_of_bags_are_rows(tmp_path):
    write_bags(tmp_path / "set", range(7), SPEC)
    dataset = logloom.datasets.open(tmp_path / "set")
    assert len(dataset) == 7
    row = dataset[-1]
    assert row["name"] == "n6"
    assert row["image"] == b"\6\6\6"
    assert row["count"] == 2
    assert row["count"].dtype == np.int64
    assert list(row["labels"]) == [6, 7]
    np.testing.assert_array_equal(row["points"], np.full((1, 2), 6, np.int16))
    assert str(dataset.schema.columns["pose"]) == "float32[4]"
    assert dataset.schema.columns["points"].dtype == np.int16
    assert set(dataset.index["log_id"]) == {"set"}
    batch = dataset.select(["pose", "count", "name", "labels"]).get_many([6, 0])
    assert batch["count"].tolist() == [2, -4]
    assert batch["name"] == ["n6", "n0"]
    assert [list(value) for value in batch["labels"]] == [[6, 7], [0, 1]]
    np.testing.assert_array_equal(batch["pose"][:, 0], [6, 0])


@pytest.mark.parametrize("generation", [1, 3])
def test_shards_of_bags_with_log_ids_and_stamps_have_windows_within_their_logs(tmp_path, generation):
    spec = {"log_id": "utf8", "timestamp": "i64", "pose": "array"}
    for number in range(3):
        write_bags(tmp_path / f"{number:06d}", range(4 * number, 4 * number + 4), spec, generation)
    dataset = logloom.datasets.open(tmp_path)
    assert dataset.index.log_id.tolist() == ["drive-0"] * 5 + ["drive-1"] * 5 + ["drive-2"] * 2
    assert dataset.index.timestamp.tolist() == [n * 10**8 for n in range(12)]
    windows = dataset.window([-1, 0])  # across shards, not across logs
    assert [int(w["pose"][1, 0]) for w in windows] == [1, 2, 3, 4, 6, 7, 8, 9, 11]
    assert len(dataset.window([-1, 0], max_gap="10ms")) == 0
    assert len(logloom.datasets.open(tmp_path, where="log_id == 'drive-1' and timestamp > 700000000")) == 2


def add(tar, name, data):
    info = tarfile.TarInfo(name)
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))


def write_shards(folder, count=3):
    folder.mkdir()
    for shard in range(count):
        with tarfile.open(folder / f"train-{shard:03d}.tar", "w") as tar:
            for number in range(4):
                key = f"s{shard}/{number:04d}"
                add(tar, f"{key}.jpg", bytes([shard, number]))
                add(tar, f"{key}.json", json.dumps({"n": number}).encode())
    return folder


def test_samples_of_shards_are_rows_of_bytes_by_suffix(tmp_path):
    write_shards(tmp_path / "wds")
    dataset = logloom.datasets.open(tmp_path / "wds")
    assert len(dataset) == 12
    assert dataset[5] == {"__key__": "s1/0001", "jpg": b"\1\1", "json": b'{"n": 1}'}
    assert dataset.index["key"][5] == "s1/0001"
    assert set(dataset.index["log_id"]) == {"train-000", "train-001", "train-002"}
    assert dataset.select("jpg").get_many([0, 11])["jpg"] == [b"\0\0", b"\2\3"]
    windows = dataset.select("jpg").window([0, 1])
    assert len(windows) == 9
    assert windows[3]["jpg"] == [b"\1\0", b"\1\1"]
    braces = logloom.datasets.open(f"{tmp_path}/wds/train-{{000..001}}.tar", where="key != 's0/0000'")
    assert len(braces) == 7
    assert len(logloom.datasets.open(tmp_path / "wds/train-002.tar")) == 4


def test_the_samples_of_a_real_shard_open(shared_data):
    dataset = logloom.datasets.open(shared_data / "webdataset/tendata.tar")
    assert len(dataset) == 100
    assert dataset.columns == ("ten",)
    assert isinstance(dataset[-1]["ten"], bytes)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_arrays_of_a_foreign_zarr_group_are_columns(tmp_path, zarr_format):
    group = zarr.open_group(tmp_path / "x.zarr", mode="w", zarr_format=zarr_format)
    values = {"speed": np.arange(20.0), "pose": np.arange(60, dtype="f4").reshape(20, 3)}
    for name, value in values.items():
        group.create_array(name, data=value, chunks=(7, *value.shape[1:]))
    dataset = logloom.datasets.open(tmp_path / "x.zarr")
    assert len(dataset) == 20
    assert str(dataset.schema.columns["pose"]) == "float32[3]"
    np.testing.assert_array_equal(dataset[-3]["pose"], values["pose"][17])
    order = [3, 19, 3, 0]
    np.testing.assert_array_equal(dataset.get_many(order)["pose"], values["pose"][order])
    np.testing.assert_array_equal(dataset.window([-1, 0])[4]["speed"], [4.0, 5.0])
    assert len(logloom.datasets.open(tmp_path / "x.zarr", where="speed >= 15 and pose[1] > 50")) == 3
    with Loader(dataset.window([-1, 0]), batch=5, shuffle=False, workers=0) as loader:
        np.testing.assert_array_equal(next(loader)["speed"][:, 0], [0, 1, 2, 3, 4])
    group.create_array("other", data=np.zeros(5))
    with pytest.raises(UsageError, match=r"differ in length .*other: 5.*columns="):
        logloom.datasets.open(tmp_path / "x.zarr")
    assert len(logloom.datasets.open(tmp_path / "x.zarr", columns=["speed"])) == 20
    with pytest.raises(UsageError, match="no column matches 'sped'"):
        logloom.datasets.open(tmp_path / "x.zarr", columns=["sped", "speed"])


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_groups_with_the_same_arrays_are_logs_of_a_foreign_zarr_group(tmp_path, zarr_format):
    root = zarr.open_group(tmp_path / "x.zarr", mode="w", zarr_format=zarr_format)
    for name, count in (("town/b", 3), ("town/a", 4), ("field", 2)):
        group = root.create_group(name)
        group.create_array("speed", data=np.arange(float(count)))
        group.create_array("pose", data=np.full((count, 2), count, "i2"))
        group.create_array("offset", data=np.float64(1))
    dataset = logloom.datasets.open(tmp_path / "x.zarr")
    assert dataset.index.log_id.tolist() == ["field"] * 2 + ["town/a"] * 4 + ["town/b"] * 3
    assert dataset.get_many([8, 0, 2])["pose"].tolist() == [[3, 3], [2, 2], [4, 4]]
    assert [w["speed"].tolist() for w in dataset.window([-1, 0]).take(2)] == [[0.0, 1.0], [0.0, 1.0]]
    assert len(logloom.datasets.open(tmp_path / "x.zarr", where="log_id == 'town/a' and speed > 1")) == 2
    assert pickle.loads(pickle.dumps(dataset))[3]["speed"] == 1.0
    assert len(logloom.datasets.open(tmp_path / "x.zarr/town")) == 7
    root["field"].create_array("extra", data=np.zeros(2))
    with pytest.raises(UsageError, match=r"its groups differ \(extra: float64 in .*columns="):
        logloom.datasets.open(tmp_path / "x.zarr")
    assert len(logloom.datasets.open(tmp_path / "x.zarr", columns=["speed", "p*"])) == 9
    assert dataset.get_many([]).keys() <= {"pose", "speed"}
    zarr.open_group(tmp_path / "empty.zarr", mode="w").create_group("inner")
    with pytest.raises(UsageError, match="without arrays has no rows"):
        logloom.datasets.open(tmp_path / "empty.zarr")


def test_coordinates_of_other_axes_are_no_columns_of_a_dataset_of_xarray(tmp_path):
    before = xarray.Dataset(
        {"scan": (("time", "beam"), np.arange(12.0).reshape(3, 4))}, coords={"beam": [0.1, 0.2, 0.3, 0.4]}
    )
    before.to_zarr(tmp_path / "x.zarr", zarr_format=2)
    dataset = logloom.datasets.open(tmp_path / "x.zarr")
    assert dataset.columns == ("scan",)
    np.testing.assert_array_equal(dataset.get_many([2, 0])["scan"], before["scan"][[2, 0]])


def write_l5kit(path, frames_of_scenes=(4, 3)):
    frames = np.zeros(sum(frames_of_scenes), FRAMES.dtype)
    frames["timestamp"] = np.arange(len(frames)) * 10**8
    frames["ego_translation"][:, 0] = np.arange(len(frames))
    frames["agent_index_interval"] = np.stack([np.arange(len(frames)), np.arange(1, len(frames) + 1)], axis=1)
    scenes = np.zeros(len(frames_of_scenes), SCENES.dtype)
    ends = np.cumsum(frames_of_scenes)
    scenes["frame_index_interval"] = np.stack([ends - frames_of_scenes, ends], axis=1)
    agents = np.zeros(len(frames), AGENTS.dtype)
    agents["track_id"] = np.arange(len(frames)) + 100
    dataset = ChunkedDataset(path)
    dataset.initialize(num_scenes=len(scenes), num_frames=len(frames), num_agents=len(agents))
    dataset.scenes[:], dataset.frames[:], dataset.agents[:] = scenes, frames, agents
    assert TL_FACES.key in zarr.open_group(path)
    return path


def test_the_scenes_of_an_l5kit_dataset_are_logs_of_frames(tmp_path):
    dataset = logloom.datasets.open(write_l5kit(tmp_path / "x.zarr"))
    assert dataset.index.log_id.tolist() == ["000000000"] * 4 + ["000000001"] * 3
    assert dataset.index.row.tolist() == [0, 1, 2, 3, 0, 1, 2]
    assert dataset[5]["agents"]["track_id"].tolist() == [105]
    assert len(dataset.window([-1, 0])) == 5
    batch = dataset.get_many([6, 1])
    assert batch["agents"][0]["track_id"].tolist() == [106, 101]
    assert batch["ego_translation"][:, 0].tolist() == [6.0, 1.0]


def test_frames_whose_agents_end_before_they_begin_are_refused(tmp_path):
    path = write_l5kit(tmp_path / "x.zarr")
    frames = ChunkedDataset(path).open("r+").frames
    changed = frames[:]
    changed["agent_index_interval"][:3] = [[0, 2], [2, 1], [1, 3]]
    frames[:] = changed
    with pytest.raises(DatasetError, match="the agents of frame 1 end before they begin"):
        logloom.datasets.open(path).get_many([0, 1, 2])


def test_the_real_scene_opens(shared_data):
    needs("l5kit")
    (path,) = list((shared_data / "l5kit").glob("*.zarr")) or [None]
    if path is None:
        pytest.skip("no zarr in the shared data")
    assert len(logloom.datasets.open(path)) == 248


@pytest.fixture
def table(tmp_path):
    rows = drive(num_logs=3, rows=10)
    tt.write_table(f"{tmp_path}/sensors", rows, index=["pedestrians_count"])
    return tmp_path / "sensors", rows


def test_a_table_that_stands_by_itself_opens_with_its_index(table):
    path, rows = table
    dataset = logloom.datasets.open(path, where="pedestrians_count > 2")
    chosen = [row for row in rows if row["pedestrians_count"] > 2]
    assert [(row["log_id"], row["timestamp"]) for row in dataset] == [
        (row["log_id"], row["timestamp"]) for row in chosen
    ]
    assert dataset.index["pedestrians_count"].tolist() == [row["pedestrians_count"] for row in chosen]
    assert len(logloom.datasets.open(path).window([0, 1, 2])) == 3 * 8


def test_what_is_no_dataset_is_told_with_what_lies_there(tmp_path, table):
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match=r"no dataset that can be opened .an empty folder"):
        logloom.datasets.open(tmp_path / "empty")
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(UsageError, match=r"no dataset that can be opened .a file"):
        logloom.datasets.open(tmp_path / "notes.txt")
    (tmp_path / "empty/notes.txt").write_text("hello")
    with pytest.raises(UsageError, match=r"it contains notes\.txt"):
        logloom.datasets.open(tmp_path / "empty")
    with pytest.raises(UsageError, match="no root of logloom, so it has no version"):
        logloom.datasets.open(table[0], 3)
    with pytest.raises(UsageError, match="one dataset, not a folder for each split"):
        logloom.datasets.open(table[0], split="train")


def test_values_that_differ_in_shape_are_told_with_the_row(tmp_path):
    spec = {"points": "array"}
    with bags.DatasetWriter(tmp_path / "set", spec, bags.encoders) as writer:
        for length in (2, 3, 2):
            writer.append({"points": np.zeros((length, 2))})
    dataset = logloom.datasets.open(tmp_path / "set")
    with pytest.raises(UsageError, match=r"points is \[3, 2\] in row 1 and \[2, 2\] in row 0"):
        dataset.get_many([0, 1])
    assert dataset[1]["points"].shape == (3, 2)


@pytest.mark.parametrize("kind", present("parquet", "lance", "one file"))
def test_what_can_be_converted_can_be_opened(tmp_path, kind):
    table = pa.table(
        {
            "log_id": ["a"] * 30 + ["b"] * 20,
            "timestamp": list(range(30)) + list(range(20)),
            "speed": np.arange(50, dtype="f4"),
            "points": [[1.5] * (n % 3) for n in range(50)],
        }
    )
    place = tmp_path / "rows"
    if kind == "lance":
        lance = pytest.importorskip("lance")
        lance.write_dataset(table, str(place), max_rows_per_file=20)
    else:
        place.mkdir()
        pq.write_table(table.slice(0, 20), place / "0.parquet", row_group_size=7)
        pq.write_table(table.slice(20), place / "1.parquet", row_group_size=7)
    place = place / "1.parquet" if kind == "one file" else place
    first = 20 if kind == "one file" else 0
    rows = logloom.datasets.open(place, columns=["speed", "points"])
    assert [row["speed"] for row in rows] == list(range(first, 50))
    assert [row["points"].tolist() for row in rows] == [[1.5] * (n % 3) for n in range(first, 50)]
    assert rows[-1]["log_id"] == "b"
    assert rows[-1]["timestamp"] == 19
    fast = logloom.datasets.open(place, columns=["speed"], where="speed > 40 and log_id == 'b'")
    again = pickle.loads(pickle.dumps(fast))
    assert again.get_many([0, 8])["speed"].tolist() == [41, 49]


def test_parquet_lists_of_empty_lists_are_rows_of_no_elements(tmp_path):
    lists = pa.array([[[], []], [], [[]]], pa.list_(pa.list_(pa.float64())))
    pq.write_table(pa.table({"x": lists}), tmp_path / "lists.parquet")
    rows = logloom.datasets.open(str(tmp_path))
    assert [(row["x"].dtype, row["x"].shape) for row in rows] == [
        ("f8", (2, 0)),
        ("f8", (0, 0)),
        ("f8", (1, 0)),
    ]
    assert rows.get_many([0, 1])["x"][0].shape == (0,)


def test_parquet_rows_that_nothing_orders_have_no_times(tmp_path):
    pq.write_table(pa.table({"label": ["x", "y"]}), tmp_path / "labels.parquet")
    assert list(logloom.datasets.open(tmp_path)) == [{"label": "x"}, {"label": "y"}]


@pytest.fixture(params=present("parquet", "lance"))
def labels(request, tmp_path):
    """Rows of which the second has nulls."""
    table = pa.table(
        {
            "label": pa.array([3, None, 0], pa.int64()),
            "text": pa.array(["", None, "x"]),
            "flag": pa.array([True, None, False]),
        }
    )
    path = tmp_path / f"labels.{request.param}"
    if request.param == "parquet":
        pq.write_table(table, path)
    else:
        pytest.importorskip("lance").write_dataset(table, str(path))
    return path


MASK = [True, False, True]


def test_where_a_column_has_nulls_is_a_column_that_can_be_named(labels):
    for name in ("label", "text", "flag"):
        mask = f"{name}.available"
        assert [row[mask] for row in opened(labels, columns=[name, mask])] == MASK
        assert [row[mask] for row in opened(labels, columns=mask)] == MASK
        assert [row[mask] for row in opened(labels).select([name, mask])] == MASK
        assert [*opened(labels).to_pandas([mask])[mask]] == MASK
    assert [list(row) for row in opened(labels).select("*.available").take(1)] == [
        ["label.available", "text.available", "flag.available"]
    ]


def test_a_filter_sees_columns_that_rows_do_not_have(labels):
    assert [row["text"] for row in opened(labels, columns="text", where="available(label)")] == ["", "x"]
    assert [row["text"] for row in opened(labels, columns="text", where="label == 0")] == ["x"]
    assert [row["flag"] for row in opened(labels).filter("not available(text)")] == [False]


def test_a_loader_gives_masks_of_nulls(labels):
    rows = opened(labels, columns=["label", "label.available"])
    with Loader(rows, batch=3, workers=1, shuffle=False) as loader:
        batch = next(loader)
    assert batch["label.available"].tolist() == MASK


@pytest.fixture(params=present("parquet", "lance"))
def unsorted(request, tmp_path):
    """Rows of logs that don't come by name; v is the number of the row."""
    table = pa.table({"log_id": ["b", "b", "a", "a"], "timestamp": [0, 1, 0, 1], "v": [0, 1, 2, 3]})
    path = tmp_path / f"unsorted.{request.param}"
    if request.param == "parquet":
        pq.write_table(table, path)
    else:
        pytest.importorskip("lance").write_dataset(table, str(path))
    return path


def test_rows_come_in_the_order_of_the_file_whatever_their_logs_are_called(unsorted):
    rows = opened(unsorted)
    assert [(row["log_id"], row["timestamp"], row["v"]) for row in rows] == [
        ("b", 0, 0),
        ("b", 1, 1),
        ("a", 0, 2),
        ("a", 1, 3),
    ]
    assert rows.get_many([3, 0, 2])["v"].tolist() == [3, 0, 2]
    assert [window["v"].tolist() for window in rows.window([-1, 0])] == [[0, 1], [2, 3]]
    assert [row["v"] for row in opened(unsorted, where="log_id == 'a'")] == [2, 3]


def test_log_ids_of_rows_without_times_are_in_the_index_as_the_error_says(tmp_path):
    pq.write_table(pa.table({"log_id": ["a", "a", "b"], "v": [1, 2, 3]}), tmp_path / "x.parquet")
    rows = logloom.datasets.open(tmp_path)
    assert rows.index["log_id"].tolist() == ["a", "a", "b"]
    for columns in ("log_id", ["log_id", "v"], "log_id_", "timestamp"):
        with pytest.raises(UsageError, match=r"'\w+' is no column; `rows\.index` has the log_id of each row"):
            rows.select(columns)
    for columns in ("log_id", ["log_id", "v"], "log_id_"):
        with pytest.raises(
            UsageError, match=r"'log_id_?' is no column; `rows\.index` has the log_id of each row"
        ):
            logloom.datasets.open(tmp_path, columns=columns)


@pytest.mark.parametrize("output", present("table", "parquet", "tar", "zarr", "bags"))
def test_a_conversion_keeps_the_order_of_rows_and_says_what_log_id_is(unsorted, tmp_path, output):
    done = command("convert", unsorted, tmp_path / "root", "--format", output)
    assert done.returncode == 0, done.stderr
    assert "log_id doesn't order the rows; it is column log_id_" in done.stderr
    rows = [*opened(tmp_path / "root")]
    assert [(row["log_id_"], row["timestamp_"], row["v"]) for row in rows] == [
        ("b", 0, 0),
        ("b", 1, 1),
        ("a", 0, 2),
        ("a", 1, 3),
    ]


def test_a_table_has_its_logs_in_the_order_in_which_they_were_given(tmp_path):
    keys = [("b", 0), ("b", 1), ("a", 0), ("a", 1)]
    rows = [{"log_id": log, "timestamp": stamp, "v": number} for number, (log, stamp) in enumerate(keys)]
    tt.write_table(str(tmp_path / "t"), rows, index=["v"])
    assert tt.read_index(str(tmp_path / "t"))["v"].tolist() == [0, 1, 2, 3]
    assert [(row["log_id"], row["timestamp"]) for row in opened(tmp_path / "t")] == keys


def test_filters_look_into_structs_of_bags_that_are_opened_as_they_are(tmp_path):
    spec = {"x": "i64", "objects": "tree", "other": "tree"}
    with bags.DatasetWriter(tmp_path / "set", spec, bags.encoders) as writer:
        for number in range(9):
            speeds, labels = np.arange(number, dtype=np.float32), np.array(["é" * number] * number, np.str_)
            objects = {"speed": speeds, "pose": {"x": -speeds}, "label": labels}
            writer.append({"x": number, "objects": objects, "other": {"a": [1, "b"]}})
    rows = logloom.datasets.open(tmp_path / "set")
    assert sorted(rows[2]["objects"]) == ["label", "pose", "speed"]
    for where, kept in [
        ("any(objects, speed > 5)", [7, 8]),
        ("any(objects, pose.x < -5 and speed > 6)", [8]),
        ("count(objects, speed >= 0) == 3 or x == 1", [1, 3]),
        ("any(objects, label == 'éé')", [2]),
        ("all(objects, speed < 2)", [0, 1, 2]),
    ]:
        assert logloom.datasets.open(tmp_path / "set", where=where).positions.tolist() == kept
        assert rows.filter(where).positions.tolist() == kept
    with pytest.raises(UsageError, match=r"other.*have elements"):
        rows.filter("any(other, a > 1)")


@pytest.mark.parametrize("shardlen", [None, 2])
@pytest.mark.parametrize(
    ("kind", "number"), [("tree", float), ("tree", np.float64), ("tree", np.array), ("msgpack", float)]
)
def test_numbers_in_trees_and_maps_of_plain_bags_are_structs(tmp_path, shardlen, kind, number):
    many = {} if shardlen is None else {"shardlen": shardlen}
    writer = bags.DatasetWriter if shardlen is None else bags.ShardedDatasetWriter
    with writer(tmp_path / "set", {"i": "int", "pose": kind}, bags.encoders, **many) as file:
        for i in range(5):
            file.append({"i": i, "pose": {"position": {"x": number(float(i)), "y": -i}, "id": i}})
    source = logloom.datasets.open(tmp_path / "set").source
    struct = source.structs["pose"]
    assert struct.shape == ()
    assert struct.dtype["position"].names == ("x", "y")
    taken = source.take_structs(np.array([4, 1]), ["pose"])["pose"]
    assert taken["position"]["x"].tolist() == [4, 1]
    assert taken["id"].tolist() == [4, 1]


def test_integers_of_a_struct_that_floats_of_other_rows_would_round_are_an_error(tmp_path):
    for name, numbers in (("small", [1, 2.5, 3]), ("large", [2**53 + 1, 2.5, 3])):
        with bags.DatasetWriter(tmp_path / name, {"m": "msgpack"}, bags.encoders) as writer:
            for number in numbers:
                writer.append({"m": {"v": number}}, flush=False)
    assert len(logloom.datasets.open(tmp_path / "small", where="m.v > 2")) == 2
    with pytest.raises(DatasetError, match=r"m is not the same struct .*integers beyond 2\^53"):
        logloom.datasets.open(tmp_path / "large", where="m.v > 2")


def test_a_filter_refuses_a_column_called_as_the_index_of_rows(tmp_path):
    needs("parquet")
    pq.write_table(pa.table({"row": [5, 6], "partition": ["a", "b"], "v": [1, 2]}), tmp_path / "own.parquet")
    rows = logloom.datasets.open(tmp_path / "own.parquet")
    for where in ("row == 5", "partition == 'a'"):
        with pytest.raises(UsageError, match=r"is a column, and a name in the index of rows; rename"):
            rows.filter(where)
    assert [row["own"] for row in rows.rename({"row": "own"}).filter("own == 6")] == [6]


def test_a_filter_reads_no_splits_that_it_does_not_name(tmp_path):
    needs("parquet")
    pq.write_table(pa.table({"split": ["train", "val", "train"], "v": [1, 2, 3]}), tmp_path / "own.parquet")
    rows = logloom.datasets.open(tmp_path / "own.parquet")
    found, asked = rows.source.find_splits, []
    rows.source.find_splits = lambda: asked.append(1) or found()
    assert [row["v"] for row in rows.filter("v > 1")] == [2, 3]
    assert asked == []
    assert [row["v"] for row in rows.filter("split == 'train'")] == [1, 3]
    assert asked == [1]


@pytest.mark.parametrize("name", ["split", "Split"])
def test_folders_of_parquet_decide_the_split_whatever_a_column_says(tmp_path, name):
    needs("parquet")
    for split, x in {"train": [1, 2], "val": [3]}.items():
        (tmp_path / f"set/split={split}").mkdir(parents=True)
        own = pa.table({"x": x, name: ["test", "val"][: len(x)]})
        pq.write_table(own, tmp_path / f"set/split={split}/0.parquet")
    rows = logloom.datasets.open(tmp_path / "set", split="train").get_many([0, 1])
    assert (rows["x"].tolist(), rows["split"]) == ([1, 2], ["train", "train"])
    assert rows["split_"] == ["test", "val"]
