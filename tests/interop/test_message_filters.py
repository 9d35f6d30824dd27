"""Matched sets against ROS's own message_filters: its rule as tests state it, and ours where both agree."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.interop.conftest import debian_ros
from tests.resample.matching_reference import approximate_time
from tests.resample.test_sync import JITTER, a_log, found, well_apart


@pytest.fixture(scope="session")
def message_filters():
    """Gives the sets that its ApproximateTimeSynchronizer makes of topics' stamps, in their order."""
    with debian_ros("message_filters_sets.py", "message_filters") as ask:

        def sets(topics, within):
            topics = [[int(stamp) for stamp in stamps] for stamps in topics]
            return [tuple(one) for one in ask({"topics": topics, "within": within})]

        yield sets


@given(st.integers(0, 2**32 - 1), st.sampled_from(["any", "any", "regular", "equal"]))
def test_the_rule_that_ours_is_compared_with_is_that_of_ros(message_filters, seed, kind):
    rng = np.random.default_rng(seed)
    topics = a_log(rng, kind)
    within = int(rng.integers(0, 21))
    assert message_filters(topics, within) == approximate_time(topics, within)


@given(JITTER)
def test_sets_that_lie_well_apart_are_those_of_ros(message_filters, jitter):
    topics = well_apart(jitter)
    sets, _ = found(topics, 0, 40)
    assert len(sets) == len(jitter)
    assert sets == sorted(message_filters(topics, 40))


@pytest.mark.parametrize("lag", [0, 3, 40])
def test_sensors_that_keep_their_lag_give_the_sets_of_ros(message_filters, lag):
    topics = [list(range(start, 10_000, 100)) for start in (100, 100 + lag, 107)]
    sets, _ = found(topics, 0, 45)
    assert len(sets) == 99
    assert sets == message_filters(topics, 45)
