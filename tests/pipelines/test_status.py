"""What `status` shows of builds, waiting for them or not, and what strangers' files in runs/ do to them."""

import contextlib
import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logloom.errors import LogloomError, LogReadError
from logloom.io.storage.disk import start_of
from logloom.io.storage.store import Store
from logloom.pipelines import status
from logloom.pipelines.build import concurrent_builds
from logloom.pipelines.build.build import build, submit
from logloom.pipelines.dataflow import template
from logloom.pipelines.plan.plan import plan_build
from logloom.runners import RunnerOptions
from logloom.transforms.build import partition, run_note
from logloom.transforms.build.run_note import Announced, Heartbeats
from tests.absent import needs
from tests.forking import command
from tests.pipelines.conftest import build_at

ELSEWHERE = {"host": "elsewhere", "boot": "another", "namespace": "pid:[1]"}


@pytest.fixture(scope="session")
def drive(quick_drive):
    return quick_drive


@pytest.fixture
def plan(drive, tmp_path):
    return plan_build(drive.recipe(), str(tmp_path / "root"))


def note_of(plan):
    (note,) = plan.job.store.path_of("runs/00000001").glob("*.running.json")
    return note


def test_a_build_is_running_until_its_outcome_stands_beside_its_note(plan):
    store = plan.job.store
    with Announced(plan.job, "direct", 40) as announced:
        announced.update(job_id="j-1")
        (one,) = status.builds(store)
        assert (one.version, one.state, one.engine, one.job_id) == (1, "running", "direct", "j-1")
        assert (one.units, one.units_read_back) == (40, 0)
        assert one.heard <= 60
    build(plan)
    (one,) = status.wait(store, timeout=60)
    assert one.state == "committed"
    assert one.built == one.units == one.units_read_back == plan.num_partitions * len(plan.job.outputs)
    done = command("status", store.uri, "--json")
    assert json.loads(done.stdout)[0]["state"] == "committed"
    assert "version 1, committed" in command("status", store.uri, "--wait").stdout


def test_a_build_that_fails_says_so_to_whoever_waits(plan, monkeypatch):
    def refused(*_):
        raise LogReadError("torn")

    monkeypatch.setattr(partition, "_write_units", refused)
    with pytest.raises(LogReadError):
        build(plan)
    (one,) = status.builds(plan.job.store)
    assert (one.state, one.failed, one.problem) == ("failed", plan.num_partitions, "torn")
    done = command("status", plan.job.store.uri, "--wait")
    assert done.returncode == 1
    assert "torn" in done.stdout


def test_the_note_of_a_killed_command_holds_nobody_up(plan):
    with Announced(plan.job, "direct"):
        pass
    note = note_of(plan)
    said = json.loads(note.read_bytes())
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    note.write_text(json.dumps({**said, "pid": gone.pid, "process": "other"}))
    (one,) = status.wait(plan.job.store, timeout=0)
    assert one.state == "silent"
    assert f"process {gone.pid} here, ended without a word; it was probably killed" in one.problem


@pytest.mark.parametrize("run", ["0", "zzz"])
def test_of_builds_that_began_in_one_second_the_one_that_committed_is_the_latest(plan, run):
    build(plan)
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    said = {**json.loads(note_of(plan).read_bytes()), "pid": gone.pid, "process": "other"}
    note_of(plan).with_name(f"{run}.running.json").write_text(json.dumps(said))
    assert [one.state for one in status.builds(plan.job.store)] == ["committed", "silent"]
    (one,) = status.wait(plan.job.store, timeout=0)
    assert one.state == "committed"


def test_a_command_that_was_stopped_leaves_the_reason(plan):
    with pytest.raises(KeyboardInterrupt), Announced(plan.job, "direct"):
        raise KeyboardInterrupt
    (one,) = status.builds(plan.job.store)
    assert (one.state, one.problem) == ("stopped", "interrupted")
    assert one.in_words().endswith(", on direct, interrupted")


def test_what_runs_on_no_engine_is_said_to_be_made_by_what_it_is(plan):
    with Announced(plan.job, "rollback"):
        (one,) = status.builds(plan.job.store)
    assert ", by rollback, " in one.in_words()


