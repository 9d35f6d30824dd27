"""Angles that wrap: jumps by a whole turn tell headings from wheels, in any partition."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from logloom.resample.angles import TURNS, added, turn_evidence


def shown(values):
    """The evidence of all values, which follow each other."""
    values = np.asarray(values, np.float64)
    (found,) = turn_evidence(values, np.ones(len(values), np.bool_), np.ones(len(values) - 1, np.bool_))
    return found


@given(
    st.sampled_from(["rad", "deg"]),
    st.lists(st.floats(-0.1, 0.1), min_size=10, max_size=60),
    st.integers(0, 8),
    st.sampled_from([0.0, 0.5]),
)
def test_a_heading_wraps_if_and_only_if_it_crosses_its_seam(unit, steps, start, low):
    turn = TURNS[unit]
    unwrapped = np.cumsum([start / 8, *steps])  # in turns
    cells = np.floor(unwrapped + low)
    found = shown((unwrapped - cells) * turn)
    jumps = int((np.diff(cells) != 0).sum())
    assert found.jumps(unit).whole == jumps
    assert not found.wraps("deg" if unit == "rad" else "rad")
    # One that only touches its seam may look like a wheel that does, where no other step is as long.
    smooth = found.jumps(unit).rest <= 2 * found.jumps(unit).step
    assert found.wraps(unit) if jumps and smooth else jumps or not found.wraps(unit)


@given(
    st.lists(st.floats(-10, 10) | st.just(np.nan), min_size=2, max_size=50),
    st.lists(st.integers(0, 50), max_size=5),
)
def test_evidence_adds_up_to_the_same_in_any_partition_and_order(values, borders):
    values = np.array(values)
    n = len(values)
    edges = sorted({0, n, *(b for b in borders if b < n)})
    parts = []
    for start, stop in pairwise(edges):
        own = (np.arange(n) >= start) & (np.arange(n) < stop)
        parts.append(turn_evidence(values, own, own[:-1]))
    assert added(parts) == added(parts[::-1]) == (shown(values),)


def test_steering_wheels_fit_no_convention_of_directions_and_headings_do():
    i = np.arange(200)
    assert not shown(5 * np.sin(i / 60)).fits_radians
    assert not shown(3.5 * np.sin(i / 30)).fits_radians
    assert not shown((3.0 * i) % 360).fits_radians
    for low in (-np.pi, 0):
        heading = (0.1 * i - low) % (2 * np.pi) + low
        assert shown(heading).fits_radians
        assert shown(np.float32(heading)).fits_radians
    assert shown([np.nan, np.inf]).fits_radians
    assert shown(0.4 * np.sin(i)).fits_radians


@given(
    st.sampled_from(["rad", "deg"]),
    st.floats(0.02, 0.45),
    st.floats(0, 1),
    st.sampled_from([1, -1]),
    st.sampled_from([0.0, 0.5]),
)
def test_a_steady_rotation_wraps_however_fast_it_is(unit, rate, start, way, low):
    turns = start + way * rate * np.arange(120)
    found = shown(((turns + low) % 1 - low) * TURNS[unit])
    assert found.wraps(unit)
    assert not found.wraps("deg" if unit == "rad" else "rad")


def test_a_ramp_that_starts_again_before_a_turn_is_no_rotation():
    assert not shown(np.arange(200) % 6 * 0.8).wraps("rad")  # 0 to 4
    assert not shown(np.arange(200) % 10 * 30.0).wraps("deg")  # 0 to 270


def test_resets_and_noise_are_no_turns():
    i = np.arange(200)
    assert not shown(3.0 * np.sign(np.sin(i / 10 + 0.1))).wraps("rad")
    assert not shown(np.random.default_rng(0).uniform(-3.1, 3.1, 200)).wraps("rad")
    assert not shown(np.random.default_rng(0).uniform(-180, 180, 200)).wraps("deg")
    assert not shown([*np.arange(0, 50, 0.5), *np.arange(56, 90, 0.5)]).wraps("rad")  # a leap of a position
