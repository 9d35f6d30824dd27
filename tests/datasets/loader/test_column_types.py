"""Every type of column in batches of the Loader: ours as formats keep them, and those of Arrow."""

import datetime
import decimal
import itertools

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import logloom
from logloom.datasets import Dataset, Loader
from logloom.errors import UsageError
from logloom.io.rows.batches import ragged_of
from logloom.io.rows.unit_rows import LoadedReader
from logloom.schema import Schema
from logloom.testing.rows import TYPES, assert_equal_values, random_block
from tests.cases import case

COUNT = 7
OURS = Schema({f"c{number}": ctype for number, ctype in enumerate(TYPES)})


class Stored(LoadedReader):
    """Seven rows with a column of each type."""

    place = "stored"

    def load(self):
        return OURS, random_block(OURS, COUNT, seed=1)


@pytest.fixture(scope="module")
def ours():
    return Dataset(Stored(), range(COUNT), tuple(OURS.columns))


def samples_of(batch, dataset):
    """The samples of a batch, made of its columns."""
    made = [{} for _ in batch["log_id" if "log_id" in batch else next(iter(batch))]]
    for key, column in batch.items():
        steps = dataset.steps_of(key)
        if isinstance(column, tuple) and steps:
            values, lengths, *inner = column
            rows = list(ragged_of((values, lengths.reshape(-1, *lengths.shape[2:]), *inner)))
            values = [rows[first : first + steps] for first in range(0, len(rows), steps)]
        else:
            values = ragged_of(column) if isinstance(column, tuple) else column
        for number, sample in enumerate(made):
            sample[key] = values[number]
    return made


def assert_like(found, wanted):
    if isinstance(wanted, list):
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted, strict=True):
            assert_like(one, other)
    elif isinstance(wanted, str | bytes):
        assert found == wanted
    elif wanted.dtype.kind == "U":  # texts of a batch are objects
        assert found.tolist() == wanted.tolist()
    else:
        assert_equal_values(found, wanted)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_batch_has_the_values_of_rows_and_windows_of_each_type(ours, workers):
    views = {
        "rows": ours,
        "windows": ours.window([-1, 0], on_edge="pad"),
        "own windows": ours.window({f"c{number}": range(2) for number in range(0, len(TYPES), 2)}),
    }
    for (name, view), shuffle in itertools.product(views.items(), [True, "groups"]):
        options = {"shuffle": shuffle, "prefetch": 0, "batch": 2, "workers": workers}
        with Loader(view, seed=1, **options) as loader:
            batches = [next(loader) for _ in range(4)]
        stamps = [view[number]["timestamp"].tolist() for number in range(len(view))]
        for sample in [one for batch in batches for one in samples_of(batch, view)]:
            wanted = view[stamps.index(sample["timestamp"].tolist())]
            for key, value in wanted.items():
                with case(name, shuffle, key, str(OURS.columns.get(key))):
                    assert_like(sample[key], value)


ARROW = {
    "lists of lists": pa.array([[[1.0], []], [], [[]], [[2.0, 3.0]]]),
    "lists of structs": pa.array([[{"x": 1, "name": "a"}], [], [], [{"x": 2, "name": "bcd"}]]),
    "a struct with a list": pa.array(
        [{"x": 1, "l": [1]}, {"x": 2, "l": []}, {"x": 3, "l": [2]}, {"x": 4, "l": [1]}]
    ),
    "lists of texts": pa.array([["a"], [], ["b", "cde"], ["f"]]),
    "lists of lists of texts": pa.array([[["a"], []], [], [["b", "cde"]], [["f"]]]),
    "texts": pa.array(["a", "", "bcd", "e"]),
    "bytes": pa.array([b"a", b"", b"bcd", b"e"]),
    "nulls": pa.array([1.0, None, 3.0, 4.0]),
    "bools": pa.array([True, False, True, None]),
    "times": pa.array([datetime.datetime(2026, 1, day) for day in range(1, 5)], pa.timestamp("us")),
    "dates": pa.array([datetime.date(2026, 1, day) for day in range(1, 5)]),
    "durations": pa.array([datetime.timedelta(day) for day in range(1, 5)]),
    "decimals": pa.array([decimal.Decimal(day) for day in range(1, 5)]),
    "categories": pa.array(["a", "b", "a", "c"]).dictionary_encode(),
    "maps": pa.array([[("a", 1)], [], [("b", 2), ("c", 3)], []], pa.map_(pa.string(), pa.int64())),
    "lists of three levels": pa.array([[[[1.0]]], [], [[[2.0], []]], []]),
}


@pytest.mark.parametrize("workers", [0, 2])
def test_each_type_of_arrow_is_in_batches_or_left_out_by_name(tmp_path, workers):
    names = [name.replace(" ", "_") for name in ARROW]
    table = pa.table({"n": range(4), **dict(zip(names, ARROW.values(), strict=True))})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=3)
    with pytest.warns(
        UserWarning, match="left out, since they can't be read: lists_of_three_levels: .*rows.left_out"
    ):
        rows = logloom.open(tmp_path)
    assert {name.partition(".")[0] for name in rows.columns} == {"n", *names} - {"lists_of_three_levels"}
    with Loader(rows, batch=3, workers=workers) as loader:
        for sample in samples_of(next(loader), rows):
            for key, value in rows[int(sample["n"])].items():
                with case(key):
                    assert_like(sample[key], value)


def test_a_value_without_a_form_names_its_column_and_the_way_out(ours):
    nested = ours.map(lambda row: {"it": [np.zeros(2), np.zeros(3)]})
    words = "'it' is list, which has no fixed shape: decode, pad or drop it"
    with Loader(nested, batch=2, workers=0) as loader, pytest.raises(UsageError, match=words):
        next(loader)
