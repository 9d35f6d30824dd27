"""`logloom build` beside a hand-written script and beside Ray Data, doing the same job on the same log.

The job: 562 MB of images and IMU to ten rows a second, each with the nearest image and the nearest IMU
values, as tar of .npy, fsynced. Each contender runs as a fresh process; what it takes on a log of two images
is its start-up.

    python -m benchmarks.build [--rounds N] [--images N]
"""

from __future__ import annotations

import argparse
import json
import pathlib
import shutil
import sys
import tempfile
import time
from typing import Any

from benchmarks import workloads
from benchmarks.harness import (
    Contender,
    cache_folder,
    child,
    compare,
)
from benchmarks.report import Report

HERE = pathlib.Path(__file__).parent
RAY_PYTHON = HERE.parent / ".venv-ray" / "bin" / "python"
SCRIPT = "hand-written script"
LOGLOOM = [sys.executable, "-m", "logloom"]
RECIPE = """\
name: bench
logs: [LOG]
log_id: log
clock: {rate: 10}
columns:
  image: {topic: /camera/image, as: image, shape: [480, 640, 3], resample: nearest}
  imu: {topic: /imu/data, field: [angular_velocity, linear_acceleration], resample: nearest}
partition: {rows: 100}
outputs:
  tar: {ext: {image: npy, imu: npy}}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--images", type=int, default=600, help="in the log, 12 a second, 922 kB each")
    arguments = parser.parse_args()
    log = workloads.image_mcap(cache_folder(), arguments.images)
    little = workloads.image_mcap(cache_folder(), 2)
    with tempfile.TemporaryDirectory(dir=cache_folder()) as scratch:
        # The same list twice: start-up is measured like the rest, by turns.
        startups = compare(contenders(little, pathlib.Path(scratch)) | commands(little), rounds=3)
        samples = compare(contenders(log, pathlib.Path(scratch)), rounds=arguments.rounds)
    # The least, for what a busy machine adds to a start-up mustn't be taken off the work.
    least = {name: min(sample.seconds for sample in found) for name, found in startups.items()}
    megabytes = log.stat().st_size / 1e6
    report = Report("Build: the whole job")
    report.add("start-up: a log of two images", 1, "times", startups, [SCRIPT])
    report.add(f"{megabytes:.0f} MB to tar", megabytes, "MB", samples, [SCRIPT])
    report.add("the same without start-up", megabytes, "MB", samples, [SCRIPT], least)
    report.finish()
    print_checks()
    if not RAY_PYTHON.exists():
        print("Ray Data is not installed: `make bench-ray` adds it to the comparison.")


def print_checks() -> None:
    """Prints which part of a build's processor time the check of compressed pictures takes."""
    for form, count in (("jpeg", 300), ("png", 60)):
        log = workloads.jpeg_mcap(cache_folder(), count, form=form)
        found = [checked(log) for _ in range(3)]
        checking, building = min(found, key=sum)
        share, each = checking / building, 1e6 * checking / count
        print(f"Checking {form.upper()}s: {share:.2%} of a build's processor time, {each:.1f} us each")


def checked(log: pathlib.Path) -> tuple[float, float]:
    """Seconds of processor time that checking pictures takes, and all of the build, which stores them."""
    from logloom.io.logs import message_times
    from logloom.pipelines.build.build import build
    from logloom.pipelines.plan.plan import plan_build
    from logloom.recipe import Recipe

    seconds = 0.0
    problems = message_times.picture_problems

    def timed(*arguments: Any) -> dict[int, str]:
        nonlocal seconds
        began = time.thread_time()
        try:
            return problems(*arguments)
        finally:
            seconds += time.thread_time() - began

    column = {"topic": workloads.JPEG_TOPIC, "field": "data", "resample": "nearest"}
    recipe = Recipe(
        name="bench", logs=[str(log)], clock={"rate": 12}, columns={"camera": column}, outputs={"tar": {}}
    )
    message_times.picture_problems = timed
    try:
        with tempfile.TemporaryDirectory(dir=cache_folder()) as root:
            began = time.process_time()
            build(plan_build(recipe, root))
            return seconds, time.process_time() - began
    finally:
        message_times.picture_problems = problems


def contenders(log: pathlib.Path, scratch: pathlib.Path) -> dict[str, Contender]:
    """Who builds what from `log`, each into a folder of its own that is empty when it starts."""
    recipe = scratch / f"{log.stem}.yaml"
    recipe.write_text(RECIPE.replace("LOG", json.dumps(str(log.resolve()))), encoding="utf-8")
    out = scratch / "out"

    def fresh() -> None:
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()

    def build(verify: str, workers: int | None = None) -> Contender:
        options = ["--to", str(out / "root"), "--verify", verify, "--quiet"]
        if workers:
            options += ["--workers", str(workers)]
        return child([*LOGLOOM, "build", str(recipe), *options], prepare=fresh)

    script = [sys.executable, str(HERE / "scripts" / "extract.py"), str(log), str(out / "rows.tar")]
    found = {
        SCRIPT: child(script, prepare=fresh),
        "logloom": build("all"),
        "logloom, 1 worker": build("all", 1),
        "logloom, 2 workers": build("all", 2),
        "logloom, 1 worker, not read back": build("none", 1),
    }
    if RAY_PYTHON.exists():
        ray = [str(RAY_PYTHON), str(HERE / "scripts" / "extract_ray.py"), str(log), str(out / "rows")]
        found["ray data, 2 cores"] = child(ray, prepare=fresh)
    return found


def commands(log: pathlib.Path) -> dict[str, Contender]:
    """What people type between builds."""
    return {
        "logloom --help": child([*LOGLOOM, "--help"]),
        "logloom info": child([*LOGLOOM, "info", str(log)]),
    }


if __name__ == "__main__":
    main()
