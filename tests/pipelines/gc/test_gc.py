"""Garbage collection removes what nobody needs, and never what a build is about to commit."""

import contextlib
import dataclasses
import json
import shutil
import time
from types import SimpleNamespace

import numpy as np
import pytest
from blake3 import blake3
from hypothesis import example, given
from hypothesis import strategies as st

import logloom.io.formats.table as tables
from logloom.cli.gc import seconds
from logloom.errors import CommitConflictError, DatasetError, ReadBackError, StorageError, UsageError
from logloom.io.catalog import commit_times, removal_notes
from logloom.io.catalog.artifacts import Holdings, unit_keys
from logloom.io.catalog.commit_times import write_times
from logloom.io.catalog.entries import ENTRY, FAN_OUT, read_log_part, unit_names, write_log_part
from logloom.io.catalog.manifest import as_laid_out, open_root, read_manifest, resolve_version
from logloom.io.catalog.page_merge import write_records
from logloom.io.catalog.pages import page_file
from logloom.io.catalog.records import LogRecords
from logloom.io.catalog.tags import change_tags, read_tags
from logloom.io.catalog.version_files import (
    VersionNumbers,
    all_versions,
    runs_folder,
    version_file,
    version_numbers,
    view_folder,
)
from logloom.io.storage import file_ages
from logloom.io.storage.metadata import canonical
from logloom.io.storage.store import Store
from logloom.pipelines.build.build import build
from logloom.pipelines.gc import gc, removal
from logloom.pipelines.gc.gc import collect_garbage
from logloom.pipelines.gc.retention import kept_versions
from logloom.pipelines.plan import next_version
from logloom.pipelines.plan.plan import plan_build
from logloom.pipelines.purge.purge import purge
from logloom.pipelines.versions import tag as tagging
from logloom.pipelines.versions.tag import tag
from logloom.recipe import Keep, Recipe
from logloom.transforms.build import reuse, unit_checks
from logloom.transforms.build.assembly import files as assembly
from logloom.transforms.build.commit import Outcome, create_version, outcome_name
from logloom.transforms.build.reuse import removed_meanwhile, taken_unit
from logloom.transforms.build.run_note import RunningNote
from logloom.transforms.build.unit_checks import finished_unit
from tests import faulty
from tests.forking import command
from tests.pipelines.conftest import build_at
from tests.pipelines.roots import DAY, age, commit_version, contents, following, made_up_unit, write_unit

LAST = Keep(last=1)


@pytest.fixture
def store(tmp_path) -> Store:
    return Store(str(tmp_path / "root"), fan_out=FAN_OUT)


def test_the_recipe_of_the_newest_version_or_the_caller_says_what_stays(store):
    uri = str(store.local)
    commit_version(store, 1, ["a"])
    commit_version(store, 2, ["a"])
    assert not collect_garbage(uri).removed
    commit_version(store, 3, ["a"], recipe={"columns": {}, "keep": {"last": 2, "tags": "all"}})
    assert collect_garbage(uri, dry_run=True).removed == (1,)
    assert version_numbers(store) == [1, 2, 3]
    assert collect_garbage(uri).removed == (1,)
    done = collect_garbage(uri, keep=Keep(last=1))
    assert (done.removed, done.kept, done.waiting) == ((2,), (3,), (1, 2))  # for the grace, as readers may be
    assert version_numbers(store) == [3]


def test_retention_keeps_the_last_ones_those_of_days_and_those_with_tags():
    times = {number: 1e9 + number * DAY / 2 for number in range(1, 9)}  # two a day
    assert kept_versions(times, (), None) == set(times)
    assert kept_versions(times, (), Keep(last=2)) == {7, 8}
    assert kept_versions(times, [3, 99], Keep(last=1)) == {3, 8}
    assert kept_versions(times, [3], Keep(last=1, tags="none")) == {8}
    by_day = kept_versions(times, (), Keep(daily=3))
    assert max(by_day) == 8
    assert len(by_day) == 3
    assert all(a - b == 2 for a, b in zip(sorted(by_day)[1:-1], sorted(by_day), strict=False))
    assert kept_versions({}, (), Keep(last=3)) == set()
    assert kept_versions(times | {1: None, 2: None}, (), Keep(last=1)) == {8}
    assert kept_versions(times | {1: None, 2: None}, (), Keep(daily=1)) == {1, 2, 8}


def nights(store, monkeypatch, days):
    """Versions, each committed on one of some days, by number; None for one whose commit was killed."""
    for number, day in days.items():
        commit_version(store, number, [f"log-{number}"])
        if day is not None:
            monkeypatch.setattr(commit_times, "clock", lambda day=day: int(time.time() - (30 - day) * DAY))
            write_times(store, number, 0)


