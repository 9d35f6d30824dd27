"""A million lookups of one frame in another, beside tf2's buffer in Python and in C++.

    python -m benchmarks.tf [--rounds 5] [--lookups 1000000]

The frames are map <- odom (10 Hz) <- base (100 Hz) <- lidar (static), for the 10 s that tf2 keeps by
default. Times lie anywhere in these, or in the last 100 ms, where tf2, which searches from the newest on,
has them at hand. tf2 does a fiftieth of the lookups, and its seconds are multiplied. `make interop` fetches
tf2, as Debian packs it, and its headers, with which g++ compiles the side in C++; without them logloom runs
alone.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import tempfile

import numpy as np

from benchmarks.harness import Contender, Sample, compare, in_process
from benchmarks.report import Report
from benchmarks.scripts.sides import REPOSITORY, Answering
from logloom.resample.frame_tree import Extrapolation, FrameTree, TransformTable
from logloom.resample.poses import poses_of

NAMES = ("map", "odom", "base", "lidar")
START, SECOND = 1_700_000_000 * 10**9, 10**9
FEWER = 50
UNPACKED = REPOSITORY / ".cache" / "tf2"
SCRIPTS = pathlib.Path(__file__).parent / "scripts"

Transform = tuple[str, str, int | None, list[float], list[float]]


def make_transforms() -> list[Transform]:
    """Ten seconds of a drive, as (child, parent, stamp, position, quaternion)."""
    rng = np.random.default_rng(0)

    def moving(child: str, parent: str, hz: int) -> list[Transform]:
        angles = np.cumsum(rng.normal(size=10 * hz + 1)) * 0.02
        places = np.cumsum(rng.normal(size=(10 * hz + 1, 3)), axis=0) * 0.1
        return [
            (child, parent, START + i * SECOND // hz, list(place), [0.0, 0.0, np.sin(a / 2), np.cos(a / 2)])
            for i, (a, place) in enumerate(zip(angles.tolist(), places.tolist(), strict=True))
        ]

    static: Transform = ("lidar", "base", None, [1.0, 0.0, 2.0], [0.0, 0.0, 0.6, 0.8])
    return [*moving("odom", "map", 10), *moving("base", "odom", 100), static]


def tree_of(transforms: list[Transform]) -> FrameTree:
    child, parent, stamp, position, quaternion = zip(*transforms, strict=True)
    stamps = np.array([s or 0 for s in stamp], np.int64)
    return FrameTree(
        TransformTable(
            NAMES,
            np.array([NAMES.index(name) for name in child]),
            np.array([NAMES.index(name) for name in parent]),
            stamps,
            poses_of(np.array(position), np.array(quaternion))[0],
            np.array([s is None for s in stamp]),
            stamps,
        )
    )


def looking_up(side: Answering) -> Contender:
    """tf2 in a process of its own, which looks all its times up for each line that it reads."""
    side.answer()  # it is ready

    def run() -> Sample:
        answer = side.ask("lookups")
        if not isinstance(answer, float):
            raise RuntimeError(f"tf2: {answer}")
        return Sample(answer * FEWER, 0.0)

    return run


def library_path() -> str:
    return ":".join(str(folder) for folder in (UNPACKED / "usr/lib").glob("*-linux-gnu"))


def contenders(
    transforms: list[Transform], times: np.ndarray, folder: pathlib.Path, stack: contextlib.ExitStack
) -> dict[str, Contender]:
    tree, rule = tree_of(transforms), Extrapolation(10 * SECOND)
    found: dict[str, Contender] = {"logloom": in_process(lambda: tree.lookup("lidar", "map", times, rule))}
    env = {"LD_LIBRARY_PATH": library_path()}
    packages = UNPACKED / "usr/lib/python3/dist-packages"
    if (packages / "tf2_py").exists():
        few = {"transforms": transforms, "times": times[::FEWER].tolist()}
        (folder / "transforms.json").write_text(json.dumps(few))
        script = SCRIPTS / "tf2_side.py"
        command = ["/usr/bin/python3", script, "tf2", folder, "0"]
        side = Answering(command, {**os.environ, **env, "PYTHONPATH": str(packages)})
        found["tf2 in Python"] = looking_up(stack.enter_context(side))
    if (UNPACKED / "usr/include/tf2/buffer_core.h").exists() and shutil.which("g++"):
        command = [compiled(folder), write_text(folder, transforms, times[::FEWER])]
        found["tf2 in C++"] = looking_up(stack.enter_context(Answering(command, {**os.environ, **env})))
    return found


def compiled(folder: pathlib.Path) -> pathlib.Path:
    """The side in C++."""
    program = folder / "tf2_side"
    (library,) = (UNPACKED / "usr/lib").glob("*-linux-gnu")
    command = [
        "g++",
        "-O2",
        "-Wno-deprecated-declarations",
        "-I",
        UNPACKED / "usr/include",
        SCRIPTS / "tf2_side.cpp",
        "-o",
        program,
    ]
    command += ["-L", library, "-ltf2", "-lrostime", "-Wl,--allow-shlib-undefined"]
    subprocess.run(command, check=True)
    return program


def write_text(folder: pathlib.Path, transforms: list[Transform], times: np.ndarray) -> pathlib.Path:
    """Transforms and times as the side in C++ reads them."""
    path = folder / "transforms.txt"
    lines = [str(len(transforms))]
    for child, parent, stamp, position, quaternion in transforms:
        numbers = " ".join(map(repr, [*position, *map(float, quaternion)]))
        lines.append(f"{child} {parent} {-1 if stamp is None else stamp} {numbers}")
    lines += [str(len(times)), *map(str, times.tolist())]
    path.write_text("\n".join(lines) + "\n")
    return path


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--lookups", type=int, default=1_000_000)
    chosen = parser.parse_args()
    report = Report("Transforms")
    transforms = make_transforms()
    rng = np.random.default_rng(1)
    for what, first in (
        ("lookups in 10 s", START),
        ("lookups in the last 100 ms", START + 99 * SECOND // 10),
    ):
        times = rng.integers(first, START + 10 * SECOND, chosen.lookups)
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
            each = contenders(transforms, times, pathlib.Path(folder), stack)
            report.add(what, chosen.lookups, "lookups", compare(each, rounds=chosen.rounds))
    report.finish()


if __name__ == "__main__":
    main()
