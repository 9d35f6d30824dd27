import contextlib
import json
import pickle
import shutil
import threading

import fsspec
import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

from logloom.errors import DatasetError, StorageError, UsageError
from logloom.io.formats.l5kit import (
    AGENT_DTYPE,
    FORMAT_VERSION,
    FRAME_DTYPE,
    LABELS,
    SCENE_DTYPE,
    TL_FACE_DTYPE,
    TL_FACE_LABELS,
    ChunkedDataset,
)
from logloom.io.formats.l5kit.array_reader import ChunkedArray
from logloom.io.formats.l5kit.dtypes import AGENTS, ARRAYS
from logloom.io.formats.l5kit.metadata import ArrayMetadata
from logloom.io.formats.l5kit.zarr_dtype import SubarrayStruct
from logloom.io.storage.lru_cache import LruCache
from logloom.io.storage.store import Store
from tests.files import files_in
from tests.io.formats.l5kit.making import assemble, make_rows, random_structs, stage

NUM_ROWS, CHUNK_ROWS = 23, 5


@pytest.fixture(scope="module")
def rows():
    return random_structs(np.random.default_rng(0), AGENTS.dtype, NUM_ROWS)


@pytest.fixture(scope="module")
def array(rows, tmp_path_factory):
    """23 rows in chunks of 5."""
    root = tmp_path_factory.mktemp("array")
    write_array(root / "agents", rows, ArrayMetadata(NUM_ROWS, CHUNK_ROWS, AGENTS.dtype))
    return ChunkedArray(Store.at(str(root)), "agents", LruCache(10**6, len))


def write_array(folder, rows, metadata):
    folder.mkdir(parents=True)
    (folder / ".zarray").write_bytes(metadata.to_bytes())
    for index in range(metadata.num_chunks):
        start = index * metadata.chunk_rows
        (folder / str(index)).write_bytes(metadata.encode(rows[start : start + metadata.chunk_rows]))


def test_initialize_makes_arrays_to_fill_by_assignment_and_append(tmp_path):
    rng = np.random.default_rng(1)
    agents = random_structs(rng, AGENTS.dtype, 30)
    made = ChunkedDataset(tmp_path / "new.zarr").initialize(num_agents=10)
    assert [len(a) for a in (made.scenes, made.frames, made.agents, made.tl_faces)] == [0, 0, 10, 0]
    made.agents[:] = agents[:10]
    made.agents.append(agents[10:])
    assert made.root.attrs["format_version"] == FORMAT_VERSION
    assert made.root.attrs["tl_face_labels"] == TL_FACE_LABELS
    dataset = ChunkedDataset(tmp_path / "new.zarr").open()
    np.testing.assert_array_equal(dataset.agents[:], agents)
    again = ChunkedDataset(tmp_path / "new.zarr").open("r+")
    again.agents[4:5] = agents[:1]
    assert ChunkedDataset(tmp_path / "new.zarr").open().agents[4] == agents[0]


def test_the_real_scene_opens_with_the_types_of_the_reference(real_scene):
    dataset = ChunkedDataset(str(real_scene)).open()
    assert [len(a) for a in (dataset.scenes, dataset.frames, dataset.agents, dataset.tl_faces)] == [
        1,
        248,
        20802,
        3216,
    ]
    assert dataset.scenes.dtype == SCENE_DTYPE
    assert dataset.frames.dtype == FRAME_DTYPE
    assert dataset.agents.dtype == AGENT_DTYPE
    assert dataset.tl_faces.dtype == TL_FACE_DTYPE
    assert dataset.scenes[0]["host"] == "host-a101"
    assert dataset.agents.shape == (20802,)
    assert dataset.root.attrs["labels"] == LABELS


def test_the_real_scene_reads_the_same_through_zarr_itself(real_scene):
    dataset = ChunkedDataset(real_scene).open()
    for name, kind in ARRAYS.items():
        np.testing.assert_array_equal(getattr(dataset, name)[:], dataset.root[kind.key][:])


def test_our_metadata_equals_the_originals_to_the_byte(real_scene):
    for kind in ARRAYS.values():
        data = (real_scene / kind.key / ".zarray").read_bytes()
        assert ArrayMetadata.from_bytes(data, "here").to_bytes() == data
        rows = ChunkedDataset(real_scene).open().root[kind.key].shape[0]
        assert ArrayMetadata(rows, kind.chunk_rows, kind.dtype).to_bytes() == data


indices = st.integers(-NUM_ROWS, NUM_ROWS - 1)
steps = st.integers(-7, 7).filter(bool)
slices = st.builds(
    slice, st.none() | st.integers(-30, 30), st.none() | st.integers(-30, 30), st.none() | steps
)


@given(
    key=indices
    | slices
    | st.lists(indices, max_size=6)
    | st.sampled_from(["centroid", "yaw", ["yaw", "track_id"], ...])
    | st.lists(st.booleans(), min_size=NUM_ROWS, max_size=NUM_ROWS)
)
def test_indexing_gives_what_numpy_gives(array, rows, key):
    expected = (
        rows[np.array(key, bool if key and isinstance(key[0], bool) else int)]
        if is_list_of_rows(key)
        else rows[key]
    )
    found = array[key]
    assert type(found) is type(expected)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


