import itertools
import math
import pickle
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logloom.datasets.l5kit import (
    AgentDataset,
    ChunkedDataset,
    EgoDataset,
    LocalDataManager,
    StubRasterizer,
    datasets,
    load_config_data,
)
from logloom.datasets.l5kit import build_rasterizer as build
from logloom.datasets.l5kit.geometry import rotation33_as_yaw, yaws_of
from logloom.datasets.l5kit.scenes import SceneRows
from logloom.errors import DatasetError, UsageError
from logloom.io.storage.lru_cache import LruCache
from tests.datasets.l5kit.scenes_made import assert_samples_equal, make_config, make_dataset, rotation


def everything(dataset):
    return np.ones(len(dataset.agents), bool)


def to_world(sample, positions):
    return positions @ sample["world_from_agent"][:2, :2].T + sample["world_from_agent"][:2, 2]


def test_the_vehicles_way_is_found_again_in_the_world_and_stays_within_its_scene():
    dataset = make_dataset((12, 0, 7))
    for index, sample in enumerate(EgoDataset(make_config(), dataset)):
        scene = 0 if index < 12 else 2
        first, stop = dataset.scenes["frame_index_interval"][scene]
        assert (sample["scene_index"], sample["frame_index"]) == (scene, index - first)
        assert sample["host_id"].tobytes().rstrip(b"\0") == f"host-{scene}".encode()
        frames_of = {"history": range(index, index - 4, -1), "target": range(index + 1, index + 5)}
        for name, frames in frames_of.items():
            there = np.array([first <= frame < stop for frame in frames])
            np.testing.assert_array_equal(sample[f"{name}_availabilities"], there)
            world = to_world(sample, sample[f"{name}_positions"])
            expected = dataset.frames["ego_translation"][np.clip(frames, 0, 18), :2]
            np.testing.assert_allclose(world[there], expected[there], atol=1e-4)
            assert not sample[f"{name}_positions"][~there].any()


def test_a_sample_of_an_agent_is_seen_from_it_and_never_perturbed():
    dataset = make_dataset((6, 5), num_tracks=3)
    view = AgentDataset(make_config(), dataset, agents_mask=everything(dataset))
    assert len(view) == len(dataset.agents)
    sample, agent = view[4], dataset.agents[4]
    assert sample["track_id"] == agent["track_id"]
    now = sample["history_positions"][0]
    np.testing.assert_allclose(now, [0, 0], atol=1e-4)
    np.testing.assert_allclose(to_world(sample, now), agent["centroid"], atol=1e-3)
    with pytest.raises(UsageError, match="accepts no perturbation"):
        AgentDataset(make_config(), dataset, None, Shift())


@given(seed=st.integers(0, 2**32), history=st.integers(0, 4), future=st.integers(0, 4))
def test_an_agents_way_holds_exactly_the_frames_that_see_it(seed, history, future):
    dataset = make_dataset((6, 5), num_tracks=3, seed=seed)
    view = AgentDataset(make_config(history, future), dataset, agents_mask=everything(dataset))
    for row, sample in enumerate(view):
        frame = int(np.searchsorted(dataset.frames["agent_index_interval"][:, 1], row, side="right"))
        first, stop = dataset.scenes["frame_index_interval"][sample["scene_index"]]
        assert ("curr_speed" in sample) == (history > 0)
        for name, steps in (("history", range(0, -history - 1, -1)), ("target", range(1, future + 1))):
            for place, step in enumerate(steps):
                start, end = dataset.frames["agent_index_interval"][min(max(frame + step, 0), 10)]
                seen = dataset.agents[start:end]
                seen = seen[seen["track_id"] == dataset.agents["track_id"][row]]
                there = first <= frame + step < stop and len(seen) == 1
                assert sample[f"{name}_availabilities"][place] == there
                position = sample[f"{name}_positions"][place]
                if there:
                    np.testing.assert_allclose(to_world(sample, position), seen["centroid"][0], atol=1e-3)
                    turn = float(sample[f"{name}_yaws"][place, 0]) - float(seen["yaw"][0] - sample["yaw"])
                    assert abs(math.remainder(turn, math.tau)) < 1e-4
                else:
                    assert not position.any()


