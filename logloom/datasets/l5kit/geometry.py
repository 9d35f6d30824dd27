"""Planar poses as 3x3 matrices, geodetic positions, coordinates of the raster.

A matrix `b_from_a` takes points of system a to system b. World and agent systems are in metres, the raster
in pixels with (0, 0) its upper left corner. Yaws are radians, counterclockwise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logloom.blocks import Array
from logloom.caching import cached_property
from logloom.datasets.l5kit.config import pair, setting
from logloom.errors import UsageError
from logloom.values import dataclass

MAX_RASTER_PIXELS = 1 << 26
EARTH_RADIUS_M = 6378137.0
_FLATTENING = 1 / 298.257223563
EARTH_ECCENTRICITY_SQUARED = _FLATTENING * (2 - _FLATTENING)
_UPRIGHT = float(np.finfo(np.float64).eps) * 4

Matrix = NDArray[np.floating[Any]]


def yaws_of(rotations: Array) -> NDArray[np.float64]:
    """Yaws of rotation matrices: (N, 3, 3) -> (N,); 0 where a rotation points straight up or down."""
    cos, sin = rotations[:, 0, 0], rotations[:, 1, 0]
    upright = np.hypot(cos, sin) <= _UPRIGHT
    return np.where(upright, 0.0, np.arctan2(sin, cos))


def rotation33_as_yaw(rotation: Array) -> float:
    """The yaw of one rotation matrix; see `yaws_of`."""
    cos, sin = float(rotation[0, 0]), float(rotation[1, 0])
    return 0.0 if math.hypot(cos, sin) <= _UPRIGHT else math.atan2(sin, cos)


def yaw_as_rotation33(yaw: float) -> Matrix:
    """The rotation matrix, (3, 3), of a turn around z.

    Args:
        yaw: radians.
    """
    return compute_agent_pose(np.zeros(2), yaw)


def angular_distance(angle_a: Any, angle_b: Any) -> Any:
    """Wraps angle_a - angle_b into [-π, π), in the precision of `angle_a`.

    Args:
        angle_b: radians, as `angle_a`.

    Returns:
        Radians, of the shape that both have.
    """
    return (angle_a - angle_b + np.pi) % (2 * np.pi) - np.pi


def angle_between_vectors(v1: Array, v2: Array) -> float:
    """The angle, in [0, π], between two vectors of 2 or 3 numbers.

    Args:
        v1: (2,) or (3,).
        v2: as `v1`.
    """
    a, b = (np.append(np.asarray(v, np.float64), np.zeros(3 - len(v))) for v in (v1, v2))
    return math.atan2(float(np.linalg.norm(np.cross(a, b))), float(a @ b))


def compute_yaw_around_north_from_direction(direction_vector: Array) -> float:
    """The angle, in [0, π], between a direction (2,) and the y axis.

    Args:
        direction_vector: (2,).
    """
    return angle_between_vectors(direction_vector, np.array([0.0, 1.0]))


def compute_agent_pose(agent_centroid_m: Array, agent_yaw_rad: float) -> Matrix:
    """The matrix `world_from_agent` of a pose.

    Args:
        agent_centroid_m: (2,) metres in the world.
        agent_yaw_rad: radians.
    """
    c, s = math.cos(agent_yaw_rad), math.sin(agent_yaw_rad)
    return np.array([[c, -s, agent_centroid_m[0]], [s, c, agent_centroid_m[1]], [0.0, 0.0, 1.0]])


def pose_from_world(position: Array, yaw: float) -> Matrix:
    """The inverse of `compute_agent_pose`."""
    c, s = math.cos(yaw), math.sin(yaw)
    x, y = float(position[0]), float(position[1])
    return np.array([[c, s, -(c * x + s * y)], [-s, c, s * x - c * y], [0.0, 0.0, 1.0]])


def vertical_flip(tm: Matrix, y_dim_size: float) -> Matrix:
    """A new (3, 3) matrix: what `tm` does, then y turned over within [0, y_dim_size].

    Args:
        y_dim_size: the height, in pixels.
    """
    flipped = np.array(tm, np.float64)
    flipped[1] = -flipped[1]
    flipped[1, 2] += y_dim_size
    return flipped


def transform_points(points: Array, transf_matrix: Matrix) -> NDArray[np.float64]:
    """Points in another system.

    Args:
        points: (..., F), F being 2 or 3; (B, N, F) where there are several matrices.
        transf_matrix: (F + 1, F + 1), or (B, F + 1, F + 1), one for each N points. The last row of a matrix
            is ignored.

    Returns:
        As `points`.

    Raises:
        UsageError: the shapes don't fit each other.
    """
    points, matrix = np.asarray(points), np.asarray(transf_matrix)
    axes = points.shape[-1] if points.ndim else 0
    fits = matrix.ndim == 2 or (matrix.ndim == points.ndim == 3 and len(matrix) == len(points))
    if axes not in (2, 3) or matrix.shape[-2:] != (axes + 1, axes + 1) or not fits:
        raise UsageError(f"points of shape {points.shape} don't fit matrices of shape {matrix.shape}")
    offset = matrix[..., :axes, axes]
    turned = points @ np.swapaxes(matrix[..., :axes, :axes], -1, -2)
    return turned + (offset if matrix.ndim == 2 else offset[:, None])


def transform_point(point: Array, transf_matrix: Matrix) -> NDArray[np.float64]:
    """One point, (F,), in another system; see `transform_points`."""
    return transform_points(point, transf_matrix)


def geodetic_to_ecef(lla_point: Sequence[float] | Array) -> NDArray[np.float64]:
    """A place on the WGS 84 ellipsoid in earth-centred coordinates.

    Args:
        lla_point: latitude and longitude in degrees, and metres above the ellipsoid (0 where left out).

    Returns:
        (3,) metres.
    """
    latitude, longitude = np.radians(lla_point[0]), np.radians(lla_point[1])
    altitude = lla_point[2] if len(lla_point) > 2 else 0.0
    normal = EARTH_RADIUS_M / np.sqrt(1 - EARTH_ECCENTRICITY_SQUARED * np.sin(latitude) ** 2)
    flat = (normal + altitude) * np.cos(latitude)
    z = (normal * (1 - EARTH_ECCENTRICITY_SQUARED) + altitude) * np.sin(latitude)
    return np.array([flat * np.cos(longitude), flat * np.sin(longitude), z], np.float64)


def ecef_to_geodetic(point: Sequence[float] | Array) -> NDArray[np.float64]:
    """The inverse of `geodetic_to_ecef`, to nanometres down to the earth's mantle: (3,) -> (3,).

    Args:
        point: (3,) metres.
    """
    x, y, z = (np.float64(part) for part in point)
    flat = np.hypot(x, y)
    flattened = np.sqrt(1 - EARTH_ECCENTRICITY_SQUARED)
    reduced = np.arctan2(z, flat * flattened)
    for _ in range(6):  # Bowring's step leaves less than a millionth of the error that it meets
        up = z + EARTH_RADIUS_M * EARTH_ECCENTRICITY_SQUARED / flattened * np.sin(reduced) ** 3
        out = flat - EARTH_RADIUS_M * EARTH_ECCENTRICITY_SQUARED * np.cos(reduced) ** 3
        latitude = np.arctan2(up, out)
        reduced = np.arctan2(flattened * np.sin(latitude), np.cos(latitude))
    surface = EARTH_RADIUS_M * np.sqrt(1 - EARTH_ECCENTRICITY_SQUARED * np.sin(latitude) ** 2)
    altitude = flat * np.cos(latitude) + z * np.sin(latitude) - surface
    return np.array([np.degrees(latitude), np.degrees(np.arctan2(y, x)), altitude])


def points_within_bounds(coords: Array, shape: Sequence[int] | Array) -> NDArray[np.bool_]:
    """Which points are in [0, shape).

    Args:
        coords: (N, 3) points.
        shape: of the grid: (3,).

    Returns:
        (N,) bool.
    """
    inside: NDArray[np.bool_] = (coords >= 0) & (coords < np.asarray(shape))
    within: NDArray[np.bool_] = np.logical_and.reduce(inside, axis=1)
    return within


def voxel_coords_to_intensity_grid(
    voxel_coords: Array, shape: tuple[int, ...], dtype: Any = np.float32, drop_out_of_bounds: bool = True
) -> Array:
    """Counts the points in each cell of a grid.

    Args:
        voxel_coords: (N, 3) whole numbers.
        shape: of the grid: (3,).
        dtype: of the counts.

    Returns:
        An array of that shape.

    Raises:
        IndexError: a point is beyond the grid, and `drop_out_of_bounds` is false.
    """
    if drop_out_of_bounds:
        voxel_coords = voxel_coords[points_within_bounds(voxel_coords, shape)]
    cells, counts = np.unique(voxel_coords, axis=0, return_counts=True)
    grid: Array = np.zeros(shape, dtype)
    grid[tuple(cells.T)] = counts
    return grid


def normalize_intensity(x: Array, max_intensity: float) -> Array:
    """Values as shares of `max_intensity`, those beyond [0, 1] drawn in.

    Args:
        x: the values.

    Returns:
        The shares, of the shape of `x`.
    """
    return (x / max_intensity).clip(0, 1)


def crop_rectangle_from_image(image: Array, corners: Array) -> Array:
    """The part of an image in the smallest rectangle around four corners, turned upright.

    Args:
        image: (height, width, channels).
        corners: (4, 2) rows and columns.

    Raises:
        UsageError: OpenCV isn't installed.
    """
    cv2 = open_cv()
    center, size, angle = cv2.minAreaRect(np.asarray(corners, np.float32)[:, ::-1].copy())
    turn = cv2.getRotationMatrix2D(center, angle, 1)
    height, width = image.shape[:2]
    turned = cv2.warpAffine(image, turn, (2 * height, 2 * width))
    cut: Array = cv2.getRectSubPix(turned, (int(size[0]), int(size[1])), center)
    return cut


@dataclass(frozen=True)
class RenderContext:
    """The place of a sample's agent in the raster, and the size of pixels.

    Attributes:
        raster_size_px: (width, height).
        pixel_size_m: (2,) metres; pixels are square.
        center_in_raster_ratio: (2,) the agent's place, relative to the raster's size.
        set_origin_to_bottom: whether the world's y points up in the raster.
    """

    raster_size_px: tuple[int, int]
    pixel_size_m: tuple[float, float]
    center_in_raster_ratio: tuple[float, float]
    set_origin_to_bottom: bool

    @classmethod
    def of(cls, cfg: Mapping[str, Any]) -> RenderContext:
        """Reads a context from a configuration.

        Args:
            cfg: with `raster_params`.

        Returns:
            The context.

        Raises:
            UsageError: a setting is missing or out of its range; named.
        """
        width, height = pair(cfg, "raster_params", "raster_size")
        sides_fit = width >= 1 and height >= 1 and width * height <= MAX_RASTER_PIXELS
        if not sides_fit or width % 1 or height % 1:
            raise UsageError(f"raster_params.raster_size is {width} x {height}, no size of an image")
        pixel = pair(cfg, "raster_params", "pixel_size")
        if pixel[0] != pixel[1] or pixel[0] <= 0:
            raise UsageError(f"raster_params.pixel_size is {pixel}: pixels have to be square, above 0 m")
        center = pair(cfg, "raster_params", "ego_center")
        bottom = setting(cfg, "raster_params", "set_origin_to_bottom")
        return cls((int(width), int(height)), pixel, center, bool(bottom))

    @cached_property
    def raster_from_local(self) -> Matrix:
        """From the system of the sample's agent."""
        scale = 1.0 / np.array(self.pixel_size_m)
        center = np.array(self.center_in_raster_ratio) * np.array(self.raster_size_px)
        matrix = np.array([[scale[0], 0, center[0]], [0, scale[1], center[1]], [0, 0, 1.0]])
        if self.set_origin_to_bottom:
            matrix = vertical_flip(matrix, self.raster_size_px[1])
        return matrix

    def raster_from_world(self, position_m: Array, angle_rad: float) -> Matrix:
        """Make the matrix for a sample whose agent is at `position_m`.

        Args:
            angle_rad: the agent's yaw.

        Returns:
            (3, 3).
        """
        return self.raster_from_local @ pose_from_world(position_m, angle_rad)


def open_cv() -> Any:
    """The module cv2.

    Raises:
        UsageError: it isn't installed.
    """
    try:
        import cv2
    except ImportError:
        raise UsageError(
            "drawing images needs OpenCV: pip install 'logloom[l5kit]', or take map_type stub_debug"
        ) from None
    return cv2
