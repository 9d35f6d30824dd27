"""Rows of any log, under any plan, cut anywhere: equal to those of the slow reference, to the bit."""

import dataclasses
import itertools
import json
import pickle
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logloom.blocks import Lists, Ragged, concatenate, empty
from logloom.errors import LogloomError, LogReadError, UsageError
from logloom.io.logs.interface import MAX_TIME, MIN_TIME, FieldSpec, Refusal
from logloom.schema import BYTES, NO_AGE, STRING, ColumnType
from logloom.testing.rows import assert_equal_values
from logloom.transforms.rows.accounts import Tally, reconcile
from logloom.transforms.rows.derive.columns import derive
from logloom.transforms.rows.plan.row_plan import (
    ColumnPlan,
    DerivedPlan,
    RateClock,
    RowPlan,
    Sampling,
    Span,
    SyncClock,
    TopicClock,
    row_type,
)
from logloom.transforms.rows.row_stream import build_blocks
from logloom.transforms.rows.spans import cut, plan_spans, tick_ranges
from logloom.transforms.rows.ticks import tick_range
from tests.transforms import reference
from tests.transforms.memory_log import MemoryLog, MemoryTopic

MAX_DELAY = 10
HOUR = 3600 * 10**9
OBJECT = np.dtype([("id", "<i4"), ("size", "<f4", (2,))])
TYPES = {
    "vector": ColumnType(np.dtype("<f8"), (2,)),
    "small": ColumnType(np.dtype("<f4")),
    "number": ColumnType(np.dtype("<i4")),
    "large": ColumnType(np.dtype("<u8")),
    "flag": ColumnType(np.dtype("?")),
    "quaternion": ColumnType(np.dtype("<f8"), (4,)),
    "blob": BYTES,
    "text": STRING,
    "object": ColumnType(OBJECT),
    "objects": ColumnType(OBJECT, (None,)),
    "lists": ColumnType(OBJECT, (None, None), "lists"),
}
SINGLE = ["previous", "next", "nearest", "exact", "static"]
WINDOWED = ["window", "all", "first", "last"]
NUMERIC = [*SINGLE, *WINDOWED, "linear", "angle", "mean", "min", "max", "sum", "count"]
POLICIES = {
    **dict.fromkeys(["vector", "small", "number", "large", "flag"], NUMERIC),
    "quaternion": [*NUMERIC, "slerp", "slerp", "slerp", "slerp"],
    "blob": [*SINGLE, "count"],
    "text": [*SINGLE, "count", "window", "all"],
    "object": [*SINGLE, *WINDOWED, "count"],
    "objects": [*SINGLE, "count"],
    "lists": [*SINGLE, "count"],
}


def values_of(field, rng, n):
    """N values of a field, odd ones among them."""
    ctype = TYPES[field]
    if ctype.kind == "string":
        words = ["", "car", "bicycle", "Bus Ⅱ", "ä" * 32]
        return Ragged.from_bytes([str(word).encode() for word in rng.choice(words[: rng.choice([3, 5])], n)])
    if ctype.kind == "lists":
        counts = rng.integers(0, 4, n)
        lengths = rng.integers(0, 3, counts.sum())
        values = np.frombuffer(rng.bytes(int(lengths.sum()) * ctype.dtype.itemsize), ctype.dtype)
        return Lists(values, counts, lengths)
    if ctype.is_ragged:
        lengths = rng.integers(0, 4, n)
        rows = [np.frombuffer(rng.bytes(int(k) * ctype.dtype.itemsize), ctype.dtype) for k in lengths]
        if n and rng.random() < 0.5:
            return Ragged(np.concatenate(rows), lengths)
        return Ragged.from_rows(rows, ctype)
    if ctype.dtype.names:
        return np.frombuffer(rng.bytes(n * ctype.dtype.itemsize), ctype.dtype)
    if ctype.dtype.kind == "f":
        values = rng.choice([0.0, -0.0, 1.5, -3.0, 0.1, 1e300, 2.5], (n, *ctype.shape))
        values = np.where(rng.random(values.shape) < 0.4, rng.normal(size=values.shape) * 4, values)
        odd = np.array([np.nan, np.inf, -np.inf, np.uint64(0xFFF8000000000123).view(np.float64)])
        values = np.where(rng.random(values.shape) < 0.06, rng.choice(odd, values.shape), values)
        if field == "quaternion":
            values[rng.random(n) < 0.2] = 0
        with np.errstate(over="ignore"):
            return values.astype(ctype.dtype)
    return rng.integers(0, 2 if ctype.dtype.kind == "b" else 2**31 - 1, (n, *ctype.shape)).astype(ctype.dtype)


