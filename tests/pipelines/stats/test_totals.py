"""Statistics of all logs of a version together: a build adds to its parent's, and nobody needs them."""

import dataclasses
import json
import os
import shutil

import pytest

from logloom.errors import DatasetError, PurgedError
from logloom.io.catalog import log_statistics
from logloom.io.catalog.log_statistics import read_statistics
from logloom.io.catalog.manifest import open_root, read_manifest
from logloom.io.catalog.records import LogRecords
from logloom.io.storage.store import Store
from logloom.pipelines.build.build import build
from logloom.pipelines.gc.gc import collect_garbage
from logloom.pipelines.purge.purge import purge
from logloom.pipelines.report import report
from logloom.pipelines.stats import stats, totals
from logloom.pipelines.stats.stats import changed_statistics, column_statistics, statistics_of
from logloom.pipelines.stats.totals import MERGED, Counted, has_merged, read_merged, write_merged
from logloom.pipelines.versions.rollback import plan_drop
from logloom.recipe import Keep, Recipe
from logloom.statistics.columns import Statistics
from tests.pipelines.conftest import FULL_OUTPUT, build_at


@pytest.fixture(autouse=True)
def few_logs_are_many(monkeypatch):
    monkeypatch.setattr(log_statistics, "MANY_LOGS", 1)


@pytest.fixture
def read(monkeypatch):
    """The digests of the statistics of logs that are read."""
    found = []
    original = log_statistics.read_statistics_file

    def reading(store, digest, part, **how):
        found.append(digest)
        return original(store, digest, part, **how)

    monkeypatch.setattr(totals, "read_statistics_file", reading)
    return found


@pytest.fixture
def nights(drive, tmp_path):
    """A root of two versions: of one log, and of two; and what builds the next."""
    logs = tmp_path / "logs"
    logs.mkdir()
    text = drive.text[: drive.text.index("outputs:")] + f"outputs: {{{FULL_OUTPUT}: {{}}}}\nvanished: keep\n"
    recipe = json.loads(json.dumps(Recipe.from_yaml(text, source="drive.yaml").model_dump(mode="json")))
    recipe["logs"] = [str(logs / "*.mcap")]
    for path in drive.logs[:2]:
        shutil.copy(path, logs)
        build_at(Recipe.model_validate(recipe), tmp_path / "root")
    return tmp_path / "root"


def files(root):
    """Those of merged statistics, by the number of their version."""
    found = {MERGED.fullmatch(path.name): path for path in (root / "index").iterdir()}
    return {int(match[1]): path for match, path in found.items() if match}


def test_a_build_adds_its_new_logs_to_what_its_parent_knew(nights, read):
    store = Store.at(str(nights))
    manifest = read_manifest(store)
    each = [read_statistics(store, record) for record in manifest.logs]
    assert sorted(files(nights)) == [1, 2]
    logs = Counted.of(manifest, "all").digests
    assert read_merged(store, 2, logs) == Statistics.merged(each)
    files(nights)[2].unlink()
    totals.keep_merged(store, manifest)
    assert read == [manifest.logs[1].statistics]
    assert read_merged(store, 2, logs) == Statistics.merged(each)


def test_who_asks_reads_no_log_and_is_told_the_same(nights, read):
    found = column_statistics(str(nights))
    some = column_statistics(str(nights), columns=["ego.speed"])
    assert read == []
    files(nights)[2].unlink()
    assert column_statistics(str(nights), columns=["ego.speed"]) == some
    assert sorted(files(nights)) == [1]
    assert column_statistics(str(nights)) == found
    assert sorted(files(nights)) == [1, 2]
    assert len(read) == 4


@pytest.mark.parametrize("damage", [b"", b"no Parquet", None])
def test_a_damaged_file_is_as_none_and_written_again(nights, read, damage):
    whole, path = column_statistics(str(nights)), files(nights)[2]
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2] if damage is None else damage)
    assert column_statistics(str(nights)) == whole
    assert len(read) == 2
    assert path.read_bytes() == data


