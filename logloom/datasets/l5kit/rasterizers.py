"""Bird's-eye images of a sample's surroundings, as input for training.

Here: `Rasterizer`, the interface; `BoxRasterizer`, boxes of agents; `StubRasterizer`, black images.
Elsewhere: maps, and choosing by name (map_rasterizers), where things are in the raster (geometry).
OpenCV, from the extra `l5kit`, is imported when a rasterizer that draws is constructed.
"""

from __future__ import annotations

import abc
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logloom.blocks import Array
from logloom.datasets.l5kit import geometry
from logloom.datasets.l5kit.sampling import EGO_EXTENT, ByFrame
from logloom.io.formats.l5kit.mask import are_agents

Image = NDArray[np.float32]  # (height, width, channels) in [0, 1]

SUBPIXEL_BITS = 9
FADING = 0.85
# Of a box from front right on around it, in parts of its extent.
_CORNERS = np.array([[-1, -1], [-1, 1], [1, 1], [1, -1]]) * 0.5


class Rasterizer(abc.ABC):
    """Draws what a sample sees. Holds no open files: it pickles, and serves many threads."""

    @abc.abstractmethod
    def rasterize(
        self, history_frames: Array, history_agents: ByFrame, history_tl_faces: ByFrame, agent: Any = None
    ) -> Image:
        """Draws the current frame and those before it.

        Args:
            history_frames: (H,) from the current one back, H >= 1.
            history_agents, history_tl_faces: H arrays, those of each frame.
            agent: a row of the current frame's agents that the raster is laid around; None for the vehicle.

        Returns:
            An image of num_channels() channels.
        """

    @abc.abstractmethod
    def to_rgb(self, in_im: Array, **kwargs: Any) -> NDArray[np.uint8]:
        """An image of `rasterize` to look at: (height, width, 3).

        Args:
            in_im: what `rasterize` gave.
            kwargs: colours, for rasterizers that take some.
        """

    @abc.abstractmethod
    def num_channels(self) -> int:
        """How many channels `rasterize` gives."""


class StubRasterizer(Rasterizer):
    """Draws nothing: black images, to have samples of the usual form at no cost."""

    def __init__(self, render_context: geometry.RenderContext):
        """Takes the form of its images.

        Args:
            render_context: size and place of the raster.
        """
        self.render_context = render_context
        self.raster_size = render_context.raster_size_px

    def rasterize(
        self, history_frames: Array, history_agents: ByFrame, history_tl_faces: ByFrame, agent: Any = None
    ) -> Image:
        """All zeros: (height, width, 3)."""
        width, height = self.raster_size
        return np.zeros((self.num_channels(), height, width), np.float32).transpose(1, 2, 0)

    def to_rgb(self, in_im: Array, **kwargs: Any) -> NDArray[np.uint8]:
        """All black."""
        return np.zeros((*in_im.shape[:2], 3), np.uint8)

    def num_channels(self) -> int:
        return 3


class BoxRasterizer(Rasterizer):
    """Boxes: a channel of all others for each frame, from the current one back, then as many of one's own.

    The vehicle is among the others of an agent's sample.
    """

    def __init__(
        self,
        render_context: geometry.RenderContext,
        filter_agents_threshold: float,
        history_num_frames: int,
        render_ego_history: bool = True,
    ):
        """Set what to draw.

        Args:
            render_context: size and place of the raster.
            filter_agents_threshold: agents at or below this probability aren't drawn.
            history_num_frames: frames before the current one.
            render_ego_history: whether the sample's own boxes of the past are drawn.

        Raises:
            UsageError: OpenCV isn't installed.
        """
        geometry.open_cv()
        self.render_context = render_context
        self.raster_size = render_context.raster_size_px
        self.filter_agents_threshold = filter_agents_threshold
        self.history_num_frames = history_num_frames
        self.render_ego_history = render_ego_history

    def num_channels(self) -> int:
        return 2 * (self.history_num_frames + 1)

    def rasterize(
        self, history_frames: Array, history_agents: ByFrame, history_tl_faces: ByFrame, agent: Any = None
    ) -> Image:
        """Draws the boxes; frames that are missing stay black. See `Rasterizer`."""
        num_steps = self.history_num_frames + 1
        history_frames = history_frames[:num_steps]
        agents, steps = self._agents_by_step(history_agents[:num_steps])
        others, other_steps = corners_of(agents), steps
        own, own_steps = ego_corners(history_frames), np.arange(len(history_frames))
        if agent is not None:
            is_own = agents["track_id"] == agent["track_id"]
            other_steps = np.concatenate([steps[~is_own], own_steps])
            own_steps, first = np.unique(steps[is_own], return_index=True)
            others, own = np.concatenate([others[~is_own], own]), others[is_own][first]
        shown = own_steps < (num_steps if self.render_ego_history else 1)
        boxes = np.concatenate([others, own[shown]])
        boxes = geometry.transform_points(boxes, around(self.render_context, history_frames[0], agent))
        width, height = self.raster_size
        image = np.zeros((self.num_channels(), height, width), np.uint8)
        fill_boxes(image, np.concatenate([other_steps, num_steps + own_steps[shown]]), boxes)
        return np.divide(image, np.float32(255), dtype=np.float32).transpose(1, 2, 0)

    def _agents_by_step(self, history_agents: list[Array]) -> tuple[Array, NDArray[np.int64]]:
        """The agents of all frames that are drawn, and the place of each one's frame in the history."""
        agents = np.concatenate(history_agents)
        steps = np.repeat(np.arange(len(history_agents)), [len(held) for held in history_agents])
        drawn = are_agents(agents["label_probabilities"], self.filter_agents_threshold)
        return agents[drawn], steps[drawn]

    def to_rgb(self, in_im: Array, **kwargs: Any) -> NDArray[np.uint8]:
        """Draws others in blue and the sample's own in green, fading into the past.

        Args:
            in_im: (height, width, num_channels()).
            kwargs: agent_color and ego_color, red, green and blue in [0, 1].

        Returns:
            (height, width, 3).
        """
        half = in_im.shape[-1] // 2
        others = _faded(in_im[..., :half], kwargs.get("agent_color", (0, 0, 1)))
        own = _faded(in_im[..., half:], kwargs.get("ego_color", (0, 1, 0)))
        rgb: NDArray[np.uint8] = (np.clip(others + own, 0, 1) * 255).astype(np.uint8)
        return rgb