def test_indices_outside_end_a_loop_or_are_refused():
    view = EgoDataset(make_config(), make_dataset((5,)))
    assert len(view) == len(list(view)) == 5
    assert_samples_equal(view[-5], view[0])
    with pytest.raises(IndexError):
        view[5]
    with pytest.raises(ValueError, match="before the first"):
        view[-6]


def test_many_samples_come_in_the_order_asked_for_and_read_each_scene_once(monkeypatch):
    dataset = make_dataset((5, 4, 6))
    view = EgoDataset(make_config(), dataset)
    view._cache = LruCache(0, least=1)
    reads = []
    monkeypatch.setattr(datasets, "SceneRows", lambda *args: reads.append(args) or SceneRows(*args))
    indices = [14, 0, 6, 1, -1, 13, 6, 4]
    samples = view.__getitems__(indices)
    assert len(reads) == 3
    for index, sample in zip(indices, samples, strict=True):
        assert sample["timestamp"] == dataset.frames["timestamp"][index]
    assert samples[2] is not samples[6]
    assert view.__getitems__([]) == []
    with pytest.raises(IndexError, match="index 15 of 15"):
        view.__getitems__([2, 15])


def test_scenes_and_frames_know_the_indices_of_their_samples():
    dataset = make_dataset((6, 0, 5), num_tracks=4)
    mask = everything(dataset)
    mask[::3] = False
    for view in (EgoDataset(make_config(), dataset), AgentDataset(make_config(), dataset, agents_mask=mask)):
        by_scene = [view.get_scene_indices(scene).tolist() for scene in range(3)]
        assert by_scene[1] == []
        assert list(itertools.chain(*by_scene)) == list(range(len(view)))
        by_frame = [view.get_frame_indices(frame).tolist() for frame in range(11)]
        assert list(itertools.chain(*by_frame)) == list(range(len(view)))
        for frame, indices in enumerate(by_frame):
            for index in indices:
                assert view[index]["timestamp"] == dataset.frames["timestamp"][frame]
        with pytest.raises(ValueError, match="scene 3 of 3"):
            view.get_scene_indices(3)
        with pytest.raises(ValueError, match="frame 11 of 11"):
            view.get_frame_indices(11)


def test_a_scenes_own_dataset_may_be_changed_without_the_whole_noticing():
    dataset = make_dataset((6, 0, 5), num_tracks=4)
    for view in (
        EgoDataset(make_config(), dataset),
        AgentDataset(make_config(), dataset, agents_mask=everything(dataset)),
    ):
        own = view.get_scene_dataset(2)
        assert type(own) is type(view)
        for index, there in enumerate(view.get_scene_indices(2)):
            found, expected = own[index], view[int(there)]
            assert found.pop("scene_index") == 0
            assert expected.pop("scene_index") == 2
            assert_samples_equal(found, expected)
        before = view[-1]["centroid"].copy()
        own.dataset.frames["ego_translation"] += 1
        own.dataset.agents["centroid"] += 1
        np.testing.assert_array_equal(view[-1]["centroid"], before)
        assert len(view.get_scene_dataset(1)) == 0
        with pytest.raises(ValueError, match="scene 3 of 3"):
            view.get_scene_dataset(3)


def test_views_pickle_without_what_they_read():
    dataset = make_dataset()
    view = EgoDataset(make_config(), dataset, build(make_config()))
    before = view[3]
    data = pickle.dumps(view)
    assert not pickle.loads(data)._cache.num_bytes
    assert_samples_equal(pickle.loads(data)[3], before)


class Shift:
    """Moves the vehicle sideways in the past, as a perturbation of the original's kind."""

    def perturb(self, history_frames, future_frames, **kwargs):
        history_frames["ego_translation"][1:] += 3
        return history_frames, future_frames


def test_a_perturbation_moves_the_vehicle_where_the_future_is_whole():
    dataset = make_dataset((9,))
    frames = dataset.frames.copy()
    plain, moved = EgoDataset(make_config(), dataset), EgoDataset(make_config(), dataset, None, Shift())
    difference = to_world(plain[4], moved[4]["history_positions"]) - to_world(
        plain[4], plain[4]["history_positions"]
    )
    np.testing.assert_allclose(difference[1:], 3, atol=1e-4)
    np.testing.assert_allclose(difference[0], 0, atol=1e-4)
    assert_samples_equal(moved[5], plain[5])  # three frames of the future left of four
    np.testing.assert_array_equal(dataset.frames, frames)


