import math
import pickle
import sys

import numpy as np
import pytest

from logloom.datasets.l5kit import (
    AgentDataset,
    EgoDataset,
    build_rasterizer,
    load_config_data,
    save_config_data,
)
from logloom.datasets.l5kit.rasterizers import fill_boxes
from logloom.errors import UsageError
from logloom.io.formats.l5kit import AGENT_DTYPE
from tests.datasets.l5kit.scenes_made import make_config, make_dataset, rotation

pytest.importorskip("cv2", reason="boxes are drawn by OpenCV")


def standing_still(num_frames=5):
    """The vehicle at the origin heading along x, and one car 8 m ahead that drives on 1 m per frame."""
    dataset = make_dataset((num_frames,), num_tracks=0)
    dataset.frames["ego_translation"] = 0
    dataset.frames["ego_rotation"] = rotation(0)
    dataset.agents = np.zeros(num_frames, AGENT_DTYPE)
    dataset.agents["centroid"][:, 0] = 8 + np.arange(num_frames)
    dataset.agents["extent"] = 4, 2, 1.5
    dataset.agents["track_id"] = 7
    dataset.agents["label_probabilities"][:, 3] = 1
    dataset.frames["agent_index_interval"] = np.arange(num_frames)[:, None] + [0, 1]
    return dataset


def box_in(channel):
    """First and last column and row of what a channel shows, whole pixels only."""
    rows, columns = np.nonzero(channel == 1)
    return columns.min(), columns.max(), rows.min(), rows.max()


def test_boxes_lie_where_their_metres_say():
    image = EgoDataset(make_config(), standing_still(), build_rasterizer(make_config()))[4]["image"]
    assert image.shape == (8, 48, 64)
    assert image.dtype == np.float32
    # Pixels of half a metre, the vehicle at column 16, row 24; the car from 10 to 14 m ahead, 2 m wide.
    for steps_back in range(4):
        left, right, top, bottom = box_in(image[steps_back])
        expected = 16 + 2 * (10 - steps_back), 16 + 2 * (14 - steps_back), 22, 26
        assert np.abs(np.subtract((left, right, top, bottom), expected)).max() <= 1
    left, right, _, _ = box_in(image[4])
    assert abs(right - (16 + 4.87)) <= 1.5
    assert abs(left - (16 - 4.87)) <= 1.5


def test_an_agents_own_box_is_apart_and_the_vehicle_among_the_others():
    dataset = standing_still()
    config = make_config()
    image = AgentDataset(config, dataset, build_rasterizer(config), agents_mask=np.ones(5, bool))[4]["image"]
    left, right, _, _ = box_in(image[4])
    assert (left + right) / 2 == pytest.approx(16, abs=1)  # itself, at the centre
    assert not image[0][:, 12:].any()  # the vehicle, 12 m behind it: at column -8, half a box long


def test_the_worlds_y_points_up_or_down_as_asked():
    dataset = standing_still()
    dataset.agents["centroid"] = 0, 8
    config = make_config()
    for bottom, expected in ((True, 24 - 16), (False, 24 + 16)):
        config["raster_params"]["set_origin_to_bottom"] = bottom
        _, _, first, last = box_in(EgoDataset(config, dataset, build_rasterizer(config))[0]["image"][0])
        assert (first + last) / 2 == pytest.approx(expected, abs=1)


def test_frames_before_the_scene_are_black_and_the_past_of_the_own_box_may_be_left_out():
    config = make_config()
    image = EgoDataset(config, standing_still(), build_rasterizer(config))[1]["image"]
    assert [channel.any() for channel in image] == [True, True, False, False] * 2
    config["model_params"]["render_ego_history"] = False
    image = EgoDataset(config, standing_still(), build_rasterizer(config))[3]["image"]
    assert [channel.any() for channel in image] == [True] * 4 + [True, False, False, False]


def test_improbable_agents_are_not_drawn():
    config = make_config()
    config["raster_params"]["filter_agents_threshold"] = 1.0
    image = EgoDataset(config, standing_still(), build_rasterizer(config))[3]["image"]
    assert not image[:4].any()
    assert image[4].any()


@pytest.mark.parametrize("far", [1e12, -1e300, math.inf, math.nan])
def test_boxes_out_of_all_bounds_draw_nothing_and_disturb_nothing(far):
    near = np.array([[[4, 4], [4, 12], [12, 12], [12, 4]]], float)
    alone, both = np.zeros((1, 20, 20), np.uint8), np.zeros((1, 20, 20), np.uint8)
    fill_boxes(alone, np.zeros(1, int), near)
    beside, above = near + np.array([100, 0]), near - np.array([0, 30])
    fill_boxes(both, np.zeros(4, int), np.concatenate([near, near + far, beside, above]))
    assert alone[0, 8, 8] == 255
    np.testing.assert_array_equal(alone, both)


def test_leaving_out_boxes_beyond_the_border_changes_no_pixel():
    import cv2

    rng = np.random.default_rng(3)
    for _ in range(50):
        corners = rng.normal(0, 6, (30, 4, 2)) + rng.uniform(-20, 60, (30, 1, 2))
        channels = rng.integers(0, 3, 30)
        found, expected = np.zeros((3, 40, 40), np.uint8), np.zeros((3, 40, 40), np.uint8)
        fill_boxes(found, channels, corners)
        for channel, image in enumerate(expected):
            points = (corners[channels == channel] * 512).astype(np.int32)
            cv2.fillPoly(image, points, 255, lineType=cv2.LINE_AA, shift=9)
        np.testing.assert_array_equal(found, expected)


def test_images_to_look_at_fade_into_the_past():
    config = make_config()
    rasterizer = pickle.loads(pickle.dumps(build_rasterizer(config)))
    image = EgoDataset(config, standing_still(), rasterizer)[3]["image"]
    rgb = rasterizer.to_rgb(image.transpose(1, 2, 0))
    assert rgb.shape == (48, 64, 3)
    assert rgb[24, 16].tolist() == [0, 255, 0]
    blue = rgb[24, :, 2]
    assert blue[16 + 2 * 13 - 1] == 255
    assert 0 < blue[16 + 2 * 7] < 255


def test_an_unknown_map_type_is_refused_with_those_there_are():
    with pytest.raises(UsageError, match=r"'vector'.*box_debug.*stub_debug"):
        build_rasterizer(make_config(map_type="vector"))


def test_without_opencv_the_way_to_get_it_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(UsageError, match=r"logloom\[l5kit\]"):
        build_rasterizer(make_config())
    build_rasterizer(make_config(map_type="stub_debug"))


def test_a_configuration_that_is_written_reads_back(tmp_path):
    config = make_config()
    save_config_data(config, tmp_path / "config.yaml")
    assert load_config_data(tmp_path / "config.yaml") == config
    with pytest.raises(UsageError, match=r"config\.yaml: can't write"):
        save_config_data({"model_params": object()}, tmp_path / "config.yaml")
    assert load_config_data(tmp_path / "config.yaml") == config