def is_list_of_rows(key):
    return isinstance(key, list) and not (key and isinstance(key[0], str))


def test_fields_of_slices_of_fields_agree(array, rows):
    np.testing.assert_array_equal(array["centroid"][3:9], rows[3:9]["centroid"])
    np.testing.assert_array_equal(array[3:9]["centroid"], rows["centroid"][3:9])


def test_what_is_given_out_is_a_copy(array, rows):
    array[3]["yaw"] = 99
    array[0:5]["yaw"][:] = 99
    np.testing.assert_array_equal(array[:], rows)


@pytest.mark.parametrize("key", [NUM_ROWS, -NUM_ROWS - 1, [NUM_ROWS], [2**64 - 1]])
def test_a_row_outside_is_an_index_error(array, key):
    with pytest.raises(IndexError):
        array[key]


def test_an_unknown_field_is_a_key_error_naming_the_known_ones(array):
    with pytest.raises(KeyError, match=r"no field 'speed'.*centroid"):
        array["speed"]
    with pytest.raises(TypeError):
        array[2.5]


def test_an_array_pickles_into_workers_and_reads_from_many_threads(array, rows):
    copy = pickle.loads(pickle.dumps(array))
    wrong = []

    def read():
        for index in np.random.default_rng().integers(0, NUM_ROWS, 200).tolist():
            if copy[index] != rows[index]:
                wrong.append(index)

    threads = [threading.Thread(target=read) for _ in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not wrong


def test_cached_chunks_need_no_file_any_more(real_scene, tmp_path):
    copy = shutil.copytree(real_scene, tmp_path / "copy.zarr")
    cached, uncached = ChunkedDataset(copy).open(), ChunkedDataset(copy).open(cached=False)
    first = cached.agents[0], uncached.agents[0]
    cached.agents[20001], uncached.agents[20001]  # another chunk takes the decompressed one's place
    (copy / "agents" / "0").unlink()
    assert cached.agents[0] == first[0]
    with pytest.raises(DatasetError, match="agents/0: missing"):
        uncached.agents[0]


def test_a_missing_chunk_is_an_error_not_zeros(real_scene, tmp_path):
    copy = shutil.copytree(real_scene, tmp_path / "copy.zarr")
    (copy / "agents" / "1").unlink()
    dataset = ChunkedDataset(copy).open()
    assert len(dataset.agents[:20000]) == 20000
    with pytest.raises(DatasetError, match="agents/1: missing; the array has 20802 rows"):
        dataset.agents[:]


def test_a_missing_dataset_or_array_is_named(tmp_path, real_scene):
    with pytest.raises(DatasetError, match=r"nowhere/scenes/\.zarray: missing"):
        ChunkedDataset(tmp_path / "nowhere").open()
    copy = shutil.copytree(real_scene, tmp_path / "copy.zarr")
    shutil.rmtree(copy / "frames")
    with pytest.raises(DatasetError, match=r"frames/\.zarray: missing"):
        ChunkedDataset(copy).open()
    with pytest.raises(UsageError, match="in memory"):
        ChunkedDataset().open()
    with pytest.raises(StorageError, match="outside"):
        ChunkedDataset(copy, key="../copy.zarr").open()


def test_a_dataset_of_the_first_version_has_no_lights(real_scene, tmp_path):
    copy = shutil.copytree(real_scene, tmp_path / "copy.zarr")
    shutil.rmtree(copy / "traffic_light_faces")
    dataset = ChunkedDataset(copy).open()
    assert len(dataset.tl_faces) == 0
    assert dataset.tl_faces.dtype == TL_FACE_DTYPE


def test_a_truncated_chunk_never_reaches_the_decoder(real_scene):
    metadata = ChunkedDataset(real_scene).open().frames.metadata
    data = (real_scene / "frames" / "0").read_bytes()
    for size in (0, 7, 15, 16, len(data) // 2, len(data) - 1):
        with pytest.raises(DatasetError, match="frames/0"):
            metadata.decode(data[:size], "frames/0")
    with pytest.raises(DatasetError, match="truncated or damaged"):
        metadata.decode(data + b"x", "frames/0")


@given(data=st.data())
def test_a_damaged_chunk_gives_rows_or_an_error_but_no_crash(rows, data):
    metadata = ArrayMetadata(CHUNK_ROWS, CHUNK_ROWS, AGENTS.dtype)
    chunk = bytearray(metadata.encode(rows[:CHUNK_ROWS]))
    for _ in range(data.draw(st.integers(1, 4))):
        chunk[data.draw(st.integers(0, min(len(chunk), 64) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(DatasetError):
        assert len(metadata.decode(bytes(chunk), "agents/0")) == CHUNK_ROWS


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"zarr_format": 3}, "zarr format 3"),
        ({"shape": [-1]}, "makes no sense"),
        ({"shape": [True]}, "makes no sense"),
        ({"shape": [3, 4]}, "one-dimensional"),
        ({"chunks": [0]}, "makes no sense"),
        ({"chunks": [1 << 40]}, "a chunk would take"),
        ({"compressor": {"id": "pickle"}}, "known are blosc and none"),
        ({"filters": [{"id": "delta"}]}, "known are blosc and none"),
        ({"dtype": "<f8"}, "no struct"),
        ({"dtype": []}, "no struct"),
        ({"dtype": [["a", "|O"]]}, "no struct"),
        ({"dtype": [["a", "<f8", [1 << 30, 1 << 30]]]}, "no struct"),
        ({"dtype": [["a", "<f8"], ["a", "<f8"]]}, "no struct"),
        ({"dtype": [["a", [["b", "<f8"]]]]}, "no struct"),
        ({"dtype": [7]}, "no struct"),
    ],
)
def test_metadata_that_makes_no_sense_is_refused_before_anything_is_allocated(change, message):
    good = json.loads(ArrayMetadata(3, 5, AGENTS.dtype).to_bytes())
    with pytest.raises(DatasetError, match=message):
        ArrayMetadata.from_bytes(json.dumps(good | change).encode(), "x/.zarray")


@given(
    junk=st.binary(max_size=40)
    | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(lambda v: json.dumps(v).encode())
)
def test_junk_in_the_place_of_metadata_is_refused(junk):
    with pytest.raises(DatasetError, match=r"x/\.zarray"):
        ArrayMetadata.from_bytes(junk, "x/.zarray")


def test_uncompressed_chunks_are_read_too(rows, tmp_path):
    write_array(tmp_path / "agents", rows, ArrayMetadata(NUM_ROWS, 8, AGENTS.dtype, compressed=False))
    np.testing.assert_array_equal(ChunkedArray(Store.at(str(tmp_path)), "agents")[:], rows)


def test_a_dataset_opens_from_any_file_system(store):
    block = make_rows(12)
    folder, _ = assemble(store, stage(store, block, [5]))
    memory = fsspec.filesystem("memory")
    for name, data in files_in(folder).items():
        memory.pipe_file(f"/l5kit-test/out.zarr/{name}", data)
    there = ChunkedDataset("memory://l5kit-test/out.zarr").open()
    here = ChunkedDataset(folder).open()
    for name, kind in ARRAYS.items():
        np.testing.assert_array_equal(getattr(there, name)[:], getattr(here, name)[:])
        np.testing.assert_array_equal(there.root[kind.key][:], getattr(here, name)[:])
    keyed = ChunkedDataset("memory://l5kit-test", key="out.zarr").open()
    assert keyed.frames[3] == here.frames[3]
    memory.rm("/l5kit-test", recursive=True)


def test_rows_of_zeros_are_written_too(tmp_path):
    made = ChunkedDataset(tmp_path / "new.zarr").initialize(num_agents=10)
    made.agents[:] = np.zeros(10, AGENTS.dtype)
    assert not ChunkedDataset(tmp_path / "new.zarr").open().agents["yaw"].any()


def test_registering_our_type_leaves_zarrs_own_structs_alone(tmp_path):
    ChunkedDataset(tmp_path / "new.zarr").initialize()
    plain = np.array([(1, 2.0)], [("a", "<i4"), ("b", "<f8")])
    group = zarr.open_group(tmp_path / "other.zarr", mode="w", zarr_format=2)
    array = group.create_array("x", shape=(1,), dtype=plain.dtype)
    array[:] = plain
    assert not isinstance(array.metadata.dtype, SubarrayStruct)
    np.testing.assert_array_equal(zarr.open_group(tmp_path / "other.zarr", mode="r")["x"][:], plain)


def test_a_scene_dataset_counts_from_its_own_rows(store):
    units = [u for log in ("a", "b") for u in stage(store, make_rows(9, seed=ord(log), log_id=log), [4])]
    dataset = ChunkedDataset(assemble(store, units)[0]).open()
    scene = dataset.get_scene_dataset(1)
    assert scene.scenes["frame_index_interval"].tolist() == [[0, 9]]
    assert scene.scenes[0]["host"] == "b"
    block = make_rows(9, seed=ord("b"), log_id="b")
    np.testing.assert_array_equal(scene.agents, block.columns["agents"].values)
    np.testing.assert_array_equal(scene.tl_faces, block.columns["tl_faces"].values)
    offsets = block.columns["agents"].offsets
    np.testing.assert_array_equal(
        scene.frames["agent_index_interval"], np.stack([offsets[:-1], offsets[1:]], 1)
    )
    again = scene.get_scene_dataset(0)
    np.testing.assert_array_equal(again.frames, scene.frames)
    for wrong in (2, -1):
        with pytest.raises(ValueError, match=f"scene {wrong} of 2"):
            dataset.get_scene_dataset(wrong)


def test_the_summary_counts_what_there_is(real_scene):
    text = str(ChunkedDataset(real_scene).open())
    assert "248" in text
    assert "20802" in text
    assert str(ChunkedDataset()).startswith("in memory")