@pytest.mark.parametrize(
    "key",
    [
        "model_params.history_num_frames",
        "model_params.future_num_frames",
        "model_params.step_time",
        "raster_params.raster_size",
        "raster_params.pixel_size",
        "raster_params.ego_center",
        "raster_params.set_origin_to_bottom",
        "raster_params.filter_agents_threshold",
    ],
)
def test_a_missing_setting_is_named(key):
    config = make_config()
    section, name = key.split(".")
    del config[section][name]
    with pytest.raises(UsageError, match=key):
        EgoDataset(config, make_dataset())
    with pytest.raises(UsageError, match=section):
        EgoDataset({k: v for k, v in make_config().items() if k != section}, make_dataset())


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("model_params.history_num_frames", -1),
        ("model_params.future_num_frames", 1.5),
        ("model_params.step_time", 0),
        ("model_params.step_time", float("nan")),
        ("raster_params.raster_size", [10**9, 10**9]),
        ("raster_params.raster_size", "big"),
        ("raster_params.pixel_size", [0.5, 0.25]),
        ("raster_params.ego_center", [0.5]),
    ],
)
def test_a_setting_out_of_its_range_is_named(key, value):
    config = make_config()
    section, name = key.split(".")
    config[section][name] = value
    with pytest.raises(UsageError, match=key):
        EgoDataset(config, make_dataset())


@pytest.mark.parametrize("mask", [np.ones(3, bool), np.ones((2, 2), bool), ["a"], np.ones(0, bool)])
def test_a_mask_that_does_not_fit_the_agents_is_refused(mask):
    with pytest.raises(UsageError, match="one bool for each of"):
        AgentDataset(make_config(), make_dataset(), agents_mask=mask)


def test_a_track_twice_in_a_frame_is_refused_with_its_frame():
    dataset = make_dataset((6,))
    start, _ = dataset.frames["agent_index_interval"][4]
    dataset.agents["track_id"][start + 1] = dataset.agents["track_id"][start]
    track = dataset.agents["track_id"][start]
    view = AgentDataset(make_config(), dataset, agents_mask=everything(dataset))
    with pytest.raises(DatasetError, match=f"track {track} is twice in frame 4"):
        view[0]
    with pytest.raises(DatasetError, match=f"track {track} is twice in frame 4"):
        AgentDataset(make_config(), dataset)


def test_a_frame_without_the_agent_asked_for_is_named():
    view = EgoDataset(make_config(), make_dataset((6,)))
    for track_id in (12345, -1, 2**64):
        with pytest.raises(UsageError, match=f"frame 2 of this scene contains no agent {track_id}"):
            view.get_frame(0, 2, track_id)
    with pytest.raises(IndexError, match="6 frames"):
        view.get_frame(0, 6)
    with pytest.raises(IndexError, match="scene 1 of 1"):
        view.get_frame(1, 0)


def test_a_track_id_that_samples_can_not_hold_is_refused():
    dataset = make_dataset((3,))
    dataset.agents["track_id"][0] = 2**64 - 1
    with pytest.raises(DatasetError, match=str(2**64 - 1)):
        AgentDataset(make_config(), dataset, agents_mask=everything(dataset))[0]


def test_a_dataset_that_was_not_opened_is_refused(tmp_path):
    with pytest.raises(UsageError, match="open this dataset first"):
        EgoDataset(make_config(), ChunkedDataset(tmp_path / "train.zarr"))


@pytest.mark.parametrize("interval", [(0, 99), (1, 4), (4, 2), (-1, 6), (0, 5)])
def test_scenes_that_do_not_divide_the_frames_are_refused(interval):
    dataset = make_dataset((6, 3))
    dataset.scenes["frame_index_interval"][0] = interval
    with pytest.raises(DatasetError, match="frame_index_interval"):
        EgoDataset(make_config(), dataset)


