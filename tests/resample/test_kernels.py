"""Kernels: their mathematics, their bits, and that no CPU feature changes these."""

import math
import os
import struct
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logloom.resample import kernels

CANONICAL = 0x7FF8000000000000


def test_slerp_agrees_with_its_formula_to_the_last_digits():
    rng = np.random.default_rng(1)
    a, b = (q / np.linalg.norm(q, axis=1, keepdims=True) for q in rng.normal(size=(2, 20000, 4)))
    w = rng.random(20000)
    dot = (a * b).sum(axis=1)
    b, dot = np.where(dot[:, None] < 0, -b, b), np.abs(dot)
    theta = np.arccos(dot)
    expected = (a * np.sin((1 - w) * theta)[:, None] + b * np.sin(w * theta)[:, None]) / np.sin(theta)[
        :, None
    ]
    arcs = dot <= 0.9995
    np.testing.assert_allclose(kernels.slerp(a, b, w)[arcs], expected[arcs], atol=2e-15)
    np.testing.assert_allclose(np.linalg.norm(kernels.slerp(a, b, w), axis=1), 1, atol=1e-15)


def test_slerp_takes_the_shorter_way_round():
    a, b = np.array([[0, 0, 0, 1.0]]), np.array([[0, 0, -math.sqrt(0.5), -math.sqrt(0.5)]])
    half = kernels.slerp(a, b, np.array([0.5]))
    np.testing.assert_allclose(half, [[0, 0, math.sin(math.pi / 8), math.cos(math.pi / 8)]], atol=1e-15)


def test_tiny_and_huge_quaternions_have_a_direction():
    q = np.array([[5e-324, 0, 0, 0], [1e308, 1e308, 0, 0], [0, 0, 0, -0.0]])
    with np.errstate(all="ignore"):
        unit = kernels.normalised(q)
    np.testing.assert_allclose(unit[:2], [[1, 0, 0, 0], [math.sqrt(0.5), math.sqrt(0.5), 0, 0]])
    assert kernels.has_zero_norm(q).tolist() == [False, False, True]
    assert kernels.has_zero_norm(np.array([[q[0], q[2]], [q[0], q[1]]])).tolist() == [True, False]
    assert kernels.has_zero_norm(q[:0]).tolist() == kernels.has_zero_norm(np.empty((0, 2, 4))).tolist() == []


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_wrapped_angles_lie_in_half_open_turn(angle):
    with np.errstate(all="ignore"):
        wrapped = float(kernels.wrap(np.array([angle]))[0])
    if math.isnan(wrapped):
        assert abs(angle) > 1e307
        return
    assert -math.pi < wrapped <= math.pi
    if -math.pi < angle <= math.pi:
        assert wrapped == angle
    elif abs(angle) < 1e6:
        assert math.isclose(math.cos(wrapped), math.cos(angle), abs_tol=1e-9)
        assert math.isclose(math.sin(wrapped), math.sin(angle), abs_tol=1e-9)


def test_angles_exactly_half_a_turn_apart_turn_positive():
    zero, w = np.zeros(2), np.full(2, 0.5)
    assert kernels.angle(zero, np.array([np.pi, -np.pi]), w).tolist() == [np.pi / 2, np.pi / 2]
    assert kernels.angle(np.array([3.0]), np.array([-3.0]), np.array([0.5]))[0] == pytest.approx(np.pi)


def test_sums_run_from_left_to_right():
    values = np.array([1.0] + [1e-16] * 9999)  # pairwise summing would find the small ones
    lengths = np.array([len(values)])
    assert kernels.total(values, np.array([0]), lengths).tolist() == [1.0]
    starts = np.zeros(20000, np.intp)  # many windows take the other way through the code
    many = kernels.total(values[:100], starts, np.full(20000, 100))
    assert (many == 1.0).all()


def test_a_sum_of_negative_zeros_is_negative_zero():
    total = kernels.total(np.array([-0.0, -0.0]), np.array([0]), np.array([2]))
    assert math.copysign(1, total[0]) == -1


@pytest.mark.parametrize("many", [1, 5000])
@pytest.mark.parametrize(("reduce", "sign"), [(kernels.smallest, 1), (kernels.largest, -1)])
def test_extremes_keep_the_first_of_equals_and_the_first_nan(reduce, sign, many):
    first_nan, other_nan = np.array([0x7FF8000000000007, 0x7FF8000000000009], np.uint64).view(np.float64)
    cases = [
        ([3.0, -0.0, 0.0, 5.0] if sign == 1 else [-3.0, -0.0, 0.0, -5.0], -0.0),
        ([1.0, first_nan, -7.0 * sign, other_nan], first_nan),
    ]
    for values, expected in cases:
        found = reduce(np.array(values), np.zeros(many, int), np.full(many, 4))
        assert set(found.view(np.uint64).tolist()) == {np.float64(expected).view(np.uint64)}


