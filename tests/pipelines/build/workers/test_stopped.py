"""Builds on this machine with several workers: who can reach them, and what is left when they are stopped."""

import json
import os
import signal
import socket
import subprocess
import sys

import pytest

from logloom.cli.terminal import STOPPED, TERMINATED
from logloom.demo import make_drives
from logloom.errors import LogloomError
from logloom.io.storage.store import Store
from logloom.pipelines.build.build import build
from logloom.runners.pool import WorkerPool
from logloom.runners.scratch import engine_folders
from tests.forking import command as logloom
from tests.pipelines.faults.listening import listening
from tests.runners.breaking import RECIPE, SLOWLY, BuildCommand, plan_at

pytestmark = pytest.mark.faults

STOPPED_SAYS = "logloom: stopped; a build keeps finished units: build again to go on"


@pytest.fixture(scope="module")
def slow(tmp_path_factory):
    folder = tmp_path_factory.mktemp("slow")
    make_drives(folder / "logs", seconds=2)
    (folder / "slowly.py").write_text(SLOWLY.replace("0.4", "0.2"))
    (folder / "quickly.py").write_text(SLOWLY.replace("0.4", "0"))
    (folder / "recipe.yaml").write_text(RECIPE.format(logs=folder / "logs"))
    (folder / "quick.yaml").write_text(RECIPE.format(logs=folder / "logs").replace("slowly", "quickly"))
    return folder


def test_a_build_with_two_workers_listens_nowhere(slow, tmp_path):
    building = BuildCommand(slow, tmp_path / "root", "--workers", "2", "--quiet")
    building.wait_for_units(1)
    assert len(building.local_workers()) == 2
    addresses = listening([building.pid, *building.descendants()])
    building.end_by(signal.SIGTERM)
    assert not addresses


def test_a_worker_pool_listens_on_loopback_unless_it_is_told_otherwise():
    with engine_folders() as folders:
        before = listening([os.getpid()])
        with WorkerPool(folders):
            addresses = listening([os.getpid()])
    assert len(addresses) > len(before)
    assert all(address.is_loopback for address in addresses), addresses


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, TERMINATED), (signal.SIGINT, STOPPED)], ids=["SIGTERM", "SIGINT"]
)
@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_build_that_is_told_to_stop_ends_with_all_its_processes(number, code, workers, slow, tmp_path):
    root = tmp_path / "root"
    building = BuildCommand(slow, root, "--workers", workers, "--quiet")
    building.wait_for_units(2)
    assert building.end_by(number, seconds=60) == (code, f"{STOPPED_SAYS}\n")
    building.wait_for_descendants()
    assert building.left_behind() == []
    assert list((root / "tmp").iterdir()) == []
    assert not (root / "versions").exists()
    assert build(plan_at(slow, root)).reused >= 2


def test_ctrl_c_within_source_text_that_is_executed_has_the_same_code(slow, tmp_path):
    """CPython ends a process by SIGINT itself then, whoever caught the KeyboardInterrupt."""
    folder = tmp_path / "inner"
    folder.mkdir()
    source = SLOWLY.replace("time.sleep(0.4)", 'exec("time.sleep(0.4)")')
    (folder / "slowly.py").write_text(source)
    (folder / "recipe.yaml").write_text((slow / "recipe.yaml").read_text())
    building = BuildCommand(folder, tmp_path / "root", "--workers", "1", "--quiet")
    building.wait_for_units(2)
    assert building.end_by(signal.SIGINT, seconds=60) == (STOPPED, f"{STOPPED_SAYS}\n")


def test_workers_that_are_about_to_start_end_with_the_build(slow, tmp_path):
    building = BuildCommand(slow, tmp_path / "root", "--workers", "2", "--quiet")
    building.wait_until(lambda: building.local_workers())
    assert building.end_by(signal.SIGTERM, seconds=60) == (TERMINATED, f"{STOPPED_SAYS}\n")
    building.wait_for_descendants()


def test_a_build_that_ignores_ctrl_c_goes_on(slow, tmp_path):
    ignoring = BuildCommand(slow, tmp_path / "root", "--workers", "2", "--quiet", on_sigint=signal.SIG_IGN)
    ignoring.wait_for_units(1)
    os.killpg(ignoring.pid, signal.SIGINT)
    code, said = ignoring.end()
    assert (code, "memory" in said) == (0, False), said


