"""Rows of any log, under any plan, cut anywhere: equal to those of the slow reference, to the bit."""

import json
import pickle
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logloom.blocks import Ragged, concatenate, empty
from logloom.errors import LogloomError, LogReadError, UsageError
from logloom.io.logs.base import MAX_TIME, MIN_TIME, FieldSpec, Refusal
from logloom.schema import BYTES, NO_AGE, ColumnType
from logloom.transforms.columns import (
    ColumnPlan,
    DerivedPlan,
    RateClock,
    RowPlan,
    Sampling,
    Span,
    TopicClock,
    row_type,
)
from logloom.transforms.derive import derive
from logloom.transforms.rows import Tally, build_blocks, read_statics, reconcile
from logloom.transforms.spans import cut, plan_spans
from logloom.transforms.ticks import tick_range
from tests.transforms import reference
from tests.transforms.memory_log import MemoryLog, MemoryTopic

MAX_DELAY = 10
OBJECT = np.dtype([("id", "<i4"), ("size", "<f4", (2,))])
TYPES = {
    "vector": ColumnType(np.dtype("<f8"), (2,)),
    "small": ColumnType(np.dtype("<f4")),
    "number": ColumnType(np.dtype("<i4")),
    "large": ColumnType(np.dtype("<u8")),
    "flag": ColumnType(np.dtype("?")),
    "quaternion": ColumnType(np.dtype("<f8"), (4,)),
    "blob": BYTES,
    "object": ColumnType(OBJECT),
    "objects": ColumnType(OBJECT, (None,)),
}
SINGLE = ["previous", "next", "nearest", "exact", "static"]
WINDOWED = ["window", "first", "last"]
NUMERIC = [*SINGLE, *WINDOWED, "linear", "angle", "mean", "min", "max", "sum", "count"]
POLICIES = {
    **dict.fromkeys(["vector", "small", "number", "large", "flag"], NUMERIC),
    "quaternion": [*NUMERIC, "slerp", "slerp", "slerp", "slerp"],
    "blob": [*SINGLE, "count"],
    "object": [*SINGLE, *WINDOWED, "count"],
    "objects": [*SINGLE, "count"],
}


def values_of(field, rng, n):
    """N values of a field, odd ones among them."""
    ctype = TYPES[field]
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
        values = np.where(rng.random(values.shape) < 0.04, rng.choice(odd, values.shape), values)
        if field == "quaternion":
            values[rng.random(n) < 0.2] = 0
        with np.errstate(over="ignore"):
            return values.astype(ctype.dtype)
    return rng.integers(0, 2 if ctype.dtype.kind == "b" else 2**31 - 1, (n, *ctype.shape)).astype(ctype.dtype)


@st.composite
def logs(draw):
    """Few topics of few messages: late, out of order, with equal stamps, some of them refused."""
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    topics = {}
    offset = draw(st.sampled_from([0, 0, 1_600_000_000 * 10**9]))
    for i, name in enumerate(draw(st.sampled_from([["/a"], ["/a", "/b"], ["/a", "/b", "/c"]]))):
        stamps = draw(st.lists(st.integers(1, 80), max_size=25))
        if draw(st.booleans()):
            stamps.sort()
        n = len(stamps)
        stamps = np.array(stamps, np.int64) + offset
        log_times = np.maximum(1, stamps + rng.integers(-3, MAX_DELAY + 1, n))
        log_times = np.where(rng.random(n) < 0.05, stamps + 25, log_times)
        stamps = np.where(rng.random(n) < 0.05, 0, stamps)
        fields = {field: (ctype, values_of(field, rng, n)) for field, ctype in TYPES.items()}
        topics[name] = MemoryTopic(stamps, log_times, np.arange(n) * 7 + i, fields)
    return MemoryLog(topics)


@st.composite
def plans(draw, topics=("/a", "/b", "/c")):
    columns = []
    for i in range(draw(st.integers(1, 4))):
        field = draw(st.sampled_from(sorted(TYPES)))
        policy = draw(st.sampled_from(POLICIES[field]))
        window = sorted([draw(st.integers(-25, 5)), draw(st.integers(-25, 5))])
        sampling = Sampling(
            policy, draw(st.integers(0, 12)), tuple(window), draw(st.sampled_from([0, 0, -7, 3, 40]))
        )
        dtype = "f4" if policy in ("linear", "mean") and draw(st.booleans()) else None
        ctype = row_type(TYPES[field], policy, dtype)
        columns.append(
            ColumnPlan(
                f"c{i}",
                draw(st.sampled_from(topics)),
                FieldSpec((field,)),
                sampling,
                TYPES[field],
                ctype,
                ("header",),
                MAX_DELAY,
            )
        )
    names = tuple(c.name for c in columns)
    clock = draw(
        st.one_of(
            st.sampled_from(["1e9", "1e8", "3e8", "29.97e6"]).map(lambda rate: RateClock(Decimal(rate))),
            st.sampled_from(topics).map(lambda topic: TopicClock(topic, ("header",), MAX_DELAY)),
        )
    )
    return RowPlan(
        clock,
        tuple(columns),
        (),
        names,
        require=tuple(draw(st.lists(st.sampled_from(names), unique=True, max_size=2))),
        rows=draw(st.integers(1, 9)),
        bytes=draw(st.sampled_from([50, 300, 1000, 10**6])),
    )


def built(log, plan, spans, max_bytes):
    """All rows of a log's spans as one column each, and the tallies."""
    columns, tallies = {name: [] for name in ["timestamp", *plan.schema.all]}, []
    for span in spans:
        stream = build_blocks(log, "log", plan, span, max_bytes=max_bytes)
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


@given(logs(), plans(), st.sampled_from([1, 150, 2000, 10**6]))
@settings(max_examples=250, deadline=None)
def test_any_log_under_any_plan_gives_the_rows_of_the_reference(log, plan, max_bytes):
    expected, used = reference.rows_of(log, plan)
    spans = plan_spans(log.summary, plan)
    columns, tallies = built(log, plan, spans, max_bytes)
    check_rows(columns, expected if spans else [], plan)
    if spans:
        check_sums(log, plan, tallies, used)
    else:
        assert not expected
        reconcile(plan, log.summary, [])


@given(logs(), plans(), st.lists(st.integers(-20, 120), unique=True, max_size=6), st.sampled_from([1, 10**5]))
@settings(max_examples=150, deadline=None)
def test_rows_do_not_depend_on_where_spans_are_cut(log, plan, cuts, max_bytes):
    expected, used = reference.rows_of(log, plan)
    base = min((int(t.log_times.min()) for t in log.topics.values() if len(t.log_times)), default=0)
    bounds = [MIN_TIME, *sorted(base + c for c in cuts), MAX_TIME]
    spans = [Span(start, stop) for start, stop in zip(bounds[:-1], bounds[1:], strict=True)]
    if isinstance(plan.clock, RateClock):
        if log.summary.num_messages == 0:
            return
        first, stop = tick_range(plan.clock.rate, log.summary.first, log.summary.last)
        ks = [first if b == MIN_TIME else tick_range(plan.clock.rate, b, b)[0] for b in bounds[:-1]] + [stop]
        ks = [min(max(k, first), stop) for k in ks]
        spans = [Span(s.start, s.stop, (a, b)) for s, a, b in zip(spans, ks[:-1], ks[1:], strict=True)]
    columns, tallies = built(log, plan, spans, max_bytes)
    check_rows(columns, expected, plan)
    check_sums(log, plan, tallies, used)