def test_days_are_those_of_commits_whatever_dates_a_copy_gave_files(store, monkeypatch, tmp_path):
    nights(store, monkeypatch, {1: 1, 2: 2, 3: 2, 4: 3, 5: 5})
    copy = tmp_path / "copy"
    shutil.copytree(store.local, copy, copy_function=shutil.copyfile)  # all of today
    assert collect_garbage(str(copy), keep=Keep(daily=4)).kept == (1, 3, 4, 5)
    age(store.local, 300)
    assert collect_garbage(str(store.local), keep=Keep(daily=2)).kept == (4, 5)


def test_a_version_of_unknown_time_stays_where_days_are_asked_for(store, monkeypatch):
    nights(store, monkeypatch, {1: 1, 2: None, 3: 25, 4: 3, 5: 4})
    done = collect_garbage(str(store.local), keep=Keep(daily=1))
    assert (done.kept, done.removed) == ((2, 3, 5), (1, 4))
    assert any(note.startswith("no commit time is recorded for some versions (2)") for note in done.notes)
    assert any(note.startswith("version 3: was committed") for note in done.notes)
    assert collect_garbage(str(store.local), keep=LAST).kept == (5,)


def test_a_tag_brings_no_version_back_whose_files_are_gone(store, tmp_path):
    for number in (1, 2):
        commit_version(store, number, [f"log-{number}"])
    for _ in range(2):
        collect_garbage(str(store.local), keep=LAST)
        age(store.local, 30)
    change_tags(store, lambda tags: {"gold": 1})  # as of a command that looked before the first gc
    copy = tmp_path / "copy"  # in which the note of the removal is young
    shutil.copytree(store.local, copy, copy_function=shutil.copyfile)
    done = collect_garbage(str(copy), keep=LAST)
    assert done.kept == (2,)
    assert any("version 1 has a tag" in note and "it stays removed" in note for note in done.notes)


@pytest.mark.parametrize("folder", ["tags", "tags-again"])
def test_a_version_stays_though_one_file_with_its_tag_is_lost(store, folder):
    for number in (1, 2, 3):
        commit_version(store, number, [f"log-{number}"])
    tag(store, 2, ["gold"])
    store.remove_all(f"versions/{folder}")
    done = collect_garbage(str(store.local), keep=LAST)
    assert (done.kept, done.unknown) == ((2, 3), [])


def ended_build(store, number, began, heard, ended=0):
    """What a build of a number left that is over, and committed that version."""
    note = RunningNote("direct", began, heard, host="elsewhere", pid=1)
    store.replace(f"{runs_folder(number)}/abc.running.json", canonical(dataclasses.asdict(note)))
    outcome = Outcome(number, True, (), "", "", 1, 0, ended=ended)
    store.replace(outcome_name(number, "abc"), canonical(dataclasses.asdict(outcome)))


def test_how_long_a_build_took_is_what_it_recorded_not_the_date_of_a_copy(store, tmp_path):
    commit_version(store, 1, ["a"])
    began = int(time.time() - 9 * DAY)
    ended_build(store, 1, began, began + 4000)
    copy = tmp_path / "copy"
    shutil.copytree(store.local, copy, copy_function=shutil.copyfile)
    assert collect_garbage(str(copy)).kept == (1,)
    with pytest.raises(UsageError, match="took 1 h 6 min"):
        collect_garbage(str(copy), grace_s=3600)
    ended_build(store, 1, began, began + 4000, ended=began + 7200)
    with pytest.raises(UsageError, match="took 2 h 0 min"):
        collect_garbage(str(store.local), grace_s=3600)


@pytest.mark.parametrize("began", [60, int(time.time() + 30 * DAY)], ids=["never-set", "ahead"])
def test_a_build_whose_clock_was_wrong_is_reported_and_refuses_no_collection(store, began):
    commit_version(store, 1, ["a"])
    ended_build(store, 1, began, int(time.time()), ended=int(time.time()))
    done = collect_garbage(str(store.local))
    assert [note.partition(" is unknown")[0] for note in done.notes] == [
        "the duration of the build of version 1 (abc)"
    ]


