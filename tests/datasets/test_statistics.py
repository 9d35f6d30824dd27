"""Statistics of the rows of a dataset, and rows normalized by them."""

import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import logloom.datasets
from logloom.errors import UsageError
from logloom.pipelines.stats.stats import column_statistics
from tests.pipelines.conftest import FULL_OUTPUT, built, drive  # noqa: F401  # fixtures


@pytest.fixture
def rows(built):  # noqa: F811
    return logloom.datasets.open(str(built), output=FULL_OUTPUT)


def test_of_some_rows_only_these_are_counted(rows):
    some = rows.take(slice(3, 20))
    speeds = np.array([row["ego.speed"] for row in some])
    said = some.stats("ego.speed")
    assert (said["count"], said["min"], said["max"]) == (17, speeds.min(), speeds.max())
    assert said["mean"] == pytest.approx(speeds.mean(), rel=1e-14)


def test_what_builds_counted_is_told_without_reading_a_row(rows, built, monkeypatch):  # noqa: F811
    said = column_statistics(str(built)).columns()
    monkeypatch.setattr(type(rows.source), "take", None)
    for name in ("ego.speed", "ego.speed.age", "lidar.points", "camera.front"):
        assert rows.stats(name) == said[name]
    assert rows.shuffle(seed=1).stats("ego.speed") == said["ego.speed"]


def test_rows_that_are_read_have_the_same_statistics(rows, built):  # noqa: F811
    said = column_statistics(str(built)).columns()
    rows.source.counted = None
    for name in ("ego.speed", "objects", "lidar.points", "imu"):
        assert rows.stats(name) == said[name]


def test_renamed_columns_have_the_statistics_that_builds_counted(rows, monkeypatch):
    wanted = {name: rows.stats(name) for name in ("ego.speed", "ego.speed.age")}
    renamed = rows.rename({"ego.speed": "v"})
    monkeypatch.setattr(type(renamed.source), "take", None)
    assert renamed.stats("v") == wanted["ego.speed"]
    assert renamed.stats(["v.age"]) == {"v.age": wanted["ego.speed.age"]}


def test_a_row_that_comes_several_times_counts_each_time(rows):
    said = rows.take([0] * len(rows)).stats("ego.speed")
    assert (said["count"], said["min"], said["max"]) == (len(rows), *[rows[0]["ego.speed"]] * 2)


def test_normalized_columns_have_zero_mean_and_unit_deviation(rows):
    scaled = pickle.loads(pickle.dumps(rows.normalized(["ego.position", "lidar.points"])))
    positions = np.array([row["ego.position"] for row in scaled])
    assert positions.dtype == np.float32
    assert positions.mean(axis=0) == pytest.approx([0, 0, 0], abs=1e-5)
    assert positions.std(axis=0) == pytest.approx([1, 1, 0], abs=1e-5)
    points = np.concatenate([row["lidar.points"] for row in scaled])
    assert points.mean(axis=0) == pytest.approx(np.zeros(4), abs=0.2)  # of a sample
    assert points.std(axis=0) == pytest.approx(np.ones(4), abs=0.2)
    assert scaled[0]["objects"].dtype == rows[0]["objects"].dtype


def test_other_rows_are_normalized_by_the_statistics_of_these(rows):
    some = rows.take(slice(0, 5)).normalized("ego.speed", like=rows)
    assert [row["ego.speed"] for row in some] == [row["ego.speed"] for row in rows.normalized("ego.speed")][
        :5
    ]


def test_statistics_are_of_what_functions_made_of_the_rows(rows):
    scaled = rows.normalized(["ego.speed", "ego.position", "lidar.points"])
    speeds = np.array([row["ego.speed"] for row in scaled])
    said = scaled.stats("ego.speed")
    assert (said["count"], said["min"], said["max"]) == (len(rows), speeds.min(), speeds.max())
    assert said["mean"] == pytest.approx(0, abs=1e-6)
    assert said["std"] == pytest.approx(1, abs=1e-6)
    assert np.allclose(scaled.stats("ego.position")["mean"], 0, atol=1e-6)
    assert np.allclose(scaled.stats("lidar.points")["mean"], 0, atol=0.1)
    assert scaled.stats("ego.speed.age") == rows.stats("ego.speed.age")
    assert scaled.stats("camera.front") == rows.stats("camera.front")
    for view in (scaled.window(range(-2, 1), on_edge="pad"), rows.window([0, 1]).normalized("ego.speed")):
        own = view.stats("ego.speed")
        assert (own["mean"], own["std"]) == pytest.approx((0, 1), abs=0.05)


def test_rows_that_functions_changed_are_normalized_by_their_own_statistics(rows):
    for changed in (
        rows.normalized("ego.speed"),
        rows.map(lambda row: {**row, "ego.speed": 3.6 * row["ego.speed"] + 7}),
        rows.take(range(9)).map(lambda row: {**row, "ego.speed": np.float32(row["ego.speed"])}),
    ):
        speeds = np.array([row["ego.speed"] for row in changed.normalized("ego.speed")])
        assert (speeds.mean(), speeds.std()) == pytest.approx((0, 1), abs=1e-5)
    shorter = rows.map(lambda row: {**row, "ego.position": row["ego.position"][:2]})
    places = np.array([row["ego.position"] for row in shorter.normalized("ego.position")])
    assert places.shape == (len(rows), 2)
    assert places.mean(axis=0) == pytest.approx([0, 0], abs=1e-5)


