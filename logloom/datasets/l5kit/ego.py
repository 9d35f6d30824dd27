"""`EgoDataset`: one sample per frame, of the vehicle that recorded it."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from logloom.blocks import Array
from logloom.datasets.l5kit.config import SampleSettings
from logloom.datasets.l5kit.geometry import RenderContext
from logloom.datasets.l5kit.sampling import ImageMaker, Moment, Perturbation, sample_at
from logloom.datasets.l5kit.scenes import SceneRows
from logloom.errors import UsageError
from logloom.io.formats.l5kit import ChunkedDataset
from logloom.io.formats.l5kit.mask import stops_of
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
