"""Builds in processes of their own that all reach the commit before any of them commits.

    python -m tests.pipelines.faults.racing RECIPE ROOT STORAGE_OPTIONS FOLDER NUMBER COUNT

Prints what became of the build, as JSON. FOLDER is where the COUNT builds meet.
"""

from __future__ import annotations

import json
import pathlib
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from logloom.errors import LogloomError
from logloom.io.catalog.manifest import read_manifest
from logloom.io.catalog.version_files import version_numbers
from logloom.io.storage import disk
from logloom.io.storage.store import Store
from logloom.pipelines.build.build import build
from logloom.pipelines.plan.plan import plan_build
from logloom.pipelines.verify.verify import verify
from logloom.recipe import Recipe
from tests.forking import module

_PATIENCE = 120  # seconds


def race(
    recipes: Sequence[str], root: str, folder: pathlib.Path, options: Mapping[str, Any] | None = None
) -> list[dict[str, Any]]:
    """{"version"} or {"error", "message"} of builds of these recipes into one root, all at once."""
    folder.mkdir()

    def run(number: int) -> dict[str, Any]:
        path = folder / f"{number}.yaml"
        path.write_text(recipes[number], encoding="utf-8")
        arguments = [path, root, json.dumps(options or {}), folder, number, len(recipes)]
        done = module("tests.pipelines.faults.racing", *arguments)
        assert done.returncode == 0, done.stderr
        outcome: dict[str, Any] = json.loads(done.stdout)
        return outcome

    with ThreadPoolExecutor(len(recipes)) as pool:
        return list(pool.map(run, range(len(recipes))))


def different_logs(
    drive: Any, root: str, folder: pathlib.Path, options: Mapping[str, Any] | None = None
) -> None:
    """Two builds of a log each: one commits, the other says what to do, and done so it has both logs."""
    recipes = [_only(drive, path) for path in drive.logs]
    outcomes = race(recipes, root, folder / "first", options)
    won = [number for number, outcome in enumerate(outcomes) if outcome == {"version": 1}]
    assert len(won) == 1, outcomes
    lost = outcomes[1 - won[0]]
    assert lost["error"] == "CommitConflictError"
    assert "another build committed version 1 first; build again, finished units are kept" in lost["message"]
    store = Store.at(root, options)
    assert version_numbers(store) == [1]
    assert [record.log_id for record in read_manifest(store, 1).logs] == [drive.logs[won[0]].stem]
    again = build(plan_build(_recipe(recipes[1 - won[0]]), root, storage_options=options))
    assert (again.manifest.version, again.built) == (2, 0)
    assert [record.log_id for record in again.manifest.logs] == [path.stem for path in drive.logs]
    assert [f.message for f in verify(root, num_workers=1, storage_options=options).findings] == []


def equal_logs(drive: Any, root: str, folder: pathlib.Path, options: Mapping[str, Any] | None = None) -> None:
    """Two builds of the same: both have made version 1, for it says what either would have said."""
    outcomes = race([drive.text, drive.text], root, folder / "first", options)
    assert outcomes == [{"version": 1}, {"version": 1}]
    assert version_numbers(Store.at(root, options)) == [1]
    assert plan_build(drive.recipe(), root, storage_options=options).up_to_date
    assert [f.message for f in verify(root, num_workers=1, storage_options=options).findings] == []


def _only(drive: Any, path: pathlib.Path) -> str:
    """The drive's recipe for one of its logs, which leaves the other where it is."""
    everything = f"{path.parent}/*.mcap"
    assert everything in drive.text
    return f"{drive.text.replace(everything, str(path))}\nvanished: keep\n"


def _recipe(text: str) -> Recipe:
    return Recipe.from_yaml(text, source="drive.yaml")


def main(recipe: str, root: str, options: str, folder: str, number: str, count: str) -> None:
    def meet() -> None:
        (pathlib.Path(folder) / f"{number}.here").touch()
        deadline = time.monotonic() + _PATIENCE
        while len(list(pathlib.Path(folder).glob("*.here"))) < int(count):
            if time.monotonic() > deadline:
                raise TimeoutError("the other build never came to its commit")

    # The last moment: on a disk the version is written and only lacks its name.
    _late(disk, "appear", lambda partial, path: path.parent.name == "versions", meet)
    _late(Store, "create", lambda s, name, *_, **_o: not s.local and name[:9] == "versions/", meet)
    try:
        plan = plan_build(Recipe.load(recipe), root, storage_options=json.loads(options))
        done = build(plan, beside=True)
        print(json.dumps({"version": done.manifest.version}))
    except LogloomError as error:
        print(json.dumps({"error": type(error).__name__, "message": str(error)}))


def _late(owner: Any, name: str, is_commit: Callable[..., bool], meet: Callable[[], None]) -> None:
    """Makes a function meet the other builds before it does its work on a commit."""
    plain = getattr(owner, name)

    def late(*arguments: Any, **options: Any) -> Any:
        if is_commit(*arguments, **options):
            meet()
        return plain(*arguments, **options)

    setattr(owner, name, late)


if __name__ == "__main__":
    main(*sys.argv[1:])
