"""`AgentDataset`: one sample per agent that is seen well for long enough."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from logloom.blocks import Array
from logloom.datasets.l5kit.ego import EgoDataset
from logloom.datasets.l5kit.mask import agents_mask_of
from logloom.datasets.l5kit.sampling import ImageMaker
from logloom.errors import UsageError
from logloom.io.formats.l5kit import ChunkedDataset
from logloom.io.formats.l5kit.mask import MaskThresholds, stops_of

MIN_FRAME_HISTORY = 10
MIN_FRAME_FUTURE = 1


class AgentDataset(EgoDataset):
    """Samples of agents, in the order of the dataset's agents.

    Attributes:
        agents_mask: (agents,) which agents have a sample.
        agents_indices: (len(self),) the dataset's row of each sample's agent.
        cumulative_sizes_agents: (frames,) where each frame's agents end.
    """

    def __init__(
        self,
        cfg: Mapping[str, Any],
        zarr_dataset: ChunkedDataset,
        rasterizer: ImageMaker | None = None,
        perturbation: None = None,
        agents_mask: ArrayLike | None = None,
        min_frame_history: int = MIN_FRAME_HISTORY,
        min_frame_future: int = MIN_FRAME_FUTURE,
        cache_folder: str | os.PathLike[str] | None = None,
    ):
        """Opens the view and chooses its agents.

        Args:
            cfg, zarr_dataset, rasterizer: as for EgoDataset.
            perturbation: none, since it would move the vehicle.
            agents_mask: (agents,) bool, which agents to take; None for those that a mask of
                raster_params.filter_agents_threshold counts enough frames for: the dataset's own mask, or one
                that is computed and kept in `cache_folder`.
            min_frame_history, min_frame_future: frames in an agent's run before and after.
            cache_folder: see mask.agents_mask_of.

        Raises:
            UsageError: a perturbation, a mask that doesn't fit the agents, or a setting is missing.
            DatasetError: the frames don't divide the agents, or hold a track twice.
        """
        if perturbation is not None:
            raise UsageError("AgentDataset takes no perturbation: it moves the vehicle, not agents")
        super().__init__(cfg, zarr_dataset, rasterizer)
        if agents_mask is None:
            thresholds = MaskThresholds(self._settings.filter_agents_threshold)
            counts = agents_mask_of(zarr_dataset, thresholds, cache_folder)
            agents_mask = (counts[:, 0] >= min_frame_history) & (counts[:, 1] >= min_frame_future)
        self._choose(agents_mask)

    def _choose(self, agents_mask: ArrayLike) -> None:
        mask = np.asarray(agents_mask)
        num_agents = len(self.dataset.agents)
        if mask.shape != (num_agents,) or mask.dtype.kind not in "biu":
            raise UsageError(
                f"agents_mask is {mask.dtype}{list(mask.shape)}, it should be one bool for each of "
                f"{num_agents} agents"
            )
        self.agents_mask: NDArray[np.bool_] = mask.astype(np.bool_)
        self.agents_indices = np.flatnonzero(self.agents_mask)
        self.cumulative_sizes_agents = stops_of(
            self.dataset.frames["agent_index_interval"], num_agents, self._name("agent_index_interval")
        )
        num_frames = super().__len__()
        held = int(self.cumulative_sizes_agents[num_frames - 1]) if num_frames else 0
        if self.agents_indices.size and self.agents_indices[-1] >= held:
            row = int(self.agents_indices[-1])
            raise UsageError(
                f"agents_mask takes agent {row}, but the frames of the scenes hold {held} agents only"
            )

    def __len__(self) -> int:
        return len(self.agents_indices)

    def __getitem__(self, index: int) -> dict[str, Any]:
        """A sample: of the agent in row `agents_indices[index]`.

        Raises:
            IndexError: index is len(self) or above, so that a for loop ends.
            ValueError: it is below -len(self).
            DatasetError: the rows contradict each other.
        """
        row = int(self.agents_indices[self._checked(index)])
        frame = int(np.searchsorted(self.cumulative_sizes_agents, row, side="right"))
        scene = self._scene_of(frame)
        rows = self._rows(scene)
        track_id = int(rows.agents["track_id"][row - rows.first_agent])
        return self.get_frame(scene, frame - self._first_frame(scene), track_id)

    def get_scene_dataset(self, scene_index: int) -> Self:
        """A dataset of one scene and its chosen agents, its rows a copy in memory that may be changed.

        Args:
            scene_index: of the scene.

        Raises:
            ValueError: there is no such scene.
        """
        scene = copy.copy(self)
        rows = self.dataset.get_scene_dataset(scene_index)
        EgoDataset.__init__(scene, self.cfg, rows, self.rasterizer)
        scene._choose(self.agents_mask[self._agents_of_frames(*self._interval(scene_index))])
        return scene

    def get_scene_indices(self, scene_idx: int) -> NDArray[np.int64]:
        """The indices of the samples of a scene's agents; none for a scene without frames.

        Args:
            scene_idx: of the scene.

        Raises:
            ValueError: there is no such scene.
        """
        return self._indices_within(*self._interval(self._checked_scene(scene_idx)))

    def get_frame_indices(self, frame_idx: int) -> NDArray[np.int64]:
        """The indices of the samples of a frame's agents.

        Args:
            frame_idx: of the frame in the dataset.

        Raises:
            ValueError: there is no such frame.
        """
        frame = self._checked_frame(frame_idx)
        return self._indices_within(frame, frame + 1)

    def _indices_within(self, first_frame: int, stop_frame: int) -> NDArray[np.int64]:
        rows = self._agents_of_frames(first_frame, stop_frame)
        first, stop = np.searchsorted(self.agents_indices, (rows.start, rows.stop))
        return np.arange(first, stop)

    def _agents_of_frames(self, first: int, stop: int) -> slice:
        stops: Array = self.cumulative_sizes_agents
        return slice(int(stops[first - 1]) if first else 0, int(stops[stop - 1]) if stop else 0)
