"""Files appear whole or not at all, on disks and in object stores."""

import errno
import os
import pathlib
import shutil
import subprocess
import sys
import threading

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from logloom.errors import StorageError, UsageError
from logloom.io.catalog.entries import files_of
from logloom.io.storage.filesystems import absolute_uri, filesystem
from logloom.io.storage.remote import retries
from logloom.io.storage.store import Store


@pytest.fixture(params=["local", "memory"])
def store(request, tmp_path):
    if request.param == "local":
        return Store.at(str(tmp_path / "root"))
    name = f"memory://{tmp_path.name}"
    return Store.at(name)


def test_a_created_file_is_read_back_and_never_replaced(store):
    assert store.create("versions/1.json", b"first")
    assert not store.create("versions/1.json", b"second")
    assert store.read("versions/1.json") == b"first"
    assert store.names("versions") == ["1.json"]


def test_a_disk_without_hard_links_creates_files_just_the_same(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    store = Store.at(str(tmp_path))
    assert store.create("versions/1.json", b"first")
    assert not store.create("versions/1.json", b"second")
    assert store.read("versions/1.json") == b"first"
    assert [path.name for path in (tmp_path / "versions").iterdir()] == ["1.json"]


def test_a_copy_has_the_same_bytes_and_a_size_is_none_where_nothing_lies(tmp_path):
    store = Store.at(f"memory://{tmp_path.name}")
    store.create("a", b"123")
    store.copy("a", "b/c")
    assert (store.read("b/c"), store.size("b/c"), store.size("b/d")) == (b"123", 3, None)
    with pytest.raises(FileNotFoundError):
        store.copy("d", "e")


def test_a_replaced_file_holds_the_new_bytes(store):
    store.replace("a/b.json", b"1")
    store.replace("a/b.json", b"22")
    assert store.read("a/b.json") == b"22"
    assert store.exists("a/b.json")


def test_a_missing_file_is_file_not_found(store):
    with pytest.raises(FileNotFoundError):
        store.read("nothing")
    assert store.names("nowhere") == []


def test_a_published_folder_shows_all_files_and_a_second_one_changes_nothing(store):
    for content in (b"one", b"two"):
        with store.scratch() as folder:
            (folder / "deep").mkdir()
            (folder / "deep" / "data.bin").write_bytes(content)
            (folder / "entry.json").write_bytes(b"{}")
            if content == b"two" and store.local is None:
                return  # object stores overwrite: by contract with equal bytes
            store.publish(folder, "parts/tar/x", last="entry.json")
    assert store.read("parts/tar/x/deep/data.bin") == b"one"
    assert store.names("parts/tar/x") == ["deep", "entry.json"]


def test_files_moved_into_a_folder_replace_their_namesakes_and_leave_the_others(store):
    store.replace("index/a", b"old")
    store.replace("index/b", b"kept")
    with store.scratch() as folder:
        for name in ("a", "c"):
            (folder / name).write_bytes(name.encode())
        store.fill(folder, "index")
        assert list(folder.iterdir()) == []
    assert {name: store.read(f"index/{name}") for name in store.names("index")} == {
        "a": b"a",
        "b": b"kept",
        "c": b"c",
    }


def test_of_many_threads_that_create_one_file_exactly_one_wins(tmp_path):
    store = Store.at(str(tmp_path))
    wins = []
    threads = [
        threading.Thread(target=lambda n=n: wins.append(store.create("v.json", b"%d" % n))) for n in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(wins) == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["v.json"]


def test_a_name_that_would_leave_the_root_is_refused(store):
    with pytest.raises(StorageError, match="outside"):
        store.uri_of("../elsewhere")
    with pytest.raises(StorageError, match="outside"):
        store.uri_of("/etc/passwd")


def test_a_scratch_folder_is_gone_after_an_error(tmp_path):
    store = Store.at(str(tmp_path))

    def fail():
        with store.scratch() as folder:
            (folder / "half").write_bytes(b"x")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert list((tmp_path / "tmp").iterdir()) == []


def test_the_scratch_of_a_killed_process_is_swept_and_that_of_a_living_one_stays(tmp_path):
    store = Store.at(str(tmp_path))
    script = (
        "import os, sys; from logloom.io.storage.store import Store\n"
        "s = Store.at(sys.argv[1]).scratch(); print(s.__enter__(), flush=True); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True)
    dead = pathlib.Path(done.stdout.strip())
    assert dead.is_dir()
    with store.scratch() as mine:
        store.sweep()
        assert mine.is_dir()
    assert not dead.exists()


@pytest.mark.parametrize(("built", "name"), [(True, "parts/zarr/a/c/0"), (False, "index/a.idx")])
def test_the_unfinished_file_of_a_killed_process_is_swept(built, name, tmp_path):
    store = Store.at(str(tmp_path))
    if built:
        (tmp_path / "tmp").mkdir()
    script = (
        "import os, sys; from logloom.io.storage.store import Store\n"
        "os.fsync = lambda file: os.kill(os.getpid(), 9)\n"
        "Store.at(sys.argv[1]).create(sys.argv[2], b'half')"
    )
    root = tmp_path if built else tmp_path / "index"
    name_there = name if built else name.removeprefix("index/")
    (root / name_there).parent.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, "-c", script, str(root), name_there], capture_output=True)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path.read_bytes() for path in files] == [b"half"]
    foreign = tmp_path / "index" / ".other-machine-1-00000000.partial"
    foreign.parent.mkdir(exist_ok=True)
    foreign.touch()
    store.sweep()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [foreign]


