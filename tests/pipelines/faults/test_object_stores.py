"""Whole builds into an object store: fsspec's memory file system, which has no folders, links or renames."""

import itertools

import fsspec
import pytest

from logloom.errors import CommitConflictError, DatasetError, StorageError, UsageError
from logloom.io.catalog.entries import ENTRY
from logloom.io.catalog.manifest import entries_of, open_root
from logloom.io.catalog.manifest_digest import digest_file
from logloom.io.catalog.version_files import version_file
from logloom.io.storage.store import Store
from logloom.pipelines import view
from logloom.pipelines.build.build import build
from logloom.pipelines.head.head import head
from logloom.pipelines.plan.plan import plan_build
from logloom.pipelines.plan.summary import plan_summary
from logloom.pipelines.verify.verify import verify
from logloom.pipelines.view import COPIED, copy_view, files_of
from logloom.transforms.build import partition
from tests.absent import needs
from tests.pipelines.conftest import digests

NUMBERS = itertools.count()


@pytest.fixture
def root() -> str:
    return f"memory://bucket-{next(NUMBERS)}/root"


def objects(root: str) -> dict[str, bytes]:
    """Every object of a dataset by name, but for the mutable ones and times of versions."""
    fs = fsspec.filesystem("memory")
    there = root.removeprefix("memory:/")
    names = {name: name.removeprefix(f"{there}/") for name in fs.find(there)}
    return {
        short: fs.cat_file(name)
        for name, short in names.items()
        if not short.startswith(("runs/", "index/")) and ".times." not in short
    }


def findings(root: str, **choices):
    return [finding.message for finding in verify(root, num_workers=1, **choices).findings]


def test_a_version_in_an_object_store_is_that_of_a_disk_and_is_proven_against_its_logs(drive, built, root):
    done = build(plan_build(drive.recipe(), root))
    assert done.view == ""
    here, there = set(objects(root)), {name for name in digests(built) if not name.startswith("v0")}
    assert here == there
    assert all((built / name).read_bytes() == data for name, data in objects(root).items())
    assert findings(root, against_logs=True) == []
    assert len(head(root, count=3)) == 3


def test_a_second_build_into_an_object_store_is_up_to_date(drive, root):
    build(plan_build(drive.recipe(), root))
    before = objects(root)
    plan = plan_build(drive.recipe(), root)
    assert plan.up_to_date
    assert plan_summary(plan)["units_to_build"] == 0
    assert build(plan).manifest.version == 1
    assert objects(root) == before


def test_units_that_an_attempt_left_in_an_object_store_are_kept(drive, built, root):
    plan = plan_build(drive.recipe(), root)
    assert not partition.build_partition(
        plan.job, partition.plan_partitions(plan.job, plan.logs[0].task)[0]
    ).failures
    assert plan.finished() == len(plan.job.outputs)
    done = build(plan)
    assert done.reused == len(plan.job.outputs)
    assert objects(root)[version_file(1)] == (built / version_file(1)).read_bytes()


def test_a_unit_whose_upload_ended_early_is_built_again(drive, built, root):
    build(plan_build(drive.recipe(), root))
    store, manifest = open_root(Store.at(root))
    (_, entry), *_ = entries_of(store, manifest.logs)
    for name in (f"{entry.folder}/{ENTRY}", version_file(1), digest_file(1)):
        store.fs.rm_file(store.uri_of(name))
    done = build(plan_build(drive.recipe(), root))
    assert done.built == 1
    assert objects(root)[version_file(1)] == (built / version_file(1)).read_bytes()


def test_of_two_builds_into_an_object_store_the_second_is_refused(drive, root):
    slow = plan_build(drive.recipe(), root)
    build(plan_build(drive.recipe(**{"name: ": "name: other-"}), root))
    with pytest.raises(CommitConflictError, match="version 1 first; build again"):
        build(slow)


def test_a_copied_view_holds_what_a_disk_s_view_holds(drive, built, root):
    store = Store.at(root)
    build(plan_build(drive.recipe(), root))
    told = []
    assert copy_view(*open_root(store), lambda *counts: told.append(counts)) == f"{root}/v00000001"
    there = {name: data for name, data in objects(root).items() if name.startswith("v0")}
    assert there.pop(f"v00000001/{COPIED}") == b""
    here = {name for name in digests(built) if name.startswith("v0")}
    assert set(there) == here
    assert all((built / name).read_bytes() == data for name, data in there.items())
    assert told[-1] == (len(here), 0)


def test_a_copied_view_that_was_interrupted_is_finished(drive, root):
    store = Store.at(root)
    build(plan_build(drive.recipe(), root))
    copy_view(*open_root(store))
    whole = objects(root)
    lost = [name for name in whole if name.startswith("v00000001/")][::3]
    for name in {*lost, f"v00000001/{COPIED}"}:
        store.fs.rm_file(store.uri_of(name))
    copy_view(*open_root(store))
    assert objects(root) == whole


def test_a_copied_view_names_a_file_that_the_version_has_lost(drive, root):
    store = Store.at(root)
    build(plan_build(drive.recipe(), root))
    store, manifest = open_root(store)
    lost = store.uri_of(next(files_of(store, manifest, "tar")).stored)
    store.fs.rm_file(lost)
    with pytest.raises(DatasetError, match=f"{lost}: a file of this version is missing"):
        copy_view(*open_root(store))


def test_a_copied_view_that_fails_copies_no_more(drive, root, monkeypatch):
    store = Store.at(root)
    build(plan_build(drive.recipe(), root))
    asked = []

    def refuse(self, name, new):
        asked.append(name)
        raise StorageError(f"{name}: refused")

    monkeypatch.setattr(Store, "copy", refuse)
    monkeypatch.setattr(view, "_COPIERS", 1)
    with pytest.raises(StorageError, match="refused"):
        copy_view(*open_root(store))
    assert len(asked) < 4 < len(list(files_of(*open_root(store))))


def test_the_files_of_an_output_and_a_split_are_listed_where_they_lie(drive, root):
    build(plan_build(drive.recipe(), root))
    store, manifest = open_root(Store.at(root))
    shards = list(files_of(store, manifest, "tar", "all"))
    assert [file.name for file in shards[:2]] == ["tar/all/000000.tar", "tar/all/000001.tar"]
    assert all(store.size(file.stored) == file.size for file in shards)
    with pytest.raises(UsageError, match=r"no output 'bag'; there .*tar"):
        files_of(store, manifest, "bag")


def test_a_changed_and_a_missing_object_are_found_and_named(drive, root):
    needs("tar")
    build(plan_build(drive.recipe(), root))
    store, manifest = open_root(Store.at(root))
    entries = [entry for _, entry in entries_of(store, manifest.logs) if entry.output == "tar"]
    changed, missing = (f"{entry.folder}/{entry.files[0].name}" for entry in entries[:2])
    data = bytearray(store.read(changed))
    data[len(data) // 2] ^= 1
    store.replace(changed, bytes(data))
    store.fs.rm_file(store.uri_of(missing))
    first, second = findings(root)
    assert store.uri_of(changed) in first
    assert "bytes changed" in first
    assert second == f"{store.uri_of(missing)}: missing"
