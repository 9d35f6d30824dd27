import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logloom.io.logs.recording_times import (
    DAY,
    HOUR,
    SECOND,
    YEAR_2000,
    Entries,
    MessageRun,
    MessageTimes,
    RecordedTime,
    recorded,
    split_strays,
)

T0 = 1_700_000_000 * SECOND


def every(period, count, start=T0):
    return start + np.arange(count, dtype=np.int64) * period


def of(**topics):
    """The times of messages of topics, each in the order of the file, without a common order."""
    return recorded(MessageTimes.of({f"/{name}": np.array(t, np.int64) for name, t in topics.items()}))


def in_file(messages, size=1000, split=()):
    """The facts of messages [(topic, time)] in the order of the file, in chunks of `size`, and which of
    these were looked into."""
    names = sorted({topic for topic, _ in messages})
    numbers = np.array([names.index(topic) for topic, _ in messages], np.int64)
    times = np.array([time for _, time in messages], np.int64)
    edges = sorted({*range(0, len(messages), size), *split})
    looked = []

    def look(number):
        looked.append(number)
        stop = edges[number + 1] if number + 1 < len(edges) else len(messages)
        rows = slice(edges[number], stop)
        return Entries(numbers[rows], times[rows], np.arange(len(messages))[rows])

    parts = [slice(a, b) for a, b in itertools.pairwise([*edges, len(messages)])]
    shares = [
        (i, topic, int((numbers[part] == topic).sum()))
        for i, part in enumerate(parts)
        for topic in np.unique(numbers[part]).tolist()
    ]
    stretch, topic, count = np.array(shares, np.int64).T
    found = MessageTimes(
        names,
        np.array([times[part].min() for part in parts]),
        np.array([times[part].max() for part in parts]),
        np.zeros(len(parts), np.int64),
        stretch,
        topic,
        count,
        np.array([times[parts[i]].min() for i in stretch.tolist()]),
        np.full(len(stretch), -1),
        look,
    )
    return recorded(found), sorted(set(looked))


def extent(facts):
    return facts.first, facts.last


# --- runs and strays


def test_messages_an_hour_apart_are_one_run_and_further_apart_two():
    assert len(of(x=[T0, T0 + HOUR]).runs) == 1
    facts = of(x=[T0, T0 + HOUR + 1])
    assert (len(facts.runs), facts.strays) == (2, ())
    assert facts.silences == ((T0, T0 + HOUR + 1),)