def test_what_nobody_needs_goes_once_it_is_old_and_all_else_stays_to_the_byte(store):
    commit_version(store, 1, ["a", "b"])
    age(store.local, 30)
    (store.local / "parts/tar/notes.txt").write_text("somebody's")
    for name in ("mine.txt", "parts/notes.txt"):
        (store.local / name).write_text("somebody's")
    before = contents(store.local)
    write_unit(store, made_up_unit("old"))
    write_log_part(store, [made_up_unit("old")])
    (store.local / "index").mkdir()
    for kind in ("index", "0123456789abcdef.video"):
        (store.local / f"index/{'0' * 64}.{kind}").write_bytes(b"of no log")
    store.create("runs/00000001/attempts/x", b"")
    (store.local / "tmp").mkdir(exist_ok=True)
    (store.local / "tmp/elsewhere-1-0123abcd").mkdir()
    age(store.local, 8)
    young = [write_unit(store, made_up_unit("young")).folder]
    told = collect_garbage(str(store.local), dry_run=True)
    there = contents(store.local)
    assert before.items() < there.items()
    assert {kind: amount.items for kind, amount in told.amounts.items()} == {
        "units": 1,
        "log parts": 1,
        "index": 2,
        "runs": 1,
        "scratch": 1,
    }
    assert told.unknown == ["mine.txt", "parts/notes.txt", "parts/tar/notes.txt"]
    done = collect_garbage(str(store.local))
    assert dataclasses.replace(done, dry_run=True) == told
    left = contents(store.local)
    assert {name for name in left if name not in before} == {
        f"{store.stored_name(folder)}/{file}" for folder in young for file in (ENTRY, "rows.bin")
    }
    assert before.items() < left.items()
    assert not store.path_of(made_up_unit("old").folder).exists()
    assert not collect_garbage(str(store.local)).amounts


def test_a_version_goes_first_and_its_files_after_the_grace(store):
    commit_version(store, 1, ["a", "b"])
    commit_version(store, 2, ["b", "c"])
    store.create(f"{view_folder(1)}/tar/all/000000", b"")
    age(store.local, 30)
    whole = contents(store.local)
    done = collect_garbage(str(store.local), keep=LAST)
    assert (done.removed, done.waiting, done.kept, done.amounts) == ((1,), (1,), (2,), {})
    assert whole.items() < contents(store.local).items()  # readers of version 1 go on
    assert version_numbers(store) == [2]
    with pytest.raises(UsageError, match="version 1 was removed by `logloom gc`; there is only 2"):
        read_manifest(store, 1)
    assert not collect_garbage(str(store.local), keep=LAST).amounts  # the note is young
    age(store.local, 8)
    done = collect_garbage(str(store.local))
    assert {kind: amount.items for kind, amount in done.amounts.items()} == {
        "units": 2,
        "log parts": 2,
        "pages": 1,
        "views": 1,
    }
    gone = {name.split("/")[0] for name in whole.keys() - contents(store.local).keys()}
    assert gone == {"parts", "logs", "versions", view_folder(1)}
    for record in read_manifest(store).logs:
        for entry in read_log_part(store, record.part):
            assert dataclasses.replace(finished_unit(store, entry), statistics="") == entry
    manifest = read_manifest(store)
    zombie = dataclasses.replace(following(store, manifest), number=1, parent=None, parent_digest="")
    with pytest.raises(CommitConflictError):  # its number stays taken
        create_version(zombie, manifest.logs, [], {})


def test_what_a_gc_of_a_shorter_grace_removed_of_a_removed_version_holds_no_other_gc_up(store):
    first = commit_version(store, 1, ["a", "b"])
    commit_version(store, 2, ["b", "c"])
    age(store.local, 30)
    collect_garbage(str(store.local), keep=LAST)
    age(store.local, 1)
    assert collect_garbage(str(store.local), grace_s=3600).amounts["pages"].items == 1
    assert not store.exists(page_file(first.logs.pages[0]))
    for dry_run in (True, False):
        done = collect_garbage(str(store.local), keep=LAST, dry_run=dry_run)  # of its grace the note is young
        assert (done.kept, done.waiting, done.amounts) == ((2,), (1,), {})


@pytest.mark.parametrize("gone", ["page", "part"])
def test_what_is_left_of_a_removed_version_stays_while_its_note_is_young(store, gone):
    first = commit_version(store, 1, ["a", "b"])
    second = commit_version(store, 2, ["b", "c"])
    age(store.local, 30)
    collect_garbage(str(store.local), keep=LAST)
    part = f"logs/{first.logs.find('a').part}.parquet"
    page = page_file(first.logs.pages[0])
    store.remove(part if gone == "part" else page)
    left = contents(store.local)
    done = collect_garbage(str(store.local), keep=LAST)
    if gone == "part":  # nothing else names the units of that log
        assert {kind: amount.items for kind, amount in done.amounts.items()} == {"units": 2}
        assert store.exists(page)
    else:
        assert set(done.amounts) == {"units", "log parts"}
        assert contents(store.local).items() < left.items()
    shared = f"logs/{second.logs.find('b').part}.parquet"
    store.remove(shared)  # which the version that stays names, too
    with pytest.raises(DatasetError, match=f"{shared}.*missing"):
        collect_garbage(str(store.local), keep=LAST)


def test_a_damaged_file_of_a_removed_version_is_damage(store):
    first = commit_version(store, 1, ["a", "b"])
    commit_version(store, 2, ["b", "c"])
    collect_garbage(str(store.local), keep=LAST)
    store.replace(page_file(first.logs.pages[0]), b"rot")
    with pytest.raises(DatasetError, match="damaged"):
        collect_garbage(str(store.local), keep=LAST)


