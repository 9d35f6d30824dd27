"""The edges of every policy, each where it matters. (That any input agrees with the reference: test_rows.)"""

import time

import numpy as np
import pytest

from logloom.blocks import Ragged
from logloom.errors import LogloomError
from logloom.schema import BYTES, NO_AGE, ColumnType
from logloom.transforms.rows.plan.row_plan import Sampling, row_type
from logloom.transforms.rows.resample import choose

FLOAT = ColumnType(np.dtype("<f8"))


def test_values_are_chosen_by_a_policy_of_only_the_messages_that_it_needs():
    times, speeds = np.array([30, 10, 20, 40]), np.array([3.0, 1.0, 2.0, 4.0])
    choice = choose(Sampling("previous", tolerance=5), times, ticks=np.array([12, 33, 39]))
    assert choice.rows.tolist() == [0, 1]  # the messages at 30 and at 10
    ctype = row_type(FLOAT, "previous", "float32")
    values, ages, available = choice.apply(speeds[choice.rows], ctype)
    np.testing.assert_array_equal(values, np.array([1, 3, np.nan], np.float32))
    assert (ages.tolist(), available.tolist()) == ([2, 3, NO_AGE], [True, True, False])
    assert choice.select(np.array([1])).rows.tolist() == [0]


def sampled(policy, times, ticks, values=None, message=FLOAT, dtype=None, **sampling):
    times = np.array(times, np.int64)
    values = np.arange(len(times), dtype=float) if values is None else values
    choice = choose(Sampling(policy, **sampling), times, np.array(ticks, np.int64))
    rows = choice.rows
    taken = values.take(rows) if isinstance(values, Ragged) else np.asarray(values)[rows]
    return choice.apply(taken, row_type(message, policy, dtype), "speed")


@pytest.mark.parametrize(
    ("policy", "tolerance", "tick", "expected"),
    [
        ("previous", 5, 15, 0),  # exactly the tolerance away
        ("previous", 4, 15, None),
        ("previous", 0, 20, 1),
        ("previous", 50, 9, None),
        ("next", 5, 15, 1),
        ("next", 4, 15, None),
        ("next", 50, 41, None),
        ("nearest", 9, 15, 0),  # the earlier on a tie
        ("nearest", 9, 16, 1),
        ("nearest", 4, 15, None),
        ("nearest", 9, 49, 3),
        ("exact", 0, 30, 2),
        ("exact", 99, 31, None),
        ("linear", 5, 15, 0.5),
        ("linear", 7, 12, None),  # the later neighbour is 8 away
        ("linear", 0, 20, 1),  # at a message its value, however far the other
        ("linear", 99, 9, None),  # no extrapolation
        ("linear", 99, 41, None),
    ],
)
def test_which_message_a_tick_uses(policy, tolerance, tick, expected):
    values, age, available = sampled(policy, [10, 20, 30, 40], [tick], tolerance=tolerance)
    if expected is None:
        assert np.isnan(values[0])
        assert (age[0], available[0]) == (NO_AGE, False)
    else:
        assert values[0] == expected
        assert available[0]
        assert age[0] == tick - {0: 10, 0.5: 10, 1: 20, 2: 30, 3: 40}[expected]


def test_single_values_see_the_last_of_equal_times_and_windows_see_all():
    times, values = [10, 20, 10, 20, 20], [1.0, 2.0, 3.0, 4.0, 5.0]
    assert sampled("previous", times, [10, 25], values, tolerance=9)[0].tolist() == [3, 5]
    assert sampled("linear", times, [15], values, tolerance=9)[0].tolist() == [4]
    window, age, _ = sampled("window", times, [20], values, window=(-15, 0))
    assert window[0].tolist() == [1, 3, 2, 4, 5]  # by time, then by position in the log
    assert age.tolist() == [0]
    assert sampled("count", times, [20], values, window=(-15, 0))[0].tolist() == [5]
    assert sampled("first", times, [20], values, window=(-15, 0))[0].tolist() == [1]
    assert sampled("last", times, [20], values, window=(-15, 0))[0].tolist() == [5]


