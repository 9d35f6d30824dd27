"""Datasets and logs in zip archives: read in place, by any of their names, and never written."""

import os
import pathlib
import pickle
import threading
import zipfile

import fsspec
import numpy as np
import pytest

import logloom.datasets
import logloom.io.formats.table as tt
from logloom.errors import DatasetError, LogloomError, UsageError
from logloom.io.formats.bags import DatasetReader, DatasetWriter, decoders, encoders
from logloom.io.formats.foreign import open_foreign
from logloom.io.logs.match import group_logs
from logloom.io.logs.opening import open_log
from logloom.io.storage.filesystems import absolute_uri, filesystem
from logloom.io.storage.store import Store
from tests.datasets.tar.test_tar import make
from tests.io.formats.table.making import drive

STORED, DEFLATED = zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED


def pack(folder, archive, compression=STORED):
    """Zips what lies in a folder, without entries for folders."""
    with zipfile.ZipFile(archive, "w", compression) as file:
        for path in sorted(pathlib.Path(folder).rglob("*")):
            if path.is_file():
                file.write(path, path.relative_to(folder).as_posix())
    return archive


@pytest.fixture(scope="module", params=[STORED, DEFLATED], ids=["stored", "deflated"])
def packed(request, tmp_path_factory):
    """A folder of datasets and the archive that it was packed into."""
    folder = tmp_path_factory.mktemp("packed")
    root = folder / "made"
    (root / "shards").mkdir(parents=True)
    make(root / "shards/train-0.tar", range(10))
    tt.write_table(f"{root}/table", drive(num_logs=2, rows=8), index="speed")
    with DatasetWriter(root / "bags", {"x": "array", "y": "utf8"}, encoders) as writer:
        for n in range(6):
            writer.append({"x": np.full(3, n), "y": f"text {n}"})
    return root, pack(root, folder / "all.zip", request.param)


@pytest.mark.parametrize("name", ["shards", "shards/train-0.tar", "table", "bags"])
@pytest.mark.parametrize("form", ["zip://{0}::{1}", "zip:///{0}/::file://{1}", "relative", "memory"])
def test_datasets_open_in_archives_as_in_folders(packed, name, form, monkeypatch):
    root, archive = packed
    uri = form.format(name, archive)
    if form == "relative":
        monkeypatch.chdir(archive.parent)
        uri = f"zip://{name}::{archive.name}"
    elif form == "memory":
        fsspec.filesystem("memory").pipe_file("/zips/all.zip", archive.read_bytes())
        uri = f"zip://{name}::memory://zips/all.zip"
    wanted, found = logloom.datasets.open(root / name), logloom.datasets.open(uri)
    assert len(found) == len(wanted)
    for number in (3, 0, len(wanted) - 1):
        np.testing.assert_equal(found[number], wanted[number])
    np.testing.assert_equal(pickle.loads(pickle.dumps(found))[1], wanted[1])


def test_readers_of_single_formats_take_archives(packed):
    root, archive = packed
    loader = tt.row_loader(tt.read_index(f"zip://table::{archive}"), check=True)
    wanted = tt.row_loader(tt.read_index(f"{root}/table"))
    np.testing.assert_equal(loader.get_many([5, 0, 15], "lidar.*"), wanted.get_many([5, 0, 15], "lidar.*"))
    reader = DatasetReader(f"zip://bags::{archive}", decoders)
    assert [point["y"] for point in reader] == [f"text {n}" for n in range(6)]
    assert open_foreign(f"zip://shards::{archive}").kind == "webdataset"


