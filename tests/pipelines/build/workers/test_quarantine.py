"""Logs that can't be built leave no others behind: values that don't fit, and workers that die of them."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
from dataclasses import asdict, replace

import pytest

from logloom.demo import make_drives
from logloom.errors import LogloomError, LogReadError
from logloom.io.storage.metadata import canonical
from logloom.io.storage.processes import own_process
from logloom.pipelines.build.build import build
from logloom.pipelines.plan.plan import plan_build
from logloom.pipelines.verify.verify import verify
from logloom.recipe import Recipe
from logloom.transforms.build import quarantine, run_note
from logloom.transforms.build.partition import build_partition, plan_partitions
from logloom.transforms.build.quarantine import Attempt, build_bundle
from logloom.transforms.build.run_note import Announced
from tests.forking import command
from tests.pipelines.conftest import digests

pytestmark = pytest.mark.faults

RECIPE = """\
name: fleet
logs: [{logs}]
clock: {{rate: 10}}
on_error: {on_error}
columns:
  sec: {{topic: /odom, field: header.stamp.sec, resample: previous}}
  speed: {{topic: /odom, field: twist.twist.linear.x, resample: previous}}
  made: {{derive: "making:make", from: [sec, speed], dtype: {dtype}}}
partition: {{rows: 5}}
outputs:
  zarr: {{}}
"""
MAKING = """\
import os, signal
import numpy as np
import logloom

def fail(sec, speed):
    {body}

@logloom.derive
def make(columns):
    sec, speed = columns["sec"], columns["speed"]
    if (sec >= 1767175200).any():  # the second drive
        return fail(sec, speed)
    return [str(one) for one in speed] if {text} else (speed * 10).astype({dtype!r})
