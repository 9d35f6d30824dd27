"""A kind of file that is registered once is handled by gc, purge, verify, repair, rollback and the commit."""

import dataclasses
import re
import shutil

import pytest
from blake3 import blake3

from logloom.errors import DatasetError
from logloom.io.catalog.artifacts import LABELS, LOG_FILES, REFUSALS, LogFileKind
from logloom.io.catalog.manifest import as_laid_out, manifest_at, read_manifest
from logloom.io.catalog.page_merge import write_records
from logloom.io.catalog.removal_notes import mark_removed, removing
from logloom.io.catalog.version_files import runs_folder, version_numbers
from logloom.io.storage.metadata import canonical
from logloom.io.storage.store import Store
from logloom.pipelines.gc.areas import AREAS, Area
from logloom.pipelines.gc.gc import collect_garbage
from logloom.pipelines.purge.purge import purge
from logloom.pipelines.repair.repair import repair
from logloom.pipelines.repair.units import REBUILDING
from logloom.pipelines.verify.verify import verify
from logloom.pipelines.versions.rollback import rollback
from logloom.pipelines.versions.tag import tag
from logloom.recipe import Keep
from logloom.transforms.build.commit import commit
from logloom.transforms.build.outcomes import LogOutcomes
from tests.files import flip
from tests.pipelines.conftest import restate
from tests.pipelines.roots import age, commit_version, following, written_log

CHART = LogFileKind(
    "chart of the log", ".chart", "reasons", re.compile(r"logs/([0-9a-f]{64})\.chart").findall
)


def drawn(log_id):
    return f"chart of {log_id}".encode()


def put_chart(store, record):
    """A record that names a chart, which is written."""
    name = CHART.name(blake3(drawn(record.log_id)).hexdigest())
    store.replace(name, drawn(record.log_id))
    return dataclasses.replace(record, reasons=(*record.reasons, f"see {name}"))


def put_each(store, record):
    """A record that names a file of each kind, all of which are written."""
    digest = blake3(record.log_id.encode()).hexdigest()
    for kind in (REFUSALS, LABELS):
        store.replace(LOG_FILES[kind].name(digest), record.log_id.encode())
    record = put_chart(store, record)
    return dataclasses.replace(
        record,
        reasons=(*record.reasons, f"and 7 more, all listed in {LOG_FILES[REFUSALS].name(digest)}"),
        catalogue=canonical({"labels": {"objects": digest}}).decode(),
    )


def draw_again(log, name):
    log.store.replace(name, drawn(log.record.log_id))
    return ""


@pytest.fixture(autouse=True)
def charts(monkeypatch):
    """Charts of logs: registered, and how they are rebuilt."""
    monkeypatch.setitem(LOG_FILES, "chart", CHART)
    monkeypatch.setitem(REBUILDING, "chart", draw_again)


@pytest.fixture
def store(tmp_path):
    """A version of the logs a and b, and one of b alone, each log with a chart."""
    store = as_laid_out(Store.at(str(tmp_path / "root")))
    for number, names in ((1, "ab"), (2, "b")):
        records = (put_chart(store, written_log(store, name)) for name in names)
        commit_version(store, number, names, logs=write_records(store, records))
    age(store.local, 30)
    return store


def full_root(tmp_path, **fields):
    """As `store`, each log with a file of each kind."""
    store = as_laid_out(Store.at(str(tmp_path / "full")))
    for number, names in ((1, "ab"), (2, "b")):
        records = (put_each(store, written_log(store, name)) for name in names)
        commit_version(store, number, names, logs=write_records(store, records), **fields)
    return store


def lose(store, kind, log_id="a"):
    """Removes the file of a kind that version 1 names for a log; returns its name."""
    (name,) = LOG_FILES[kind].of(manifest_at(store, 1).logs.find(log_id))
    store.remove(name)
    return name


def chart_of(store, log_id, version):
    (name,) = CHART.of(read_manifest(store, version).logs.find(log_id))
    return name


def test_each_kind_is_rebuilt_in_some_way():
    assert REBUILDING.keys() == LOG_FILES.keys()


def test_gc_keeps_what_a_version_names_and_removes_the_rest(store):
    first, second = chart_of(store, "a", 1), chart_of(store, "b", 2)
    stray = CHART.name("0" * 64)
    store.create(stray, b"of no log")
    age(store.local, 30)
    assert collect_garbage(str(store.local)).unknown == []
    assert [store.exists(name) for name in (first, second, stray)] == [True, True, False]
    for _ in range(2):
        collect_garbage(str(store.local), keep=Keep(last=1))
        age(store.local, 30)
    assert [store.exists(name) for name in (first, second)] == [False, True]


def test_a_purge_takes_it_along_with_its_log_also_what_no_version_names(store):
    first, second = chart_of(store, "a", 1), chart_of(store, "b", 1)
    data = b"an older chart: a"
    stray = CHART.name(blake3(data).hexdigest())
    store.create(stray, data)
    assert purge(str(store.local), ["a"]).is_proven
    assert [store.exists(name) for name in (first, second, stray)] == [False, True, False]