def test_scratch_that_can_t_be_opened_to_lock_it_is_a_fault_of_the_disk(tmp_path, monkeypatch):
    def full(path, flags):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    store = Store.at(str(tmp_path))
    (tmp_path / "tmp").mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", full)
        with pytest.raises(StorageError, match="Too many open files"), store.scratch():
            pass


def test_writing_one_file_leaves_nothing_else_in_a_plain_folder(tmp_path):
    Store.at(str(tmp_path)).create("refs.bag", b"1")
    assert [path.name for path in tmp_path.iterdir()] == ["refs.bag"]


def test_a_full_disk_says_so_and_what_to_do(tmp_path):
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full here")
    from logloom.io.storage.filesystems import explained

    with (
        pytest.raises(StorageError, match=r"disk is full: free some space and run this again"),
        explained("x"),
        open("/dev/full", "wb", buffering=0) as file,
    ):
        file.write(b"1")


def test_a_root_below_a_file_is_refused_in_words(tmp_path):
    (tmp_path / "file").touch()
    store = Store.at(str(tmp_path / "file" / "base"))
    with pytest.raises(NotADirectoryError):
        store.read("a.json")
    for call in (lambda name: store.create(name, b""), lambda name: store.replace(name, b"")):
        with pytest.raises(StorageError, match=r"file/base/a\.json: .*(Not a directory|exists)"):
            call("a.json")


def test_an_object_stores_own_error_becomes_one_of_ours(monkeypatch):
    monkeypatch.setattr(retries, "WAITS", ())

    class RefusedError(Exception):
        pass

    class Refusing(MemoryFileSystem):
        protocol = "refusing"

        def cat_file(self, path, start=None, end=None, **kwargs):
            raise RefusedError("403: not yours")

    fsspec.register_implementation("refusing", Refusing, clobber=True)
    with pytest.raises(StorageError, match="refusing://bucket/base/x: RefusedError: 403: not yours"):
        Store.at("refusing://bucket/base").read("x")


def test_a_unit_that_lost_its_entry_is_published_anew(tmp_path):
    store = Store.at(str(tmp_path))
    (tmp_path / "parts" / "x").mkdir(parents=True)
    (tmp_path / "parts" / "x" / "data.bin").touch()
    with store.scratch() as folder:
        (folder / "data.bin").write_bytes(b"anew")
        (folder / "entry.json").write_bytes(b"{}")
        store.publish(folder, "parts/x", last="entry.json")
    assert store.read("parts/x/entry.json") == b"{}"
    assert store.read("parts/x/data.bin") == b"anew"


