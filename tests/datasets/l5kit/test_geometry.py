"""Geometry against values that the original gives (l5kit 1.5.0 with pymap3d and transforms3d), and laws."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logloom.datasets.l5kit import (
    angle_between_vectors,
    angular_distance,
    compute_agent_pose,
    compute_yaw_around_north_from_direction,
    crop_rectangle_from_image,
    ecef_to_geodetic,
    geodetic_to_ecef,
    normalize_intensity,
    points_within_bounds,
    rotation33_as_yaw,
    transform_point,
    transform_points,
    vertical_flip,
    voxel_coords_to_intensity_grid,
    yaw_as_rotation33,
)
from logloom.errors import UsageError

yaws = st.floats(-20, 20)
metres = st.floats(-1e6, 1e6)


def test_places_on_earth_are_those_of_the_original():
    ecef = [-2699628.54791879, -4295245.468647, 3852771.30955533]
    np.testing.assert_allclose(geodetic_to_ecef((37.4, -122.15, 30.0)), ecef, rtol=0, atol=1e-7)
    lla = [37.42934266, -122.15435201, -287.79754446]
    found = ecef_to_geodetic((-2698767.44, -4293151.58, 3855164.76))
    np.testing.assert_allclose(found, lla, rtol=0, atol=1e-8)
    np.testing.assert_allclose(geodetic_to_ecef((0, 0)), [6378137.0, 0, 0], rtol=0, atol=1e-9)
    np.testing.assert_allclose(geodetic_to_ecef((90, 0))[2], 6356752.31424518, rtol=0, atol=1e-8)


@given(st.floats(-90, 90), st.floats(-180, 180), st.floats(-1e4, 1e6))
def test_a_place_comes_back_from_earth_centred_coordinates(latitude, longitude, altitude):
    point = geodetic_to_ecef((latitude, longitude, altitude))
    np.testing.assert_allclose(geodetic_to_ecef(ecef_to_geodetic(point)), point, rtol=0, atol=1e-6)
    assert abs(ecef_to_geodetic(point)[2] - altitude) < 1e-6
    assert abs(ecef_to_geodetic(point)[0] - latitude) < 1e-9


@given(yaws)
def test_a_yaw_comes_back_from_its_rotation(yaw):
    rotation = yaw_as_rotation33(yaw)
    assert abs(angular_distance(rotation33_as_yaw(rotation), yaw)) < 1e-12
    expected = [[math.cos(yaw), -math.sin(yaw), 0], [math.sin(yaw), math.cos(yaw), 0], [0, 0, 1]]
    np.testing.assert_allclose(rotation, expected, rtol=0, atol=1e-15)


def test_the_yaw_of_a_rotation_about_all_axes_is_its_last_euler_angle():
    about = {axis: np.eye(3) for axis in "xyz"}
    for axis, angle, (a, b) in (("x", 0.3, (1, 2)), ("y", -0.4, (2, 0)), ("z", 2.5, (0, 1))):
        c, s = math.cos(angle), math.sin(angle)
        about[axis][[a, a, b, b], [a, b, a, b]] = c, -s, s, c
    assert rotation33_as_yaw(about["z"] @ about["y"] @ about["x"]) == pytest.approx(2.5, abs=1e-12)
    assert rotation33_as_yaw(np.array([[0, 0, 1.0], [0, 1, 0], [-1, 0, 0]])) == 0  # straight down


@given(yaws, yaws)
def test_angular_distance_is_the_difference_within_half_a_turn(a, b):
    distance = angular_distance(a, b)
    assert -math.pi <= distance <= math.pi
    assert math.cos(distance) == pytest.approx(math.cos(a - b), abs=1e-9)
    assert math.sin(distance) == pytest.approx(math.sin(a - b), abs=1e-9)


def test_angles_between_vectors_have_no_sign():
    assert angle_between_vectors(np.array([1, 0]), np.array([0, -2])) == pytest.approx(math.pi / 2)
    assert angle_between_vectors(np.array([1, 0, 0]), np.array([-1, 0, 1])) == pytest.approx(math.pi * 3 / 4)
    assert compute_yaw_around_north_from_direction(np.array([1.0, 1.0])) == pytest.approx(math.pi / 4)
    assert compute_yaw_around_north_from_direction(np.array([-1.0, -1.0])) == pytest.approx(math.pi * 3 / 4)


@given(st.tuples(metres, metres), yaws, st.lists(st.tuples(metres, metres), min_size=1, max_size=5))
def test_a_pose_takes_points_of_the_agent_into_the_world(centroid, yaw, points):
    moved = transform_points(np.array(points), compute_agent_pose(np.array(centroid), yaw))
    for (x, y), found in zip(points, moved, strict=True):
        c, s = math.cos(yaw), math.sin(yaw)
        assert found[0] == pytest.approx(c * x - s * y + centroid[0], abs=1e-6)
        assert found[1] == pytest.approx(s * x + c * y + centroid[1], abs=1e-6)


@pytest.mark.parametrize("axes", [2, 3])
@pytest.mark.parametrize("shapes", [((5,), ()), ((4, 5), ()), ((4, 5), (4,))])
def test_points_are_moved_by_one_matrix_or_by_one_each(axes, shapes):
    rng = np.random.default_rng(0)
    points = rng.normal(size=(*shapes[0], axes))
    matrices = rng.normal(size=(*shapes[1], axes + 1, axes + 1))
    matrices[..., -1, :] = np.eye(axes + 1)[-1]
    whole = np.concatenate([points, np.ones((*shapes[0], 1))], axis=-1)
    expected = np.einsum("...ij,...nj->...ni", matrices, whole)[..., :axes]
    found = transform_points(points, matrices)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13)
    matrices[..., -1, :] = np.nan  # says nothing
    np.testing.assert_array_equal(transform_points(points, matrices), found)
    one = matrices.reshape(-1, axes + 1, axes + 1)[0]
    np.testing.assert_allclose(
        transform_point(points.reshape(-1, axes)[0], one), found.reshape(-1, axes)[0], rtol=0, atol=1e-13
    )


@pytest.mark.parametrize(
    ("points", "matrix"), [((5, 2), (4, 4)), ((5, 4), (5, 5)), ((4, 5, 2), (3, 3, 3)), ((5, 2), (5, 3, 3))]
)
def test_points_that_fit_no_matrix_are_refused_with_the_shapes(points, matrix):
    with pytest.raises(UsageError, match=r"points of shape .* don't fit matrices of shape"):
        transform_points(np.zeros(points), np.zeros(matrix))


@given(st.tuples(metres, metres), yaws, st.integers(1, 1000))
def test_a_vertical_flip_turns_y_over(centroid, yaw, height):
    matrix = compute_agent_pose(np.array(centroid), yaw)
    point = np.array([3.0, -2.0])
    x, y = transform_point(point, matrix)
    found = transform_point(point, vertical_flip(matrix, height))
    np.testing.assert_allclose(found, [x, height - y], rtol=0, atol=1e-6)
    np.testing.assert_array_equal(matrix, compute_agent_pose(np.array(centroid), yaw))


def test_points_are_counted_in_the_cells_of_a_grid():
    coords = np.random.default_rng(1).integers(-2, 6, (200, 3))
    shape = (4, 3, 2)
    slow = np.zeros(shape, np.float32)
    for x, y, z in coords:
        if 0 <= x < 4 and 0 <= y < 3 and 0 <= z < 2:
            slow[x, y, z] += 1
    within = points_within_bounds(coords, shape)
    assert within.sum() == slow.sum() > 0
    grid = voxel_coords_to_intensity_grid(coords, shape)
    np.testing.assert_array_equal(grid, slow)
    assert grid.dtype == np.float32
    with pytest.raises(IndexError):
        voxel_coords_to_intensity_grid(coords, shape, drop_out_of_bounds=False)
    np.testing.assert_array_equal(normalize_intensity(slow, 2), np.minimum(slow / 2, 1))


def test_a_rectangle_is_cut_out_upright():
    pytest.importorskip("cv2", reason="images are cut by OpenCV")
    rows, columns = np.mgrid[:80, :100]
    image = np.zeros((80, 100, 3), np.uint8)
    image[np.abs(rows - columns) <= 10] = 255  # a band along the diagonal
    corners = np.array([[20, 30], [50, 60], [60, 50], [30, 20]])
    upright = crop_rectangle_from_image(image, corners)
    assert sorted(upright.shape) == [3, 14, 42]
    assert upright.min() > 200
    assert np.mean(image[20:61, 20:61] == 255) < 0.6
