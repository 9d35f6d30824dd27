import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logloom.datasets.l5kit import EgoDataset, LocalDataManager, SemanticMap, build_rasterizer
from logloom.datasets.l5kit.semantic_map import ecef_of_local
from logloom.errors import DatasetError, UsageError
from logloom.io.formats.l5kit import TL_FACE_DTYPE
from tests.datasets.l5kit.maps_made import CLASSES, add_lane, enu_to_ecef, make_map, write_folder
from tests.datasets.l5kit.scenes_made import make_config, make_dataset, rotation

cv2 = pytest.importorskip("cv2", reason="maps are drawn by OpenCV")

WHITE, ROAD = (255, 255, 255), (17, 17, 31)
DEFAULT, RED, YELLOW, GREEN = (255, 217, 82), (255, 0, 0), (255, 255, 0), (0, 255, 0)


def config_of(map_type):
    config = make_config(map_type=map_type)
    config["raster_params"] |= {
        "semantic_map_key": "map.pb",
        "satellite_map_key": "aerial.png",
        "dataset_meta_key": "meta.json",
    }
    return config


def standing(yaw=0.0, position=(0, 0, 0), active=()):
    """The vehicle in one frame, at a place, some faces lit."""
    dataset = make_dataset((1,), num_tracks=0)
    dataset.frames["ego_translation"] = position
    dataset.frames["ego_rotation"] = rotation(yaw)
    dataset.tl_faces = np.zeros(len(active) + 1, TL_FACE_DTYPE)
    dataset.tl_faces["face_id"] = [*active, "other"]
    dataset.tl_faces["traffic_light_face_status"][: len(active), 0] = 1
    dataset.tl_faces["traffic_light_face_status"][len(active) :, 1] = 1
    dataset.frames["traffic_light_faces_index_interval"] = 0, len(dataset.tl_faces)
    return dataset


def draw(config, dataset, folder):
    image = EgoDataset(config, dataset, build_rasterizer(config, LocalDataManager(folder)))[0]["image"]
    assert image.dtype == np.float32
    return np.rint(image.transpose(1, 2, 0) * 255).astype(np.uint8)


def test_a_map_is_read_into_the_world_of_the_dataset(tmp_path):
    (tmp_path / "map.pb").write_bytes(make_map())
    found = SemanticMap.read(tmp_path / "map.pb", enu_to_ecef())
    assert found.lanes.shape == (1, 2, 20, 2)
    np.testing.assert_allclose(found.lanes[0, 0, :, 0], np.linspace(-20, 60, 20), atol=1e-4)
    np.testing.assert_allclose(found.lanes[0, :, :, 1].T, [[4, -4]] * 20, atol=1e-4)
    np.testing.assert_allclose(found.crosswalks[0], [[12, -6], [15, -6], [15, 6], [12, 6]], atol=1e-4)
    assert found.face_colors == {"red": "red", "green": "green", "yellow": "yellow"}
    assert found.lane_controls == [{"red", "green", "yellow"}]


def test_the_map_lies_where_its_metres_say(tmp_path):
    write_folder(tmp_path, make_map())
    image = draw(config_of("semantic_debug"), standing(), tmp_path)
    assert image.shape == (48, 64, 3)
    # Pixels of half a metre, the vehicle at column 16, row 24: the lane's sides in rows 16 and 32.
    assert tuple(image[24, 16]) == ROAD
    assert tuple(image[12, 16]) == tuple(image[36, 16]) == WHITE
    for row in (16, 32):
        assert np.abs(image[row, 16].astype(int) - DEFAULT).max() < 60
    for column in (40, 46):
        assert np.abs(image[24, column].astype(int) - (255, 117, 69)).max() < 60


def test_a_place_on_earth_has_the_coordinates_of_the_textbooks():
    equator, pole = ecef_of_local(np.zeros((1, 3)), 0, 0), ecef_of_local(np.zeros((1, 3)), 90, 0)
    np.testing.assert_allclose(equator, [[6378137.0, 0, 0]], atol=1e-6)
    np.testing.assert_allclose(pole, [[0, 0, 6356752.314245]], atol=1e-3)
    np.testing.assert_allclose(ecef_of_local(np.array([[1.0, 2, 3]]), 0, 0), [[6378140, 1, 2]], atol=1e-6)


