"""`build_rasterizer`: the rasterizer that a configuration names, with the maps that it needs."""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logloom.datasets.l5kit.config import LocalDataManager, count, number, setting
from logloom.datasets.l5kit.geometry import Matrix, RenderContext, open_cv
from logloom.datasets.l5kit.map_rasterizers import (
    MapAndBoxRasterizer,
    SatelliteRasterizer,
    SemanticRasterizer,
)
from logloom.datasets.l5kit.rasterizers import BoxRasterizer, Rasterizer, StubRasterizer
from logloom.datasets.l5kit.semantic_map import SemanticMap
from logloom.errors import DatasetError, UsageError


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
        raise DatasetError(f"{meta}: by ecef_to_aerial all places lie in one row or column of the image")
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
        raise DatasetError(f"{path}: holds no matrix {key}: {error}") from error
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