"""


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fleet") / "logs"
    make_drives(folder, seconds=1)
    return folder


class Fleet:
    """Two drives, and a recipe with a function that fails on the second."""

    def __init__(self, logs, folder):
        self.logs, self.folder, self.root = logs / "*.mcap", folder, folder / "root"

    def plan(self, body, *, dtype="int64", on_error="skip", root=None):
        self.recipe, self.python = self.folder / "recipe.yaml", self.folder / "making.py"
        self.recipe.write_text(RECIPE.format(logs=self.logs, dtype=dtype, on_error=on_error))
        self.python.write_text(MAKING.format(body=body, text=dtype == "string", dtype=dtype))
        recipe = Recipe.load(str(self.recipe))
        return plan_build(recipe, str(root or self.root), py_files=[str(self.python)])

    def is_killed(self, body, **options):
        """Builds in a process of its own, which dies of it."""
        self.plan(body, **options)
        done = command("build", self.recipe, "--to", self.root, "--py", self.python, "--quiet")
        assert done.returncode == -signal.SIGKILL, done.stderr

    @property
    def notes(self):
        return sorted(path.name for path in self.root.glob("runs/*/attempts/*"))


@pytest.fixture
def fleet(logs, tmp_path):
    return Fleet(logs, tmp_path)


DEADLY = "os.kill(os.getpid(), signal.SIGKILL)"


@pytest.mark.parametrize(
    ("body", "dtype", "said"),
    [
        ("return [2**70 for _ in speed]", "int64", "making:make returned object of shape"),
        (
            "return [10**400 for _ in speed] if 0 else np.array([10**400] * 5, float)",
            "float64",
            "OverflowError",
        ),
        ("return np.full(len(speed), np.nan)", "int32", "making:make: column 'made' at tick 1767175200"),
        ("return ['\\ud800' for _ in speed]", "string", "making:make returned list, which is no string"),
        ("return speed[:1]", "float64", "making:make returned float64 of shape (1,)"),
        ("return {}[sec[0]]", "float64", "making:make fails on rows 1767175200"),
    ],
)
def test_a_function_whose_values_do_not_fit_leaves_its_log_out_under_skip(fleet, body, dtype, said):
    built = build(fleet.plan(body, dtype=dtype))
    status = {record.log_id: record.status for record in built.manifest.logs}
    assert status == {"drive-00": "whole", "drive-01": "skipped"}
    reason = built.manifest.logs[1].reasons[0]
    assert said in reason
    assert reason.startswith("partition 1767")
    assert build(fleet.plan(body, dtype=dtype)).manifest.version == 1
    fleet.root = fleet.folder / "other"
    with pytest.raises(LogReadError, match="drive-01 1767"):
        build(fleet.plan(body, dtype=dtype, on_error="fail"))


def test_values_that_do_not_fit_count_against_the_budget(fleet):
    with pytest.raises(LogloomError, match=r"1 of 2 logs skipped, over the budget of 1\.00%"):
        build(fleet.plan("return {}['x']", on_error="{skip: 1%}"))


def test_a_version_in_which_every_log_is_skipped_is_refused_and_says_why(fleet):
    fleet.logs = fleet.logs.with_name("*01.mcap")
    plan = fleet.plan("return {}['x']")
    with pytest.raises(LogloomError, match=r"1 log skipped, drive-01: partition .* making:make fails"):
        build(plan)


@pytest.mark.parametrize(
    "body", ["raise MemoryError('full')", "return speed - speed.mean()"], ids=["memory", "rows that differ"]
)
def test_what_is_no_fault_of_a_log_fails_the_build_under_skip_too(fleet, body):
    with pytest.raises(LogReadError, match=r"full|fewer rows"):
        build(fleet.plan(body, dtype="float64"))


def test_a_log_that_kills_workers_is_left_out_and_tried_again_once_the_code_changes(fleet):
    fleet.is_killed(DEADLY)
    assert len(fleet.notes) == 1
    built = build(fleet.plan(DEADLY))
    assert [record.status for record in built.manifest.logs] == ["whole", "skipped"]
    assert built.manifest.logs[1].reasons[0].endswith(f"attempts/{fleet.notes[0]})")
    assert "3 worker processes died of it, the last one by SIGKILL" in built.manifest.logs[1].reasons[0]
    done = command("status", fleet.root, "--wait")
    assert (done.returncode, "but 1 log is skipped (drive-01)" in done.stdout) == (3, True)
    assert fleet.plan(DEADLY).up_to_date
    assert verify(str(fleet.root)).findings == ()
    mended = build(fleet.plan("return (speed * 10).astype('int64')"))
    assert [record.status for record in mended.manifest.logs] == ["whole", "whole"]


def test_a_log_that_kills_workers_ends_a_build_that_may_skip_none_by_its_name(fleet):
    fleet.is_killed(DEADLY, on_error="fail")
    with pytest.raises(LogReadError, match=r"drive-01 1767\S*: 3 worker processes died .* on_error: skip"):
        build(fleet.plan(DEADLY, on_error="fail"))


def test_a_log_whose_worker_was_killed_for_another_reason_is_built_with_the_same_bytes(fleet, tmp_path):
    first = str(tmp_path / "first")
    once = f"if not os.path.exists({first!r}): open({first!r}, 'w'); {DEADLY}"
    body = f"{once}\n    print('is no answer', flush=True)\n    return (speed * 10).astype('int64')"
    fleet.is_killed(body)
    assert fleet.notes
    built = build(fleet.plan(body))
    assert built.is_whole
    assert fleet.notes == []
    build(fleet.plan(body, root=tmp_path / "undisturbed"))
    assert digests(fleet.root) == digests(tmp_path / "undisturbed")


# --- attempts at the same time ---------------------------------------------------------------------------


@pytest.fixture
def bundle(fleet, monkeypatch):
    """The job and the first partition of a log that does no harm; and what of it was built apart."""
    job = fleet.plan("return (speed * 10).astype('int64')").job
    log = next(log.task for log in fleet.plan("pass").logs if log.task.log_id == "drive-01")
    apart = []

    def in_child(job, tasks):
        apart.append(tasks)
        return [build_partition(job, task) for task in tasks], ""

    monkeypatch.setattr(quarantine, "_in_child", in_child)
    return job, plan_partitions(job, log)[:1], apart


def attempt_of(job, tasks, monkeypatch, **changes):
    """Leaves the note of an attempt that goes on, or died; gives its place."""
    found = []
    with monkeypatch.context() as patch:
        patch.setattr(
            quarantine, "build_partition", lambda *_: found.extend(job.store.names("runs/00000001/attempts"))
        )
        build_bundle(job, tasks)
    name = f"runs/00000001/attempts/{found[0]}"
    own = own_process()
    is_other = "pid" in changes or changes.get("host", own.host) != own.host
    said = Attempt(job.run, **asdict(own) | ({"process": "other"} if is_other else {}))
    job.store.replace(name, canonical(asdict(replace(said, **changes))))
    return name


def test_the_note_of_another_build_at_the_same_time_is_no_death_and_stays(bundle, monkeypatch):
    job, tasks, apart = bundle
    other = replace(job, run="other")
    for where in (socket.gethostname(), "elsewhere"):
        with Announced(other, "flink"):
            note = attempt_of(job, tasks, monkeypatch, run="other", host=where)
            assert build_bundle(job, tasks)[0].failures == ()
            assert job.store.exists(note)
    assert apart == []


@pytest.mark.parametrize("ended", ["stopped", "committed", "silent"])
def test_the_note_of_a_build_that_is_over_is_a_death(ended, bundle, monkeypatch):
    job, tasks, apart = bundle
    other = replace(job, run="other")
    note = attempt_of(job, tasks, monkeypatch, run="other", host="elsewhere")
    with contextlib.suppress(KeyboardInterrupt), Announced(other, "flink") as announced:
        if ended == "stopped":
            raise KeyboardInterrupt
        if ended == "silent":
            announced._note = replace(announced.note, host="elsewhere", process="other")
            announced.update()
            build_bundle(job, tasks)
            assert apart == []  # nobody has watched it
            run_note.note_silence(job.store, 1, "other", announced.note.beat)
        if ended == "committed":
            announced._note = replace(announced._note, detached=True)
            job.store.replace("runs/00000001/other.json", b"{}")
    build_bundle(job, tasks)
    assert len(apart) == 1
    assert not job.store.exists(note)


def test_an_attempt_that_the_engine_of_the_same_build_repeats_elsewhere_is_a_death(bundle, monkeypatch):
    job, tasks, apart = bundle
    attempt_of(job, tasks, monkeypatch, host="elsewhere")
    build_bundle(job, tasks)
    assert len(apart) == 1
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    attempt_of(job, tasks, monkeypatch, run="other", pid=gone.pid)
    build_bundle(job, tasks)
    assert len(apart) == 2


@pytest.mark.parametrize("said", [b"", b"{", b"[]", b'{"attempts": 99}', b"\xff" * 100])
def test_a_note_that_makes_no_sense_is_passed_over(fleet, said):
    fleet.is_killed(DEADLY)
    (note,) = fleet.root.glob("runs/*/attempts/*")
    note.with_name(f"{note.name.partition('-')[0]}.json").write_bytes(said)
    built = build(fleet.plan(DEADLY))
    assert [record.status for record in built.manifest.logs] == ["whole", "skipped"]


DEADLY_KIND = """\
import os, signal

