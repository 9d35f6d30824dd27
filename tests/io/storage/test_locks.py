"""Locks over forks: a child takes what a thread of its parent held when it was forked."""

import contextlib
import pickle
import threading

import pytest
import zstandard

from logloom.io.formats.bags.files import PathFile
from logloom.io.logs.files.compression import _blocks, room
from logloom.io.logs.files.lazy_attributes import lazy
from logloom.io.logs.files.ranges import LogFile
from logloom.io.logs.rosbag2.local_copies import UnpackedCopy
from logloom.io.storage import files
from logloom.io.storage.locks import Lock
from logloom.io.storage.remote import retries
from logloom.testing.processes import in_fork


class Made:
    @lazy
    def name(self):
        return "made"


@contextlib.contextmanager
def held_by_a_thread(lock):
    taken, over = threading.Event(), threading.Event()

    def hold():
        with lock:
            taken.set()
            over.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    taken.wait()
    try:
        yield
    finally:
        over.set()
        thread.join()


def path_file(tmp_path):
    (tmp_path / "x").write_bytes(b"bytes")
    file = PathFile(tmp_path / "x")
    return file._lock, lambda: file.read(1, 3), b"yte"


def lazy_attribute(tmp_path):
    made = Made()
    return made.__dict__.setdefault("_lazy_lock", Lock(threading.RLock)), lambda: made.name, "made"


def unpacked_copy(tmp_path):
    (tmp_path / "x.zst").write_bytes(zstandard.compress(b"bytes"))
    copy = UnpackedCopy(LogFile(str(tmp_path / "x.zst")))
    return copy._lock, lambda: LogFile(copy.path).read(0, 5), b"bytes"


def opening(tmp_path):
    (tmp_path / "x").write_bytes(b"bytes")
    file = files.File(tmp_path / "x")
    return files._opening, lambda: file.read(0, 5), b"bytes"


def memory(tmp_path):
    return _blocks._lock, lambda: len(room(1 << 20)), 1 << 20


def counting(tmp_path):
    return retries._counting, lambda: retries.take() >= 0, True


@pytest.mark.parametrize("make", [path_file, lazy_attribute, unpacked_copy, opening, memory, counting])
def test_a_fork_while_a_thread_holds_a_lock_leaves_the_child_able_to(make, tmp_path):
    lock, use, expected = make(tmp_path)
    with held_by_a_thread(lock):
        assert in_fork(use) == expected
    assert use() == expected


def test_copies_of_a_lock_are_locks_of_their_own():
    lock = Lock(threading.RLock)
    with held_by_a_thread(lock), pickle.loads(pickle.dumps(lock)) as entered:
        assert entered is None
