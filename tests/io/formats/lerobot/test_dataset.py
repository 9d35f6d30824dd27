"""LeRobot datasets: episodes, files, statistics, and reading those of others."""

import io
import json
import pathlib
import shutil

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import PIL.Image
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given

import logloom.datasets
from logloom.blocks import Block, Ragged, take
from logloom.digests import digests_of_rows
from logloom.errors import DatasetError, UsageError
from logloom.io.formats.foreign import open_foreign
from logloom.io.formats.lerobot import LeRobotOptions, LeRobotReader, episode_tables
from logloom.io.formats.lerobot.episodes import file_name, segments_of
from logloom.io.formats.lerobot.features import mapping_of, plan_features
from logloom.io.formats.lerobot.format import FORMAT
from logloom.io.formats.lerobot.options import MAX_FILE_BYTES
from logloom.io.storage.store import Store
from logloom.schema import ColumnType, Schema
from tests.io.formats.lerobot.making import (
    FEATURES,
    HEIGHT,
    SCHEMA,
    START,
    STEP,
    WIDTH,
    assemble,
    make_block,
    options,
    picture,
    stage,
)
from tests.io.formats.parquet.test_parquet import claim_rows


def episodes_of(folder):
    files = sorted(pathlib.Path(folder).glob("meta/episodes/*/*.parquet"))
    return pa.concat_tables([pq.read_table(file) for file in files]).to_pylist()


def frames_of(folder):
    files = sorted(pathlib.Path(folder).glob("data/*/*.parquet"))
    return pa.concat_tables([pq.read_table(file) for file in files]).to_pydict()


def info_of(folder):
    return json.loads((pathlib.Path(folder) / "meta/info.json").read_text())


def mapped(blocks, chosen=None, schema=SCHEMA):
    return [mapping_of(chosen or options(), schema).apply(block) for block in blocks]


def test_a_dropped_row_ends_an_episode_and_a_longer_gap_may_be_allowed(tmp_path):
    block = make_block(6, 0, frames=[0, 1, 2, 4, 5, 60])
    lengths = [one["length"] for one in episodes_of(assemble(tmp_path / "log", [block])[0])]
    assert lengths == [3, 2, 1]
    exact = assemble(tmp_path / "exact", [block], options(episodes={"gap": "200ms"}))[0]
    assert [one["length"] for one in episodes_of(exact)] == [5, 1]
    chosen = options(episodes={"gap": "5s"})
    folder, _ = assemble(tmp_path / "gap", [block], chosen)
    assert [one["length"] for one in episodes_of(folder)] == [5, 1]
    assert frames_of(folder)["frame_index"] == [0, 1, 2, 3, 4, 0]
    reader = LeRobotReader(str(folder))
    assert reader.stamps.tolist() == block.timestamp.tolist()


def test_a_log_in_two_units_is_one_episode_of_frames_at_frame_by_fps(tmp_path):
    blocks = [make_block(4, 0), make_block(5, 1, frames=range(4, 9))]
    folder, _ = assemble(tmp_path, blocks)
    (episode,) = episodes_of(folder)
    assert (episode["length"], episode["dataset_from_index"], episode["dataset_to_index"]) == (9, 0, 9)
    assert episode["tasks"] == ["drive on", "stöp"]
    frames = frames_of(folder)
    assert frames["timestamp"] == [np.float32(frame / 10) for frame in range(9)]
    assert frames["frame_index"] == frames["index"] == [*range(9)]
    assert frames["timestamp_ns"] == [START + frame * STEP for frame in range(9)]
    assert frames["task_index"] == [0, 0, 1, 1, 0, 0, 0, 1, 1]
    info = info_of(folder)
    assert (info["total_episodes"], info["total_frames"], info["total_tasks"]) == (1, 9, 2)
    assert info["features"]["observation.state"] == {
        "dtype": "float64",
        "shape": [4],
        "names": ["speed", "position.0", "position.1", "position.2"],
    }
    assert info["features"]["observation.images.wide"]["shape"] == [HEIGHT, WIDTH, 3]
    tasks = pd.read_parquet(folder / "meta/tasks.parquet")
    assert [tasks.iloc[number].name for number in range(2)] == ["drive on", "stöp"]


