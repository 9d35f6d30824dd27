"""Deskewing against that of KISS-ICP, whose lidar turns and drives at constant rates during a sweep."""

import numpy as np
import pytest

from logloom.resample.deskew import deskewed
from logloom.resample.frame_tree import FOUND, Extrapolation, FrameTree, TransformTable
from logloom.resample.poses import poses_of
from tests.interop.conftest import forks

SWEEP, STEP = 100_000_000, 1_000_000  # ns
SCRIPT = """
import sys
import numpy as np
from kiss_icp.pybind import kiss_icp_pybind
asked = np.load(sys.argv[1])
move = kiss_icp_pybind._Preprocessor(1e9, 0.0, True, 1)._preprocess
cloud = kiss_icp_pybind._Vector3dVector(asked["points"])
np.save(sys.argv[2], np.asarray(move(cloud, asked["times"], asked["motion"])))
"""


@pytest.fixture(scope="session")
def kiss():
    with forks(".venv-kiss", "kiss-icp 1.3", "from kiss_icp.pybind import kiss_icp_pybind") as run:
        yield run


def screw(speed, rate, seconds):
    """(n, 4, 4) poses of what has driven and turned for so long, at constant rates in its own frame."""
    angle = np.linalg.norm(rate)
    x, y, z = rate / angle
    cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    turned = (angle * seconds)[:, None, None]
    along = np.sin(turned) * cross + (1 - np.cos(turned)) * cross @ cross
    made = np.tile(np.eye(4), (len(seconds), 1, 1))
    made[:, :3, :3] += along
    drawn = turned * np.eye(3) + (1 - np.cos(turned)) * cross + (turned - np.sin(turned)) * cross @ cross
    made[:, :3, 3] = drawn @ speed / angle
    return made


def tree_of(speed, rate):
    """Poses of the lidar on the map, one each `STEP`."""
    stamps = np.arange(0, SWEEP + STEP, STEP)
    seconds = stamps / 1e9
    axis = np.sin(np.linalg.norm(rate) * seconds / 2)[:, None] * rate / np.linalg.norm(rate)
    turns = np.concatenate([axis, np.cos(np.linalg.norm(rate) * seconds / 2)[:, None]], axis=1)
    none = np.zeros(len(stamps), np.int64)
    poses, _ = poses_of(screw(speed, rate, seconds)[:, :3, 3], turns)
    return FrameTree(TransformTable(("map", "lidar"), none + 1, none, stamps, poses, none > 0, stamps))


@pytest.mark.parametrize("seed", range(5))
def test_at_constant_rates_points_are_moved_as_by_kiss_icp(kiss, tmp_path, seed):
    rng = np.random.default_rng(seed)
    speed, rate = rng.normal(size=3) * 15, rng.normal(size=3)  # m/s, rad/s
    points = rng.normal(size=(5000, 3)) * 30
    times = rng.integers(0, SWEEP + 1, 5000)
    times[:2] = 0, SWEEP  # which it takes for the ends of the sweep
    motion = screw(speed, rate, np.array([SWEEP / 1e9]))[0]
    np.savez(tmp_path / "asked.npz", points=points, times=times / SWEEP, motion=motion)
    kiss(SCRIPT, tmp_path / "asked.npz", tmp_path / "moved.npy")
    expected = np.load(tmp_path / "moved.npy")
    tree, rule = tree_of(speed, rate), Extrapolation(SWEEP)
    found, reason = deskewed(points.T, times, SWEEP, lambda t: tree.lookup("lidar", "map", t, rule))
    assert reason == FOUND
    # Between two transforms the lidar drives straight here and on an arc there: an arc of speed v, rate w
    # and duration s leaves its chord by at most |w| |v| s^2 / 8. All else is rounding.
    limit = np.linalg.norm(speed) * np.linalg.norm(rate) * (STEP / 1e9) ** 2 / 8 + 1e-9
    assert limit < 1e-4
    assert np.linalg.norm(found.T - expected, axis=1).max() < limit
    assert np.linalg.norm(points - expected, axis=1).max() > 1  # which is what was to be taken out