@pytest.mark.parametrize("interval", [(0, 10**6), (-5, 3), (3, 1), (2**62, 2**62)])
def test_frames_that_do_not_divide_the_agents_are_refused(interval):
    dataset = make_dataset((6, 3))
    dataset.frames["agent_index_interval"][0] = interval
    with pytest.raises(DatasetError, match="agent_index_interval"):
        EgoDataset(make_config(), dataset)[2]
    with pytest.raises(DatasetError, match="agent_index_interval"):
        AgentDataset(make_config(), dataset, agents_mask=everything(dataset))


def test_a_dataset_without_scenes_or_without_agents_has_no_samples():
    assert list(EgoDataset(make_config(), make_dataset(()))) == []
    assert list(AgentDataset(make_config(), make_dataset(()))) == []
    bare = make_dataset((4,), num_tracks=0)
    assert len(list(EgoDataset(make_config(), bare, build(make_config())))) == 4
    assert list(AgentDataset(make_config(), bare)) == []


def test_a_scene_without_frames_has_no_samples_and_hides_no_others():
    dataset = make_dataset((4, 0, 3))
    for view, more in ((EgoDataset, {}), (AgentDataset, {"agents_mask": everything(dataset)})):
        samples = view(make_config(), dataset, **more)
        assert len(samples.get_scene_indices(1)) == len(samples.get_scene_dataset(1)) == 0
        assert list(samples.get_scene_dataset(1)) == []
        assert len(samples.get_scene_indices(0)) + len(samples.get_scene_indices(2)) == len(samples)
        assert {sample["scene_index"] for sample in samples} == {0, 2}
        with pytest.raises(IndexError, match="scene 1 has 0 frames"):
            samples.get_frame(1, 0)


def test_a_rotation_straight_up_has_no_yaw():
    upright = np.array([[0, 0, 1], [0, 1, 0], [-1, 0, 0]], float)
    rotations = np.array([upright, rotation(2.5), rotation(-3.0)])
    np.testing.assert_allclose(yaws_of(rotations), [0, 2.5, -3.0])
    assert [rotation33_as_yaw(matrix) for matrix in rotations] == yaws_of(rotations).tolist()


def test_a_config_is_read_and_a_broken_one_is_refused(tmp_path):
    (tmp_path / "good.yaml").write_text("model_params: {step_time: 0.1}")
    assert load_config_data(tmp_path / "good.yaml") == {"model_params": {"step_time": 0.1}}
    (tmp_path / "bad.yaml").write_text("- [")
    (tmp_path / "list.yaml").write_text("- a")
    (tmp_path / "code.yaml").write_text("!!python/object/apply:os.system ['exit 1']")
    for name in ("bad.yaml", "list.yaml", "code.yaml", "missing.yaml"):
        with pytest.raises(UsageError, match=name):
            load_config_data(str(tmp_path / name))


def test_the_data_manager_finds_files_of_its_folder(tmp_path, monkeypatch):
    (tmp_path / "meta.json").touch()
    assert LocalDataManager(tmp_path).require("meta.json") == str(tmp_path / "meta.json")
    with pytest.raises(FileNotFoundError, match=r"map\.pb is not in the data folder"):
        LocalDataManager(tmp_path).require("map.pb")
    monkeypatch.setenv("L5KIT_DATA_FOLDER", str(tmp_path))
    assert LocalDataManager().root_folder == tmp_path
    monkeypatch.delenv("L5KIT_DATA_FOLDER")
    with pytest.raises(ValueError, match="L5KIT_DATA_FOLDER"):
        LocalDataManager()


def test_a_stub_gives_black_images():
    config = make_config(map_type="stub_debug")
    rasterizer = build(config)
    assert isinstance(rasterizer, StubRasterizer)
    image = EgoDataset(config, make_dataset(), rasterizer)[0]["image"]
    assert image.shape == (3, 48, 64)
    assert not image.any()


def test_importing_the_views_loads_neither_beam_nor_opencv_nor_zarr():
    code = (
        "import sys, logloom.datasets.l5kit\n"
        "assert not {'apache_beam', 'cv2', 'zarr', 'torch', 'pandas'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
