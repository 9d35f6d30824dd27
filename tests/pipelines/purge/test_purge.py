"""Purging erases a log from all of a root, proves it, and nothing brings the log back."""

import dataclasses
import json
import os
import re
import shutil

import pytest

import logloom.datasets
from logloom.demo import make_drives
from logloom.errors import BesideError, DatasetError, PurgedError, UsageError
from logloom.io.catalog import artifacts, removal_notes
from logloom.io.catalog.entries import read_log_part
from logloom.io.catalog.manifest import as_laid_out, read_assembled, read_manifest
from logloom.io.catalog.page_merge import write_records
from logloom.io.catalog.pages import LogStatus
from logloom.io.catalog.tombstones import Purged
from logloom.io.catalog.version_files import version_file
from logloom.io.storage.metadata import canonical
from logloom.io.storage.store import Store
from logloom.pipelines import status
from logloom.pipelines.build.build import build
from logloom.pipelines.gc.gc import collect_garbage
from logloom.pipelines.plan.logs import PlanLogs
from logloom.pipelines.plan.next_version import Before
from logloom.pipelines.plan.plan import plan_build
from logloom.pipelines.purge import purge as purging
from logloom.pipelines.purge.proof import Traces
from logloom.pipelines.purge.purge import purge
from logloom.pipelines.repair.repair import repair
from logloom.pipelines.verify.verify import verify
from logloom.pipelines.versions import rollback as rolling_back
from logloom.pipelines.versions.history import follow, versions
from logloom.pipelines.versions.rollback import rollback
from logloom.recipe import Recipe
from logloom.transforms.build import run_note
from logloom.transforms.build.bundles import packed
from logloom.transforms.build.commit import commit
from logloom.transforms.build.outcomes import LogOutcomes
from logloom.transforms.build.run_note import RunningNote
from logloom.transforms.build.unit_checks import finished_unit
from tests.forking import command
from tests.pipelines.roots import (
    PAYLOAD,
    commit_version,
    contents,
    following,
    made_up_unit,
    write_unit,
    written_log,
)


@pytest.fixture
def store(tmp_path) -> Store:
    """Two versions; the log b is in both."""
    store = as_laid_out(Store.at(str(tmp_path / "root")))
    commit_version(store, 1, ["a", "b"])
    commit_version(store, 2, ["b", "c"])
    return store


def test_a_log_is_purged_by_its_name_or_its_uri_from_all_versions(store):
    uri = str(store.local)
    trial = purge(uri, ["b"], dry_run=True)
    assert (trial.versions, trial.units, trial.left) == ([1, 2], 2, [])
    done = purge(uri, ["/logs/b"], reason="asked for")
    assert (done.logs, done.versions, done.units, done.is_proven) == (["b"], [1, 2], 2, True)
    assert Purged(store).has_named("b")
    assert not Purged(store).has_named("a")
    assert Purged(store).has(read_manifest(store).logs.find("b").content_id)
    assert not Purged(store).has("of another content")
    assert purge(uri, ["b"]).units == 0
    with pytest.raises(UsageError, match="no version has 'd"):
        purge(uri, ["d"])


def test_a_log_goes_from_all_versions_and_others_stay_to_the_byte(store):
    before = contents(store.local)
    store.create("runs/00000002/x.failures-1.jsonl", canonical({"log_id": "b"}))
    store.create("runs/00000002/y.json", canonical({"version": 2}))
    left = write_unit(store, dataclasses.replace(made_up_unit("b", 9), log_id="b"))
    erased = read_manifest(store).logs[0]
    (store.local / "index").mkdir()
    (store.local / "index/listing").write_bytes(b"whatever")
    told = purge(str(store.local), ["b"], dry_run=True)
    assert before.items() <= contents(store.local).items()
    done = purge(str(store.local), ["b"], reason="asked for")
    assert (told.files, told.bytes) == (done.files, done.bytes)
    after = contents(store.local)
    assert {name for name in before if before[name] != after.get(name)} == {
        name for name in before if any(made_up_unit("b", n).identity in name for n in (0, 1))
    } | {f"logs/{name}.parquet" for name in (erased.part, erased.statistics)}
    assert not store.path_of(left.folder).exists()
    assert store.names("index") == []
    assert store.names("runs/00000002") == ["y.json"]
    for number in (1, 2):
        with pytest.raises(PurgedError, match="was purged \\(asked for\\)"):
            read_log_part(store, read_manifest(store, number).logs.find("b").part)
    assert done.names[:2] == ["versions/00000001.json", "versions/00000002.json"]
    assert all(name.startswith("versions/pages/") for name in done.names[2:])


