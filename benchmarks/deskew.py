"""Deskewing a lidar's cloud, beside KISS-ICP's at constant velocity.

    python -m benchmarks.deskew [--rounds 20] [--points 131072]

A sweep of 100 ms of 1,024 columns of 128 beams, as most lidars measure them, and one whose points have times
of their own. Poses are looked up among map <- odom (10 Hz) <- base (100 Hz) <- lidar, where KISS-ICP takes
one motion for the whole sweep; both work on one thread, from numpy arrays to numpy arrays.
`make interop` installs it; without it logloom runs alone.
"""

from __future__ import annotations

import argparse
import contextlib
import pathlib
import tempfile

import numpy as np

from benchmarks.harness import Contender, Sample, compare, in_process
from benchmarks.report import Report
from benchmarks.scripts.sides import REPOSITORY, Answering
from benchmarks.tf import SCRIPTS, SECOND, START, make_transforms, tree_of
from logloom.resample.deskew import deskewed
from logloom.resample.frame_tree import Extrapolation

KISS = REPOSITORY / ".venv-kiss" / "bin" / "python"
COLUMNS = 1024
FROM, SWEEP = START + 5 * SECOND, SECOND // 10


def contenders(
    points: np.ndarray, times: np.ndarray, folder: pathlib.Path, stack: contextlib.ExitStack
) -> dict[str, Contender]:
    tree, rule = tree_of(make_transforms()), Extrapolation(10 * SECOND)
    axes = np.ascontiguousarray(points.T)
    found: dict[str, Contender] = {
        "logloom": in_process(
            lambda: deskewed(axes, times, FROM + SWEEP, lambda t: tree.lookup("lidar", "map", t, rule))
        )
    }
    if KISS.exists():
        motion = np.eye(4)
        motion[:2, :2] = [[np.cos(0.05), -np.sin(0.05)], [np.sin(0.05), np.cos(0.05)]]
        motion[:3, 3] = 2.0, 0.1, 0.0
        cloud = folder / "cloud.npz"
        np.savez(cloud, points=points, times=(times - FROM) / SWEEP, motion=motion)
        side = stack.enter_context(Answering([KISS, SCRIPTS / "deskew_side.py", cloud]))
        side.answer()  # it is ready
        found["KISS-ICP"] = moving(side)
    return found


def moving(side: Answering) -> Contender:
    def run() -> Sample:
        answer = side.ask("deskew")
        if not isinstance(answer, float):
            raise RuntimeError(f"KISS-ICP: {answer}")
        return Sample(answer, 0.0)

    return run


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--points", type=int, default=128 * COLUMNS)
    chosen = parser.parse_args()
    report = Report("Deskewing")
    rng = np.random.default_rng(0)
    points = rng.normal(size=(chosen.points, 3)) * 30
    for what, distinct in (("a cloud of 1,024 times", COLUMNS), ("a cloud of as many times", chosen.points)):
        times = FROM + np.arange(chosen.points) * distinct // chosen.points * SWEEP // distinct
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
            each = contenders(points, times, pathlib.Path(folder), stack)
            report.add(what, chosen.points, "points", compare(each, rounds=chosen.rounds))
    report.finish()


if __name__ == "__main__":
    main()