# Hypothesis likes small and equal choices, which leave most policies untried; a seed spreads them evenly.
SEEDS = st.integers(0, 2**32 - 1)
TOPICS = ("/a", "/b", "/c")


def a_random_log(rng):
    """Few topics of few messages: late, out of order, with equal stamps, some of them refused."""
    topics = {}
    offset = rng.choice([0, 0, 1_600_000_000 * 10**9])
    for i, name in enumerate(TOPICS[: rng.choice([3, 3, 2, 1])]):
        n = rng.choice([25, 10, 60, 60, 1, 0])
        stamps = rng.integers(1, rng.choice([81, 21]), n) + offset
        if rng.random() < 0.5:
            stamps.sort()
        log_times = np.maximum(1, stamps + rng.integers(-3, MAX_DELAY + 1, n))
        log_times = np.where(rng.random(n) < 0.05, stamps + 25, log_times)
        stamps = np.where(rng.random(n) < 0.05, 0, stamps)
        fields = {field: (ctype, values_of(field, rng, n)) for field, ctype in TYPES.items()}
        topics[name] = MemoryTopic(stamps, log_times, np.arange(n) * 7 + i, fields)
    if rng.random() < 0.4:
        for _ in range(rng.integers(1, 4)):
            let_clock_leap(topics, int(offset), rng)
    return MemoryLog(topics)


def let_clock_leap(topics, offset, rng):
    """Moves the messages after some time, or single ones, by hours, days or decades, or to 1970."""
    leap = int(rng.choice([HOUR + 1000, 20 * HOUR, 70 * HOUR, 40 * 9000 * HOUR, -offset]))
    place, is_lonely = int(rng.integers(0, 81)), rng.random() < 0.4
    for topic in topics.values():
        times = topic.log_times
        moved = rng.random(len(times)) < 0.04 if is_lonely else times - offset > place
        moved &= times + leap > 0
        for each in (times, topic.stamps):
            each[moved & (each != 0)] += leap


def a_random_column(name, rng):
    field = rng.choice(sorted(TYPES))
    policy = rng.choice(POLICIES[field])
    start = -int(rng.choice([4, 10, 30]) * rng.random())
    window = (start, start + int(rng.choice([-start, -start, 5])))
    offset = int(rng.choice([0, 0, -7, 3, 40]))
    sampling = Sampling(str(policy), int(rng.integers(0, 13)), window, offset)
    can_halve = policy in ("linear", "mean") and TYPES[field].dtype != "<f8"  # whose 1e300 don't fit float32
    dtype = "f4" if can_halve and rng.random() < 0.5 else None
    return ColumnPlan(
        name,
        str(rng.choice(TOPICS)),
        FieldSpec((str(field),)),
        sampling,
        TYPES[field],
        row_type(TYPES[field], policy, dtype),
        ("header",),
        MAX_DELAY,
    )


def a_random_sync(rng):
    topics = tuple(rng.permutation(TOPICS).tolist()[: rng.choice([2, 3])])
    times = (("header",),) * len(topics)
    return SyncClock(topics, times, str(rng.choice(topics)), int(rng.choice([0, 2, 5, 10, 30])), MAX_DELAY)


def matched(column, clock):
    """The column as a recipe plans it that stands on a synced topic."""
    if column.topic not in clock.topics or column.sampling.rules.uses != "one":
        return column
    ctype = row_type(column.message_type, "matched", None)
    return dataclasses.replace(column, sampling=Sampling("matched", clock.within), ctype=ctype)


def a_random_plan(rng, clocks=("rate", "topic", "sync")):
    columns = tuple(a_random_column(f"c{i}", rng) for i in range(rng.integers(1, 6)))
    names = tuple(c.name for c in columns)
    clock, kind = TopicClock(str(rng.choice(TOPICS)), ("header",), MAX_DELAY), str(rng.choice(clocks))
    if kind == "sync":
        clock = a_random_sync(rng)
        columns = tuple(matched(column, clock) for column in columns)
    elif kind == "rate":
        clock = RateClock(Decimal(str(rng.choice(["1e9", "1e8", "3e8", "29.97e6"]))))
    require = tuple(str(name) for name in rng.choice(names, rng.choice([0, 0, 0, 1]), replace=False))
    rows, size = int(rng.choice([1, 9, 100, 100])), int(rng.choice([50, 1000, 10**6, 10**6]))
    return RowPlan(clock, columns, (), names, require=require, rows=rows, bytes=size)