def test_numbers_with_names_of_their_own_have_these_names():
    arm = ColumnType(np.dtype("f8"), (2,), names=("shoulder", "elbow"))
    poses = ColumnType(np.dtype("f8"), (1, 2), names=("wheel",))
    speed = ColumnType(np.dtype("f8"))
    schema = Schema({"left": arm, "right": arm, "poses": poses, "speed": speed})

    def names_of(*columns):
        features, problems = plan_features(options(features={"state": list(columns)}, task="drive"), schema)
        assert not problems
        return features[0].info()["names"]

    assert names_of("left") == ["shoulder", "elbow"]
    assert names_of("left", "speed", "poses") == ["shoulder", "elbow", "speed", "wheel.0", "wheel.1"]
    both = ["left.shoulder", "left.elbow", "right.shoulder", "right.elbow"]
    assert names_of("left", "right") == both  # of two arms


@pytest.mark.parametrize("apart", [99_000_000, 101_000_000, 50_000_000, 150_000_000])
def test_rows_that_are_no_frames_are_an_error_that_names_both(apart, tmp_path):
    block = make_block(3, 0)
    block.columns["timestamp"][2] = block.columns["timestamp"][1] + apart
    with pytest.raises(UsageError, match=rf"car/drive p0: rows at {START + STEP} .* fps: 10"):
        stage(tmp_path, [block])


def test_a_clock_of_another_rate_is_an_error_before_any_row(tmp_path):
    from logloom.io.formats.interface import UnitContext

    context = UnitContext("car", "car.mcap", "p0", "all", period=50_000_000)
    with pytest.raises(UsageError, match="fps: 10 is a frame each 100 ms, the clock ticks each 50 ms"):
        FORMAT.writer(tmp_path, SCHEMA, options(), context)


def test_rows_of_which_no_two_are_neighbours_are_an_error(tmp_path):
    with pytest.raises(UsageError, match="no two rows are 100 ms apart"):
        assemble(tmp_path, [make_block(5, 0, frames=range(0, 10, 2))])


def test_logs_of_one_row_each_say_nothing_of_the_rate(tmp_path):
    folder, _ = assemble(tmp_path, [make_block(1, number, f"log{number}") for number in range(2)])
    assert [episode["length"] for episode in episodes_of(folder)] == [1, 1]


@pytest.mark.parametrize(
    ("column", "value", "what", "remedy"),
    [
        ("speed.available", False, "isn't available", r"`rows: {require: \[speed\]}`.*'available\(speed\)'"),
        ("speed", np.nan, "has NaN", r"`rows: {where: isfinite\(speed\)}`, or .*`nan: unavailable` at"),
        ("speed", np.nan, "has NaN", r"`logloom convert` accepts `--where 'isfinite\(speed\)'`"),
        ("speed", -np.inf, "is infinite", r"`rows: {where: isfinite\(speed\)}`; `logloom convert`"),
    ],
)
def test_a_value_that_is_missing_is_an_error_that_says_how_to_leave_it_out(
    column, value, what, remedy, tmp_path
):
    block = make_block(3, 0)
    block.columns[column][1] = value
    with pytest.raises(UsageError, match=rf"car/drive: speed {what} at {START + STEP} ns.*{remedy}"):
        stage(tmp_path, [block])


def test_images_that_are_none_or_of_two_shapes_are_errors(tmp_path):
    rng = np.random.default_rng(0)
    for number, (images, what) in enumerate(
        [
            ([picture(rng), b"", picture(rng)], "has no image"),
            ([picture(rng), b"no image", picture(rng)], "doesn't decode"),
            ([picture(rng), picture(rng, width=9), picture(rng)], r"an image of \(6, 9, 3\)"),
        ]
    ):
        block = make_block(3, 0)
        block.columns["camera.front"] = Ragged.from_bytes(images)
        with pytest.raises(UsageError, match=what):
            stage(tmp_path / str(number), [block])
    other = make_block(2, 0, "van")
    other.columns["camera.front"] = Ragged.from_bytes([picture(rng, height=9)] * 2)
    with pytest.raises(UsageError, match=r"images of log van are \(9, 8, 3\), those of log car"):
        assemble(tmp_path / "logs", [make_block(2, 0, "car"), other])


