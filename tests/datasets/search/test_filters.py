import types

import numpy as np
import pytest

from logloom.datasets.search.log_matches import passing
from logloom.io.rows.log_ranges import Stretches
from logloom.query.where import Filter
from logloom.schema import ColumnType

N = 10_000  # more than two blocks


class Source:
    """What `passing` asks of a source: `v` is read, `weather` and `key` are in memory."""

    place = "rows"
    stamps = np.arange(N)
    structs = types.MappingProxyType({})
    schema = types.SimpleNamespace(all={"v": ColumnType(np.dtype("<f8"))})

    def __init__(self):
        self.weather = [["sun", "rain", "Ü"][n % 3] for n in range(N)]
        self.key = [f"k{n}" for n in range(N)]
        self.small = {"weather": np.array(self.weather, object), "key": np.array(self.key, object)}
        self.logs = [f"log-{n // 2 % 3000}" for n in range(N)]
        self.row_splits = None
        halves = [2] * (N // 2)
        splits = ["train" if n % 2 else "val" for n in range(N // 2)]
        self.stretches = Stretches(self.logs[::2], [""] * len(halves), splits, np.array(halves))

    def take(self, positions, names):
        return {"v": positions / 2}


@pytest.fixture
def largest(monkeypatch):
    """How many distinct texts were compared at once, by column."""
    seen = {}
    mask = Filter.mask

    def counted(self, columns, num_rows):
        for name, column in columns.items():
            if name != "v":
                assert len(column.codes) == num_rows
                seen[name] = max(seen.get(name, 0), len(column.texts))
        return mask(self, columns, num_rows)

    monkeypatch.setattr(Filter, "mask", counted)
    return seen


@pytest.mark.parametrize("read", ["", " and v >= 100"])
def test_texts_in_memory_are_compared_once_each_and_by_the_block_where_rows_are_read(largest, read):
    source = Source()
    positions = np.arange(N)[::-1][:-7]
    where = "weather != 'rain' and key not in ('k5', 'k9000') and log_id > 'log-2' and split == 'val'"
    found = passing(source, positions, where + read)
    assert found.tolist() == [
        n
        for n in positions.tolist()
        if source.weather[n] != "rain"
        and n not in (5, 9000)
        and source.logs[n] > "log-2"
        and n // 2 % 2 == 0
        and (not read or n >= 200)
    ]
    assert largest["weather"] == 3
    assert largest["split"] == 2
    assert largest["log_id"] <= (2049 if read else 3000)
    assert largest["key"] <= (4096 if read else N)


def test_no_rows_pass_where_there_are_none():
    for where in ("weather == 'sun'", "weather == 'sun' and v > 1", "log_id in ('log-1')"):
        assert passing(Source(), np.arange(0), where).tolist() == []


def test_lists_of_lists_are_looked_at_whole():
    class Lists(Source):
        schema = types.SimpleNamespace(all={"v": ColumnType(np.dtype("<f8"), (None, None), "lists")})

        def take(self, positions, names):  # a number, nothing, a number; NaN first in odd rows
            firsts = np.where(positions % 2, np.nan, 1.0)
            values = np.stack([firsts, np.ones(len(positions))], axis=1).reshape(-1)
            return {"v": (values, np.full(len(positions), 3), np.tile([1, 0, 1], len(positions)))}

    positions = np.arange(10)
    assert passing(Lists(), positions, "isfinite(v)").tolist() == [0, 2, 4, 6, 8]
    assert passing(Lists(), positions, "isnan(v) and row >= 0").tolist() == [1, 3, 5, 7, 9]
