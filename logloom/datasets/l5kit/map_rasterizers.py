"""Rasterizers of semantic and aerial maps beneath the boxes, built by name.

Elsewhere: the boxes (rasterizers), the map's file (semantic_map).
"""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logloom.blocks import Array
from logloom.datasets.l5kit.config import LocalDataManager, count, number, setting
from logloom.datasets.l5kit.geometry import Matrix, RenderContext, open_cv, transform_points
from logloom.datasets.l5kit.rasterizers import (
    SUBPIXEL_BITS,
    BoxRasterizer,
    Image,
    Rasterizer,
    StubRasterizer,
    around,
)
from logloom.datasets.l5kit.sampling import ByFrame
from logloom.datasets.l5kit.semantic_map import LANE_POINTS, SemanticMap
from logloom.errors import DatasetError, UsageError

Color = tuple[int, int, int]

ROAD: Color = (17, 17, 31)
CROSSWALK: Color = (255, 117, 69)
# In the order of drawing. A lane with several lit faces takes the most cautious colour, the last.
LANE_LINES: dict[str, Color] = {
    "unlit": (255, 217, 82),
    "green": (0, 255, 0),
    "yellow": (255, 255, 0),
    "red": (255, 0, 0),
}
ACTIVE = 0
# Beyond any raster, and far enough from the limits of OpenCV's integers.
_FAR_PX = 1 << 20


class _GroundRasterizer(Rasterizer):
    """The layer beneath the boxes, in red, green and blue."""

    def num_channels(self) -> int:
        return 3

    def to_rgb(self, in_im: Array, **kwargs: Any) -> NDArray[np.uint8]:
        """The same in 8 bits."""
        rounded: NDArray[np.uint8] = np.rint(in_im * 255).astype(np.uint8)
        return rounded


class SemanticRasterizer(_GroundRasterizer):
    """Lanes, their lines in the colour of their lights, and crosswalks, on white: red, green and blue."""

    def __init__(self, render_context: RenderContext, semantic_map: SemanticMap):
        """Takes the map.

        Args:
            render_context: size and place of the raster.
            semantic_map: what to draw.
        """
        open_cv()
        self.render_context = render_context
        self.semantic_map = semantic_map
        lanes = semantic_map.lanes
        self._lane_bounds = np.stack([lanes.min(axis=(1, 2)), lanes.max(axis=(1, 2))], axis=1)
        bounds = [[polygon.min(axis=0), polygon.max(axis=0)] for polygon in semantic_map.crosswalks]
        self._crosswalk_bounds = np.reshape(bounds, (-1, 2, 2))

    def rasterize(
        self, history_frames: Array, history_agents: ByFrame, history_tl_faces: ByFrame, agent: Any = None
    ) -> Image:
        """Draws the map as lit in the current frame. See `Rasterizer`."""
        cv2 = open_cv()
        raster_from_world = around(self.render_context, history_frames[0], agent)
        width, height = self.render_context.raster_size_px
        image = np.full((height, width, 3), 255, np.uint8)
        lanes = self._near(self._lane_bounds, raster_from_world)
        sides = subpixels(transform_points(self.semantic_map.lanes[lanes], raster_from_world))
        options = {"lineType": cv2.LINE_AA, "shift": SUBPIXEL_BITS}
        sides[:, 1] = sides[:, 1, ::-1].copy()  # so that left and right together run around the lane
        for lane in sides:  # one by one: where polygons of one call overlap, none shows
            cv2.fillPoly(image, [lane.reshape(-1, 2)], ROAD, **options)
        lights = self._lights_of(lanes, history_tl_faces[0] if history_tl_faces else None)
        for light, color in LANE_LINES.items():
            lines = sides[lights == light].reshape(-1, LANE_POINTS, 2)
            cv2.polylines(image, list(lines), False, color, **options)
        polygons = [
            subpixels(transform_points(self.semantic_map.crosswalks[n], raster_from_world))
            for n in self._near(self._crosswalk_bounds, raster_from_world)
        ]
        cv2.polylines(image, polygons, True, CROSSWALK, **options)
        return np.divide(image, np.float32(255), dtype=np.float32)

    def _near(self, bounds: Array, raster_from_world: Matrix) -> NDArray[np.int64]:
        """Which elements may be in the raster: (N, 2, 2) lowest and highest corners -> their numbers."""
        size = np.array(self.render_context.raster_size_px)
        center = transform_points(size / 2, np.linalg.inv(raster_from_world))
        radius = float(np.linalg.norm(size * self.render_context.pixel_size_m)) / 2
        near = (bounds[:, 0] - radius < center) & (center < bounds[:, 1] + radius)
        return np.flatnonzero(near.all(axis=1))

    def _lights_of(self, lanes: Array, tl_faces: Array | None) -> NDArray[np.str_]:
        """Each lane's key of LANE_LINES."""
        active: set[str] = set()
        if tl_faces is not None:
            active = set(tl_faces["face_id"][tl_faces["traffic_light_face_status"][:, ACTIVE] > 0].tolist())
        colors, order = self.semantic_map.face_colors, list(LANE_LINES)
        lights = []
        for lane in lanes:
            lit = active & self.semantic_map.lane_controls[lane]
            lights.append(max((colors.get(face, "unlit") for face in lit), key=order.index, default="unlit"))
        return np.array(lights, np.str_)