def test_what_fills_no_feature_is_told_in_one_line_each():
    wrong = {"a": ["nowhere"], "b": ["doing"], "c": ["speed", "camera.front"], "d": ["wide"]}
    chosen = LeRobotOptions.model_validate({"fps": 10, "features": wrong, "task": {"column": "speed"}})
    problems = FORMAT.check(chosen, SCHEMA)
    assert len(problems) == 4
    for name, problem in zip(["nowhere", "doing", "camera.front", "speed"], problems, strict=True):
        assert name in problem


@pytest.mark.parametrize("features", [{}, {"timestamp": "speed"}, {"Camera": "speed"}, {"a": []}])
def test_features_that_make_no_sense_are_refused(features):
    with pytest.raises(ValueError, match="features"):
        LeRobotOptions.model_validate({"fps": 10, "features": features})


def test_statistics_are_exact(tmp_path):
    blocks = [make_block(40, 0), make_block(30, 1, "van")]
    folder, _ = assemble(tmp_path, blocks)
    stats = json.loads((folder / "meta/stats.json").read_text())
    state = np.concatenate([block.columns["observation.state"] for block in mapped(blocks)])
    own = stats["observation.state"]
    assert own["count"] == [70]
    np.testing.assert_array_equal(own["min"], state.min(axis=0))
    np.testing.assert_array_equal(own["max"], state.max(axis=0))
    np.testing.assert_allclose(own["mean"], state.mean(axis=0), rtol=1e-13)
    np.testing.assert_allclose(own["std"], state.std(axis=0), rtol=1e-13)
    for percent in (1, 10, 50, 90, 99):
        np.testing.assert_allclose(own[f"q{percent:02d}"], np.percentile(state, percent, axis=0), rtol=2e-2)
    pixels = np.concatenate([block.columns["wide"] for block in blocks]).reshape(-1, 3) / 255
    seen = stats["observation.images.wide"]
    for name, expected in {
        "min": pixels.min(axis=0),
        "max": pixels.max(axis=0),
        "mean": pixels.mean(axis=0),
        "std": pixels.std(axis=0),
        **{f"q{p:02d}": np.percentile(pixels, p, axis=0) for p in (1, 10, 50, 90, 99)},
    }.items():
        assert np.shape(seen[name]) == (3, 1, 1)
        np.testing.assert_allclose(np.ravel(seen[name]), expected, rtol=1e-12, atol=1e-15)
    assert stats["next.done"]["mean"] == [
        np.concatenate([block.columns["moving"] for block in blocks]).mean()
    ]


def test_each_episode_has_exact_statistics_of_its_own(tmp_path):
    blocks = [make_block(5, 0), make_block(6, 1, frames=[5, 6, 8, 9, 10, 30]), make_block(4, 2, "van")]
    folder, _ = assemble(tmp_path, blocks)
    told = episodes_of(folder)
    assert [one["length"] for one in told] == [7, 3, 1, 4]
    wide = np.concatenate([block.columns["wide"] for block in blocks])
    own = {
        key: np.concatenate([block.columns[key] for block in mapped(blocks)]).reshape(len(wide), -1)
        for key in ("observation.state", "action", "next.done")
    }
    for one in told:
        rows = slice(one["dataset_from_index"], one["dataset_to_index"])
        values = {
            **{key: column[rows].astype(np.float64) for key, column in own.items()},
            "observation.images.wide": wide[rows].reshape(-1, 3) / 255,
        }
        for key, numbers in values.items():
            found = {name: one[f"stats/{key}/{name}"] for name in ("min", "max", "mean", "std", "q10", "q50")}
            assert one[f"stats/{key}/count"] == [one["length"]]
            shape = (3, 1, 1) if "images" in key else (numbers.shape[1],)
            assert all(np.shape(value) == shape for value in found.values())
            np.testing.assert_array_equal(np.ravel(found["min"]), numbers.min(axis=0))
            np.testing.assert_array_equal(np.ravel(found["max"]), numbers.max(axis=0))
            np.testing.assert_allclose(np.ravel(found["mean"]), numbers.mean(axis=0), rtol=1e-12)
            np.testing.assert_allclose(np.ravel(found["std"]), numbers.std(axis=0), rtol=1e-12, atol=1e-15)
            for percent in (10, 50):
                expected = np.percentile(numbers, percent, axis=0)
                np.testing.assert_allclose(np.ravel(found[f"q{percent}"]), expected, rtol=1e-6, atol=1e-12)
    schema = pq.read_schema(folder / "meta/episodes/chunk-000/file-000.parquet")
    assert schema.field("stats/next.done/max").type == pa.list_(pa.int64())
    assert schema.field("stats/action/max").type == pa.list_(pa.float64())


