"""A kind of file that is registered once is handled by gc, purge, verify, repair and the commit."""

import dataclasses
import re
import shutil

import pytest
from blake3 import blake3

from logloom.io.catalog.inventory import LOG_FILES, LogFileKind
from logloom.io.catalog.manifest import as_laid_out, read_manifest
from logloom.io.catalog.page_merge import write_records
from logloom.io.catalog.removal_notes import removing
from logloom.io.catalog.version_files import runs_folder
from logloom.io.storage.store import Store
from logloom.pipelines.gc.areas import AREAS, Area
from logloom.pipelines.gc.gc import collect_garbage
from logloom.pipelines.purge.purge import purge
from logloom.pipelines.repair.repair import repair
from logloom.pipelines.repair.units import REBUILDING
from logloom.pipelines.verify.verify import verify
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