def test_one_message_at_time_zero_is_a_stray():
    facts = of(event=[0], x=every(SECOND // 10, 100))
    assert extent(facts) == (T0, T0 + 99 * SECOND // 10)
    (stray,) = facts.strays
    assert (stray.run, stray.reason) == (
        MessageRun(0, 0, {"/event": 1}),
        "logged before the year 2000, unlike the rest",
    )
    assert (facts.num_strays("/event"), facts.num_strays("/x")) == (1, 0)


def test_a_night_in_1970_is_a_stray_however_long_it_is():
    facts = of(x=[*every(SECOND, 3000, 0), *every(SECOND, 100)])
    assert extent(facts) == (T0, T0 + 99 * SECOND)
    assert facts.strays[0].run.size == 3000


def test_a_log_that_lies_in_1970_as_a_whole_is_as_it_is():
    facts = of(x=every(SECOND, 100, 0))
    assert (extent(facts), facts.strays) == ((0, 99 * SECOND), ())


def test_one_message_years_ahead_is_a_stray():
    facts = of(x=[*every(SECOND // 10, 100), T0 + 40 * 365 * DAY])
    assert extent(facts) == (T0, T0 + 99 * SECOND // 10)
    assert facts.strays[0].reason == "logged 14,599 days after the rest"


@pytest.mark.parametrize(("count", "strays"), [(3, 3), (4, 0), (100, 0)])
def test_up_to_three_messages_are_strays_of_any_log(count, strays):
    facts = of(x=[*every(SECOND, 200), *every(SECOND, count, T0 + 3 * DAY)])
    assert facts.num_strays("/x") == strays


@pytest.mark.parametrize(("count", "strays"), [(20, 20), (21, 0)])
def test_one_percent_of_a_long_log_are_strays(count, strays):
    facts = of(x=[*every(SECOND, 1980, T0 + 3 * DAY), *every(SECOND, count)])
    assert facts.num_strays("/x") == strays


def test_a_few_messages_within_a_day_are_part_of_the_recording():
    facts = of(x=[T0, *every(SECOND, 1000, T0 + DAY)])
    assert (extent(facts), facts.strays) == ((T0, T0 + DAY + 999 * SECOND), ())


def test_a_message_a_day_is_no_row_of_strays():
    facts = of(x=every(2 * DAY, 50))
    assert (len(facts.runs), facts.strays) == (50, ())


def test_a_stray_between_two_long_runs_is_found():
    facts = of(x=[*every(SECOND, 500), T0 + 2 * DAY, *every(SECOND, 500, T0 + 4 * DAY)])
    assert [stray.run.first for stray in facts.strays] == [T0 + 2 * DAY]
    assert len(facts.runs) == 2


def test_static_topics_alone_are_no_stray_and_move_no_extent():
    facts = of(**{"tf_static": [0], "robot/tf_static": [T0 - 40 * DAY], "x": every(SECOND, 10)})
    assert (extent(facts), facts.strays) == ((T0, T0 + 9 * SECOND), ())
    assert of(tf_static=[5, 7]).runs == (MessageRun(5, 7, {"/tf_static": 2}),)


def test_a_log_without_messages_has_no_runs():
    assert recorded(MessageTimes.of({})) == RecordedTime(())
    assert of(x=[]) == RecordedTime(())


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 30), st.sampled_from("ab")), max_size=30),
    st.integers(1, 7),
)
def test_runs_are_those_of_single_messages_however_a_file_is_cut_into_chunks(messages, size):
    messages = [(topic, T0 + hours * HOUR + 60 * SECOND * minutes) for hours, minutes, topic in messages]
    facts = in_file(messages, size)[0] if messages else RecordedTime(())
    times = sorted(time for _, time in messages)
    breaks = [0, *(i + 1 for i, (a, b) in enumerate(itertools.pairwise(times)) if b - a > HOUR)]
    expected = [
        MessageRun(
            times[a],
            times[b - 1],
            {
                topic: n
                for topic in "ab"
                if (n := sum(t == topic and times[a] <= at <= times[b - 1] for t, at in messages))
            },
        )
        for a, b in itertools.pairwise([*breaks, len(times)])
        if times
    ]
    runs, strays = split_strays(expected)
    assert (facts.runs, facts.strays) == (runs, strays)


# --- clocks set back


def test_a_clock_set_back_has_its_size_and_place():
    first, second = every(SECOND // 100, 500), every(SECOND // 100, 500, T0 + 2 * SECOND)
    facts, _ = in_file([("/x", t) for t in [*first, *second]], size=300)
    (found,) = facts.set_backs
    assert (found.position, found.at, found.to) == (500, first[-1], second[0])
    assert found.words == "3 s at 5 s"
    assert found.topics == ("/x",)


def test_a_jump_of_a_second_is_none():
    jumps = [[0, 10, 9, 12], [0, 10, 8.999, 12]]
    found = [in_file([("/x", T0 + int(s * SECOND)) for s in jump])[0].set_backs for jump in jumps]
    assert [len(set_backs) for set_backs in found] == [0, 1]


def interleaved(*series, rate=10):
    """Messages of topics [(time, period)] at their own rates over 20 s of which the last 10 are 5 s back."""
    messages = []
    for topic, period, is_set_back in series:
        for i in range(int(20 / period)):
            at = i * period
            time = at - (5 if is_set_back and at >= 10 else 0)
            messages.append((at, topic, T0 + round(time * SECOND)))
    return [(topic, time) for _, topic, time in sorted(messages)]


def test_most_topics_decide_where_one_has_a_clock_of_its_own():
    facts, _ = in_file(interleaved(("/a", 0.1, True), ("/b", 0.25, True), ("/c", 0.1, False)), size=17)
    (found,) = facts.set_backs
    assert (found.topics, found.words) == (("/a", "/b"), "4.9 s at 9.9 s")
    facts, _ = in_file(interleaved(("/a", 0.1, True), ("/b", 0.25, False), ("/c", 0.1, False)), size=17)
    assert facts.set_backs == ()


def test_a_slow_topic_that_jumps_over_the_place_does_not_hide_it():
    facts, _ = in_file(interleaved(("/a", 0.1, True), ("/slow", 9.9, True)), size=50)
    assert [found.topics for found in facts.set_backs] == [("/a",)]


@pytest.mark.parametrize(("ahead", "count"), [(2, 1), (3, 0)])
def test_a_topic_nearer_to_the_time_before_contradicts(ahead, count):
    messages = interleaved(("/a", 0.1, True), ("/b", 15, False))
    late = T0 + round((5.05 + ahead) * SECOND)  # 2.05 or 3.05 of the 4.9 s between both times of /a
    facts, _ = in_file([*messages[:103], ("/b", late), *messages[103:]])
    assert len(facts.set_backs) == count


def test_two_places_are_two():
    times = [*range(20), *range(10, 30), *range(5, 15)]
    facts, _ = in_file([(topic, T0 + t * SECOND) for t in times for topic in ("/a", "/b")], size=7)
    assert [found.words for found in facts.set_backs] == ["9 s at 19 s", "24 s at 29 s"]
    assert [found.position for found in facts.set_backs] == [40, 80]


@given(
    st.integers(1, 3),
    st.lists(st.lists(st.integers(0, 399), max_size=3, unique=True), max_size=6),
    st.integers(3, 500),
)
def test_topics_of_single_events_do_not_hide_it(regular, events, size):
    # 20 Hz; from the 100th tick on all log times lie 3 s back.
    messages = []
    for i in range(400):
        names = [f"/r{k}" for k in range(regular)] + [f"/e{k}" for k, at in enumerate(events) if i in at]
        messages += [(name, T0 + i * SECOND // 20 - (3 * SECOND if i >= 100 else 0)) for name in names]
    (found,) = in_file(messages, size)[0].set_backs
    step = next(i for i in range(1, len(messages)) if messages[i][1] < messages[i - 1][1])
    assert (found.words, found.position) == ("3 s at 5 s", step)


def test_chunks_sorted_by_topic_are_no_clock_set_back():
    messages = [(topic, t) for topic in ("/a", "/b", "/c") for t in every(SECOND // 10, 200).tolist()]
    facts, looked = in_file(messages, size=5)
    assert (facts.set_backs, looked) == ((), [])


def test_a_stray_in_the_middle_is_no_clock_set_back():
    times = [*every(SECOND, 50), T0 + 400 * DAY, *every(SECOND, 50, T0 + 50 * SECOND), 0, T0 + 100 * SECOND]
    facts, _ = in_file([("/x", t) for t in times], size=10)
    assert (facts.set_backs, len(facts.strays)) == ((), 2)


def test_static_topics_may_lie_in_any_order():
    messages = [("/x", T0), ("/tf_static", T0 + 9 * SECOND), ("/tf_static", T0), ("/x", T0 + SECOND)]
    assert in_file(messages)[0].set_backs == ()


def test_what_a_sidecar_keeps_is_what_was_found():
    times = [0, *range(1_700_000_000, 1_700_000_100), *range(1_700_000_050, 1_700_000_150)]
    facts, _ = in_file([("/x", t * SECOND) for t in times], size=30)
    assert len(facts.strays) == len(facts.set_backs) == 1
    assert RecordedTime.from_data(facts.to_data()) == facts


def test_ordinary_chunks_are_not_looked_into():
    messages = [(topic, t) for t in every(SECOND // 10, 500).tolist() for topic in ("/a", "/b")]
    facts, looked = in_file(messages, size=20)
    assert (extent(facts), facts.set_backs, looked) == ((T0, T0 + 499 * SECOND // 10), (), [])


@given(
    st.lists(st.tuples(st.integers(0, 60), st.sampled_from("ab")), min_size=1, max_size=60),
    st.integers(1, 9),
    st.data(),
)
def test_places_are_the_same_for_one_topic_however_a_file_is_cut_into_chunks(messages, size, data):
    topic = data.draw(st.sampled_from(["a", None]))
    messages = [(topic or name, T0 + time * SECOND // 4) for time, name in messages]
    chunked, _ = in_file(messages, size)
    if topic:
        times = [time for _, time in messages]
        decreases = [i for i, (a, b) in enumerate(itertools.pairwise(times), 1) if a - b > SECOND]
        assert [found.position for found in chunked.set_backs] == decreases
    assert chunked.runs == in_file(messages)[0].runs


def test_the_year_2000_is_when_it_is():
    assert np.datetime64("2000-01-01", "ns").astype(np.int64) == YEAR_2000