def test_where_units_end_makes_no_difference_to_statistics(tmp_path):
    whole = make_block(9, 0)
    parts = [
        Block(
            whole.log_id,
            "p",
            0,
            {name: take(values, np.arange(*bounds)) for name, values in whole.columns.items()},
        )
        for bounds in ((0, 4), (4, 9))
    ]
    one, _ = assemble(tmp_path / "one", [whole])
    two, _ = assemble(tmp_path / "two", parts)
    for name in ("meta/stats.json", "meta/episodes/chunk-000/file-000.parquet"):
        assert (one / name).read_bytes() == (two / name).read_bytes()


def test_files_of_episodes_that_are_full_stay_as_they_are(tmp_path, monkeypatch):
    monkeypatch.setattr(episode_tables, "MAX_EPISODES", 2)
    blocks = [make_block(4, number, f"log{number}") for number in range(5)]
    one, first = assemble(tmp_path / "one", blocks[:3])
    two, second = assemble(tmp_path / "two", blocks)
    assert [episode["episode_index"] for episode in episodes_of(two)] == [*range(5)]
    assert len(list((two / "meta/episodes").rglob("*.parquet"))) == 3
    shared = {portion.path: portion.inputs for portion in first.portions if "episodes" in portion.path}
    assert [*shared] == ["meta/episodes/chunk-000/file-000.parquet"]
    inputs = {portion.path: portion.inputs for portion in second.portions}
    for path, own in shared.items():
        assert inputs[path] == own
        assert (one / path).read_bytes() == (two / path).read_bytes()
    assert len(LeRobotReader(str(two))) == 20


def test_damaged_counts_of_pixels_are_an_error_that_names_the_unit(tmp_path):
    root = tmp_path / "root"
    units = stage(root, [make_block(3, 0)])
    store = Store.at(str(root))
    plan = FORMAT.plan_assembly(store, units, SCHEMA, options(), STEP)
    path = root / units[0].folder / "pixels"
    path.write_bytes(bytes(path.stat().st_size))
    for task in plan.tasks[-2:]:
        with pytest.raises(DatasetError, match="statistics of a unit are damaged"):
            FORMAT.make_chunk(store, task)


def test_long_vectors_have_statistics_of_each_element(tmp_path):
    from logloom.schema import ColumnType, Schema

    schema = Schema({"many": ColumnType(np.dtype("<i4"), (130,)), "one": ColumnType(np.dtype("<f8"))})
    chosen = LeRobotOptions.model_validate({"fps": 10, "features": {"many": ["many", "one"]}})
    block = make_block(9, 0)
    values = np.random.default_rng(0).integers(-1000, 1000, (9, 130), np.int32)
    block = type(block)("car", "p", 0, {"timestamp": block.timestamp, "many": values, "one": np.arange(9.0)})
    folder, _ = assemble(tmp_path, [block], chosen, schema)
    stats = json.loads((folder / "meta/stats.json").read_text())["many"]
    assert stats["max"] == [*values.max(axis=0).tolist(), 8.0]
    assert info_of(folder)["features"]["many"]["dtype"] == "float64"


