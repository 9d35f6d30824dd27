"""L5Kit datasets as rows: a log for each scene."""

import numpy as np
import pytest

from logloom.errors import DatasetError
from logloom.io.formats.foreign import open_foreign
from logloom.io.formats.l5kit import AGENT_DTYPE, ChunkedDataset
from tests.io.formats.foreign.conftest import rows_of


@pytest.fixture
def made(tmp_path):
    """Two scenes of 3 and 2 frames; frame f has f agents and no lights."""
    dataset = ChunkedDataset(tmp_path / "made.zarr").initialize(num_scenes=2, num_frames=5)
    scenes = np.zeros(2, dataset.scenes.dtype)
    scenes["frame_index_interval"] = [[0, 3], [3, 5]]
    scenes["host"] = "car-7"
    dataset.scenes[:] = scenes
    frames = np.zeros(5, dataset.frames.dtype)
    frames["timestamp"] = [10, 20, 30, 5, 6]
    ends = np.cumsum(np.arange(5))
    frames["agent_index_interval"] = np.stack([ends - np.arange(5), ends], axis=1)
    frames["ego_translation"] = np.arange(15).reshape(5, 3)
    dataset.frames[:] = frames
    agents = np.zeros(ends[-1], AGENT_DTYPE)
    agents["track_id"] = np.arange(len(agents))
    dataset.agents.append(agents)
    return tmp_path / "made.zarr"


def test_frames_are_rows_and_scenes_are_logs(made, read):
    dataset, rows = read(made)
    assert dataset.kind == "l5kit"
    assert [(log.log_id, log.parts[0].rows) for log in dataset.logs()] == [("000000000", 3), ("000000001", 2)]
    assert [row["timestamp"] for row in rows] == [10, 20, 30, 5, 6]
    assert [row["agents"]["track_id"].tolist() for row in rows] == [[], [0], [1, 2], [3, 4, 5], [6, 7, 8, 9]]
    assert dataset.about.hints["l5kit"]["host"] == "car-7"


def test_a_real_scene_reads_as_its_arrays_say(shared_data):
    path = shared_data / "l5kit" / "single_scene.zarr"
    dataset = open_foreign(str(path))
    rows = rows_of(dataset, ["ego_translation", "agents"])
    arrays = ChunkedDataset(path).open()
    assert len(rows) == len(arrays.frames) == 248
    np.testing.assert_array_equal(
        np.stack([row["ego_translation"] for row in rows]), arrays.frames[:]["ego_translation"]
    )
    assert sum(len(row["agents"]) for row in rows) == 20802


def test_times_that_dont_ascend_and_a_missing_chunk_are_errors(made):
    frames = ChunkedDataset(made).open("r+").frames
    changed = frames[:]
    changed["timestamp"] = 7
    frames[:] = changed
    with pytest.raises(DatasetError, match="times of scene 0 don't ascend"):
        open_foreign(str(made)).logs()
    (made / "frames" / "0").unlink()
    with pytest.raises(DatasetError, match="frames"):
        open_foreign(str(made)).logs()