class SatelliteRasterizer(_GroundRasterizer):
    """A cut-out of an aerial image, black beyond its border: red, green and blue."""

    def __init__(self, render_context: RenderContext, map_im: NDArray[np.uint8], world_to_aerial: Matrix):
        """Takes the image.

        Args:
            render_context: size and place of the raster.
            map_im: (height, width, 3) red, green and blue.
            world_to_aerial: 4x4, from metres in the world to the image's row and column, in that order.
        """
        open_cv()
        self.render_context = render_context
        self.map_im = map_im
        self.world_to_aerial = world_to_aerial

    def rasterize(
        self, history_frames: Array, history_agents: ByFrame, history_tl_faces: ByFrame, agent: Any = None
    ) -> Image:
        """Cuts out the ground at the vehicle's height. See `Rasterizer`."""
        cv2 = open_cv()
        frame = history_frames[0]
        to_aerial = self.world_to_aerial[[1, 0]]  # columns first, as points have x first
        ground = np.eye(3)
        ground[:2, :2] = to_aerial[:, :2]
        ground[:2, 2] = to_aerial[:, 3] + to_aerial[:, 2] * frame["ego_translation"][2]
        aerial_from_raster = ground @ np.linalg.inv(around(self.render_context, frame, agent))
        width, height = self.render_context.raster_size_px
        corners = transform_points(
            np.array([[0, 0], [width, 0], [width, height], [0, height]]), aerial_from_raster
        )
        limits = np.array(self.map_im.shape[1::-1])
        low = np.clip(np.floor(corners.min(axis=0)) - 2, 0, limits).astype(int)
        high = np.clip(np.ceil(corners.max(axis=0)) + 2, 0, limits).astype(int)
        if (high <= low).any():
            return np.zeros((height, width, 3), np.float32)
        # Only what is seen: OpenCV warps no image of more than 32 767 pixels a side.
        part = np.ascontiguousarray(self.map_im[low[1] : high[1], low[0] : high[0]])
        aerial_from_raster[:2, 2] -= low
        flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
        image = cv2.warpAffine(part, aerial_from_raster[:2], (width, height), flags=flags)
        scaled: Image = np.divide(image, np.float32(255), dtype=np.float32)
        return scaled


class MapAndBoxRasterizer(Rasterizer):
    """The channels of boxes, then those of a map."""

    def __init__(self, boxes: BoxRasterizer, ground: Rasterizer):
        """Takes both.

        Args:
            boxes: what draws the boxes.
            ground: what draws the map.
        """
        self.boxes = boxes
        self.ground = ground

    def num_channels(self) -> int:
        return self.boxes.num_channels() + self.ground.num_channels()

    def rasterize(
        self, history_frames: Array, history_agents: ByFrame, history_tl_faces: ByFrame, agent: Any = None
    ) -> Image:
        """Draws both. See `Rasterizer`."""
        parts: Sequence[Rasterizer] = (self.boxes, self.ground)
        images = [
            part.rasterize(history_frames, history_agents, history_tl_faces, agent).transpose(2, 0, 1)
            for part in parts
        ]
        return np.concatenate(images).transpose(1, 2, 0)

    def to_rgb(self, in_im: Array, **kwargs: Any) -> NDArray[np.uint8]:
        """The map with the boxes of BoxRasterizer.to_rgb upon it."""
        split = self.boxes.num_channels()
        boxes = self.boxes.to_rgb(in_im[..., :split], **kwargs)
        image = self.ground.to_rgb(in_im[..., split:], **kwargs)
        drawn = boxes.any(axis=-1)
        image[drawn] = boxes[drawn]
        return image


def subpixels(points: Array) -> NDArray[np.int32]:
    """Points in pixels as OpenCV takes them, drawn in towards the raster where they are absurdly far off."""
    near = np.clip(np.nan_to_num(points), -_FAR_PX, _FAR_PX)
    scaled: NDArray[np.int32] = (near * (1 << SUBPIXEL_BITS)).astype(np.int32)
    return scaled