def test_a_unit_that_records_of_two_versions_name_is_counted_once(store):
    logs = write_records(store, [written_log(store, "b", num_units=1)])
    commit_version(store, 3, [], logs=logs, totals=logs.totals)
    told, done = (purge(str(store.local), ["b"], dry_run=dry_run) for dry_run in (True, False))
    assert (told.units, told.files, told.bytes) == (done.units, done.files, done.bytes)
    assert done.units == 2


def test_all_files_of_manifests_that_still_name_a_log_are_listed_and_no_other(store):
    commit_version(store, 3, ["a", "bb", "c"])
    for log_id in ("a", "bb", "c"):
        done = purge(str(store.local), [log_id])
        assert done.is_proven
        naming = set()
        for path in (store.local / "versions").rglob("*.json"):
            if re.search(rf"(?<![\w.-]){log_id}(?![\w.-])", path.read_text()) and "purged" not in path.parts:
                naming.add(path.relative_to(store.local).as_posix())
        assert {name for name in done.names if name.endswith(".json")} == naming
        pages = {name for name in done.names if name.startswith("versions/pages/")}
        assert set(done.names) == naming | pages
        assert pages
    assert naming


def test_what_is_to_be_built_or_assembled_goes_although_no_name_is_legible_in_it(store):
    store.create("runs/00000002/0a.tasks", packed(["b"]))
    assert purge(str(store.local), ["b"]).is_proven
    assert store.names("runs/00000002") == []


def test_the_note_of_a_build_goes_with_the_outcome_that_names_the_log(store):
    for run, log in (("aa", "b"), ("bb", "c")):
        store.create(f"runs/00000002/{run}.json", canonical({"log": log}))
        store.create(f"runs/00000002/{run}.running.json", b"{}")
    assert purge(str(store.local), ["b"]).is_proven
    assert {*store.names("runs/00000002")} == {"bb.json", "bb.running.json"}


def test_gc_goes_on_after_a_purge(store):
    purge(str(store.local), ["b"])
    assert not collect_garbage(str(store.local)).amounts
    assert finished_unit(store, made_up_unit("a"))


def test_gc_goes_on_where_a_log_that_it_is_about_to_read_is_purged(store, monkeypatch):
    read, done = artifacts.read_log_part, []

    def meanwhile(*arguments, **options):
        monkeypatch.setattr(artifacts, "read_log_part", read)
        done.append(purge(str(store.local), ["b"]))
        return read(store, part_of_b)

    part_of_b = read_manifest(store).logs.find("b").part
    monkeypatch.setattr(artifacts, "read_log_part", meanwhile)
    assert not collect_garbage(str(store.local)).amounts
    assert done[0].is_proven
    assert finished_unit(store, made_up_unit("a"))


def test_a_version_that_gc_took_out_loses_the_log_too(store):
    removal_notes.mark_removed(store, 1, "retention")
    assert purge(str(store.local), ["a"]).versions == [1]
    assert not finished_unit(store, made_up_unit("a"))
    assert finished_unit(store, made_up_unit("b"))