def test_damage_is_found_and_repaired(built, tmp_path):
    root = tmp_path / "root"
    shutil.copytree(built, root, ignore=shutil.ignore_patterns("v????????"))
    store = as_laid_out(Store.at(str(root)))
    restate(root, lambda record: put_chart(store, record))
    assert verify(str(root), num_workers=1).findings == ()
    lost, damaged = (CHART.of(record)[0] for record in read_manifest(store).logs)
    store.remove(lost)
    flip(root / damaged)
    said = {
        f"{root}/{lost}: chart of the log: missing",
        f"{root}/{damaged}: chart of the log: its bytes changed",
    }
    assert {finding.message for finding in verify(str(root), num_workers=1).findings} == said
    done = repair(str(root), num_workers=1)
    assert {finding.message for finding in done.damaged} == said
    assert done.is_sound
    assert verify(str(root), num_workers=1).findings == ()


def test_a_commit_looks_whether_it_was_removed_meanwhile(store):
    job = following(store, read_manifest(store))
    made = write_records(store, [put_chart(store, written_log(store, "c"))], runs_folder(job.number))
    (name,) = CHART.of(made[0])
    with removing(store, [name]):
        store.remove(name)
    outcome = commit(job, LogOutcomes(made=made.pages, version=made.pages), [])
    assert not outcome["committed"]
    (failure,) = outcome["failures"]
    assert (
        failure["message"]
        == f"{store.uri_of(name)}: removed by `logloom gc` while this build ran; build again"
    )


KINDS = [*LOG_FILES, "chart"]
COPIED = [name for name, kind in LOG_FILES.items() if kind.is_copied]


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_goes_back_to_a_version_that_lacks_a_file_of_any_kind(tmp_path, kind):
    store = full_root(tmp_path)
    name = lose(store, kind)
    with pytest.raises(DatasetError, match=rf"version 1 can't be gone back to: .*{name}.*missing"):
        rollback(store, 1, view="none")
    assert version_numbers(store) == [1, 2]


@pytest.mark.parametrize("kind", KINDS)
def test_a_version_is_gone_back_to_whatever_the_newest_one_lacks_too(tmp_path, kind):
    store = full_root(tmp_path)
    lose(store, kind, "b")
    assert rollback(store, 1, view="none").manifest.logs == read_manifest(store, 1).logs


@pytest.mark.parametrize("kind", COPIED)
def test_what_a_converted_version_names_in_its_source_is_not_looked_for(tmp_path, kind):
    store = full_root(tmp_path, recipe={"columns": {}, "convert": {"from": "elsewhere"}})
    lose(store, kind)
    assert rollback(store, 1, view="none").manifest.version == 3


def test_what_only_a_converted_version_names_is_looked_for_all_the_same(tmp_path):
    store = full_root(tmp_path)
    logs = read_manifest(store, 1).logs
    commit_version(store, 3, "ab", logs=logs, recipe={"columns": {}, "convert": {"from": "elsewhere"}})
    lose(store, LABELS)
    with pytest.raises(DatasetError, match="version 1 can't be gone back to"):
        rollback(store, 1, view="none")


def test_a_version_is_gone_back_to_without_the_files_of_a_purged_log(tmp_path):
    store = full_root(tmp_path)
    rollback(store, 1, view="none")
    rollback(store, 2, view="none")
    assert purge(str(store.local), ["a"]).is_proven
    assert rollback(store, 1, view="none").left_out == ("a",)


@pytest.mark.parametrize("kind", KINDS)
def test_gc_brings_no_version_back_that_lacks_a_file_of_any_kind(tmp_path, kind):
    store = full_root(tmp_path)
    tag(store, 1, ["paper"])
    mark_removed(store, 1, "retention")  # as by a gc that was killed before it looked for tags
    assert collect_garbage(str(store.local), dry_run=True).kept == (1, 2)
    lose(store, kind)
    done = collect_garbage(str(store.local))
    assert done.kept == (2,)
    assert any("version 1 has a tag" in note and "it stays removed" in note for note in done.notes)


def test_files_that_no_record_names_expire_and_are_purged(store, monkeypatch):
    def is_spent(aging, names):
        return [name.startswith("spent") for name in names]

    area = Area("sketches", "sketches", re.compile(r"(spent|kept)-\w+\.json"), is_spent, "plain")
    monkeypatch.setitem(AREAS, "sketches", area)
    for name in ("spent-a.json", "kept-a.json", "kept-b.json", "notes.txt"):
        store.create(f"sketches/{name}", name[-6:-5].encode())
    age(store.local, 30)
    store.create("sketches/spent-young.json", b"")
    done = collect_garbage(str(store.local))
    assert (done.amounts["sketches"].items, done.unknown) == (1, ["sketches/notes.txt"])
    assert store.names("sketches") == ["kept-a.json", "kept-b.json", "notes.txt", "spent-young.json"]
    assert purge(str(store.local), ["a"]).is_proven
    assert store.names("sketches") == ["kept-b.json", "notes.txt", "spent-young.json"]
