"""The views against what the original client gave for the same real scene.

The scene comes as the original wrote it, and as the outputs `l5kit` and `table` of a version that is built
from the recorded log of the same drive.
"""

import re

import numpy as np
import pytest

import logloom.datasets
from logloom.datasets.l5kit import (
    AgentDataset,
    ChunkedDataset,
    EgoDataset,
    build_rasterizer,
    compute_agents_mask,
    dataset_of_rows,
    mask,
)
from tests.datasets.l5kit.scenes_made import assert_samples_equal
from tests.pipelines.conftest import build_at
from tests.pipelines.nights.test_real_logs import example

EXACT = {"frame_index", "scene_index", "host_id", "timestamp", "track_id", "extent"}
NOT_FIELDS = {"image_uint8", "image_rows", "dataset_index", "agents_indices"}


@pytest.fixture(scope="module")
def built(shared_data, tmp_path_factory):
    """A version of the scene with both outputs, in partitions of 100 frames."""
    outputs = {"l5kit": {"host": "host-a101", "agents": "agents", "tl_faces": "tl_faces"}, "table": {}}
    log = shared_data / "logs" / "l5kit_scene.mcap"
    recipe = example("l5kit_scene", log, outputs=outputs, partition={"rows": 100})
    return build_at(recipe, tmp_path_factory.mktemp("built") / "root")


@pytest.fixture(params=["original", "l5kit output", "table output"])
def scene(request):
    """The scene from each place, and the fields that it can't have."""
    if request.param == "original":
        return request.getfixturevalue("real_scene"), set()
    view = request.getfixturevalue("built").view
    if request.param == "l5kit output":
        return ChunkedDataset(f"{view}/l5kit/all.zarr").open(), set()
    rows = logloom.datasets.open(view.rpartition("/")[0], output="table")
    return dataset_of_rows(rows, agents="agents", tl_faces="tl_faces"), {"host_id"}


def assert_fields_equal(samples, expected, without=frozenset()):
    for name in sorted(set(expected.files) - NOT_FIELDS - without):
        found = np.stack([sample[name] for sample in samples])
        assert found.shape == expected[name].shape, name
        assert found.dtype == expected[name].dtype, name
        if name in EXACT or name.endswith("availabilities"):
            np.testing.assert_array_equal(found, expected[name], err_msg=name)
        else:
            np.testing.assert_allclose(found, expected[name], rtol=0, atol=1e-5, err_msg=name)


def assert_images_equal(dataset, indices, expected):
    for index, image in zip(indices, expected["image_uint8"], strict=True):
        found = np.rint(dataset[int(index)]["image"] * 255).astype(np.uint8)
        assert image.any()
        assert np.mean(found != image) <= 0.001, index


def test_every_field_of_the_vehicles_samples_equals_the_originals(golden, real_config, scene):
    expected = np.load(golden / "expected_ego.npz")
    samples = list(EgoDataset(real_config, scene[0]))
    assert len(samples) == 248
    assert "image" not in samples[0]
    assert_fields_equal(samples, expected, scene[1])


def test_the_agents_mask_equals_the_originals(golden, scene):
    expected = np.load(golden / "expected_agents_mask.npy")
    np.testing.assert_array_equal(compute_agents_mask(scene[0]), expected)


def test_every_field_of_the_agents_samples_equals_the_originals(golden, real_config, scene):
    expected = np.load(golden / "expected_agent.npz")
    dataset = AgentDataset(real_config, scene[0], min_frame_history=1, min_frame_future=1)
    np.testing.assert_array_equal(dataset.agents_indices, expected["agents_indices"])
    assert_fields_equal(dataset.__getitems__(expected["dataset_index"].tolist()), expected, scene[1])


def test_images_of_boxes_equal_the_originals(golden, real_config, scene):
    pytest.importorskip("cv2", reason="boxes are drawn by OpenCV")
    rasterizer = build_rasterizer(real_config)
    expected = np.load(golden / "expected_ego.npz")
    assert_images_equal(EgoDataset(real_config, scene[0], rasterizer), expected["image_rows"], expected)
    expected = np.load(golden / "expected_agent.npz")
    agents = AgentDataset(real_config, scene[0], rasterizer, min_frame_history=1, min_frame_future=1)
    assert_images_equal(agents, expected["dataset_index"][expected["image_rows"]], expected)


def test_a_built_dataset_is_opened_with_the_mask_that_it_carries(built, real_config, golden, monkeypatch):
    monkeypatch.setattr(mask, "compute_agents_mask", lambda *args: pytest.fail("computed again"))
    dataset = ChunkedDataset(f"{built.view}/l5kit/all.zarr").open()
    agents = AgentDataset(real_config, dataset, min_frame_history=1, min_frame_future=1)
    np.testing.assert_array_equal(
        agents.agents_indices, np.load(golden / "expected_agent.npz")["agents_indices"]
    )


def test_a_scenes_own_dataset_gives_the_same_samples(real_config, real_scene):
    whole = AgentDataset(real_config, real_scene, min_frame_history=1)
    scene = whole.get_scene_dataset(0)
    assert len(scene) == len(whole)
    for index in (0, 500, -1):
        assert_samples_equal(scene[index], whole[index])


@pytest.mark.parametrize("view", ["EgoDataset", "AgentDataset"])
def test_the_original_documentations_example_runs_with_other_imports(view, golden, capsys):
    pytest.importorskip("cv2", reason="boxes are drawn by OpenCV")
    page = golden.parent.parent / "references" / "l5kit-dataset-formats.txt"
    if not page.is_file():
        pytest.skip(f"the original's documentation is not here ({page})")
    text, last = page.read_text(), 'print(data["history_positions"])'
    blocks = ["from l5kit.rasterization" + part for part in text.split("from l5kit.rasterization")[1:]]
    (block,) = [block for block in blocks if f"import {view}\n" in block]
    code = block[: block.index(last) + len(last)]
    code = re.sub(r"from l5kit[.a-z]*", "from logloom.datasets.l5kit", code)
    code = code.replace('ChunkedDataset("<path>")', f"ChunkedDataset({str(golden / 'single_scene.zarr')!r})")
    exec(code.replace('"<path>"', repr(str(golden / "config.yaml"))), {})
    assert capsys.readouterr().out.count("[[") == 2 * (248 if view == "EgoDataset" else 209)


def test_the_original_documentations_blocks_on_slicing_run_with_other_imports(golden, real_scene):
    page = golden.parent.parent / "references" / "l5kit-dataset-formats.txt"
    if not page.is_file():
        pytest.skip(f"the original's documentation is not here ({page})")
    begin, ends = "from l5kit.data import ChunkedDataset\n", ("\n\nHowever", "  # note this")
    found = []
    for block, end in zip(page.read_text().split(begin)[1:3], ends, strict=True):
        names = {}
        path = repr(str(golden / "single_scene.zarr"))
        code = begin.replace("l5kit.data", "logloom.datasets.l5kit") + block.split(end)[0]
        exec(code.replace('"<path>"', path).replace("10_000", "100"), names)
        found.append(names["centroids"])
    for centroids in found:
        np.testing.assert_array_equal(centroids, real_scene.agents[:100]["centroid"])
