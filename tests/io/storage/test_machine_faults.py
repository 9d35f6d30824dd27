"""What the machine or a store refuses is a StorageError in every reader, and never damage or fewer rows."""

import errno
import gzip
import io
import os
import tarfile
import types

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import logloom.io.formats.table as tt
from logloom.errors import LogReadError, StorageError
from logloom.io.formats.annotations.files import load, read_names
from logloom.io.formats.bags.files import PathFile
from logloom.io.formats.table.index.files import read_part
from logloom.io.formats.tar import stream
from logloom.io.logs.files.ranges import LogFile
from logloom.io.logs.interface import OpenOptions
from logloom.io.logs.rosbag2.db3 import Db3File
from logloom.io.logs.table_files import files
from logloom.io.storage.remote import retries
from logloom.io.storage.store import Store
from logloom.pipelines.plan.plan import plan_build
from logloom.recipe import Recipe
from logloom.testing.processes import in_fork
from tests import faulty
from tests.descriptors import no_more_files
from tests.io.formats.table.making import drive
from tests.io.logs.rosbag2.test_rosbag2 import db3_file
from tests.io.logs.tables.test_tables import SUFFIXES, poses, write


def broken(*arguments, **options):
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def refused(read):
    """What the reading of something raises where no file can be opened; in a process of its own."""
    read()  # so that all modules are there

    def try_it():
        with no_more_files(), pytest.raises(StorageError) as raised:
            read()
        return str(raised.value)

    text = in_fork(try_it)
    assert text.endswith(os.strerror(errno.EMFILE))
    return text


# --- logs -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_table_of_a_log_that_can_not_be_opened_is_no_damaged_one(tmp_path, suffix):
    path = str(write(poses(), tmp_path / f"pose{suffix}"))
    assert path in refused(lambda: files.table_file(path, OpenOptions()).schema)


def test_a_plan_that_may_skip_logs_ends_where_the_disk_fails_to_read_one(tmp_path, monkeypatch):
    for name in ("drive-1", "drive-2"):
        (tmp_path / name).mkdir()
        write(poses(), tmp_path / name / "pose.parquet")
    text = f"""
name: poses
logs: [{tmp_path}/drive-*]
clock: {{rate: 10}}
columns: {{x: {{topic: /pose, field: tx_m}}}}
on_error: skip
outputs: {{tar: {{}}}}
"""
    recipe, opened = Recipe.from_yaml(text, source="test"), pa.OSFile
    assert not plan_build(recipe, str(tmp_path / "root")).unreadable
    monkeypatch.setattr(pa, "OSFile", lambda path: broken() if b"drive-2" in path else opened(path))
    with pytest.raises(StorageError, match=r"drive-2/pose\.parquet: Input/output error"):
        plan_build(recipe, str(tmp_path / "root"))


def scanned(tmp_path):
    path = str(db3_file(tmp_path))
    container = Db3File(LogFile(path), OpenOptions(on_error="salvage"))
    return path, container, container.scan()


def test_a_rosbag2_file_that_can_not_be_opened_has_lost_nothing(tmp_path):
    path, container, index = scanned(tmp_path)
    assert len(index.stretches)
    assert not index.lost
    assert path in refused(container.scan)
    assert path in refused(lambda: container.decode(index.stretches[0], memoryview(b"")))


def test_a_rosbag2_file_whose_disk_fails_while_it_is_scanned_has_lost_nothing(tmp_path, monkeypatch):
    path, container, _ = scanned(tmp_path)
    monkeypatch.setattr("logloom.io.logs.rosbag2.db3._settled", failing_rows)
    with pytest.raises(StorageError, match=r"bag\.db3: disk I/O error"):
        container.scan()
    os.unlink(path)
    with pytest.raises(LogReadError, match="there is no such file"):
        container.scan()


def failing_rows(found):
    import apsw

    yield next(found)
    raise apsw.IOError("disk I/O error")


# --- tables, zarr ---------------------------------------------------------------------------------------


def test_an_index_that_can_not_be_opened_is_no_damaged_one(tmp_path):
    pq.write_table(pa.table({"x": [1]}), tmp_path / "rows.parquet")
    assert "rows.parquet" in refused(lambda: read_part(str(tmp_path / "rows.parquet")))


def test_a_table_whose_index_the_disk_fails_to_read_has_no_findings(tmp_path, monkeypatch):
    tt.write_table(str(tmp_path / "table"), drive(1), index=[])
    assert tt.verify(str(tmp_path / "table"), threads=1) == []
    monkeypatch.setattr(pq, "ParquetFile", broken)
    monkeypatch.setattr(pq, "read_table", broken)
    for read in (lambda table: tt.verify(table, threads=1), tt.read_index):
        with pytest.raises(StorageError, match=r"\.parquet: Input/output error"):
            read(str(tmp_path / "table"))


