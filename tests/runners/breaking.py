"""Builds that last long enough to be broken, and what is broken under them."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable

from logloom.pipelines.build.build import build
from logloom.pipelines.plan.plan import plan_build
from logloom.recipe import Recipe
from logloom.runners import RunnerOptions
from logloom.runners.processes import Child

# In a test's own process run the builds that others are compared with, and those that end what was broken.
SLOWLY = """\
import sys
import time
import logloom

@logloom.derive
def same(columns):
    if "pytest" not in sys.modules:
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
PATIENCE = 400.0  # seconds; a machine may have much else to do


def wait_until(condition: Callable[[], object], told: object = "", seconds: float = PATIENCE) -> None:
    """Waits; fails with `told`, called if it is a function, when it takes too long."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, told() if callable(told) else told
        time.sleep(0.05)


def plan_at(slow: pathlib.Path, root: pathlib.Path):
    recipe = Recipe.load(str(slow / "recipe.yaml"))
    return plan_build(recipe, str(root), py_files=[str(slow / "slowly.py")])


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
            build(self._plan, runner=self._options, on_message=self.told.append)
        except BaseException as error:
            self.error = error

    def wait_for_units(self, number: int):
        """Waits until some units are finished, while others are still to do."""

        def enough() -> bool:
            assert self.is_alive(), self.error
            return self._plan.finished() >= number

        wait_until(enough, self.told)
        assert self._plan.finished() < len(self._plan.unit_identities()), "too late to break anything"

    def end(self):
        self.join(PATIENCE)
        assert not self.is_alive(), self.told
        if self.error is not None:
            raise self.error


class BuildCommand:
    """The same by the command, in a session of its own.

    Attributes:
        temporary: where it and all that it starts put their temporary files.
    """

    def __init__(
        self,
        slow: pathlib.Path,
        root: pathlib.Path,
        *options: str,
        on_sigint: object = signal.default_int_handler,  # as in a terminal
    ):
        self._plan = plan_at(slow, root)
        self._mark = str(root)
        self.temporary = root.with_name("temporary")
        self.temporary.mkdir()
        java_options = os.environ.get("JAVA_TOOL_OPTIONS", "")
        self._process = subprocess.Popen(
            build_command(slow, root, *options),
            env={
                **os.environ,
                "LOGLOOM_TEST_MARK": self._mark,
                "TMPDIR": str(self.temporary),
                "JAVA_TOOL_OPTIONS": f"{java_options} -Djava.io.tmpdir={self.temporary}",
            },
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, on_sigint),
        )
        self.pid = self._process.pid

    def wait_until(self, condition: Callable[[], object]):
        """Waits for what is to come about while it runs."""

        def met() -> object:
            assert self._process.poll() is None, self._process.stderr.read()
            return condition()

        wait_until(met)

    def wait_for_units(self, number: int):
        self.wait_until(lambda: self._plan.finished() >= number)

    def end_by(self, signal_number: int, seconds: float = PATIENCE) -> tuple[int, str]:
        """Its exit code, and what it said."""
        self._process.send_signal(signal_number)
        return self.end(seconds)

    def end(self, seconds: float = PATIENCE) -> tuple[int, str]:
        said = self._process.communicate(timeout=seconds)[1]
        return self._process.returncode, said

    def descendants(self, word: str = "") -> list[int]:
        """Ids of the processes that it started, of those with a word in their command."""
        found = marked(self._mark)
        return [pid for pid, command in found.items() if pid != self._process.pid and word in command]

    def local_workers(self) -> list[int]:
        """Ids of its worker processes: those that its fork server has forked."""
        servers = self.descendants("logloom.runners.fork_server")
        return [pid for pid in servers if _parent(pid) in servers]

    def wait_for_descendants(self):
        """Waits until nothing that it started is left."""
        wait_until(lambda: not marked(self._mark), lambda: marked(self._mark), 60)

    def left_behind(self) -> list[str]:
        """What lies in its temporary folder."""
        return sorted(path.name for path in self.temporary.iterdir())


def build_command(slow: pathlib.Path, root: pathlib.Path, *options: str) -> list[str]:
    start = [sys.executable, "-m", "logloom", "build", str(slow / "recipe.yaml"), "--to", str(root)]
    return [*start, "--py", str(slow / "slowly.py"), *options]


def started_pool(log: pathlib.Path, port: int = 0) -> tuple[Child, str]:
    command = [sys.executable, "-m", "logloom.runners.pool", f"--port={port}"]
    pool = Child(command, log, what="the worker pool")
    return pool, pool.wait_for(r"worker pool at (\S+)")[1]


def _parent(pid: int) -> int:
    try:
        status = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:  # it has ended
        return 0
    return int(status.rpartition(")")[2].split()[1])


def marked(mark: str) -> dict[int, str]:
    """Ids and commands of processes that descend from one with this mark in its environment."""
    found = {}
    for folder in pathlib.Path("/proc").iterdir():
        if folder.name.isdigit() and folder.name != str(os.getpid()):
            try:
                if f"LOGLOOM_TEST_MARK={mark}".encode() in (folder / "environ").read_bytes():
                    command = (folder / "cmdline").read_bytes()
                    found[int(folder.name)] = command.replace(b"\0", b" ").decode()[:200]
            except OSError:
                continue
    return found
