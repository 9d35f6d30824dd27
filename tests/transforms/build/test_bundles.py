"""Bundles: nothing lost, in order, and neither too many nor too much together."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logloom.transforms.build.bundles import bundle_size, bundled, packed, unpacked

MOST_BYTES = 512 << 20


@given(sizes=st.lists(st.integers(0, 2 * MOST_BYTES)), most=st.integers(1, 64))
def test_bundles_hold_all_partitions_in_order_within_both_limits(sizes, most):
    partitions = list(enumerate(sizes))
    bundles = list(bundled(partitions, sizes, most))
    assert [partition for bundle in bundles for partition in bundle] == partitions
    for bundle in bundles:
        assert 1 <= len(bundle) <= most
        assert len(bundle) == 1 or sum(size for _, size in bundle) <= MOST_BYTES


@given(sizes=st.lists(st.integers(0, 2 * MOST_BYTES), min_size=1), most=st.integers(1, 64))
def test_no_bundle_could_have_taken_the_next_partition(sizes, most):
    bundles = list(bundled(sizes, sizes, most))
    for bundle, following in itertools.pairwise(bundles):
        assert len(bundle) == most or sum(bundle) + following[0] > MOST_BYTES


@pytest.mark.parametrize(
    ("partitions", "together"), [(0, 1), (1, 1), (3999, 1), (4000, 2), (100_000, 50), (1_860_000, 64)]
)
def test_small_plans_keep_a_partition_an_element_and_large_ones_enough_elements(partitions, together):
    assert bundle_size(partitions) == together
    assert together == 1 or partitions // together >= 2000


def test_what_is_packed_comes_back_and_repetition_costs_little():
    results = [("a log of some length", number) for number in range(64)]
    assert unpacked(packed(results)) == results
    assert len(packed(results)) < 10 * len(packed(results[:1]))
