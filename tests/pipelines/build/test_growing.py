"""An archive that grows: what a build of new logs carries and writes doesn't grow with the logs that stay."""

import dataclasses
import json
import pickle
import shutil

import apache_beam as beam
import pytest

from logloom.errors import DatasetError
from logloom.io.catalog import pages
from logloom.io.catalog.manifest_digest import digest_file
from logloom.io.catalog.page_merge import write_records
from logloom.io.catalog.pages import PAGES, LogRecord, page_file
from logloom.io.catalog.records import LogRecords
from logloom.io.catalog.version_files import runs_folder, version_file
from logloom.pipelines.build import build as building
from logloom.pipelines.plan.plan import plan_build
from logloom.pipelines.status import sweep_runs
from logloom.recipe import Recipe
from logloom.transforms.build import commit, outcomes
from tests.pipelines.conftest import build_at, digests


@pytest.fixture
def nightly(quick_drive):
    """A recipe with one output that isn't assembled, whose gone logs stay."""
    return Recipe.from_yaml(f"{quick_drive.text}vanished: keep\n", source="drive.yaml")


def archive(nightly: Recipe, root: str, count: int) -> LogRecords:
    """A version of logs of which only the records are there."""
    job = plan_build(nightly, root).job
    records = []
    for number in range(count):
        log_id, uris, content = f"car-{number:06}", (f"/gone/car-{number:06}.mcap",), f"{number:064}"
        key = job.log_key(log_id, content, uris, "all")
        records.append(LogRecord(log_id, uris, content, "all", key, "kept", "", 0, 0, {}, 0))
    logs = write_records(job.store, records)
    commit.create_version(job, logs, [], {"logs": 0, "assembled": 0})
    return logs


def graph_of(plan) -> bytes:
    pipeline = beam.Pipeline("FnApiRunner")
    building.construct(pipeline, plan)
    return pipeline.to_runner_api().SerializeToString()


def test_the_graph_of_a_build_is_as_large_over_few_kept_logs_as_over_many(nightly, tmp_path):
    sizes = {}
    for count in (30, 3000):
        root = str(tmp_path / f"root{count:04}")
        archive(nightly, root, count)
        plan = plan_build(nightly, root)
        assert plan.kept.logs == count
        assert len(plan.logs) == 2
        sizes[count] = len(graph_of(plan)), len(pickle.dumps(plan.job))
    assert sizes[3000] == pytest.approx(sizes[30], abs=1024)


def test_a_night_writes_the_pages_of_its_logs_only_and_reads_no_other(nightly, tmp_path, monkeypatch):
    monkeypatch.setattr(pages, "_BORDER", 2**64 // 100)  # pages of a hundred logs or so
    root = tmp_path / "root"
    before = archive(nightly, str(root), 400)
    assert len(before.pages) > 2
    new = [log.task.log_id for log in plan_build(nightly, str(root)).logs]
    night = build_at(nightly, root)
    assert [record.log_id for record in night.manifest.logs][-2:] == new
    assert night.manifest.logs.pages[:-1] == before.pages[:-1]
    assert night.manifest.totals["logs"] == 402
    assert len(list((root / PAGES).iterdir())) == len(before.pages) + 1
    assert plan_build(nightly, str(root)).up_to_date
    # One that no new log falls into may even be gone: it isn't opened.
    (root / version_file(2)).unlink()
    (root / digest_file(2)).unlink()
    columns = before.pages[0]
    plan = plan_build(nightly, str(root))
    (root / page_file(columns)).unlink()
    again = building.build(plan, view="none")
    assert again.manifest.logs.pages == night.manifest.logs.pages


def test_logs_that_leave_or_change_go_to_the_commit_by_a_file(nightly, drive, tmp_path):
    root = tmp_path / "root"
    archive(nightly, str(root), 1500)
    dropping = nightly.model_copy(update={"vanished": "drop"})
    plan = plan_build(dropping, str(root))
    assert len(plan.changes) == 1500
    graph = graph_of(plan)
    assert b"car-000001" not in graph
    built = building.build(plan)
    assert [record.log_id for record in built.manifest.logs] == [log.stem for log in drive.logs]
    assert plan_build(dropping, str(root)).up_to_date


def test_outcomes_in_groups_make_the_bytes_of_those_in_one(nightly, tmp_path, monkeypatch):
    one = build_at(nightly, tmp_path / "one")
    monkeypatch.setattr(outcomes, "GROUP", 1)
    handed_on = []

    def sweeping(store, number):
        handed_on.extend((tmp_path / "two" / runs_folder(number)).glob("*.parquet"))
        sweep_runs(store, number)

    monkeypatch.setattr(building, "sweep_runs", sweeping)
    two = build_at(nightly, tmp_path / "two")
    assert len(handed_on) == 2
    assert not any(path.exists() for path in handed_on)
    assert two.manifest.logs == one.manifest.logs
    assert digests(tmp_path / "two") == digests(tmp_path / "one")


def test_the_tasks_of_many_new_logs_go_by_files_and_make_the_same_bytes(
    nightly, drive, tmp_path, monkeypatch
):
    few = build_at(nightly, tmp_path / "few")
    monkeypatch.setattr(building, "GROUP", 1)
    graphs = []
    run = building.run

    def running(steps, *arguments, **choices):
        pipeline = beam.Pipeline("FnApiRunner")
        steps(pipeline)
        graphs.append(pipeline.to_runner_api().SerializeToString())
        return run(steps, *arguments, **choices)

    monkeypatch.setattr(building, "run", running)
    many = build_at(nightly, tmp_path / "many")
    assert many.manifest.logs == few.manifest.logs
    assert digests(tmp_path / "many") == digests(tmp_path / "few")
    (graph,) = graphs
    assert few.manifest.logs[1].content_id.encode() not in graph


def test_a_parent_that_was_replaced_while_a_build_ran_is_refused(nightly, tmp_path):
    root = tmp_path / "root"
    archive(nightly, str(root), 3)
    plan = plan_build(nightly, str(root))
    path = root / version_file(1)
    path.chmod(0o644)
    path.write_bytes(path.read_bytes() + b" ")
    with pytest.raises(DatasetError, match="version 1 was changed or replaced while this build ran"):
        outcomes.merge_outcomes(plan.job, [])


def test_the_same_logs_night_by_night_end_with_the_pages_of_one_build(nightly, drive, tmp_path):
    logs = tmp_path / "logs"
    logs.mkdir()
    text = json.loads(json.dumps(nightly.model_dump(mode="json")))
    text["logs"] = [str(logs / "*.mcap")]
    growing = Recipe.model_validate(text)
    for path in drive.logs:
        shutil.copy(path, logs)
        nights = build_at(growing, tmp_path / "nights")
    once = build_at(growing, tmp_path / "once")
    assert nights.manifest.version == len(drive.logs)
    assert nights.manifest.logs.pages == once.manifest.logs.pages
    assert dataclasses.replace(nights.manifest, **differing(once.manifest)) == once.manifest


def differing(manifest):
    """What tells one version of the same logs from another."""
    return {name: getattr(manifest, name) for name in ("version", "parent", "parent_digest", "trusted")}
