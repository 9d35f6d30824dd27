"""The recipes of examples/ over real logs, read by the formats' original clients."""

import json
import pathlib

import numpy as np
import pytest

from logloom.io.formats.l5kit import ChunkedDataset
from logloom.io.formats.tar import TarReader
from logloom.pipelines.verify.verify import verify
from logloom.recipe import Recipe
from tests.conftest import REPOSITORY
from tests.pipelines.conftest import build_at


def example(name: str, log: pathlib.Path, **changes) -> Recipe:
    recipe = Recipe.load(str(REPOSITORY / "examples" / f"{name}.yaml"))
    data = recipe.identity_json() | {"logs": [str(log)]} | changes
    return Recipe.model_validate(data)


@pytest.fixture(scope="module")
def scenes(shared_data, tmp_path_factory):
    """Views of the recorded scene, by the rows of a partition."""
    log, folder = shared_data / "logs" / "l5kit_scene.mcap", tmp_path_factory.mktemp("scenes")
    built = {}
    for rows in (1000, 25):
        recipe = example("l5kit_scene", log, partition={"rows": rows, "bytes": "512MiB"})
        built[rows] = pathlib.Path(build_at(recipe, folder / str(rows)).view)
    return built


@pytest.mark.parametrize("rows", [1000, 25])
def test_the_recorded_scene_comes_back_value_for_value(shared_data, scenes, rows):
    ours = ChunkedDataset(f"{scenes[rows]}/l5kit/all.zarr").open()
    original = ChunkedDataset(str(shared_data / "l5kit" / "single_scene.zarr")).open()
    for array in ("frames", "agents", "tl_faces"):
        np.testing.assert_array_equal(getattr(ours, array)[:], getattr(original, array)[:])
    assert len(ours.scenes) == 1
    assert ours.scenes[0]["host"] == original.scenes[0]["host"]
    assert verify(str(scenes[rows].parent), against_logs=True, num_workers=1).findings == ()


def test_many_partitions_give_the_same_arrays_as_one(scenes):
    one, many = (
        {path.relative_to(view): path.read_bytes() for path in view.rglob("*") if path.is_file()}
        for view in scenes.values()
    )
    assert one == many


@pytest.mark.parametrize(("name", "log"), [("tilt_laser", "tilt_laser.bag"), ("turtlesim", "turtlesim.bag")])
def test_webdataset_iterates_the_shards_with_the_values_of_our_reader(shared_data, tmp_path, name, log):
    wds = pytest.importorskip("webdataset")
    built = build_at(example(name, shared_data / "logs" / log), tmp_path / "root")
    assert built.manifest.totals["rows"] > 100
    shards = sorted(str(path) for path in pathlib.Path(built.view).rglob("*.tar"))
    ours = TarReader(shards)
    samples = list(wds.WebDataset(shards, shardshuffle=False, empty_check=False))
    assert len(samples) == len(ours) == built.manifest.totals["rows"]
    for index, sample in enumerate(samples):
        mine = ours[index]
        theirs = {key: value for key, value in sample.items() if not key.startswith("__")}
        assert {k: v for k, v in mine.items() if not k.startswith("__")} == theirs
        assert json.loads(sample["meta.json"])["log_id"] == pathlib.Path(log).stem
    decoded = next(iter(wds.WebDataset(shards, shardshuffle=False, empty_check=False).decode()))
    assert any(isinstance(value, np.ndarray) for value in decoded.values())


def test_a_rebuilt_real_log_verifies_against_itself(shared_data, tmp_path):
    recipe = example("tilt_laser", shared_data / "logs" / "tilt_laser.bag", partition={"rows": 50})
    build_at(recipe, tmp_path / "root")
    report = verify(str(tmp_path / "root"), against_logs=True, num_workers=1)
    assert report.findings == ()
    assert report.rows > 100