def test_the_map_turns_with_the_vehicle(tmp_path):
    write_folder(tmp_path, make_map())
    image = draw(config_of("semantic_debug"), standing(yaw=math.pi / 2), tmp_path)
    assert tuple(image[24, 16]) == tuple(image[4, 16]) == tuple(image[44, 16]) == ROAD
    assert tuple(image[24, 30]) == WHITE  # 7 m ahead, beyond the lane's left side


@pytest.mark.parametrize(
    ("active", "color"),
    [
        ((), DEFAULT),
        (("green",), GREEN),
        (("green", "yellow"), YELLOW),
        (("yellow", "red", "green"), RED),
        (("stranger",), DEFAULT),
    ],
)
def test_a_lanes_sides_take_the_colour_of_its_lit_faces(tmp_path, active, color):
    write_folder(tmp_path, make_map())
    config = config_of("semantic_debug")
    line = draw(config, standing(active=active), tmp_path)[16, 10].astype(int)
    colors = np.array([DEFAULT, RED, YELLOW, GREEN])
    assert tuple(colors[np.abs(colors - line).sum(axis=1).argmin()]) == color
    config["raster_params"]["disable_traffic_light_faces"] = True
    dark = draw(config, standing(active=active), tmp_path)[16, 10].astype(int)
    assert tuple(colors[np.abs(colors - dark).sum(axis=1).argmin()]) == DEFAULT


def test_boxes_and_map_stand_one_after_the_other(tmp_path):
    write_folder(tmp_path, make_map())
    boxes = draw(config_of("box_debug"), standing(), tmp_path)
    ground = draw(config_of("semantic_debug"), standing(), tmp_path)
    both = draw(config_of("py_semantic"), standing(), tmp_path)
    np.testing.assert_array_equal(both, np.concatenate([boxes, ground], axis=-1))
    rasterizer = build_rasterizer(config_of("py_semantic"), LocalDataManager(tmp_path))
    assert rasterizer.num_channels() == both.shape[-1]
    rgb = rasterizer.to_rgb((both / 255).astype(np.float32))
    assert tuple(rgb[24, 16]) == (0, 255, 0)
    assert tuple(rgb[12, 16]) == WHITE


def test_a_map_without_lanes_far_away_or_absurdly_large_draws_what_is_near(tmp_path):
    fragment = CLASSES["MapFragment"]()
    write_folder(tmp_path, fragment.SerializeToString())
    assert (draw(config_of("semantic_debug"), standing(), tmp_path) == 255).all()
    add_lane(fragment, [[-1e7, 4], [1e7, 4]], [[-1e7, -4], [1e7, -4]])
    write_folder(tmp_path, fragment.SerializeToString())
    assert tuple(draw(config_of("semantic_debug"), standing(), tmp_path)[24, 16]) == ROAD
    far = standing(position=(3e7, 0, 0))
    assert (draw(config_of("semantic_debug"), far, tmp_path) == 255).all()


@given(data=st.data())
def test_a_damaged_map_is_refused_or_read_never_a_crash(tmp_path_factory, data):
    good = bytearray(make_map())
    for _ in range(data.draw(st.integers(1, 4))):
        good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    good = good[: data.draw(st.integers(0, len(good)))]
    path = tmp_path_factory.mktemp("maps") / "map.pb"
    path.write_bytes(good)
    try:
        found = SemanticMap.read(path, enu_to_ecef())
    except DatasetError as error:
        assert str(path) in str(error)  # noqa: PT017
        return
    assert np.isfinite(found.lanes).all()


def test_a_map_cut_short_is_refused_with_its_byte(tmp_path):
    (tmp_path / "map.pb").write_bytes(make_map()[:-3])
    with pytest.raises(DatasetError, match=r"map\.pb: not a semantic map: .* at byte \d+"):
        SemanticMap.read(tmp_path / "map.pb", enu_to_ecef())