def test_what_a_killed_first_build_left_goes_though_there_is_no_version(store):
    unit = write_unit(store, made_up_unit("a"))
    with pytest.raises(UsageError, match="no version"):
        purge(str(store.local), ["a"])  # which needs one that has the log
    age(store.local, 1.1)
    assert collect_garbage(str(store.local), grace_s=DAY).amounts["units"].items == 1
    assert not store.path_of(unit.folder).exists()


def test_while_a_manifest_is_lost_nothing_is_removed(store):
    for number in (1, 2, 3):
        commit_version(store, number, [f"log-{number}"])
    write_unit(store, made_up_unit("old"))
    age(store.local, 30)
    store.remove(version_file(2))
    before = contents(store.local)
    with pytest.raises(DatasetError, match=r"(?s)manifest of version 2 is lost.*nothing was removed"):
        collect_garbage(str(store.local))
    with pytest.raises(DatasetError, match="manifest of version 2 is lost"):
        purge(str(store.local), logs=["log-1"])
    assert contents(store.local) == before


def test_a_version_of_a_lost_manifest_can_be_given_up(store):
    for number in (1, 2, 3):
        commit_version(store, number, [f"log-{number}"])
    tag(store, 2, ["gold"])
    age(store.local, 30)
    store.remove(version_file(2))
    store.create(removal_notes.removed_file(2), b"")
    done = collect_garbage(str(store.local), keep=Keep(last=2))
    assert (done.kept, done.waiting) == ((1, 3), (2,))
    assert {kind: amount.items for kind, amount in done.amounts.items()} == {
        "units": 2,
        "log parts": 2,
        "pages": 1,
    }
    assert all_versions(store) == ([1, 3], [2], [])
    assert purge(str(store.local), logs=["log-1"]).files


def test_the_number_of_a_lost_manifest_is_taken_by_no_other_version(store):
    for number in (1, 2, 3):
        commit_version(store, number, ["a"])
    store.remove(version_file(3))
    for look in (read_manifest, next_version.next_version):
        with pytest.raises(DatasetError, match="manifest of version 3 is lost"):
            look(store)
    assert read_manifest(store, 2).version == 2
    store.create(removal_notes.removed_file(3), b"")
    newest, following = next_version.next_version(store)
    assert (newest.version, following["parent"], following["number"]) == (2, 2, 4)


def test_a_plan_upon_a_version_that_is_removed_just_then_is_one_that_another_build_was_first_of(
    store, monkeypatch
):
    commit_version(store, 1, ["a"])
    commit_version(store, 2, ["b"])
    collect_garbage(str(store.local), keep=LAST)
    monkeypatch.setattr(
        next_version, "all_versions", lambda store: VersionNumbers([1], [], [])
    )  # as they were a moment ago
    newest, following = next_version.next_version(store)
    assert (newest.version, following["number"]) == (1, 2)  # whose commit is refused


def test_the_newest_version_stays_whatever_a_note_says_and_a_tag_keeps_its_version(store):
    for number in (1, 2, 3):
        commit_version(store, number, ["a"])
    change_tags(store, lambda tags: {"golden": 1})
    store.create(removal_notes.removed_file(3), b"{}")
    done = collect_garbage(str(store.local), keep=LAST)
    assert done.removed == (2,)
    assert version_numbers(store) == [1, 3]
    assert resolve_version(store, "golden") == 1
    collect_garbage(str(store.local), keep=Keep(last=1, tags="none"))
    with pytest.raises(UsageError, match=r"version 1 \(golden\) was removed"):
        read_manifest(store, "golden")


def test_a_grace_below_the_longest_build_is_refused_and_one_that_runs_counts(store):
    commit_version(store, 1, ["a"])
    began = int(time.time() - 7200)
    note = RunningNote("direct", began, int(time.time()), host="elsewhere", pid=1)
    store.replace(f"{runs_folder(2)}/abc.running.json", canonical(dataclasses.asdict(note)))
    with pytest.raises(UsageError, match="has been running for 2 h 0 min, and a grace of 1 h"):
        collect_garbage(str(store.local), grace_s=3600)
    ended = dataclasses.replace(note, heard=began + 4000, ended="KeyboardInterrupt: ")
    store.replace(f"{runs_folder(2)}/abc.running.json", canonical(dataclasses.asdict(ended)))
    with pytest.raises(UsageError, match="took 1 h 6 min"):
        collect_garbage(str(store.local), grace_s=3600)
    collect_garbage(str(store.local), grace_s=5000)


def test_nothing_is_removed_while_damage_hides_what_a_version_needs(store):
    manifest = commit_version(store, 1, ["a", "b"])
    write_unit(store, made_up_unit("old"))
    age(store.local, 30)
    store.remove(f"logs/{manifest.logs[0].part}.parquet")
    before = contents(store.local)
    with pytest.raises(DatasetError, match="missing"):
        collect_garbage(str(store.local))
    assert contents(store.local) == before


