"""Versions that no new log makes: `rollback` and `drop`."""

import json
import shutil
from decimal import Decimal

import pytest

import logloom.datasets
from logloom.errors import CommitConflictError, DatasetError, LogReadError, PurgedError, UsageError
from logloom.io.catalog.manifest import read_manifest
from logloom.io.catalog.pages import LogStatus
from logloom.io.catalog.version_files import version_file, version_numbers
from logloom.io.storage.store import Store
from logloom.pipelines.build.build import build
from logloom.pipelines.plan.plan import plan_build
from logloom.pipelines.plan.summary import plan_summary
from logloom.pipelines.purge.purge import purge
from logloom.pipelines.verify.verify import verify
from logloom.pipelines.versions import rollback as rolling_back
from logloom.pipelines.versions.diff import compare
from logloom.pipelines.versions.history import follow, versions
from logloom.pipelines.versions.rollback import plan_drop, rollback
from logloom.recipe import Recipe
from logloom.transforms.build import commit
from tests.forking import command
from tests.pipelines.conftest import build_at, digests


@pytest.fixture(scope="module")
def grown(drive, once):
    """A recipe over a folder of its own, and versions 1 of one drive and 2 of two; not to be changed."""
    return once(make_grown, drive)


def make_grown(folder, drive):
    (folder / "logs").mkdir()
    text = drive.text.replace(str(drive.logs[0].parent), str(folder / "logs"))
    recipe = Recipe.from_yaml(text, source="drive.yaml")
    for log in drive.logs:
        shutil.copy2(log, folder / "logs")
        build_at(recipe, folder / "root")
    return recipe, folder / "root"


@pytest.fixture
def root(grown, tmp_path):
    """A copy of these versions, to be changed."""
    shutil.copytree(grown[1], tmp_path / "root")
    return tmp_path / "root"


def view_of(root, number):
    return digests(root / f"v{number:08d}")


def findings(root, number):
    return [str(one) for one in verify(str(root), number, num_workers=1).findings]


def test_a_version_without_a_drive_is_what_a_build_without_it_gives(grown, root):
    recipe, _ = grown
    store = Store.at(str(root))
    second, first = read_manifest(store, 2), read_manifest(store, 1)
    gone = second.logs[1].log_id
    made = build(plan_drop(store, [gone], "the driver asked us to")).manifest
    assert made.reason == f"drop of {gone}: the driver asked us to"
    assert view_of(root, 3) == view_of(root, 1)
    assert made.assembled == first.assembled
    record = made.logs.find(gone)
    assert (record.status, record.rows, record.part, record.reasons) == (
        LogStatus.dropped,
        0,
        "",
        ("the driver asked us to",),
    )
    assert findings(root, 3) == findings(root, 2) == []
    assert {row["log_id"] for row in logloom.datasets.open(str(root))} == {second.logs[0].log_id}
    assert compare(("a", "b"), first, made).logs.counts == {"added": 0, "gone": 0, "changed": 0}
    assert versions(store)[0].changes == {"added": 0, "gone": 1, "changed": 0}
    assert follow(store, gone)[0].record.status == LogStatus.dropped
    plan = plan_build(recipe, str(root))
    assert plan.up_to_date
    assert plan_summary(plan)["logs_left_out"] == 1
    assert any(gone in note and "drop --undo" in note for note in plan.notes)


def test_a_dropped_drive_stays_out_under_another_recipe_and_where_its_file_is_broken_or_gone(
    grown, root, tmp_path
):
    recipe, _ = grown
    store = Store.at(str(root))
    logs = tmp_path / "logs"
    shutil.copytree(recipe.logs[0].rpartition("/")[0], logs)
    moved = recipe.model_copy(update={"logs": (str(logs / "*.mcap"),)})
    kept, gone = (record.log_id for record in read_manifest(store, 2).logs)
    (logs / f"{gone}.mcap").write_bytes(b"broken")
    with pytest.raises(LogReadError):
        plan_build(moved, str(root))
    build(plan_drop(store, [gone]))
    assert [log.task.log_id for log in plan_build(moved, str(root)).logs] == [kept]
    (logs / f"{gone}.mcap").unlink()
    other = moved.model_copy(update={"clock": moved.clock.model_copy(update={"rate": Decimal(5)})})
    made = build_at(other, root).manifest
    assert made.logs.find(gone).status == LogStatus.dropped
    assert made.logs.find(kept).rows
    assert findings(root, made.version) == []


