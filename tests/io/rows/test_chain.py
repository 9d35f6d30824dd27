"""A folder of units as one source of rows."""

import numpy as np
import pytest

from logloom.blocks import Block
from logloom.io.rows.chain import UnitsSource
from logloom.io.rows.unit_rows import LoadedReader
from logloom.io.storage.store import Store
from logloom.schema import ColumnType, Schema

SCHEMA = Schema({"speed": ColumnType(np.dtype("f4"), ())})


class CountedReader(LoadedReader):
    """Three rows of a log; notes when it is read."""

    schema = SCHEMA

    def __init__(self, number, read):
        self.number, self.read = number, read

    def load(self):
        self.read.append(self.number)
        stamps = np.arange(3) + 3 * self.number
        columns = {"timestamp": stamps, "speed": stamps.astype("f4")}
        return SCHEMA, Block("a", str(self.number), 0, columns)


def units(tmp_path, read):
    return UnitsSource(Store.at(str(tmp_path)), "counted", [CountedReader(n, read) for n in range(4)])


def test_a_share_reads_no_unit_behind_it(tmp_path):
    read = []
    (block,) = units(tmp_path, read).blocks(["speed"], start=3, stop=6)
    assert block.timestamp.tolist() == [3, 4, 5]
    assert read == [0, 1]


@pytest.mark.parametrize("start", range(0, 12, 2))
@pytest.mark.parametrize("stop", [None, *range(1, 13, 3)])
def test_any_range_of_rows_is_those_rows(tmp_path, start, stop):
    blocks = list(units(tmp_path, []).blocks(["speed"], start=start, stop=stop))
    found = [stamp for block in blocks for stamp in block.timestamp.tolist()]
    assert found == list(range(12))[start:stop]
