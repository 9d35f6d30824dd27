"""Makers of L5Kit datasets in memory, and slow counterparts of what the views compute."""

import math

import numpy as np

from logloom.io.formats.l5kit import AGENT_DTYPE, FRAME_DTYPE, SCENE_DTYPE, TL_FACE_DTYPE, ChunkedDataset

PERIOD = 100_000_000


def make_config(history=3, future=4, map_type="box_debug") -> dict:
    return {
        "model_params": {
            "history_num_frames": history,
            "future_num_frames": future,
            "step_time": 0.1,
            "render_ego_history": True,
        },
        "raster_params": {
            "raster_size": [64, 48],
            "pixel_size": [0.5, 0.5],
            "ego_center": [0.25, 0.5],
            "map_type": map_type,
            "filter_agents_threshold": 0.5,
            "set_origin_to_bottom": True,
        },
    }


def make_dataset(scene_lengths=(12, 0, 7), num_tracks=6, seed=0) -> ChunkedDataset:
    """Tracks that come, go, jump and change; a scene may be without frames."""
    rng = np.random.default_rng(seed)
    dataset = ChunkedDataset("")
    num_frames = sum(scene_lengths)
    frames = np.zeros(num_frames, FRAME_DTYPE)
    scenes = np.zeros(len(scene_lengths), SCENE_DTYPE)
    stops = np.cumsum(scene_lengths)
    scenes["frame_index_interval"] = np.stack([stops - scene_lengths, stops], axis=1)
    scenes["host"] = [f"host-{n}" for n in range(len(scenes))]
    frames["timestamp"] = 1_600_000_000_000_000_000 + np.arange(num_frames) * PERIOD
    headings = np.cumsum(rng.normal(0, 0.1, num_frames))
    frames["ego_rotation"] = np.reshape([rotation(h) for h in headings], (-1, 3, 3))
    frames["ego_translation"][:, :2] = np.cumsum(rng.normal(0, 1, (num_frames, 2)), axis=0)
    held = [agents_in_frame(rng, frame, num_tracks) for frame in frames]
    counts = np.cumsum([len(agents) for agents in held])
    frames["agent_index_interval"] = np.stack([counts - [len(a) for a in held], counts], axis=1)
    dataset.scenes, dataset.frames = scenes, frames
    dataset.agents = np.concatenate([*held, np.zeros(0, AGENT_DTYPE)])
    dataset.tl_faces = np.zeros(0, TL_FACE_DTYPE)
    return dataset


def agents_in_frame(rng, frame, num_tracks) -> np.ndarray:
    tracks = np.flatnonzero(rng.random(num_tracks) < 0.85)
    agents = np.zeros(len(tracks), AGENT_DTYPE)
    agents["track_id"] = rng.permutation(tracks) * 2**40 + 1
    agents["centroid"] = frame["ego_translation"][:2] + rng.normal(0, 8, (len(tracks), 2))
    agents["centroid"] += (rng.random((len(tracks), 1)) < 0.05) * 60
    agents["yaw"] = (agents["track_id"] >> np.uint64(40)) * 1.0 - 3 + rng.normal(0, 0.15, len(tracks))
    agents["extent"] = np.array([4.0, 2.0, 1.5]) * (1 + rng.normal(0, 0.02, (len(tracks), 1)))
    agents["extent"][rng.random(len(tracks)) < 0.03] = 0
    agents["label_probabilities"][:, 3] = rng.choice([0.2, 0.5, 0.9], len(tracks), p=[0.05, 0.05, 0.9])
    return agents


def rotation(yaw: float) -> np.ndarray:
    return np.array([[math.cos(yaw), -math.sin(yaw), 0], [math.sin(yaw), math.cos(yaw), 0], [0, 0, 1]])


def slow_mask(dataset: ChunkedDataset) -> np.ndarray:
    """The agents mask as its definition reads, agent by agent."""
    mask = np.zeros((len(dataset.agents), 2), np.uint32)
    for first, stop in dataset.scenes["frame_index_interval"]:
        runs: dict[int, list[int]] = {}
        finished = []
        last_frame: dict[int, int] = {}
        for frame in range(first, stop):
            start, end = dataset.frames["agent_index_interval"][frame]
            for row in range(start, end):
                agent = dataset.agents[row]
                track = int(agent["track_id"])
                run = runs.setdefault(track, [])
                gap = dataset.frames["ego_translation"][frame, :2] - agent["centroid"]
                if agent["label_probabilities"][3:16].sum() <= 0.5 or math.hypot(*gap) >= 50:
                    finished.append(run)
                    runs[track] = []
                    continue
                if run and not (last_frame[track] == frame - 1 and goes_on(dataset.agents[run[-1]], agent)):
                    finished.append(run)
                    run = runs[track] = []
                run.append(row)
                last_frame[track] = frame
        for run in finished + list(runs.values()):
            for place, row in enumerate(run):
                mask[row] = place, len(run) - 1 - place
    return mask


def goes_on(before, after) -> bool:
    turn = abs((math.degrees(after["yaw"]) - math.degrees(before["yaw"]) + 180) % 360 - 180)
    areas = sorted(float(a["extent"][0]) * float(a["extent"][1]) for a in (before, after))
    return turn < 30 and areas[0] >= 0.01 and areas[1] / areas[0] < 1.1


def assert_samples_equal(found, expected):
    assert found.keys() == expected.keys()
    for name in expected:
        np.testing.assert_array_equal(found[name], expected[name], err_msg=name)