def test_a_worker_that_was_ended_by_hand_is_not_said_to_lack_memory(slow, tmp_path):
    building = BuildCommand(slow, tmp_path / "root", "--workers", "2", "--quiet")
    building.wait_for_units(1)
    os.kill(building.local_workers()[0], signal.SIGTERM)
    code, said = building.end()
    assert code == 1
    assert said.splitlines() == [
        "logloom: a worker process ended before its work did: it was ended by SIGTERM",
        "Build again: finished units are kept",
    ]


def test_workers_that_end_as_they_start_fail_the_build(slow, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(LogloomError, match="it ended with code 1\nBuild again"):
        build(plan_at(slow, tmp_path / "root"), num_workers=2)


def test_a_program_that_handles_sigterm_itself_goes_on_to_do_so(slow, tmp_path):
    mine = lambda *_: None  # noqa: E731
    before = signal.signal(signal.SIGTERM, mine)
    try:
        build(plan_at(slow, tmp_path / "root"))
        assert signal.getsignal(signal.SIGTERM) is mine
    finally:
        signal.signal(signal.SIGTERM, before)


# --- between the commit and the view --------------------------------------------------------------------

KILLED = """\
import os, sys
import logloom.pipelines.view as view
view._link = lambda *_: os.kill(os.getpid(), 9)
from logloom.cli import main
sys.argv = ["logloom", *sys.argv[1:]]
main()
"""


def logloom_with(code, *arguments):
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


STOPPING = """\
import os, sys
import logloom.io.catalog.manifest
number = int(sys.argv.pop())
logloom.io.catalog.manifest.open_root = lambda *_: os.kill(os.getpid(), number)
from logloom.cli import main
sys.argv = ["logloom", *sys.argv[1:]]
main()
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, TERMINATED), (signal.SIGINT, STOPPED)])
@pytest.mark.parametrize("command", ["report", "show", "stats"])
def test_a_command_that_builds_nothing_says_only_that_it_was_stopped(command, number, code, tmp_path):
    stopped = logloom_with(STOPPING, command, tmp_path, int(number))
    assert (stopped.returncode, stopped.stdout, stopped.stderr) == (code, "", "logloom: stopped\n")


def build_arguments(slow, root):
    return ["build", slow / "quick.yaml", "--to", root, "--py", slow / "quickly.py", "-q"]


def test_what_a_build_killed_before_its_view_left_is_swept_by_the_next_that_is_up_to_date(slow, tmp_path):
    root = tmp_path / "root"
    killed = logloom_with(KILLED, *build_arguments(slow, root))
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert (root / "versions/00000001.json").exists()
    assert list((root / "tmp").iterdir())
    again = logloom(*build_arguments(slow, root), "--json")
    assert json.loads(again.stdout)["up_to_date"]
    assert (root / "v00000001").is_dir()
    assert list((root / "tmp").iterdir()) == []


def test_scratch_of_a_build_in_another_container_of_this_host_name_stays(tmp_path):
    theirs = tmp_path / "tmp" / f"{socket.gethostname()}-{2**22 + 1}-01234567"  # no process here has this id
    theirs.mkdir(parents=True)
    hold = "import fcntl, os, sys; fcntl.flock(os.open(sys.argv[1], 0), fcntl.LOCK_SH); print(flush=True); "
    command = [sys.executable, "-c", hold + "sys.stdin.read()", str(theirs)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        Store.at(str(tmp_path)).sweep()
        assert theirs.is_dir()
        other.stdin.close()
    Store.at(str(tmp_path)).sweep()
    assert not theirs.exists()


def test_a_view_that_can_not_be_made_says_that_the_version_is_committed(slow, tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    (root / "v00000001").write_bytes(b"in the way")
    done = logloom(*build_arguments(slow, root))
    assert done.returncode == 4  # 1 never follows a commit
    said = done.stderr.strip().splitlines()
    assert said[0].startswith(f"logloom: version 1 of {root} is committed, but its view could not be made: ")
    assert said[-1] == f"`logloom view {root}@1` makes the view"
    (root / "v00000001").unlink()
    assert logloom("view", f"{root}@1").returncode == 0
    assert (root / "v00000001" / "tar").is_dir()
