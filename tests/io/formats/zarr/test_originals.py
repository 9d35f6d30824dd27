"""zarr-python and xarray read what we write, with no help from us."""

import pathlib

import numpy as np
import pytest
import xarray
import zarr

from logloom.io.formats.zarr.columns import arrays_of
from logloom.io.formats.zarr.layout import ZarrOptions
from logloom.io.rows.flat_lists import flat_columns, flat_types
from logloom.io.storage.store import Store
from tests.io.formats.zarr.making import ALL_TYPES, SCHEMA, STORED, assemble, make_block, stage
from tests.tier import by_tier

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*(Zarr V3 specification|Consolidated metadata).*", "ignore:Numcodecs codecs"
)


@pytest.fixture(scope="module", params=[3, 2])
def written(request, tmp_path_factory):
    store = Store.at(str(tmp_path_factory.mktemp("written")))
    blocks = [make_block(300, 1), make_block(5, 2, log_id="other")]
    units = [unit for block in blocks for unit in stage(store, block, [111])]
    options = ZarrOptions(format=request.param, rows_per_chunk=16)
    return assemble(store, units, options=options)[0], blocks


def expected_array(block, kind, ctype):
    values = flat_columns(block.columns, ALL_TYPES.all)[kind.column]
    if kind.part == "offsets":
        return values.offsets
    if kind.part == "shapes":
        return values.shapes
    values = values.values if ctype.is_ragged else values
    for name in kind.path:
        values = values[name]
    return values


@pytest.mark.parametrize(("zarr_format", "compress"), STORED[: by_tier(2, len(STORED))])
def test_zarr_reads_every_array_bit_for_bit(store, zarr_format, compress):
    block = make_block(40, schema=ALL_TYPES)
    options = ZarrOptions(format=zarr_format, compress=compress, rows_per_chunk=16)
    folder, _ = assemble(store, stage(store, block, [7], ALL_TYPES), ALL_TYPES, options)
    group = zarr.open_group(folder, mode="r")["car/drive"]
    kinds = arrays_of(ALL_TYPES)
    assert set(group.array_keys()) == set(kinds)
    for name, kind in kinds.items():
        if kind.column == "timestamp":
            want = block.timestamp
        else:
            want = expected_array(block, kind, flat_types(ALL_TYPES.all)[kind.column])
        found = group[name][...]
        assert found.dtype == want.dtype, name
        assert found.shape == want.shape, name
        assert found.tobytes() == np.ascontiguousarray(want).tobytes(), name


def test_metadata_is_consolidated_for_the_tree_and_for_each_log(written):
    folder, _ = written
    for path, keys in ((None, {"car", "other"}), ("car/drive", set(arrays_of(SCHEMA)))):
        group = zarr.open_consolidated(folder, path=path or "")
        assert group.metadata.consolidated_metadata is not None
        assert set(group.keys()) == keys


def test_zarr_copies_the_tree_without_loss(written, tmp_path):
    folder, blocks = written
    source = zarr.open_group(folder, mode="r")
    names = {name for name, node in source.members(max_depth=None) if isinstance(node, zarr.Array)}
    assert names == {f"{block.log_id}/{name}" for block in blocks for name in arrays_of(SCHEMA)}


def test_format_3_lays_many_chunks_in_one_shard(written):
    folder, _ = written
    array = zarr.open_group(folder, mode="r")["car/drive/speed"]
    if array.metadata.zarr_format == 3:
        assert (array.chunks, array.shards) == ((16,), (304,))
        assert len(list((folder / "car/drive/speed/c").iterdir())) == 1
    else:
        assert (array.chunks, array.shards) == ((16,), None)
        assert len([p for p in (folder / "car/drive/speed").iterdir() if p.name[0] != "."]) == 19


def test_xarray_opens_a_log_with_its_times_units_and_dimensions(written):
    folder, (block, _) = written
    log = xarray.open_zarr(folder, group="car/drive")
    assert log.attrs["log_id"] == "car/drive"
    assert log.sizes["timestamp"] == 300
    assert log.timestamp.dtype == np.dtype("<M8[ns]")
    np.testing.assert_array_equal(log.timestamp.values.astype(np.int64), block.timestamp)
    assert set(log.coords) == {"timestamp"}
    assert log.speed.attrs["units"] == "m s-1"
    assert log.speed.attrs["long_name"] == "of the rear axle"
    assert log.speed.dims == ("timestamp",)
    assert log["ego.rotation"].dims == ("timestamp", "ego.rotation:1", "ego.rotation:2")
    assert log["lidar.points"].dims == ("lidar.points:values", "lidar.points:1")
    assert log["lidar.points.offsets"].dims == ("lidar.points:bounds",)
    assert log["objects.x"].dims == ("objects:values",)
    assert log["image.shapes"].dims[0] == "timestamp"


def test_xarray_gives_equal_values_zeros_and_nans_among_them(written):
    folder, (block, _) = written
    log = xarray.open_zarr(folder, group="car/drive")
    for name in ("speed", "ego.rotation", "on", "big", "speed.age", "speed.available"):
        found, want = log[name].values, block.columns[name]
        assert found.dtype == want.dtype
        assert found.tobytes() == want.tobytes(), name
    points, bounds = block.columns["lidar.points"], log["lidar.points.offsets"].values
    row = log["lidar.points"][bounds[17] : bounds[18]].values
    assert row.tobytes() == points[17].tobytes()
    chosen = log.speed.sel(timestamp=log.timestamp[123])
    assert chosen.values.tobytes() == block.columns["speed"][123].tobytes()


def test_xarray_opens_the_tree(written):
    folder, blocks = written
    tree = xarray.open_datatree(folder, engine="zarr")
    assert {node.path for node in tree.leaves} == {f"/{block.log_id}" for block in blocks}
    assert tree["other"].sizes["timestamp"] == 5


def test_the_package_named_zarr_does_not_hide_the_library():
    import logloom.io.formats.zarr

    assert pathlib.Path(zarr.__file__).parent != pathlib.Path(logloom.io.formats.zarr.__file__).parent
    assert hasattr(zarr, "open_group")