def test_rows_read_back_are_the_features_in_blocks_batches_and_at_random(tmp_path):
    blocks = [make_block(5, 0), make_block(4, 1, frames=[5, 6, 8, 9]), make_block(3, 2, "van")]
    folder, _ = assemble(tmp_path, blocks)
    reader = open_foreign(str(folder))
    assert isinstance(reader, LeRobotReader)
    assert reader.stretches.log_ids == ["car/drive", "van"]
    expected = digests_of_rows(mapped(blocks), reader.schema)
    for max_bytes in (1, 400, 64 << 20):
        assert digests_of_rows(reader.blocks(max_bytes=max_bytes), reader.schema) == expected
    rows = logloom.datasets.open(str(folder))
    positions = [11, 0, 5, 5, 8]
    batch = reader.take(np.array(positions), tuple(reader.schema.columns))
    for number, position in enumerate(positions):
        row = rows[position]
        np.testing.assert_array_equal(batch["observation.state"][number], row["observation.state"])
        assert batch["observation.images.front"][number] == row["observation.images.front"]
        assert batch["log_id"][number] == row["log_id"]
    assert rows[0]["observation.images.front"] == blocks[0].columns["camera.front"][0].tobytes()
    pixels = np.asarray(PIL.Image.open(io.BytesIO(rows[11]["observation.images.wide"])))
    np.testing.assert_array_equal(pixels, blocks[2].columns["wide"][2])
    fast = io.BytesIO()  # the default level takes most of a build's time
    PIL.Image.fromarray(pixels).save(fast, "PNG", compress_level=1)
    assert rows[11]["observation.images.wide"] == fast.getvalue()
    assert rows[11]["task"] == "stöp"


def test_files_end_where_they_are_full_and_episodes_with_them(tmp_path):
    chosen = options(file_bytes=1 << 16)
    blocks = [make_block(90, number, f"log{number}") for number in range(3)]
    folder, plan = assemble(tmp_path, blocks, chosen)
    files = sorted(folder.glob("data/*/*.parquet"))
    assert len(files) > 2
    assert all(file.stat().st_size <= 1 << 16 for file in files)
    assert len(plan.portions) == len(files) - 1
    episodes = episodes_of(folder)
    assert len(episodes) > 3
    held = {}
    for episode in episodes:
        place = file_name("data", 1000 * episode["data/chunk_index"] + episode["data/file_index"], "parquet")
        held[place] = held.get(place, 0) + episode["length"]
    assert held == {str(f.relative_to(folder)): pq.read_metadata(f).num_rows for f in files}
    reader = LeRobotReader(str(folder))
    assert digests_of_rows(reader.blocks(), reader.schema) == digests_of_rows(
        mapped(blocks, chosen), reader.schema
    )


def test_a_log_more_leaves_the_files_before_it_as_they_were(tmp_path):
    chosen = options(file_bytes=1 << 16)
    blocks = [make_block(90, number, f"log{number}") for number in range(3)]
    one, first = assemble(tmp_path / "one", blocks[:2], chosen)
    two, second = assemble(tmp_path / "two", blocks, chosen)
    shared = [portion.path for portion in first.portions]
    assert shared
    inputs = {portion.path: portion.inputs for portion in second.portions}
    for portion in first.portions:
        assert inputs[portion.path] == portion.inputs
        assert (one / portion.path).read_bytes() == (two / portion.path).read_bytes()


def test_an_image_that_fits_no_file_is_an_error(tmp_path):
    block = make_block(2, 0)
    image = picture(np.random.default_rng(0), 200, 200)
    block.columns["camera.front"] = Ragged.from_bytes([image, image])
    with pytest.raises(UsageError, match=r"must fit into one file.*file_bytes: 65536"):
        assemble(tmp_path, [block], options(file_bytes=1 << 16))


def numbers_block(rows):
    """Rows of one number, a frame apart, with the options and the schema of a dataset of them."""
    block = Block("car", "p", 0, {"timestamp": START + np.arange(rows) * STEP, "x": np.zeros(rows, "<f4")})
    chosen = {"fps": 10, "features": {"action": "x"}}
    return block, chosen, Schema({"x": ColumnType(np.dtype("<f4"))})


@pytest.mark.parametrize("file_bytes", [1 << 17, MAX_FILE_BYTES])
def test_an_episode_lasts_half_an_hour_at_most_however_small_its_rows_are(tmp_path, file_bytes):
    block, chosen, schema = numbers_block(20_000)
    chosen = LeRobotOptions.model_validate({**chosen, "file_bytes": file_bytes})
    folder, _ = assemble(tmp_path, [block], chosen, schema)
    lengths = [episode["length"] for episode in episodes_of(folder)]
    assert sum(lengths) == 20_000
    assert max(lengths) <= 18_000
    stamps = np.array(frames_of(folder)["timestamp"], np.float32).astype(np.float64)
    exact = np.concatenate([np.arange(length) / 10 for length in lengths])
    assert np.abs(stamps - exact).max() < 1e-4


