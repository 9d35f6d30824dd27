import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from logloom.errors import DatasetError, LogReadError
from logloom.io.formats.l5kit import dtypes, mask
from logloom.io.formats.l5kit.chunked_dataset import ChunkedDataset
from logloom.io.formats.l5kit.mask_chunks import open_mask
from logloom.io.formats.l5kit.options import L5KitOptions
from logloom.io.formats.l5kit.reader import L5KitReader
from logloom.io.formats.l5kit.rows import read_blocks, rows_of
from logloom.io.storage.store import Store
from tests.datasets.l5kit.scenes_made import make_dataset, slow_mask
from tests.files import files_in
from tests.io.formats.l5kit.making import OPTIONS, assemble, differences, make_rows, stage
from tests.tier import by_tier

LONGEST = by_tier(9, 20)  # scenes, in frames


@pytest.fixture
def small_steps(monkeypatch):
    """Chunks of 11 agents, and 2 frames at a time beyond them, so that few rows make many."""
    kind = dtypes.ARRAYS["agents"]
    monkeypatch.setitem(dtypes.ARRAYS, "agents", dtypes.ArrayKind(kind.key, kind.dtype, 11))
    monkeypatch.setattr(mask, "MARGIN_FRAMES", 2)


def logs_of(dataset):
    """A block for each scene."""
    for scene, (start, stop) in enumerate(dataset.scenes["frame_index_interval"].tolist()):
        if stop > start:
            yield from read_blocks(rows_of(dataset), start, stop, f"log-{scene}", "all", "made", 1 << 30)


def with_masks(*probabilities):
    return OPTIONS.model_copy(update={"masks": probabilities})


@given(
    lengths=st.lists(st.integers(0, LONGEST), min_size=1, max_size=4).filter(any),
    cuts=st.sets(st.integers(1, LONGEST), max_size=by_tier(3, 6)),
    seed=st.integers(0, 2**32),
)
def test_units_cut_anywhere_carry_the_mask_of_their_whole_scenes(
    small_steps, tmp_path_factory, lengths, cuts, seed
):
    made = make_dataset(lengths, seed=seed)
    whole, parts = (Store.at(str(tmp_path_factory.mktemp("cut"))) for _ in range(2))
    blocks = list(logs_of(made))
    expected, _ = assemble(whole, [unit for block in blocks for unit in stage(whole, block, [])])
    folder, plan = assemble(parts, [unit for block in blocks for unit in stage(parts, block, cuts)])
    assert files_in(folder) == files_in(expected)
    dataset = ChunkedDataset(folder).open()
    np.testing.assert_array_equal(open_mask(dataset, "0.5")[:], slow_mask(made))
    assert plan.unit["masks"] == {"0.5": len(made.agents)}
    assert list(differences(str(folder), plan.unit)) == []


def test_the_real_scene_carries_the_originals_mask(shared_data, real_scene, store):
    (block,) = L5KitReader(real_scene).blocks(max_bytes=1 << 30)
    folder, plan = assemble(store, stage(store, block, range(10, 248, 10), period=None), period=None)
    expected = np.load(shared_data / "l5kit" / "expected_agents_mask.npy")
    dataset = ChunkedDataset(folder).open()
    np.testing.assert_array_equal(open_mask(dataset, "0.5")[:], expected)
    assert {p.name for p in (folder / "agents_mask" / "0.5").iterdir()} == {".zarray", "0.0", "1.0"}
    assert list(differences(str(folder), plan.unit)) == []


def test_there_is_a_mask_for_each_probability_and_none_where_none_is_wanted(store):
    (block,) = logs_of(make_dataset((60,)))
    units = stage(store, block, [])
    folder, plan = assemble(store, units, options=with_masks(0.25, 0.5))
    dataset = ChunkedDataset(folder).open()
    low, high = (open_mask(dataset, name)[:].sum() for name in ("0.25", "0.5"))
    assert low > high > 0
    assert open_mask(dataset, "0.75") is None
    assert list(plan.unit["masks"]) == ["0.25", "0.5"]
    bare, plan = assemble(store, units, "bare.zarr", options=with_masks())
    assert not (bare / "agents_mask").exists()
    assert list(differences(str(bare), plan.unit)) == []


