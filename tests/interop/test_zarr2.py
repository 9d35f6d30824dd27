"""The original's own zarr reads what we write, and we read what it writes."""

import json

import numpy as np

from logloom.io.formats.l5kit import FORMAT_VERSION, LABELS, TL_FACE_LABELS, ChunkedDataset
from logloom.io.formats.l5kit.dtypes import ARRAYS
from logloom.io.formats.l5kit.reader import L5KitReader
from logloom.io.storage.store import Store
from tests.io.formats.l5kit.making import assemble, make_rows, stage

# Reads a dataset and keeps its arrays as .npy files, which every numpy reads.
READ = """
import json, sys, numpy, zarr
group = zarr.open_group(sys.argv[1], mode="r")
for name in ("scenes", "frames", "agents", "traffic_light_faces"):
    numpy.save(sys.argv[2] + "/" + name + ".npy", group[name][:])
print(json.dumps({"version": zarr.__version__, "attrs": dict(group.attrs)}))
"""
# Writes a dataset as the original does: groups made with zarr, filled by append.
WRITE = """
import sys, numpy, zarr
group = zarr.open_group(sys.argv[2], mode="w")
for name, rows in (("scenes", 10000), ("frames", 10000), ("agents", 20000), ("traffic_light_faces", 10000)):
    values = numpy.load(sys.argv[1] + "/" + name + ".npy")
    array = group.require_dataset(name, dtype=values.dtype, chunks=(rows,), shape=(0,))
    array.append(values)
"""


def read_by_zarr2(zarr2, folder, where):
    where.mkdir(exist_ok=True)
    said = json.loads(zarr2(READ, folder, where))
    assert said["version"].startswith("2.")
    return {name: np.load(where / f"{kind.key}.npy") for name, kind in ARRAYS.items()}, said["attrs"]


def check_equal(dataset, arrays):
    for name, expected in arrays.items():
        found = getattr(dataset, name)[:]
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)


def test_the_real_scene_reads_the_same_here_and_under_zarr_2(zarr2, shared_data, tmp_path):
    scene = shared_data / "l5kit" / "single_scene.zarr"
    arrays, _ = read_by_zarr2(zarr2, scene, tmp_path / "read")
    check_equal(ChunkedDataset(scene).open(), arrays)
    assert len(arrays["agents"]) == 20802


def test_zarr_2_reads_what_we_assemble(zarr2, tmp_path):
    store = Store.at(str(tmp_path))
    units = [u for log in "ab" for u in stage(store, make_rows(300, seed=ord(log), log_id=log), [100])]
    folder, _ = assemble(store, units)
    arrays, attrs = read_by_zarr2(zarr2, folder, tmp_path / "read")
    assert attrs == {"format_version": FORMAT_VERSION, "labels": LABELS, "tl_face_labels": TL_FACE_LABELS}
    check_equal(ChunkedDataset(folder).open(), arrays)
    np.testing.assert_array_equal(
        arrays["agents"],
        np.concatenate([make_rows(300, seed=ord(log)).columns["agents"].values for log in "ab"]),
    )


def test_the_real_scene_assembled_reads_under_zarr_2_as_the_original(zarr2, shared_data, tmp_path):
    scene = shared_data / "l5kit" / "single_scene.zarr"
    (block,) = L5KitReader(scene).blocks(max_bytes=1 << 30)
    store = Store.at(str(tmp_path))
    folder, _ = assemble(store, stage(store, block, range(10, 248, 10), period=None), period=None)
    ours, _ = read_by_zarr2(zarr2, folder, tmp_path / "ours")
    original, _ = read_by_zarr2(zarr2, scene, tmp_path / "original")
    for name in ("frames", "agents", "tl_faces"):
        np.testing.assert_array_equal(ours[name], original[name])


def test_we_read_what_zarr_2_writes(zarr2, tmp_path):
    store = Store.at(str(tmp_path))
    folder, _ = assemble(store, stage(store, make_rows(50), []))
    arrays, _ = read_by_zarr2(zarr2, folder, tmp_path / "read")
    zarr2(WRITE, tmp_path / "read", tmp_path / "theirs.zarr")
    check_equal(ChunkedDataset(tmp_path / "theirs.zarr").open(), arrays)
    for kind in ARRAYS.values():
        theirs = (tmp_path / "theirs.zarr" / kind.key / ".zarray").read_bytes()
        assert (folder / kind.key / ".zarray").read_bytes() == theirs


def test_zarr_2_reads_what_initialize_and_append_wrote(zarr2, tmp_path):
    rows = make_rows(20).columns["agents"].values
    ChunkedDataset(tmp_path / "new.zarr").initialize(num_agents=5).agents.append(rows)
    arrays, attrs = read_by_zarr2(zarr2, tmp_path / "new.zarr", tmp_path / "read")
    np.testing.assert_array_equal(arrays["agents"][5:], rows)
    assert not arrays["agents"][:5]["yaw"].any()
    assert attrs["format_version"] == FORMAT_VERSION


ZIP = """
import sys, numpy, zarr
store = zarr.ZipStore(sys.argv[2], mode="w")
zarr.copy_store(zarr.DirectoryStore(sys.argv[1]), store)
store.close()
"""


def test_we_read_what_the_zip_store_of_zarr_2_writes(zarr2, tmp_path):
    store = Store.at(str(tmp_path))
    folder, _ = assemble(store, stage(store, make_rows(300), [100]))
    zarr2(ZIP, folder, tmp_path / "x.zarr.zip")
    plain = ChunkedDataset(folder).open()
    check_equal(ChunkedDataset(tmp_path / "x.zarr.zip").open(), {n: getattr(plain, n)[:] for n in ARRAYS})
