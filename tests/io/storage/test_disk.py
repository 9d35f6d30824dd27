import errno
import os
import pathlib

import pytest

from logloom.io.storage import disk
from logloom.io.storage.disk import paths_below, replace_file, start_writing


@pytest.mark.parametrize("told", [True, False])
def test_files_that_begin_to_be_written_keep_their_bytes_and_may_be_gone(tmp_path, monkeypatch, told):
    if not told:  # a system without the call
        monkeypatch.setattr(disk, "_sync_file_range", lambda: None)
    paths = [tmp_path / name for name in ("a", "gone", "b")]
    for path in paths[::2]:
        path.write_bytes(path.name.encode() * (1 << 20))
    start_writing(paths)
    assert [path.read_bytes()[:1] for path in paths[::2]] == [b"a", b"b"]


def test_each_file_is_sent_to_the_disk_whole(tmp_path, monkeypatch):
    sent = []
    monkeypatch.setattr(disk, "_sync_file_range", lambda: lambda descriptor, *span: sent.append(span))
    (tmp_path / "a").write_bytes(bytes(100))
    start_writing([tmp_path / "a"])
    assert sent == [(0, 0, disk._WRITE)]  # no length: up to its end, wherever that is by then


def test_the_system_takes_the_call(tmp_path):
    call = disk._sync_file_range()
    if call is None:
        pytest.skip("this system has no sync_file_range")
    (tmp_path / "a").write_bytes(bytes(100))
    with disk.opened(tmp_path / "a") as descriptor:
        assert call(descriptor, 0, 0, disk._WRITE) == 0


def test_a_folder_that_goes_while_it_is_listed_holds_nothing(tmp_path, monkeypatch):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").write_bytes(b"")
    scan = os.scandir

    def gone(path):
        if str(path).endswith("a"):
            os.rmdir(path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", gone)
    assert paths_below(tmp_path) == [tmp_path / "a", tmp_path / "b"]


def test_a_file_that_is_written_again_is_the_old_or_the_new_one(tmp_path, monkeypatch):
    page = tmp_path / "page.html"
    replace_file(page, b"first")
    page.chmod(0o640)
    (tmp_path / "link").symlink_to(page)
    seen = []
    real = pathlib.Path.replace

    def renamed(path, target):
        seen.append((page.read_bytes(), path.read_bytes(), path.parent == page.parent))
        return real(path, target)

    monkeypatch.setattr(pathlib.Path, "replace", renamed)
    replace_file(tmp_path / "link", b"second")
    assert seen == [(b"first", b"second", True)]
    assert page.read_bytes() == b"second"
    assert page.stat().st_mode & 0o777 == 0o640
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "page.html"]
    assert (tmp_path / "link").is_symlink()


def test_a_file_that_can_not_be_written_stays_as_it_was(tmp_path, monkeypatch):
    page = tmp_path / "page.html"
    replace_file(page, b"first")

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(disk.os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        replace_file(page, b"second")
    assert page.read_bytes() == b"first"
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_what_is_no_plain_file_is_written_in_place(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        replace_file(tmp_path / "pipe", b"page")
        assert os.read(reader, 10) == b"page"
    finally:
        os.close(reader)
    assert (tmp_path / "pipe").is_fifo()