def test_no_unit_of_a_table_goes_while_nobody_knows_what_a_table_elsewhere_needs(store):
    commit_version(store, 1, ["a"])
    kept = write_unit(store, made_up_unit("old", output="table"))
    write_unit(store, made_up_unit("old"))
    store.create("referenced-by/x.json", json.dumps({"table": str(store.local / "gone")}).encode())
    age(store.local, 30)
    done = collect_garbage(str(store.local))
    assert done.amounts["units"].items == 1
    assert "remove this note" in done.notes[0]
    assert finished_unit(store, kept)


@pytest.mark.parametrize("place", ["", "v00000001/table/all/"])
def test_nothing_goes_where_no_installed_part_reads_the_notes_of_datasets_elsewhere(store, uninstall, place):
    commit_version(store, 1, ["a"])
    commit_version(store, 2, ["a"])
    store.create(f"{place}referenced-by/x.json", b"{}")
    uninstall("table")
    with pytest.raises(UsageError, match=f"/{place}referenced-by: no installed part reads notes"):
        collect_garbage(str(store.local), keep=LAST)
    assert version_numbers(store) == [1, 2]


def test_what_a_table_elsewhere_points_to_stays_until_its_note_goes(drive, tmp_path):
    table = "outputs:\n  table: {reference: 'R'}\npartition: {rows: 40}\n"
    text = drive.text[: drive.text.index("outputs:")]
    root, user = tmp_path / "root", tmp_path / "user"
    first = Recipe.from_yaml(text + table.replace("{reference: 'R'}", "{}"))
    build(plan_build(first, str(root)), view="none")
    build(plan_build(Recipe.from_yaml(text + table.replace("'R'", f"'{root}@1'")), str(user)))
    assert tables.verify(f"{user}@1") == []
    store, manifest = open_root(Store.at(str(root)))
    emptied = dataclasses.replace(
        manifest, version=2, parent=1, logs=LogRecords(), assembled=(), totals=LogRecords().totals
    )
    store.create(version_file(2), emptied.to_bytes())
    assert collect_garbage(str(root), keep=LAST).removed == (1,)
    age(root, 30)
    assert collect_garbage(str(root)).amounts["units"].items
    assert tables.verify(f"{user}@1") == []
    (note,) = (root / "referenced-by").iterdir()
    note.unlink()
    assert collect_garbage(str(root)).amounts["units"].items
    assert tables.verify(f"{user}@1") != []


# --- races, stepped through by hand ---------------------------------------------------------------------


@pytest.fixture
def leftover(store):
    """A root of one version, the unit that a build left which died long ago, and the next build."""
    manifest = commit_version(store, 1, ["a"])
    unit = write_unit(store, made_up_unit("new"))
    age(store.local, 30)
    return unit, following(store, manifest)


def lost(job, unit):
    """What the commit of a version with a new log of one unit finds to be gone."""
    record = dataclasses.replace(
        read_manifest(job.store).logs[0], log_id=unit.log_id, part=write_log_part(job.store, [unit]), units=1
    )
    made = write_records(job.store, [record], runs_folder(job.number))
    return [place for _, place in removed_meanwhile(job, made, read_manifest(job.store).logs, [])]


def test_a_unit_that_a_build_took_over_stays(store, leftover):
    unit, job = leftover
    assert taken_unit(job, unit) == unit
    assert not collect_garbage(str(store.local)).amounts
    assert finished_unit(store, unit)
    assert not lost(job, unit)


def test_a_unit_that_is_removed_before_it_was_written_anew_is_built(store, leftover, monkeypatch):
    unit, job = leftover
    real = reuse.refresh

    def refresh_late(*arguments):
        assert collect_garbage(str(store.local)).amounts["units"].items == 1
        return real(*arguments)

    monkeypatch.setattr(reuse, "refresh", refresh_late)
    assert taken_unit(job, unit) is None
    write_unit(store, unit)
    assert not lost(job, unit)  # what was noted is there again


def test_a_unit_that_is_written_anew_while_it_is_noted_stays(store, leftover, monkeypatch):
    unit, job = leftover
    real = gc._Collection._remove_units

    def take_first(self, folders, check):
        assert folders == [unit.folder]
        assert taken_unit(job, unit) == unit
        real(self, folders, check)

    monkeypatch.setattr(gc._Collection, "_remove_units", take_first)
    assert not collect_garbage(str(store.local)).amounts
    assert not lost(job, unit)


