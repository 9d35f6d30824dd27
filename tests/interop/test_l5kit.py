"""The original client reads the L5Kit output of a version, and finds its agents mask there."""

import json

import numpy as np
import pytest

from tests.interop.conftest import REPOSITORY, runner
from tests.pipelines.conftest import build_at
from tests.pipelines.nights.test_real_logs import example

READ = """
import json, sys, warnings
from l5kit.configs import load_config_data
from l5kit.data import ChunkedDataset, LocalDataManager
from l5kit.dataset import AgentDataset, EgoDataset
from l5kit.rasterization import build_rasterizer

with warnings.catch_warnings():
    warnings.filterwarnings("error", message="cannot find the right config")  # it would write a mask
    config, scene = load_config_data(sys.argv[2]), ChunkedDataset(sys.argv[1]).open()
    config["raster_params"]["map_type"] = "stub_debug"
    rasterizer = build_rasterizer(config, LocalDataManager("."))
    agents = AgentDataset(config, scene, rasterizer, min_frame_history=1, min_frame_future=1)
    ego = EgoDataset(config, scene, rasterizer)
said = {"indices": agents.agents_indices.tolist(), "ego": ego[100]["target_positions"].tolist()}
print(json.dumps(said | {"agent": agents[49]["target_positions"].tolist()}))
"""


@pytest.fixture(scope="module")
def l5kit():
    """Runs a script under the original l5kit 1.5, with arguments; gives its standard output."""
    if not (REPOSITORY / ".venv-l5kit" / "bin" / "python").exists():
        pytest.skip("no l5kit 1.5 here (.venv-l5kit); `make .venv-l5kit/.installed` installs it")
    return runner(".venv-l5kit", "l5kit 1.5")


def test_the_original_agent_dataset_takes_the_mask_that_a_built_scene_carries(l5kit, shared_data, tmp_path):
    log = shared_data / "logs" / "l5kit_scene.mcap"
    view = f"{build_at(example('l5kit_scene', log), tmp_path / 'root').view}/l5kit/all.zarr"
    said = json.loads(l5kit(READ, view, shared_data / "l5kit" / "config.yaml"))
    golden = shared_data / "l5kit"
    expected, ego = np.load(golden / "expected_agent.npz"), np.load(golden / "expected_ego.npz")
    assert said["indices"] == expected["agents_indices"].tolist()
    np.testing.assert_allclose(said["ego"], ego["target_positions"][100], atol=1e-5)
    assert expected["dataset_index"][7] == 49
    np.testing.assert_allclose(said["agent"], expected["target_positions"][7], atol=1e-5)
