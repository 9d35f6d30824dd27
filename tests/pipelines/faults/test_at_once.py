"""Several processes on one root at once, on a disk; tests/stores has two builds in object stores.

Elsewhere: the same with a scheduler that decides who makes the next request (tests/simulation).
"""

import json
import os
import pathlib
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from logloom.demo import make_drives
from logloom.io.catalog.manifest import read_manifest
from logloom.io.catalog.version_files import version_numbers
from logloom.io.storage.store import Store
from logloom.pipelines.verify.verify import verify
from logloom.recipe import Recipe
from tests.forking import module
from tests.pipelines.conftest import build_at
from tests.pipelines.faults.racing import different_logs, equal_logs

pytestmark = pytest.mark.faults

BUILDERS, COLLECTORS, READERS = 4, 2, 2
PATIENCE = 600  # seconds
AGE = 30 * 86400


def test_of_two_builds_of_different_logs_one_commits_and_the_other_builds_on_it(drive, tmp_path):
    different_logs(drive, str(tmp_path / "root"), tmp_path)


def test_two_builds_of_the_same_logs_make_one_version(drive, tmp_path):
    equal_logs(drive, str(tmp_path / "root"), tmp_path)


def recipe_of(drive, logs, folder) -> str:
    """The text of a recipe for some logs, beside which others stay."""
    text = drive.text[: drive.text.index("outputs:")]
    (line,) = [line for line in text.splitlines() if line.startswith("logs:")]
    text = text.replace(line, f"logs: {json.dumps([str(folder / log) for log in logs])}\nvanished: keep")
    return text + "outputs: {tar: {columns: [ego.*]}, zarr: {columns: [ego.*]}}\npartition: {rows: 10}\n"


def left_by_the_dead(recipe: str, root: pathlib.Path) -> None:
    """Makes a root that holds all units of a recipe, old, and no version."""
    build_at(Recipe.from_yaml(recipe), root)
    for folder in ("versions", "runs", "index", "v00000001"):
        shutil.rmtree(root / folder, ignore_errors=True)
    then = time.time() - AGE
    for path in root.rglob("*"):
        os.utime(path, (then, then))


def outcome_of(what: str, *arguments: object) -> dict:
    """What one process of many did, once it has ended."""
    done = module("tests.pipelines.faults.crowd", what, *arguments)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert "error" not in said, said
    return said


@pytest.mark.slow
@pytest.mark.timeout(3 * PATIENCE)
def test_of_four_builds_at_once_with_gc_and_readers_all_commit_and_nothing_is_torn(drive, tmp_path):
    logs, root, done = tmp_path / "logs", tmp_path / "root", tmp_path / "done"
    logs.mkdir()
    names = [f"{number}.mcap" for number in range(BUILDERS)]
    for path, name in zip(make_drives(tmp_path / "drives", seconds=4, logs=BUILDERS), names, strict=True):
        shutil.move(path, logs / name)
    everything = recipe_of(drive, names, logs)
    left_by_the_dead(everything, root)
    with ThreadPoolExecutor(BUILDERS + COLLECTORS + READERS) as pool:
        started = partial(pool.submit, outcome_of)
        builders = []
        for name in names:
            (tmp_path / f"{name}.yaml").write_text(recipe_of(drive, [name], logs))
            builders.append(started("build", tmp_path / f"{name}.yaml", root, done))
        others = [started("collect", root, done) for _ in range(COLLECTORS)]
        others += [started("read", root, done) for _ in range(READERS)]
        try:
            built = [builder.result(PATIENCE) for builder in builders]
        finally:
            done.touch()
            told = [other.result(PATIENCE) for other in others]
    assert sorted(one["version"] for one in built) == [1, 2, 3, 4]
    assert all(one["rounds"] > 0 for one in told)
    store = Store.at(str(root))
    assert version_numbers(store) == [1, 2, 3, 4]
    for number in version_numbers(store):
        assert verify(str(root), number, num_workers=1).findings == ()
        assert len(read_manifest(store, number).logs) == number
    fresh = build_at(Recipe.from_yaml(everything), tmp_path / "fresh").manifest
    assert build_at(Recipe.from_yaml(everything), root).manifest.assembled == fresh.assembled
    assert read_manifest(store).logs == fresh.logs
