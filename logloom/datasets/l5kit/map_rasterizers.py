"""Maps beneath the boxes: the semantic map, and an aerial image.

Elsewhere: the boxes (rasterizers), the map's file (semantic_map), choosing among them (rasterizer_factory).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logloom.blocks import Array
from logloom.datasets.l5kit.geometry import Matrix, RenderContext, open_cv, transform_points
from logloom.datasets.l5kit.rasterizers import SUBPIXEL_BITS, BoxRasterizer, Image, Rasterizer, around
from logloom.datasets.l5kit.sampling import ByFrame
from logloom.datasets.l5kit.semantic_map import LANE_POINTS, SemanticMap

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
        """Which elements may lie in the raster: (N, 2, 2) lowest and highest corners -> their numbers."""
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
    """Points in pixels as OpenCV takes them, drawn in towards the raster where they lie absurdly far off."""
    near = np.clip(np.nan_to_num(points), -_FAR_PX, _FAR_PX)
    scaled: NDArray[np.int32] = (near * (1 << SUBPIXEL_BITS)).astype(np.int32)
    return scaled
