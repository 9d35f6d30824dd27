"""Engines that lose parts of themselves in mid-build: a version ends right, or a second build ends it."""

import json
import os
import pathlib
import signal
import sys
import tempfile
from dataclasses import replace

import pytest

from logloom.demo import make_drives
from logloom.errors import LogloomError
from logloom.pipelines.build.build import build
from logloom.recipe import Recipe
from logloom.runners import RunnerOptions
from tests.pipelines.conftest import digests
from tests.runners.breaking import RECIPE, BuildCommand, Building, plan_at, started_pool
from tests.runners.conftest import build_on

pytestmark = [pytest.mark.engines, pytest.mark.faults]


def test_a_task_manager_killed_in_mid_build_and_replaced(cluster, slow, undisturbed, tmp_path):
    building = Building(plan_at(slow, tmp_path / "root"), flink_master=cluster.address)
    building.wait_for_units(4)
    killed = cluster.task_managers.pop(0)
    killed.kill()
    cluster.start_task_manager()
    building.end()
    assert digests(tmp_path / "root") == undisturbed
    cluster.wait_for_task_managers(2)


def test_a_worker_pool_killed_in_mid_build_and_replaced(cluster, slow, undisturbed, tmp_path):
    pool, endpoint = started_pool(tmp_path / "pool.log")
    building = Building(
        plan_at(slow, tmp_path / "root"),
        flink_master=cluster.address,
        environment="external",
        environment_config=endpoint,
    )
    try:
        building.wait_for_units(4)
        # Up before the other is gone: a busy machine may start it later than the last of Flink's attempts.
        replacement, _ = started_pool(tmp_path / "pool2.log", int(endpoint.rpartition(":")[2]))
        pool.kill()
        pool = replacement
        building.end()
    finally:
        pool.stop()
    assert digests(tmp_path / "root") == undisturbed


def test_a_worker_pool_that_stays_away_fails_the_build_and_a_second_one_finishes(
    cluster, slow, undisturbed, tmp_path
):
    pool, endpoint = started_pool(tmp_path / "pool.log")
    building = Building(
        plan_at(slow, tmp_path / "root"),
        flink_master=cluster.address,
        environment="external",
        environment_config=endpoint,
    )
    try:
        building.wait_for_units(4)
    finally:
        pool.kill()
    with pytest.raises(LogloomError, match="Build again: finished units are kept"):
        building.end()
    again = build(plan_at(slow, tmp_path / "root"))
    assert again.reused >= 4
    assert digests(tmp_path / "root") == undisturbed


def kill_job_server(master: str):
    for folder in pathlib.Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                command = (folder / "cmdline").read_bytes().decode().split("\0")
            except OSError:
                continue
            if f"--flink-master={master}" in command and "java" in command[0]:
                os.kill(int(folder.name), signal.SIGKILL)
                return
    raise AssertionError("no job server")


def test_a_job_server_killed_after_submission_is_done_without(cluster, slow, undisturbed, tmp_path):
    building = Building(plan_at(slow, tmp_path / "root"), flink_master=cluster.address)
    building.wait_for_units(4)
    kill_job_server(cluster.address)
    building.end()
    assert any("job server is gone" in line for line in building.told)
    assert digests(tmp_path / "root") == undisturbed


@pytest.mark.parametrize(
    "options",
    [
        ("--runner", "direct", "--workers", "2"),
        ("--runner", "flink", "--workers", "2"),
    ],
    ids=lambda options: options[1],
)
def test_a_command_killed_in_mid_build_leaves_nothing_running_and_a_second_build_finishes(
    options, slow, undisturbed, tmp_path, monkeypatch
):
    building = BuildCommand(slow, tmp_path / "root", "--quiet", *options)
    building.wait_for_units(3)
    building.end_by(signal.SIGKILL)
    building.wait_for_descendants()
    (left,) = building.temporary.iterdir()  # nothing beside the folder that the next command removes
    os.utime(left, (0, 0))
    monkeypatch.setattr(tempfile, "tempdir", str(building.temporary))
    again = build(plan_at(slow, tmp_path / "root"))
    assert building.left_behind() == []
    assert again.reused >= 3
    assert digests(tmp_path / "root") == undisturbed


