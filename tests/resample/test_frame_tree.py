"""Lookups between frames: equal to a slow reference, the same for any cut, and what stands at the edges."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logloom.resample.frame_tree import BLOCK, FOUND, REASONS, Extrapolation, FrameTree, Hop, TransformTable
from logloom.resample.poses import IDENTITY, between, compose, inverse, matrices, poses_of
from tests.resample.frames_reference import SlowTree, matrix_of

NAMES = ("map", "odom", "base", "lidar", "camera", "other")


def table_of(transforms):
    """A table of (child, parent, stamp or None, position, quaternion)."""
    number = {name: i for i, name in enumerate(NAMES)}
    child, parent, stamp, position, quaternion = zip(*transforms, strict=True) if transforms else ((),) * 5
    poses, usable = poses_of(np.reshape(position, (-1, 3)), np.reshape(quaternion, (-1, 4)))
    assert usable.all()
    return TransformTable(
        NAMES,
        np.array([number[name] for name in child], np.intp),
        np.array([number[name] for name in parent], np.intp),
        np.array([s or 0 for s in stamp], np.int64),
        poses,
        np.array([s is None for s in stamp], bool),
        np.array([s or 0 for s in stamp], np.int64),
    )


def a_random_tree(rng):
    """Transforms in any order: static and dynamic, of other parents in between, twice, in loops."""
    transforms = []
    order = rng.permutation(NAMES)
    for i, child in enumerate(order[1:], 1):
        parents = [order[rng.integers(0, i)]]
        if rng.random() < 0.2:
            parents.append(str(rng.choice([name for name in NAMES if name != child])))
        static = rng.random() < 0.3
        for _ in range(rng.choice([0, 1, 2, 12])):
            stamp = None if static else int(rng.integers(1, 60))
            quaternion = rng.choice([rng.normal(size=4), np.array([0, 0, rng.normal() * 1e-3, 1.0])])
            transforms.append(
                (str(child), str(rng.choice(parents)), stamp, rng.normal(size=3) * 5, quaternion)
            )
    rng.shuffle(transforms)
    return [tuple(transform) for transform in transforms]


@given(st.integers(0, 2**32 - 1))
def test_any_tree_gives_the_poses_of_the_reference(seed):
    rng = np.random.default_rng(seed)
    transforms = a_random_tree(rng)
    tree, slow = FrameTree(table_of(transforms)), SlowTree(transforms)
    cache = int(rng.choice([0, 5, 20, 1000]))
    kind = str(rng.choice(["none", "hold", "linear"]))
    limit = min(cache, int(rng.integers(0, 10)))
    times = rng.integers(-5, 70, 40)
    for source, target in rng.choice(NAMES, (4, 2)):
        poses, reasons = tree.lookup(source, target, times, Extrapolation(cache, kind, limit))
        for t, matrix, reason in zip(times.tolist(), matrices(poses), reasons.tolist(), strict=True):
            expected = slow.lookup(source, target, t, cache, kind, limit)
            if reason == FOUND:
                np.testing.assert_allclose(matrix, expected, atol=1e-9)
            else:
                assert REASONS[reason] == expected
                assert np.isnan(matrix[:3]).all()
            assert tree.hops(source, target, t, Extrapolation(cache, kind, limit))[1] == reason


@given(st.integers(0, 2**32 - 1))
def test_a_lookup_depends_on_what_lies_within_the_cache_alone(seed):
    rng = np.random.default_rng(seed)
    transforms = a_random_tree(rng)
    cache, t = int(rng.integers(0, 30)), int(rng.integers(-5, 70))
    near = [one for one in transforms if one[2] is None or abs(one[2] - t) <= cache]
    rule = Extrapolation(cache, "linear", cache)
    # Children with a static transform that lies elsewhere in the log have it in every part, too.
    whole, part = (FrameTree(table_of(some)) for some in (transforms, near))
    times = np.array([t, *rng.integers(-5, 70, 5)])
    for source in NAMES:
        for target in NAMES:
            alone = part.lookup(source, target, times[:1], rule)
            among = whole.lookup(source, target, times, rule)
            assert alone[0].tobytes() == among[0][:, :1].tobytes()
            assert alone[1][0] == among[1][0]


def test_blocks_change_nothing():
    rng = np.random.default_rng(3)
    turns = [("base", "map", s, rng.normal(size=3), rng.normal(size=4)) for s in range(1, 500)]
    tree = FrameTree(table_of([*turns, ("lidar", "base", None, (1, 2, 3), (0, 0, 0.6, 0.8))]))
    times = rng.integers(0, 502, 2 * BLOCK + 5)
    rule = Extrapolation(100)
    whole, _ = tree.lookup("lidar", "map", times, rule)
    for rows in (slice(0, 1), slice(BLOCK - 1, BLOCK + 2), slice(7, None, 911)):
        some, _ = tree.lookup("lidar", "map", times[rows].copy(), rule)
        assert some.tobytes() == np.ascontiguousarray(whole[:, rows]).tobytes()


def test_at_a_stamp_stands_what_the_message_says_to_the_bit():
    rng = np.random.default_rng(4)
    transforms = [("base", "map", s * 10, rng.normal(size=3), rng.normal(size=4)) for s in range(1, 9)]
    table = table_of(transforms)
    poses, _ = FrameTree(table).lookup("base", "map", table.stamp, Extrapolation(20))
    assert poses.tobytes() == table.pose.tobytes()


def test_a_new_parent_holds_from_its_own_stamp_on():
    shift = [((i, 0, 0), (0, 0, 0, 1)) for i in range(4)]
    tree = FrameTree(
        table_of(
            [
                ("base", "map", 10, *shift[1]),
                ("base", "odom", 20, *shift[2]),
                ("odom", "map", None, *shift[3]),
            ]
        )
    )
    poses, reasons = tree.lookup("base", "map", np.array([10, 15, 19, 20]), Extrapolation(100))
    assert poses[0].tolist() == [1, 1, 1, 5]
    assert not reasons.any()
    assert [edge[:3] for edge in tree.edges()] == [("odom", "map", 1), ("base", "odom", 2)]


def test_hops_are_the_transforms_of_a_lookup_from_its_source_up_and_down_to_its_target():
    turn = (0, 0, 0), (0, 0, 0, 1)
    steps = [("base", "odom", 10, *turn), ("lidar", "base", None, *turn), ("base", "odom", 20, *turn)]
    tree = FrameTree(table_of([*steps, ("camera", "base", None, *turn)]))
    hops, reason = tree.hops("lidar", "odom", 15, Extrapolation(100))
    assert (hops, reason) == ([Hop("lidar", "base", (1,)), Hop("base", "odom", (0, 2))], FOUND)
    assert tree.hops("camera", "lidar", 15, Extrapolation(100))[0] == [
        Hop("camera", "base", (3,)),
        Hop("lidar", "base", (1,)),
    ]
    hops, reason = tree.hops("lidar", "odom", 30, Extrapolation(100))
    assert (hops[1:], REASONS[reason]) == ([Hop("base", "", (2,)), Hop("odom", "", ())], "future")
    hops, reason = tree.hops("nowhere", "neither", 15, Extrapolation(100))
    assert (hops, REASONS[reason]) == ([], "no path")


def test_linear_extrapolation_goes_on_turning_beyond_half_a_turn():
    angle = 0.3
    turn = [
        ("base", "map", i, (i, 0, 0), (0, 0, np.sin(angle * i / 2), np.cos(angle * i / 2))) for i in (1, 2)
    ]
    times = np.array([-30, 0, 5, 40])
    poses, reasons = FrameTree(table_of(turn)).lookup("base", "map", times, Extrapolation(100, "linear", 100))
    assert not reasons.any()
    for t, matrix in zip(times.tolist(), matrices(poses), strict=True):
        expected = matrix_of((t, 0, 0), (0, 0, np.sin(angle * t / 2), np.cos(angle * t / 2)))
        np.testing.assert_allclose(matrix, expected, atol=1e-12)


def test_nothing_is_known_of_frames_that_nobody_published():
    tree = FrameTree(table_of([]))
    poses, reasons = tree.lookup("a", "b", np.array([1, 2]), Extrapolation(10))
    assert [REASONS[reason] for reason in reasons] == ["no path", "no path"]
    assert np.isnan(poses).all()
    assert tree.lookup("a", "b", np.empty(0, np.int64), Extrapolation(10))[0].shape == (7, 0)


def test_stamps_at_the_ends_of_int64_do_not_wrap():
    ends = [-(2**63) + 1, 2**63 - 2]
    tree = FrameTree(table_of([("base", "map", s, (0, 0, 0), (0, 0, 0, 1)) for s in ends]))
    _, reasons = tree.lookup("base", "map", np.array([*ends, 0]), Extrapolation(10))
    assert [REASONS[reason] for reason in reasons] == ["", "", "no path"]


def test_poses_compose_invert_and_show_as_matrices_do():
    rng = np.random.default_rng(5)
    a, b = (poses_of(rng.normal(size=(50, 3)), rng.normal(size=(50, 4)))[0] for _ in "ab")
    np.testing.assert_allclose(matrices(compose(a, b)), matrices(a) @ matrices(b), atol=1e-14)
    np.testing.assert_allclose(
        matrices(compose(a, inverse(a))), np.broadcast_to(np.eye(4), (50, 4, 4)), atol=1e-14
    )
    np.testing.assert_array_equal(compose(a, IDENTITY), a)
    np.testing.assert_array_equal(between(a, b, np.zeros(50)), a)
    np.testing.assert_allclose(matrices(between(a, b, np.ones(50))), matrices(b), atol=1e-14)


@pytest.mark.parametrize("exponent", [-160, -12, -8, -4, -1])
def test_the_arc_is_right_at_any_angle(exponent):
    angle = 10.0**exponent
    a = poses_of(np.zeros((1, 3)), np.array([[0, 0, 0, 1.0]]))[0]
    b = poses_of(np.zeros((1, 3)), np.array([[0, 0, math.sin(angle), math.cos(angle)]]))[0]
    part = between(a, b, np.array([0.3]))
    expected = math.sin(0.3 * math.atan2(b[5, 0], b[6, 0]))
    assert part[5, 0] == pytest.approx(expected, rel=1e-15)


def test_a_long_chain_whose_frames_change_their_parents_is_climbed():
    length = 3000  # deeper than Python's own stack
    numbers = np.arange(length - 1)
    skipped = np.minimum(numbers + 2, length - 1)
    parent = np.stack([numbers + 1, skipped], axis=1).reshape(-1)
    child = np.repeat(numbers, 2)
    stamp = np.stack([np.zeros(length - 1, np.int64) + 1, 2 + numbers % 40], axis=1).reshape(-1)
    pose = np.zeros((7, len(child)))
    pose[0], pose[6] = parent - child, 1
    names = tuple(f"f{i}" for i in range(length))
    dynamic = np.zeros(len(child), bool)
    tree = FrameTree(TransformTable(names, child, parent, stamp, pose, dynamic, stamp))
    rule = Extrapolation(1000, "hold", 1000)
    poses, reasons = tree.lookup("f0", names[-1], np.array([1, 20, 44]), rule)
    assert not reasons.any()
    assert set(poses[0]) == {length - 1}
