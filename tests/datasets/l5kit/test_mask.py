import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

from logloom.datasets.l5kit import AgentDataset, ChunkedDataset, MaskThresholds, compute_agents_mask, mask
from logloom.errors import DatasetError
from logloom.io.formats.l5kit import AGENT_DTYPE
from logloom.io.formats.l5kit import mask as counting
from tests.datasets.l5kit.scenes_made import make_config, make_dataset, slow_mask


def test_an_agent_counts_its_frames_before_and_after():
    dataset = make_dataset((3,), num_tracks=0)
    dataset.agents = np.zeros(3, AGENT_DTYPE)
    dataset.agents["extent"] = 4, 2, 1.5
    dataset.agents["label_probabilities"][:, 3] = 1  # a car
    dataset.agents["centroid"] = dataset.frames["ego_translation"][:, :2] + 10
    dataset.frames["agent_index_interval"] = [[0, 1], [1, 2], [2, 3]]
    assert compute_agents_mask(dataset).tolist() == [[0, 2], [1, 1], [2, 0]]


def test_each_threshold_ends_runs():
    dataset = make_dataset((30,), num_tracks=8)
    loose = compute_agents_mask(dataset, MaskThresholds(-1.0, 181.0, 1e9, 1e9)).sum()
    for thresholds in (
        MaskThresholds(0.6, 181.0, 1e9, 1e9),
        MaskThresholds(-1.0, 5.0, 1e9, 1e9),
        MaskThresholds(-1.0, 181.0, 1.01, 1e9),
        MaskThresholds(-1.0, 181.0, 1e9, 10.0),
    ):
        assert 0 < compute_agents_mask(dataset, thresholds).sum() < loose


def test_agents_are_what_drives_rides_or_walks():
    """From a car to an animal; the last of the 17 labels is what recognition shouldn't care about."""
    assert np.flatnonzero(counting.are_agents(np.eye(17, dtype=np.float32), 0.5)).tolist() == [*range(3, 16)]


@given(seed=st.integers(0, 2**32), batch=st.sampled_from([1, 20, 10**6]), threads=st.sampled_from([1, 3]))
def test_counts_equal_those_found_agent_by_agent(seed, batch, threads):
    dataset = make_dataset((15, 0, 9, 1), seed=seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counting, "BATCH_ROWS", batch)
        found = compute_agents_mask(dataset, num_threads=threads)
    np.testing.assert_array_equal(found, slow_mask(dataset))


@given(seed=st.integers(0, 2**32), span=st.sampled_from([1, 5, 2**14, 2**63]), scenes=st.integers(1, 5))
def test_agents_are_sorted_by_scene_and_track_whatever_their_ids(seed, span, scenes):
    rng = np.random.default_rng(seed)
    tracks = rng.integers(0, span, 60, dtype=np.uint64) + np.uint64(2**63 - 1)
    scene_of = np.sort(rng.integers(7, 7 + scenes, 60))
    np.testing.assert_array_equal(counting._by_track(tracks, scene_of), np.lexsort((tracks, scene_of)))


@pytest.fixture
def written(tmp_path):
    """A dataset on disk."""
    made = make_dataset((8, 6))
    folder = tmp_path / "made.zarr"
    dataset = ChunkedDataset(folder).initialize(
        num_scenes=len(made.scenes), num_frames=len(made.frames), num_agents=len(made.agents)
    )
    dataset.scenes[:], dataset.frames[:], dataset.agents[:] = made.scenes, made.frames, made.agents
    return folder


def files_of(folder):
    return {p.relative_to(folder) for p in folder.rglob("*")}


def test_a_mask_is_computed_once_and_kept_beside_never_in_the_dataset(written, tmp_path, monkeypatch):
    before = files_of(written)
    dataset = ChunkedDataset(written).open()
    found = mask.agents_mask_of(dataset, MaskThresholds(), tmp_path / "kept")
    assert files_of(written) == before
    monkeypatch.setattr(mask, "compute_agents_mask", lambda *args: pytest.fail("computed again"))
    np.testing.assert_array_equal(mask.agents_mask_of(dataset, MaskThresholds(), tmp_path / "kept"), found)
    for other in (MaskThresholds(0.4), MaskThresholds(yaw_degrees=20.0), MaskThresholds(extent_ratio=2.0)):
        with pytest.raises(pytest.fail.Exception):
            mask.agents_mask_of(dataset, other, tmp_path / "kept")


def test_a_kept_mask_is_not_taken_for_a_dataset_that_changed(written, tmp_path):
    mask.agents_mask_of(ChunkedDataset(written).open(), MaskThresholds(), tmp_path / "kept")
    writable = ChunkedDataset(written).open("r+")
    agents = writable.agents[:]
    agents["label_probabilities"] = 0
    writable.agents[:] = agents
    changed = ChunkedDataset(written).open()
    assert not mask.agents_mask_of(changed, MaskThresholds(), tmp_path / "kept").any()


@pytest.mark.parametrize("damage", [b"", b"\x93NUMPY", None])
def test_a_damaged_kept_mask_is_computed_again(written, tmp_path, damage):
    dataset = ChunkedDataset(written).open()
    found = mask.agents_mask_of(dataset, MaskThresholds(), tmp_path / "kept")
    (path,) = (tmp_path / "kept").rglob("*.npy")
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-9] if damage is None else damage)
    np.testing.assert_array_equal(mask.agents_mask_of(dataset, MaskThresholds(), tmp_path / "kept"), found)


def test_a_cache_that_can_not_be_written_costs_a_warning_only(written, tmp_path, caplog):
    (tmp_path / "file").touch()
    found = mask.agents_mask_of(ChunkedDataset(written).open(), MaskThresholds(), tmp_path / "file")
    np.testing.assert_array_equal(found, compute_agents_mask(ChunkedDataset(written).open()))
    assert "LOGLOOM_CACHE" in caplog.text


def put_mask(folder, name, values):
    group = zarr.open_group(folder, mode="r+", zarr_format=2)
    array = group.create_array(
        f"agents_mask/{name}", shape=values.shape, dtype=values.dtype, chunks=values.shape
    )
    array[:] = values


def test_the_mask_that_a_dataset_carries_is_used_and_one_of_another_length_refused(written):
    counts = np.zeros((len(ChunkedDataset(written).open().agents), 2), np.uint32)
    counts[5] = 10, 1
    put_mask(written, "0.5", counts)
    view = AgentDataset(make_config(), ChunkedDataset(written).open())
    assert view.agents_indices.tolist() == [5]
    other = make_config()
    other["raster_params"]["filter_agents_threshold"] = 0.25
    assert (
        5 not in AgentDataset(other, ChunkedDataset(written).open(), min_frame_history=0).agents_indices[:1]
    )
    put_mask(written, "0.25", np.zeros((3, 2), np.uint32))
    with pytest.raises(DatasetError, match=r"agents_mask/0\.25.*two counts for each"):
        AgentDataset(other, ChunkedDataset(written).open())
