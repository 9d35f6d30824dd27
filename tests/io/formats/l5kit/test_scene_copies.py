"""Datasets made of others'; that they are the original's to the byte of every row was found by running
l5kit 1.5.0 under zarr 2 on the real scene."""

import numpy as np
import pytest

from logloom.errors import DatasetError, UsageError
from logloom.io.formats.l5kit import ChunkedDataset
from logloom.io.formats.l5kit.dtypes import ARRAYS
from logloom.io.formats.l5kit.scene_copies import zarr_concat, zarr_scenes_chop, zarr_split
from tests.datasets.l5kit.scenes_made import make_dataset


def written(path, lengths=(12, 7), seed=0):
    """A dataset on the disk, with lights; and its path."""
    rows = make_dataset(lengths, seed=seed)
    made = ChunkedDataset(path).initialize()
    frames = rows.frames.copy()
    frames["traffic_light_faces_index_interval"] = [(2 * n, 2 * n + 2) for n in range(len(frames))]
    lights = np.zeros(2 * len(frames), made.tl_faces.dtype)
    lights["face_id"] = [f"{seed}-{n}" for n in range(len(lights))]
    for name, values in (("scenes", rows.scenes), ("frames", frames), ("agents", rows.agents)):
        getattr(made, name).append(values)
    made.tl_faces.append(lights)
    return str(path)


def told(dataset, num_frames=None):
    """What a dataset says, scene by scene and frame by frame, whatever its intervals count from."""
    scenes = []
    for scene in dataset.scenes[:]:
        first, stop = scene["frame_index_interval"]
        frames = []
        for frame in dataset.frames[first:stop][:num_frames]:
            agents = dataset.agents[slice(*frame["agent_index_interval"])]
            lights = dataset.tl_faces[slice(*frame["traffic_light_faces_index_interval"])]
            frames.append(
                (int(frame["timestamp"]), frame["ego_rotation"].tolist(), agents.tobytes(), lights.tobytes())
            )
        scenes.append((scene["host"], scene["start_time"], scene["end_time"], frames))
    return scenes


def assert_dense(dataset):
    """Intervals divide the arrays without gaps."""
    for rows, field, into in (
        (dataset.scenes, "frame_index_interval", dataset.frames),
        (dataset.frames, "agent_index_interval", dataset.agents),
        (dataset.frames, "traffic_light_faces_index_interval", dataset.tl_faces),
    ):
        flat = rows[:][field].reshape(-1).tolist()
        assert flat == sorted(flat)
        assert flat[1:-1:2] == flat[2::2]
        assert (flat[0], flat[-1]) == (0, len(into))


def test_joined_datasets_say_what_each_said(tmp_path, caplog):
    inputs = [written(tmp_path / f"{seed}.zarr", lengths, seed) for seed, lengths in ((1, (5, 3)), (2, (4,)))]
    zarr_concat([inputs[0], str(tmp_path / "nothing.zarr"), inputs[1]], str(tmp_path / "all.zarr"))
    assert "nothing.zarr" in caplog.text
    found = ChunkedDataset(tmp_path / "all.zarr").open()
    assert told(found) == [scene for path in inputs for scene in told(ChunkedDataset(path).open())]
    assert_dense(found)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["1.zarr", "2.zarr", "all.zarr"]


def test_a_divided_dataset_is_joined_to_what_it_was(tmp_path):
    path = written(tmp_path / "whole.zarr", (5, 3, 6, 4))
    size = sum(f.stat().st_size for f in (tmp_path / "whole.zarr").rglob("*") if f.is_file()) / 2**30
    infos = [{"name": "a.zarr", "split_size_GB": size * 0.3}, {"name": "b.zarr", "split_size_GB": -1}]
    assert zarr_split(path, str(tmp_path / "parts"), infos) == [(0, 1), (1, 4)]
    for name in ("a.zarr", "b.zarr"):
        assert_dense(ChunkedDataset(tmp_path / "parts" / name).open())
    zarr_concat([str(tmp_path / "parts" / info["name"]) for info in infos], str(tmp_path / "again.zarr"))
    again, whole = (ChunkedDataset(tmp_path / name).open() for name in ("again.zarr", "whole.zarr"))
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(again, name)[:], getattr(whole, name)[:])
    with pytest.raises(UsageError, match="has to be -1"):
        zarr_split(path, str(tmp_path / "other"), infos[:1])
    with pytest.raises(UsageError, match="no scene for the last"):
        zarr_split(path, str(tmp_path / "other"), [infos[0] | {"split_size_GB": 1}, infos[1]])


def test_chopped_scenes_keep_their_first_frames(tmp_path):
    path = written(tmp_path / "whole.zarr")
    zarr_scenes_chop(path, str(tmp_path / "short.zarr"), 6)
    found, whole = ChunkedDataset(tmp_path / "short.zarr").open(), ChunkedDataset(path).open()
    assert told(found) == told(whole, 6)
    assert found.scenes["frame_index_interval"].tolist() == [[0, 6], [6, 12]]
    assert_dense(found)
    for frames, message in ((7, "scene 1 has 7"), (0, "at least 1")):
        with pytest.raises(UsageError, match=message):
            zarr_scenes_chop(path, str(tmp_path / "none.zarr"), frames)


def test_a_new_dataset_replaces_nothing_and_appears_whole(tmp_path):
    path = written(tmp_path / "whole.zarr")
    (tmp_path / "there").mkdir()
    with pytest.raises(UsageError, match=r"there: there is something already"):
        zarr_concat([path], str(tmp_path / "there"))
    with pytest.raises(UsageError, match="nothing to join"):
        zarr_concat([str(tmp_path / "no.zarr")], str(tmp_path / "new.zarr"))
    damaged = ChunkedDataset(path).open("r+")
    frames = damaged.frames[:]
    frames["agent_index_interval"][-1, 1] += 1000
    damaged.frames[:] = frames
    with pytest.raises(DatasetError, match="interval"):
        zarr_concat([path], str(tmp_path / "new.zarr"))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["there", "whole.zarr"]
