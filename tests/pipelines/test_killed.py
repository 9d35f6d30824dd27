"""kill -9 of a build at moments spread over what it asks of the disk: the next one ends in the same bytes.

LOGLOOM_EVERY_CALL=1 kills at 60 moments instead of a few.
Elsewhere: builds killed amid a fortnight (tests/pipelines/test_fortnight.py), workers of engines
(tests/runners/test_faults.py), several builds at once (tests/pipelines/test_at_once.py).
"""

import multiprocessing
import os
import pathlib
import random
import signal

from logloom.io.manifest import version_numbers
from logloom.io.storage import Store
from logloom.pipelines.verify import verify
from logloom.recipe import Recipe
from tests.pipelines.conftest import build_at, digests

MOMENTS = 60 if "LOGLOOM_EVERY_CALL" in os.environ else 3
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
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])  # what takes longest is to import Beam
    process = context.Process(target=build_until, args=arguments)
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
