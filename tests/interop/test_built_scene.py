"""A version built from a real recorded scene, read by the original's own zarr."""

import numpy as np

from tests.interop.test_zarr2 import read_by_zarr2
from tests.pipelines.conftest import build_at
from tests.pipelines.nights.test_real_logs import example


def test_zarr_2_reads_the_built_scene_equal_to_the_recorded_one(zarr2, shared_data, tmp_path):
    log = shared_data / "logs" / "l5kit_scene.mcap"
    built = build_at(example("l5kit_scene", log, partition={"rows": 100}), tmp_path / "root")
    ours, attributes = read_by_zarr2(zarr2, f"{built.view}/l5kit/all.zarr", tmp_path / "ours")
    original, _ = read_by_zarr2(zarr2, shared_data / "l5kit" / "single_scene.zarr", tmp_path / "original")
    for array in ("frames", "agents", "tl_faces"):
        assert ours[array].dtype == original[array].dtype
        np.testing.assert_array_equal(ours[array], original[array])
    assert attributes["format_version"] == 2
