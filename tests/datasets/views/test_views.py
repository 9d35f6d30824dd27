"""Arrays of positions: windows and shards against the slowest way of saying what they are."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from logloom.datasets.views import positions as views
from logloom.io.rows.log_ranges import Stretches

LOGS = st.lists(st.tuples(st.sampled_from("aab"), st.integers(0, 6)), max_size=6)
STEPS = st.lists(st.integers(-4, 4), min_size=1, max_size=4)


def log_of_each_row(stretches):
    """(log's own number, number of rows before it), where neighbours of one name are one log."""
    rows, log = [], -1
    for number, (name, count) in enumerate(zip(stretches.log_ids, stretches.counts.tolist(), strict=True)):
        log += number == 0 or name != stretches.log_ids[number - 1]
        rows += [log] * count
    return rows


@given(logs=LOGS, steps=STEPS, data=st.data())
def test_a_window_holds_the_rows_of_its_log_that_no_gap_parts_from_its_own(logs, steps, data):
    stretches = Stretches.of_logs([name for name, _ in logs], [count for _, count in logs])
    total = stretches.num_rows
    diffs = data.draw(st.lists(st.integers(1, 3), min_size=total, max_size=total))
    max_gap = data.draw(st.sampled_from([None, 1, 2, 3]))
    stamps, owner = np.cumsum(np.array(diffs, np.int64)), log_of_each_row(stretches)
    runs = views.runs_of(stretches, stamps, max_gap)
    window = views.WindowSpec(np.array(steps), runs, "pad")

    def is_reached(start, stop):
        low, high = min(start, stop), max(start, stop)
        if low < 0 or high >= total or len(set(owner[low : high + 1])) > 1:
            return False
        return max_gap is None or all(stamps[n + 1] - stamps[n] <= max_gap for n in range(low, high))

    positions = np.arange(total)
    rows, exists = window.rows(positions)
    expected = [[is_reached(row, row + step) for step in steps] for row in range(total)]
    np.testing.assert_array_equal(exists, np.array(expected, bool).reshape(total, len(steps)))
    np.testing.assert_array_equal(rows, positions[:, None] + np.array(steps))
    assert window.whole(positions).tolist() == [row for row in range(total) if all(expected[row])]


@given(length=st.integers(0, 50), count=st.integers(1, 7), seed=st.integers(0, 2**32))
def test_shards_of_a_shuffled_dataset_share_out_every_row_once(length, count, seed):
    shuffled = views.shuffled(np.arange(length), seed)
    np.testing.assert_array_equal(shuffled, views.shuffled(np.arange(length), seed))
    shards = [views.shard_of(shuffled, number, count) for number in range(count)]
    assert sorted(np.concatenate(shards).tolist()) == list(range(length))
    assert max(map(len, shards)) - min(map(len, shards)) <= 1


@given(numbers=st.lists(st.integers(-5, 4), max_size=8))
def test_rows_are_taken_as_a_list_would_give_them(numbers):
    assert views.taken(np.arange(5) * 10, numbers).tolist() == [[0, 10, 20, 30, 40][n] for n in numbers]
