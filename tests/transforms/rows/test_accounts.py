"""The use of messages in a span, from its pieces."""

import numpy as np

from logloom.transforms.rows.accounts import ColumnTally, Seen, add_up
from logloom.transforms.rows.plan.row_plan import Sampling, Span


def at(*positions):
    """The positions of messages, and their times: one each ten ns."""
    return np.array(positions, np.int64), np.array(positions, np.int64) * 10


def test_counts_of_a_span_are_those_of_its_pieces():
    before = Seen(used=4, outside=at(9), edge=at(14), without_value=3, with_nan=2)
    after = Seen(used=2, outside=at(14), edge=at(19), without_value=1, with_nan=3)
    # Message 14 is of the first piece, and used by the second; other spans may use 19.
    found = add_up([before, after], Sampling("nearest", tolerance=15), Span(100, 200))
    assert found == ColumnTally(7, (9,), (19,), without_value=4, with_nan=5)
