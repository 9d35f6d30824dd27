"""Compressed shards: their rows at random, in one copy for all processes, and what is refused."""

import bz2
import gzip
import lzma
import multiprocessing
import pathlib
import pickle
import re
import shutil
import tempfile
import types

import pytest
import zstandard

import logloom.datasets
from logloom.errors import DatasetError, LogloomError, StorageError
from logloom.io.formats.tar import TarReader, compression
from tests.datasets.tar.test_tar import make

PACK = {
    ".tar.gz": gzip.compress,
    ".tgz": gzip.compress,
    ".tar.zst": zstandard.compress,
    ".tar.bz2": bz2.compress,
    ".tar.xz": lzma.compress,
}


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """The folder that shards are unpacked into."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    return tmp_path / "tmp"


def copies(cache):
    return sorted(path.name for path in cache.glob("logloom-shards-*/*"))


@pytest.mark.parametrize("suffix", PACK)
def test_compressed_shards_open_as_plain_ones_do(tmp_path, cache, suffix):
    plain, packed = tmp_path / "plain", tmp_path / "packed"
    for folder in (plain, packed):
        folder.mkdir()
    for n in range(2):
        make(plain / f"train-{n}.tar", range(n * 10, n * 10 + 10))
        (packed / f"train-{n}{suffix}").write_bytes(PACK[suffix]((plain / f"train-{n}.tar").read_bytes()))
    wanted = logloom.datasets.open(plain)
    for uri in (packed, f"{packed}/train-{{0..1}}{suffix}"):
        rows = logloom.datasets.open(uri)
        assert [rows[n] for n in (13, 2, 19, -1)] == [wanted[n] for n in (13, 2, 19, -1)]
        assert rows.index["log_id"].tolist() == wanted.index["log_id"].tolist()
    assert logloom.datasets.open(packed / f"train-1{suffix}")[3] == wanted[13]
    assert len(copies(cache)) == 2  # one a shard, however often it was opened


def test_worker_processes_read_the_copy_that_is_there(tmp_path, cache):
    path = tmp_path / "a.tgz"
    path.write_bytes(gzip.compress(pathlib.Path(make(tmp_path / "a.tar", range(5))).read_bytes()))
    reader = TarReader(path)
    first = reader[0]
    again = pickle.loads(pickle.dumps(reader))
    assert again[0] == first
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(reader.row, range(5)) == [reader[n] for n in range(5)]
    assert len(copies(cache)) == 1


def test_a_shard_that_changed_is_unpacked_again(tmp_path, cache):
    path = tmp_path / "a.tgz"
    for start in (0, 50):
        make(tmp_path / "a.tar", range(start, start + 5))
        path.write_bytes(gzip.compress((tmp_path / "a.tar").read_bytes()))
        assert TarReader(path)[0]["__key__"] == f"{start:06d}"
    assert len(copies(cache)) == 2


@pytest.mark.parametrize("suffix", PACK)
def test_a_compressed_shard_that_was_cut_or_damaged_is_named_and_leaves_nothing(tmp_path, cache, suffix):
    packed = PACK[suffix](pathlib.Path(make(tmp_path / "a.tar", range(30))).read_bytes())
    path = tmp_path / f"a{suffix}"
    half = len(packed) // 2
    for bad in (packed[:half], packed[:half] + bytes(40) + packed[half + 40 :]):
        path.write_bytes(bad)
        with pytest.raises(LogloomError, match=re.escape(str(path))):
            len(TarReader(path))
    assert not [name for name in copies(cache) if name.endswith(".partial")]


def test_a_bomb_is_given_up_at_the_limit(tmp_path, cache, monkeypatch):
    monkeypatch.setattr(compression, "MAX_BYTES", 10 << 20)
    path = tmp_path / "bomb.tgz"
    with gzip.open(path, "wb") as file:
        for _ in range(30):
            file.write(bytes(1 << 20))
    with pytest.raises(DatasetError, match=r"bomb\.tgz: unpacks to more than 10485760 bytes"):
        len(TarReader(path))
    assert copies(cache) == []


def test_a_disk_without_room_is_left_alone(tmp_path, cache, monkeypatch):
    path = tmp_path / "a.tgz"
    path.write_bytes(gzip.compress(pathlib.Path(make(tmp_path / "a.tar", range(5))).read_bytes()))
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: types.SimpleNamespace(free=1000))
    with pytest.raises(StorageError, match=r"no room to unpack it .* set TMPDIR"):
        len(TarReader(path))
    assert copies(cache) == []


def test_the_folder_of_another_is_not_trusted(tmp_path, cache, monkeypatch):
    path = tmp_path / "a.tgz"
    path.write_bytes(gzip.compress(pathlib.Path(make(tmp_path / "a.tar", range(5))).read_bytes()))
    (tmp_path / "elsewhere").mkdir()
    (cache / f"logloom-shards-{compression.os.getuid()}").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageError, match="another user's"):
        len(TarReader(path))
