"""Matched sets: against every matching there is, against ROS's rule, and from any stretch of a log."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logloom.io.logs.interface import MAX_TIME, MIN_TIME
from logloom.resample.sync import MAX_TOPICS, match
from tests.resample.matching_reference import approximate_time, key_of, matchings, tightest_first
from tests.tier import examples


def test_a_set_has_of_each_topic_the_message_that_is_nearest_to_its_stamp():
    camera, left, right = np.array([100, 200]), np.array([80, 190]), np.array([85, 95, 105, 112])
    matched = match([camera, left, right], stamp=0, within=50)
    assert matched.sets.tolist() == [[0, 0, 1]]  # the messages at 100, 80 and 95; 200 has none of the right
    assert (matched.first, matched.stop) == (MIN_TIME, MAX_TIME)  # of a whole log all sets are certain


def found(topics, stamp, within, *bounds):
    times = [np.array(one, np.int64) for one in topics]
    result = match(times, stamp, within, *bounds)
    sets = [tuple(int(t[i]) for t, i in zip(times, row, strict=True)) for row in result.sets.tolist()]
    return sets, result


def some_topics(draw, most, num, last):
    distinct = st.lists(st.integers(1, last), max_size=most, unique=True).map(sorted)
    return [draw(distinct) for _ in range(draw(num))]


@settings(max_examples=examples(3))
@given(st.data())
def test_of_all_matchings_the_one_with_the_tightest_sets_is_found(data):
    topics = some_topics(data.draw, 4, st.integers(2, 3), 25)
    stamp, within = data.draw(st.integers(0, len(topics) - 1)), data.draw(st.integers(0, 12))
    last = ((1 << 60,),)  # a matching with one set more comes first

    def order(matching):
        return (*sorted(key_of(one, stamp) for one in matching), *last)

    best = min(matchings(topics, within), key=order)
    assert found(topics, stamp, within)[0] == list(best)


@settings(max_examples=examples(3))
@given(st.data())
def test_sets_are_matched_from_the_tightest_on(data):
    topics = some_topics(data.draw, 9, st.integers(2, 4), 60)
    stamp, within = data.draw(st.integers(0, len(topics) - 1)), data.draw(st.integers(0, 25))
    sets, _ = found(topics, stamp, within)
    assert sets == tightest_first(topics, stamp, within)
    for a, b in itertools.pairwise(sets):
        assert all(x < y for x, y in zip(a, b, strict=True))


def a_log(rng, kind):
    """Times of two or three topics: anywhere, or at steps of their own, or at one step."""
    num, length = rng.integers(2, 4), int(rng.integers(20, 120))
    if kind == "any":
        return [np.unique(rng.integers(1, length, rng.integers(1, 30))).tolist() for _ in range(num)]
    steps = rng.integers(3, 16, num) if kind == "regular" else [int(rng.integers(3, 16))] * num
    return [list(range(int(rng.integers(0, 6)), length, int(step))) for step in steps]


@settings(max_examples=examples(3))
@given(st.integers(0, 2**32 - 1), st.sampled_from(["any", "any", "regular", "equal"]))
def test_what_a_stretch_calls_certain_is_what_the_whole_log_matches(seed, kind):
    rng = np.random.default_rng(seed)
    topics = a_log(rng, kind)
    stamp, within = int(rng.integers(0, len(topics))), int(rng.integers(0, 21))
    whole, _ = found(topics, stamp, within)
    start = int(rng.choice([MIN_TIME, *rng.integers(0, 80, 4)]))
    stop = int(rng.choice([MAX_TIME, *rng.integers(max(start, 0), 120, 4)]))
    known = [[t for t in times if start <= t and (t < stop or stop == MAX_TIME)] for times in topics]
    sets, result = found(known, stamp, within, start, stop)
    certain = [one for one in whole if result.first <= one[stamp] < result.stop]
    assert [one for one in sets if result.first <= one[stamp] < result.stop] == certain
    if start == MIN_TIME and stop == MAX_TIME:
        assert (result.first, result.stop) == (MIN_TIME, MAX_TIME)


def test_an_uncertain_message_makes_all_of_its_sets_uncertain_one_after_the_other():
    topics = [
        [1, 18, 19, 25, 33],
        [4, 7, 9, 10, 12, 17, 18, 19, 20, 22, 24, 29, 31, 34, 37, 38, 41],
        [1, 2, 17, 21, 36, 38],
    ]
    known = [[t for t in times if 11 <= t < 39] for times in topics]
    assert (25, 24, 21) not in found(topics, 0, 9)[0]
    sets, result = found(known, 0, 9, 11, 39)
    assert not any(result.first <= one[0] < result.stop for one in sets if one == (25, 24, 21))


@pytest.mark.parametrize("within", [50, 120, 350])
def test_a_few_times_within_beside_a_stretch_suffice_where_sensors_keep_their_lag(within):
    topics = [list(range(lag, 10_000, 100)) for lag in (0, 3, 7)]
    start, stop = 5000 - 4 * within - 1, 6000 + 4 * within + 1
    known = [[t for t in times if start <= t < stop] for times in topics]
    _, result = found(known, 0, within, start, stop)
    assert result.first <= 5000
    assert result.stop >= 6000


def test_two_messages_are_not_matched_across_two_that_are():
    assert found([[10, 20], [0, 10]], 0, 50)[0] == [(10, 10)]  # 20 and 0 would cross


def test_topics_of_any_rate_share_the_rows_of_the_slowest():
    fast, slow = list(range(0, 1000, 33)), list(range(5, 1000, 100))
    sets, _ = found([fast, slow], 1, 50)
    assert [b for _, b in sets] == slow
    assert all(abs(a - b) <= 16 for a, b in sets)


def test_times_at_the_edges_of_int64_are_matched():
    last = MAX_TIME - 1
    assert found([[MIN_TIME + 1, last], [MIN_TIME + 2, last - 1]], 0, 10**17)[0] == [
        (MIN_TIME + 1, MIN_TIME + 2),
        (last, last - 1),
    ]


def test_as_many_topics_as_a_recipe_may_name_are_matched():
    far = 10 * 366 * 86_400 * 10**9
    topics = [[k, far - k] for k in range(MAX_TOPICS)]
    assert len(found(topics, 0, far)[0]) == 2


JITTER = st.lists(st.lists(st.integers(-9, 9), min_size=2, max_size=3), min_size=1, max_size=20)


def well_apart(jitter):
    """Times of as many topics as the first jitter has: steps of 100, with their own jitter."""
    return [[100 * i + own[k % len(own)] for i, own in enumerate(jitter, 1)] for k in range(len(jitter[0]))]


@given(JITTER)
def test_sets_that_lie_well_apart_are_those_of_ros(jitter):
    topics = well_apart(jitter)
    assert found(topics, 0, 40)[0] == sorted(approximate_time(topics, 40))


@settings(max_examples=examples(3))
@given(st.data())
def test_the_tightest_set_is_never_wider_than_that_of_ros(data):
    topics = some_topics(data.draw, 12, st.integers(2, 3), 80)
    within = data.draw(st.integers(0, 25))
    ours, theirs = found(topics, 0, within)[0], approximate_time(topics, within)
    if theirs:
        assert min(max(s) - min(s) for s in ours) <= min(max(s) - min(s) for s in theirs)