def built(log, plan, spans, max_bytes, on_error="fail"):
    """All rows of a log's spans as one column each, and the tallies."""
    columns, tallies = {name: [] for name in ["timestamp", *plan.schema.all]}, []
    for span in spans:
        stream = build_blocks(log, "log", plan, span, max_bytes=max_bytes, on_error=on_error)
        first = 0
        for block in stream:
            assert len(block) > 0
            assert block.first_row == first
            assert list(block.columns) == ["timestamp", *plan.schema.all]
            first += len(block)
            for name, values in block.columns.items():
                columns[name].append(values)
        tally = Tally.from_json(json.loads(json.dumps(stream.tally.to_json())))
        assert tally == stream.tally == pickle.loads(pickle.dumps(tally))
        assert tally.rows == first
        tallies.append(tally)
    joined = {name: concatenate(parts) if parts else None for name, parts in columns.items()}
    return joined, tallies


def check_rows(columns, expected, plan):
    """Compares bits, dtypes and shapes with the reference's rows."""
    if not expected:
        assert columns["timestamp"] is None
        return
    assert columns["timestamp"].tolist() == [row["timestamp"] for row in expected]
    for name, ctype in plan.schema.columns.items():
        assert columns[name].dtype == ctype.dtype
        assert columns[f"{name}.age"].tolist() == [row[f"{name}.age"] for row in expected]
        assert columns[f"{name}.available"].tolist() == [row[f"{name}.available"] for row in expected]
        for found, row in zip(columns[name], expected, strict=True):
            value = empty(ctype, 1)[0] if row[name] is None else row[name]
            if ctype.kind == "lists":
                assert_equal_values(found, value)
                continue
            with np.errstate(all="ignore"):
                value = np.asarray(value, ctype.dtype)
            found = np.asarray(found)
            assert found.shape == value.shape, name
            assert found.tobytes() == value.tobytes(), (name, found, value)


def check_sums(log, plan, tallies, used):
    accounts = reconcile(plan, log.summary, tallies)
    for column in plan.columns:
        if column.topic not in log.topics:
            assert column.topic not in accounts
            continue
        topic, account = accounts[column.topic], accounts[column.topic].columns[column.name]
        assert account.used == len(used[column.name])
        assert topic.messages == account.used + account.not_chosen + account.refused
        if column.sampling.policy != "static" and tallies:
            good = len(reference.usable(log, column.topic, column))
            if column.sampling.policy == "slerp":
                good = len(reference._messages(log, column))
            assert account.refused == topic.messages - good


@given(SEEDS)
def test_any_log_under_any_plan_gives_the_rows_of_the_reference(seed):
    rng = np.random.default_rng(seed)
    log, plan = a_random_log(rng), a_random_plan(rng)
    max_bytes = int(rng.choice([1, 150, 2000, 10**6, 10**6]))
    expected, used = reference.rows_of(log, plan)
    spans = plan_spans(log.summary, plan)
    columns, tallies = built(log, plan, spans, max_bytes)
    check_rows(columns, expected if spans else [], plan)
    if spans:
        check_sums(log, plan, tallies, used)
    else:
        assert not expected
        reconcile(plan, log.summary, [])


@given(
    SEEDS,
    st.lists(st.integers(-20, 120), unique=True, max_size=6),
    st.sampled_from([1, 10**5]),
    st.sampled_from(["rate", "topic", "sync", "sync"]),
)
def test_rows_do_not_depend_on_where_spans_are_cut(seed, cuts, max_bytes, clock):
    rng = np.random.default_rng(seed)
    log, plan = a_random_log(rng), a_random_plan(rng, (clock,))
    expected, used = reference.rows_of(log, plan)
    if log.summary.num_messages == 0:
        return
    base = min(int(t.log_times.min()) for t in log.topics.values() if len(t.log_times))
    runs = [run.first for run in log.summary.recorded.runs]
    bounds = {b for start in (base, *runs) for c in cuts if (b := start + c) not in runs}
    spans = [Span(*pair) for pair in itertools.pairwise([MIN_TIME, *sorted(bounds), MAX_TIME])]
    if isinstance(plan.clock, RateClock):
        ranges = tick_ranges(log.summary, plan)
        starts = {one.start for one in ranges[1:]}
        bounds = [MIN_TIME, *sorted(bounds | starts), MAX_TIME]
        spans = []
        for start, stop in itertools.pairwise(bounds):
            own = [one for one in ranges if one.start <= start] or ranges[:1]
            if not own:
                continue
            first, end, _ = own[-1]
            k0, k1 = (min(max(tick_range(plan.clock.rate, b, b)[0], first), end) for b in (start, stop))
            spans.append(Span(start, stop, (k0, k1)))
        if not spans:
            return
    columns, tallies = built(log, plan, spans, max_bytes)
    check_rows(columns, expected, plan)
    check_sums(log, plan, tallies, used)