def test_an_interrupted_purge_is_run_again(store, monkeypatch):
    def dies(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(purging._Purging, "_remove_notes", dies)
    with pytest.raises(KeyboardInterrupt):
        purge(str(store.local), ["b"])
    monkeypatch.undo()
    assert purge(str(store.local), ["b"]).units == 2
    with pytest.raises(PurgedError):
        read_log_part(store, read_manifest(store).logs.find("b").part)


def test_a_log_that_was_erased_before_has_no_rows_to_erase(store):
    assert purge(str(store.local), ["b"], dry_run=True).rows == 2
    assert purge(str(store.local), ["b"]).rows == 2
    for dry_run in (True, False):
        again = purge(str(store.local), ["b"], dry_run=dry_run)
        assert (again.logs, again.rows, again.units) == (["b"], 0, 0)


def test_nobody_goes_back_to_a_log_that_a_purge_is_about_to_remove(store, monkeypatch):
    def dies(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(purging, "removing", dies)
    with pytest.raises(KeyboardInterrupt):
        purge(str(store.local), ["a"])
    assert rollback(store, 1, view="none").left_out == ("a",)
    assert [record.log_id for record in read_manifest(store, 3).logs] == ["b"]


def test_nobody_goes_back_to_a_log_that_is_purged_meanwhile(store, monkeypatch):
    announced = rolling_back.Announced

    def purged_before(*arguments):
        assert purge(str(store.local), ["a"]).is_proven
        return announced(*arguments)

    monkeypatch.setattr(rolling_back, "Announced", purged_before)
    with pytest.raises(
        DatasetError, match=r"version 1 can't be gone back to: .*was purged meanwhile; go back"
    ):
        rollback(store, 1, view="none")
    assert read_manifest(store).version == 2


def test_nothing_is_erased_where_one_of_several_logs_is_unknown(store):
    before = contents(store.local)
    with pytest.raises(UsageError, match="no version has 'typo'"):
        purge(str(store.local), ["b", "typo"])
    assert contents(store.local) == before
    with pytest.raises(UsageError, match="there is no such file or folder"):
        purge(str(store.local / "nowhere"), ["b"])


def test_a_trial_of_a_purge_proves_nothing(store):
    said = command("purge", str(store.local), "--log", "b", "--dry-run", "--json")
    assert json.loads(said.stdout)["is_proven"] is None
    assert "from versions 1, 2" in command("purge", str(store.local), "--log", "b", "--dry-run").stdout
    assert "from version 1\n" in command("purge", str(store.local), "--log", "a", "--dry-run").stdout
    first, again = (command("purge", str(store.local), "--log", "b") for _ in range(2))
    assert "purged before" not in first.stdout
    assert "b: purged before, from versions 1, 2; what was left of it erased (" in " ".join(
        again.stdout.split()
    )
    assert "nothing is left but these names\n" in again.stderr


def test_bytes_that_another_log_has_too_are_no_copy_of_what_was_erased(store):
    commit_version(store, 3, ["c"])
    view = store.local / "v00000003/tar/all/000000"
    view.mkdir(parents=True)
    os.link(store.path_of(made_up_unit("c").folder) / "rows.bin", view / "rows.bin")
    assert purge(str(store.local), ["b"]).is_proven
    assert (view / "rows.bin").read_bytes() == PAYLOAD


def test_a_copy_that_somebody_made_is_found(tmp_path):
    store = as_laid_out(Store.at(str(tmp_path / "alone")))
    commit_version(store, 1, ["b"])
    (store.local / "somebody").mkdir()
    (store.local / "somebody/copy").write_bytes(PAYLOAD)
    done = purge(str(store.local), ["b"])
    assert not done.is_proven
    assert done.left == [f"{store.local}/somebody/copy: a copy of a file that was erased"]


def announced_elsewhere(store, beat=1):
    note = RunningNote("direct", 2**40, 2**40, host="elsewhere", pid=1, beat=beat)
    store.replace("runs/00000003/abc.running.json", canonical(dataclasses.asdict(note)))


def test_no_purge_beside_a_build(store, monkeypatch):
    monkeypatch.setattr(status, "LOOK_EVERY", 0.0)
    announced_elsewhere(store)
    said = []

    def beats(message):
        said.append(message)
        announced_elsewhere(store, beat=2)

    before = contents(store.local)
    with pytest.raises(BesideError, match="a build runs \\(version 3, process 1 on elsewhere\\)"):
        purge(str(store.local), ["b"], on_message=beats)
    assert ["waiting for its next sign of life" in message for message in said] == [True]
    announced_elsewhere(store)
    assert contents(store.local) == before


def test_a_purge_goes_on_once_a_build_elsewhere_gave_no_sign_of_life_for_long_enough(store, monkeypatch):
    monkeypatch.setattr(status, "LOOK_EVERY", 0.0)
    announced_elsewhere(store)
    done = purge(
        str(store.local),
        ["b"],
        on_message=lambda message: monkeypatch.setattr(run_note, "SILENT_AFTER", 0.0),
    )
    assert done.is_proven


def test_a_file_that_goes_while_all_are_looked_through_is_no_copy_of_what_was_erased(tmp_path, monkeypatch):
    """As unfinished ones of a build that began meanwhile, as large as those of other logs."""
    store = Store.at(str(tmp_path / "alone"))
    commit_version(store, 1, ["b"])
    (store.local / "somebody").mkdir()
    (store.local / "somebody/copy").write_bytes(PAYLOAD)
    may_have_copy = Traces.may_have_copy

    def goes(self, file):
        found = may_have_copy(self, file)
        if file.name == "somebody/copy":
            assert found
            store.remove(file.name)
        return found

    monkeypatch.setattr(Traces, "may_have_copy", goes)
    assert purge(str(store.local), ["b"]).is_proven


def test_a_build_that_was_under_way_does_not_bring_it_back(store):
    purge(str(store.local), ["a"])
    job = following(store, read_manifest(store))
    made = write_records(store, [written_log(store, "a")], "runs/00000003")
    outcome = commit(job, LogOutcomes(made=made.pages, version=read_manifest(store).logs.pages), [])
    assert not outcome["committed"]
    assert outcome["failures"][0]["message"].startswith("was purged while this build ran")


OUTPUTS = """\
outputs:
  tar: {}
  zarr: {}
"""


def test_a_real_root_is_verified_built_again_without_it_and_not_repaired_back(drive, tmp_path):
    recipe = drive.recipe(**{drive.text[drive.text.index("outputs:") :]: OUTPUTS + "partition: {rows: 40}\n"})
    root = tmp_path / "root"
    build(plan_build(recipe, str(root)))
    store = as_laid_out(Store.at(str(root)))
    first = read_manifest(store)
    gone, *others = [record.log_id for record in first.logs]
    assert others
    manifest = (root / version_file(1)).read_bytes()
    done = purge(str(root), [gone])
    assert done.is_proven, done.left
    assert (root / version_file(1)).read_bytes() == manifest
    assert not (root / "v00000001").exists()
    with pytest.raises(PurgedError):
        read_assembled(store, next(part for part in first.assembled if part.split == first.logs[0].split))
    dataset = logloom.datasets.open(root, version=1, output="tar")
    assert dataset[first.logs[0].rows]["log_id"] == others[0]
    with pytest.raises(PurgedError):
        dataset[0]
    report = verify(str(root), num_workers=1)
    assert report.is_proven, report.findings
    assert report.purged == 1
    assert not repair(str(root), num_workers=1, dry_run=True).damaged
    plan = plan_build(recipe, str(root))
    assert any("was purged" in note for note in plan.notes)
    built = build(plan)
    assert [record.log_id for record in built.manifest.logs] == others
    assert built.built == 0
    assert plan_build(recipe, str(root)).up_to_date
    assert verify(str(root), num_workers=1).is_proven


def test_roots_that_point_into_each_other_are_purged_once_each(store, tmp_path):
    other = as_laid_out(Store.at(str(tmp_path / "other")))
    commit_version(store, 3, ["b"], outputs={"table": {"references": {"x": other.uri}}})
    commit_version(other, 1, ["b"], outputs={"table": {"references": {"x": store.uri}}})
    for here, there in ((store, other), (other, store), (store, store)):
        name = f"referenced-by/{there.local.name}.json"
        here.replace(name, canonical({"table": there.uri}))
    told, done = (purge(str(store.local), ["b"], dry_run=dry_run) for dry_run in (True, False))
    assert done.is_proven
    assert [(one.root, one.units, one.others) for one in done.others] == [(other.uri, 2, [])]
    foreseen, removed = ([(one.files, one.bytes) for one in each.others] for each in (told, done))
    assert foreseen == removed


def test_a_note_alone_has_no_other_root_erased(store, tmp_path):
    other = as_laid_out(Store.at(str(tmp_path / "other")))
    commit_version(other, 1, ["b"])
    before = contents(other.local)
    store.replace("referenced-by/x.json", canonical({"table": other.uri}))
    done = purge(str(store.local), ["b"])
    assert contents(other.local) == before
    assert not done.is_proven
    assert "none of its versions names it" in done.others[0].left[0]


@pytest.mark.parametrize("place", ["", "v00000001/table/all/"])
def test_nothing_is_purged_where_no_installed_part_reads_the_notes_of_datasets_elsewhere(
    store, uninstall, place
):
    store.replace(f"{place}referenced-by/x.json", b"{}")
    before = contents(store.local)
    uninstall("table")
    with pytest.raises(UsageError, match=f"/{place}referenced-by: no installed part reads notes"):
        purge(str(store.local), ["b"])
    assert contents(store.local) == before


@pytest.mark.parametrize("note", [{"x": "y"}, ["/elsewhere"], {"table": 1}])
def test_a_damaged_note_of_who_points_here_is_named_before_anything_goes(store, note):
    store.replace("referenced-by/x.json", canonical(note))
    before = contents(store.local)
    with pytest.raises(DatasetError, match=r"referenced-by/x\.json"):
        purge(str(store.local), ["b"])
    assert contents(store.local) == before


def test_what_is_no_tombstone_is_left_to_gc_to_tell_of(store):
    (store.local / "versions/purged/folder").mkdir(parents=True)
    assert len(Purged(store)) == 0
    assert not collect_garbage(str(store.local)).amounts


def test_a_damaged_tombstone_is_named_and_lets_nothing_come_back(store):
    purge(str(store.local), ["b"])
    (name,) = store.names("versions/purged")
    path = store.local / "versions/purged" / name
    sound = path.read_bytes()
    (content,) = json.loads(sound)["contents"]
    path.write_bytes(sound.replace(content.encode(), f"{content[:-1]}?".encode()))
    for run in (verify, repair, collect_garbage):
        with pytest.raises(DatasetError, match=f"{name}: damaged or changed.* back from a backup"):
            run(str(store.local))


def test_a_tombstone_without_a_digest_is_damaged(store):
    purge(str(store.local), ["b"])
    (path,) = (store.local / "versions/purged").iterdir()
    said = json.loads(path.read_bytes())
    del said["digest"]
    path.write_bytes(canonical(said))
    with pytest.raises(DatasetError, match=f"{path.name}: damaged: expected an object with a digest"):
        Purged(store)


def test_versions_and_what_they_said_of_a_log_are_told_after_a_purge(store):
    before = versions(store)
    purge(str(store.local), ["b"])
    after = versions(store)
    assert [one.problem for one in after] == ["", ""]
    assert [one.bytes for one in after] == [one.bytes // 2 for one in before]
    [stay] = follow(store, "b")
    assert (stay.versions, stay.units, stay.columns, stay.record.status) == ((1, 2), (), None, "purged")
    assert "purged" in command("versions", store.uri, "--log", "b").stdout
    assert json.loads(command("versions", store.uri, "--log", "b", "--json").stdout)[0]["status"] == "purged"


def test_the_command_says_that_its_rows_are_those_of_the_newest_version(store):
    done = command("purge", store.uri, "b", "--dry-run")
    rows, units = (
        json.loads(command("purge", store.uri, "b", "--dry-run", "--json").stdout)[k]
        for k in ("rows", "units")
    )
    said = f"b: {rows} rows of the newest version and {units} units? of all versions would be erased"
    assert re.search(said, " ".join(done.stdout.split())), done.stdout


def test_a_version_is_gone_back_to_without_its_purged_logs(store):
    purge(str(store.local), ["b"])  # which the newest version names, too
    said: list[str] = []
    done = rollback(store, 1, view="none", on_message=said.append)
    made = done.manifest
    assert (done.left_out, made.version) == (("b",), 3)
    assert "1 log left out, purged since then: b" in said
    assert [record.log_id for record in made.logs] == ["a"]


@pytest.fixture(scope="module")
def purged_root(quick_drive, tmp_path_factory):
    """A recipe, and a root from which the first of its logs was purged; not to be changed."""
    folder = tmp_path_factory.mktemp("purged")
    (folder / "logs").mkdir()
    for log in quick_drive.logs:
        shutil.copy2(log, folder / "logs")
    text = quick_drive.text.replace(str(quick_drive.logs[0].parent), str(folder / "logs"))
    recipe = Recipe.from_yaml(text, source="drive.yaml")
    build(plan_build(recipe, str(folder / "root")))
    gone = read_manifest(Store.at(str(folder / "root"))).logs[0].log_id
    assert purge(str(folder / "root"), [gone]).is_proven
    return recipe, gone, folder


def test_a_purged_log_stays_out_by_whichever_hash_logs_are_known(purged_root):
    recipe, gone, folder = purged_root
    plan = plan_build(recipe.model_copy(update={"hash": "full"}), str(folder / "root"))
    assert gone not in [log.task.log_id for log in plan.logs]
    assert f"{gone}: left out, since it was purged" in plan.notes


def test_a_purged_log_stays_out_where_workers_open_the_logs(purged_root):
    recipe, gone, folder = purged_root
    for number, path in enumerate(make_drives(folder / "more", logs=8, seconds=2, seed=1)):
        shutil.move(path, folder / f"logs/a-{number}.mcap")
    plan = plan_build(recipe, str(folder / "root"), sample=2)
    for path in (folder / "logs").glob("a-*.mcap"):
        path.unlink()
    assert plan.left
    assert gone not in [*(log.task.log_id for log in plan.logs), *(task.log_id for task in plan.left)]


def test_a_log_that_came_back_with_other_content_is_no_longer_the_purged_one(store, purged_root):
    """As where its file is out of reach, or --limit leaves it out: `vanished: keep` holds for it, too."""
    purge(str(store.local), ["b"])
    told = Before(read_manifest(store))
    recipe, _, folder = purged_root
    found = PlanLogs(recipe, store, str(folder))
    assert found.purged(told) == {"b"}
    back = dataclasses.replace(written_log(store, "c"), log_id="b")
    logs = write_records(store, [back])
    commit_version(store, 3, ["b"], logs=logs)
    assert found.purged(Before(read_manifest(store))) == set()
    dropped = dataclasses.replace(back, status=LogStatus.dropped, part="", units=0, rows=0, planned=0)
    commit_version(store, 4, ["b"], logs=write_records(store, [dropped]))
    assert found.purged(Before(read_manifest(store))) == set()


def test_what_a_build_made_that_began_meanwhile_stays(drive, tmp_path, monkeypatch):
    root, logs = tmp_path / "root", tmp_path / "logs"
    logs.mkdir()
    for name, log in zip("abc", [*drive.logs[:2], drive.logs[0]], strict=True):
        shutil.copy2(log, logs / f"{name}.mcap")
    text = (
        drive.text[: drive.text.index("outputs:")]
        + "outputs: {zarr: {columns: [ego.*]}}\npartition: {rows: 10}\n"
    )
    (line,) = [line for line in text.splitlines() if line.startswith("logs:")]

    def built(names):
        of_these = text.replace(line, f"logs: {json.dumps([f'{logs}/{name}.mcap' for name in names])}")
        return build(plan_build(Recipe.from_yaml(of_these), str(root)), num_workers=1, view="none")

    built("ab")
    write_tombstones = purging._Purging._write_tombstones

    def build_meanwhile(*arguments):
        write_tombstones(*arguments)
        monkeypatch.undo()
        built("ac")

    monkeypatch.setattr(purging._Purging, "_write_tombstones", build_meanwhile)
    done = purge(str(root), ["b"])
    assert verify(str(root), 2).findings == ()
    assert "version 2 was made meanwhile; purge again" in done.left
    assert purge(str(root), ["b"]).is_proven
    assert verify(str(root), 2).findings == ()
