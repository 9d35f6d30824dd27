"""Labels at ticks: a slow reference, any cut into spans and pieces, and accounts that meet."""

from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logloom.blocks import Ragged, concatenate
from logloom.errors import DatasetError, LogloomError
from logloom.io.catalog.labels import LogLabels
from logloom.schema import BYTES, NO_AGE, ColumnType
from logloom.transforms.rows.label_columns import account
from logloom.transforms.rows.plan.row_plan import LabelPlan, RateClock, RowPlan
from logloom.transforms.rows.row_stream import build_blocks
from logloom.transforms.rows.spans import plan_spans
from tests.tier import by_tier
from tests.transforms.memory_log import MemoryLog, MemoryTopic

BOX = np.dtype([("class", "<U4"), ("box", "<f4", (2,))])
TYPES = {"boxes": ColumnType(BOX), "number": ColumnType(np.dtype("<i4")), "text": BYTES}


def labels_of(times, kind="boxes"):
    times = np.sort(np.array(times, np.int64))
    n = len(times)
    if kind == "text":
        values = Ragged.from_bytes([str(i).encode() * (i % 3) for i in range(n)])
    elif kind == "boxes":
        values = np.array([(f"c{i % 9}", (i, -i)) for i in range(n)], BOX)
    else:
        values = np.arange(1, n + 1, dtype=np.int32)
    return LogLabels("log", TYPES[kind], times, values)


def log_between(first, last):
    times = np.array([first, last], np.int64)
    return MemoryLog({"/can": MemoryTopic(times, times, np.arange(2), {})})


def plan_of(many, kind, tolerance, rows=1000, require=()):
    item = TYPES[kind]
    ctype = ColumnType(item.dtype, (None, *item.shape)) if many else item
    plan = LabelPlan("objects", tolerance, many, ctype)
    clock = RateClock(Decimal(10**8))  # a tick each 10 ns
    return RowPlan(clock, (), (), ("objects",), labels=(plan,), rows=rows, require=require)


def built(log, plan, labels, max_bytes=1 << 20):
    """Rows, tallies of all spans, and the one account."""
    blocks, tallies = [], []
    for span in plan_spans(log.summary, plan):
        stream = build_blocks(log, "log", plan, span, max_bytes=max_bytes, labels={"objects": labels})
        blocks += stream
        tallies.append(stream.tally)
    columns = {}
    if blocks:
        columns = {name: concatenate([block.columns[name] for block in blocks]) for name in blocks[0].columns}
    (told,) = account(plan, {"objects": labels}, tallies)
    return columns, told


def expected(ticks, labels, tolerance):
    """For each tick the positions of its labels, said slowly."""
    found = []
    for tick in ticks:
        near = [(abs(tick - t), t) for t in labels.times.tolist() if abs(tick - t) <= tolerance]
        stamp = min(near)[1] if near else None
        found.append([i for i, t in enumerate(labels.times.tolist()) if t == stamp])
    return found


@given(
    st.lists(st.integers(-60, 260), max_size=30),
    st.integers(0, 40),
    st.integers(1, 12),
    st.sampled_from([64, 1000, 1 << 20]),
)
def test_any_cut_gives_the_labels_of_the_closest_stamp_and_accounts_for_each(times, tolerance, rows, size):
    labels = labels_of(times)
    log = log_between(0, 200)
    columns, told = built(log, plan_of(True, "boxes", tolerance, rows), labels, size)
    ticks = columns["timestamp"].tolist()
    assert ticks == list(range(0, 201, 10))
    wanted = expected(ticks, labels, tolerance)
    used = set()
    for row, (tick, positions) in enumerate(zip(ticks, wanted, strict=True)):
        assert columns["objects"][row].tobytes() == labels.values[positions].tobytes()
        assert columns["objects.available"][row] == bool(positions)
        age = tick - labels.times[positions[0]] if positions else NO_AGE
        assert columns["objects.age"][row] == age
        used |= set(positions)
    lost = sorted(set(range(len(times))) - used)
    assert (told.labels, told.used, told.rows) == (len(times), len(used), 21)
    assert told.unmatched == tuple(sorted({int(labels.times[i]) for i in lost}))[:20]
    without = [tick for tick, positions in zip(ticks, wanted, strict=True) if not positions]
    assert (told.without, told.without_at) == (len(without), tuple(without[:20]))


@given(
    st.sets(st.integers(-20, 120), max_size=12),
    st.sampled_from(["number", "text", "boxes"]),
    st.integers(0, 15),
    st.integers(1, 5),
)
def test_a_column_of_one_label_a_key_holds_it_as_it_is(times, kind, tolerance, rows):
    labels = labels_of(sorted(times), kind)
    columns, _ = built(log_between(0, 100), plan_of(False, kind, tolerance, rows), labels)
    for row, positions in enumerate(expected(columns["timestamp"].tolist(), labels, tolerance)):
        assert columns["objects.available"][row] == bool(positions)
        if positions:
            found, wanted = columns["objects"][row], labels.values[positions[0]]
            assert np.asarray(found).tobytes() == np.asarray(wanted).tobytes()


def test_labels_of_rows_that_are_dropped_match_none():
    labels = labels_of([0, 10, 10, 55])
    plan = plan_of(True, "boxes", 0, require=("objects",))
    columns, told = built(log_between(0, 50), plan, labels)
    assert columns["timestamp"].tolist() == [0, 10]
    assert list(told.lines) == ["objects: 1 of 4 labels match no row: at 55 ns"]


def test_a_log_without_ticks_has_labels_that_match_no_row():
    empty = MemoryLog({"/can": MemoryTopic(*(np.empty(0, np.int64) for _ in range(3)), {})})
    _, told = built(empty, plan_of(True, "boxes", 0), labels_of([5, 6, 6]))
    assert list(told.lines) == ["objects: 3 of 3 labels match no row: at 5, 6 ns"]


def test_sums_that_do_not_meet_are_an_error():
    labels, plan = labels_of([0, 10]), plan_of(True, "boxes", 0, rows=2)
    log = log_between(0, 50)
    streams = [
        build_blocks(log, "log", plan, span, max_bytes=99, labels={"objects": labels})
        for span in plan_spans(log.summary, plan)
    ]
    for stream in streams:
        list(stream)
    with pytest.raises(LogloomError, match="partitions own 0"):
        list(account(plan, {"objects": labels}, [stream.tally for stream in streams][1:]))


@given(st.lists(st.integers(-(2**62), 2**62), max_size=9), st.sampled_from(list(TYPES)))
def test_what_a_root_keeps_reads_back_and_its_damage_is_an_error(times, kind):
    labels = labels_of(times, kind)
    data = labels.to_bytes()
    again = LogLabels.from_bytes(data, "place")
    assert again.to_bytes() == data
    assert (again.log_id, again.ctype, len(again)) == ("log", labels.ctype, len(times))
    for cut in range(len(times), len(data), by_tier(41, 1)):
        try:
            shorter = LogLabels.from_bytes(data[:cut], "place")
        except DatasetError as error:
            assert "place" in str(error)  # noqa: PT017
        else:
            assert len(shorter) == len(times)
    for at in range(len(times), len(data), by_tier(37, 7)):
        damaged = data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :]
        try:
            LogLabels.from_bytes(damaged, "place")
        except DatasetError as error:
            assert "place" in str(error)  # noqa: PT017
