"""Peak memory of one worker against the length of the log: a log ten times as long must not take more.

python -m benchmarks.memory [--images N]
"""

from __future__ import annotations

import argparse
import json
import pathlib
import shutil
import sys
import tempfile

from benchmarks import workloads
from benchmarks.build import RECIPE
from benchmarks.harness import Sample, cache_folder, print_table, run_child


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--images", type=int, default=150, help="in the short log")
    arguments = parser.parse_args()
    rows = []
    peaks = []
    for images in (arguments.images, 10 * arguments.images):
        log = workloads.image_mcap(cache_folder(), images)
        sample = built(log)
        peaks.append(sample.peak_rss)
        rows.append([f"{log.stat().st_size / 1e6:.0f}", f"{sample.seconds:.1f}", f"{peaks[-1] / 1e6:.0f}"])
    print_table("Build and read-back in one process", ["log MB", "seconds", "peak MB"], rows)
    print(f"Ten times the log takes {peaks[1] / peaks[0]:.2f} times the memory.")


def built(log: pathlib.Path) -> Sample:
    """Builds a log in a fresh process."""
    with tempfile.TemporaryDirectory(dir=cache_folder()) as scratch:
        recipe = pathlib.Path(scratch) / "recipe.yaml"
        recipe.write_text(RECIPE.replace("LOG", json.dumps(str(log.resolve()))), encoding="utf-8")
        root = pathlib.Path(scratch) / "root"
        options = ["--to", str(root), "--workers", "1", "--quiet"]
        sample = run_child([sys.executable, "-m", "logloom", "build", str(recipe), *options])
        shutil.rmtree(root)
    return sample


if __name__ == "__main__":
    main()
