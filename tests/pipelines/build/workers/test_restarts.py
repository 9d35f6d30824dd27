"""Builds that start again: what was read back is known to be, and failures are listed in full."""

import dataclasses
import json

import pytest

from logloom.errors import LogloomError, LogReadError
from logloom.pipelines.build.build import build
from logloom.pipelines.plan.plan import plan_build
from logloom.transforms.build import commit, partition
from logloom.transforms.build import read_back as reading_back
from logloom.transforms.build.assembly import files as assembly
from logloom.transforms.build.read_marks import read_back_bundle, units_read_back
from logloom.transforms.build.settings import BuildSettings
from tests.pipelines.conftest import build_at


@pytest.fixture(scope="session")
def drive(quick_drive):
    return quick_drive


@pytest.fixture
def units(drive, tmp_path):
    """A job, and what building the partitions of a log gave."""
    plan = plan_build(drive.recipe(), str(tmp_path / "root"))
    tasks = partition.plan_partitions(plan.job, plan.logs[0].task)
    return plan.job, [partition.build_partition(plan.job, task) for task in tasks[:2]]


@pytest.fixture
def readings(monkeypatch):
    found = []

    own = reading_back.read_back

    def read_back(job, result):
        found.append(result)
        return own(job, result)

    monkeypatch.setattr(reading_back, "read_back", read_back)
    return found


def test_units_that_were_read_back_are_not_read_again_by_the_next_attempt(units, readings):
    job, built = units
    read, known = read_back_bundle(job, built)
    assert (known, len(readings)) == (0, 2)
    count = sum(len(result.entries) for result in built)
    assert units_read_back(job.store, job.number) == count
    again, known = read_back_bundle(job, built)
    assert (known, len(readings)) == (count, 2)
    assert [result.entries for result in again] == [result.entries for result in read]


def test_units_that_were_built_anew_with_other_bytes_are_read_back(units, readings):
    job, built = units
    read_back_bundle(job, built)
    entry = built[0].entries[0]
    path = job.store.path_of(entry.path_of(entry.files[0]))
    path.chmod(0o644)
    path.write_bytes(b"")
    failed, known = read_back_bundle(job, built[1:])  # another bundle, so another mark
    assert failed[0].failures == ()
    assert known == 0
    changed = [dataclasses.replace(entry, columns=dict.fromkeys(entry.columns, "0" * 64))]
    other = dataclasses.replace(built[0], entries=tuple(changed))
    read, _ = read_back_bundle(job, [other])
    assert read[0].failures
    assert len(readings) == 4


def test_a_bundle_with_a_damaged_unit_leaves_no_mark(units):
    job, built = units
    entry = built[0].entries[0]
    path = job.store.path_of(entry.path_of(entry.files[0]))
    path.chmod(0o644)
    path.write_bytes(b"")
    read, _ = read_back_bundle(job, built)
    assert read[0].failures
    assert units_read_back(job.store, job.number) == 0


def test_an_assembled_output_that_was_read_back_is_not_read_again_by_the_next_attempt(
    drive, tmp_path, monkeypatch
):
    read, recipe = [], drive.recipe(**{"{tar: {}}": "{zarr: {}}"})
    real = assembly.assembled_differences

    def watched(store, identity, *rest):
        read.append(identity)
        return real(store, identity, *rest)

    monkeypatch.setattr(assembly, "assembled_differences", watched)
    with monkeypatch.context() as patch:
        patch.setattr(commit, "create_version", _killed)
        with pytest.raises(LogloomError, match="killed"):
            build_at(recipe, tmp_path)
    assert read
    made = len(read)
    assert build_at(recipe, tmp_path).manifest.version == 1
    assert len(read) == made
    for kind in ("json", "blake3"):
        (tmp_path / f"versions/00000001.{kind}").unlink()
    build_at(recipe, tmp_path, settings=BuildSettings(verify="all"))
    assert len(read) > made


def _killed(*_):
    raise LogloomError("killed")


def test_marks_are_gone_with_the_commit_and_strangers_files_count_nothing(drive, tmp_path):
    root = tmp_path / "root"
    stranger = root / "runs/00000001/read/ab/cdef-99999999999999999999"
    stranger.parent.mkdir(parents=True)
    stranger.write_text("hostile")
    plan = plan_build(drive.recipe(), str(root))
    assert units_read_back(plan.job.store, 1) == 0
    build(plan)
    assert not (root / "runs/00000001/read").exists()


def test_all_failures_of_a_build_stand_in_a_file_that_the_message_names(drive, tmp_path, monkeypatch):
    monkeypatch.setattr("logloom.transforms.build.outcomes.MAX_FAILURES", 1)
    root = tmp_path / "root"
    plan = plan_build(drive.recipe(), str(root))
    monkeypatch.setattr(partition, "_write_units", _refused)
    with pytest.raises(
        LogReadError, match=r"all of them: \S+/runs/00000001/\w+\.failures-\w+\.jsonl"
    ) as raised:
        build(plan)
    (file,) = (root / "runs/00000001").glob("*.failures-*.jsonl")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(lines) == plan.num_partitions
    assert f"{plan.num_partitions} partitions failed" in str(raised.value)
    assert {line["kind"] for line in lines} == {"log"}
    assert {line["left_out"] for line in lines} == {False}


def _refused(*_):
    raise LogReadError("torn")