def _faded(channels: Array, color: Any) -> Image:
    image = np.zeros((*channels.shape[:2], 3), np.float32)
    for step in reversed(range(channels.shape[-1])):
        image *= FADING
        image[channels[..., step] > 0] = color
    return image


def around(context: geometry.RenderContext, frame: Any, agent: Any) -> geometry.Matrix:
    """raster_from_world for an agent, or for the vehicle where that is None."""
    if agent is None:
        return context.raster_from_world(
            frame["ego_translation"][:2], geometry.rotation33_as_yaw(frame["ego_rotation"])
        )
    return context.raster_from_world(agent["centroid"], float(agent["yaw"]))


def corners_of(agents: Array) -> NDArray[np.float64]:
    """The boxes of (N,) agents in the world: (N, 4, 2)."""
    return _boxes(agents["centroid"], agents["yaw"], agents["extent"][:, :2])


def ego_corners(frames: Array) -> NDArray[np.float64]:
    """The vehicle's boxes in (N,) frames: (N, 4, 2)."""
    yaws = geometry.yaws_of(frames["ego_rotation"]).astype(np.float32)
    extents = np.broadcast_to(EGO_EXTENT[:2].astype(np.float32), (len(frames), 2))
    return _boxes(frames["ego_translation"][:, :2], yaws, extents)


def _boxes(centroids: Array, yaws: Array, extents: Array) -> NDArray[np.float64]:
    corners = _CORNERS * extents[:, None, :]
    x, y = corners[..., 0], corners[..., 1]
    sin, cos = np.sin(yaws)[:, None], np.cos(yaws)[:, None]
    boxes: NDArray[np.float64] = np.stack([x * cos - y * sin, x * sin + y * cos], axis=-1)
    return boxes + centroids[:, None, :]


def fill_boxes(image: NDArray[np.uint8], channels: Array, boxes: NDArray[np.float64]) -> None:
    """Draws boxes (N, 4, 2), in pixels, into an image (C, height, width), each into its one of (N,) channels.

    Nothing shows where two boxes of a channel overlap.
    """
    height, width = image.shape[1:]
    x, y = boxes[..., 0], boxes[..., 1]
    # Boxes far away would leave the integers below; those beyond the border draw nothing.
    with np.errstate(invalid="ignore"):
        seen = (np.abs(boxes) < 1 << 20).all(axis=(1, 2))
        seen &= (x.max(axis=1) > -2) & (x.min(axis=1) < width + 2)
        seen &= (y.max(axis=1) > -2) & (y.min(axis=1) < height + 2)
    if not seen.any():
        return
    cv2 = geometry.open_cv()
    points, channels = (boxes[seen] * (1 << SUBPIXEL_BITS)).astype(np.int32), channels[seen]
    for channel in np.unique(channels).tolist():
        own = points[channels == channel]
        cv2.fillPoly(image[channel], own, 255, lineType=cv2.LINE_AA, shift=SUBPIXEL_BITS)
