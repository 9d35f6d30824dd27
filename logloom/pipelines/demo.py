"""The demo: from a synthetic drive to verified datasets, as a new user would go.

Elsewhere: the drive itself (logloom.demo), and each step's own module.
"""

from __future__ import annotations

import os
import pathlib
import time
from collections.abc import Callable
from functools import partial

from logloom import parts
from logloom.demo import car_recipe, demo_recipe, make_car_drives, make_drives
from logloom.errors import ReadBackError, UsageError
from logloom.io.catalog.manifest import open_root
from logloom.io.storage.disk import replace_file
from logloom.io.storage.filesystems import explained
from logloom.io.storage.store import Store
from logloom.pipelines.build.result import Built
from logloom.pipelines.plan.plan import plan_build
from logloom.pipelines.verify.verify import verify
from logloom.recipe import Recipe
from logloom.runners import RunnerOptions
from logloom.runners.beam_import import started
from logloom.text import OnMessage, counted, human_bytes, some_of


def run_demo(folder: str, *, seconds: float = 20.0, car: bool = False, on_message: OnMessage = print) -> None:
    """Makes drives in `folder`/logs, builds them into `folder`/dataset, and verifies these against the logs.

    Args:
        folder: new, empty, or of an earlier demo.
        seconds: length of each of the two drives.
        car: drives of a whole car: video, lidars in motion, transforms, calibration, and labels that are in
            `folder`/labels.
        on_message: called with what was done, step by step.

    Raises:
        UsageError: the folder contains anything else.
        ReadBackError: the datasets differ from the logs.
    """
    place = pathlib.Path(folder).resolve()
    _check_folder(place, car)
    runner = RunnerOptions()
    with started(
        "logloom.pipelines.build.build", runner, None
    ) as job:  # first, so that a missing package is reported now
        _run(place, seconds, car, partial(job.build, runner=runner), on_message)
    print(_what_next(place, car))


def _check_folder(place: pathlib.Path, car: bool) -> None:
    """Raise a UsageError for a file, and for a folder with anything but an earlier demo of this kind."""
    new = "name a new folder by --to"
    if place.is_file():
        raise UsageError(f"{place}: is a file; {new}")
    names = sorted(path.name for path in place.iterdir()) if place.is_dir() else []
    own = ("logs", "recipe.yaml", "dataset", *parts.names("pages"), *(["labels"] * car))
    recipe = place / "recipe.yaml"
    is_demo = recipe.is_file() and recipe.read_bytes() == _recipe_of(car).encode()
    strange = [name for name in names if not (is_demo and name in own)]
    if strange:
        raise UsageError(f"{place}: contains {some_of(strange, 3)}, not an earlier demo; {new}")


def _recipe_of(car: bool) -> str:
    return car_recipe("") if car else demo_recipe("logs")


def _run(
    place: pathlib.Path, seconds: float, car: bool, build: Callable[..., Built], on_message: OnMessage
) -> None:
    logs, recipe_file, root = place / "logs", place / "recipe.yaml", place / "dataset"
    began = time.perf_counter()
    with explained(str(place)):
        place.mkdir(parents=True, exist_ok=True)
        recipe_file.write_text(_recipe_of(car), encoding="utf-8")  # marks the folder as that of a demo
        paths = make_car_drives(place, seconds=seconds) if car else make_drives(logs, seconds=seconds)
    size = human_bytes(sum(path.stat().st_size for path in paths))
    on_message(f"drove {counted(len(paths), 'log')} of {seconds:g} s, {size}, into {logs}  [{_since(began)}]")

    plan = plan_build(Recipe.load(str(recipe_file)), str(root), base=str(place))
    began = time.perf_counter()
    built = build(plan)
    if plan.up_to_date:
        on_message(f"version {plan.job.parent} of {root} is up to date")
    else:
        totals = built.manifest.totals
        on_message(
            f"built version {built.manifest.version}: {counted(totals['rows'], 'row')} of "
            f"{counted(totals['logs'], 'log')} as {' and '.join(built.manifest.outputs)}  [{_since(began)}]"
        )
    began = time.perf_counter()
    report = verify(str(root), against_logs=True)
    if not report.is_proven:
        raise ReadBackError("\n".join(finding.message for finding in report.findings))
    on_message(
        f"verified {counted(report.units, 'unit')} against the logs: every value equal  [{_since(began)}]"
    )
    for name, page_of in parts.usable("pages"):
        began = time.perf_counter()
        data = page_of(*open_root(Store.at(str(root))))
        with explained(str(place / name)):
            replace_file(place / name, data)
        on_message(f"drew a page of it, {human_bytes(len(data))}  [{_since(began)}]")


def _since(began: float) -> str:
    return f"{time.perf_counter() - began:.1f} s"


def _what_next(place: pathlib.Path, car: bool) -> str:
    view = sorted((place / "dataset").glob("v????????"))[-1]
    where = os.path.relpath(place)
    place_name = where if not where.startswith("..") else str(place)
    looks = [
        f"logloom info {place_name}/logs/*.mcap",
        *([f"logloom info {place_name}/logs/drive-00.mcap --tree      # how frames are nested"] * car),
        f"logloom head {place_name}/dataset --why -n 1",
        *([f"logloom versions {place_name}/dataset --log drive-00  # what was unavailable, and why"] * car),
    ]
    pages = "".join(
        f"\nOpen in a browser, and show to a colleague:\n  {place / name}"
        for name, _ in parts.usable("pages")
    )
    return f"""
The datasets   {view}
The recipe     {place_name}/recipe.yaml

Next, try
  {f"{chr(10)}  ".join(looks)}
  logloom stats {place_name}/dataset
  logloom verify {place_name}/dataset --against-logs
  logloom build {place_name}/recipe.yaml --to {place_name}/dataset      # is up to date
  logloom info LOG --recipe > mine.yaml      # a recipe for a log of your own
{pages}"""