def test_segments_of_half_an_hour_begin_where_a_file_may(tmp_path):
    chosen = LeRobotOptions.model_validate({"fps": 1, "features": {"action": "x"}})
    rows, times = 4000, np.arange(4000) * 10**9
    sizes, begins = np.ones((rows, 1), np.int64), np.arange(rows) % 700 == 0
    found = segments_of(times, sizes, begins, np.zeros(rows, np.int64), chosen, "car")
    assert [segment[0] for segment in found] == [1400, 1400, 1200]
    whole = segments_of(times[:1800], sizes[:1800], begins[:1800], np.zeros(1800, np.int64), chosen, "car")
    assert [segment[0] for segment in whole] == [1800]  # as before there was a limit


@given(
    st.lists(st.integers(1, 3), min_size=1, max_size=30),
    st.lists(st.integers(0, 9000), min_size=31, max_size=31),
    st.integers(0, 30),
)
def test_segments_hold_each_row_once_and_none_crosses_a_gap(steps, sizes, task):
    frames = np.cumsum([0, *steps])
    times = START + frames * STEP
    rows = len(times)
    tasks = np.where(np.arange(rows) < task, 0, 1)
    own = np.array(sizes[:rows], np.int64)[:, None]
    found = segments_of(times, own, np.ones(rows, bool), tasks, options(file_bytes=1 << 16), "car")
    assert sum(segment[0] for segment in found) == rows
    at = 0
    for count, first, last, total, named in found:
        assert (first, last) == (times[at], times[at + count - 1])
        assert last - first == (count - 1) * STEP
        assert total == [int(own[at : at + count].sum())]
        assert named == sorted(set(tasks[at : at + count].tolist()))
        assert count == 1 or total[0] <= (1 << 16) // 16
        at += count


# --- datasets of others ---------------------------------------------------------------------------------


def write_others(folder, lengths=(4, 3), fps=10, **info):
    """A dataset as LeRobot's own writer lays it out: two files of data, lists, no log_id."""
    rng = np.random.default_rng(0)
    state = {"dtype": "float32", "shape": [2], "names": ["x", "y"]}
    one = {"dtype": "int64", "shape": [1], "names": None}
    told = {
        "codebase_version": "v3.0",
        "robot_type": "arm",
        "total_episodes": len(lengths),
        "total_frames": sum(lengths),
        "total_tasks": 1,
        "chunks_size": 1000,
        "fps": fps,
        "splits": {"train": f"0:{len(lengths)}"},
        "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
        "video_path": None,
        "features": {
            "observation.state": state,
            "reward": {"dtype": "float32", "shape": [1], "names": None},
            "grid": {"dtype": "int64", "shape": [2, 2], "names": None},
            "note": {"dtype": "string", "shape": [1], "names": None},
            "said": {"dtype": "language", "shape": [1], "names": None},
            "timestamp": {"dtype": "float32", "shape": [1], "names": None},
            **dict.fromkeys(("frame_index", "episode_index", "index", "task_index"), one),
        },
        **info,
    }
    episodes, first = [], 0
    values = []
    for number, length in enumerate(lengths):
        data = {
            "observation.state": pa.array(rng.random((length, 2)).tolist(), pa.list_(pa.float32())),
            "reward": pa.array(rng.random(length), pa.float32()),
            "grid": pa.array(rng.integers(0, 9, (length, 2, 2)).tolist(), pa.list_(pa.list_(pa.int64()))),
            "note": pa.array([f"n{n}" for n in range(length)]),
            "said": pa.array(["x"] * length),
            "timestamp": pa.array(np.arange(length) / 10, pa.float32()),
            "frame_index": pa.array(range(length)),
            "episode_index": pa.array([number] * length),
            "index": pa.array(range(first, first + length)),
            "task_index": pa.array([0] * length),
        }
        values.append(data)
        path = folder / f"data/chunk-000/file-{number:03d}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(data), path)
        episodes.append(
            {
                "episode_index": number,
                "tasks": ["pick"],
                "length": length,
                "data/chunk_index": 0,
                "data/file_index": number,
                "dataset_from_index": first,
                "dataset_to_index": first + length,
                "stats/reward/mean": [0.5],
            }
        )
        first += length
    (folder / "meta/episodes/chunk-000").mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(episodes), folder / "meta/episodes/chunk-000/file-000.parquet")
    pd.DataFrame({"task_index": [0]}, index=["pick"]).to_parquet(folder / "meta/tasks.parquet")
    (folder / "meta/info.json").write_text(json.dumps(told))
    return folder, values


