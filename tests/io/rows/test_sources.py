"""What a source need not define: rows by number follow from a scan, and a scan from rows by number."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logloom.blocks import Block, Ragged, concatenate, take
from logloom.errors import DatasetError
from logloom.io.rows.log_ranges import Stretches
from logloom.io.rows.sources import RowSource, batched
from logloom.io.rows.unit_rows import LoadedReader
from tests.io.rows.test_unit_rows import SCHEMA, block_of

NAMES = tuple(SCHEMA.all)
BLOCK = block_of("a", 0, 10)


class Scanned(LoadedReader):
    """Defines only how rows are scanned."""

    place = "here"

    def __init__(self, block=BLOCK):
        self.block = block

    def load(self):
        return SCHEMA, self.block


class Taken(RowSource):
    """Defines only how rows are taken."""

    _schema = SCHEMA
    stretches = Stretches.of_logs(["a"], [10])

    def take(self, positions, names, out=None):
        keys = {"log_id": ["a"] * len(positions), "timestamp": BLOCK.timestamp[positions]}
        columns = {n: batched("here", n, take(BLOCK.columns[n], positions), SCHEMA.all[n]) for n in names}
        return {**keys, **columns}


def test_rows_are_taken_by_number_in_batches_and_blocks():
    source = Scanned()
    assert (len(source), source[3]["log_id"], source.row(-1, ["speed"])["speed"]) == (10, "a", 4.5)
    assert [block.timestamp.tolist() for block in source.blocks(["speed"], start=1, stop=3)] == [[10, 20]]
    out = {"pose": np.zeros((3, 3), "f4"), "points": np.zeros(3)}
    batch = source.get_many([4, 0, 4], ["pose", "points"], out)
    assert batch["pose"] is out["pose"]
    assert out["pose"][:, 0].tolist() == [4, 0, 4]
    assert isinstance(batch["points"], tuple)  # ragged columns are no array to fill


@pytest.mark.parametrize("source", [Scanned(), Taken()], ids=["scanned", "taken"])
@given(positions=st.lists(st.integers(-10, 9), min_size=1), max_bytes=st.integers(1, 2000), data=st.data())
def test_a_source_gives_the_same_rows_whichever_way_it_defines(source, positions, max_bytes, data):
    expected = [BLOCK.row(position % 10, SCHEMA, NAMES) for position in positions]
    np.testing.assert_equal([source.row(position, NAMES) for position in positions], expected)
    np.testing.assert_equal(source.rows(np.array(positions) % 10, NAMES), expected)
    np.testing.assert_equal(source.get_many(positions, NAMES), Taken().take(np.array(positions) % 10, NAMES))
    start, stop = sorted(data.draw(st.lists(st.integers(0, 10), min_size=2, max_size=2)))
    blocks = list(source.blocks(NAMES, max_bytes, start, stop))
    assert [block.first_row for block in blocks] == np.cumsum([0, *map(len, blocks)]).tolist()[:-1]
    for name in NAMES if blocks else ():
        found = concatenate([block.columns[name] for block in blocks])
        np.testing.assert_equal(list(found), list(take(BLOCK.columns[name], slice(start, stop))))


def test_a_damaged_text_names_the_place_and_the_column():
    columns = {**BLOCK.columns, "name": Ragged.from_bytes([b"\xff"] * 10)}
    with pytest.raises(DatasetError, match=r"here: a value of name isn't UTF-8"):
        Scanned(Block("a", "p", 0, columns)).row(3, ["name"])
