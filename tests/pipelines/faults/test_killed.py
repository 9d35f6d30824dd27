"""kill -9 of a build, of a worker of it, or of it with all its workers: the next one ends in the same bytes.

The tier check kills at three moments, others at 60.
Elsewhere: builds killed amid a fortnight (tests/pipelines/nights/test_fortnight.py), workers of engines
(tests/runners/test_faults.py), several builds at once (tests/pipelines/faults/test_at_once.py).
"""

import contextlib
import multiprocessing
import os
import pathlib
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from logloom.io.catalog.version_files import version_numbers
from logloom.io.storage.store import Store
from logloom.pipelines.verify.verify import verify
from logloom.recipe import Recipe
from tests.pipelines.conftest import build_at, digests
from tests.tier import by_tier

pytestmark = pytest.mark.faults

MOMENTS = by_tier(3, 60)
CALLS = ("link", "rename", "replace", "fsync", "mkdir")  # that change what is on a disk, or make it last


def build_until(last: int, text: str, root: pathlib.Path, told: pathlib.Path) -> None:
    """Builds in this process, which is killed before one of its calls; tells how many it made."""
    calls = 0

    def watched(real):
        def call(*arguments, **options):
            nonlocal calls
            calls += 1
            if calls == last:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **options)

        return call

    for name in CALLS:
        setattr(os, name, watched(getattr(os, name)))
    build_at(Recipe.from_yaml(text, source="drive.yaml"), root)
    told.write_text(str(calls))


def run(*arguments) -> int:
    process = multiprocessing.get_context("forkserver").Process(target=build_until, args=arguments)
    process.start()
    process.join()
    return process.exitcode


def test_a_build_that_is_killed_at_any_moment_ends_in_the_bytes_of_a_clean_one(drive, tmp_path):
    text = drive.text[: drive.text.index("outputs:")] + "outputs:\n  tar: {}\npartition: {rows: 20}\n"
    told = tmp_path / "calls"
    assert run(0, text, tmp_path / "clean", told) == 0
    clean, calls = digests(tmp_path / "clean"), int(told.read_text())
    assert calls > 100
    for last in sorted(random.Random(60).sample(range(1, calls), MOMENTS)):
        root, what = tmp_path / str(last), f"killed before call {last} of {calls}"
        assert run(last, text, root, told) == -signal.SIGKILL, what
        if root.exists() and version_numbers(Store.at(str(root))):
            assert verify(str(root), num_workers=1).findings == (), what
        build_at(Recipe.from_yaml(text, source="drive.yaml"), root)
        assert digests(root) == clean, what


def children_of(process: int) -> list[int]:
    with contextlib.suppress(OSError):
        told = pathlib.Path(f"/proc/{process}/task/{process}/children").read_text()
        return [int(child) for child in told.split()]
    return []


def workers_of(process: int) -> list[int]:
    """The processes below one that have none below themselves."""
    below = children_of(process)
    return [leaf for child in below for leaf in workers_of(child) or [child]]


def built_cleanly(text: str, folder: pathlib.Path) -> tuple[dict[str, str], int]:
    """Writes a recipe and builds it; gives the digests, and how many units there are."""
    (folder / "drive.yaml").write_text(text)
    build_at(Recipe.from_yaml(text), folder / "clean")
    units = len(list((folder / "clean/parts").rglob("entry.json")))
    return digests(folder / "clean"), units


@contextlib.contextmanager
def building_until(folder: pathlib.Path, root: pathlib.Path, units: int) -> Iterator[subprocess.Popen[str]]:
    """A build by two workers, in a process group of its own, that has so many units, or is over."""
    command = [sys.executable, "-m", "logloom", "build", str(folder / "drive.yaml"), "--to", str(root)]
    with subprocess.Popen(
        [*command, "--workers", "2"], stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as building:
        while building.poll() is None and len(list(root.glob("parts/*/*/*/entry.json"))) < max(units, 1):
            time.sleep(0.01)
        yield building


@pytest.mark.timeout(0)
def test_a_build_that_is_killed_with_all_its_workers_ends_in_the_bytes_of_a_clean_one(drive, tmp_path):
    text = drive.text[: drive.text.index("outputs:")] + "outputs:\n  tar: {}\npartition: {rows: 4}\n"
    clean, units = built_cleanly(text, tmp_path)
    for moment in {units * number // (MOMENTS - 1) for number in range(1, MOMENTS - 1)}:
        root = tmp_path / str(moment)
        with building_until(tmp_path, root, moment) as building:
            os.killpg(building.pid, signal.SIGKILL)
            building.communicate(timeout=250)
        assert building.returncode in (-signal.SIGKILL, 0)
        if version_numbers(Store.at(str(root))):
            assert verify(str(root), num_workers=1).findings == ()
        build_at(Recipe.from_yaml(text), root)
        assert digests(root) == clean


@pytest.mark.timeout(0)
@pytest.mark.skipif(not pathlib.Path("/proc/self/task").exists(), reason="processes are found in /proc")
def test_a_build_of_which_a_worker_is_killed_ends_in_the_bytes_of_a_clean_one(drive, tmp_path):
    text = drive.text[: drive.text.index("outputs:")] + "outputs:\n  tar: {}\npartition: {rows: 4}\n"
    rng = random.Random(61)
    clean, units = built_cleanly(text, tmp_path)
    killed = 0
    for number in range(MOMENTS):
        root, moment = tmp_path / str(number), units * number // MOMENTS
        with building_until(tmp_path, root, moment) as building:
            if (workers := workers_of(building.pid)) and building.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(rng.choice(workers), signal.SIGKILL)
                    killed += 1
            _, told = building.communicate(timeout=250)
        assert building.returncode == 0 or "Build again: finished units are kept" in told, told
        build_at(Recipe.from_yaml(text), root)
        assert digests(root) == clean
    assert killed