def test_a_detached_job_is_over_once_its_version_is_there(plan, drive):
    with Announced(plan.job, "flink", detached=True) as announced:
        announced.update(job_id="abc", place="http://flink:8081/#/job/abc")
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
    with Announced(plan.job, "direct"):
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
def test_foreign_files_in_runs_are_told_of_and_hold_nobody_up(said, drive, tmp_path, monkeypatch):
    monkeypatch.setattr(run_note, "SILENT_AFTER", 1.0)  # for which a build waits for a sign of life
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
    (tmp_path / "versions").mkdir()
    assert status.builds(Store.at(str(tmp_path))) == []
    assert "no build has started here" in command("status", str(tmp_path)).stderr


def test_a_time_to_wait_is_a_number_of_seconds(tmp_path):
    assert command("status", str(tmp_path), "--timeout", "-1", "--wait").returncode == 2
    assert command("status", str(tmp_path), "--timeout", "nan", "--wait").returncode == 2


def test_a_folder_that_is_empty_or_not_there_is_an_error(tmp_path):
    for more, folder in itertools.product(([], ["--wait"]), (tmp_path, tmp_path / "nope")):
        done = command("status", folder, *more)
        assert done.returncode == 2
        assert f"`logloom build RECIPE --to {folder}`" in done.stderr


def test_waiting_reads_nothing_of_versions_that_are_there(drive, tmp_path, monkeypatch):
    for days in ("drive-00", "drive-0"):
        build_at(drive.recipe(**{"*.mcap": f"{days}*.mcap"}), tmp_path)
    store = Store.at(str(tmp_path))
    assert [one.version for one in status.builds(store)] == [2, 1]
    read = []
    real = Store.read
    monkeypatch.setattr(Store, "read", lambda store, name: read.append(name) or real(store, name))
    assert [one.version for one in status.wait(store)] == [2]
    assert {name.split("/")[1] for name in read} == {"00000002"}


