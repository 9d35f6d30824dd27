"""Rows staged, assembled and read again: every type of column, cut anywhere."""

import itertools
import pickle

import fsspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logloom.blocks import Block, concatenate
from logloom.errors import DatasetError, UsageError
from logloom.io.formats.interface import UnitContext
from logloom.io.formats.zarr import ZarrReader
from logloom.io.formats.zarr import stage as staging
from logloom.io.formats.zarr.assemble import make_file, plan_assembly
from logloom.io.formats.zarr.layout import ZarrOptions
from logloom.io.formats.zarr.stage import ZarrStageReader, ZarrStageWriter
from logloom.io.storage.store import Store
from logloom.schema import Schema
from tests.files import files_in
from tests.io.formats.rows import assert_equal_values, schemas
from tests.io.formats.zarr.making import (
    ALL_TYPES,
    SCHEMA,
    STORED,
    assemble,
    assert_equal_columns,
    differences,
    make_block,
    part,
    stage,
)
from tests.tier import by_tier, examples

MOST_ROWS = by_tier(24, 60)


def joined(blocks: list[Block]) -> Block:
    names = blocks[0].columns
    return Block(
        blocks[0].log_id,
        blocks[0].partition,
        0,
        {name: concatenate([block.columns[name] for block in blocks]) for name in names},
    )


@pytest.mark.parametrize(("zarr_format", "compress"), STORED)
def test_every_type_of_column_comes_back_bit_for_bit(store, zarr_format, compress):
    block = make_block(24, schema=ALL_TYPES)
    options = ZarrOptions(format=zarr_format, compress=compress, rows_per_chunk=7)
    folder, plan = assemble(store, stage(store, block, [5, 13], ALL_TYPES), ALL_TYPES, options)
    reader = ZarrReader(folder)
    assert reader.schema == ALL_TYPES
    assert_equal_columns(joined(list(reader.blocks())), block)
    assert_equal_columns(joined(list(reader.blocks(max_bytes=10_000))), block)
    for row in (0, 12, 13, 23, -1):
        found, expected = reader[row], block.row(row % 24, ALL_TYPES)
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            assert_equal_values(found[name], value)
    assert list(differences(str(folder), plan.unit)) == []