@given(SEEDS)
def test_a_message_that_does_not_decode_is_replaced_by_none_and_left_out_of_windows(seed):
    rng = np.random.default_rng(seed)
    log, plan = a_random_log(rng), a_random_plan(rng)
    for topic in log.topics.values():
        topic.broken = rng.random(len(topic.stamps)) < rng.choice([0.05, 0.3])
    expected, used = reference.rows_of(log, plan)
    spans = plan_spans(log.summary, plan)
    columns, tallies = built(log, plan, spans, int(rng.choice([1, 2000, 10**6])), on_error="salvage")
    check_rows(columns, expected if spans else [], plan)
    accounts = reconcile(plan, log.summary, tallies)
    for column in plan.columns if spans else ():
        if column.topic in log.topics:
            topic, account = accounts[column.topic], accounts[column.topic].columns[column.name]
            assert account.used == len(used[column.name])
            assert topic.messages == account.used + account.not_chosen + account.refused


@pytest.mark.parametrize("rows", [3, 5])  # of which a block begins beside the lost message
@pytest.mark.parametrize("policy", ["linear", "angle", "slerp"])
def test_interpolation_takes_no_neighbour_instead_of_a_message_that_does_not_decode(policy, rows):
    log = a_log()
    topic = log.topics["/odom"]
    quaternion = ColumnType(np.dtype("<f8"), (4,))
    topic.fields["turn"] = (quaternion, np.linspace([0.0, 0.0, 0.0, 1.0], [0.5, 0.5, 0.5, 0.5], 20))
    columns = (column("turn", "/odom", "turn", quaternion, policy, tolerance=10**9),)
    plan = RowPlan(RateClock(Decimal(20)), columns, (), ("turn",), rows=rows)
    whole, _ = built(log, plan, plan_spans(log.summary, plan), 10**6)
    topic.broken = np.arange(20) == 7  # at 800 ms
    found, tallies = built(log, plan, plan_spans(log.summary, plan), 10**6, on_error="salvage")
    lost = found["timestamp"][~found["turn.available"]]
    assert lost[(lost > 100_000_000) & (lost < 2_000_000_000)].tolist() == [750000000, 800000000, 850000000]
    assert np.isnan(found["turn"][~found["turn.available"]]).all()
    np.testing.assert_array_equal(
        found["turn"][found["turn.available"]], whole["turn"][found["turn.available"]]
    )
    assert reconcile(plan, log.summary, tallies)["/odom"].columns["turn"].refused == 1


@pytest.mark.parametrize("max_delay", [10**6, None])
def test_sets_far_from_any_certain_one_are_matched_as_in_the_whole_log(max_delay):
    # Each set is tighter than the one before it, so that each depends on the next: the halo has to grow.
    gaps = np.arange(400, 0, -1)
    times = 1000 + np.cumsum(gaps)
    fields = {"number": (TYPES["number"], np.arange(200, dtype="<i4"))}
    topics = {
        name: MemoryTopic(times[k::2], times[k::2], np.arange(200) * 2 + k, fields)
        for k, name in enumerate(("/a", "/b"))
    }
    log = MemoryLog(topics)
    clock = SyncClock(("/a", "/b"), (("header",),) * 2, "/b", 450, max_delay)
    number = TYPES["number"]
    columns = tuple(
        ColumnPlan(
            name,
            f"/{name}",
            FieldSpec(("number",)),
            Sampling("matched", 450),
            number,
            number,
            ("header",),
            max_delay,
        )
        for name in ("a", "b")
    )
    plan = RowPlan(clock, columns, (), ("a", "b"))
    expected, used = reference.rows_of(log, plan)
    bounds = [MIN_TIME, 20_000, 40_000, 60_000, MAX_TIME]
    rows, tallies = built(log, plan, [Span(*pair) for pair in itertools.pairwise(bounds)], 10**6)
    check_rows(rows, expected, plan)
    check_sums(log, plan, tallies, used)
    assert len(expected) > 100


