"""`ChunkedDataset`: an L5Kit dataset's four arrays, with L5Kit's interface.

Elsewhere: one array (array_reader), building the arrays (stage, assemble), their types (dtypes).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from logloom.blocks import Array
from logloom.errors import DatasetError, UsageError
from logloom.io.formats.l5kit.array_reader import ChunkedArray
from logloom.io.formats.l5kit.dtypes import (
    AGENTS,
    ARRAYS,
    FORMAT_VERSION,
    FRAMES,
    LABELS,
    SCENES,
    TL_FACE_LABELS,
    TL_FACES,
)
from logloom.io.formats.l5kit.metadata import COMPRESSOR
from logloom.io.storage.filesystems import ZIP, absolute_uri
from logloom.io.storage.lru_cache import LruCache
from logloom.io.storage.store import Store

ZIPPED = ".zip"


class ChunkedDataset:
    """Scenes, frames, agents and traffic light faces of one dataset.

        dataset = ChunkedDataset("train.zarr").open()
        dataset.frames[10:20]["ego_translation"]

    Attributes:
        scenes, frames, agents, tl_faces: arrays of structured rows (see logloom.io.formats.l5kit.dtypes).
            `open` makes them `ChunkedArray`s, `initialize` and the writing modes of `open` make them zarr
            arrays (with assignment and `append`), `get_scene_dataset` numpy arrays.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] = "",
        key: str = "",
        storage_options: Mapping[str, Any] | None = None,
    ):
        """Name a dataset; nothing is opened yet.

        Args:
            path: of the zarr group: a folder, or a zip archive (x.zarr.zip), which is only read; or any
                fsspec URI of one.
            key: of a group within it.
            storage_options: for fsspec, by protocol.
        """
        self.path = os.fspath(path)
        self.key = key
        self.storage_options = dict(storage_options or {})
        self.scenes: Any = np.empty(0, SCENES.dtype)
        self.frames: Any = np.empty(0, FRAMES.dtype)
        self.agents: Any = np.empty(0, AGENTS.dtype)
        self.tl_faces: Any = np.empty(0, TL_FACES.dtype)

    def open(self, mode: str = "r", cached: bool = True, cache_size_bytes: int = int(1e9)) -> ChunkedDataset:
        """Opens the arrays.

        Args:
            mode: "r", or another mode of zarr ("r+", "a") to write into existing arrays.
            cached: whether to cache compressed chunks.
            cache_size_bytes: bytes of the cache, over the four arrays.

        Returns:
            This object.

        Raises:
            DatasetError: there is no such dataset, or it is of another format.
        """
        if mode != "r":
            from logloom.io.formats.l5kit.zarr_dtype import WritableArray

            group = self._group(mode)
            for name, kind in ARRAYS.items():
                setattr(self, name, WritableArray(group[kind.key]))
            return self
        cache = LruCache[bytes](cache_size_bytes, len) if cached else None
        store = self.store
        for name, kind in ARRAYS.items():
            if name == "tl_faces" and not store.exists(f"{kind.key}/.zarray"):
                self.tl_faces = np.empty(0, kind.dtype)  # format version 1 had no lights
            else:
                setattr(self, name, ChunkedArray(store, kind.key, cache))
        return self

    def initialize(
        self,
        mode: str = "w",
        num_scenes: int = 0,
        num_frames: int = 0,
        num_agents: int = 0,
        num_tl_faces: int = 0,
    ) -> ChunkedDataset:
        """Create a dataset of that many zero rows, for writing.

        Fill it by assignment (`dataset.frames[5:9] = rows`) or `append`.

        Args:
            mode: "w" replaces an existing dataset, "w-" fails if there is one, "a" keeps it.
            num_scenes: rows of `scenes`.
            num_frames: of `frames`.
            num_agents: of `agents`.
            num_tl_faces: of `tl_faces`.

        Returns:
            This object.
        """
        from logloom.io.formats.l5kit.zarr_dtype import SubarrayStruct, WritableArray

        group = self._group(mode)
        rows = (num_scenes, num_frames, num_agents, num_tl_faces)
        for (name, kind), num_rows in zip(ARRAYS.items(), rows, strict=True):
            if kind.key not in group:
                group.create_array(
                    kind.key,
                    shape=(num_rows,),
                    dtype=SubarrayStruct.of(kind.dtype),
                    chunks=(kind.chunk_rows,),
                    compressors=_zarr_compressor(),
                )
            setattr(self, name, WritableArray(group[kind.key]))
        group.attrs.update(
            {"format_version": FORMAT_VERSION, "labels": LABELS, "tl_face_labels": TL_FACE_LABELS}
        )
        return self

    @property
    def root(self) -> Any:
        """The dataset as a read-only group of zarr-python, for everything that this class doesn't offer."""
        return self._group("r")

    def get_scene_dataset(self, scene_index: int) -> ChunkedDataset:
        """Copy one scene into a dataset in memory, its intervals counted from its own rows.

        Args:
            scene_index: of the scene.

        Raises:
            ValueError: there is no such scene.
            DatasetError: its intervals are outside the arrays.
        """
        if not 0 <= scene_index < len(self.scenes):
            raise ValueError(f"{self.path}: scene {scene_index} of {len(self.scenes)}")
        scene = ChunkedDataset("", storage_options=self.storage_options)
        scene.scenes = np.array(self.scenes[scene_index : scene_index + 1])
        (interval,) = scene.scenes["frame_index_interval"]
        scene.frames = self._rows("frames", *map(int, interval))
        scene.scenes["frame_index_interval"] -= interval[0]
        for name, field in (
            ("agents", "agent_index_interval"),
            ("tl_faces", "traffic_light_faces_index_interval"),
        ):
            if len(scene.frames):
                intervals = scene.frames[field]
                first = int(intervals[0, 0])
                setattr(scene, name, self._rows(name, first, int(intervals[-1, 1])))
                intervals -= first
        return scene

    def _rows(self, name: str, start: int, stop: int) -> Array:
        array = getattr(self, name)
        if not 0 <= start <= stop <= len(array):
            raise DatasetError(f"{self.path}: an interval [{start}, {stop}) of {len(array)} {name}")
        return np.array(array[start:stop])

    @property
    def store(self) -> Store:
        """The folder of its group, on storage or in an archive.

        Raises:
            UsageError: it is in memory.
        """
        if not self.path:
            raise UsageError("this dataset is in memory, there is nothing to open")
        store, key = Store.at(self.path, self.storage_options), self.key.strip("/")
        if store.uri.endswith(ZIPPED) and not (store.local is not None and store.local.is_dir()):
            return Store(absolute_uri(f"{ZIP}{key}::{store.uri}"), store.options)
        return Store(store.uri_of(key), store.options)

    def _group(self, mode: str) -> Any:
        import zarr

        from logloom.io.formats.l5kit.zarr_dtype import register

        register()
        store = self.store
        try:
            if store.uri.startswith(ZIP):
                return self._zipped_group(mode)
            if store.local is not None:
                return zarr.open_group(store.local, mode=mode, zarr_format=2)  # type: ignore[arg-type]
            options = dict(store.options.get(store.uri.split("://", 1)[0], {}))
            return zarr.open_group(store.uri, mode=mode, zarr_format=2, storage_options=options)  # type: ignore[arg-type]
        except FileNotFoundError:
            raise DatasetError(f"{store.uri}: there is no zarr group here") from None

    def _zipped_group(self, mode: str) -> Any:
        import zarr

        archive = Store.at(self.path).local
        if mode != "r" or archive is None:
            raise UsageError(
                f"{self.path}: an archive is only read, by zarr itself on a disk alone: "
                "write or copy it to a folder (x.zarr), and zip that"
            )
        opened = zarr.storage.ZipStore(archive, mode="r")
        return zarr.open_group(opened, path=self.key.strip("/"), mode="r", zarr_format=2)

    def __str__(self) -> str:
        frames, scenes = len(self.frames), len(self.scenes)
        spans = [(int(s["start_time"]), int(s["end_time"])) for s in self.scenes[:]]
        seconds = sum(end - start for start, end in spans) / 1e9
        numbers = {
            "scenes": scenes,
            "frames": frames,
            "agents": len(self.agents),
            "traffic light faces": len(self.tl_faces),
            "total time (h)": round(seconds / 3600, 2),
            "frames per scene": round(frames / scenes, 2) if scenes else 0,
            "agents per frame": round(len(self.agents) / frames, 2) if frames else 0,
            "seconds per scene": round(seconds / scenes, 2) if scenes else 0,
            "frames per second": round(frames / seconds, 2) if seconds else 0,
        }
        return "\n".join(
            [f"{self.path or 'in memory'}", *(f"  {name:20}{n:>12}" for name, n in numbers.items())]
        )


def _zarr_compressor() -> Any:
    import numcodecs

    return numcodecs.get_codec(COMPRESSOR)