def test_what_was_dropped_comes_back_once_that_is_taken_back(grown, root):
    recipe, _ = grown
    store = Store.at(str(root))
    gone = read_manifest(store, 2).logs[1].log_id
    build(plan_drop(store, [gone]))
    build(plan_drop(store, [gone], undo=True))
    assert read_manifest(store).logs.find(gone) is None
    again = build_at(recipe, root)
    assert (again.built, again.reused) == (0, again.manifest.totals["units"] // 2)
    assert view_of(root, 5) == view_of(root, 2)
    assert again.manifest.logs == read_manifest(store, 2).logs


def test_a_drop_after_a_purge_brings_nothing_back(root):
    store = Store.at(str(root))
    erased, dropped = [record.log_id for record in read_manifest(store, 2).logs]
    assert purge(str(root), [erased]).is_proven
    made = build(plan_drop(store, [dropped], allow_empty=True)).manifest
    assert [(record.log_id, record.status) for record in made.logs] == [(dropped, LogStatus.dropped)]


def test_all_logs_are_dropped_only_where_that_is_allowed(root):
    store = Store.at(str(root))
    logs = read_manifest(store).logs.column("log_id").to_pylist()
    done = command("drop", "--workers", "1", str(root), *logs)
    assert done.returncode == 1
    assert "no rows at all (2 logs left out by `logloom drop`); --allow-empty commits" in done.stderr
    assert version_numbers(store) == [1, 2]
    made = build(plan_drop(store, logs, allow_empty=True)).manifest
    assert made.totals["rows"] == 0
    assert made.assembled == ()
    assert findings(root, 3) == []


def test_going_back_commits_what_the_earlier_version_says(grown, root):
    recipe, _ = grown
    store = Store.at(str(root))
    before = digests(root)
    made, shown, left_out, _ = rollback(store, 1, "a loose camera")
    assert left_out == ()
    old = read_manifest(store, 1)
    assert (made.version, made.parent, made.reason) == (3, 2, "rollback to version 1: a loose camera")
    for name in ("logs", "assembled", "recipe", "schema", "plan", "outputs", "totals", "name"):
        assert getattr(made, name) == getattr(old, name), name
    assert (made.trusted["logs"], made.trusted["assembled"]) == (1, len(old.assembled))
    assert shown == str(root / "v00000003")
    assert view_of(root, 3) == view_of(root, 1)
    new = set(digests(root)) - set(before)
    assert not [name for name in new if name.startswith(("parts/", "logs/", "versions/pages/"))]
    assert findings(root, 3) == []
    assert versions(store)[0].engine == "rollback"
    build_at(recipe, root)
    assert view_of(root, 4) == view_of(root, 2)


def test_nothing_goes_back_to_a_version_of_which_something_is_gone(root):
    store = Store.at(str(root))
    gone = read_manifest(store, 2).logs[1]
    rollback(store, 1)
    (root / f"logs/{gone.statistics}.parquet").unlink()
    with pytest.raises(DatasetError, match=f"version 2 can't be gone back to: .*{gone.statistics}.*missing"):
        rollback(store, 2)
    entries = sorted((root / "parts" / "tar").rglob("entry.json"))
    next(path for path in entries if json.loads(path.read_text())["log_id"] == gone.log_id).unlink()
    with pytest.raises(DatasetError, match=r"version 2 can't be gone back to: .*missing"):
        rollback(store, 2)
    (root / f"logs/{gone.part}.parquet").unlink()
    with pytest.raises(DatasetError, match=r"version 2 can't be gone back to: .*logs/.*is missing"):
        rollback(store, 2)
    assert version_numbers(store) == [1, 2, 3]


def test_another_build_that_committed_first_is_a_clean_refusal(root, monkeypatch):
    store = Store.at(str(root))
    create = commit.create_version

    def late(job, *arguments):
        job.store.create(version_file(3), job.store.read(version_file(2)))
        return create(job, *arguments)

    monkeypatch.setattr(commit, "create_version", late)
    with pytest.raises(CommitConflictError, match="another build committed version 3 first"):
        rollback(store, 1)


def test_the_commands_say_what_they_made(root):
    store = Store.at(str(root))
    gone = read_manifest(store).logs[1].log_id
    assert command("rollback", str(root)).returncode == 2
    done = command("rollback", f"{root}@1", "--json", "--reason", "x")
    assert json.loads(done.stdout)["version"] == 3, done.stderr
    assert command("drop", "--workers", "1", str(root), gone).returncode == 2


def test_a_rollback_done_again_has_nothing_to_do_and_makes_a_lost_view_again(root):
    store = Store.at(str(root))
    first = rollback(store, 1)
    shutil.rmtree(root / "v00000003")
    again = rollback(store, 1)
    assert (again.up_to_date, again.manifest, again.view) == (True, first.manifest, first.view)
    assert view_of(root, 3) == view_of(root, 1)
    for version in ("1", "3"):
        done = command("rollback", f"{root}@{version}", "--json")
        assert done.returncode == 0, done.stderr
        assert f"nothing to do: version 3 of {root} has what {version} had" in done.stderr
        said = json.loads(done.stdout)
        assert (said["version"], said["up_to_date"]) == (3, True)
        assert said["view"] == first.view
    assert version_numbers(store) == [1, 2, 3]


def test_a_drop_done_again_and_one_taken_back_again_have_nothing_to_do(grown, root):
    recipe, _ = grown
    store = Store.at(str(root))
    kept, gone = (record.log_id for record in read_manifest(store, 2).logs)

    def again(what, *more):
        done = command("drop", "--workers", "1", str(root), *more, gone, "--json")
        assert done.returncode == 0, done.stderr
        assert f"nothing to do: version {version_numbers(store)[-1]} of {root} {what} {gone}" in done.stderr
        said = json.loads(done.stdout)
        return said["version"], said["up_to_date"], said["changed"]

    assert again("doesn't leave out", "--undo") == (2, True, [])  # nobody has dropped it
    done = command("drop", "--workers", "1", str(root), gone, "--quiet", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    said, (listed, *_) = json.loads(done.stdout), json.loads(command("versions", root, "--json").stdout)
    assert (said["version"], said["logs"], said["logs_dropped"]) == (3, 1, 1)
    assert [said[key] for key in ("version", "logs", "rows", "units")] == [
        listed[key] for key in ("version", "logs", "rows", "units")
    ]
    assert again("already leaves out") == (3, True, [])
    assert command("drop", "--workers", "1", str(root), gone, "--undo").returncode == 0
    assert again("doesn't leave out", "--undo") == (4, True, [])  # no build has added it yet
    build_at(recipe, root)
    assert again("doesn't leave out", "--undo") == (5, True, [])
    assert version_numbers(store) == [1, 2, 3, 4, 5]
    build(plan_drop(store, [gone]))
    both = plan_drop(store, [gone, kept], "all", allow_empty=True)
    assert (both.job.reason, [one.log_id for one in both.changes]) == (f"drop of {kept}: all", [kept])


def test_a_name_that_no_version_had_is_refused_also_by_an_undo(root):
    for undo in (False, True):
        with pytest.raises(UsageError, match="version 2 has no log 'tram'"):
            plan_drop(Store.at(str(root)), ["tram"], undo=undo)


def test_what_was_dropped_stays_so_through_a_rollback_until_somebody_takes_that_back(grown, root):
    recipe, _ = grown
    store = Store.at(str(root))
    gone = read_manifest(store, 2).logs[1].log_id
    build(plan_drop(store, [gone], "asked"))
    dropped = read_manifest(store, 3)
    assert rollback(store, 1).up_to_date  # which never had it
    assert rollback(store, 2)[2:] == ((gone,), True)
    said_done = command("rollback", f"{root}@2").stderr
    assert f"nothing to do: version 3 of {root} has what 2 had but for {gone}\n" in said_done
    other = recipe.model_copy(update={"clock": recipe.clock.model_copy(update={"rate": Decimal(5)})})
    build_at(other, root)
    said: list[str] = []
    made, shown, left_out, _ = rollback(store, 2, "back", on_message=said.append)
    assert (made.version, made.reason, left_out) == (5, "rollback to version 2: back", (gone,))
    assert any(f"left out, as it was dropped ({gone})" in line for line in said)
    assert (made.logs, made.assembled) == (dropped.logs, dropped.assembled)
    assert made.recipe == read_manifest(store, 2).recipe
    assert view_of(root, 5) == view_of(root, 3)
    assert shown == str(root / "v00000005")
    assert findings(root, 5) == []
    assert plan_build(recipe, str(root)).up_to_date
    build(plan_drop(store, [gone], undo=True))
    build_at(other, root)
    rollback(store, 5)  # where it was dropped, which somebody has taken back since
    assert read_manifest(store).logs.find(gone) is None
    build_at(recipe, root)
    assert view_of(root, 9) == view_of(root, 2)


def test_going_back_before_a_purge_gives_the_version_without_the_log(grown, root):
    recipe, _ = grown
    store = Store.at(str(root))
    kept, erased = (record.log_id for record in read_manifest(store, 2).logs)
    rollback(store, 1)
    assert purge(str(root), [erased]).is_proven
    done = command("rollback", f"{root}@2", "--json")
    assert done.returncode == 0, done.stderr
    assert "nothing to do: version 3" in done.stderr
    other = recipe.model_copy(update={"clock": recipe.clock.model_copy(update={"rate": Decimal(5)})})
    build_at(other, root)
    done = command("rollback", f"{root}@2", "--json")
    assert done.returncode == 0, done.stderr
    assert f"1 log left out, purged since then: {erased}" in done.stderr
    assert json.loads(done.stdout)["left_out"] == [erased]
    assert view_of(root, 5) == view_of(root, 1)
    assert [record.log_id for record in read_manifest(store).logs] == [kept]
    assert findings(root, 5) == []


def test_a_rollback_that_was_planned_before_a_purge_commits_nothing_of_the_log(grown, root, monkeypatch):
    store = Store.at(str(root))
    kept, erased = (record.log_id for record in read_manifest(store, 2).logs)
    build(plan_drop(store, [kept]))
    build(plan_drop(store, [erased], allow_empty=True))
    build(plan_drop(store, [erased], undo=True))
    planned = rolling_back._plan

    def purged_meanwhile(*arguments):
        plan = planned(*arguments)
        assert purge(str(root), [erased]).is_proven
        return plan

    monkeypatch.setattr(rolling_back, "_plan", purged_meanwhile)
    with pytest.raises(PurgedError, match=f"{erased}: was purged since this build was planned"):
        rollback(store, 2)
    assert version_numbers(store) == [1, 2, 3, 4, 5]
    monkeypatch.undo()
    assert rollback(store, 2).up_to_date  # without both


@pytest.mark.parametrize("verb", ["tag", "rollback", "drop"])
def test_quiet_prints_the_result_alone(root, verb):
    arguments = {"tag": [root, "gold"], "rollback": [f"{root}@1"], "drop": [root, "drive-01"]}[verb]
    done = command(verb, *arguments, "--quiet")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == ("" if verb == "tag" else f"{root}/v00000003\n")