def build_rasterizer(cfg: Mapping[str, Any], data_manager: LocalDataManager | None = None) -> Rasterizer:
    """The rasterizer that raster_params.map_type names.

    Args:
        cfg: a configuration.
        data_manager: finds the files of maps: for semantic ones raster_params.semantic_map_key and
            dataset_meta_key (its world_to_ecef), for aerial ones satellite_map_key and dataset_meta_key (its
            ecef_to_aerial too). box_debug and stub_debug need none.

    Raises:
        UsageError: an unknown map_type, or a setting that is missing or out of its range; named.
        FileNotFoundError: a map isn't in the data folder.
        DatasetError: a map can't be read.
    """
    map_type = setting(cfg, "raster_params", "map_type")
    if map_type not in _BUILDERS:
        raise UsageError(f"raster_params.map_type is {map_type!r}, there are {sorted(_BUILDERS)}")
    return _BUILDERS[map_type](cfg, data_manager)


def _stub(cfg: Mapping[str, Any], data_manager: LocalDataManager | None) -> Rasterizer:
    return StubRasterizer(RenderContext.of(cfg))


def _boxes(cfg: Mapping[str, Any], data_manager: LocalDataManager | None) -> BoxRasterizer:
    return BoxRasterizer(
        RenderContext.of(cfg),
        number(cfg, "raster_params", "filter_agents_threshold"),
        count(cfg, "model_params", "history_num_frames"),
        bool(setting(cfg, "model_params", "render_ego_history")),
    )


def _semantic(cfg: Mapping[str, Any], data_manager: LocalDataManager | None) -> Rasterizer:
    path = _map_file(cfg, data_manager, "semantic_map_key")
    meta = pathlib.Path(_map_file(cfg, data_manager, "dataset_meta_key"))
    world_to_ecef = _matrix(meta, "world_to_ecef")
    if np.linalg.det(world_to_ecef[:3, :3]) == 0:
        raise DatasetError(f"{meta}: world_to_ecef can't be inverted, so the map has no place in the world")
    semantic_map = SemanticMap.read(path, world_to_ecef)
    return SemanticRasterizer(RenderContext.of(cfg), semantic_map)


def _satellite(cfg: Mapping[str, Any], data_manager: LocalDataManager | None) -> Rasterizer:
    path = _map_file(cfg, data_manager, "satellite_map_key")
    meta = pathlib.Path(_map_file(cfg, data_manager, "dataset_meta_key"))
    # Of ecef_to_aerial only the rows of row and column count; the third is often all zeros.
    world_to_aerial = _matrix(meta, "ecef_to_aerial") @ _matrix(meta, "world_to_ecef")
    if not world_to_aerial[:2, :3].any(axis=1).all():
        raise DatasetError(f"{meta}: by ecef_to_aerial all places are in one row or column of the image")
    return SatelliteRasterizer(RenderContext.of(cfg), _aerial_image(path), world_to_aerial)


def _with_boxes(build: Callable[..., Rasterizer]) -> Callable[..., Rasterizer]:
    return lambda cfg, data_manager: MapAndBoxRasterizer(_boxes(cfg, data_manager), build(cfg, data_manager))


_BUILDERS: dict[str, Callable[[Mapping[str, Any], LocalDataManager | None], Rasterizer]] = {
    "stub_debug": _stub,
    "box_debug": _boxes,
    "semantic_debug": _semantic,
    "py_semantic": _with_boxes(_semantic),
    "satellite_debug": _satellite,
    "py_satellite": _with_boxes(_satellite),
}


def _map_file(cfg: Mapping[str, Any], data_manager: LocalDataManager | None, key: str) -> str:
    name = setting(cfg, "raster_params", key)
    if data_manager is None:
        raise UsageError(f"raster_params.{key} names {name!r}: pass the LocalDataManager of its folder")
    return data_manager.require(name)


def _matrix(path: pathlib.Path, key: str) -> Matrix:
    """Return a 4x4 matrix of a JSON file; of three rows if the fourth is omitted or irrelevant."""
    try:
        matrix = np.array(json.loads(path.read_bytes())[key], np.float64)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise DatasetError(f"{path}: contains no matrix {key}: {error}") from error
    if matrix.shape == (3, 4):
        matrix = np.concatenate([matrix, [[0, 0, 0, 1]]])
    if matrix.shape != (4, 4) or not np.isfinite(matrix).all():
        raise DatasetError(f"{path}: {key} has to be a matrix of 4 x 4 finite numbers, found {matrix.shape}")
    return matrix


def _aerial_image(path: str | os.PathLike[str]) -> NDArray[np.uint8]:
    cv2 = open_cv()
    try:
        image = cv2.imread(os.fspath(path), cv2.IMREAD_COLOR)
    except cv2.error as error:
        raise DatasetError(f"{path}: can't be read as an image: {error}") from error
    if image is None:
        raise DatasetError(f"{path}: can't be read as an image")
    return np.ascontiguousarray(image[..., ::-1])
