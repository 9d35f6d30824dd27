import csv
import math
import pathlib

import numpy as np

from logloom.datasets.l5kit import ChunkedDataset, create_chopped_dataset
from tests.datasets.l5kit.scenes_made import slow_mask
from tests.io.formats.l5kit.test_scene_copies import told, written

CUT, FUTURE, MIN_FUTURE = 8, 3, 1


def expected_lines(dataset, rows):
    """The ground truth as its definition reads: offsets in the world, of frames in which it is seen."""
    for row in rows:
        agent = dataset.agents[row]
        frame = next(n for n, f in enumerate(dataset.frames) if row < f["agent_index_interval"][1])
        scene = next(s for s in dataset.scenes if frame < s["frame_index_interval"][1])
        later, known = [], []
        for step in range(frame + 1, frame + 1 + FUTURE):
            found = None
            if step < scene["frame_index_interval"][1]:
                for other in dataset.agents[slice(*dataset.frames[step]["agent_index_interval"])]:
                    if other["track_id"] == agent["track_id"]:
                        found = other["centroid"] - agent["centroid"]
            later.append([math.nan] * 2 if found is None else found)
            known.append(float(found is not None))
        yield int(dataset.frames[frame]["timestamp"]), int(agent["track_id"]), known, np.array(later)


def test_a_test_set_has_scenes_cut_short_beside_a_mask_and_what_agents_do(tmp_path, monkeypatch):
    monkeypatch.setenv("LOGLOOM_CACHE", str(tmp_path / "cache"))
    path = written(tmp_path / "data" / "drive.zarr", (20, 14))
    folder = tmp_path / "data" / "drive_chopped_8"
    assert create_chopped_dataset(path, 0.5, CUT, FUTURE, MIN_FUTURE) == str(folder)
    assert sorted(p.name for p in folder.iterdir()) == ["drive.zarr", "gt.csv", "mask.npz"]
    whole, short = ChunkedDataset(path).open(), ChunkedDataset(folder / "drive.zarr").open()
    assert told(short) == told(whole, CUT)
    assert not (tmp_path / "data" / "drive.zarr" / "agents_mask").exists()


def test_the_mask_has_the_agents_to_predict_and_the_table_what_they_do(tmp_path, monkeypatch):
    monkeypatch.setenv("LOGLOOM_CACHE", str(tmp_path / "cache"))
    path = written(tmp_path / "drive.zarr", (20, 14, 12, 11, 13, 15))
    folder = pathlib.Path(create_chopped_dataset(path, 0.5, CUT, FUTURE, MIN_FUTURE))
    whole, short = ChunkedDataset(path).open(), ChunkedDataset(folder / "drive.zarr").open()
    memory = ChunkedDataset()
    for name in ("scenes", "frames", "agents", "tl_faces"):
        setattr(memory, name, getattr(whole, name)[:])
    counts, rows = slow_mask(memory), []
    for scene in memory.scenes:
        last = memory.frames[scene["frame_index_interval"][0] + CUT - 1]
        rows += [n for n in range(*last["agent_index_interval"]) if counts[n, 1] >= MIN_FUTURE]
    mask = np.load(folder / "mask.npz")["arr_0"]
    assert mask.dtype == np.bool_
    assert len(rows) > 2
    np.testing.assert_array_equal(short.agents[np.flatnonzero(mask)], memory.agents[rows])

    with open(folder / "gt.csv", newline="") as file:
        lines = list(csv.DictReader(file))
    assert list(lines[0]) == ["timestamp", "track_id", "avail_0", "avail_1", "avail_2"] + [
        f"coord_{axis}0{k}" for k in range(FUTURE) for axis in "xy"
    ]
    for line, (stamp, track, known, later) in zip(lines, expected_lines(memory, rows), strict=True):
        assert (int(line["timestamp"]), int(line["track_id"])) == (stamp, track)
        assert [float(line[f"avail_{k}"]) for k in range(FUTURE)] == known
        found = np.array([[float(line[f"coord_{axis}0{k}"]) for axis in "xy"] for k in range(FUTURE)])
        np.testing.assert_allclose(found[np.array(known) > 0], later[np.array(known) > 0], atol=1e-4)
