"""A sample: the vehicle's or an agent's past and future in its own coordinates.

Here: `Moment` (what surrounds a frame) and `sample_at`.
Elsewhere: the rows (scenes), images (rasterizers), which sample has which index (datasets).
Histories start at the current frame and run back; steps that are missing are 0, availability too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from logloom.blocks import Array
from logloom.caching import cached_property
from logloom.datasets.l5kit import geometry
from logloom.datasets.l5kit.config import SampleSettings
from logloom.datasets.l5kit.scenes import SceneRows
from logloom.errors import UsageError
from logloom.io.formats.l5kit import TL_FACE_DTYPE
from logloom.values import dataclass

ByFrame = list[Array]  # an array for each frame, from the current one back

# Length, width and height of the vehicle in metres.
EGO_EXTENT = np.array([4.87, 1.85, 1.8])


class Perturbation(Protocol):
    """Moves the vehicle's frames for training; any object of the original's kind."""

    def perturb(self, history_frames: Array, future_frames: Array, **kwargs: Any) -> tuple[Array, Array]:
        """New frames for (H,) that run back in time and (F,) that run on."""


class ImageMaker(Protocol):
    """What a rasterizer offers to a dataset; see `rasterizers.Rasterizer`."""

    def rasterize(
        self, history_frames: Array, history_agents: ByFrame, history_tl_faces: ByFrame, agent: Any = None
    ) -> Array:
        """An image (height, width, channels)."""


@dataclass(frozen=True)
class Way:
    """Some steps of the vehicle or of an agent.

    Attributes:
        steps: (N,) frames after the current one, negative before it, ascending.
        positions: (N, 2) metres in the world.
        yaws: (N,) float32.
        extents: (N, 2) length and width in metres.
    """

    steps: NDArray[np.int64]
    positions: Array
    yaws: Array
    extents: Array

    def relative(self, agent_from_world: geometry.Matrix, yaw: float) -> Way:
        """The same in the system of an agent with that yaw, in float32."""
        return Way(
            self.steps,
            geometry.transform_points(self.positions, agent_from_world).astype(np.float32),
            # In float32 like the yaws: at ±π the side an angle falls on depends on the precision.
            geometry.angular_distance(self.yaws, np.float32(yaw)),
            self.extents,
        )


@dataclass(frozen=True)
class Moment:
    """A frame of a scene and the frames around it that a sample needs.

    Attributes:
        state: the frame, counted from the scene's first.
        history_frames, future_frames: from the current frame back, and from the next one on.
    """

    scene: SceneRows
    state: int
    history_frames: Array
    future_frames: Array

    @classmethod
    def at(
        cls, scene: SceneRows, state: int, settings: SampleSettings, perturbation: Perturbation | None
    ) -> Moment:
        """Cuts it out, its frames perturbed where the future is whole."""
        first = max(0, state - settings.history_num_frames)
        history = scene.frames[first : state + 1][::-1]
        future = scene.frames[state + 1 : state + 1 + settings.future_num_frames]
        if perturbation is not None and len(future) == settings.future_num_frames:
            history, future = perturbation.perturb(history_frames=history.copy(), future_frames=future.copy())
        return cls(scene, state, history, future)

    @cached_property
    def ego(self) -> Way:
        """The vehicle's."""
        translations = np.concatenate(
            [self.history_frames["ego_translation"][::-1], self.future_frames["ego_translation"]]
        )
        rotations = np.concatenate(
            [self.history_frames["ego_rotation"][::-1], self.future_frames["ego_rotation"]]
        )
        steps = np.arange(len(translations)) - (len(self.history_frames) - 1)
        extents = np.broadcast_to(EGO_EXTENT[:2], (len(steps), 2))
        return Way(steps, translations[:, :2], geometry.yaws_of(rotations).astype(np.float32), extents)

    def way_of(self, track_id: int) -> Way:
        """An agent's, where it is seen."""
        first = self.state + 1 - len(self.history_frames)
        stop = self.state + 1 + len(self.future_frames)
        rows, frames = self.scene.track(track_id, first, stop)
        seen = self.scene.agents[rows]
        return Way(frames - self.state, seen["centroid"], seen["yaw"], seen["extent"][:, :2])

    def image(self, rasterizer: ImageMaker, agent: Any, lights: bool) -> Array:
        """(channels, height, width), drawn around the agent, or the vehicle for None."""
        frames = range(self.state, self.state - len(self.history_frames), -1)
        agents = [self.scene.agents_of(frame) for frame in frames]
        dark = np.empty(0, TL_FACE_DTYPE)
        tl_faces = [self.scene.tl_faces_of(frame) if lights else dark for frame in frames]
        image = rasterizer.rasterize(self.history_frames, agents, tl_faces, agent)
        return image.transpose(2, 0, 1)