def test_a_version_without_a_log_of_its_parent_counts_the_others(nights):
    store = Store.at(str(nights))
    gone, left = read_manifest(store).logs
    build(plan_drop(store, [gone.log_id]))
    manifest = read_manifest(store)
    assert read_merged(store, 3, Counted.of(manifest, "all").digests) == read_statistics(store, left)


def test_a_build_of_very_many_logs_leaves_it_to_who_asks_first(nights, monkeypatch):
    monkeypatch.setattr(totals, "MAX_LOGS", 0)
    store = Store.at(str(nights))
    for path in files(nights).values():
        path.unlink()
    manifest = read_manifest(store)
    totals.keep_merged(store, manifest)
    assert not has_merged(store, manifest)
    column_statistics(str(nights))
    assert has_merged(store, manifest)


def test_a_report_of_very_many_logs_counts_all_of_them(nights, monkeypatch):
    monkeypatch.setattr(report, "MAX_COUNTED", 1)
    store, manifest = open_root(Store.at(str(nights)))
    assert report.report_of(store, manifest).uncounted == 0
    for path in files(nights).values():
        path.unlink()
    assert report.report_of(store, manifest).uncounted == 1


def test_versions_of_very_many_logs_are_compared_by_what_is_merged(nights, read, monkeypatch):
    store = Store.at(str(nights))
    both = read_manifest(store, 1), read_manifest(store, 2)
    by_log = changed_statistics((store, store), both)
    assert by_log.numbers["ego.speed"]["count"][0] < by_log.numbers["ego.speed"]["count"][1]
    monkeypatch.setattr(stats, "read_statistics_file", None)
    assert changed_statistics((store, store), both, 1) == by_log
    monkeypatch.setattr(report, "MAX_COUNTED", 1)
    assert report.report_of(*open_root(store)).changes.statistics == by_log
    assert read == []
    files(nights)[1].unlink()
    assert changed_statistics((store, store), both, 1) is None
    assert report.report_of(*open_root(store)).changes.statistics is None


def test_a_purge_takes_it_along_also_where_it_comes_late(nights):
    store = Store.at(str(nights))
    logs = Counted.of(read_manifest(store), "all").digests
    whole = column_statistics(str(nights)).statistics
    purge(str(nights), [read_manifest(store).logs[0].log_id], reason="asked to")
    assert files(nights) == {}
    write_merged(store, 2, logs, whole)
    assert files(nights) == {}
    with pytest.raises(PurgedError, match="was purged"):
        column_statistics(str(nights))


def test_gc_removes_those_of_versions_that_went(nights):
    for path in nights.rglob("*"):
        os.utime(path, (1, 1))
    collect_garbage(str(nights))
    assert sorted(files(nights)) == [1, 2]
    collect_garbage(str(nights), keep=Keep(last=1))
    assert sorted(files(nights)) == [1, 2]  # what went is waiting
    for path in nights.rglob("*"):
        os.utime(path, (1, 1), follow_symlinks=False)
    done = collect_garbage(str(nights), keep=Keep(last=1))
    assert sorted(files(nights)) == [2], done
    assert done.unknown == []


def test_a_root_that_takes_no_files_is_counted_all_the_same(nights, monkeypatch):
    files(nights)[2].unlink()
    monkeypatch.setattr(Store, "replace", _refuse)
    assert column_statistics(str(nights)).logs == 2
    assert sorted(files(nights)) == [1]


def _refuse(*arguments, **options):
    raise DatasetError("read-only")


def test_a_version_without_logs_has_no_statistics(nights):
    store, manifest = open_root(Store.at(str(nights)))
    none = statistics_of(store, dataclasses.replace(manifest, logs=LogRecords.of([])))
    assert (none.logs, none.rows, none.statistics) == (0, 0, Statistics({}))