def a_log(**changes):
    """Odometry at 10 Hz with a speed and a name, a camera at 5 Hz, 2 s of both."""
    odometry = np.arange(1, 21) * 100_000_000
    camera = np.arange(1, 11) * 200_000_000
    frames = Ragged.from_bytes([bytes([i]) * 1000 for i in range(10)])
    topics = {
        "/odom": MemoryTopic(
            odometry, odometry + 1000, np.arange(20) * 3, {"speed": (SPEED, np.arange(20.0))}
        ),
        "/cam": MemoryTopic(camera, camera + 5000, np.arange(10) * 6 + 1, {"data": (BYTES, frames)}),
    }
    return MemoryLog(topics, **changes)


SPEED = ColumnType(np.dtype("<f8"))
FAST = ColumnType(np.dtype("?"))


def column(name, topic, field, ctype, policy="previous", **sampling):
    sampling.setdefault("tolerance", 100_000_000)
    return ColumnPlan(
        name, topic, FieldSpec((field,)), Sampling(policy, **sampling), ctype,
        row_type(ctype, policy, None), ("header",), 10**9,
    )  # fmt: skip


@derive
def is_fast(rows):
    return rows["speed"] > 10


@derive
def is_fast_and_seen(rows):
    return rows["fast"] & rows["camera.available"]


def a_plan(**changes):
    columns = (column("speed", "/odom", "speed", SPEED), column("camera", "/cam", "data", BYTES))
    derived = (
        DerivedPlan("both", f"{__name__}:is_fast_and_seen", (), ("fast", "camera.available"), FAST),
        DerivedPlan("fast", f"{__name__}:is_fast", (), ("speed",), FAST),
    )
    order = ("both", "fast", "speed", "camera")
    return RowPlan(RateClock(Decimal(10)), columns, derived, order, **changes)


def test_derived_columns_may_stand_on_each_other_in_any_order():
    columns, _ = built(a_log(), a_plan(), plan_spans(a_log().summary, a_plan()), 10**6)
    assert columns["fast"].tolist() == (columns["speed"] > 10).tolist()
    assert columns["both"].tolist() == (columns["fast"] & columns["camera.available"]).tolist()


def test_columns_derived_in_a_circle_are_refused():
    plan = a_plan()
    circle = tuple(
        DerivedPlan(name, f"{__name__}:is_fast", (), (other,), FAST)
        for name, other in [("both", "fast"), ("fast", "both")]
    )
    plan = RowPlan(plan.clock, plan.columns, circle, plan.order)
    with pytest.raises(UsageError, match="derived from each other: both from fast from both"):
        list(build_blocks(a_log(), "log", plan, plan_spans(a_log().summary, plan)[0], max_bytes=10**6))


@pytest.mark.parametrize("max_bytes", [1, 5000, 10**6])
def test_dropped_ticks_are_counted_by_the_first_reason(max_bytes):
    log, plan = (
        a_log(),
        a_plan(require=("camera",), where="fast and available(camera) and speed != 15", rows=6),
    )
    columns, tallies = built(log, plan, plan_spans(log.summary, plan), max_bytes)
    everything, _ = built(log, a_plan(), plan_spans(log.summary, a_plan()), 10**6)
    seen = everything["camera.available"]
    kept = seen & everything["fast"] & (everything["speed"] != 15)
    assert columns["timestamp"].tolist() == everything["timestamp"][kept].tolist()
    dropped = [sum(t.dropped.get(reason, 0) for t in tallies) for reason in ("require camera", "where")]
    assert dropped == [(~seen).sum(), (seen & ~kept).sum()]
    accounts = reconcile(plan, log.summary, tallies)
    assert accounts["/odom"].columns["speed"].used == kept.sum()  # dropped ticks use nothing


@pytest.mark.parametrize(
    ("where", "keep"),
    [
        ("camera.age < 30ns", lambda c: c["camera.available"] & (c["camera.age"] < 30)),
        ("abs(speed - 12) * 2 <= 6", lambda c: np.abs(c["speed"] - 12) * 2 <= 6),
        (
            "len(camera) * 2 == 2000 and timestamp >= '1970-01-01T00:00:01'",
            lambda c: (c["camera"].shapes[:, 0] == 1000) & (c["timestamp"] >= 10**9),
        ),
    ],
)
def test_filters_of_ticks_calculate(where, keep):
    log, plan = a_log(), a_plan(where=where, rows=6)
    columns, _ = built(log, plan, plan_spans(log.summary, plan), 10**6)
    everything, _ = built(log, a_plan(), plan_spans(log.summary, a_plan()), 10**6)
    kept = keep(everything)
    assert 0 < kept.sum() < len(kept)
    assert columns["timestamp"].tolist() == everything["timestamp"][kept].tolist()