@pytest.mark.parametrize("is_built", [False, True])
def test_a_unit_that_is_taken_or_made_between_the_last_look_and_the_removal_stops_the_commit(
    store, leftover, monkeypatch, is_built
):
    unit, job = leftover
    if is_built:
        store.remove(f"{unit.folder}/{ENTRY}")  # of a build that died amid it
    real = file_ages.remove_files

    def take_first(store, names, within=""):
        if is_built and within:  # its entry is gone
            write_unit(store, unit)
        elif not is_built and not within:
            assert taken_unit(job, unit) == unit
        real(store, names, within)

    monkeypatch.setattr(removal, "remove_files", take_first)
    assert collect_garbage(str(store.local)).amounts["units"].items == 1
    assert finished_unit(store, unit) is None
    (place, *_) = lost(job, unit)
    assert unit.identity in place


def test_a_unit_that_is_made_and_committed_after_it_was_seen_damaged_is_finished(
    store, leftover, monkeypatch
):
    unit, _ = leftover
    store.remove(f"{unit.folder}/rows.bin")
    naming = unit_checks._version_naming

    def committed(*arguments):
        commit_version(store, 2, [unit.log_id])
        return naming(*arguments)

    monkeypatch.setattr(unit_checks, "_version_naming", committed)
    assert finished_unit(store, unit) == unit


def test_a_collection_that_stood_still_for_half_its_grace_removes_nothing_more(store, leftover, monkeypatch):
    unit, _ = leftover
    now = removal_notes.time.clock_gettime(removal_notes._CLOCK)
    clock = SimpleNamespace(clock_gettime=lambda which: now, time=time.time, sleep=time.sleep)
    monkeypatch.setattr(removal_notes, "time", clock)
    look = gc._Collection._old_files
    looks = iter([0, 4 * DAY])  # it is suspended at its second look, after its note

    def suspended(self, folder):
        nonlocal now
        now += next(looks, 0)
        return look(self, folder)

    monkeypatch.setattr(gc._Collection, "_old_files", suspended)
    with pytest.raises(StorageError, match=r"noted 96 h 0 min ago .* this process was suspended"):
        collect_garbage(str(store.local))
    assert finished_unit(store, unit) is not None
    monkeypatch.undo()
    collect_garbage(str(store.local))
    assert finished_unit(store, unit) is None


def test_a_commit_waits_for_a_removal_and_says_so_where_that_was_killed(store, leftover, monkeypatch):
    unit, job = leftover
    assert taken_unit(job, unit)
    with pytest.raises(KeyboardInterrupt), removal_notes.removing(store, [unit.folder]):
        raise KeyboardInterrupt
    monkeypatch.setattr(removal_notes, "WAIT_S", 0.0)
    with pytest.raises(StorageError, match="is being removed by `logloom gc`"):
        lost(job, unit)
    age(store.local / "runs", 30)
    collect_garbage(str(store.local))  # of a process that is long gone
    assert not lost(job, unit)


def test_a_commit_does_not_wait_for_a_removal_that_was_forgotten_since_it_looked(
    store, leftover, monkeypatch
):
    unit, _ = leftover
    with removal_notes.removing(store, [unit.folder]):
        pass
    noted = removal_notes.Removals(store)
    assert removal_notes.are_in(noted.keys, [unit.folder]).all()
    removal_notes.forget_removals(store, time.time() + DAY, 3600)  # another gc, long after the first
    assert not store.names(removal_notes.REMOVING)
    monkeypatch.setattr(removal_notes, "WAIT_S", 0.0)
    noted.wait(unit.folder)


@pytest.mark.parametrize("is_done", [True, False])
def test_a_note_is_forgotten_a_grace_after_the_last_that_may_have_been_removed_by_it(store, is_done):
    # A build that began after the note, and before a removal, must still see it at its commit.
    name = f"{removal_notes.REMOVING}/elsewhere"
    store.create(name, b"")
    now = removal_notes.changed_at(store, name)
    if is_done:
        age(store.local / "runs", 30)  # it took long, or stood still
        store.create(f"{name}.done", b"")
    removal_notes.forget_removals(store, now + (0.9 if is_done else 1.4) * DAY, DAY)
    assert store.exists(name)
    removal_notes.forget_removals(store, now + (1.1 if is_done else 1.6) * DAY, DAY)
    assert not store.names(removal_notes.REMOVING)


def test_an_interrupted_collection_is_run_again(store, leftover, monkeypatch):
    unit, job = leftover
    for number in range(5):
        write_unit(store, made_up_unit("more", number))
    age(store.local, 30)
    removed = []

    def dies(store, names, within=""):
        removed.extend(names)
        if len(removed) > 8:
            raise KeyboardInterrupt
        file_ages.remove_files(store, names, within)

    monkeypatch.setattr(removal, "remove_files", dies)
    with pytest.raises(KeyboardInterrupt):
        collect_garbage(str(store.local))
    assert taken_unit(job, unit) is None
    monkeypatch.undo()
    collect_garbage(str(store.local))
    assert not store.path_of(unit.folder).exists()
    assert len(list(unit_names(store, "tar"))) == 2