def test_forked_processes_and_threads_read_one_archive_side_by_side(packed):
    root, archive = packed
    rows, wanted = logloom.datasets.open(f"zip://table::{archive}"), logloom.datasets.open(root / "table")
    rows[0]
    with logloom.datasets.Loader(rows.select("speed"), batch=16, workers=2, shuffle=False) as loader:
        np.testing.assert_equal(next(loader)["speed"], [wanted[n]["speed"] for n in range(16)])
    wrong = []

    def read(start):
        wrong.extend(n for n in range(start, 16) if rows[n]["camera.front"] != wanted[n]["camera.front"])

    threads = [threading.Thread(target=read, args=(start,)) for start in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_members_are_read_by_ranges_in_any_order(tmp_path):
    data = np.random.default_rng(0).integers(0, 20, 300_000).astype("u1").tobytes()
    for compression in (STORED, DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        with zipfile.ZipFile(tmp_path / "a.zip", "w", compression) as file:
            file.writestr("folder/data", data)
        fs, path = filesystem(f"zip://folder/data::{tmp_path}/a.zip")
        for start, stop in ((0, 10), (200_000, 200_500), (5, 300_000), (299_990, 400_000), (7, 7)):
            assert fs.cat_file(path, start, stop) == data[start:stop]
        assert fs.cat_ranges([path] * 2, [9, 0], [12, 4]) == [data[9:12], data[:4]]
        with fs.open(path) as file:
            file.seek(-5, os.SEEK_END)
            assert (file.read(), file.tell()) == (data[-5:], len(data))
        os.unlink(tmp_path / "a.zip")


def test_names_join_and_list_below_a_chained_uri(tmp_path):
    (tmp_path / "made/a/b").mkdir(parents=True)
    for name in ("a/x", "a/b/y", "z"):
        (tmp_path / "made" / name).write_text(name)
    folder = tmp_path / "odd! 100%"
    folder.mkdir()
    archive = pack(tmp_path / "made", folder / "x.zip")
    for uri in (f"zip://::{archive}", f"zip://a::{archive}", f"zip://a/::file://{archive}"):
        store = Store.at(uri)
        inside = "" if uri.startswith("zip://::") else "a/"
        assert store.names() == (["a", "z"] if not inside else ["b", "x"])
        assert store.read(f"{'' if inside else 'a/'}b/y") == b"a/b/y"
        assert store.size("nothing") is None
        assert not store.exists("nothing")
        assert store.names("nothing") == []
        assert Store.at(store.uri) == store
    assert absolute_uri("zip://a::x.zip", str(folder)) == absolute_uri(f"zip://a::{archive}")
    fs, path = filesystem(f"zip://**::{archive}")
    assert [name.rpartition("!/")[2] for name in fs.glob(path) if fs.isfile(name)] == ["a/b/y", "a/x", "z"]


def test_an_archive_that_is_replaced_is_read_anew(tmp_path):
    for text in (b"one", b"other"):
        with zipfile.ZipFile(tmp_path / "a.zip", "w") as file:
            file.writestr("x", text)
        assert Store.at(f"zip://::{tmp_path}/a.zip").read("x") == text


def test_logs_are_found_and_open_in_archives(logs_of, tmp_path):
    logs = logs_of(1.0, 2)
    archive = pack(logs, tmp_path / "logs.zip", DEFLATED)
    path = sorted(logs.glob("*.mcap"))[0]
    summaries = [open_log([uri]).summary for uri in (f"zip://{path.name}::{archive}", str(path))]
    assert summaries[0].topics == summaries[1].topics
    packed, plain = (
        group_logs([f"zip://{path.stem[:-1]}*.mcap::{archive}"]),
        group_logs([f"{path.parent}/*.mcap"]),
    )
    assert [log.log_id for log in packed] == [log.log_id for log in plain]
    assert [len(log.uris) for log in packed] == [len(log.uris) for log in plain]


@pytest.mark.parametrize("archive", ["all.zip", "new.zip"])
def test_writing_into_an_archive_is_refused_with_a_clear_word(packed, archive):
    root = packed[0]
    before = packed[1].read_bytes()
    uri = f"zip://out::{packed[1].with_name(archive)}"
    rows = [{"log_id": "a", "timestamp": 1, "x": 2}]

    def write_bags():
        with DatasetWriter(uri, {"x": "int"}, encoders) as writer:
            writer.append({"x": 1})

    for write in (lambda: tt.write_table(uri, rows), write_bags, lambda: Store.at(uri).create("a", b"")):
        with pytest.raises(LogloomError, match=r"only read|none is written"):
            write()
    fs, path = filesystem(f"zip://table/table.json::{packed[1]}")
    for change in (lambda: fs.open(path, "wb"), lambda: fs.pipe_file(path, b""), lambda: fs.rm(path)):
        with pytest.raises(UsageError, match="only read"):
            change()
    assert packed[1].read_bytes() == before
    assert sorted(path.name for path in root.parent.iterdir()) == ["all.zip", "made"]


def test_what_is_no_archive_or_not_in_it_is_named(packed, tmp_path):
    _, archive = packed
    with pytest.raises(DatasetError, match=r"none\.zip: there is no such archive"):
        logloom.datasets.open(f"zip://table::{tmp_path}/none.zip")
    (tmp_path / "cut.zip").write_bytes(archive.read_bytes()[:-30])
    with pytest.raises(DatasetError, match=r"cut\.zip: is no zip archive, or was cut short or damaged"):
        logloom.datasets.open(f"zip://table::{tmp_path}/cut.zip")
    with pytest.raises(LogloomError, match=r"all\.zip!/tabel: nothing is there"):
        logloom.datasets.open(f"zip://tabel::{archive}")
    with pytest.raises(UsageError, match=r"write zip://inner/path::file:///data/drives\.zip"):
        logloom.datasets.open("zip://table")


def test_damaged_encrypted_and_impossible_members_are_errors_that_name_them(tmp_path):
    data = b"some text, many times over; " * 9999
    path = tmp_path / "a.zip"
    for compression in (STORED, DEFLATED):
        with zipfile.ZipFile(path, "w", compression) as file:
            file.writestr("x", data)
        good = path.read_bytes()
        central = good.rindex(b"PK\x01\x02")
        encrypted = bytearray(good)
        encrypted[central + 8] |= 1
        encrypted[6] |= 1
        larger = bytearray(good)
        larger[central + 24 : central + 28] = (1 << 30).to_bytes(4, "little")
        scrambled = bytearray(good)
        scrambled[0:4] = b"XXXX"
        for bad in (encrypted, larger, scrambled):
            path.write_bytes(bad)
            with pytest.raises(DatasetError, match=r"a\.zip: member x: "):
                Store.at(f"zip://::{path}").read("x")


def test_names_that_lead_out_of_an_archive_are_not_there(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as file:
        for name in ("../up", "/top", "a/../../b", "good/x"):
            file.writestr(name, b"")
    fs, path = filesystem(f"zip://::{tmp_path}/a.zip")
    assert [name.rpartition("!/")[2] for name in fs.find(path)] == ["good/x"]
