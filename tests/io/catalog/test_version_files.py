"""Which versions a root has, by the names of its files, and what is no root."""

import pytest

from logloom.errors import DatasetError, UsageError
from logloom.io.catalog.manifest import resolve_version
from logloom.io.catalog.manifest_digest import digest_file
from logloom.io.catalog.removal_notes import removed_file
from logloom.io.catalog.version_files import all_versions, check_root, version_file
from logloom.io.storage.store import Store
from tests.pipelines.roots import commit_version


def test_a_folder_with_other_things_is_no_root(tmp_path):
    (tmp_path / "holiday.jpg").write_bytes(b"")
    with pytest.raises(UsageError, match=r"not a logloom root, it contains holiday\.jpg"):
        check_root(Store.at(str(tmp_path)))
    with pytest.raises(UsageError, match="is a file"):
        check_root(Store.at(str(tmp_path / "holiday.jpg")))
    check_root(Store.at(str(tmp_path / "new")))


def test_beside_versions_may_lie_what_is_somebodys(tmp_path):
    commit_version(Store.at(str(tmp_path)), 1, ["a"])
    (tmp_path / "mine.txt").write_bytes(b"")
    check_root(Store.at(str(tmp_path)))


def test_a_lost_manifest_is_known_by_its_digest_and_by_the_versions_after_it(tmp_path):
    store = Store.at(str(tmp_path))
    for number in range(1, 6):
        commit_version(store, number, ["a"])
    for number in (2, 3, 5):
        store.remove(version_file(number))
    store.remove(digest_file(3))
    store.create(removed_file(4), b"")  # the newest that is there stays, whatever its note says
    assert all_versions(store) == ([1, 4], [], [2, 3, 5])
    assert all_versions(store).next == 6
    with pytest.raises(DatasetError, match=r"00000002\.json: the manifest of version 2 is lost"):
        resolve_version(store, 2)
    store.create("versions/99999998.json", b"{}")
    assert len(all_versions(store).lost) == 1000


def test_the_first_version_is_lost_as_any_other(tmp_path):
    store = Store.at(str(tmp_path))
    for number in (1, 2):
        commit_version(store, number, ["a"])
    store.remove(version_file(1))
    store.remove(digest_file(1))
    assert all_versions(store) == ([2], [], [1])


def test_what_is_committed_while_versions_are_listed_is_not_taken_for_lost(tmp_path, monkeypatch):
    store = Store.at(str(tmp_path))
    commit_version(store, 1, ["a"])
    partial = iter(
        [["00000003.json", "00000004.blake3"], ["00000001.json", "00000002.json", "00000003.json"]]
    )
    monkeypatch.setattr(Store, "names", lambda store, folder="": next(partial))
    assert all_versions(store) == ([1, 2, 3], [], [])


def test_a_version_without_its_digest_is_as_good(tmp_path):
    store = Store.at(str(tmp_path))
    for number in (1, 2):
        commit_version(store, number, ["a"])
    store.remove(digest_file(2))  # its commit ended before that
    assert all_versions(store) == ([1, 2], [], [])
    assert resolve_version(store, "latest") == 2