EPISODES, TASKS, FILE = (
    "meta/episodes/chunk-000/file-000.parquet",
    "meta/tasks.parquet",
    "data/chunk-000/file-000.parquet",
)


def rewrite(path, *, twice=None, **columns):
    """Gives a Parquet file other columns, of which None is none; `twice` names one that is there twice."""
    table = pq.read_table(path)
    for name, values in columns.items():
        if name in table.column_names:
            table = table.drop_columns([name])
        if values is not None:
            table = table.append_column(name, values)
    if twice:
        table = table.append_column(twice, table[twice])
    pq.write_table(table.replace_schema_metadata(None), path)


def test_a_dataset_of_others_opens_with_an_episode_for_each_log(tmp_path):
    folder, values = write_others(tmp_path / "pick")
    rows = logloom.datasets.open(str(folder))
    assert len(rows) == 7
    row = rows[5]
    assert (row["log_id"], row["timestamp"], row["task"], row["note"]) == ("000000001", STEP, "pick", "n1")
    np.testing.assert_array_equal(row["observation.state"], values[1]["observation.state"][1].as_py())
    np.testing.assert_array_equal(row["grid"], values[1]["grid"][1].as_py())
    assert row["reward"].dtype == np.float32
    reader = LeRobotReader(str(folder))
    assert list(reader.left_out) == ["said"]
    assert reader.about.hints["lerobot"]["fps"] == 10


@pytest.mark.parametrize(
    ("info", "what"),
    [
        ({"codebase_version": "v2.1"}, "codebase_version v2.1, known is v3"),
        ({"total_episodes": 3}, "2 episodes, meta/info.json lists 3"),
        ({"total_frames": 9}, "frames of episodes don't follow each other"),
        ({"data_path": "../{file_index}.parquet"}, "info.json"),
        ({"data_path": "{chunk_index.__class__}.parquet"}, "no such file"),
        ({"data_path": "data/nowhere.parquet"}, "don't follow each other|no such file"),
        ({"fps": 0}, "fps"),
        ({"fps": 1e-300}, "fps"),
        ({"fps": 1e9}, "fps"),
        ({"features": {"x": {"dtype": "float32", "shape": "many"}}}, "features"),
    ],
)
def test_what_makes_no_sense_is_an_error_that_names_the_file(info, what, tmp_path):
    folder, _ = write_others(tmp_path / "pick", **info)
    with pytest.raises((DatasetError, UsageError), match=what) as told:
        list(LeRobotReader(str(folder)).blocks())
    assert str(folder) in str(told.value)


def test_missing_episodes_are_an_error(tmp_path):
    folder, _ = write_others(tmp_path / "pick")
    shutil.rmtree(folder / "meta/episodes")
    with pytest.raises(DatasetError, match=r"meta/episodes: missing, meta/info.json lists 2 episodes"):
        list(LeRobotReader(str(folder)).blocks())


def test_rows_that_a_file_lacks_are_an_error(tmp_path):
    folder, values = write_others(tmp_path / "pick")
    pq.write_table(pa.table(values[1]).slice(1), folder / "data/chunk-000/file-001.parquet")
    with pytest.raises(DatasetError, match=r"file-001\.parquet: 2 frames, its episodes have 3"):
        list(LeRobotReader(str(folder)).blocks())


