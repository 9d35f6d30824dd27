"""Which split a row falls into: cells of a grid, spans of time, values, and what lies between."""

from decimal import Decimal

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from logloom.blocks import Ragged
from logloom.digests import share_of
from logloom.row_splits import (
    NEAR,
    UNKNOWN,
    RowSplit,
    labels_by_place,
    labels_by_time,
    labels_by_value,
    left_out_of,
    position_problem,
    value_problem,
)
from logloom.schema import BYTES, STRING, ColumnType
from logloom.transforms.rows.row_splits import RowSplitter

SHARES = {"train": Decimal("0.5"), "val": Decimal("0.3"), "test": Decimal("0.2")}
NUMBER = {name: number for number, name in enumerate(SHARES)}

metres = st.floats(-1e5, 1e5) | st.sampled_from([np.nan, np.inf, -np.inf, 1e300, 0.0, -0.0])


def label_of(place, cell, gap):
    """Said a second time: the row's own square, and how far the eight around it are."""
    if not np.isfinite(place).all() or (np.abs(np.floor(place / cell)) >= 2**52).any():
        return UNKNOWN
    x, y = (int(number) for number in np.floor_divide(place, cell))
    own = share_of(f"{x},{y}", SHARES)
    within = np.mod(place, cell)
    for dx in (-1, 0, 1):
        for dy in (-1, 0, 1):
            apart = [
                0 if step == 0 else inside if step < 0 else cell - inside
                for step, inside in zip((dx, dy), within, strict=True)
            ]
            if share_of(f"{x + dx},{y + dy}", SHARES) != own and np.hypot(*apart) < gap:
                return NEAR
    return NUMBER[own]


@given(
    places=st.lists(st.tuples(metres, metres), max_size=40),
    cell=st.sampled_from([500.0, 3.0, 0.1]),
    part=st.sampled_from([0, 0.1, 1]),
)
def test_a_row_is_in_the_split_of_its_square_unless_another_splits_square_is_near(places, cell, part):
    points = np.array(places, np.float64).reshape(-1, 2)
    found = labels_by_place(points, cell, part * cell, SHARES)
    assert found.tolist() == [label_of(point, cell, part * cell) for point in points]
    # A row's split follows from the row alone.
    assert labels_by_place(points[::-1], cell, part * cell, SHARES).tolist() == found.tolist()[::-1]


near_borders = st.builds(
    lambda span, seconds, ns: span * 5_000_000_000 + seconds * 10**9 + ns,
    st.integers(-(10**8), 10**8),
    st.sampled_from([-5, -1, 0, 1, 5]),
    st.integers(-1, 1),
)


@given(
    stamps=st.lists(st.integers(-(2**62), 2**62) | near_borders, max_size=40), gap=st.sampled_from([0, 1, 5])
)
def test_rows_near_the_border_of_a_span_of_another_split_are_in_none(stamps, gap):
    found = labels_by_time(np.array(stamps, np.int64), 5, gap, SHARES)
    for stamp, label in zip(stamps, found.tolist(), strict=True):
        span, within = divmod(stamp, 5_000_000_000)
        own, before, after = (share_of(str(span + step), SHARES) for step in (0, -1, 1))
        near = (before != own and within < gap * 10**9) or (
            after != own and 5_000_000_000 - within < gap * 10**9
        )
        assert label == (NEAR if near else NUMBER[own])


def test_values_are_split_as_texts_and_the_same_wherever_they_stand():
    values = ["Bern", "Zug", "", "Bern", "Köln"]
    found = labels_by_value(values, SHARES)
    assert found.tolist() == [NUMBER[share_of(value, SHARES)] for value in values]
    assert labels_by_value([7, 8], SHARES).tolist() == labels_by_value(["7", "8"], SHARES).tolist()
    assert labels_by_value([], SHARES).shape == (0,)


def test_rows_of_a_build_whose_column_is_unavailable_are_in_no_split():
    shares = tuple(SHARES.items())
    available = np.array([True, False, True])
    cities = Ragged.from_rows([np.frombuffer(text, "u1") for text in (b"Bern", b"", b"\xff")], STRING)
    for values, by in (
        (np.zeros((3, 3), np.int32), "place"),
        (np.arange(3), "value"),
        (cities, "value"),
    ):
        splitter = RowSplitter(RowSplit(by, shares, "c", Decimal(5), Decimal(0)))
        labels = splitter.labels({"c": values, "c.available": available})
        assert (labels >= 0).tolist() == available.tolist()
        dropped = {why: int((labels == label).sum()) for label, why in splitter.reasons.items()}
        assert dropped == {"split gap": 0, "split without c": 1}
        assert left_out_of({**dropped, "where": 3, "require split": 1}) == 1
        kept = labels[labels >= 0]
        told = [row.tobytes().decode() for row in splitter.column(kept)]
        assert told == [splitter.names[label] for label in kept]
        assert [name for name, count in splitter.runs(kept) for _ in range(count)] == told
    assert list(splitter.runs(labels[:0])) == []


def test_a_column_that_tells_no_place_or_value_is_refused():
    for ctype, why in (
        (ColumnType(np.dtype("f8"), (2,), unit="deg"), "degrees"),
        (ColumnType(np.dtype("f8"), (1,)), "two numbers"),
        (ColumnType(np.dtype("f8"), (None, 3)), "two numbers"),
        (ColumnType(np.dtype("<U3"), (2,)), "metres"),
        (STRING, "two numbers"),
    ):
        assert why in position_problem(ctype)
    assert position_problem(ColumnType(np.dtype("f4"), (3,), unit="m")) is None
    for ctype in (ColumnType(np.dtype("f8")), ColumnType(np.dtype("i8"), (2,)), BYTES):
        assert "texts or whole numbers" in value_problem(ctype)
    for ctype in (STRING, ColumnType(np.dtype("u1")), ColumnType(np.dtype("?"))):
        assert value_problem(ctype) is None