@pytest.fixture(scope="module")
def fifty(tmp_path_factory):
    """Fifty short logs, one of which has a flipped byte amid its messages."""
    folder = tmp_path_factory.mktemp("fifty")
    make_drives(folder / "made", seconds=1)
    first = sorted((folder / "made").glob("*.mcap"))[0].read_bytes()
    logs = folder / "logs"
    logs.mkdir()
    for number in range(50):
        data = bytearray(first)
        if number == 17:
            data[len(data) // 3] ^= 0xFF
        (logs / f"log-{number:02d}.mcap").write_bytes(data)
    text = RECIPE.format(logs=logs).replace("  slow: {derive", "  #").replace("rows: 4", "rows: 1000")
    recipe = Recipe.from_yaml(text + "on_error: skip\n", source="fifty.yaml")
    root = tmp_path_factory.mktemp("fifty-built") / "root"
    built = build_on(recipe, root, runner="direct", workers=1)
    assert [log.log_id for log in built.manifest.logs if log.status != "whole"] == ["log-17"]
    return recipe, digests(root)


@pytest.mark.parametrize(
    "options",
    [{"runner": "direct", "workers": 2}, {"runner": "flink", "workers": 2}],
    ids=lambda options: options["runner"],
)
def test_one_poisoned_log_among_fifty_leaves_the_others_whole(options, fifty, tmp_path):
    recipe, expected = fifty
    built = build_on(recipe, tmp_path / "root", **options)
    status = {log.log_id: log.status for log in built.manifest.logs}
    assert status.pop("log-17") == "skipped"
    assert set(status.values()) == {"whole"}
    assert len(status) == 49
    assert digests(tmp_path / "root") == expected


DEADLY = """\
import os
import logloom

@logloom.derive
def same(columns):
    if (columns["sec"] >= 1767175200).any():  # the second drive
        {body}
    return columns["ego.speed"]
"""


@pytest.fixture
def deadly(tmp_path):
    """Plans a build of two drives, of which one ends each worker that builds it."""
    make_drives(tmp_path / "logs", seconds=1)
    text = RECIPE.format(logs=tmp_path / "logs").replace("rows: 4", "rows: 5")
    text = text.replace("from: [ego.speed]", "from: [ego.speed, sec]")
    column = "  sec: {topic: /odom, field: header.stamp.sec, resample: previous}\n"
    recipe = text.replace("  slow:", f"{column}  slow:") + "on_error: skip\n"
    (tmp_path / "recipe.yaml").write_text(recipe)

    def plan(body):
        (tmp_path / "slowly.py").write_text(DEADLY.format(body=body))
        return plan_at(tmp_path, tmp_path / "root")

    return plan


@pytest.mark.parametrize("engine", ["direct", "flink"])
def test_a_log_that_ends_every_worker_is_left_out_and_built_once_the_code_changes(engine, deadly, tmp_path):
    options = RunnerOptions(engine, workers=2)
    if engine == "flink":
        script = tmp_path / "worker"
        script.write_text(f'#!/bin/sh\nexec {sys.executable} -m logloom.runners.worker "$@"\n')
        script.chmod(0o755)
        config = json.dumps({"command": str(script)})
        options = replace(options, environment="process", environment_config=config)
    else:  # it starts no worker again, but the next build knows of the death
        with pytest.raises(LogloomError, match="a worker process ended before its work did"):
            build(deadly("os._exit(7)"), runner=options)
    try:
        built = build(deadly("os._exit(7)"), runner=options)
    except LogloomError:  # the first death ended the work on the log's other partition before that began
        built = build(deadly("os._exit(7)"), runner=options)
    status = {log.log_id: log.status for log in built.manifest.logs}
    assert status == {"drive-00": "whole", "drive-01": "skipped"}
    for reason in built.manifest.logs[1].reasons:  # one for each partition
        assert "worker processes died of it, the last one ended with code 7" in reason
        assert "tried again once the log, the recipe or logloom changes" in reason
    assert deadly("os._exit(7)").up_to_date
    assert build(deadly("pass"), runner=RunnerOptions("direct", workers=1)).is_whole


def test_a_worker_killed_in_mid_build_is_started_again_by_flink(slow, undisturbed, tmp_path):
    building = BuildCommand(slow, tmp_path / "root", "--runner", "flink", "--workers", "2")
    building.wait_for_units(3)
    os.kill(building.descendants("logloom.runners.worker")[0], signal.SIGKILL)
    code, said = building.end()
    assert code == 0, said
    building.wait_for_descendants()
    assert building.left_behind() == []
    assert digests(tmp_path / "root") == undisturbed


def test_a_local_worker_killed_in_mid_build_is_said_and_a_second_build_finishes(slow, undisturbed, tmp_path):
    building = BuildCommand(slow, tmp_path / "root", "--workers", "2")
    building.wait_for_units(3)
    os.kill(building.local_workers()[0], signal.SIGKILL)
    code, said = building.end()
    assert code == 1
    assert said.splitlines()[-2].startswith("logloom: a worker process ended before its work did")
    assert said.splitlines()[-1] == "Build again: finished units are kept"
    building.wait_for_descendants()
    assert building.left_behind() == []
    assert build(plan_at(slow, tmp_path / "root")).reused >= 3
    assert digests(tmp_path / "root") == undisturbed