@given(st.data())
def test_few_long_windows_and_many_short_ones_give_the_same_bits(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    values = rng.choice(
        [0.0, -0.0, 1.0, 0.1, 1e17, np.nan, -5.5], (40, 2), p=[0.2, 0.2, 0.1, 0.2, 0.1, 0.02, 0.18]
    )
    start, length = data.draw(st.integers(0, 20)), data.draw(st.integers(1, 20))
    for reduce in (kernels.total, kernels.mean, kernels.smallest, kernels.largest):
        one = reduce(values, np.array([start]), np.array([length]))
        many = reduce(values, np.full(50, start), np.full(50, length))
        assert (many.view(np.uint64) == one.view(np.uint64)).all()


def test_nan_results_have_one_bit_pattern():
    odd = np.array([0xFFF8000000000123], np.uint64).view(np.float64)
    for result in (
        kernels.linear(odd, odd, np.zeros(1)),
        kernels.angle(odd, odd, np.zeros(1)),
        kernels.slerp(np.full((1, 4), odd), np.full((1, 4), odd), np.zeros(1)),
        kernels.total(odd, np.array([0]), np.array([1])),
    ):
        assert set(result.view(np.uint64).ravel().tolist()) == {CANONICAL}


@pytest.mark.parametrize("source", ["f8", "f4", "i8", "u8", "i2", "u1", "?"])
@pytest.mark.parametrize("target", ["i1", "u1", "i4", "i8", "u8"])
def test_only_numbers_that_fit_pass_to_integers(source, target):
    limits, values = np.iinfo(target), []
    for exact in [0, 1, -1, limits.min, limits.max, limits.min - 1, limits.max + 1, 2**63, 2**64, -(2**70)]:
        try:
            values.append(np.array(exact).astype(source))
        except OverflowError:
            continue
    for value in values:
        fits = limits.min <= int(value) <= limits.max
        assert (kernels.first_misfit(np.array([value]), np.dtype(target)) is None) == fits
        if fits:
            assert int(kernels.cast(np.array([value]), np.dtype(target))[0]) == int(value)


def test_casts_round_half_to_even():
    values = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 127.5])
    assert kernels.first_misfit(values, np.dtype("i1")) == 5
    assert kernels.cast(values[:5], np.dtype("i1")).tolist() == [0, 2, 2, 0, -2]
    assert kernels.first_misfit(np.array([1.0, np.nan]), np.dtype("i4")) == 1


def test_a_finite_number_beyond_a_float_type_does_not_fit():
    values = np.array([0.1, np.inf, np.nan, 3e38, -3.5e38])
    assert kernels.first_misfit(values, np.dtype("f4")) == 4
    assert kernels.first_misfit(values[:4], np.dtype("f4")) is None
    assert kernels.first_misfit(values, np.dtype("f8")) is None
    assert kernels.first_misfit(np.array([2**64 - 1], np.uint64), np.dtype("f4")) is None


HALVES = st.one_of(
    st.floats(width=32),
    st.floats(-70000, 70000),
    st.sampled_from([65504.0, 65519.996, 65520.0, -65520.0, math.inf, -math.inf, math.nan, 1e300, 6e-8]),
)


@given(st.lists(HALVES, min_size=1, max_size=8))
def test_numbers_become_halves_as_struct_packs_them_or_are_named(numbers):
    def packed(number):
        try:
            return struct.unpack("<e", struct.pack("<e", number))[0]
        except OverflowError:
            return None

    wanted, half = [packed(number) for number in numbers], np.dtype("f2")
    misfit = kernels.first_misfit(np.array(numbers), half)
    assert misfit == next((i for i, number in enumerate(wanted) if number is None), None)
    if misfit is None:
        np.testing.assert_array_equal(kernels.cast(np.array(numbers), half), np.array(wanted, half))


@pytest.mark.parametrize(("source", "number"), [("i4", 65504), ("u8", 65519), ("i8", -65504), ("?", 1)])
def test_whole_numbers_up_to_the_largest_half_fit(source, number):
    values = np.array([number], source)
    assert kernels.first_misfit(values, np.dtype("f2")) is None
    assert kernels.cast(values, np.dtype("f2"))[0] == np.float16(number)
    if source != "?":
        beyond = np.array([0, number + (16 if number == 65504 else 1)], source) if number > 0 else values - 16
        assert kernels.first_misfit(beyond, np.dtype("f2")) == len(beyond) - 1


DIGEST = """
import hashlib, numpy as np
from logloom.schema import ColumnType
from logloom.transforms.rows.plan.row_plan import Sampling, row_type
from logloom.transforms.rows.resample import choose

rng = np.random.default_rng(7)
times = np.cumsum(rng.integers(1, 2000, 8009))
ticks = np.linspace(times[0], times[-1], 1999).astype(np.int64)
digest = hashlib.sha256()
for dtype in ("f8", "f4", "i4", "u1"):
    for shape in ((4,), (2, 4)):
        message = ColumnType(np.dtype(dtype), shape)
        values = (rng.normal(size=(len(times), *shape)) * 50).astype(dtype)
        if dtype[0] == "f":
            values[rng.random(values.shape) < 0.01] = np.nan
        for policy in ("previous linear angle slerp mean sum min max window count".split()):
            for window in ((-9000, 0), (-900_000, 0)):
                if window[0] < -9000 and policy == "window":
                    continue
                some = ticks[:: 1 if window[0] == -9000 else 300]
                choice = choose(Sampling(policy, 5000, window), times, some)
                for cast in (None, "f4"):
                    result, age, ok = choice.apply(values[choice.rows], row_type(message, policy, cast))
                    digest.update(getattr(result, "values", result).tobytes() + age.tobytes() + ok.tobytes())
print(digest.hexdigest())
"""


def test_bits_do_not_depend_on_what_the_cpu_offers():
    from numpy._core import _multiarray_umath as umath

    offered = [name for name in umath.__cpu_dispatch__ if umath.__cpu_features__.get(name)]
    if not offered:
        pytest.skip("this CPU offers numpy nothing to switch off")
    digests = set()
    for disabled in ("", " ".join(offered)):
        environment = {**os.environ, "NPY_DISABLE_CPU_FEATURES": disabled}
        run = subprocess.run(
            [sys.executable, "-c", DIGEST], env=environment, capture_output=True, text=True, check=True
        )
        digests.add(run.stdout)
    assert len(digests) == 1