def write_aerial(folder, third_row=(0, 0, 1, 0)):
    """Quarter metres per pixel, north up, the world's origin at column 400, row 300; red runs with x.

    Only the first two rows of the matrix say where in the image a place lies; L5Kit's third one is zero.
    """
    image = np.zeros((600, 800, 3), np.uint8)
    image[..., 0] = np.arange(800)[None, :] * 255 // 799
    image[..., 1] = np.arange(600)[:, None] * 255 // 599
    cv2.imwrite(str(folder / "aerial.png"), image[..., ::-1])
    row_and_column = np.array([[0, -4.0, 0, 300], [4, 0, 0, 400], third_row, [0, 0, 0, 1]])
    matrix = row_and_column @ np.linalg.inv(enu_to_ecef())
    assert (matrix[2] == 0).all() == (not any(third_row))
    write_folder(folder, make_map())
    meta = json.loads((folder / "meta.json").read_text())
    (folder / "meta.json").write_text(json.dumps(meta | {"ecef_to_aerial": matrix.tolist()}))
    return image


@pytest.mark.parametrize("yaw", [0.0, 0.7, -2.5])
def test_an_aerial_image_lies_where_its_metres_say(tmp_path, yaw):
    aerial = write_aerial(tmp_path)
    dataset = standing(yaw=yaw, position=(5, -3, 0))
    image = draw(config_of("satellite_debug"), dataset, tmp_path)
    sample = EgoDataset(config_of("satellite_debug"), dataset)[0]
    world_from_raster = np.linalg.inv(sample["raster_from_world"])
    for column, row in ((0, 0), (16, 24), (63, 0), (40, 47)):
        x, y, _ = world_from_raster @ [column, row, 1]
        expected = aerial[round(300 - 4 * y), round(400 + 4 * x)].astype(int)
        assert np.abs(image[row, column].astype(int) - expected).max() <= 2


@pytest.mark.parametrize("map_type", ["satellite_debug", "py_satellite"])
def test_an_aerial_matrix_without_a_height_draws_the_same_image(tmp_path, map_type):
    dataset = standing(yaw=0.3, position=(5, -3, 2))
    write_aerial(tmp_path)
    expected = draw(config_of(map_type), dataset, tmp_path)
    write_aerial(tmp_path, third_row=(0, 0, 0, 0))
    assert expected[..., -3:].any()
    np.testing.assert_array_equal(draw(config_of(map_type), dataset, tmp_path), expected)


def test_an_aerial_matrix_that_names_no_row_or_column_is_refused(tmp_path):
    write_aerial(tmp_path)
    meta = json.loads((tmp_path / "meta.json").read_text())
    for row in (0, 1):
        matrix = np.array(meta["ecef_to_aerial"])
        matrix[row, :3] = 0
        (tmp_path / "meta.json").write_text(json.dumps(meta | {"ecef_to_aerial": matrix.tolist()}))
        with pytest.raises(DatasetError, match=r"meta\.json: by ecef_to_aerial"):
            build_rasterizer(config_of("satellite_debug"), LocalDataManager(tmp_path))


def test_beyond_an_aerial_image_all_is_black(tmp_path):
    write_aerial(tmp_path)
    assert not draw(config_of("satellite_debug"), standing(position=(1e5, 0, 0)), tmp_path).any()
    both = draw(config_of("py_satellite"), standing(position=(98, 0, 0)), tmp_path)
    assert both.shape == (48, 64, 11)
    assert both[24, 4, -3] > 200
    assert not both[:, 40:, -3:].any()


def test_maps_that_are_not_there_or_not_maps_are_named(tmp_path):
    with pytest.raises(UsageError, match="semantic_map_key"):
        build_rasterizer(config_of("py_semantic"))
    with pytest.raises(FileNotFoundError, match=r"map\.pb"):
        build_rasterizer(config_of("py_semantic"), LocalDataManager(tmp_path))
    write_aerial(tmp_path)
    (tmp_path / "aerial.png").write_bytes(b"no image")
    with pytest.raises(DatasetError, match=r"aerial\.png"):
        build_rasterizer(config_of("satellite_debug"), LocalDataManager(tmp_path))
    for broken in (
        "{}",
        "[",
        '{"world_to_ecef": [[0]]}',
        json.dumps({"world_to_ecef": np.zeros((4, 4)).tolist()}),
    ):
        (tmp_path / "meta.json").write_text(broken)
        with pytest.raises(DatasetError, match=r"meta\.json"):
            build_rasterizer(config_of("semantic_debug"), LocalDataManager(tmp_path))