def test_an_unknown_protocol_is_a_usage_error():
    with pytest.raises(UsageError, match="nowhere://"):
        filesystem("nowhere://a/b")


def test_relative_uris_start_at_their_base():
    assert absolute_uri("logs/a.mcap", "/data") == "/data/logs/a.mcap"
    assert absolute_uri("a.mcap", "gs://bucket/recipes") == "gs://bucket/recipes/a.mcap"
    assert absolute_uri("gs://b/x", "/data") == "gs://b/x"


def test_a_folder_that_cant_be_listed_is_an_error_and_not_an_empty_one(tmp_path, monkeypatch):
    store, scan = Store(str(tmp_path)), os.scandir
    store.create("parts/tar/a/inside/shard.tar", b"rows")

    def forbidden(path):
        if str(path).endswith("inside"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", forbidden)
    with pytest.raises(PermissionError):
        files_of(tmp_path / "parts/tar/a")
    with pytest.raises(StorageError, match="no permission"):
        store.sizes("parts/tar/a")


def test_a_scratch_folder_that_cant_be_listed_is_a_clear_error(tmp_path, monkeypatch):
    store = Store(str(tmp_path))
    (tmp_path / "tmp").mkdir()
    full = OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr(os, "listdir", lambda path: (_ for _ in ()).throw(full))
    monkeypatch.setattr(os, "scandir", lambda path: (_ for _ in ()).throw(full))
    with pytest.raises(StorageError, match="the disk is full"):
        store.sweep()


def test_a_folder_that_goes_while_a_file_in_it_is_written_anew_comes_back(tmp_path, monkeypatch):
    (tmp_path / "tmp").mkdir()  # as of a root, so that nothing unfinished lies in the folder
    store = Store.at(str(tmp_path))
    store.replace("parts/tar/ab/entry.json", b"first")
    real = pathlib.Path.replace

    def replace_once_the_folder_is_gone(self, target):
        monkeypatch.setattr(pathlib.Path, "replace", real)
        shutil.rmtree(tmp_path / "parts/tar/ab")
        return real(self, target)

    monkeypatch.setattr(pathlib.Path, "replace", replace_once_the_folder_is_gone)
    store.replace("parts/tar/ab/entry.json", b"second")
    assert store.read("parts/tar/ab/entry.json") == b"second"


def test_a_folder_that_goes_while_a_unit_is_published_anew_comes_back(tmp_path, monkeypatch):
    store = Store.at(str(tmp_path))
    (tmp_path / "parts" / "x").mkdir(parents=True)
    (tmp_path / "parts" / "x" / "data.bin").touch()
    real = pathlib.Path.replace

    def replace_once_the_folder_is_gone(self, target):
        monkeypatch.setattr(pathlib.Path, "replace", real)
        shutil.rmtree(tmp_path / "parts/x")
        return real(self, target)

    with store.scratch() as folder:
        (folder / "data.bin").write_bytes(b"anew")
        (folder / "entry.json").write_bytes(b"{}")
        monkeypatch.setattr(pathlib.Path, "replace", replace_once_the_folder_is_gone)
        store.publish(folder, "parts/x", last="entry.json")
    assert store.read("parts/x/entry.json") == b"{}"
    assert store.read("parts/x/data.bin") == b"anew"


def test_a_folder_that_goes_while_a_file_in_it_is_created_comes_back(tmp_path, monkeypatch):
    (tmp_path / "tmp").mkdir()
    store = Store.at(str(tmp_path))
    real = os.link

    def link_once_the_folder_is_gone(*paths):
        monkeypatch.setattr(os, "link", real)
        shutil.rmtree(tmp_path / "runs")
        return real(*paths)

    monkeypatch.setattr(os, "link", link_once_the_folder_is_gone)
    assert store.create("runs/00000002/read/9d/mark", b"read")
    assert store.read("runs/00000002/read/9d/mark") == b"read"


def test_where_no_folder_can_be_made_it_is_an_error_and_no_endless_loop():
    with pytest.raises(StorageError, match="/proc/logloom"):
        Store.at("/proc/logloom").create("x", b"")
