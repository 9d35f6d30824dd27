"""Lookups against those of ROS's own tf2: poses and refusals."""

import json
import os
import pathlib
import subprocess

import numpy as np
import pytest

from logloom.resample.frames import FOUND, REASONS, Extrapolation, FrameTree
from logloom.resample.poses import matrices
from tests.interop.conftest import REPOSITORY
from tests.transforms.frames_reference import matrix_of
from tests.transforms.test_frames import NAMES, a_random_tree, table_of

UNPACKED = REPOSITORY / ".cache" / "tf2"
SCRIPT = pathlib.Path(__file__).parent / "tf2_lookups.py"


@pytest.fixture(scope="session")
def tf2():
    """Asks tf2 for lookups; gives a list of [x, y, z, qx, qy, qz, qw], or reasons."""
    packages = UNPACKED / "usr/lib/python3/dist-packages"
    if not (packages / "tf2_py").exists():
        pytest.skip(f"no tf2 here ({packages}); `make interop` fetches it where apt-get has it")
    libraries = ":".join(str(folder) for folder in (UNPACKED / "usr/lib").glob("*-linux-gnu"))
    env = os.environ | {"PYTHONPATH": str(packages), "LD_LIBRARY_PATH": libraries}

    def ask(transforms, lookups, folder):
        plain = [
            [child, parent, stamp, [float(v) for v in position], [float(v) for v in unit(quaternion)]]
            for child, parent, stamp, position, quaternion in transforms
        ]
        asked = folder / "asked.json"
        asked.write_text(json.dumps({"transforms": plain, "lookups": lookups}))
        command = ["/usr/bin/python3", str(SCRIPT), str(asked)]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return ask


def unit(quaternion):
    return np.asarray(quaternion, float) / np.linalg.norm(quaternion)


def test_any_tree_gives_the_poses_and_the_refusals_of_tf2(tf2, tmp_path):
    found = sum(compare(tf2, tmp_path, np.random.default_rng(seed)) for seed in range(20))
    assert found > 1000


def compare(tf2, tmp_path, rng):
    """Looks up all pairs of a random tree at some times; gives how many lookups found a pose."""
    transforms = a_random_tree(rng)
    known = {name for child, parent, *_ in transforms for name in (child, parent)}
    times = sorted(set(rng.integers(1, 65, 12).tolist()))
    pairs = [(a, b) for a in NAMES for b in NAMES if a != b]
    lookups = [[source, target, t] for source, target in pairs for t in times]
    answers = iter(tf2(transforms, lookups, tmp_path))
    tree = FrameTree(table_of(transforms))
    found = 0
    for source, target in pairs:
        poses, reasons = tree.lookup(source, target, np.array(times), Extrapolation(10**12))
        for matrix, reason in zip(matrices(poses), reasons.tolist(), strict=True):
            answer = next(answers)
            if isinstance(answer, str) and not {source, target} <= known:
                assert reason != FOUND  # tf2 asks whether it knows the frames before it looks for a path
            elif isinstance(answer, str):
                assert REASONS[reason] in {"alone": ("past", "future")}.get(answer, (answer,))
            else:
                assert reason == FOUND
                # Its slerp takes the angle from a cosine, which tells small ones to seven digits.
                np.testing.assert_allclose(matrix, matrix_of(answer[:3], answer[3:]), atol=2e-6)
                found += 1
    return found