def sample_at(
    moment: Moment,
    track_id: int | None,
    settings: SampleSettings,
    context: geometry.RenderContext,
    rasterizer: ImageMaker | None,
) -> dict[str, Any]:
    """A sample of the vehicle (track_id None) or of an agent that the current frame holds.

    Returns:
        The fields of the original but those that the dataset alone knows (scene_index, host_id, timestamp).

    Raises:
        UsageError: the current frame doesn't hold the agent.
    """
    agent: Any = None
    if track_id is None:
        frame, way = moment.history_frames[0], moment.ego
        centroid, extent = frame["ego_translation"][:2], EGO_EXTENT.copy()
        yaw = geometry.rotation33_as_yaw(frame["ego_rotation"])
    else:
        agents = moment.scene.agents_of(moment.state)
        rows = np.flatnonzero(agents["track_id"] == track_id)
        if not rows.size:
            raise UsageError(f"frame {moment.state} of this scene contains no agent {track_id}")
        agent = agents[rows[0]]
        way = moment.way_of(track_id)
        centroid, extent, yaw = agent["centroid"].copy(), agent["extent"].copy(), float(agent["yaw"])
    agent_from_world = geometry.pose_from_world(centroid, yaw)
    world_from_agent = geometry.compute_agent_pose(centroid, yaw)
    raster_from_world = context.raster_from_local @ agent_from_world
    way = way.relative(agent_from_world, yaw)
    sample: dict[str, Any] = {"frame_index": moment.state}
    if rasterizer is not None:
        sample["image"] = moment.image(rasterizer, agent, not settings.disable_traffic_light_faces)
    sample |= _motion(way, settings)
    sample |= {
        "world_to_image": raster_from_world,
        "raster_from_agent": raster_from_world @ world_from_agent,
        "raster_from_world": raster_from_world,
        "agent_from_world": agent_from_world,
        "world_from_agent": world_from_agent,
        "centroid": np.array(centroid),
        "yaw": yaw,
        "extent": extent,
        "track_id": np.int64(-1 if track_id is None else track_id),
    }
    return sample


def _motion(way: Way, settings: SampleSettings) -> dict[str, Any]:
    """Positions, yaws, velocities, extents and availabilities before and after the current frame."""
    back, on = settings.history_num_frames, settings.future_num_frames
    now = int(np.searchsorted(way.steps, 1))
    history = _placed(way, slice(None, now), -way.steps[:now], back + 1)
    future = _placed(way, slice(now, None), way.steps[now:] - 1, on)
    steps_back = np.diff(history["positions"], axis=0)
    steps_on = np.diff(future["positions"], axis=0, prepend=np.zeros((1, 2), np.float32))
    history_velocities = -steps_back / np.float32(settings.step_time)
    motion: dict[str, Any] = {
        "target_positions": future["positions"],
        "target_yaws": future["yaws"],
        "target_velocities": steps_on / np.float32(settings.step_time),
        "target_availabilities": future["availabilities"],
        "history_positions": history["positions"],
        "history_yaws": history["yaws"],
        "history_velocities": history_velocities,
        "history_availabilities": history["availabilities"],
        "history_extents": history["extents"],
        "future_extents": future["extents"],
    }
    if len(history_velocities):
        motion["curr_speed"] = np.linalg.norm(history_velocities[0])
    return motion


def _placed(way: Way, chosen: slice, places: Sequence[int] | Array, num_steps: int) -> dict[str, Array]:
    """The chosen steps at their places among `num_steps`, zeros elsewhere."""
    positions = np.zeros((num_steps, 2), np.float32)
    yaws = np.zeros((num_steps, 1), np.float32)
    extents = np.zeros((num_steps, 2), np.float32)
    availabilities = np.zeros(num_steps, np.float32)
    positions[places] = way.positions[chosen]
    yaws[places, 0] = way.yaws[chosen]
    extents[places] = way.extents[chosen]
    availabilities[places] = 1.0
    return {"positions": positions, "yaws": yaws, "extents": extents, "availabilities": availabilities}