@pytest.fixture
def recipe(drive, tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text(drive.text)
    return str(path)


def test_a_second_build_of_a_version_is_refused_and_told_of_the_first(plan, recipe):
    with Announced(plan.job, "flink") as announced:
        announced.update(job_id="j-1")
        done = command("build", recipe, "--to", plan.job.store.uri, "--quiet")
    assert done.returncode == 1
    named = f"on flink, job j-1, by process {os.getpid()} on {socket.gethostname()}, since 20"
    assert f"another build of version 1 runs: {named}" in done.stderr
    assert "Give `build` or `convert` --wait" in done.stderr
    assert plan.finished() == 0


def test_the_library_and_the_template_refuse_a_second_build_as_the_command_does(plan, drive, recipe):
    root = plan.job.store.uri
    with Announced(plan.job, "flink"):
        for second in (
            lambda: build(plan_build(drive.recipe(), root)),
            lambda: submit(plan_build(drive.recipe(), root), RunnerOptions()),
            lambda: template.main([f"--recipe={recipe}", f"--to={root}", "--runner=FnApiRunner"]),
        ):
            with pytest.raises(LogloomError, match="another build of version 1 runs: on flink"):
                second()
        assert plan.finished() == 0
        assert len(list(plan.job.store.path_of("runs/00000001").iterdir())) == 1
        assert build(plan_build(drive.recipe(), root), beside=True).manifest.version == 1


def test_a_job_of_the_template_is_known_to_run_until_its_outcome(drive, recipe, tmp_path, monkeypatch):
    seen = []
    real = template.construct

    def looking(pipeline, plan):
        seen.append([(one.state, one.engine, one.detached) for one in status.builds(plan.job.store)])
        return real(pipeline, plan)

    monkeypatch.setattr(template, "construct", looking)
    template.main([f"--recipe={recipe}", f"--to={tmp_path}/root", "--runner=FnApiRunner"])
    assert seen == [[("detached", "dataflow", True)]]
    (one,) = status.builds(Store.at(str(tmp_path / "root")))
    assert one.state == "committed"


def test_labels_of_a_build_are_shown_with_it_and_stand_in_no_version(recipe, tmp_path):
    root = tmp_path / "root"
    done = command("build", recipe, "--to", str(root), "--labels", "team=perception", "--labels", "night=7")
    assert done.returncode == 0, done.stderr
    (one,) = json.loads(command("status", str(root), "--json").stdout)
    assert one["labels"] == {"team": "perception", "night": "7"}
    (outcome,) = (path for path in root.glob("runs/*/*.json") if "running" not in path.name)
    assert json.loads(outcome.read_bytes())["labels"] == one["labels"]
    assert "night=7 team=perception" in command("status", str(root)).stdout
    assert not any(
        b"perception" in path.read_bytes() for path in root.glob("versions/**/*") if path.is_file()
    )


def restated(plan, **changes):
    """Changes the note of a build into one that another process wrote; tells what it said."""
    note = note_of(plan)
    said = json.loads(note.read_bytes())
    note.write_text(json.dumps({**said, "process": "other", **changes}))
    return said


@pytest.mark.parametrize("pid", [os.getpid(), os.getppid()], ids=["own", "parent"])
def test_a_process_that_has_the_number_of_a_killed_command_is_not_taken_for_it(plan, pid):
    """However the clock of the machine was set meanwhile: what counts are ticks since its boot."""
    with Announced(plan.job, "direct"):
        restated(plan, pid=os.getppid(), began=start_of(os.getppid()), started=int(time.time()) - 10**6)
        assert status.builds(plan.job.store)[0].state == "running"
        restated(plan, pid=pid, began=start_of(pid) + 1)
        assert status.builds(plan.job.store)[0].state == "silent"
        assert concurrent_builds.running_now(plan.job.store, {1}) == []


def test_a_build_that_could_not_write_down_its_end_is_over_for_its_own_process(plan, drive, monkeypatch):
    """As where it was interrupted twice, in a notebook: that process lives on."""

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    announced = Announced(plan.job, "direct").__enter__()
    monkeypatch.setattr(announced, "update", interrupted)
    with pytest.raises(KeyboardInterrupt):
        announced.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    (one,) = status.builds(plan.job.store)
    assert (one.state, one.problem) == ("silent", "its command has ended, and left no note of the result")
    assert build(plan_build(drive.recipe(), plan.job.store.uri)).manifest.version == 1


def test_a_command_elsewhere_is_known_to_run_once_it_gives_a_new_sign_of_life(plan, monkeypatch):
    monkeypatch.setattr(status, "LOOK_EVERY", 0.01)
    with Announced(plan.job, "direct"):
        pass
    said = restated(plan, **ELSEWHERE)

    def beat(one):
        assert (one.host, one.state) == ("elsewhere", "running")
        restated(plan, beat=said["beat"] + 1)  # and a clock that stands still

    assert [one.host for one in concurrent_builds.running_now(plan.job.store, {1}, beat)] == ["elsewhere"]


def test_a_pod_that_replaces_another_waits_until_that_was_silent_for_long_enough(plan, monkeypatch):
    monkeypatch.setattr(status, "LOOK_EVERY", 0.01)
    with Announced(plan.job, "direct"):
        pass
    restated(plan, **ELSEWHERE)
    watched = []

    def time_passes(one):
        watched.append(one.host)
        monkeypatch.setattr(run_note, "SILENT_AFTER", 0.0)

    assert concurrent_builds.running_now(plan.job.store, {1}, time_passes) == []
    assert watched == ["elsewhere"]
    (one,) = status.builds(plan.job.store)  # nobody need watch it once more
    assert one.state == "stopped"
    assert "its command on elsewhere gave no sign of life" in one.problem
    assert (status.wait(plan.job.store, timeout=0), one.may_run) == ([one], False)


@pytest.mark.parametrize("ahead_s", [-86400, 0, 10**9])
def test_no_clock_of_another_machine_says_that_a_build_is_over_or_runs(plan, ahead_s, monkeypatch):
    with Announced(plan.job, "direct"):
        pass
    restated(plan, **ELSEWHERE, heard=int(time.time()) + ahead_s)
    os.utime(note_of(plan), (0, 0))
    (one,) = status.builds(plan.job.store)
    assert (one.state, one.may_run) == ("silent", True)
    assert "s by the date of its note; it was probably killed, but it may run" in one.in_words()
    os.utime(note_of(plan))
    (one,) = status.builds(plan.job.store)
    assert (one.state, one.may_run) == ("running", True)
    assert " ago by the date of its note" in one.in_words()
    with pytest.raises(LogloomError, match="still runs after 0 s"):
        status.wait(plan.job.store, timeout=0)
    monkeypatch.setattr(run_note, "SILENT_AFTER", 0.0)
    (one,) = status.wait(plan.job.store, timeout=0)
    assert one.state == "stopped"


@pytest.mark.parametrize(
    "changes",
    [{"namespace": "pid:[1]"}, {"boot": "another"}, {"host": "elsewhere"}, {"boot": "", "namespace": ""}],
    ids=["container", "clone", "host", "unknown"],
)
def test_a_number_that_nobody_has_here_proves_no_end_of_a_process_of_elsewhere(plan, changes):
    """Of two containers of one host name with process ids of their own, or of cloned machines."""
    with Announced(plan.job, "direct"):
        for pid in (2**22 + 1, os.getpid()):
            restated(plan, pid=pid, **changes)
            (one,) = status.builds(plan.job.store)
            assert (one.state, one.may_run) == ("running", True)
            assert list(run_note.notes_of_others(replace(plan.job, run="mine"))) == [one.run]
            assert not run_note.is_over(plan.job.store, 1, one.run)


def apart(*arguments):
    """What a command ends with where processes are numbered by themselves, as in a container."""
    unshare = shutil.which("unshare")
    alone = [str(unshare), "--pid", "--fork", "--mount-proc"]
    tried = subprocess.run([*alone, "true"], capture_output=True, text=True) if unshare else None
    if tried is None or tried.returncode:
        pytest.skip(f"no process ids apart here: {tried.stderr if tried else 'there is no unshare'}")
    logloom = [sys.executable, "-m", "logloom", *map(str, arguments)]
    return subprocess.run([*alone, *logloom], capture_output=True, text=True, timeout=100)


def test_a_build_is_seen_from_a_container_that_has_its_host_name_and_other_process_ids(
    plan, drive, recipe, monkeypatch
):
    root = plan.job.store.uri
    build(plan_build(drive.recipe(**{"*.mcap": "drive-00.mcap"}), root))
    monkeypatch.setattr(run_note, "HEARD_EVERY", 0.05)
    with Announced(plan_build(drive.recipe(), root).job, "direct"):
        assert "version 2, running" in apart("status", root).stdout
        for command_ in (("build", recipe, "--to", root), ("purge", root, "--log", "drive-00")):
            done = apart(*command_)
            assert done.returncode in (1, 2)
            assert "build: version 2, running" in done.stderr or "run: version 2, running" in done.stderr
            assert "waiting for its next sign of life" in done.stderr
            assert f"process {os.getpid()} on {socket.gethostname()}" in done.stderr
        assert Store.at(root).names("versions/purged") == []


@given(st.lists(st.tuples(st.integers(0, 200), st.booleans()), min_size=1))
def test_a_note_is_judged_by_its_last_change_over_the_clock_of_the_process_that_watches(looks):
    now, beat, changes = 1000, 5, []  # when it was looked at first, and when it was seen to have changed
    heartbeats = Heartbeats(lambda: now)
    for seconds, has_changed in looks:
        now, beat = now + seconds, beat + (has_changed and bool(changes))
        if has_changed or not changes:
            changes.append(now)
        lives = heartbeats.lives(1, "a", beat)
        assert (lives is False) == (now - changes[-1] >= 120)
        assert (lives is None) == (len(changes) == 1 and now - changes[-1] < 120)


# --- detached jobs --------------------------------------------------------------------------------------

JOB = "0123456789abcdef0123456789abcdef"


@contextlib.contextmanager
def cluster(answers):
    """A Flink cluster's interface that answers so: path to JSON, or to a code."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            answer = answers.get(self.path, 404)
            self.send_response(answer if isinstance(answer, int) else 200)
            self.end_headers()
            if not isinstance(answer, int):
                self.wfile.write(json.dumps(answer).encode())

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/#/job/{JOB}"
        finally:
            server.shutdown()


def detached_at(plan, place):
    with Announced(plan.job, "flink", detached=True) as announced:
        announced.update(job_id=JOB, place=place)


@pytest.mark.parametrize(
    ("answers", "state", "said"),
    [
        ({f"/jobs/{JOB}": {"state": "RUNNING"}}, "running", ""),
        ({f"/jobs/{JOB}": {"state": "RESTARTING"}}, "running", ""),
        (
            {
                f"/jobs/{JOB}": {"state": "FAILED"},
                f"/jobs/{JOB}/exceptions": {"root-exception": "java.lang.Error: no slots\n\tat x"},
            },
            "failed",
            f"job {JOB} failed: java.lang.Error: no slots; it committed nothing. Build again",
        ),
        ({f"/jobs/{JOB}": {"state": "CANCELED"}}, "stopped", f"job {JOB} canceled; it committed nothing"),
        ({f"/jobs/{JOB}": {"state": "FINISHED"}}, "failed", f"job {JOB} finished; it committed nothing"),
        ({}, "failed", "has no record of the job: its job manager was lost, and without high availability"),
        ({f"/jobs/{JOB}": 503}, "unknown", "the cluster doesn't answer"),
        ({f"/jobs/{JOB}": [1]}, "unknown", "not the answer of a Flink cluster"),
    ],
)
def test_flink_is_asked_how_a_detached_job_is(answers, state, said, plan, recipe):
    needs("flink")
    with cluster(answers) as place:
        detached_at(plan, place)
        (one,) = status.builds(plan.job.store)
        assert one.state == state
        assert said in one.problem
        assert (concurrent_builds.running_now(plan.job.store, {1}) != []) == (state == "running")
        if state == "running":
            done = command("build", recipe, "--to", plan.job.store.uri)
            assert done.returncode == 1
            assert f"on flink, job {JOB} at {place}, submitted by process" in done.stderr
        if state == "failed":
            done = command("status", plan.job.store.uri, "--wait")
            assert done.returncode == 1


def test_an_engine_that_is_gone_is_said_to_be_and_waited_for_a_minute(plan, monkeypatch):
    needs("flink")
    with cluster({}) as place:
        pass
    detached_at(plan, place)
    monkeypatch.setattr(status, "UNANSWERED_FOR", 0.05)
    monkeypatch.setattr(status, "LOOK_EVERY", 0.01)
    (one,) = status.wait(plan.job.store)
    assert one.state == "unknown"
    assert "the cluster doesn't answer" in one.problem


@pytest.mark.parametrize(
    "place",
    [
        "",
        "http://127.0.0.1:1/#/job/abc",
        f"https://127.0.0.1:1/#/job/{JOB}",
        f"http://user@127.0.0.1:1/#/job/{JOB}",
        f"http://127.0.0.1:1/secret?#/job/{JOB}",
        f"file:///etc/passwd#/job/{JOB}",
        f"http://127.0.0.1:1/#/job/{JOB}\n",
        "https://console.cloud.google.com.evil.org/dataflow/jobs/r/j?project=p",
        "https://console.cloud.google.com/dataflow/jobs?project=p&region=r&name=../x",
    ],
)
def test_places_of_another_form_than_ours_are_not_asked(place, plan):
    detached_at(plan, place)
    assert status.builds(plan.job.store)[0].state == "detached"


def test_a_second_build_that_is_to_wait_goes_on_from_the_first(plan, recipe):
    root = plan.job.store.uri
    with Announced(plan.job, "direct"):
        waiting = subprocess.Popen(
            [sys.executable, "-m", "logloom", "build", recipe, "--to", root, "--wait"],
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
