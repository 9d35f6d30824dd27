"""Repair gives a damaged version its bytes back, and says plainly what it can't."""

import json
import os
import shutil

import pytest

from logloom.errors import BesideError
from logloom.io.catalog.entries import ENTRY
from logloom.io.catalog.manifest import open_root
from logloom.io.storage.store import Store
from logloom.pipelines.convert.convert import convert
from logloom.pipelines.convert.plan import plan_convert
from logloom.pipelines.convert.sources import open_source
from logloom.pipelines.plan.plan import plan_build
from logloom.pipelines.purge.purge import purge
from logloom.pipelines.repair import repair as repair_module
from logloom.pipelines.repair.repair import repair
from logloom.pipelines.status import builds
from logloom.pipelines.verify.verify import verify
from logloom.pipelines.view import make_view
from tests.absent import needs
from tests.files import flip
from tests.pipelines.conftest import build_at, digests


@pytest.fixture
def root(built, tmp_path):
    """A copy of a good version with a view of hard links, that may be damaged."""
    copy = tmp_path / "root"
    shutil.copytree(built, copy, ignore=shutil.ignore_patterns("v????????"))
    make_view(*open_root(Store.at(str(copy))))
    return copy


def first(root, pattern):
    """A file; of folders of units, portions and assembled outputs some are called alike."""
    return min(path for path in root.glob(pattern) if path.is_file())


def remove_folder(path):
    shutil.rmtree(path.parent)


def units(root):
    """Of tar a flipped bit, a file and a folder that are gone; of L5Kit a flipped bit and a lost entry."""
    one, other, third, *_ = sorted(root.glob("parts/tar/*/*/shard.tar"))
    flip(one)
    other.unlink()
    remove_folder(third)
    stage, another, *_ = (path for path in sorted(root.glob("parts/l5kit/*/*/frames")) if path.is_file())
    flip(stage)
    another.with_name(ENTRY).unlink()


def chunk(root):
    flip(first(root, "parts/l5kit/*/*/agents/0"))


def assembled(root):
    (first(root, "parts/l5kit/*/*/agents/0").parents[1] / ENTRY).unlink()


def parts_of_logs(root):
    one, other, *_ = sorted(root.glob("logs/*.parquet"))
    flip(one)
    other.unlink()


def test_a_view_that_links_a_damaged_file_is_given_the_repaired_one(root):
    shard = first(root, "v00000001/tar/all/*.tar")
    flip(shard)  # the unit's file is the same one
    trial = repair(str(root), dry_run=True, num_workers=1)
    assert (len(trial.damaged), trial.is_sound) == (1, False)
    done = repair(str(root), num_workers=1)
    assert (len(done.repaired), done.unrepaired, done.is_sound) == (2, (), True)  # the unit, and the view
    stored = next(p for p in root.glob("parts/tar/*/*/shard.tar") if p.samefile(shard))
    assert stored.read_bytes() == shard.read_bytes()
    assert verify(str(root), num_workers=1).findings == ()


def test_a_purge_waits_for_a_repair_which_leaves_no_note(root, monkeypatch):
    real, said = repair_module._without_purged, []

    def purged_meanwhile(store, manifest):
        with pytest.raises(BesideError, match="a build runs"):
            purge(str(root), [manifest.logs[0].log_id])
        said.extend(status for status in builds(store) if status.engine == "repair")
        return real(store, manifest)

    monkeypatch.setattr(repair_module, "_without_purged", purged_meanwhile)
    assert repair(str(root), num_workers=1).is_sound
    assert [status.state for status in said] == ["running"]
    assert not [status for status in builds(Store.at(str(root))) if status.engine == "repair"]


@pytest.mark.parametrize(("damage", "count"), [(units, 5), (chunk, 1), (assembled, 1), (parts_of_logs, 2)])
def test_what_is_damaged_or_lost_is_built_again_with_the_same_bytes(root, built, damage, count):
    damage(root)
    trial = repair(str(root), dry_run=True, num_workers=1)
    assert len(trial.damaged) >= count
    assert not trial.is_sound
    assert digests(root) != digests(built)
    done = repair(str(root), num_workers=1)
    assert done.unrepaired == ()
    assert done.repaired
    assert done.is_sound
    assert digests(root) == digests(built)
    assert verify(str(root), num_workers=1).findings == ()
    for path in root.glob("parts/*/*/*/*"):
        assert path.is_dir() or not path.stat().st_mode & 0o222