@pytest.mark.parametrize("where", ["gear == 0", "not gear == 1", "gear in (0, 1)", "gear - 1 < 0"])
def test_ticks_without_a_whole_number_pass_no_filter_of_it(where):
    stamps = np.arange(1, 11) * 200_000_000
    gears = ColumnType(np.dtype("<i4"))
    log = MemoryLog(
        {"/gear": MemoryTopic(stamps, stamps, np.arange(10), {"gear": (gears, np.zeros(10, "<i4"))})}
    )
    columns = (column("gear", "/gear", "gear", gears, tolerance=10_000_000),)
    everything, passing = (
        RowPlan(RateClock(Decimal(10)), columns, (), ("gear",), rows=6, **filters)
        for filters in ({}, {"where": where})
    )
    found, _ = built(log, passing, plan_spans(log.summary, passing), 10**6)
    stored, _ = built(log, everything, plan_spans(log.summary, everything), 10**6)
    assert found["timestamp"].tolist() == stamps.tolist()
    assert len(stored["timestamp"]) > len(stamps)
    assert not stored["gear"].any()  # what is missing is stored as 0


def test_images_of_dropped_ticks_are_not_decoded():
    log, plan = a_log(), a_plan(where="speed == 12")
    taken = []
    read = log.read

    def counting_read(requests):
        messages = read(requests)
        camera, take = messages["/cam"], messages["/cam"].take
        camera.take = lambda spec, rows: taken.extend(rows) or take(spec, rows)
        return messages

    log.read = counting_read
    columns, _ = built(log, plan, plan_spans(log.summary, plan), 10**6)
    assert columns["speed"].tolist() == [12]
    assert len(taken) == 1


def test_blocks_stay_within_their_bytes_and_pieces_read_only_their_halo():
    log, plan = a_log(), a_plan(rows=1000)
    (span,) = plan_spans(log.summary, plan)
    sizes = [block.nbytes for block in build_blocks(log, "log", plan, span, max_bytes=2500)]
    assert max(sizes) <= 2500
    pieces = cut(span, plan, log.summary, 500)
    log.requests.clear()
    list(build_blocks(log, "log", plan, span, max_bytes=500))
    assert len(log.requests) == len(pieces) > 3
    for piece, requests in zip(pieces[1:-1], log.requests[1:-1], strict=True):
        assert requests["/cam"].start == piece.start - 100_000_000
        assert requests["/cam"].stop == piece.stop


def test_a_damaged_log_stops_under_fail_and_is_counted_under_salvage():
    log, plan = a_log(), a_plan()
    log.topics["/odom"].stamps[3] = 0
    _, tallies = built(log, plan, plan_spans(log.summary, plan), 10**6)
    account = reconcile(plan, log.summary, tallies)["/odom"]
    assert (account.messages, account.refused) == (20, 1)
    assert account.columns["speed"].not_chosen == 1  # the first lies before the first tick
    assert [refusal.position for tally in tallies for refusal in tally.refusals] == [9]
    log.on_error = "fail"
    with pytest.raises(LogReadError):
        built(log, plan, plan_spans(log.summary, plan), 10**6)


def test_sums_that_do_not_meet_stop_the_build():
    log, plan = a_log(), a_plan(rows=5)
    _, tallies = built(log, plan, plan_spans(log.summary, plan), 10**6)
    reconcile(plan, log.summary, tallies)
    log.topics["/odom"].log_times = np.append(log.topics["/odom"].log_times, 5)  # one that no one read
    log.topics["/odom"].stamps = np.append(log.topics["/odom"].stamps, 5)
    log.topics["/odom"].positions = np.append(log.topics["/odom"].positions, 999)
    with pytest.raises(
        LogloomError, match=r"ticks by its extent|has 21 messages by the index, but 20 were read"
    ):
        reconcile(plan, log.summary, tallies)
    with pytest.raises(LogloomError, match="one is missing"):
        reconcile(plan, a_log().summary, tallies[:-1])
    with pytest.raises(LogloomError, match="one is missing"):
        reconcile(plan, a_log().summary, [*tallies, tallies[0]])
    lost = Refusal("memory.mcap", 8, "", 0, 5, "chunk CRC differs")
    damaged = a_log(refusals=(lost,))
    damaged.topics["/odom"].stamps = np.append(damaged.topics["/odom"].stamps, 5)
    summary = damaged.summary  # its index counts a message that lies in the lost stretch
    assert reconcile(plan, summary, tallies)["/odom"].refused == 1


