"""What formats that are put together have in common: order, ranges, and the proof."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logloom.blocks import Block
from logloom.digests import RowsDigest
from logloom.errors import DatasetError, StorageError
from logloom.io.formats.assembly import by_log, parts_json, parts_of, problems_at, ranges_within, row_problems
from logloom.io.formats.interface import StagedUnit
from logloom.io.rows.unit_rows import LoadedReader
from logloom.schema import ColumnType, Schema

SCHEMA = Schema({"speed": ColumnType("<f8")})


def test_units_in_order_come_by_log():
    assert by_log(UNITS) == {"a": UNITS[:2], "b": UNITS[2:]}
    assert by_log([]) == {}


def test_parts_say_where_their_rows_lie():
    found = list(parts_of({"parts": parts_json(UNITS)}))
    assert [(part.log_id, part.row, part.rows) for part in found] == [("a", 0, 4), ("a", 4, 1), ("b", 0, 3)]
    assert [part.ranges for part in found] == [((0, 4),), ((4, 5),), ((5, 8),)]
    assert str(found[2]) == "rows 0 to 3 of b, p0 (5 to 8 of all)"


@given(st.lists(st.integers(0, 5), max_size=8), st.integers(0, 45), st.integers(0, 45), st.integers(0, 3))
def test_ranges_within_hold_just_the_entries_asked_for(lengths, first, last, start):
    starts = [start, *(start + np.cumsum(lengths, dtype=int)).tolist()]
    found = [(n, entry) for n, a, b in ranges_within(starts, first, last) for entry in range(a, b)]
    entries = [(n, entry) for n, length in enumerate(lengths) for entry in range(length)]
    assert found == [(n, entry) for n, entry in entries if first <= starts[n] + entry < last]
    assert all(a < b for _, a, b in ranges_within(starts, first, last))


def block_of(log_id, first, rows):
    stamps = np.arange(first, first + rows)
    return Block(log_id, "p", 0, {"timestamp": stamps, "speed": stamps / 3})


def unit_of(log_id, first, rows):
    digest = RowsDigest(SCHEMA)
    digest.update(block_of(log_id, first, rows))
    said = {"span": [first, first + rows - 1]}
    return StagedUnit(log_id, "", "all", f"p{first}", f"{log_id}-{first}", rows, said, digest.hexdigests())


UNITS = [unit_of("a", 0, 4), unit_of("a", 4, 1), unit_of("b", 0, 3)]


@pytest.mark.parametrize(
    ("order", "message"),
    [
        ([1, 0, 2], r"^a-0: its rows don't come after those before them$"),
        ([0, 0], "a-0: its rows don't come after"),
        ([2, 0, 1], "units of logs out of order"),
        ([0, 2, 1], "or of a log in two places"),
    ],
)
def test_units_out_of_order_are_refused(order, message):
    with pytest.raises(DatasetError, match=message):
        by_log([UNITS[at] for at in order])


class Blocks(LoadedReader):
    def __init__(self, *blocks):
        self.of = blocks

    def load(self):
        return SCHEMA, self.of[0]

    def scan(self, names, max_bytes=0, start=0, stop=None):
        yield from self.of


def problems(*blocks):
    return list(row_problems({"parts": parts_json(UNITS)}, [Blocks(block) for block in blocks]))


def test_rows_in_other_blocks_than_units_are_the_same_rows():
    assert problems(block_of("a", 0, 2), block_of("a", 2, 3), block_of("b", 0, 3)) == []
    assert list(row_problems({"parts": []}, [])) == []


def test_rows_that_differ_lack_or_are_too_many_are_told():
    a, b = block_of("a", 0, 5), block_of("b", 0, 3)
    changed = block_of("b", 0, 3)
    changed.columns["speed"][2] += 1e-9
    differs = "the data read back of rows 0 to 3 of b, p0 (5 to 8 of all) differs from what was written"
    assert problems(a, changed) == [differs]
    assert problems(a, dataclasses.replace(b, log_id="c")) == [differs]
    assert problems(a) == ["ends before rows 0 to 3 of b, p0 (5 to 8 of all)"]
    assert problems() == ["ends before rows 0 to 4 of a, p0 (0 to 4 of all)"]
    assert problems(a, b, b) == ["contains more rows than were written"]
    assert problems(a, block_of("b", 0, 4)) == ["contains more rows than were written"]


def test_damage_ends_what_is_told_and_a_fault_of_the_store_is_raised():
    def find(error):
        yield "one"
        raise error

    assert list(problems_at("file", lambda: find(DatasetError("two")))) == ["file: one", "file: two"]
    damaged = ["file: one", "file: damaged: 'parts' is missing"]
    assert list(problems_at("file", lambda: find(KeyError("parts")))) == damaged
    with pytest.raises(StorageError, match="away"):
        list(problems_at("file", lambda: find(StorageError("away"))))
