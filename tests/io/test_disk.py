import os

import pytest

from logloom.io import disk
from logloom.io.disk import paths_below, start_writing


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
