"""What `status` and `wait` tell of builds, and what strangers' files in runs/ do to them."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from logloom.errors import LogloomError, LogReadError
from logloom.io.storage import Store
from logloom.pipelines import status
from logloom.pipelines.build import build
from logloom.pipelines.plan import plan_build
from logloom.transforms import partition
from tests.pipelines.conftest import build_at, command


@pytest.fixture
def plan(drive, tmp_path):
    return plan_build(drive.recipe(), str(tmp_path / "root"))


def note_of(plan):
    (note,) = plan.job.store.path_of("runs/00000001").glob("*.running.json")
    return note


def test_a_build_is_running_until_its_outcome_stands_beside_its_note(plan):
    store = plan.job.store
    with status.Announced(plan.job, "direct", 40) as announced:
        announced.say(job_id="j-1")
        (one,) = status.builds(store)
        assert (one.version, one.state, one.engine, one.job_id) == (1, "running", "direct", "j-1")
        assert (one.units, one.units_read_back) == (40, 0)
        assert one.heard <= 60
    build(plan)
    (one,) = status.builds(store)
    assert one.state == "committed"
    assert one.built == plan.num_partitions * len(plan.job.outputs)
    done = command("status", store.uri, "--json")
    assert json.loads(done.stdout)[0]["state"] == "committed"
    assert "version 1, committed" in command("wait", store.uri).stdout


def test_a_build_that_fails_says_so_to_whoever_waits(plan, monkeypatch):
    def refused(*_):
        raise LogReadError("torn")

    monkeypatch.setattr(partition, "_write_units", refused)
    with pytest.raises(LogReadError):
        build(plan)
    (one,) = status.builds(plan.job.store)
    assert (one.state, one.failed, one.problem) == ("failed", plan.num_partitions, "torn")
    done = command("wait", plan.job.store.uri)
    assert done.returncode == 1
    assert "torn" in done.stdout


def test_the_note_of_a_killed_command_holds_nobody_up(plan):
    with status.Announced(plan.job, "direct"):
        pass
    note = note_of(plan)
    said = json.loads(note.read_bytes())
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    note.write_text(json.dumps({**said, "pid": gone.pid}))
    (one,) = status.wait(plan.job.store, timeout=0)
    assert one.state == "silent"
    assert "probably killed" in one.problem
    note.write_text(json.dumps({**said, "host": "elsewhere", "heard": int(time.time()) - 3600}))
    (one,) = status.wait(plan.job.store, timeout=0)
    assert "gave no sign of life for 36" in one.problem


def test_a_command_that_was_stopped_leaves_the_reason(plan):
    with pytest.raises(KeyboardInterrupt), status.Announced(plan.job, "direct"):
        raise KeyboardInterrupt
    (one,) = status.builds(plan.job.store)
    assert (one.state, one.problem) == ("stopped", "KeyboardInterrupt: ")


def test_a_detached_job_is_over_once_its_version_is_there(plan, drive):
    with status.Announced(plan.job, "flink", detached=True) as announced:
        announced.say(job_id="abc", place="http://flink:8081/#/job/abc")
    (one,) = status.builds(plan.job.store)
    assert (one.state, one.place) == ("detached", "http://flink:8081/#/job/abc")
    with pytest.raises(LogloomError, match="still runs after 0 s"):
        status.wait(plan.job.store, timeout=0)
    build_at(drive.recipe(), plan.job.store.local)
    assert {one.state for one in status.builds(plan.job.store)} == {"committed", "stopped"}


def test_waiting_ends_with_the_build_that_ran(plan, monkeypatch):
    monkeypatch.setattr(status, "LOOK_EVERY", 0.01)
    looked = threading.Event()
    building = threading.Thread(target=lambda: looked.wait(60) and build(plan), daemon=True)
    with status.Announced(plan.job, "direct"):
        building.start()
        found = status.wait(plan.job.store, 1, timeout=60, on_status=lambda one: looked.set())
    building.join(60)
    assert [one.state for one in found] == ["committed"]


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"{",
        b"[]",
        b'{"engine": 1}',
        b'{"engine": "x", "host": "\\u001b[2J", "pid": -1, "started": 1, "heard": 1}',
        b'{"engine": "x", "host": "h", "pid": 1, "started": 9223372036854775807, "heard": 9}',
        b"\xff\xfe" * 1000,
    ],
)
def test_foreign_files_in_runs_are_told_of_and_hold_nobody_up(said, drive, tmp_path):
    root = tmp_path / "root"
    folder = root / "runs" / "00000001"
    folder.mkdir(parents=True)
    for name in ("a.running.json", "b.json", "c.txt", "UPPER.json"):
        (folder / name).write_bytes(said)
    (root / "runs" / "not a number").mkdir()
    (folder / "d.json").mkdir()
    done = command("status", str(root))
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    build_at(drive.recipe(), root)
    states = [one.state for one in status.builds(Store.at(str(root)))]
    assert states.count("committed") == 1


def test_a_root_without_builds_has_nothing_to_tell(tmp_path):
    assert status.builds(Store.at(str(tmp_path))) == []
    assert "no build has left anything here" in command("status", str(tmp_path)).stderr


def test_a_second_build_that_is_to_wait_goes_on_from_the_first(plan, drive, tmp_path):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(drive.text)
    root = plan.job.store.uri
    with status.Announced(plan.job, "direct"):
        waiting = subprocess.Popen(
            [sys.executable, "-m", "logloom", "build", str(recipe), "--to", root, "--wait"],
            stderr=subprocess.PIPE,
            text=True,
        )
        assert waiting.stderr is not None
        lines = iter(waiting.stderr.readline, "")
        assert any("another build: version 1, running" in line for line in lines)
        build(plan)
    assert "up to date: version 1" in waiting.stderr.read()
    assert waiting.wait(60) == 0


def test_a_build_that_is_killed_is_told_of(plan, drive, tmp_path):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(drive.text)
    root = tmp_path / "root"
    building = subprocess.Popen(
        [sys.executable, "-m", "logloom", "build", str(recipe), "--to", str(root), "--quiet"]
    )
    while not list(root.glob("runs/*/*.running.json")):
        time.sleep(0.01)
        assert building.poll() is None
    os.kill(building.pid, signal.SIGKILL)
    building.wait()
    (one,) = status.builds(Store.at(str(root)))
    assert one.state in ("silent", "committed")
