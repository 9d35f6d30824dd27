"""Choosing rows; those of the real scene are the original's, as running l5kit 1.5.0 on it showed."""

import numpy as np
import pytest

from logloom.datasets.l5kit import (
    PERCEPTION_LABEL_TO_INDEX,
    PERCEPTION_LABELS,
    SCENE_DTYPE,
    TL_FACE_LABEL_TO_INDEX,
    ChunkedDataset,
    filter_agents_by_distance,
    filter_agents_by_frames,
    filter_agents_by_labels,
    filter_agents_by_track_id,
    filter_tl_faces_by_frames,
    filter_tl_faces_by_status,
    get_agents_slice_from_frames,
    get_combined_scenes,
    get_frames_slice_from_scenes,
    get_tl_faces_slice_from_frames,
)
from logloom.errors import UsageError
from logloom.io.formats.l5kit import TL_FACE_DTYPE
from tests.datasets.l5kit.scenes_made import make_dataset


def test_rows_of_the_real_scene_are_chosen_as_by_the_original(shared_data):
    scene = ChunkedDataset(shared_data / "l5kit" / "single_scene.zarr").open()
    frames = scene.frames[:]
    assert len(filter_agents_by_labels(scene.agents)) == 6136
    track = int(scene.agents[5]["track_id"])
    assert len(filter_agents_by_track_id(scene.agents, track)) == 34
    assert [len(a) for a in filter_agents_by_frames(frames[3:6], scene.agents)] == [107, 102, 102]
    assert [len(a) for a in filter_agents_by_frames(frames[3], scene.agents)] == [107]
    assert [len(t) for t in filter_tl_faces_by_frames(frames[3:6], scene.tl_faces)] == [24, 24, 24]
    assert len(filter_tl_faces_by_status(scene.tl_faces, "ACTIVE")) == 670
    ego = frames[0]["ego_translation"][:2]
    assert len(filter_agents_by_distance(scene.agents[:200], ego, 40.0)) == 145
    assert get_agents_slice_from_frames(frames[2], frames[9]) == slice(184, 1004)
    assert get_tl_faces_slice_from_frames(frames[2]) == slice(48, 72)
    assert get_frames_slice_from_scenes(scene.scenes[0]) == slice(0, 248)


def test_agents_are_chosen_by_label_distance_and_track():
    agents = make_dataset().agents
    likely = [agent for agent in agents if agent["label_probabilities"][3:16].sum() > 0.5]
    assert 0 < len(likely) < len(agents)
    np.testing.assert_array_equal(filter_agents_by_labels(agents), np.array(likely))
    assert len(filter_agents_by_labels(agents, threshold=0.95)) == 0
    center = agents["centroid"][0]
    distances = [float(np.hypot(*(agent["centroid"] - center))) for agent in agents]
    near = [agents[n] for n in sorted(range(len(agents)), key=distances.__getitem__) if distances[n] < 9]
    assert 0 < len(near) < len(agents)
    np.testing.assert_array_equal(filter_agents_by_distance(agents, center, 9.0), np.array(near))
    track = agents["track_id"][3]
    chosen = filter_agents_by_track_id(agents, track)
    np.testing.assert_array_equal(chosen, [agent for agent in agents if agent["track_id"] == track])
    assert len(filter_agents_by_track_id(agents, -1)) == 0


def test_every_agent_belongs_to_one_frame():
    dataset = make_dataset()
    groups = filter_agents_by_frames(dataset.frames, dataset.agents)
    assert len(groups) == len(dataset.frames)
    np.testing.assert_array_equal(np.concatenate(groups), dataset.agents)


def test_lights_are_chosen_by_their_status():
    faces = np.zeros(4, TL_FACE_DTYPE)
    faces["face_id"] = list("abcd")
    faces["traffic_light_face_status"] = [[1, 0, 0], [0, 1, 0], [0.2, 0, 0.8], [0, 0, 1]]
    for status, expected in (("ACTIVE", "ac"), ("INACTIVE", "b"), ("UNKNOWN", "cd")):
        assert "".join(filter_tl_faces_by_status(faces, status)["face_id"]) == expected
    with pytest.raises(UsageError, match=r"'red' .* ACTIVE, INACTIVE, UNKNOWN"):
        filter_tl_faces_by_status(faces, "red")


def test_labels_have_the_numbers_of_their_places():
    assert [PERCEPTION_LABEL_TO_INDEX[label] for label in PERCEPTION_LABELS] == list(range(17))
    assert TL_FACE_LABEL_TO_INDEX == {"ACTIVE": 0, "INACTIVE": 1, "UNKNOWN": 2}


def test_scenes_that_follow_each_other_become_one():
    scenes = np.zeros(5, SCENE_DTYPE)
    scenes["frame_index_interval"] = [(n, n + 1) for n in range(5)]
    scenes["host"] = ["a", "a", "a", "b", "b"]
    scenes["start_time"] = [0, 5, 10, 12, 21]
    scenes["end_time"] = [5, 9, 12, 20, 30]
    combined = get_combined_scenes(scenes)
    assert combined["frame_index_interval"].tolist() == [[0, 2], [2, 3], [3, 4], [4, 5]]
    assert combined["end_time"].tolist() == [9, 12, 20, 30]
    assert combined.dtype == SCENE_DTYPE
    assert len(get_combined_scenes(scenes[:0])) == 0