def test_a_dataset_without_agents_carries_an_empty_mask(store):
    folder, plan = assemble(store, stage(store, make_rows(3, max_agents=0), []))
    assert len(open_mask(ChunkedDataset(folder).open(), "0.5")) == 0
    assert list(differences(str(folder), plan.unit)) == []


@pytest.mark.parametrize("damage", ["changed", "lost", "cut", "no array", "shorter"])
def test_a_mask_that_is_not_as_it_was_written_is_found(store, damage):
    (block,) = logs_of(make_dataset((15,)))
    folder, plan = assemble(store, stage(store, block, [6]))
    metadata, chunk = (folder / "agents_mask" / "0.5" / name for name in (".zarray", "0.0"))
    if damage == "changed":
        array = open_mask(ChunkedDataset(folder).open(), "0.5")
        rows = array[:]
        rows[3, 1] += 1
        chunk.write_bytes(array.metadata.encode(rows))
    elif damage == "lost":
        chunk.unlink()
    elif damage == "cut":
        chunk.write_bytes(chunk.read_bytes()[:-5])
    elif damage == "no array":
        metadata.unlink()
    else:
        said = json.loads(metadata.read_bytes())
        metadata.write_bytes(json.dumps(said | {"shape": [4, 2]}).encode())
    (problem,) = differences(str(folder), plan.unit)
    assert "agents_mask/0.5" in problem
    if damage == "changed":
        assert "agent 3" in problem


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"shape": [5]}, "rows of"),
        ({"chunks": [5, 1]}, "rows of"),
        ({"dtype": "<f4"}, "no type of integers"),
        ({"dtype": [["a", "<f8"]]}, "no type of integers"),
        ({"order": "F"}, "rows of"),
        ({"dimension_separator": "../"}, "rows of"),
        ({"zarr_format": 3}, "zarr format 3"),
        ({"chunks": [1 << 40, 2]}, "a chunk would take"),
    ],
)
def test_metadata_of_another_array_is_refused(store, change, message):
    (block,) = logs_of(make_dataset((4,)))
    folder, _ = assemble(store, stage(store, block, []))
    path = folder / "agents_mask" / "0.5" / ".zarray"
    path.write_bytes(json.dumps(json.loads(path.read_bytes()) | change).encode())
    with pytest.raises(DatasetError, match=message):
        open_mask(ChunkedDataset(folder).open(), "0.5")


def test_a_chunk_reads_no_more_frames_around_it_than_its_tracks_last():
    dataset = make_dataset((2000,), num_tracks=4)
    # Of each track a frame is missing at a time, and another never comes back after it.
    frames = np.repeat(np.arange(2000), np.diff(dataset.frames["agent_index_interval"], axis=1)[:, 0])
    dataset.agents["track_id"] += (frames // 150).astype(np.uint64) * np.uint64(8)
    taken = []

    def read(name, start, stop):
        taken.append(stop - start if name == "frames" else 0)
        return rows_of(dataset)(name, start, stop)

    start = int(dataset.frames["agent_index_interval"][1000, 0])
    found = mask.mask_of_rows(read, [0, 2000], start, start + 40, mask.MaskThresholds(), "made")
    assert sum(taken) < 400
    np.testing.assert_array_equal(found, mask.compute_agents_mask(dataset)[start : start + 40])


def test_a_track_twice_in_a_row_is_refused_while_its_log_is_known(store):
    (block,) = logs_of(make_dataset((6,)))
    agents = block.columns["agents"]
    first = int(agents.offsets[4])
    agents.values["track_id"][first + 1] = agents.values["track_id"][first]
    track, stamp = agents.values["track_id"][first], block.timestamp[4]
    with pytest.raises(LogReadError, match=rf"log-0 .*track {track} is twice .*at {stamp}.*masks"):
        stage(store, block, [])
    (store.local / "bare").mkdir()
    bare = Store.at(str(store.local / "bare"))
    folder, _ = assemble(bare, stage(bare, block, [], options=with_masks()), options=with_masks())
    assert len(ChunkedDataset(folder).open().agents) == len(agents.values)


@pytest.mark.parametrize("masks", [[1.5], [-0.1], [0.5, 0.5], [float("nan")], ["half"], 0.5])
def test_masks_that_make_no_sense_are_refused(masks):
    with pytest.raises(ValidationError, match="masks"):
        L5KitOptions(masks=masks)
    assert L5KitOptions().masks == (0.5,)
    assert L5KitOptions(masks=[]).masks == ()
