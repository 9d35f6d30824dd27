"""A partition's way to the disk: when that is told to begin, and of what."""

import pytest

from logloom.pipelines.plan.plan import plan_build
from logloom.recipe import Recipe
from logloom.transforms.build import partition, unit_writer
from tests.transforms.ros2_logs import SPEED, speeds, write_log

RECIPE = """
name: t
logs: [LOGS/*.mcap]
clock: {rate: 100}
columns:
  speed: {topic: /can, field: speed}
outputs: {tar: {}, table: {}}
"""


@pytest.fixture
def planned(tmp_path):
    (tmp_path / "logs").mkdir()
    write_log(tmp_path / "logs/a.mcap", {"/can": (SPEED, speeds(count=40))})
    (tmp_path / "recipe.yaml").write_text(RECIPE.replace("LOGS", str(tmp_path / "logs")))
    plan = plan_build(Recipe.load(str(tmp_path / "recipe.yaml")), str(tmp_path / "root"))
    (log,) = plan.tasks
    return plan.job, partition.plan_partitions(plan.job, log)[0]


@pytest.fixture
def sent(monkeypatch):
    """Names of files that the disk was told to begin to write, each time that it was."""
    found = []
    monkeypatch.setattr(
        unit_writer, "start_writing", lambda paths: found.append([path.name for path in paths if path.stat()])
    )
    return found


def test_files_are_sent_to_the_disk_before_a_partition_is_whole(planned, sent, monkeypatch):
    monkeypatch.setattr(unit_writer, "_WRITE_OUT", 1)
    job, task = planned
    built = partition.build_partition(job, task)
    assert not built.failures
    assert sent
    assert all("shard.tar" in names for names in sent)
    assert {name for names in sent for name in names} > {"shard.tar"}  # of every output


def test_the_disk_is_not_asked_for_a_few_bytes(planned, sent):
    partition.build_partition(*planned)
    assert not sent


def test_rows_that_are_made_to_be_compared_are_not_sent_to_the_disk(planned, sent, monkeypatch):
    monkeypatch.setattr(unit_writer, "_WRITE_OUT", 1)
    job, task = planned
    partition.derive_columns(job, task.log, task.span, ["tar"])
    partition.derive_entry(job, task.log, task.span, "tar")
    assert not sent
