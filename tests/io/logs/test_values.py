"""Copying the values of many messages into columns."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from logloom.io.logs.decoding.values import copy_all

FIELDS = st.lists(
    st.tuples(
        st.integers(0, 4),  # numbers in it; 0 stands for a single one
        st.sampled_from(["<f8", ">f8", "<u2", "?"]),
        st.sampled_from([0, 0, 1, 8]),  # bytes between it and the one before it
        st.booleans(),  # whether its target lies beside the one before it
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=150, deadline=None)
@given(FIELDS, st.integers(1, 5), st.booleans())
def test_what_is_copied_equals_a_copy_field_by_field(fields, rows, gap):
    offsets, formats, at = [], [], 0
    for width, dtype, space, _ in fields:
        at += space
        offsets.append(at)
        formats.append(np.dtype((dtype, (width,))) if width else np.dtype(dtype))
        at += formats[-1].itemsize
    names = [f"f{i}" for i in range(len(fields))]
    layout = np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": at + 3 * gap})
    noise = np.random.default_rng(at).integers(0, 2, rows * layout.itemsize, np.uint8)
    source = noise.view(layout)
    joined = np.zeros((rows, 64), "<f8")
    targets, used = [], 0
    for (width, dtype, _, beside), name in zip(fields, names, strict=True):
        used += 0 if beside else 1
        if dtype.endswith("f8"):
            targets.append(joined[:, used : used + width] if width else joined[:, used])
            used += width or 1
        else:
            targets.append(np.zeros(source[name].shape, source[name].dtype))
    before = [target.copy() for target in targets]
    copy_all(zip(targets, (source[name] for name in names), strict=True))
    for target, untouched, name in zip(targets, before, names, strict=True):
        assert np.array_equal(target, source[name].astype(target.dtype))
        assert target.shape == untouched.shape
    covered = sum(target.size for target in targets if np.shares_memory(target, joined))
    assert np.count_nonzero(joined) <= covered