def test_an_entry_that_says_something_else_than_the_manifest_is_found_and_written_again(root, built):
    path = next(p for p in sorted(root.glob("parts/tar/*/*/entry.json")))
    told = json.loads(path.read_text())
    path.chmod(0o644)
    path.write_text(json.dumps(told | {"rows": told["rows"] + 1}))
    (finding,) = verify(str(root), num_workers=1).findings
    assert "has another rows than the manifest" in finding.message
    assert repair(str(root), num_workers=1).is_sound
    assert digests(root) == digests(built)


def test_a_sound_version_is_left_alone(root):
    done = repair(str(root), num_workers=1)
    assert (done.damaged, done.repaired, done.unrepaired) == ((), (), ())
    assert done.is_sound


def test_what_cant_be_repaired_is_said_with_the_reason_and_nothing_wrong_takes_its_place(drive, tmp_path):
    needs("tar")
    root, logs = tmp_path / "root", tmp_path / "logs"
    shutil.copytree(drive.logs[0].parent, logs)
    build_at(drive.recipe(**{str(drive.logs[0].parent): str(logs)}), root)
    (logs / drive.logs[0].name).unlink()
    shutil.copy(drive.logs[0], logs / drive.logs[1].name)
    for path in root.glob("parts/tar/*/*/shard.tar"):
        path.unlink()
    before = digests(root)
    done = repair(str(root), num_workers=1)
    assert not done.is_sound
    assert done.repaired == ()
    reasons = {finding.log_id: finding.message for finding in done.unrepaired}
    assert "there is no such file" in reasons[drive.logs[0].stem]
    assert "no longer the log" in reasons[drive.logs[1].stem]
    assert digests(root) == before


def test_files_that_come_out_otherwise_are_not_put_in_place(root, monkeypatch):
    victim = first(root, "parts/tar/*/*/shard.tar")
    victim.unlink()
    monkeypatch.setattr("logloom.transforms.build.partition.file_digest", lambda path: "other")
    monkeypatch.setattr("logloom.pipelines.repair.units.software", lambda: {"logloom": "9.9"})
    done = repair(str(root), num_workers=1)
    (finding,) = done.unrepaired
    assert "built again it has other bytes (made with" in finding.message
    assert "here 9.9" in finding.message
    assert not victim.exists()


def test_a_unit_says_which_software_made_it(root):
    path = first(root, "parts/tar/*/*/entry.json")
    assert json.loads(path.read_text())["software"]["numpy"]
    report = verify(str(root), num_workers=1)
    assert [one["software"] for one in report.made_by] == [report.committed_by]
    assert sum(one["units"] for one in report.made_by) == report.units


def test_the_recipe_of_a_repaired_version_still_finds_it_up_to_date(root, drive):
    first(root, "parts/tar/*/*/shard.tar").unlink()
    repair(str(root), num_workers=1)
    assert plan_build(drive.recipe(), str(root)).up_to_date


@pytest.mark.parametrize("damage", [flip, os.unlink])
def test_the_list_of_what_was_refused_of_a_log_is_checked_and_written_again(
    drive, tmp_path, monkeypatch, damage
):
    monkeypatch.setattr("logloom.transforms.build.commit.MAX_REASONS", 0)
    logs, root = tmp_path / "logs", tmp_path / "root"
    logs.mkdir()
    (logs / "cut.mcap").write_bytes(drive.logs[0].read_bytes()[:-30_000])
    recipe = drive.recipe(**{str(drive.logs[0].parent): str(logs)})
    build_at(recipe.model_copy(update={"on_error": "salvage"}), root)
    before = digests(root)
    listed = first(root, "logs/*.refused.txt")
    damage(listed)
    (finding,) = verify(str(root), num_workers=1).findings
    assert finding.message.startswith(f"{listed}: ")
    done = repair(str(root), num_workers=1)
    assert done.unrepaired == ()
    assert digests(root) == before
    assert verify(str(root), num_workers=1).findings == ()
    convert(plan_convert(open_source(str(root)), str(tmp_path / "other"), "bags"))
    assert verify(str(tmp_path / "other"), num_workers=1).findings == ()