def test_what_the_parent_names_is_not_written_again(store, leftover):
    _, job = leftover
    unit = made_up_unit("a")
    before = store.state(f"{unit.folder}/{ENTRY}")
    assert taken_unit(job, unit) == unit
    assert store.state(f"{unit.folder}/{ENTRY}") == before


def test_files_named_by_their_content_are_young_whenever_they_are_written(store):
    part = write_log_part(store, [made_up_unit("a")])
    age(store.local, 30)
    assert write_log_part(store, [made_up_unit("a")]) == part
    changed = file_ages.changed_at(store, f"logs/{part}.parquet")
    assert changed is not None
    assert changed > time.time() - DAY


# --- an object store, and large roots -------------------------------------------------------------------


def test_in_an_object_store_too(monkeypatch):
    faulty.install()
    store = as_laid_out(Store.at(f"{faulty.ROOT}/gc"))
    commit_version(store, 1, ["a"])
    write_unit(store, made_up_unit("old"))
    monkeypatch.setattr(gc, "now_of", lambda store: file_ages.now_of(store) + 8 * DAY)
    done = collect_garbage(store.uri)
    assert done.amounts["units"].files == 2
    assert not store.exists(f"{made_up_unit('old').folder}/rows.bin")
    assert finished_unit(store, made_up_unit("a", 1))
    assert version_file(1).endswith("00000001.json")
    assert store.names("tmp") == []


def test_a_rule_of_tags_alone_is_refused(tmp_path):
    done = command("gc", str(tmp_path), "--no-keep-tags")
    assert done.returncode == 2
    assert "--no-keep-tags needs --keep-last or --keep-daily" in done.stderr


def test_names_are_found_among_keys():
    keys = removal_notes.keys_of(f"name {number}" for number in range(1000))
    assert keys.dtype == np.uint64
    assert removal_notes.are_in(keys, ["name 1", "name 1000", "name 999"]).tolist() == [True, False, True]
    assert removal_notes.are_in(removal_notes.keys_of([]), ["a"]).tolist() == [False]


@given(st.lists(st.text(max_size=40) | st.text("0123456789abcdef ", min_size=32, max_size=32)))
@example(["0" * 31, "1" * 33])
@example([" " * 32, "0" * 32])
def test_units_have_the_same_keys_beside_whatever_others(names):
    keys = unit_keys("tar", names)
    assert keys.dtype == np.uint64
    assert keys.tolist() == [unit_keys("tar", [name])[0] for name in names]
    assert not set(keys.tolist()) & set(unit_keys("zarr", names).tolist())


def test_units_of_other_names_have_other_keys():
    names = [blake3(b"%d" % number).hexdigest()[:32] for number in range(1000)]
    names += ["", "0", " " * 32, "é" * 32, "0" * 31, "0" * 33]
    assert len(set(unit_keys("tar", names).tolist())) == len(names)
    assert Holdings(np.sort(unit_keys("tar", names)), knows_logs=True).has_units("tar", names[:3]).all()
    assert not Holdings(np.sort(unit_keys("tar", names)), knows_logs=True).has_units("zarr", names).any()


def test_a_folder_of_others_is_left_alone_whatever_its_folders_are_called(tmp_path):
    model = tmp_path / "runs/20260101/model.ckpt"
    model.parent.mkdir(parents=True)
    model.write_bytes(b"trained for weeks")
    age(tmp_path, days=30)
    done = collect_garbage(str(tmp_path))
    assert model.exists()
    assert done.amounts == {}
    (tmp_path / "train.py").touch()
    with pytest.raises(UsageError, match=r"not a logloom root, it contains train\.py"):
        collect_garbage(str(tmp_path))


def test_what_no_build_writes_stays_in_runs_too(store):
    commit_version(store, 1, ["a"])
    mine, left = f"{runs_folder(1)}/notes.txt", f"{runs_folder(1)}/{'a' * 64}.parquet"
    for name in (mine, left):
        store.replace(name, b"")
    age(store.local, days=30)
    assert collect_garbage(str(store.local), kept_runs=0).unknown == [mine]
    assert (store.exists(mine), store.exists(left)) == (True, False)


def test_a_version_with_a_tag_that_a_killed_gc_took_out_comes_back(store):
    commit_version(store, 1, ["a"])
    commit_version(store, 2, ["a"])
    tag(store, 1, ["paper"])
    root = str(store.local)
    removal_notes.mark_removed(
        store, 1, "retention"
    )  # as by a gc that had read tags before, and was killed then
    assert collect_garbage(root, keep=Keep(last=1, tags="none"), dry_run=True).kept == (2,)
    assert collect_garbage(root, keep=LAST, dry_run=True).kept == (1, 2)
    assert version_numbers(store) == [2]
    assert collect_garbage(root, keep=LAST).kept == (1, 2)
    assert resolve_version(store, "paper") == 1
    removal_notes.mark_removed(store, 1, "retention")
    age(store.local, days=30)  # another gc may be removing its files by now
    done = collect_garbage(root)
    assert (done.kept, done.waiting, done.amounts) == ((2,), (1,), {})
    assert done.notes == [
        "version 1 has a tag, and a gc that was killed counted it as removed: run gc again to bring it back"
    ]
    assert collect_garbage(root).kept == (1, 2)


