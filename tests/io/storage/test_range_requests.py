"""Which ranges one request reads."""

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from logloom.io.storage.remote.range_requests import SPARE_SHARE, runs

MOST = 1 << 30


@given(
    sizes=st.lists(st.tuples(st.integers(0, 50), st.integers(-5, 50)), max_size=20), gap=st.integers(0, 30)
)
def test_groups_contain_each_range_once_and_never_go_back(sizes, gap):
    starts, at = [], 10
    for size, between in sizes:
        starts.append(at)
        at += size + between
    stops = [start + size for start, (size, _) in zip(starts, sizes, strict=True)]
    bounds = runs(np.array(starts, np.int64), np.array(stops, np.int64), MOST, gap)
    assert bounds == sorted({0, *bounds, len(sizes)})
    for low, high in itertools.pairwise(bounds):
        for before, after in itertools.pairwise(range(low, high)):
            assert 0 <= starts[after] - stops[before] <= gap


@given(st.lists(st.tuples(st.integers(0, 400), st.integers(1, 400)), max_size=30))
def test_without_a_gap_groups_read_little_in_vain(parts):
    starts, stops, at = [], [], 0
    for gap, length in parts:
        starts.append(at + gap)
        at += gap + length
        stops.append(at)
    bounds = runs(np.array(starts, np.int64), np.array(stops, np.int64), MOST)
    assert bounds == sorted({0, *bounds, len(parts)})
    fetched = sum(stops[high - 1] - starts[low] for low, high in itertools.pairwise(bounds))
    wanted = sum(length for _, length in parts)
    assert wanted <= fetched <= (1 + SPARE_SHARE) * wanted


def test_ranges_that_follow_each_other_are_one_group_up_to_its_limit():
    starts = np.arange(0, 100, 10)
    assert runs(starts, starts + 10, 25) == runs(starts, starts + 10, 25, gap=0) == [0, 2, 4, 6, 8, 10]
    assert runs(starts, starts + 10, 5) == list(range(11))
