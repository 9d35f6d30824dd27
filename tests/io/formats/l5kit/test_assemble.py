import contextlib
import pickle
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logloom.blocks import Block
from logloom.digests import RowsDigest
from logloom.errors import DatasetError, UsageError
from logloom.io.formats.interface import StagedUnit
from logloom.io.formats.l5kit import dtypes
from logloom.io.formats.l5kit.assemble import make_chunk, plan_assembly
from logloom.io.formats.l5kit.chunked_dataset import ChunkedDataset
from logloom.io.formats.l5kit.dtypes import AGENTS, FRAMES, TL_FACES
from logloom.io.formats.l5kit.mapping import MAPPED_SCHEMA
from logloom.io.formats.l5kit.options import L5KitOptions
from logloom.io.formats.l5kit.reader import L5KitReader
from logloom.io.formats.l5kit.stage import L5KitStageReader
from logloom.io.storage.store import Store
from tests.files import files_in
from tests.io.formats.l5kit.making import OPTIONS, PERIOD, assemble, differences, make_rows, stage
from tests.tier import by_tier

MOST_ROWS = by_tier(25, 60)


@pytest.fixture
def small_chunks(monkeypatch):
    """Chunks of 7 frames and 11 agents, so that few rows make many chunks."""
    for name, rows in (("frames", 7), ("agents", 11), ("tl_faces", 3), ("scenes", 2)):
        kind = dtypes.ARRAYS[name]
        monkeypatch.setitem(dtypes.ARRAYS, name, dtypes.ArrayKind(kind.key, kind.dtype, rows))


def digests_of(blocks):
    digest = RowsDigest(MAPPED_SCHEMA)
    for block in blocks:
        digest.update(block)
    return digest.hexdigests()


def test_a_dataset_gives_back_the_rows_it_was_made_of(store):
    block = make_rows(40)
    folder, plan = assemble(store, stage(store, block, [13, 30]))
    dataset = ChunkedDataset(folder).open()
    np.testing.assert_array_equal(dataset.frames["timestamp"], block.timestamp)
    np.testing.assert_array_equal(dataset.frames["ego_rotation"], block.columns["ego_rotation"])
    np.testing.assert_array_equal(dataset.agents[:], block.columns["agents"].values)
    np.testing.assert_array_equal(dataset.tl_faces[:], block.columns["tl_faces"].values)
    start, stop = dataset.frames[17]["agent_index_interval"]
    np.testing.assert_array_equal(dataset.agents[start:stop], block.columns["agents"][17])
    assert list(differences(str(folder), plan.unit)) == []