class Deadly:
    name, suffixes = "deadly", (".deadly",)
    def matches(self, uri, head):
        return head.startswith(b"deadly")
    def open(self, uris, options):
        os.kill(os.getpid(), signal.SIGKILL)

KIND = Deadly()
"""
DEADLY_PART = """\
from logloom.parts import Part
PART = Part(logs={"deadly": "deadly:KIND"})
"""
SAMPLED = """\
import sys
from logloom.pipelines.build.build import build
from logloom.pipelines.plan.plan import plan_build
from logloom.recipe import Recipe
if __name__ == "__main__":
    plan = plan_build(Recipe.load(sys.argv[1]), sys.argv[2], sample=2)
    assert [task.log_id for task in plan.left] == ["drive-1"]
    built = build(plan)
    print([record.status for record in built.manifest.logs], *built.manifest.logs[1].reasons)
"""


@pytest.mark.parametrize("on_error", ["{skip: 50%}", "{skip: 1%}", "fail"])
def test_a_log_that_kills_the_worker_that_opens_it_is_a_suspect_too(logs, tmp_path, on_error):
    first, _ = sorted(logs.glob("*.mcap"))
    drives, plugin = tmp_path / "drives", tmp_path / "plugin"
    for folder in (drives, plugin / "deadly-1.dist-info"):
        folder.mkdir(parents=True)
    for name in ("drive-0.mcap", "drive-2.mcap"):
        shutil.copy2(first, drives / name)
    (drives / "drive-1.deadly").write_bytes(b"deadly")
    (plugin / "deadly.py").write_text(DEADLY_KIND)
    (plugin / "deadly_part.py").write_text(DEADLY_PART)
    points = "[logloom.parts]\ndeadly = deadly_part:PART\n"
    (plugin / "deadly-1.dist-info/entry_points.txt").write_text(points)
    (plugin / "deadly-1.dist-info/METADATA").write_text("Name: deadly\nVersion: 1\n")
    (plugin / "sampled.py").write_text(SAMPLED)
    recipe = tmp_path / "recipe.yaml"
    lines = RECIPE.format(logs=f"{drives}/*", on_error=on_error, dtype="int64").splitlines()
    recipe.write_text("\n".join(line for line in lines if "derive" not in line))
    command = [sys.executable, plugin / "sampled.py", recipe, tmp_path / "root"]
    path = {**os.environ, "PYTHONPATH": os.pathsep.join([str(plugin), *filter(None, sys.path)])}
    assert subprocess.run(command, capture_output=True, env=path).returncode == -signal.SIGKILL
    done = subprocess.run(command, capture_output=True, env=path, text=True)
    if on_error == "{skip: 50%}":
        assert done.stdout.startswith("['whole', 'skipped', 'whole'] 3 worker processes died of it"), done
    else:
        over_budget = "1 of 3 logs skipped, over the budget of 1.00%"
        assert (
            over_budget if "skip" in on_error else "drive-1: 3 worker processes died of it"
        ) in done.stderr
