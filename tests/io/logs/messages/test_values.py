"""Laying columns of many messages next to each other."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from logloom.blocks import Ragged
from logloom.io.logs.messages.values import side_by_side

FIELDS = st.lists(
    st.tuples(
        st.integers(0, 4),  # numbers in it; 0 stands for a single one
        st.sampled_from([0, 0, 0, 8]),  # bytes between it and the one before it
        st.booleans(),  # whether it was fetched on its own
    ),
    min_size=1,
    max_size=6,
)


@given(FIELDS, st.integers(0, 5), st.sampled_from(["<f8", "<u2", "?"]), st.sampled_from([0, 8]), st.randoms())
def test_columns_next_to_each_other_equal_their_concatenation(fields, rows, dtype, gap, random):
    offsets, formats, at = [], [], 0
    for width, space, _ in fields:
        at += space
        offsets.append(at)
        formats.append(np.dtype((dtype, (width,))) if width else np.dtype(dtype))
        at += formats[-1].itemsize
    names = [f"f{i}" for i in range(len(fields))]
    layout = np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": at + gap})
    source = np.frombuffer(random.randbytes(rows * layout.itemsize), np.uint8) & 1
    messages = source.view(layout)
    parts = [
        messages[name].copy() if alone else messages[name]
        for name, (_, _, alone) in zip(names, fields, strict=True)
    ]
    parts = [random.choice([part, part[:, ::-1]]) if part.ndim > 1 else part for part in parts]
    found = side_by_side(parts)
    wide = [part[:, None] if part.ndim == 1 else part for part in parts]
    expected = np.concatenate(wide, axis=1) if len(parts) > 1 else parts[0]
    assert found.dtype == expected.dtype
    assert np.array_equal(found, expected)
    assert found.flags.c_contiguous


def test_columns_that_were_fetched_together_are_not_copied():
    fetched = np.arange(12.0).reshape(3, 4)
    assert np.shares_memory(side_by_side([fetched[:, :3], fetched[:, 3]]), fetched)
    assert not np.shares_memory(side_by_side([fetched[:, :1], fetched[:, 2:]]), fetched)


def test_ragged_columns_are_laid_next_to_each_other_value_by_value():
    rows = [2, 0, 1]
    xs, ys = Ragged(np.arange(3.0), rows), Ragged(np.arange(10.0, 16.0).reshape(3, 2), rows)
    found = side_by_side([xs, ys])
    assert [row.tolist() for row in found] == [[[0, 10, 11], [1, 12, 13]], [], [[2, 14, 15]]]
