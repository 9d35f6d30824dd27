"""What is known of numbers and texts: exact, and the same however they were parted and merged."""

import math
import random
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logloom.statistics.exact_sums import CHUNK, Dyadic, mean_of, std_of, sums_of
from logloom.statistics.series import (
    MAX_TEXTS,
    merged_lanes,
    merged_numbers,
    numbers_of,
    texts_of,
    whole_numbers_of,
)
from logloom.statistics.summary import MAX_BINS, PERCENTS, histogram, quantiles
from logloom.statistics.value_counts import CELLS, RELATIVE, cells_of, keys_of, merged_cells

ANY = st.floats(width=64)
FINITE = st.floats(allow_nan=False, allow_infinity=False, width=64)
MODEST = st.floats(-1e9, 1e9, width=32)
SHARES = [percent / 100 for percent in PERCENTS]


def spread(kind, count=6000, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "normal": lambda: rng.normal(size=count),
        "uniform, far from zero": lambda: rng.uniform(449_000, 451_000, count),
        "heavy tails": lambda: rng.standard_cauchy(count),
        "many magnitudes": lambda: 10 ** rng.uniform(-200, 200, count) * rng.choice([-1, 1], count),
        "any bits": lambda: np.nan_to_num(rng.integers(-(2**63), 2**63 - 1, count).view(np.float64)),
        "few values": lambda: rng.integers(-20, 20, count) / 4,
        "one value": lambda: np.full(count, 0.3),
        "denormal": lambda: rng.integers(-1000, 1000, count) * 5e-324,
    }[kind]()


KINDS = ["normal", "uniform, far from zero", "heavy tails", "many magnitudes", "any bits"]
KINDS += ["few values", "one value", "denormal"]


@given(st.lists(FINITE, max_size=40))
def test_sums_are_those_of_fractions(values):
    (total,), (squares,) = sums_of(np.array(values, np.float64)[None])
    assert total.fraction == sum(map(Fraction, values))
    assert squares.fraction == sum(Fraction(value) ** 2 for value in values)


@pytest.mark.parametrize("kind", KINDS)
def test_sums_of_many_values_are_those_of_fractions(kind):
    values = spread(kind, CHUNK)
    (total,), (squares,) = sums_of(values[None])
    assert total.fraction == sum(map(Fraction, values.tolist()))
    assert squares.fraction == sum(Fraction(value) ** 2 for value in values.tolist())


@given(st.lists(st.integers(-(2**64), 2**64), min_size=1, max_size=8), st.integers(-1100, 1100))
def test_dyadic_numbers_add_and_read_back(numbers, power):
    parts = [Dyadic.scaled(number, power) for number in numbers]
    total = Dyadic.total(parts)
    assert total.fraction == sum(numbers) * Fraction(2) ** power
    assert Dyadic.parse(str(total)) == total
    assert sorted(parts, key=lambda one: one.fraction) == sorted(parts)


@pytest.mark.parametrize("text", ["", "1", "p1", "1p", "0x1p3", "1p999999", "zp1", "1p1 "])
def test_what_is_no_sum_is_refused(text):
    with pytest.raises(ValueError, match="not a sum"):
        Dyadic.parse(text)


@given(st.lists(st.lists(ANY, max_size=30), min_size=1, max_size=5), st.randoms())
def test_parts_merge_to_the_whole_in_any_order_and_grouping(parts, order):
    whole = numbers_of(np.array([x for part in parts for x in part], np.float64)[None])[0]
    known = [numbers_of(np.array(part, np.float64)[None])[0] for part in parts]
    order.shuffle(known)
    assert merged_numbers(known) == whole
    cut = order.randrange(len(known) + 1)
    halves = [merged_numbers(half) for half in (known[:cut], known[cut:]) if half]
    assert merged_numbers(halves) == whole


@pytest.mark.parametrize("kind", KINDS)
def test_many_values_merge_to_the_whole(kind):
    values = spread(kind)
    whole = numbers_of(values[None])[0]
    shuffled = np.random.default_rng(1).permutation(values)
    for size in (61, 1000, 5000):
        pieces = [shuffled[at : at + size] for at in range(0, len(values), size)]
        assert merged_numbers([numbers_of(piece[None])[0] for piece in pieces]) == whole
    together = numbers_of(np.stack([values, shuffled]))
    assert together == [whole, whole]


@pytest.mark.parametrize("kind", KINDS)
def test_cells_count_the_values_between_their_bounds(kind):
    values = np.sort(spread(kind) + 0.0)
    cells = numbers_of(values[None])[0].cells
    assert len(cells.numbers) <= CELLS
    least, greatest = cells.bounds
    assert (least <= greatest).all()
    assert (greatest[:-1] < least[1:]).all()
    found = np.searchsorted(values, greatest, "right") - np.searchsorted(values, least, "left")
    assert found.tolist() == cells.counts.tolist()
    if cells.level <= RELATIVE:
        wide = np.abs(least) > 1e-300
        assert (
            np.abs(greatest - least)[wide] <= np.minimum(np.abs(least), np.abs(greatest))[wide] / 16
        ).all()


