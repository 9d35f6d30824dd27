import pickle

import numpy as np
import pytest

import logloom.datasets
from logloom.datasets.l5kit import AgentDataset, EgoDataset, compute_agents_mask, dataset_of_rows
from logloom.errors import UsageError
from logloom.io.formats.l5kit import ChunkedDataset
from tests.datasets.l5kit.scenes_made import make_config, make_dataset
from tests.datasets.l5kit.test_golden import assert_samples_equal

FILL = {"agents": "agents", "tl_faces": "tl_faces"}


@pytest.fixture(scope="module")
def made():
    return make_dataset((12, 5, 9))


@pytest.fixture(scope="module")
def rows(made, tmp_path_factory):
    """The same frames as rows of a dataset on disk; its scenes are logs."""
    folder = tmp_path_factory.mktemp("made") / "made.zarr"
    dataset = ChunkedDataset(folder).initialize(
        num_scenes=len(made.scenes), num_frames=len(made.frames), num_agents=len(made.agents)
    )
    dataset.scenes[:], dataset.frames[:], dataset.agents[:] = made.scenes, made.frames, made.agents
    return logloom.datasets.open(folder)


def test_rows_give_the_arrays_that_they_were_made_of(made, rows):
    found = dataset_of_rows(rows, **FILL)
    np.testing.assert_array_equal(found.frames, made.frames)
    np.testing.assert_array_equal(np.asarray(found.agents), made.agents)
    np.testing.assert_array_equal(found.scenes["frame_index_interval"], made.scenes["frame_index_interval"])
    assert len(found.agents) == found.agents.shape[0] == len(made.agents)
    assert len(found.tl_faces) == 0
    for key in (slice(7, 31), slice(31, 7), slice(3, 40, 5), 11, -1, [4, 2], made.agents["yaw"] > 0):
        np.testing.assert_array_equal(found.agents[key], made.agents[key])
    with pytest.raises(IndexError):
        found.agents[len(made.agents)]


def test_the_views_give_the_same_samples_over_rows(made, rows):
    found = pickle.loads(pickle.dumps(dataset_of_rows(rows, host="{log_id}", **FILL)))
    config = make_config()
    np.testing.assert_array_equal(compute_agents_mask(found), compute_agents_mask(made))
    assert bytes(EgoDataset(config, found)[20]["host_id"]).rstrip(b"\0") == b"000000002"
    for view in (EgoDataset, AgentDataset):
        more = {} if view is EgoDataset else {"min_frame_history": 0}
        ours, theirs = view(config, found, **more), view(config, made, **more)
        assert len(ours) == len(theirs) > 0
        for index in range(len(ours)):
            sample, expected = ours[index], theirs[index]
            sample.pop("host_id"), expected.pop("host_id")
            assert_samples_equal(sample, expected)
    scene = AgentDataset(config, found, min_frame_history=0).get_scene_dataset(1)
    assert len(scene) == len(AgentDataset(config, made, min_frame_history=0).get_scene_indices(1))


def test_agents_are_read_when_they_are_asked_for(rows):
    dataset = dataset_of_rows(rows, **FILL)
    asked = []
    real = type(rows).get_many

    class Watched(type(rows)):
        def get_many(self, numbers, columns=None, out=None):
            asked.append((len(numbers), tuple(columns)))
            return real(rows, numbers, columns, out)

    dataset.agents._rows = Watched(rows._source, rows.positions, rows.columns)
    start, stop = dataset.frames["agent_index_interval"][6]
    assert len(dataset.agents[start:stop]) == stop - start
    assert asked == [(1, ("agents",))]


def test_rows_that_were_left_out_end_a_scene_where_gaps_do(rows):
    kept = np.delete(np.arange(len(rows)), [4, 5])
    found = dataset_of_rows(rows.take(kept), max_gap="150ms", **FILL)
    again = dataset_of_rows(rows.take(kept), max_gap=0.15, **FILL)
    np.testing.assert_array_equal(again.scenes, found.scenes)
    assert found.scenes["frame_index_interval"].tolist() == [[0, 4], [4, 10], [10, 15], [15, 24]]
    joined = dataset_of_rows(rows.take(kept), **FILL)
    assert len(joined.scenes) == 3
    assert len(dataset_of_rows(rows.take(0), **FILL).scenes) == 0


def test_rows_that_make_no_frames_are_refused(rows):
    with pytest.raises(UsageError, match="out of order"):
        dataset_of_rows(rows.shuffle(1), **FILL)
    with pytest.raises(UsageError, match="without map and window"):
        dataset_of_rows(rows.window([0, 1]), **FILL)
    with pytest.raises(UsageError, match="no column 'agent'; did you mean agents"):
        dataset_of_rows(rows, agents="agent")
    with pytest.raises(UsageError, match=r"^dataset_of_rows: aegnts: is no field of this version"):
        dataset_of_rows(rows, aegnts="agents")
    with pytest.raises(UsageError, match=r"^dataset_of_rows: max_gap='often': not a length of time"):
        dataset_of_rows(rows, max_gap="often")
    with pytest.raises(UsageError, match="rows have no URI"):
        dataset_of_rows(rows, host="{parent}", **FILL)
