import dataclasses
import multiprocessing
import pickle
import shutil
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logloom.errors import DatasetError, LogloomError, UsageError
from logloom.io.formats.l5kit import ChunkedDataset
from logloom.io.formats.l5kit.dtypes import AGENTS, ARRAYS
from tests.io.formats.l5kit.making import assemble, make_rows, random_structs, stage


@pytest.fixture
def folder(store):
    units = [u for log in "ab" for u in stage(store, make_rows(30, seed=ord(log), log_id=log), [10])]
    return assemble(store, units)[0]


@pytest.fixture
def archive(folder, tmp_path):
    """The dataset zipped as zarr's ZipStore does: nothing compressed, no folder around it."""
    path = tmp_path / "x.zarr.zip"
    with zipfile.ZipFile(path, "w") as made:
        for file in sorted(p for p in folder.rglob("*") if p.is_file()):
            made.write(file, file.relative_to(folder))
    return path


def assert_equal(found, expected):
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(found, name)[:], getattr(expected, name)[:])


@pytest.mark.parametrize("cached", [True, False])
def test_a_zipped_dataset_reads_as_its_folder(archive, folder, cached):
    zipped, plain = ChunkedDataset(str(archive)).open(cached=cached), ChunkedDataset(folder).open()
    assert_equal(zipped, plain)
    assert_equal(zipped.get_scene_dataset(1), plain.get_scene_dataset(1))
    np.testing.assert_array_equal(zipped.root["frames"][:], plain.frames[:])
    assert_equal(pickle.loads(pickle.dumps(zipped)), plain)


def test_a_folder_zipped_whole_is_found_by_its_key(folder, tmp_path):
    path = shutil.make_archive(str(tmp_path / "made"), "zip", folder.parent, folder.name)
    assert_equal(ChunkedDataset(path, key=folder.name).open(), ChunkedDataset(folder).open())
    with pytest.raises(DatasetError, match=r"made\.zip!/scenes/\.zarray: missing"):
        ChunkedDataset(path).open()


def test_an_archive_opens_from_any_file_system(archive, folder):
    import fsspec

    memory = fsspec.filesystem("memory")
    memory.pipe_file("/zips/x.zarr.zip", archive.read_bytes())
    assert_equal(ChunkedDataset("memory://zips/x.zarr.zip").open(), ChunkedDataset(folder).open())
    memory.rm("/zips", recursive=True)


def _sums(dataset, queue):
    queue.put([float(dataset.agents[n::7]["centroid"].sum()) for n in range(5)])


def test_processes_that_were_forked_read_one_archive_side_by_side(tmp_path, monkeypatch):
    monkeypatch.setitem(ARRAYS, "agents", dataclasses.replace(ARRAYS["agents"], chunk_rows=200))
    rows = random_structs(np.random.default_rng(0), AGENTS.dtype, 450)
    made = ChunkedDataset(tmp_path / "x.zarr").initialize()
    made.agents.append(rows)
    path = shutil.make_archive(str(tmp_path / "x.zarr"), "zip", tmp_path / "x.zarr")
    dataset = ChunkedDataset(path).open(cached=False)
    dataset.agents[0]  # the archive is open when the processes come
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    workers = [context.Process(target=_sums, args=(dataset, queue)) for _ in range(3)]
    for worker in workers:
        worker.start()
    expected = [float(rows[n::7]["centroid"].sum()) for n in range(5)]
    assert [queue.get(timeout=60) for _ in workers] == [expected] * 3
    for worker in workers:
        worker.join()


def test_an_archive_is_not_written_into(archive):
    before = archive.read_bytes()
    for write in (lambda d: d.open("r+"), lambda d: d.initialize()):
        with pytest.raises(UsageError, match="an archive is only read"):
            write(ChunkedDataset(archive))
    assert archive.read_bytes() == before


def test_what_is_no_archive_or_lost_a_chunk_is_named(archive, tmp_path):
    (tmp_path / "no.zip").write_bytes(b"PK no archive")
    with pytest.raises(DatasetError, match=r"no\.zip: is no zip archive"):
        ChunkedDataset(tmp_path / "no.zip").open()
    with pytest.raises(DatasetError, match=r"nowhere\.zip: there is no such archive"):
        ChunkedDataset(tmp_path / "nowhere.zip").open()
    without = tmp_path / "without.zip"
    with zipfile.ZipFile(archive) as old, zipfile.ZipFile(without, "w") as new:
        for name in old.namelist():
            if name != "frames/0":
                new.writestr(name, old.read(name))
    with pytest.raises(DatasetError, match=r"without\.zip!/frames/0: missing"):
        ChunkedDataset(without).open().frames[:]


@given(data=st.data())
def test_a_damaged_archive_gives_rows_or_an_error_of_ours(archive, tmp_path, data):
    good = bytearray(archive.read_bytes())
    for _ in range(data.draw(st.integers(1, 5))):
        good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    bad = tmp_path / "bad.zip"
    bad.write_bytes(good[: data.draw(st.integers(0, len(good))) or len(good)])
    try:
        dataset = ChunkedDataset(bad).open()
        for name in ARRAYS:
            getattr(dataset, name)[:]
    except LogloomError as error:
        assert "bad.zip" in str(error)  # noqa: PT017
