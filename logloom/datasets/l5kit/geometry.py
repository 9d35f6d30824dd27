"""Poses in the plane as 3x3 matrices, and the raster as a coordinate system.

A matrix `b_from_a` takes points of system a to system b. World and agent systems are in metres, the raster
in pixels with (0, 0) its upper left corner. Yaws are radians, counterclockwise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logloom.blocks import Array
from logloom.datasets.l5kit.config import pair, setting
from logloom.errors import UsageError

MAX_RASTER_PIXELS = 1 << 26
_UPRIGHT = float(np.finfo(np.float64).eps) * 4

Matrix = NDArray[np.floating[Any]]


def yaws_of(rotations: Array) -> NDArray[np.float64]:
    """Yaws of rotation matrices: (N, 3, 3) -> (N,); 0 where a rotation points straight up or down."""
    cos, sin = rotations[:, 0, 0], rotations[:, 1, 0]
    upright = np.hypot(cos, sin) <= _UPRIGHT
    yaws: NDArray[np.float64] = np.where(upright, 0.0, np.arctan2(sin, cos))
    return yaws


def yaw_of(rotation: Array) -> float:
    """The yaw of one rotation matrix; see yaws_of."""
    cos, sin = float(rotation[0, 0]), float(rotation[1, 0])
    return 0.0 if math.hypot(cos, sin) <= _UPRIGHT else math.atan2(sin, cos)


def angle_between(a: Any, b: Any) -> Any:
    """a - b, wrapped into [-π, π); in the precision of `a`."""
    return (a - b + np.pi) % (2 * np.pi) - np.pi


def world_from_pose(position: Array, yaw: float) -> Matrix:
    """The matrix of a pose: (2,) metres and its yaw."""
    c, s = math.cos(yaw), math.sin(yaw)
    return np.array([[c, -s, position[0]], [s, c, position[1]], [0.0, 0.0, 1.0]])


def pose_from_world(position: Array, yaw: float) -> Matrix:
    """The inverse of `world_from_pose`."""
    c, s = math.cos(yaw), math.sin(yaw)
    x, y = float(position[0]), float(position[1])
    return np.array([[c, s, -(c * x + s * y)], [-s, c, s * x - c * y], [0.0, 0.0, 1.0]])


def transform_points(points: Array, matrix: Matrix) -> NDArray[np.float64]:
    """Points (..., 2) in another system."""
    moved: NDArray[np.float64] = points @ matrix[:2, :2].T + matrix[:2, 2]
    return moved


@dataclass(frozen=True)
class RenderContext:
    """Where in the raster the agent of a sample stands, and how large pixels are.

    Attributes:
        raster_size_px: (width, height).
        pixel_size_m: (2,) metres; pixels are square.
        center_in_raster_ratio: (2,) where the agent stands, in parts of the raster's size.
        set_origin_to_bottom: whether the world's y points up in the raster.
    """

    raster_size_px: tuple[int, int]
    pixel_size_m: tuple[float, float]
    center_in_raster_ratio: tuple[float, float]
    set_origin_to_bottom: bool

    @classmethod
    def of(cls, cfg: Mapping[str, Any]) -> RenderContext:
        """Reads it from a configuration.

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
            height = self.raster_size_px[1]
            matrix = np.array([[1.0, 0, 0], [0, -1, height], [0, 0, 1]]) @ matrix
        return matrix

    def raster_from_world(self, position_m: Array, angle_rad: float) -> Matrix:
        """For a sample whose agent stands at `position_m` with that yaw."""
        return self.raster_from_local @ pose_from_world(position_m, angle_rad)
