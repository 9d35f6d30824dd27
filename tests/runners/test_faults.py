"""Engines that lose parts of themselves in mid-build: a version ends right, or a second build ends it."""

import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import pytest

from logloom.demo import make_drives
from logloom.errors import LogloomError
from logloom.pipelines.build import build
from logloom.pipelines.plan import plan_build
from logloom.recipe import Recipe
from logloom.runners import RunnerOptions
from logloom.runners.processes import Child
from tests.pipelines.conftest import digests
from tests.runners.conftest import build_on

pytestmark = [pytest.mark.engines, pytest.mark.faults]

SLOWLY = """\
import time
import logloom

@logloom.derive
def same(columns):
    time.sleep(0.4)
    return columns["ego.speed"]
"""
RECIPE = """\
name: slow
logs: [{logs}/*.mcap]
clock: {{rate: 10}}
columns:
  ego.speed: {{topic: /odom, field: twist.twist.linear.x, resample: previous}}
  camera.front: {{topic: /cam/front/compressed, field: data, resample: nearest, tolerance: 50ms}}
  slow: {{derive: "slowly:same", from: [ego.speed], dtype: float64}}
partition: {{rows: 4}}
outputs:
  tar: {{ext: {{camera.front: jpg}}}}
  zarr: {{}}
"""


@pytest.fixture(scope="module")
def slow(tmp_path_factory):
    """A recipe of some twenty partitions that take a second each; its file, and that of its function."""
    folder = tmp_path_factory.mktemp("slow")
    make_drives(folder / "logs", seconds=4)
    (folder / "slowly.py").write_text(SLOWLY)
    (folder / "recipe.yaml").write_text(RECIPE.format(logs=folder / "logs"))
    return folder


def plan_at(slow: pathlib.Path, root: pathlib.Path):
    recipe = Recipe.load(str(slow / "recipe.yaml"))
    return plan_build(recipe, str(root), py_files=[str(slow / "slowly.py")])


@pytest.fixture(scope="module")
def undisturbed(slow, tmp_path_factory):
    root = tmp_path_factory.mktemp("undisturbed") / "root"
    build(plan_at(slow, root))
    return digests(root)


class Building(threading.Thread):
    """A build in a thread, so that the test can break what it stands on."""

    def __init__(self, plan, **options):
        super().__init__(daemon=True)
        self._plan = plan
        self._options = RunnerOptions(**options)
        self.error: BaseException | None = None
        self.told: list[str] = []
        self.start()

    def run(self):
        try:
            build(self._plan, runner=self._options, tell=self.told.append)
        except BaseException as error:
            self.error = error

    def wait_for_units(self, number: int, seconds: float = 120):
        """Waits until some units are finished, while others are still to do."""
        until = time.monotonic() + seconds
        total = len(self._plan.unit_identities())
        while (done := self._plan.finished()) < number:
            assert self.is_alive(), self.error
            assert time.monotonic() < until, f"{done} units after {seconds} s; {self.told}"
            time.sleep(0.05)
        assert done < total, "too late to break anything"

    def end(self):
        self.join(200)
        assert not self.is_alive(), self.told
        if self.error is not None:
            raise self.error


def test_a_task_manager_killed_in_mid_build_and_replaced(cluster, slow, undisturbed, tmp_path):
    building = Building(plan_at(slow, tmp_path / "root"), flink_master=cluster.address)
    building.wait_for_units(4)
    killed = cluster.task_managers.pop(0)
    killed.kill()
    cluster.start_task_manager()
    building.end()
    assert digests(tmp_path / "root") == undisturbed
    cluster.wait_for_task_managers(2)


def started_pool(log: pathlib.Path, port: int = 0) -> tuple[Child, str]:
    command = [sys.executable, "-m", "logloom.runners.pool", f"--port={port}"]
    pool = Child(command, log, what="the worker pool")
    return pool, pool.wait_for(r"worker pool at (\S+)")[1]


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
        pool.kill()
        pool, _ = started_pool(tmp_path / "pool2.log", int(endpoint.rpartition(":")[2]))
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
    with pytest.raises(LogloomError, match="Build again: what is finished is kept"):
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
    "options", [{"runner": "flink", "workers": 2}, {"runner": "prism"}], ids=lambda options: options["runner"]
)
def test_a_command_killed_in_mid_build_leaves_nothing_running_and_a_second_build_finishes(
    options, slow, undisturbed, tmp_path
):
    command = [sys.executable, "-m", "logloom", "build", str(slow / "recipe.yaml"), "--quiet"]
    command += ["--to", str(tmp_path / "root"), "--py", str(slow / "slowly.py")]
    command += ["--runner", options["runner"]]
    process = subprocess.Popen(command, env={**os.environ, "LOGLOOM_TEST_MARK": str(tmp_path)})
    plan, until = plan_at(slow, tmp_path / "root"), time.monotonic() + 120
    while plan.finished() < 3:
        assert process.poll() is None
        assert time.monotonic() < until
        time.sleep(0.05)
    process.kill()
    process.wait()
    until = time.monotonic() + 20
    while left := marked(str(tmp_path)):
        assert time.monotonic() < until, left
        time.sleep(0.1)
    again = build_on_again(slow, tmp_path / "root")
    assert again.reused >= 3
    assert digests(tmp_path / "root") == undisturbed


def marked(mark: str) -> list[str]:
    """Commands that descend from a process with this mark in its environment."""
    found = []
    for folder in pathlib.Path("/proc").iterdir():
        if folder.name.isdigit() and folder.name != str(os.getpid()):
            try:
                if f"LOGLOOM_TEST_MARK={mark}".encode() in (folder / "environ").read_bytes():
                    found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()[:200])
            except OSError:
                continue
    return found


def build_on_again(slow, root):
    return build(plan_at(slow, root))


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
    [{"runner": "direct", "workers": 2}, {"runner": "prism"}, {"runner": "flink", "workers": 2}],
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