@settings(max_examples=examples(0.5))
@given(
    num_rows=st.integers(1, MOST_ROWS),
    cuts=st.sets(st.integers(1, MOST_ROWS), max_size=MOST_ROWS // 3),
    block_cuts=st.sets(st.integers(1, MOST_ROWS), max_size=MOST_ROWS // 6),
    zarr_format=st.sampled_from([2, 3]),
    seed=st.integers(0, 5),
)
def test_units_and_blocks_cut_anywhere_give_the_same_bytes(
    tmp_path_factory, num_rows, cuts, block_cuts, zarr_format, seed
):
    whole, parts = (Store.at(str(tmp_path_factory.mktemp("cut"))) for _ in range(2))
    block = make_block(num_rows, seed)
    options = ZarrOptions(format=zarr_format, rows_per_chunk=8)
    expected, _ = assemble(whole, stage(whole, block), options=options)
    folder, plan = assemble(parts, stage(parts, block, cuts, block_cuts=block_cuts), options=options)
    assert files_in(folder) == files_in(expected)
    assert list(differences(str(folder), plan.unit)) == []


@given(schema=schemas(), num_rows=st.integers(0, 30), cut=st.integers(0, 30), seed=st.integers(0, 9))
def test_any_schema_survives_staging_and_assembly(tmp_path_factory, schema, num_rows, cut, seed):
    store = Store.at(str(tmp_path_factory.mktemp("any")))
    block = make_block(num_rows, seed, schema)
    folder, _ = assemble(store, stage(store, block, [cut] if cut else [], schema), schema)
    blocks = list(ZarrReader(folder).blocks(max_bytes=500))
    assert sum(map(len, blocks)) == num_rows
    if num_rows:
        assert_equal_columns(joined(blocks), block)


def test_a_staged_unit_reads_back_however_its_blocks_were_cut(tmp_path):
    block = make_block(2100)
    for number, edges in enumerate([(), (1, 5, 1024, 1500), (1023, 1025)]):
        (folder := tmp_path / f"{number}").mkdir()
        writer = ZarrStageWriter(folder, SCHEMA, UnitContext("car/drive", "", "p3", "all"))
        for start, stop in itertools.pairwise([0, *edges, 2100]):
            writer.append(part(block, start, stop))
        unit = writer.close()
        assert files_in(folder) == files_in(tmp_path / "0"), edges
    reader = pickle.loads(pickle.dumps(ZarrStageReader(str(folder), SCHEMA, unit)))
    blocks = list(reader.blocks(max_bytes=50_000))
    assert len(blocks) > 5
    assert [b.first_row for b in blocks] == np.cumsum([0, *map(len, blocks[:-1])]).tolist()
    assert {b.partition for b in blocks} == {"p3"}
    assert_equal_columns(joined(blocks), block)
    for row in (0, 1023, 1024, -1):
        for name, value in block.row(row % 2100, SCHEMA).items():
            assert_equal_values(reader[row][name], value)
    assert list(reader.row(5, ["speed.age", "on"])) == ["log_id", "timestamp", "on", "speed.age"]


def test_small_arrays_share_slabs_and_big_ones_have_files(tmp_path):
    writer = ZarrStageWriter(tmp_path, SCHEMA, UnitContext("a", "", "p", "all"))
    writer.append(make_block(3))
    writer.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [staging.SMALL, "big.bin", "camera.front.bin", "image.bin", "lidar.points.bin", "note.bin"]
        + [f"objects.{field}.bin" for field in ("x", "pose", "label", "inner.flag", "inner.id")]
    )


def test_batches_hold_random_rows_of_all_logs_in_the_order_asked_for(store):
    logs = {name: make_block(40, seed, log_id=name) for seed, name in enumerate(("a", "b/c"))}
    units = [unit for block in logs.values() for unit in stage(store, block, [9])]
    reader = pickle.loads(pickle.dumps(ZarrReader(assemble(store, units)[0])))
    rows = np.random.default_rng(0).integers(-80, 80, 50)
    names = [*SCHEMA.columns, "speed.age", "lidar.points.available"]
    batch = reader.get_many(rows, names)
    single = [reader.row(int(row), names) for row in rows]
    assert batch["log_id"] == [row["log_id"] for row in single]
    for name in ("timestamp", "speed", "ego.rotation", "pose", "big", "speed.age", "lidar.points.available"):
        assert batch[name].tobytes() == np.array([row[name] for row in single]).tobytes()
    assert batch["note"] == [row["note"] for row in single]
    assert batch["camera.front"] == [row["camera.front"] for row in single]
    for name in ("lidar.points", "image", "objects"):
        values, lengths = batch[name]
        assert values.tobytes() == b"".join(row[name].tobytes() for row in single)
        assert len(lengths) == 50
    together = reader.__getitems__(rows)
    for one, row in zip(together, rows, strict=True):
        for name, value in reader[int(row)].items():
            assert_equal_values(one[name], value)


def test_a_batch_fills_arrays_that_are_given(store):
    reader = ZarrReader(assemble(store, stage(store, make_block(20)))[0])
    out = {"ego.rotation": np.zeros((4, 3, 3)), "speed": np.zeros(4, "<f4")}
    batch = reader.get_many([3, 1, 19, 3], ["ego.rotation", "speed"], out=out)
    assert batch["speed"] is out["speed"]
    assert out["ego.rotation"].tobytes() == reader.get_many([3, 1, 19, 3])["ego.rotation"].tobytes()


def test_rows_that_a_user_changes_stay_as_they_are_for_others(store):
    reader = ZarrReader(assemble(store, stage(store, make_block(5)))[0])
    before = reader[2]["ego.rotation"].copy()
    reader[2]["ego.rotation"][...] = 7
    for block in reader.blocks():
        block.columns["ego.rotation"][...] = 7
    reader.get_many([2, 3])["ego.rotation"][...] = 7
    assert reader[2]["ego.rotation"].tobytes() == before.tobytes()


def test_a_dataset_reads_from_an_object_store(store):
    folder, plan = assemble(store, stage(store, make_block(40), [13]))
    memory = fsspec.filesystem("memory")
    for name, data in files_in(folder).items():
        memory.pipe_file(f"/zarr-datasets/whole.zarr/{name}", data)
    uri = "memory://zarr-datasets/whole.zarr"
    assert_equal_columns(joined(list(ZarrReader(uri).blocks())), make_block(40))
    assert ZarrReader(uri)[7]["note"] == ZarrReader(folder)[7]["note"]
    assert list(differences(uri, plan.unit)) == []
    memory.rm("/zarr-datasets/whole.zarr/car/drive/speed/c/0")
    assert all("speed/c/0" in line for line in differences(uri, plan.unit))
    assert list(differences(uri, plan.unit))


def test_random_rows_of_a_remote_array_are_asked_for_together(store, monkeypatch):
    folder, _ = assemble(store, stage(store, make_block(300)), options=ZarrOptions(compress="none"))
    memory = fsspec.filesystem("memory")
    for name, data in files_in(folder).items():
        memory.pipe_file(f"/zarr-remote/whole.zarr/{name}", data)
    monkeypatch.setattr("logloom.io.storage.files.REMOTE_GAP", 0)
    asked = []
    answer = type(memory).cat_ranges

    def counted(fs, paths, starts, ends, **more):
        asked.append(len(paths))
        return answer(fs, paths, starts, ends, **more)

    monkeypatch.setattr(type(memory), "cat_ranges", counted)
    rows = [250, 3, 120, 3]
    found = ZarrReader("memory://zarr-remote/whole.zarr").get_many(rows, ["big"])
    np.testing.assert_array_equal(found["big"], ZarrReader(folder).get_many(rows, ["big"])["big"])
    assert asked == [3]


def test_rows_beyond_the_end_are_refused(store):
    reader = ZarrReader(assemble(store, stage(store, make_block(5)))[0])
    for row in (5, -6):
        with pytest.raises(IndexError, match="of 5"):
            reader[row]
        with pytest.raises(IndexError, match="of 5"):
            reader.get_many([0, row])


def test_many_shards_hold_one_array(store, monkeypatch):
    monkeypatch.setattr("logloom.io.formats.zarr.layout.SHARD_BYTES", 3000)
    monkeypatch.setattr("logloom.io.formats.zarr.layout.CHUNK_BYTES", 500)
    block = make_block(300)
    units = stage(store, block, [1, 77, 200])
    folder, plan = assemble(store, units)
    assert len(list((folder / "car/drive/speed.age/c").iterdir())) > 0
    assert len(list((folder / "car/drive/big/c").iterdir())) == 300  # 3200 bytes a row
    assert len(list((folder / "car/drive/lidar.points/c").iterdir())) > 1
    assert_equal_columns(joined(list(ZarrReader(folder).blocks())), block)
    assert list(differences(str(folder), plan.unit)) == []
    rows = np.arange(300)[::-7]
    single = [block.row(int(row), SCHEMA)["speed"] for row in rows]
    assert ZarrReader(folder).get_many(rows)["speed"].tobytes() == np.array(single).tobytes()
    backwards = [make_file(store, pickle.loads(pickle.dumps(task))) for task in plan.tasks[::-1]]
    assert all((folder / name).read_bytes() == data for name, data in backwards)


def test_a_log_whose_name_is_a_folder_of_another_is_refused(store):
    units = [u for name in ("a", "a/b") for u in stage(store, make_block(2, log_id=name))]
    with pytest.raises(UsageError, match="'a' is also a folder"):
        plan_assembly(units, SCHEMA, ZarrOptions())


def test_units_out_of_order_are_refused(store):
    units = stage(store, make_block(9), [4])
    with pytest.raises(DatasetError, match="don't come after"):
        plan_assembly(units[::-1], SCHEMA, ZarrOptions())


def test_a_dataset_of_no_rows_opens(store):
    folder, plan = assemble(store, [])
    assert len(ZarrReader(folder)) == 0
    assert list(ZarrReader(folder).blocks()) == []
    assert list(differences(str(folder), plan.unit)) == []


def test_values_of_another_type_are_refused(tmp_path):
    schema = Schema({"speed": SCHEMA.columns["ego.rotation"]})
    block = make_block(3, schema=schema)
    writer = ZarrStageWriter(
        tmp_path, Schema({"speed": SCHEMA.columns["speed"]}), UnitContext("a", "", "p", "all")
    )
    with pytest.raises(UsageError, match="speed"):
        writer.append(block)