@given(
    num_rows=st.integers(1, MOST_ROWS),
    cuts=st.sets(st.integers(1, MOST_ROWS), max_size=MOST_ROWS // 3),
    block_cuts=st.sets(st.integers(1, MOST_ROWS), max_size=MOST_ROWS // 6),
    seed=st.integers(0, 5),
)
def test_units_and_blocks_cut_anywhere_give_the_same_bytes(
    small_chunks, tmp_path_factory, num_rows, cuts, block_cuts, seed
):
    whole, parts = (Store.at(str(tmp_path_factory.mktemp("cut"))) for _ in range(2))
    block = make_rows(num_rows, seed)
    expected, _ = assemble(whole, stage(whole, block, []))
    folder, plan = assemble(parts, stage(parts, block, cuts, block_cuts))
    assert files_in(folder) == files_in(expected)
    assert list(differences(str(folder), plan.unit)) == []
    reader = L5KitReader(folder)
    found = next(iter(reader.blocks(max_bytes=1 << 30)))
    np.testing.assert_array_equal(found.columns["agents"].values, block.columns["agents"].values)
    np.testing.assert_array_equal(found.columns["tl_faces"].shapes, block.columns["tl_faces"].shapes)


def test_the_real_scene_staged_whole_or_in_25_units_comes_back_value_for_value(real_scene, store, tmp_path):
    (block,) = L5KitReader(real_scene).blocks(max_bytes=1 << 30)
    whole, _ = assemble(store, stage(store, block, [], period=None), period=None)
    other = Store.at(str(tmp_path / "other"))
    parts, plan = assemble(other, stage(other, block, range(10, 248, 10), period=None), period=None)
    assert len(plan.unit["parts"]) == 25
    assert files_in(whole) == files_in(parts)
    original, ours = ChunkedDataset(real_scene).open(), ChunkedDataset(whole).open()
    for name in ("frames", "agents", "tl_faces"):
        np.testing.assert_array_equal(getattr(ours, name)[:], getattr(original, name)[:])
    assert ours.scenes["frame_index_interval"].tolist() == [[0, 248]]  # a topic clock has no gaps
    assert ours.scenes[0]["start_time"] == original.frames[0]["timestamp"]
    assert ours.scenes[0]["end_time"] == original.frames[-1]["timestamp"]


def test_chunks_are_as_long_as_the_originals_and_made_of_the_units_they_need():
    units = []
    for at, (frames, agents) in enumerate([(6000, 15000), (6000, 0), (1, 10000)]):
        unit = {
            "rows": {"frames": frames, "agents": agents, "tl_faces": 0},
            "runs": [[0, frames, at * 10, at * 10 + 9]],
        }
        units.append(StagedUnit("drive", "drive.mcap", "all", f"p{at}", f"{at}", frames, unit, {}))
    tasks = plan_assembly(units, OPTIONS, PERIOD).tasks
    frames, agents, faces = (
        [t for t in tasks if getattr(t, "array", "") == name] for name in ("frames", "agents", "tl_faces")
    )
    assert [[(p.start, p.stop) for p in task.pieces] for task in frames] == [
        [(0, 6000), (0, 4000)],
        [(4000, 6000), (0, 1)],
    ]
    assert [p.bases for task in frames for p in task.pieces] == [(0, 0), (15000, 0), (15000, 0), (15000, 0)]
    assert [[(p.start, p.stop) for p in task.pieces] for task in agents] == [
        [(0, 15000), (0, 5000)],
        [(5000, 10000)],
    ]
    assert not faces


def test_a_scene_ends_where_rows_lie_further_apart_than_max_gap(store):
    block = make_rows(30)
    block.columns["timestamp"][12:] += PERIOD  # two periods apart, in the middle of a unit
    block.columns["timestamp"][20:] += PERIOD // 2  # 1.5 periods, at the edge between units
    block.columns["timestamp"][25:] += PERIOD // 2 + 1  # just over 1.5 periods, at an edge
    dataset = ChunkedDataset(assemble(store, stage(store, block, [20, 25]))[0]).open()
    assert dataset.scenes["frame_index_interval"].tolist() == [[0, 12], [12, 25], [25, 30]]
    stamps = block.timestamp
    assert dataset.scenes["start_time"].tolist() == stamps[[0, 12, 25]].tolist()
    assert dataset.scenes["end_time"].tolist() == stamps[[11, 24, 29]].tolist()


def test_max_gap_may_be_given_and_a_topic_clock_has_none_by_default(tmp_path):
    block = make_rows(10)
    block.columns["timestamp"][5:] += 10 * PERIOD
    for name, options, period, scenes in (
        ("long", OPTIONS.model_copy(update={"max_gap": 2 * 10**9}), PERIOD, 1),
        ("short", OPTIONS.model_copy(update={"max_gap": 10**9}), None, 2),
        ("none", OPTIONS, None, 1),
    ):
        store = Store.at(str(tmp_path / name))
        units = stage(store, block, [3], options=options, period=period)
        dataset = ChunkedDataset(assemble(store, units, options=options, period=period)[0]).open()
        assert len(dataset.scenes) == scenes, name


def test_each_log_is_a_scene_of_its_own_with_its_host(store):
    options = L5KitOptions(host="{log_id}", agents="agents", tl_faces="tl_faces", max_gap="1000h")
    units = [u for log in "abc" for u in stage(store, make_rows(4, log_id=log), [2], options=options)]
    folder, plan = assemble(store, units, options=options)
    dataset = ChunkedDataset(folder).open()
    assert dataset.scenes["host"].tolist() == ["a", "b", "c"]
    assert dataset.scenes["frame_index_interval"].tolist() == [[0, 4], [4, 8], [8, 12]]
    assert dataset.frames["agent_index_interval"][-1, 1] == len(dataset.agents)
    assert list(differences(str(folder), plan.unit)) == []


def test_arrays_that_the_recipe_leaves_out_are_empty(store):
    options = L5KitOptions(host="car")
    folder, plan = assemble(store, stage(store, make_rows(5), [], options=options), options=options)
    dataset = ChunkedDataset(folder).open()
    assert len(dataset.agents) == len(dataset.tl_faces) == 0
    assert dataset.frames["agent_index_interval"].tolist() == [[0, 0]] * 5
    assert sorted(p.name for p in (folder / "agents").iterdir()) == [".zarray"]
    assert list(differences(str(folder), plan.unit)) == []


def test_no_units_give_an_empty_dataset(store):
    folder, plan = assemble(store, [])
    assert [len(a) for a in (ChunkedDataset(folder).open().scenes, ChunkedDataset(folder).open().frames)] == [
        0,
        0,
    ]
    assert list(differences(str(folder), plan.unit)) == []
    assert len(L5KitReader(folder)) == 0


def test_units_out_of_order_are_refused(store):
    units = stage(store, make_rows(10), [5])
    with pytest.raises(DatasetError, match="don't come after"):
        plan_assembly(units[::-1], OPTIONS, PERIOD)


def test_a_host_of_17_characters_is_refused_with_its_way_out(store):
    with pytest.raises(
        UsageError, match=r"'a-log-of-17-chars', 17 characters of at most 16.*outputs\.l5kit\.host"
    ):
        stage(store, make_rows(3, log_id="a-log-of-17-chars"), [])
    assert stage(store, make_rows(3, log_id="a-log-of-16-char"), [])


# --- damage ---------------------------------------------------------------------------------------------


@pytest.fixture
def built(store, small_chunks):
    return assemble(store, stage(store, make_rows(40), [9, 21]))


@pytest.mark.parametrize("file", ["frames/1", "agents/2", "traffic_light_faces/0", "scenes/0"])
def test_a_flipped_byte_in_any_chunk_is_found(built, file):
    folder, plan = built
    data = (folder / file).read_bytes()
    found = 0
    step = by_tier(101, 17)
    for offset in range(0, len(data), step):
        damaged = bytearray(data)
        damaged[offset] ^= 0x10
        (folder / file).write_bytes(damaged)
        problems = list(differences(str(folder), plan.unit))
        # No row shows a flip in the padding of the last chunk, nor in some bits of the frame's header.
        assert problems or reads_the_same(folder, file, data), offset
        found += bool(problems)
    assert found > len(data) // step // 2


def reads_the_same(folder, file, data):
    """Whether the array as it lies there has the rows that it has with this chunk."""
    name = {"traffic_light_faces": "tl_faces"}.get(file.split("/")[0], file.split("/")[0])
    damaged = getattr(ChunkedDataset(folder).open(), name)[:]
    now = (folder / file).read_bytes()
    (folder / file).write_bytes(data)
    intact = getattr(ChunkedDataset(folder).open(), name)[:]
    (folder / file).write_bytes(now)
    return damaged.tobytes() == intact.tobytes()


def test_a_flipped_byte_is_placed_in_its_log_and_partition(built):
    folder, plan = built
    metadata = ChunkedDataset(folder).open().frames.metadata
    rows = metadata.decode((folder / "frames" / "1").read_bytes(), "").copy()
    rows[3]["ego_translation"][1] += 1e-9  # frame 10, of the second unit
    (folder / "frames" / "1").write_bytes(metadata.encode(rows))
    (problem,) = differences(str(folder), plan.unit)
    assert "rows 9 to 21 of drive, 9 (9 to 21 of all): the data read back differs" in problem


def test_a_missing_chunk_is_found_and_named(built):
    folder, plan = built
    (folder / "agents" / "1").unlink()
    problems = list(differences(str(folder), plan.unit))
    assert any("agents/1: missing" in problem for problem in problems)


@pytest.mark.parametrize("array", ["traffic_light_faces", "agents_mask/0.5"])
def test_missing_metadata_of_an_array_that_datasets_may_lack_is_found_and_named(built, array):
    folder, plan = built
    (folder / array / ".zarray").unlink()
    text = "\n".join(differences(str(folder), plan.unit))
    assert re.search(rf"{array}(/\.zarray: missing|: its \.zarray is missing)", text), text


def test_swapped_chunks_are_found(built):
    folder, plan = built
    (folder / "frames" / "1").rename(folder / "x")
    (folder / "frames" / "2").rename(folder / "frames" / "1")
    (folder / "x").rename(folder / "frames" / "2")
    assert list(differences(str(folder), plan.unit))


def test_lost_rows_are_found_though_what_is_left_is_whole(built):
    folder, plan = built
    file = folder / "frames" / ".zarray"
    file.write_text(file.read_text().replace('"shape": [\n        40', '"shape": [\n        39'))
    assert any("39 frames, 40 were written" in problem for problem in differences(str(folder), plan.unit))


def test_a_missing_or_short_staged_file_stops_assembly(store):
    units = stage(store, make_rows(10), [])
    plan = plan_assembly(units, OPTIONS, PERIOD)
    path = store.local / units[0].folder / "agents"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DatasetError, match=r"agents: cut short: .*; `logloom repair"):
        [make_chunk(store, task) for task in plan.tasks]
    path.unlink()
    with pytest.raises(DatasetError, match="agents: there is no such file; `logloom repair"):
        [make_chunk(store, task) for task in plan.tasks]


# --- staged units ---------------------------------------------------------------------------------------


@given(offset=st.integers(0, 3 * FRAMES.dtype.itemsize - 1), value=st.integers(0, 255))
def test_damaged_staged_frames_give_rows_or_an_error_but_no_crash(tmp_path_factory, offset, value):
    store = Store.at(str(tmp_path_factory.mktemp("damage")))
    (unit,) = stage(store, make_rows(6), [])
    path = store.local / unit.folder / "frames"
    data = bytearray(path.read_bytes())
    data[offset] = value
    path.write_bytes(data)
    with contextlib.suppress(DatasetError):
        list(L5KitStageReader(store.uri_of(unit.folder), MAPPED_SCHEMA, unit.unit).blocks())


def test_an_empty_block_leaves_no_trace(store):
    assert stage(store, make_rows(0), []) == []
    (unit,) = stage(store, make_rows(4, max_agents=0), [])
    assert not (store.local / unit.folder / "agents").exists()
    assert AGENTS.dtype.itemsize == 116
    assert TL_FACES.dtype.itemsize == 140


def test_a_dataset_reads_as_rows_with_a_log_for_each_scene(store):
    units = [u for log in "ab" for u in stage(store, make_rows(4, seed=ord(log), log_id=log), [2])]
    reader = pickle.loads(pickle.dumps(L5KitReader(assemble(store, units)[0])))
    assert len(reader) == 8
    blocks = list(reader.blocks())
    assert [block.log_id for block in blocks] == ["000000000", "000000001"]
    assert reader[5]["log_id"] == "000000001"
    np.testing.assert_array_equal(reader[5]["agents"], make_rows(4, seed=ord("b")).columns["agents"][1])
    assert isinstance(blocks[0], Block)