def test_a_static_column_holds_the_last_message_whatever_its_stamp():
    log = a_log()
    log.topics["/odom"].stamps[-1] = 0
    plan = RowPlan(
        RateClock(Decimal(10)), (column("map", "/odom", "speed", SPEED, "static"),), (), ("map",), rows=7
    )
    stream = build_blocks(log, "log", plan, Span(MIN_TIME, MAX_TIME, (2, 5)), max_bytes=10**6)
    (block,) = stream
    assert block.columns["map"].tolist() == [19, 19, 19]
    assert block.columns["map.age"].tolist() == [t - 2_000_001_000 for t in block.timestamp.tolist()]
    assert stream.tally.columns["map"].used == 1


def test_a_static_column_whose_last_message_does_not_decode_has_refused_it():
    log = a_log()
    log.topics["/odom"].broken = np.arange(20) == 19
    columns = (column("map", "/odom", "speed", SPEED, "static"),)
    plan = RowPlan(RateClock(Decimal(10)), columns, (), ("map",), rows=7)
    rows, tallies = built(log, plan, plan_spans(log.summary, plan), 10**6, on_error="salvage")
    assert not rows["map.available"].any()
    account = reconcile(plan, log.summary, tallies)["/odom"].columns["map"]
    assert (account.used, account.not_chosen, account.refused) == (0, 19, 1)


def test_a_topic_that_the_log_lacks_is_unavailable_everywhere():
    log, plan = a_log(), a_plan()
    del log.topics["/cam"]
    columns, tallies = built(log, plan, plan_spans(log.summary, plan), 10**6)
    assert not columns["camera.available"].any()
    assert set(columns["camera.age"].tolist()) == {NO_AGE}
    assert "/cam" not in reconcile(plan, log.summary, tallies)


@pytest.mark.parametrize("policy", ["previous", "next", "nearest", "linear", "mean", "count", "static"])
def test_messages_without_a_value_dont_count_for_their_column(policy):
    """Rows are those of a log without these messages; another column of the topic still uses them."""
    plan = RowPlan(
        RateClock(Decimal(10)),
        (
            column("speed", "/odom", "speed", SPEED, policy, window=(-250_000_000, 0)),
            column("x", "/odom", "x", SPEED),
        ),
        (),
        ("speed", "x"),
        rows=3,
    )
    log, other = a_log(), a_log()
    for one in (log, other):
        one.topics["/odom"].fields["x"] = (SPEED, np.arange(20.0))
    without = np.arange(20) % 3 != 0
    log.topics["/odom"].without = {"speed": without}
    rows, tallies = built(log, plan, plan_spans(log.summary, plan), 10**6)
    odom, kept = other.topics["/odom"], np.flatnonzero(~without)
    odom.stamps, odom.log_times, odom.positions = (
        part[kept] for part in (odom.stamps, odom.log_times, odom.positions)
    )
    odom.fields = {name: (ctype, values[kept]) for name, (ctype, values) in odom.fields.items()}
    expected, _ = built(other, plan, plan_spans(log.summary, plan), 10**6)
    for name in ("speed", "speed.age", "speed.available"):
        np.testing.assert_array_equal(rows[name], expected[name])
    accounts = reconcile(plan, log.summary, tallies)["/odom"].columns
    assert accounts["x"].without_value == 0
    assert accounts["speed"].without_value == (0 if policy == "static" else without.sum())
    assert [Tally.from_json(json.loads(json.dumps(tally.to_json()))) for tally in tallies] == tallies


def test_a_quaternion_of_norm_zero_is_refused_by_its_column_alone():
    log = a_log()
    turns = np.tile([0.0, 0.0, 0.0, 1.0], (20, 1))
    turns[4] = 0
    quaternion = ColumnType(np.dtype("<f8"), (4,))
    log.topics["/odom"].fields["turn"] = (quaternion, turns)
    columns = (
        column("turn", "/odom", "turn", quaternion, "slerp", tolerance=10**9),
        column("raw", "/odom", "turn", quaternion),
    )
    plan = RowPlan(RateClock(Decimal(10)), columns, (), ("turn", "raw"), rows=3)
    rows, tallies = built(log, plan, plan_spans(log.summary, plan), 10**6)
    assert rows["turn"].tolist() == [[0, 0, 0, 1]] * len(rows["turn"])
    account = reconcile(plan, log.summary, tallies)["/odom"]
    assert (account.columns["turn"].refused, account.columns["raw"].refused, account.refused) == (1, 0, 1)
    (refusal,) = [refusal for tally in tallies for refusal in tally.refusals]
    assert (refusal.position, refusal.reason) == (12, "column turn: the norm of a quaternion is zero")


