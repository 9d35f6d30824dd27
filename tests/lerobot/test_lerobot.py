"""The original lerobot over datasets of ours, and we over its own: `make lerobot`."""

import numpy as np
import pytest

import logloom.datasets
from logloom.io.formats.lerobot import LeRobotReader
from tests.io.formats.lerobot import making, test_video

lerobot_dataset = pytest.importorskip(
    "lerobot.datasets.lerobot_dataset",
    reason="lerobot is not installed here; `make lerobot` runs this where it is",
)
compute_stats = pytest.importorskip("lerobot.datasets.compute_stats")
dataset_tools = pytest.importorskip("lerobot.datasets.dataset_tools")
LeRobotDataset = lerobot_dataset.LeRobotDataset
HEIGHT, WIDTH = test_video.HEIGHT, test_video.WIDTH


def opened(folder, **how):
    """Without a hub: all is on the disk."""
    return LeRobotDataset("local/dataset", root=folder, video_backend="pyav", **how)


def pixels_of(frame):
    """(height, width, 3) uint8 of what lerobot gives: channels first, floats from 0 to 1."""
    return (frame.permute(1, 2, 0).numpy() * 255).round().astype(np.uint8)


def test_lerobot_opens_a_dataset_with_images_and_reads_what_we_read(tmp_path):
    blocks = [
        making.make_block(5, 0),
        making.make_block(4, 1, frames=[5, 6, 8, 9]),
        making.make_block(3, 2, "van"),
    ]
    folder, _ = making.assemble(tmp_path, blocks)
    dataset, rows = opened(folder), logloom.datasets.open(str(folder))
    assert (len(dataset), dataset.num_episodes, dataset.meta.total_tasks) == (12, 3, 2)
    for number in range(12):
        row, ours = dataset[number], rows[number]
        state = ours["observation.state"].astype(np.float32)  # as lerobot gives all floats
        np.testing.assert_array_equal(row["observation.state"].numpy(), state)
        np.testing.assert_array_equal(row["action"].numpy(), ours["action"])
        assert bool(row["next.done"]) == bool(ours["next.done"])
        assert (row["task"], int(row["timestamp_ns"])) == (ours["task"], ours["timestamp"])
        assert abs(float(row["timestamp"]) - int(row["frame_index"]) / dataset.fps) < 1e-6
    wide = np.concatenate([block.columns["wide"] for block in blocks])
    for number in range(12):
        np.testing.assert_array_equal(pixels_of(dataset[number]["observation.images.wide"]), wide[number])


@pytest.mark.parametrize(("codec", "gop"), [("h264", 5), ("av1", 2), ("av1", 7)])
def test_lerobot_decodes_each_frame_at_its_time_as_the_encoders_own_file_does(codec, gop, tmp_path):
    blocks = [
        test_video.make_block(7, 0),
        test_video.make_block(6, 1, frames=[7, 8, 10, 11, 12, 30]),
        test_video.make_block(5, 2, "van"),
    ]
    folder, _ = test_video.assemble(tmp_path, blocks, test_video.options(codec, gop), test_video.SCHEMA)
    dataset, reader = opened(folder), LeRobotReader(str(folder))
    assert (len(dataset), dataset.num_episodes, dataset.meta.total_frames) == (18, 4, 18)
    assert dataset.meta.video_keys == [test_video.FRONT, test_video.WIDE]
    for number, key in enumerate(dataset.meta.video_keys):
        expected = test_video.staged_frames(tmp_path / "root", number)
        for index in range(18):
            np.testing.assert_array_equal(pixels_of(dataset[index][key]), expected[index])
        np.testing.assert_array_equal(reader.take(np.arange(18), (key,))[key], np.stack(expected))
        stats = dataset.meta.stats[key]
        assert stats["mean"].shape == (3, 1, 1)
        assert stats["count"].tolist() == [18]


def test_lerobot_takes_windows_that_stay_in_an_episode(tmp_path):
    folder, _ = making.assemble(tmp_path, [making.make_block(6, 0, frames=[0, 1, 2, 4, 5, 6])])
    dataset = opened(folder, delta_timestamps={"action": [0, 0.1, 0.2]})
    rows = logloom.datasets.open(str(folder)).select("action")
    row = dataset[1]
    np.testing.assert_array_equal(row["action"].numpy(), [rows[n]["action"] for n in (1, 2, 2)])
    assert row["action_is_pad"].tolist() == [False, False, True]


def test_lerobots_own_tool_deletes_an_episode_and_merges_the_statistics_of_the_others(tmp_path):
    blocks = [making.make_block(4 + number, number, f"log{number}") for number in range(3)]
    features = {key: own for key, own in making.FEATURES.items() if key != "next.done"}
    chosen = making.options(features=features)
    folder, _ = making.assemble(tmp_path / "all", blocks, chosen)
    left = dataset_tools.delete_episodes(opened(folder), [1], tmp_path / "left", "local/left")
    assert (len(left), left.meta.total_episodes) == (10, 2)
    two, _ = making.assemble(tmp_path / "two", [blocks[0], blocks[2]], chosen)
    expected = opened(two).meta.stats
    for key in features:
        for name in ("min", "max", "mean", "std", "count"):
            np.testing.assert_allclose(left.meta.stats[key][name], expected[key][name], rtol=1e-9)