def test_a_zarr_group_that_can_not_be_opened_has_lost_no_array(tmp_path, monkeypatch):
    import zarr

    from logloom.io.formats.zarr.foreign_groups import find_groups

    group = zarr.open_group(tmp_path / "z", mode="w")
    for name in ("a", "b"):
        group.create_array(name, data=np.arange(5.0))
    store, own = Store.at(str(tmp_path / "z")), zarr.Group.__getitem__
    monkeypatch.setattr(zarr, "open_group", broken)
    with pytest.raises(StorageError, match="z: Input/output error"):
        find_groups(store)
    monkeypatch.undo()
    monkeypatch.setattr(
        zarr.Group, "__getitem__", lambda self, name: broken() if name == "b" else own(self, name)
    )
    with pytest.raises(StorageError, match="z/b: Input/output error"):
        find_groups(store)


# --- whole files, streams -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["503", "reset", "403"])
def test_names_that_a_store_refuses_are_no_text_of_their_own(kind, monkeypatch):
    monkeypatch.setattr(retries, "WAITS", (0, 0, 0))
    faults, uri = faulty.install(), f"{faulty.ROOT}/classes.txt"
    assert read_names(uri) is None
    faulty.FaultyFiles().pipe_file("/bucket/classes.txt", b"cat\ndog\n")
    assert read_names(uri) == ["cat", "dog"]
    faults.set(kind, at=0, times=99)
    with pytest.raises(StorageError, match=uri):
        read_names(uri)
    faults.set()


def test_annotations_and_names_that_can_not_be_opened_are_faults_of_the_machine(tmp_path):
    for name in ("classes.txt", "a.json"):
        (tmp_path / name).write_text("{}")
    assert "classes.txt" in refused(lambda: read_names(str(tmp_path / "classes.txt")))
    assert "a.json" in refused(lambda: load(str(tmp_path / "a.json")))
    assert read_names("long " * 300) is None


class Failing(io.RawIOBase):
    """A file of which the disk can't read the second half."""

    def __init__(self, data):
        self.left, self.rest = len(data) // 2, memoryview(data)

    def readable(self):
        return True

    def seekable(self):
        return True

    def seek(self, offset, whence=0):
        return offset

    def readinto(self, buffer):
        size = min(len(buffer), self.left)
        if not size:
            broken()
        buffer[:size], self.rest, self.left = self.rest[:size], self.rest[size:], self.left - size
        return size


def archive(count):
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as shard:
        for number in range(count):
            member = tarfile.TarInfo(f"{number:04}.bin")
            member.size = 5000
            shard.addfile(member, io.BytesIO(np.random.default_rng(number).bytes(member.size)))
    return data.getvalue()


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_stream_of_samples_that_the_disk_stops_giving_is_neither_cut_nor_damaged(monkeypatch, pack):
    data = pack(archive(200))
    opening = lambda *arguments, **options: io.BufferedReader(Failing(data))  # noqa: E731
    monkeypatch.setattr(stream, "open", opening, raising=False)
    with pytest.raises(StorageError, match=r"s\.tar: Input/output error"):
        for _ in stream.stream_samples(stream.open_stream("s.tar"), "s.tar", allow_truncated=True):
            pass
    monkeypatch.setattr(stream, "open", lambda *given, **options: io.BufferedReader(Failing(b"")))
    with pytest.raises(StorageError, match=r"s\.tar: Input/output error"):
        stream.open_stream("s.tar")


def test_a_bag_behind_a_path_like_object_that_the_disk_stops_giving_is_a_fault_of_the_machine():
    file = PathFile(types.SimpleNamespace(open=lambda mode: Failing(b"abcd")))
    assert file.read(0, 2) == b"ab"
    with pytest.raises(StorageError, match="Input/output error"):
        file.read(2, 2)


def test_what_somebody_removed_after_a_lost_answer_is_created_again(monkeypatch):
    monkeypatch.setattr(retries, "WAITS", (0, 0, 0))
    faults, store = faulty.install(), Store.at(f"{faulty.ROOT}/root")
    read = faulty.FaultyFiles.cat_file

    def late(self, path, *rest, **more):  # somebody removes it before it is compared
        monkeypatch.undo()
        self.rm_file(path)
        return read(self, path, *rest, **more)

    monkeypatch.setattr(faulty.FaultyFiles, "cat_file", late)
    faults.set("lost", at=0, path="runs/note")
    assert store.create("runs/note", b"mine")
    assert faults.done
    assert store.read("runs/note") == b"mine"
