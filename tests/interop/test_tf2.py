"""Lookups against those of ROS's own tf2: poses and refusals."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from logloom.resample.frame_tree import FOUND, REASONS, Extrapolation, FrameTree
from logloom.resample.poses import matrices
from tests.interop.conftest import debian_ros
from tests.resample.frames_reference import matrix_of
from tests.resample.test_frame_tree import NAMES, a_random_tree, table_of


@pytest.fixture(scope="session")
def tf2():
    """Asks tf2 for lookups; gives a list of [x, y, z, qx, qy, qz, qw], or reasons."""
    with debian_ros("tf2_lookups.py", "tf2_py") as ask:

        def lookups(transforms, lookups):
            plain = [
                [child, parent, stamp, [float(v) for v in position], [float(v) for v in unit(quaternion)]]
                for child, parent, stamp, position, quaternion in transforms
            ]
            return ask({"transforms": plain, "lookups": lookups})

        yield lookups


def unit(quaternion):
    return np.asarray(quaternion, float) / np.linalg.norm(quaternion)


@given(st.integers(0, 2**32 - 1))
def test_any_tree_gives_the_poses_and_the_refusals_of_tf2(tf2, seed):
    rng = np.random.default_rng(seed)
    transforms = a_random_tree(rng)
    assume(not has_loop(transforms))  # tf2 goes round in one, and gives what it meets first
    compare(tf2, transforms, rng)


def test_most_lookups_in_trees_of_which_some_have_loops_find_the_poses_of_tf2(tf2):
    found = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        found += compare(tf2, a_random_tree(rng), rng)
    assert found > 1000


def has_loop(transforms):
    """Whether a frame is below itself, if not at one time, then by parents of several times."""
    parents = {}
    for child, parent, *_ in transforms:
        parents.setdefault(child, set()).add(parent)
    above = dict(parents)
    for _ in NAMES:
        above = {child: each.union(*(above.get(p, ()) for p in each)) for child, each in above.items()}
    return any(child in each for child, each in above.items())


def compare(tf2, transforms, rng):
    """Looks up all pairs of frames at some times; gives how many lookups found a pose."""
    known = {name for child, parent, *_ in transforms for name in (child, parent)}
    times = sorted(set(rng.integers(1, 65, 12).tolist()))
    pairs = [(a, b) for a in NAMES for b in NAMES if a != b]
    lookups = [[source, target, t] for source, target in pairs for t in times]
    answers = iter(tf2(transforms, lookups))
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