def test_a_version_that_was_removed_in_spite_of_its_tag_stays_removed(store):
    for number in (1, 2):
        commit_version(store, number, ["a"])
    tag(store, 1, ["paper"])
    root = str(store.local)
    assert collect_garbage(root, keep=Keep(last=1, tags="none")).removed == (1,)
    for keep in (None, LAST):
        done = collect_garbage(root, keep=keep)
        assert (done.kept, done.waiting, done.notes) == ((2,), (1,), [])
    assert version_numbers(store) == [2]


@pytest.mark.parametrize("first", ["gc", "tag"])
def test_of_gc_and_whoever_tags_a_version_meanwhile_one_gives_way(store, monkeypatch, first):
    commit_version(store, 1, ["a"])
    commit_version(store, 2, ["a"])
    tag(store, 2, ["gold"])
    root = str(store.local)
    if first == "tag":  # it is written after gc read tags
        mark = gc.mark_removed
        monkeypatch.setattr(gc, "mark_removed", lambda *told: (tag(store, 1, ["paper"]), mark(*told)))
        assert collect_garbage(root, keep=LAST).removed == ()
        assert version_numbers(store) == [1, 2]
        assert read_tags(store) == {"gold": 2, "paper": 1}
    else:  # gc comes between the look for the version and the tag
        change = tagging.change_tags

        def late(*told):
            monkeypatch.undo()
            assert collect_garbage(root, keep=LAST).removed == (1,)
            return change(*told)

        monkeypatch.setattr(tagging, "change_tags", late)
        with pytest.raises(UsageError, match="version 1 was removed by `logloom gc` meanwhile"):
            tag(store, 1, ["gold", "paper"], move=True)
        assert read_tags(store) == {"gold": 2}
    with pytest.raises(UsageError, match="was removed") if first == "gc" else contextlib.nullcontext():
        tag(store, 1, ["late"])


def test_a_version_that_gc_brought_back_for_a_tag_that_gave_way_is_tagged_after_all(store, monkeypatch):
    for number in (1, 2):
        commit_version(store, number, ["a"])
    change, note = tagging.change_tags, "versions/00000001.removed"
    meanwhile = [lambda: store.create(note, b"{}"), lambda: store.remove(note)]  # by gc, which sees the tag

    def beside(*told):
        if meanwhile:
            meanwhile.pop(0)()
        return change(*told)

    monkeypatch.setattr(tagging, "change_tags", beside)
    assert tag(store, 1, ["paper"]) == (1, {"paper": 1})
    assert read_tags(store) == {"paper": 1}


def test_a_tag_of_a_version_that_was_removed_is_none_to_choose(store):
    for number in (1, 2):
        commit_version(store, number, ["a"])
    tag(store, 1, ["gold"])
    tag(store, 2, ["paper"])
    assert collect_garbage(str(store.local), keep=Keep(last=1, tags="none")).removed == (1,)
    with pytest.raises(
        UsageError, match=r"version 1 \(gold\) was removed by `logloom gc`; there are 2, paper$"
    ):
        read_manifest(store, "gold")
    with pytest.raises(UsageError, match=r"no version 'silver'; there are 2, paper$"):
        read_manifest(store, "silver")


def test_a_grace_is_a_duration_as_recipes_have_them(tmp_path):
    root = str(tmp_path)
    for wrong, why in (("7", "write a duration like 7d"), ("7x", "unknown unit 'x'"), ("-1d", "is negative")):
        done = command("gc", root, f"--grace={wrong}")
        assert (done.returncode, why in done.stderr) == (2, True), done.stderr
    assert seconds("1.5d", "--grace", "7d") == 1.5 * 86400


def test_a_unit_that_goes_while_its_dataset_is_put_together_asks_for_another_build(
    drive, tmp_path, monkeypatch
):
    plan_chunks = assembly.plan_chunks

    def planned(job, *rest):
        tasks = plan_chunks(job, *rest)
        for folder in tasks[0].reads if tasks else ():
            shutil.rmtree(job.store.path_of(folder))
        return tasks

    recipe = Recipe.from_yaml(drive.text[: drive.text.index("outputs:")] + "outputs: {zarr: {}}\n")
    with monkeypatch.context() as patched:
        patched.setattr(assembly, "plan_chunks", planned)
        said = "root/parts/zarr/.*: removed by `logloom gc` while this build ran; build again"
        with pytest.raises(ReadBackError, match=said):
            build_at(recipe, tmp_path / "root")
    assert build_at(recipe, tmp_path / "root").manifest.assembled
