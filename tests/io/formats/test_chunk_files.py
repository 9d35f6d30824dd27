"""Pieces of chunks."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from logloom.io.formats.chunk_files import cut

ranges = st.lists(st.tuples(st.integers(0, 90), st.integers(0, 90)).map(sorted), max_size=12)


@given(ranges=ranges, chunk=st.integers(1, 100))
def test_pieces_put_together_are_the_ranges(ranges, chunk):
    starts, stops = np.array(ranges, np.int64).reshape(-1, 2).T
    pieces = cut(starts, stops, chunk)
    assert (np.diff(pieces.chunk) >= 0).all()
    assert ((pieces.source >= 0) & (pieces.source + pieces.length <= chunk)).all()
    found = np.full(int((stops - starts).sum()), -1)
    for number, source, target, length in zip(*pieces, strict=True):
        assert (found[target : target + length] == -1).all()
        found[target : target + length] = number * chunk + source + np.arange(length)
    wanted = [np.arange(*pair) for pair in ranges]
    np.testing.assert_array_equal(found, np.concatenate([np.empty(0, int), *wanted]))