@given(st.lists(st.lists(st.integers(0, 2**16), min_size=1, max_size=300), min_size=2, max_size=4))
def test_cells_of_many_different_values_merge_to_the_same(parts):
    # Spread over all powers of two, so that even 512 cells are too few.
    spread_out = [np.sort((np.array(part, np.int64) << 47).view(np.float64)) for part in parts]
    spread_out = [np.nan_to_num(part, posinf=0.0) + 0.0 for part in spread_out]
    known = [cells_of(np.sort(keys_of(part))[None], np.array([len(part)]))[0] for part in spread_out]
    every = np.concatenate(spread_out)
    whole = cells_of(np.sort(keys_of(every))[None], np.array([len(every)]))[0]
    assert merged_cells(known) == merged_cells(known[::-1]) == whole


@pytest.mark.parametrize("kind", KINDS)
def test_quantiles_are_numpys_within_the_error_that_they_state(kind):
    values = spread(kind)
    found, errors = quantiles(numbers_of(values[None])[0], SHARES)
    with np.errstate(over="ignore", invalid="ignore"):
        expected = np.quantile(values, SHARES)
    for one, error, true in zip(found, errors, expected.tolist(), strict=True):
        if math.isfinite(true):
            assert abs(one - true) <= error * (1 + 1e-12)
    if kind in ("few values", "one value"):
        assert errors == [0.0] * len(SHARES)
        assert found == expected.tolist()


@pytest.mark.parametrize("kind", ["normal", "uniform, far from zero", "heavy tails"])
def test_errors_are_small_against_the_values_or_their_spread(kind):
    values = spread(kind, 60_000)
    found, errors = quantiles(numbers_of(values[None])[0], SHARES)
    width = np.ptp(np.quantile(values, [0.1, 0.9]))
    assert all(error <= max(abs(one) / 14, width / 14) for one, error in zip(found, errors, strict=True))


@given(st.lists(MODEST, min_size=1, max_size=200))
def test_mean_and_std_are_exact_but_for_the_last_bits(values):
    one = numbers_of(np.array(values)[None])[0]
    exact = [Fraction(value) for value in values]
    mean = sum(exact) / len(exact)
    variance = sum((value - mean) ** 2 for value in exact) / len(exact)
    assert mean_of(one.total, one.finite) == float(mean)
    std = std_of(one.total, one.squares, one.finite)
    assert abs(Fraction(std) ** 2 - variance) <= variance * Fraction(1, 2**50)


def test_mean_and_std_of_the_largest_floats_stay_finite():
    one = numbers_of(np.array([[1.7e308, 1.7e308, -1.7e308]]))[0]
    assert mean_of(one.total, 3) == pytest.approx(1.7e308 / 3)
    assert std_of(one.total, one.squares, 3) == pytest.approx(1.7e308 * math.sqrt(8 / 9))


def test_nan_and_infinities_are_counted_apart():
    one = numbers_of(np.array([[np.nan, 1.0, np.inf, -np.inf, -np.inf, 3.0, -0.0, 0.0]]))[0]
    assert (one.count, one.nan, one.below, one.above, one.finite) == (7, 1, 2, 1, 4)
    assert (float(one.low), float(one.high), float(one.total)) == (0.0, 3.0, 4.0)
    assert one.cells.counts.tolist() == [2, 1, 1]
    assert numbers_of(np.full((1, 3), np.nan))[0].low is None
    assert numbers_of(np.empty((2, 0)))[1].count == 0


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=30), st.randoms())
def test_whole_numbers_beyond_those_of_floats_are_exact(values, order):
    whole = whole_numbers_of(np.array(values, np.int64))
    assert (whole.low.fraction, whole.high.fraction) == (min(values), max(values))
    assert whole.total.fraction == sum(values)
    assert whole.squares.fraction == sum(value * value for value in values)
    parts = [whole_numbers_of(np.array([value], np.int64)) for value in values]
    order.shuffle(parts)
    assert merged_numbers(parts) == whole
    found, errors = quantiles(whole, SHARES)
    for one, error, true in zip(found, errors, np.quantile(np.array(values, object), SHARES), strict=True):
        assert abs(one - true) <= error + 1e-12 * abs(true)


@pytest.mark.parametrize("kind", KINDS)
def test_a_histogram_counts_what_lies_between_its_edges(kind):
    values = spread(kind) + 0.0
    found = histogram(numbers_of(values[None])[0].cells)
    edges = np.array(found.edges)
    assert 1 <= len(found.counts) <= MAX_BINS
    assert len(edges) == len(found.counts) + 1
    # An edge belongs to the bin on the far side of zero.
    positive, negative = values[values >= 0], values[values < 0]
    bins = [np.searchsorted(edges, positive, "right") - 1, np.searchsorted(edges, negative, "left") - 1]
    places = np.clip(np.concatenate(bins), 0, len(found.counts) - 1)
    assert np.bincount(places, minlength=len(found.counts)).tolist() == found.counts


@given(st.lists(st.lists(st.sampled_from(["car", "bus", "ü", ""]), max_size=9), min_size=1, max_size=4))
def test_texts_merge_to_the_whole(parts):
    whole = texts_of([text for part in parts for text in part])
    known = [texts_of(part) for part in parts]
    random.Random(0).shuffle(known)
    assert merged_lanes(known) == whole
    assert sum(whole.known.values()) == whole.count


def test_more_different_texts_than_are_kept_are_counted_alone():
    names = [str(number) for number in range(MAX_TEXTS + 1)]
    whole = texts_of(names)
    assert (whole.count, whole.known) == (MAX_TEXTS + 1, None)
    assert merged_lanes([texts_of(names[:9]), texts_of(names[9:])]) == whole
    assert merged_lanes([whole, texts_of(["0"])]).count == MAX_TEXTS + 2
    assert texts_of(["x" * 1000]).known is None
