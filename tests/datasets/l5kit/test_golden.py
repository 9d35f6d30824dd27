"""The views against what the original client gave for the same real scene."""

import re

import numpy as np
import pytest

from logloom.datasets.l5kit import AgentDataset, EgoDataset, build_rasterizer, compute_agents_mask

EXACT = {"frame_index", "scene_index", "host_id", "timestamp", "track_id", "extent"}
NOT_FIELDS = {"image_uint8", "image_rows", "dataset_index", "agents_indices"}


def assert_fields_equal(samples, expected):
    for name in sorted(set(expected.files) - NOT_FIELDS):
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


def test_every_field_of_the_vehicles_samples_equals_the_originals(golden, real_config, real_scene):
    expected = np.load(golden / "expected_ego.npz")
    samples = list(EgoDataset(real_config, real_scene))
    assert len(samples) == 248
    assert "image" not in samples[0]
    assert_fields_equal(samples, expected)


def test_the_agents_mask_equals_the_originals(golden, real_scene):
    expected = np.load(golden / "expected_agents_mask.npy")
    np.testing.assert_array_equal(compute_agents_mask(real_scene), expected)


def test_every_field_of_the_agents_samples_equals_the_originals(golden, real_config, real_scene):
    expected = np.load(golden / "expected_agent.npz")
    dataset = AgentDataset(real_config, real_scene, min_frame_history=1, min_frame_future=1)
    np.testing.assert_array_equal(dataset.agents_indices, expected["agents_indices"])
    assert_fields_equal(dataset.__getitems__(expected["dataset_index"].tolist()), expected)


def test_images_of_boxes_equal_the_originals(golden, real_config, real_scene):
    pytest.importorskip("cv2", reason="boxes are drawn by OpenCV")
    rasterizer = build_rasterizer(real_config)
    expected = np.load(golden / "expected_ego.npz")
    assert_images_equal(EgoDataset(real_config, real_scene, rasterizer), expected["image_rows"], expected)
    expected = np.load(golden / "expected_agent.npz")
    agents = AgentDataset(real_config, real_scene, rasterizer, min_frame_history=1, min_frame_future=1)
    assert_images_equal(agents, expected["dataset_index"][expected["image_rows"]], expected)


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


def assert_samples_equal(found, expected):
    assert found.keys() == expected.keys()
    for name in expected:
        np.testing.assert_array_equal(found[name], expected[name], err_msg=name)