def test_a_window_excludes_its_start_and_includes_its_end():
    window, age, _ = sampled("window", [10, 20, 30], [25], window=(-15, 5))
    assert window[0].tolist() == [1, 2]
    assert age.tolist() == [-5]  # the latest message lies ahead of the tick


def test_an_empty_window_counts_nothing_and_has_no_sum():
    for policy, expected in [("count", 0), ("sum", np.nan), ("window", []), ("max", np.nan)]:
        values, age, available = sampled(policy, [10], [50], window=(-5, 0))
        np.testing.assert_array_equal(values[0], expected)
        assert available.tolist() == [policy == "count"]
        assert age.tolist() == [NO_AGE]


def test_what_is_not_usable_is_zero_false_or_empty_for_other_types():
    pair = np.dtype([("a", "<f4"), ("b", "<i2", (2,))])
    assert sampled("exact", [1], [2], np.array([7]), ColumnType(np.dtype("<i8")))[0].tolist() == [0]
    assert sampled("exact", [1], [2], np.array([True]), ColumnType(np.dtype("?")))[0].tolist() == [False]
    blob = sampled("exact", [1, 3], [2, 3], Ragged.from_bytes([b"ab", b"cde"]), BYTES)[0]
    assert [row.tobytes() for row in blob] == [b"", b"cde"]
    row = sampled("exact", [1], [2], np.ones(1, pair), ColumnType(pair))[0][0]
    assert np.isnan(row["a"])
    assert row["b"].tolist() == [0, 0]


def test_views_of_large_rows_are_not_copied():
    buffer = np.arange(100, dtype=np.uint8)
    rows = Ragged.from_rows([buffer[:40], buffer[40:]], BYTES)
    found = sampled("previous", [1, 2], [1, 2, 3], rows, BYTES, tolerance=0)[0]
    assert np.shares_memory(found[1], buffer)
    assert [len(row) for row in found] == [40, 60, 0]


def test_distances_beyond_int64_are_not_usable_instead_of_wrapped():
    times, ticks = [-(2**63) + 1, 2**63 - 2], [-(2**62), 2**62]
    for policy in ("previous", "next", "nearest", "linear"):
        assert not sampled(policy, times, ticks, tolerance=10**9)[2].any()
    for reach, expected in [(2**62 - 10, [0, 0]), (2**62, [1, 1])]:
        assert sampled("count", times, ticks, window=(-reach, reach))[0].tolist() == expected


def test_a_cast_that_overflows_names_column_and_tick():
    with pytest.raises(LogloomError, match=r"column 'speed' at tick 30 ns: 300\.0 does not fit int8"):
        sampled("previous", [10, 20, 30], [10, 20, 30], [1.0, 2.5, 300.0], dtype="i1", tolerance=0)
    with pytest.raises(LogloomError, match=r"at tick 30 ns: nan does not fit int32\. .*`nan: unavailable`"):
        sampled("window", [10, 29, 30], [20, 30], [1.0, 2.0, np.nan], dtype="i4", window=(-5, 0))
    values, _, _ = sampled("previous", [10], [10, 99], [2.5], dtype="i1", tolerance=0)
    assert values.tolist() == [2, 0]  # what is not usable has no NaN to cast


def test_no_messages_and_no_ticks_are_nothing_special():
    for policy in ("previous", "linear", "window", "count", "mean", "exact", "nearest", "next"):
        values, _, available = sampled(policy, [], [1, 2])
        assert (len(values), available.sum()) == (2, 2 if policy == "count" else 0)
        assert len(sampled(policy, [1, 2], [])[0]) == 0


@pytest.mark.parametrize("policy", ["previous", "nearest", "linear"])
def test_a_million_messages_at_a_hundred_thousand_ticks_take_tens_of_milliseconds(policy):
    times = np.arange(1_000_000) * 1000 + 10**18
    ticks = np.linspace(times[0], times[-1], 100_000).astype(np.int64)
    values = np.arange(1_000_000, dtype=np.float64)
    seconds = []
    for _ in range(3):
        began = time.process_time()
        choice = choose(Sampling(policy, 10**6), times, ticks)
        choice.apply(values[choice.rows], FLOAT)
        seconds.append(time.process_time() - began)
    assert min(seconds) < 0.2  # about 0.03 on a quiet machine