def test_what_was_unavailable_is_not_counted_after_functions_either(rows):
    names = ["camera.front", "lidar.points"]
    kept = rows.map(lambda row: row)
    for name in names:
        assert kept.stats(name)["unavailable"] == rows.stats(name)["unavailable"]
    assert kept.stats("lidar.points") == rows.stats("lidar.points")


def test_windows_are_normalized_too(rows):
    window = rows.window(range(-2, 1)).normalized(["ego.position", "imu"])[0]
    assert window["ego.position"].shape == (3, 3)
    assert [part.dtype for part in window["imu"]] == [np.float32] * 3


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda rows: rows.normalized("camera.front"), "camera.front .* contains no numbers"),
        (lambda rows: rows.normalized("objects"), "objects .* contains no numbers"),
        (lambda rows: rows.stats("ego.spead"), "ego.speed"),
        (lambda rows: rows.map(lambda row: {"x": 1}).stats("ego.speed"), "map left no ego.speed"),
        (lambda rows: rows.window([0]).map(dict).stats("ego.speed"), "before window"),
        (lambda rows: rows.stats("ego.*"), "is not a column"),
        (lambda rows: rows.stats("ego.speed.available"), "is not a column"),
        (lambda rows: rows.select("imu").normalized("ego.speed")[0], "no 'ego.speed' among"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(rows, call, says):
    with pytest.raises(UsageError, match=says):
        call(rows)


def test_normalizing_one_column_leaves_others_as_they_are_and_reads_batches_at_once(tmp_path, monkeypatch):
    rng = np.random.default_rng(1)
    lists = pa.array([rng.normal(size=n % 4).tolist() for n in range(50)], pa.list_(pa.float64()))
    columns = {
        "x": rng.normal(size=50) * 3 + 1,
        "n": np.arange(50),
        "v": pa.array([[n, -n] for n in range(50)], pa.list_(pa.float32(), 2)),
        "l": lists,
        "m": lists,
        "word": [f"w{n}" for n in range(50)],
    }
    pq.write_table(pa.table(columns), tmp_path / "x.parquet")
    rows = logloom.datasets.open(tmp_path / "x.parquet")
    for view in (rows, rows.shuffle(3), rows.window([-1, 0, 3], on_edge="pad")):
        plain = view.get_many(np.arange(20))
        normal = view.normalized(["x", "v", "l"])
        one_by_one = [normal[number] for number in range(20)]
        monkeypatch.setattr(type(view), "_samples", None)  # no sample alone
        batch = normal.get_many(np.arange(20))
        monkeypatch.undo()
        for name in ("n", "word", "m"):
            assert str(batch[name]) == str(plain[name])
        for name in ("x", "v"):
            np.testing.assert_array_equal(batch[name], np.stack([row[name] for row in one_by_one]))
        values, lengths = batch["l"]
        assert values.dtype == np.float32
        np.testing.assert_array_equal(lengths, plain["l"][1])
        flat = [part for row in one_by_one for part in (row["l"] if view.window_steps else [row["l"]])]
        np.testing.assert_array_equal(values, np.concatenate(flat))
        chosen = normal.select(["x", "word"]).get_many([3])
        assert {"x", "word"} <= chosen.keys() <= {"x", "word", "mask"}
    out = np.empty(2, np.float32)
    assert rows.normalized("x").get_many([1, 2], out={"x": out})["x"].dtype == np.float32


def test_selecting_after_normalizing_reads_no_other_columns(rows):
    scaled = rows.normalized(["ego.speed", "ego.position"]).select("ego.speed")
    assert scaled.columns == ("ego.speed",)
    assert [*scaled[3]] == ["ego.speed"]
    wanted = rows.normalized("ego.speed")
    np.testing.assert_array_equal(scaled.get_many([1, 2])["ego.speed"], wanted.get_many([1, 2])["ego.speed"])


@pytest.mark.parametrize("on_edge", ["drop", "repeat", "pad"])
def test_windows_of_normalized_rows_are_normalized_windows(rows, on_edge):
    names = ["ego.speed", "ego.position"]
    before = rows.normalized(names).window(range(-2, 1), on_edge=on_edge).get_many([0, 3])
    after = rows.window(range(-2, 1), on_edge=on_edge).get_many([0, 3])
    for name in names:
        stats = rows.stats(name)
        std = np.array(stats["std"])
        wanted = (after[name] - np.array(stats["mean"])) / np.where(std > 0, std, 1)
        np.testing.assert_allclose(before[name], wanted.astype("f4"), rtol=1e-6)
    np.testing.assert_array_equal(before["timestamp"], after["timestamp"])


def test_batches_fill_the_arrays_of_columns_that_are_not_normalized(rows):
    out = {"ego.speed": np.zeros(2, "f4"), "ego.position": np.zeros((2, 3))}
    batch = rows.normalized("ego.speed").get_many([1, 2], out=out)
    assert batch["ego.position"] is out["ego.position"]
    assert batch["ego.speed"].dtype == np.float32
