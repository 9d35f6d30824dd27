"""Purging erases a log from all of a root, proves it, and nothing brings the log back."""

import dataclasses
import json

import pytest

from logloom.errors import PurgedError, UsageError
from logloom.io import removals
from logloom.io.entries import read_log_part
from logloom.io.manifest import read_assembled, read_manifest, version_file
from logloom.io.merging import write_records
from logloom.io.metadata import canonical
from logloom.io.purged import Purged
from logloom.io.storage import Store
from logloom.pipelines import purge as purging
from logloom.pipelines.build import build
from logloom.pipelines.gc import collect_garbage
from logloom.pipelines.plan import plan_build
from logloom.pipelines.purge import purge
from logloom.pipelines.repair import repair
from logloom.pipelines.verify import verify
from logloom.transforms.finish import commit
from logloom.transforms.finished import finished_unit
from logloom.transforms.outcomes import LogOutcomes
from logloom.transforms.running_note import RunningNote
from tests.pipelines.conftest import command
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
    store = Store.at(str(tmp_path / "root"))
    commit_version(store, 1, ["a", "b"])
    commit_version(store, 2, ["b", "c"])
    return store


def test_a_log_goes_from_all_versions_and_others_stay_to_the_byte(store):
    before = contents(store.local)
    store.create("runs/00000002/x.failures-1.jsonl", canonical({"log_id": "b"}))
    store.create("runs/00000002/y.json", canonical({"version": 2}))
    left = write_unit(store, dataclasses.replace(made_up_unit("b", 9), log_id="b"))
    (store.local / "index").mkdir()
    (store.local / "index/listing").write_bytes(b"whatever")
    told = purge(str(store.local), ["b"], dry_run=True)
    assert (told.versions, told.units) == ([1, 2], 2)
    assert before.items() <= contents(store.local).items()
    done = purge(str(store.local), ["b"], reason="asked for")
    assert done.is_proven
    assert (done.logs, done.versions, done.units) == (["b"], [1, 2], 2)
    after = contents(store.local)
    assert {name for name in before if before[name] != after.get(name)} == {
        name for name in before if any(made_up_unit("b", n).identity in name for n in (0, 1))
    } | {f"logs/{read_manifest(store).logs[0].part}.parquet"}
    assert not (store.local / left.folder).exists()
    assert store.names("index") == []
    assert store.names("runs/00000002") == ["y.json"]
    for number in (1, 2):
        with pytest.raises(PurgedError, match="was purged \\(asked for\\)"):
            read_log_part(store, read_manifest(store, number).logs.find("b").part)
    assert all(shard.startswith("versions/shards/") for shard in done.names)


def test_by_uri_and_once_more_and_not_by_what_is_no_log(store):
    with pytest.raises(UsageError, match="no version has d"):
        purge(str(store.local), ["d"])
    assert purge(str(store.local), ["/logs/b"]).units == 2
    assert purge(str(store.local), ["b"]).units == 0
    assert Purged(store).has("b")
    assert not Purged(store).has("a")
    assert not Purged(store).has("b", "of another content")


def test_gc_goes_on_after_a_purge(store):
    purge(str(store.local), ["b"])
    assert not collect_garbage(str(store.local)).amounts
    assert finished_unit(store, made_up_unit("a"))


def test_a_version_that_gc_took_out_loses_the_log_too(store):
    removals.mark_removed(store, 1, "retention")
    assert purge(str(store.local), ["a"]).versions == [1]
    assert not finished_unit(store, made_up_unit("a"))
    assert finished_unit(store, made_up_unit("b"))


def test_an_interrupted_purge_is_run_again(store, monkeypatch):
    def dies(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(purging._Purging, "_remove_unfinished", dies)
    with pytest.raises(KeyboardInterrupt):
        purge(str(store.local), ["b"])
    monkeypatch.undo()
    assert purge(str(store.local), ["b"]).units == 2
    with pytest.raises(PurgedError):
        read_log_part(store, read_manifest(store).logs.find("b").part)


def test_nothing_is_erased_where_one_of_several_logs_is_unknown(store):
    before = contents(store.local)
    with pytest.raises(UsageError, match="no version has typo"):
        purge(str(store.local), ["b", "typo"])
    assert contents(store.local) == before
    with pytest.raises(UsageError, match="no version here"):
        purge(str(store.local / "nowhere"), ["b"])


def test_a_trial_of_a_purge_proves_nothing(store):
    said = command("purge", str(store.local), "--log", "b", "--dry-run", "--json")
    assert json.loads(said.stdout)["is_proven"] is None
    assert "from versions 1, 2" in command("purge", str(store.local), "--log", "b", "--dry-run").stdout
    assert "from version 1\n" in command("purge", str(store.local), "--log", "a", "--dry-run").stdout


def test_a_copy_that_somebody_made_is_found(store):
    (store.local / "somebody").mkdir()
    (store.local / "somebody/copy").write_bytes(PAYLOAD)
    done = purge(str(store.local), ["b"])
    assert not done.is_proven
    assert done.left == [f"{store.local}/somebody/copy: a copy of a file that was erased"]


def test_no_purge_beside_a_build(store):
    note = RunningNote("direct", "elsewhere", 1, 2**40, 2**40)
    store.replace("runs/00000003/abc.running.json", canonical(dataclasses.asdict(note)))
    with pytest.raises(UsageError, match="a build runs"):
        purge(str(store.local), ["b"])


def test_a_build_that_was_under_way_does_not_bring_it_back(store):
    purge(str(store.local), ["a"])
    job = following(store, read_manifest(store))
    made = write_records(store, [written_log(store, "a")], "runs/00000003")
    outcome = commit(job, LogOutcomes(made=made.shards, version=read_manifest(store).logs.shards), [])
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
    store = Store.at(str(root))
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