def test_rotations_become_matrices_after_resampling():
    log = a_log()
    half = np.pi * np.arange(20) / 40  # of the angle about z
    turns = np.stack([0 * half, 0 * half, np.sin(half), np.cos(half)], axis=1)
    quaternion, matrix = ColumnType(np.dtype("<f8"), (4,)), ColumnType(np.dtype("<f8"), (3, 3))
    log.topics["/odom"].fields["turn"] = (quaternion, turns)
    spec = FieldSpec(("turn",), adapter="rotation_matrix")
    sampling = Sampling("slerp", 50_000_000)
    turn = ColumnPlan("turn", "/odom", spec, sampling, quaternion, matrix, ("header",), 10**9)
    plan = RowPlan(RateClock(Decimal(20)), (turn,), (), ("turn",))
    log.topics["/odom"].stamps[7] += 10_000_000
    rows, _ = built(log, plan, plan_spans(log.summary, plan), 10**6)
    assert rows["turn"].shape == (len(rows["timestamp"]), 3, 3)
    assert np.isnan(rows["turn"][~rows["turn.available"]]).all()
    assert 0 < (~rows["turn.available"]).sum() < 5
    known = rows["turn.available"] & (rows["timestamp"] < 700_000_000)
    angle = (rows["timestamp"][known] / 1e8 - 1) * np.pi / 20
    np.testing.assert_allclose(rows["turn"][known][:, 0, 0], np.cos(angle), atol=1e-12)
    np.testing.assert_allclose(rows["turn"][known][:, 1, 0], np.sin(angle), atol=1e-12)


def test_a_rotation_of_norm_zero_is_refused_whatever_the_policy_and_nan_stays_nan():
    log = a_log()
    turns = np.tile([0.0, 0.0, 0.0, 1e-200], (20, 1))
    turns[9], turns[14, 1] = 0, np.nan
    quaternion, matrix = ColumnType(np.dtype("<f8"), (4,)), ColumnType(np.dtype("<f8"), (3, 3))
    log.topics["/odom"].fields["turn"] = (quaternion, turns)
    spec = FieldSpec(("turn",), adapter="rotation_matrix")
    sampling = Sampling("previous", 10**9)
    turn = ColumnPlan("turn", "/odom", spec, sampling, quaternion, matrix, ("header",), 10**9)
    plan = RowPlan(RateClock(Decimal(10)), (turn,), (), ("turn",))
    rows, tallies = built(log, plan, plan_spans(log.summary, plan), 10**6)
    assert rows["turn.age"][8] == 100_000_000  # the one before stands in for it
    nan = np.isnan(rows["turn"]).all(axis=(1, 2))
    assert np.flatnonzero(nan).tolist() == [13]
    assert (rows["turn"][~nan] == np.eye(3)).all()
    assert reconcile(plan, log.summary, tallies)["/odom"].columns["turn"].refused == 1


def test_a_log_whose_field_has_another_type_is_named():
    log, plan = a_log(), a_plan()
    log.topics["/odom"].fields["speed"] = (SPEED, np.arange(20, dtype=np.float32))
    with pytest.raises(LogloomError, match=r"column 'speed': topic /odom has float32 .* planned was float64"):
        built(log, plan, plan_spans(log.summary, plan), 10**6)


def test_columns_of_one_topic_agree_about_its_time():
    plan = a_plan()
    other = ColumnPlan(
        "other", "/odom", FieldSpec(("speed",)), Sampling("previous"), SPEED, SPEED, ("log",), 10**9
    )
    plan = RowPlan(plan.clock, (*plan.columns, other), plan.derived, (*plan.order, "other"))
    with pytest.raises(UsageError, match="/odom: its columns and clock disagree"):
        built(a_log(), plan, plan_spans(a_log().summary, plan), 10**6)


def test_the_tally_is_known_at_the_end_only():
    plan = a_plan()
    stream = build_blocks(a_log(), "log", plan, plan_spans(a_log().summary, plan)[0], max_bytes=1)
    next(iter(stream))
    with pytest.raises(UsageError, match="after its last block"):
        _ = stream.tally
