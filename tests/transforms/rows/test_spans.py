import itertools
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logloom.errors import LogReadError
from logloom.io.logs.interface import MAX_TIME, MIN_TIME, LogSummary, TopicInfo
from logloom.transforms.rows.plan.row_plan import RateClock, RowPlan, Span, TopicClock
from logloom.transforms.rows.spans import ByteIndex, cut, plan_spans
from logloom.transforms.rows.ticks import tick_range

SECOND = 10**9


def summary(first, last, chunks=(), topics=()):
    chunks = list(chunks) or [(first, last, 1000)]
    return LogSummary(
        ("a.mcap",),
        0,
        "",
        {
            n: TopicInfo(n, "", "cdr", "", b"", c, lo, hi)
            for n, c, lo, hi in topics or [("/x", 9, first, last)]
        },
        first,
        last,
        np.array([[a, b] for a, b, _ in chunks], np.int64),
        np.array([size for *_, size in chunks], np.int64),
    )


def rate_plan(rate, rows=10, size=10**9):
    return RowPlan(RateClock(Decimal(rate)), (), (), (), rows=rows, bytes=size)


def topic_plan(topic="/x", rows=10, size=10**9):
    return RowPlan(TopicClock(topic, ("log",), None), (), (), (), rows=rows, bytes=size)


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 30), st.integers(0, 10**12)), max_size=8), st.data()
)
def test_bytes_of_a_chunk_are_spread_evenly_over_its_time(chunks, data):
    chunks = [(first, first + length, size) for first, length, size in chunks]
    sizes = ByteIndex(summary(0, 100, chunks or [(0, 0, 0)]))
    time = data.draw(st.integers(-5, 90))
    expected = sum(size * min(max(time - a, 0), b - a + 1) // (b - a + 1) for a, b, size in chunks)
    assert sizes.before(time) == expected
    assert sizes.between(MIN_TIME, MAX_TIME) == sum(size for *_, size in chunks)
    stop = data.draw(st.integers(time, 95))
    touched = [a < stop and b >= time for a, b, _ in chunks]
    assert not chunks or sizes.chunks(time, stop) == sum(touched)


def test_partitions_of_a_rate_clock_are_aligned_to_the_epoch():
    spans = plan_spans(summary(7 * SECOND, 31 * SECOND), rate_plan("1", rows=10))
    assert [span.ticks for span in spans] == [(7, 10), (10, 20), (20, 30), (30, 32)]
    assert [span.start for span in spans] == [MIN_TIME, 10 * SECOND, 20 * SECOND, 30 * SECOND]
    assert [span.stop for span in spans] == [10 * SECOND, 20 * SECOND, 30 * SECOND, MAX_TIME]
    assert spans[0].name == "7-10"


def test_only_the_partition_with_too_many_bytes_is_halved():
    chunks = [(0, 10 * SECOND - 1, 100), (10 * SECOND, 20 * SECOND - 1, 400), (20 * SECOND, 29 * SECOND, 100)]
    spans = plan_spans(summary(0, 29 * SECOND, chunks), rate_plan("1", rows=10, size=150))
    assert [span.ticks for span in spans] == [
        (0, 10), (10, 12), (12, 15), (15, 17), (17, 20), (20, 30),
    ]  # fmt: skip


def test_a_partition_of_one_tick_is_not_halved():
    spans = plan_spans(summary(0, 3 * SECOND), rate_plan("1", rows=4, size=1))
    assert [span.ticks for span in spans] == [(0, 1), (1, 2), (2, 3), (3, 4)]


def test_a_topic_clock_is_cut_by_its_mean_period():
    topics = [("/other", 5, 0, 100), ("/x", 11, 33, 83)]  # 5 ns apart, so P = 10 * 50 // 10 = 50
    spans = plan_spans(summary(0, 100, topics=topics), topic_plan(rows=10))
    assert [(span.start, span.stop) for span in spans] == [(MIN_TIME, 50), (50, MAX_TIME)]
    assert spans[1].name == f"50-{MAX_TIME}"


@pytest.mark.parametrize("topics", [[("/x", 1, 5, 5)], [("/x", 4, 5, 5)]])
def test_a_topic_clock_without_period_gives_one_span(topics):
    assert plan_spans(summary(0, 9, topics=topics), topic_plan()) == [Span(MIN_TIME, MAX_TIME)]


def test_bytes_beside_the_clock_topic_are_halved_like_others():
    topics = [("/x", 11, 5000, 5050), ("/y", 50, 0, 9999)]
    spans = plan_spans(summary(0, 9999, [(0, 9999, 100_000)], topics), topic_plan(size=30_000))
    sizes = ByteIndex(summary(0, 9999, [(0, 9999, 100_000)]))
    assert all(sizes.between(span.start, span.stop) <= 30_000 for span in spans)
    assert len(spans) < 10


@pytest.mark.parametrize(
    ("log", "plan"),
    [
        (summary(0, 0, topics=[("/x", 0, 0, 0)]), rate_plan("10")),
        (summary(5, 50), rate_plan("10")),
        (summary(5, 50), topic_plan("/absent")),
        (summary(5, 50, topics=[("/x", 0, 0, 0), ("/y", 2, 5, 50)]), topic_plan()),
    ],
    ids=["no messages", "between two ticks", "no such topic", "no message of the clock"],
)
def test_a_log_without_ticks_has_no_partitions(log, plan):
    assert plan_spans(log, plan) == []


def test_a_log_time_of_zero_in_a_log_of_today_is_refused_instead_of_planned():
    with pytest.raises(LogReadError, match=r"a\.mcap: log times from 0 .* wrong log time"):
        plan_spans(summary(0, 1_700_000_000 * SECOND), rate_plan("100", rows=1000))


CHUNKS = st.lists(
    st.tuples(st.integers(0, 300), st.integers(0, 40), st.integers(0, 500)), min_size=1, max_size=9
)


@given(
    CHUNKS, st.sampled_from(["1e9", "3e8", "29.97e6"]), st.integers(1, 40), st.integers(0, 600), st.booleans()
)
def test_spans_and_their_pieces_share_out_all_time_and_ticks(chunks, rate, rows, size, by_topic):
    chunks = [(a, a + length, n) for a, length, n in chunks]
    first, last = min(a for a, *_ in chunks), max(b for _, b, _ in chunks)
    log = summary(first, last, chunks)
    plan = topic_plan(rows=rows, size=size) if by_topic else rate_plan(rate, rows, size)
    spans = plan_spans(log, plan)
    for parts in [spans, [piece for span in spans for piece in cut(span, plan, log, size)]]:
        if not parts:
            assert not spans
            continue
        assert (parts[0].start, parts[-1].stop) == (MIN_TIME, MAX_TIME)
        assert all(a.stop == b.start for a, b in itertools.pairwise(parts))
        if not by_topic:
            ticks = [k for part in parts for k in range(*part.ticks)]
            assert ticks == list(range(*tick_range(Decimal(rate), first, last)))
    assert len({span.name for span in spans}) == len(spans)
