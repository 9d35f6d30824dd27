"""What many tests read is made once in a run, whichever of its processes asks first.

Fixtures: `once(make, ...)` gives what `make(folder, ...)` returned, `logs_of(seconds, logs)` the folder of a
demo's logs; all processes share these files, and leave them as they are. `root_of(recipe)` gives a copy, this
process's own, of the root that a build made; tests that change files copy it again. `again(make, ...)` gives
tests of a module, one after another, the folder that `make(folder, ...)` filled, put back to what it was.
"""

import fcntl
import functools
import hashlib
import os
import pathlib
import pickle
import shutil
from collections.abc import Callable
from typing import Any

import pytest


def made_once(shared: pathlib.Path, make: Callable[..., Any], *arguments: Any) -> Any:
    """Return what `make` returned of a folder of its own and the arguments, in this or in another process.

    It is found again by the name of the function and the `repr` of the arguments.
    """
    key = f"{make.__module__}.{make.__qualname__}{arguments!r}"
    folder = shared / f"{make.__name__}-{hashlib.sha256(key.encode()).hexdigest()[:12]}"
    result = folder.with_suffix(".pickle")
    shared.mkdir(exist_ok=True)
    with open(folder.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not result.exists():
            shutil.rmtree(folder, ignore_errors=True)  # in which it failed
            folder.mkdir()
            data = pickle.dumps(make(folder, *arguments))
            result.write_bytes(data)
    return pickle.loads(result.read_bytes())


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    base = tmp_path_factory.getbasetemp()
    is_worker = "PYTEST_XDIST_WORKER" in os.environ
    return functools.partial(made_once, (base.parent if is_worker else base) / "once")


def copied(root: pathlib.Path, to: pathlib.Path) -> pathlib.Path:
    """Copy a root; files of a view stay links of those of units."""
    first: dict[int, str] = {}  # copies by what they are copies of

    def copy(source: str, target: str) -> None:
        there = first.setdefault(os.stat(source).st_ino, target)
        if there == target:
            shutil.copy2(source, target)
        else:
            os.link(there, target)

    shutil.copytree(root, to, symlinks=True, copy_function=copy)
    return to


def built(folder: pathlib.Path, recipe: Any) -> pathlib.Path:
    """Build a recipe in one process; return the root."""
    from logloom.pipelines.build.build import build
    from logloom.pipelines.plan.plan import plan_build

    build(plan_build(recipe, str(folder / "root")), num_workers=1)
    return folder / "root"


def demo_logs(folder: pathlib.Path, seconds: float, logs: int) -> pathlib.Path:
    """Make the logs of a demo; return their folder."""
    from logloom.demo import make_drives

    make_drives(folder / "logs", seconds=seconds, logs=logs)
    return folder / "logs"


@pytest.fixture(scope="session")
def root_of(
    once: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[Any], pathlib.Path]:
    own: dict[pathlib.Path, pathlib.Path] = {}

    def root(recipe: Any) -> pathlib.Path:
        made = once(built, recipe)
        if made not in own:
            own[made] = copied(made, tmp_path_factory.mktemp("root") / "root")
        return own[made]

    return root


@pytest.fixture(scope="session")
def logs_of(once: Callable[..., Any]) -> Callable[[float, int], pathlib.Path]:
    return functools.partial(once, demo_logs)


@pytest.fixture(scope="module")
def again(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., pathlib.Path]:
    """Always at the same path: roots know where their logs are."""
    made: dict[str, tuple[pathlib.Path, pathlib.Path]] = {}

    def folder(make: Callable[..., Any], *arguments: Any) -> pathlib.Path:
        key = f"{make.__qualname__}{arguments!r}"
        if key not in made:
            place = tmp_path_factory.mktemp("again") / "place"
            place.mkdir()
            make(place, *arguments)
            made[key] = place, copied(place, place.with_name("copy"))
        place, copy = made[key]
        shutil.rmtree(place)
        return copied(copy, place)

    return folder