def test_lerobots_own_tool_splits_a_dataset_into_the_episodes_of_each(tmp_path):
    blocks = [making.make_block(4 + number, number, f"log{number}") for number in range(3)]
    features = {key: own for key, own in making.FEATURES.items() if key != "next.done"}
    folder, _ = making.assemble(tmp_path / "all", blocks, making.options(features=features))
    whole = opened(folder)
    parts = dataset_tools.split_dataset(whole, {"train": [0, 2], "val": [1]}, tmp_path / "parts")
    for name, rows in {"train": [*range(4), *range(9, 15)], "val": range(4, 9)}.items():
        assert len(parts[name]) == len(rows)
        for own, number in enumerate(rows):
            for key in features:
                assert (parts[name][own][key] == whole[number][key]).all()


def test_lerobots_own_tool_merges_videos_frame_by_frame(tmp_path):
    chosen = test_video.options("h264", 5)
    sources = []
    for name, rows in (("one", 7), ("two", 6)):
        block = test_video.make_block(rows, rows, name)
        folder, _ = test_video.assemble(tmp_path / name, [block], chosen, test_video.SCHEMA)
        sources.append(LeRobotDataset(f"local/{name}", root=folder, video_backend="pyav"))
    merged = dataset_tools.merge_datasets(sources, "local/merged", tmp_path / "merged")
    assert (len(merged), merged.num_episodes) == (13, 2)
    again = LeRobotDataset("local/merged", root=tmp_path / "merged", video_backend="pyav")
    expected = [source[number] for source in sources for number in range(len(source))]
    for number, row in enumerate(expected):
        for key in (test_video.FRONT, test_video.WIDE, "action"):
            assert (again[number][key] == row[key]).all()
    for key in (test_video.FRONT, test_video.WIDE, "action"):
        assert again.meta.stats[key]["count"].tolist() == [13]


def test_statistics_of_episodes_are_those_that_lerobot_finds(tmp_path):
    block = making.make_block(40, 0)
    folder, _ = making.assemble(tmp_path, [block])
    row = dataset_tools._load_episode_with_stats(opened(folder), 0)
    state = np.concatenate([block.columns["speed"][:, None], block.columns["position"]], axis=1)
    features = {"observation.state": {"dtype": "float64", "shape": (4,)}}
    theirs = compute_stats.compute_episode_stats({"observation.state": state}, features)
    assert set(theirs["observation.state"]) == {
        name.rpartition("/")[2] for name in row if name.startswith("stats/observation.state/")
    }
    for name in ("min", "max", "mean", "std", "count"):
        found = row[f"stats/observation.state/{name}"]
        np.testing.assert_allclose(found, theirs["observation.state"][name], rtol=1e-9)


def test_lerobot_keeps_some_episodes(tmp_path):
    blocks = [making.make_block(4, number, f"log{number}") for number in range(3)]
    folder, _ = making.assemble(tmp_path, blocks)
    dataset = opened(folder, episodes=[2])
    assert len(dataset) == 4
    state = logloom.datasets.open(str(folder))[8]["observation.state"].astype(np.float32)
    np.testing.assert_array_equal(dataset[0]["observation.state"].numpy(), state)


@pytest.mark.parametrize("use_videos", [False, True])
def test_we_read_what_lerobot_writes(use_videos, tmp_path):
    image = {"dtype": "video" if use_videos else "image", "shape": (HEIGHT, WIDTH, 3)}
    features = {
        "observation.state": {"dtype": "float32", "shape": (3,), "names": ["x", "y", "z"]},
        "action": {"dtype": "float32", "shape": (1,), "names": None},
        test_video.FRONT: {**image, "names": ["height", "width", "channels"]},
    }
    folder = tmp_path / "theirs"
    written = LeRobotDataset.create(
        "local/theirs", fps=10, features=features, root=folder, use_videos=use_videos, vcodec="h264"
    )
    rng = np.random.default_rng(0)
    for episode, length in enumerate((6, 4)):
        for frame in range(length):
            row = {
                "observation.state": rng.random(3, np.float32),
                "action": rng.random(1, np.float32),
                test_video.FRONT: test_video.pixels(frame, episode),
                "task": f"task {episode}",
            }
            written.add_frame(row)
        written.save_episode()
    written.finalize()
    dataset, rows = opened(folder), logloom.datasets.open(str(folder))
    assert len(rows) == len(dataset) == 10
    assert sorted({rows[number]["log_id"] for number in range(10)}) == ["000000000", "000000001"]
    for number in np.random.default_rng(1).permutation(10).tolist():
        theirs, ours = dataset[number], rows[number]
        np.testing.assert_array_equal(theirs["observation.state"].numpy(), ours["observation.state"])
        assert float(theirs["action"]) == float(ours["action"])
        assert theirs["task"] == ours["task"]
        if use_videos:
            np.testing.assert_array_equal(pixels_of(theirs[test_video.FRONT]), ours[test_video.FRONT])
