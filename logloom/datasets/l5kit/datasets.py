"""`EgoDataset`, a sample per vehicle frame; `AgentDataset`, one per agent."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from logloom.blocks import Array
from logloom.datasets.l5kit.config import SampleSettings
from logloom.datasets.l5kit.geometry import RenderContext
from logloom.datasets.l5kit.mask import agents_mask_of
from logloom.datasets.l5kit.sampling import ImageMaker, Moment, Perturbation, sample_at
from logloom.datasets.l5kit.scenes import SceneRows
from logloom.errors import UsageError
from logloom.io.formats.l5kit import ChunkedDataset
from logloom.io.formats.l5kit.mask import MaskThresholds, stops_of
from logloom.io.storage.lru_cache import LruCache

SCENE_BYTES = 256 << 20
HOST_ID_BYTES = 70


class EgoDataset:
    """The vehicle's samples, one per frame, in the order of the frames.

        dataset = EgoDataset(cfg, ChunkedDataset("train.zarr").open(), build_rasterizer(cfg, data_manager))
        dataset[0]["target_positions"]  # (future_num_frames, 2) metres in the vehicle's system

    A scene is read when one of its samples is first asked for, and kept with those used last, up to 256 MiB:
    samples in order, or shuffled within scenes, come at the speed of memory. Pickles without them; serves
    many threads.

    Attributes:
        cfg, dataset, rasterizer, perturbation: as given.
        cumulative_sizes: (scenes,) where each scene's frames end.
    """

    def __init__(
        self,
        cfg: Mapping[str, Any],
        zarr_dataset: ChunkedDataset,
        rasterizer: ImageMaker | None = None,
        perturbation: Perturbation | None = None,
    ):
        """Opens the view; reads the scenes' intervals only.

        Args:
            cfg: sections model_params (history_num_frames, future_num_frames, step_time) and raster_params
                (raster_size, pixel_size, ego_center, set_origin_to_bottom, filter_agents_threshold).
            zarr_dataset: opened, or in memory.
            rasterizer: draws each sample's `image`; None for samples without.
            perturbation: moves the vehicle's frames where a sample's future is whole.

        Raises:
            UsageError: a setting is missing or out of its range, named; or the dataset isn't open.
            DatasetError: the scenes don't divide the frames.
        """
        if zarr_dataset.path and isinstance(zarr_dataset.scenes, np.ndarray):
            raise UsageError(f"{zarr_dataset.path}: open this dataset first: ChunkedDataset(path).open()")
        self.cfg = cfg
        self.dataset = zarr_dataset
        self.rasterizer = rasterizer
        self.perturbation = perturbation
        self._settings = SampleSettings.of(cfg)
        self._context = RenderContext.of(cfg)
        self._scenes: Array = np.array(zarr_dataset.scenes[:])
        self.cumulative_sizes = stops_of(
            self._scenes["frame_index_interval"], len(zarr_dataset.frames), self._name("frame_index_interval")
        )
        self._cache: LruCache[SceneRows] = LruCache(SCENE_BYTES, least=1)

    def __len__(self) -> int:
        return int(self.cumulative_sizes[-1]) if len(self.cumulative_sizes) else 0

    def __getitem__(self, index: int) -> dict[str, Any]:
        """A sample; see the docs for its fields.

        Raises:
            IndexError: index is len(self) or above, so that a for loop ends.
            ValueError: it is below -len(self).
            DatasetError: the rows contradict each other.
        """
        frame = self._checked(index)
        scene = self._scene_of(frame)
        return self.get_frame(scene, frame - self._first_frame(scene))

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        """Many samples, in the order asked for; made scene by scene, so that each is read once."""
        samples: list[Any] = [None] * len(indices)
        rows = np.asarray(indices, np.int64) % max(len(self), 1)  # -1 is the last
        for place in np.argsort(rows, kind="stable").tolist():
            samples[place] = self[indices[place]]
        return samples

    def get_frame(self, scene_index: int, state_index: int, track_id: int | None = None) -> dict[str, Any]:
        """The sample of one frame.

        Args:
            scene_index: of the dataset.
            state_index: the frame, counted from the scene's first.
            track_id: of an agent in that frame; None for the vehicle.

        Raises:
            IndexError: there is no such scene or frame.
            UsageError: the frame doesn't hold the agent.
        """
        scene = self._rows(scene_index)
        if not 0 <= state_index < len(scene.frames):
            raise IndexError(f"scene {scene_index} has {len(scene.frames)} frames, no {state_index}")
        # Agents go their own way, whatever is done to the vehicle.
        perturbation = self.perturbation if track_id is None else None
        moment = Moment.at(scene, state_index, self._settings, perturbation)
        sample = sample_at(moment, track_id, self._settings, self._context, self.rasterizer)
        sample["scene_index"] = scene_index
        sample["host_id"] = _host_id(self._scenes["host"][scene_index])
        sample["timestamp"] = np.int64(scene.frames["timestamp"][state_index])
        return sample

    def get_scene_dataset(self, scene_index: int) -> Self:
        """A dataset of one scene, its rows a copy in memory that may be changed.

        Args:
            scene_index: of the scene.

        Raises:
            ValueError: there is no such scene.
        """
        scene = copy.copy(self)
        EgoDataset.__init__(
            scene, self.cfg, self.dataset.get_scene_dataset(scene_index), self.rasterizer, self.perturbation
        )
        return scene

    def get_scene_indices(self, scene_idx: int) -> NDArray[np.int64]:
        """The indices of a scene's samples; none for a scene without frames.

        Args:
            scene_idx: of the scene.

        Raises:
            ValueError: there is no such scene.
        """
        first, stop = self._interval(self._checked_scene(scene_idx))
        return np.arange(first, stop)

    def get_frame_indices(self, frame_idx: int) -> NDArray[np.int64]:
        """The indices of a frame's samples, here one.

        Args:
            frame_idx: of the frame in the dataset.

        Raises:
            ValueError: there is no such frame.
        """
        return np.array([self._checked_frame(frame_idx)])

    def __str__(self) -> str:
        return str(self.dataset)

    def _checked(self, index: int) -> int:
        length = len(self)
        if index < -length:
            raise ValueError(f"index {index} is before the first of {length} samples")
        if index >= length:
            raise IndexError(f"index {index} of {length} samples")
        return int(index) + length if index < 0 else int(index)

    def _checked_scene(self, scene: int) -> int:
        if not 0 <= scene < len(self._scenes):
            raise ValueError(f"scene {scene} of {len(self._scenes)}")
        return int(scene)

    def _checked_frame(self, frame: int) -> int:
        num_frames = len(self.dataset.frames)
        if not 0 <= frame < num_frames:
            raise ValueError(f"frame {frame} of {num_frames}")
        return int(frame)

    def _scene_of(self, frame: int) -> int:
        return int(np.searchsorted(self.cumulative_sizes, frame, side="right"))

    def _first_frame(self, scene: int) -> int:
        return int(self.cumulative_sizes[scene - 1]) if scene else 0

    def _interval(self, scene: int) -> tuple[int, int]:
        return self._first_frame(scene), int(self.cumulative_sizes[scene])

    def _rows(self, scene: int) -> SceneRows:
        if not 0 <= scene < len(self._scenes):
            raise IndexError(f"scene {scene} of {len(self._scenes)}")
        rows = self._cache.get(scene)
        if rows is None:
            rows = SceneRows(self.dataset, self._interval(scene))
            self._cache.put(scene, rows)
        return rows

    def _name(self, field: str) -> str:
        return f"{self.dataset.path or 'in memory'}: {field}"


def _host_id(host: str) -> NDArray[np.uint8]:
    """(70,) the host's name in UTF-8, zeros after it."""
    name = np.frombuffer(str(host).encode()[:HOST_ID_BYTES], np.uint8)
    host_id = np.zeros(HOST_ID_BYTES, np.uint8)
    host_id[: len(name)] = name
    return host_id


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
            raise UsageError("AgentDataset accepts no perturbation: it moves the vehicle, not agents")
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
                f"agents_mask selects agent {row}, but the frames of the scenes have {held} agents only"
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