def test_rows_that_a_footer_merely_claims_are_damage_however_they_are_read(tmp_path):
    folder, values = write_others(tmp_path / "pick", (79, 3))
    path = folder / "data/chunk-000/file-000.parquet"
    pq.write_table(pa.table(values[0]).slice(0, 77), path)
    claim_rows(path, 79)
    reader = LeRobotReader(str(folder))
    for read in (lambda: reader[78], lambda: list(reader.blocks())):
        with pytest.raises(DatasetError, match=r"file-000\.parquet.*77"):
            read()


@pytest.mark.parametrize("log_ids", [None, pa.array(["a"])])
def test_frames_that_episodes_merely_claim_take_no_memory(tmp_path, log_ids):
    claimed = 10**13
    folder, _ = write_others(tmp_path / "pick", (4,), total_frames=claimed)
    rewrite(folder / EPISODES, length=pa.array([claimed]), log_id=log_ids)
    with pytest.raises(DatasetError, match=r"file-000\.parquet: 4 frames, its episodes have 10000000000000"):
        _ = logloom.datasets.open(str(folder)).index
    with pytest.raises(DatasetError, match=r"file-000\.parquet: 4 frames"):
        _ = LeRobotReader(str(folder)).stamps


def test_times_that_no_clock_holds_are_an_error(tmp_path):
    claimed = 10**7
    folder, _ = write_others(tmp_path / "pick", (4,), fps=0.001, total_frames=claimed)
    rewrite(folder / EPISODES, length=pa.array([claimed]))
    with pytest.raises(DatasetError, match=r"10000000 frames at 0\.001 fps last too long"):
        _ = LeRobotReader(str(folder)).stamps


NO_TEXT = pa.Array.from_buffers(pa.string(), 1, [None, *pa.array([b"\xff"]).buffers()[1:]])


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        (TASKS, {"twice": "task_index"}),
        (TASKS, {"task_index": pa.array([[0]])}),
        (TASKS, {"task_index": pa.array([1])}),
        (TASKS, {"__index_level_0__": NO_TEXT}),
        (EPISODES, {"twice": "length"}),
        (EPISODES, {"tasks": pa.chunked_array([NO_TEXT])}),
        (EPISODES, {"length": pa.array([[4]])}),
        (FILE, {"twice": "reward"}),
        (FILE, {"reward": pa.array([[{"x": 1}]] * 4)}),
        (FILE, {"reward": pa.array(["1"] * 4)}),
    ],
)
def test_tables_that_hold_something_else_are_an_error_that_names_the_file(tmp_path, file, damage):
    folder, _ = write_others(tmp_path / "pick", (4,))
    rewrite(folder / file, **damage)
    with pytest.raises(DatasetError) as told:
        list(LeRobotReader(str(folder)).blocks())
    assert str(folder / file).removesuffix("/chunk-000/file-000.parquet") in str(told.value)


def test_files_of_episodes_of_different_types_are_an_error_that_names_their_folder(tmp_path):
    folder, _ = write_others(tmp_path / "pick", (4,))
    other = folder / EPISODES.replace("file-000", "file-001")
    other.write_bytes((folder / EPISODES).read_bytes())
    rewrite(other, length=pa.array(["four"]))
    with pytest.raises(DatasetError, match="meta/episodes: damaged"):
        len(LeRobotReader(str(folder)))


def test_a_shape_that_no_memory_holds_leaves_the_feature_out(tmp_path):
    huge = {"dtype": "float32", "shape": [2**62 - 1] * 20, "names": None}
    folder, _ = write_others(tmp_path / "pick")
    info = info_of(folder)
    many = {**huge, "shape": [1] * 100}
    info["features"] |= {"huge": huge, "many": many}
    (folder / "meta/info.json").write_text(json.dumps(info))
    reader = LeRobotReader(str(folder))
    assert [*reader.left_out] == ["said", "huge", "many"]
    assert len(reader.left_out["huge"]) < 100
    assert len(list(reader.blocks())) == 2


def test_the_options_of_a_recipe_say_how_rows_become_such_a_dataset_again():
    told = options().model_dump(mode="json")
    again = FORMAT.again(told)
    assert again["features"] == {key: [key] for key in FEATURES}
    assert again["task"] == {"column": "task"}
    assert LeRobotOptions.model_validate(again).fps == 10
