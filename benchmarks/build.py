"""`logloom build` beside a hand-written script and beside Ray Data, doing the same job on the same log.

The job: 562 MB of images and IMU to ten rows a second, each with the nearest image and the nearest IMU
values, as tar of .npy, fsynced. Each contender runs as a fresh process; what it takes on a log of two images
is its start-up, shown in a table of its own, beside that of other commands, and set aside in the second.
The script is the base: 1.2 means 1.2 times as fast as the script.

    python -m benchmarks.build [--rounds N] [--images N]
"""

from __future__ import annotations

import argparse
import json
import pathlib
import shutil
import statistics
import sys
import tempfile

from benchmarks import workloads
from benchmarks.harness import (
    Contender,
    Sample,
    cache_folder,
    child,
    compare,
    print_table,
    ratios,
    spread,
    warn_if_busy,
)

HERE = pathlib.Path(__file__).parent
RAY_PYTHON = HERE.parent / ".venv-ray" / "bin" / "python"
BASE = "script"
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
        report_startup(startups)
        samples = compare(contenders(log, pathlib.Path(scratch)), rounds=arguments.rounds)
    # The least, for what a busy machine adds to a start-up mustn't be taken off the work.
    least = {name: min(sample.seconds for sample in found) for name, found in startups.items()}
    report(log.stat().st_size, samples, least)


def contenders(log: pathlib.Path, scratch: pathlib.Path) -> dict[str, Contender]:
    """Who builds what from `log`, each into a folder of its own that is empty when it starts."""
    recipe = scratch / f"{log.stem}.yaml"
    recipe.write_text(RECIPE.replace("LOG", json.dumps(str(log.resolve()))), encoding="utf-8")
    out = scratch / "out"

    def fresh() -> None:
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()

    def build(workers: int | None, verify: str) -> Contender:
        options = ["--to", str(out / "root"), "--verify", verify, "--quiet"]
        options += [] if workers is None else ["--workers", str(workers)]
        return child([*LOGLOOM, "build", str(recipe), *options], prepare=fresh)

    script = [sys.executable, str(HERE / "scripts" / "extract.py"), str(log), str(out / "rows.tar")]
    found = {
        BASE: child(script, prepare=fresh),
        "logloom, 1 worker, no verify": build(1, "none"),
        "logloom, 2 workers, no verify": build(2, "none"),
        "logloom, 1 worker": build(1, "all"),
        "logloom, 2 workers": build(2, "all"),
        "logloom, as many workers as it likes": build(None, "all"),
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


def report_startup(samples: dict[str, list[Sample]]) -> None:
    """Prints what each takes on next to nothing, and how many times as long as the script that is."""
    rows = []
    for name, found in samples.items():
        longer = [1 / ratio for ratio in ratios(samples[BASE], found)]
        seconds = spread([sample.seconds for sample in found])
        cpu = spread([sample.cpu for sample in found])
        rows.append([name, seconds, cpu, spread(longer, 1), f"{max(s.peak_rss for s in found) / 1e6:.0f}"])
    columns = ["start-up", "s", "CPU s", "times the script's", "peak MB"]
    print_table(f"a log of two images, median (least–greatest) of {len(samples[BASE])}", columns, rows)


def report(size: int, samples: dict[str, list[Sample]], startup: dict[str, float]) -> None:
    """Prints seconds, throughput, ratios and peak memory."""
    rows = []
    for name, found in samples.items():
        against = ratios(samples[BASE], found, startup[BASE], startup[name])
        working = [sample.seconds - startup[name] for sample in found]
        rows.append(
            [
                name,
                f"{startup[name]:.2f}",
                spread(working),
                f"{statistics.median(sample.cpu for sample in found):.2f}",
                f"{size / 1e6 / statistics.median(working):.0f}",
                spread(against),
                f"{max(sample.peak_rss for sample in found) / 1e6:.0f}",
            ]
        )
    columns = ["job", "start-up s", "work s", "CPU s", "input MB/s", "times the script's speed", "peak MB"]
    print_table(f"{size / 1e6:.0f} MB, median (least–greatest) of {len(samples[BASE])}", columns, rows)
    warn_if_busy()
    if not RAY_PYTHON.exists():
        print("Ray Data is not installed: `make bench-ray` adds it to the comparison.")


if __name__ == "__main__":
    main()
