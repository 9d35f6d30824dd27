"""Statistics of rows: which lanes columns have, whatever the blocks; and their bytes."""

import bisect
import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logloom.blocks import Block, Ragged
from logloom.cli.stats import _lines, _texts
from logloom.errors import DatasetError
from logloom.pipelines.stats.stats import changes_of
from logloom.schema import NO_AGE, ColumnType, Schema
from logloom.statistics.columns import LENGTHS, ROWS, VALUES, Key, Statistics
from logloom.statistics.exact_sums import Dyadic
from logloom.statistics.rows import SAMPLE, RowStatistics, places
from logloom.statistics.series import Numbers, Texts, numbers_of, texts_of
from logloom.statistics.summary import summary
from logloom.statistics.value_counts import MAX_LEVEL, NO_CELLS, Cells
from logloom.testing.rows import SCHEMA, TYPES, cut, random_block
from tests.tier import by_tier

EVERY_TYPE = Schema({f"c{number}": ctype for number, ctype in enumerate(TYPES)}, ("c0", "c3"))
IMAGE = ColumnType(np.dtype("u1"), (None, None, None))


def counted(blocks, schema, **choices):
    counting = RowStatistics(schema, **choices)
    for block in blocks:
        counting.update(block)
    return counting.close()


def told(values, ctype, *, available=None, **choices):
    """What is said of one column of these values."""
    schema = Schema({"c": ctype}, ("c",) if available is not None else ())
    columns = {"timestamp": np.arange(len(values)), "c": values}
    if available is not None:
        columns |= {"c.available": np.array(available), "c.age": np.arange(len(values)) * 10}
    return summary(counted([Block("log", "0", 0, columns)], schema, **choices), schema)


@pytest.mark.parametrize("schema", [SCHEMA, EVERY_TYPE], ids=["demo", "every type"])
def test_blocks_cut_anywhere_and_merged_in_any_order_give_the_same_bytes(schema):
    block = random_block(schema, 40, seed=3)
    whole = counted([block], schema)
    assert counted(cut(block, [1, 2, 17]), schema) == whole
    parts = [counted([part], schema) for part in cut(block, [5, 6, 30])]
    for order in [*itertools.permutations(parts)][:: by_tier(7, 1)]:
        merged = Statistics.merged(order)
        assert merged == whole
        assert merged.to_bytes() == whole.to_bytes()


@given(st.integers(0, 2**32), st.lists(st.integers(0, 60), max_size=4))
def test_any_rows_in_any_parts_give_the_same(seed, at):
    block = random_block(SCHEMA, 60, seed=seed)
    parts = [counted([part], SCHEMA) for part in cut(block, at)]
    assert Statistics.merged(parts[::-1]) == counted([block], SCHEMA)


def test_bytes_read_back():
    found = counted([random_block(EVERY_TYPE, 20, seed=1)], EVERY_TYPE)
    assert Statistics.from_bytes(found.to_bytes("car/1"), "here") == found
    assert found.to_bytes("car/1") != found.to_bytes("car/2")
    assert Statistics.from_bytes(Statistics({}).to_bytes(), "here") == Statistics({})


def test_brief_statistics_tell_how_many_values_there_are_their_ends_and_their_mean():
    blocks = cut(random_block(EVERY_TYPE, 40, seed=2), [7, 30])
    parts = [counted([block], EVERY_TYPE).to_bytes() for block in blocks]
    whole, brief = (
        Statistics.merged(Statistics.from_bytes(data, "here", brief=how) for data in parts)
        for how in (False, True)
    )
    assert brief.lanes.keys() == whole.lanes.keys()
    for key, lane in whole.lanes.items():
        few = brief.lanes[key]
        if isinstance(lane, Texts):
            assert few == Texts(lane.count, None)
        else:
            assert few == dataclasses.replace(lane, squares=Dyadic(), cells=NO_CELLS)
    assert changes_of(summary(brief, EVERY_TYPE), summary(whole, EVERY_TYPE)).numbers == {}


def test_damaged_bytes_are_refused_by_name():
    data = counted([random_block(SCHEMA, 20, seed=1)], SCHEMA).to_bytes()
    damaged = [data[: len(data) // 2], b"", b"PAR1" * 9]
    damaged += [data[:at] + bytes([data[at] ^ 64]) + data[at + 1 :] for at in range(0, len(data), 97)]
    refused = []
    for one in damaged:
        try:
            Statistics.from_bytes(one, "there")  # some of the footer's bytes nobody reads
        except DatasetError as error:
            refused.append(str(error))
    assert len(refused) > len(damaged) / 2
    assert all(text.startswith("there: not statistics of columns") for text in refused)


CAR = texts_of(["car", "bus", "car"])
FEW = numbers_of(np.array([[3.0, np.nan, 1.0, 3.0]]))[0]
HUGE = Dyadic.parse("1p20000")


@pytest.mark.parametrize(
    ("key", "lane"),
    [
        (Key(None, "", VALUES, 0), FEW),
        (Key("c", "", "moods", 0), FEW),
        (Key("c", "", VALUES, -1), FEW),
        (Key("c", "", ROWS, 0), CAR),
        (Key("c", "", LENGTHS, 0), CAR),
        *(
            (Key("c", "", VALUES, 0), dataclasses.replace(FEW, **said))
            for said in (
                {"count": -3},
                {"below": 4},
                {"low": None},
                {"high": None},
                {"low": HUGE, "high": HUGE, "total": HUGE},
                {"total": HUGE},
                {"total": Dyadic()},
                {"squares": Dyadic()},
                {"squares": Dyadic.of(28)},
                {"count": 4},
                {"cells": Cells(0, FEW.cells.numbers, np.array([2**63 - 1, 4]))},
                {"cells": Cells(0, FEW.cells.numbers[::-1], FEW.cells.counts)},
                {"cells": Cells(0, FEW.cells.numbers | 2047 << 52, FEW.cells.counts)},
                {"cells": Cells(MAX_LEVEL, np.array([15, 16]), FEW.cells.counts)},
                {"cells": Cells(MAX_LEVEL + 1, np.array([0, 1]), FEW.cells.counts)},
                {"cells": NO_CELLS},
            )
        ),
        (Key("c", "", VALUES, 0), Numbers(cells=FEW.cells)),
        (Key("c", "", VALUES, 0), Numbers(low=Dyadic())),
        (Key("c", "", ROWS, 0), dataclasses.replace(FEW, low=None, high=None)),
        *(
            (Key("c", "", VALUES, 0), Texts(count, known))
            for count, known in (
                (4, CAR.known),
                (-1, None),
                (2, {"a": 3, "b": -1}),
                (1, {"a" * 257: 1}),
                (0, {"": 0}),
            )
        ),
    ],
)
def test_statistics_that_no_rows_have_are_refused(key, lane):
    with pytest.raises(DatasetError, match=r"^there: not statistics of columns"):
        Statistics.from_bytes(Statistics({key: lane}).to_bytes(), "there")
    lanes = {Key("c", "", VALUES, 0): FEW, Key("c", "", VALUES, 1): CAR}
    with pytest.raises(DatasetError, match="column 'c': no such lane"):
        Statistics.from_bytes(Statistics(lanes).to_bytes(), "there")


@pytest.mark.parametrize(
    "said",
    [
        {"count": -3},
        {"below": 4},
        {"low": None},
        {"low": HUGE, "high": HUGE, "total": HUGE},
        {"total": HUGE},
        {"total": Dyadic()},
    ],
)
def test_brief_statistics_that_no_rows_have_are_refused(said):
    lane = dataclasses.replace(FEW, **said)
    with pytest.raises(DatasetError, match=r"^there: not statistics of columns"):
        Statistics.from_bytes(Statistics({Key("c", "", VALUES, 0): lane}).to_bytes(), "there", brief=True)


def test_many_parts_of_a_lane_are_merged_meanwhile(monkeypatch):
    blocks = cut(random_block(EVERY_TYPE, 40, seed=3), list(range(1, 40)))
    whole = counted(blocks, EVERY_TYPE)
    monkeypatch.setattr("logloom.statistics.rows._MERGED", 3)
    monkeypatch.setattr("logloom.statistics.rows._WAITING", 1)
    assert counted(blocks, EVERY_TYPE) == whole


def test_a_vector_has_the_values_of_those_elements_that_have_few():
    values = np.stack([np.arange(100) % 2, np.arange(100)], axis=1)
    said = told(values, ColumnType(np.dtype("i8"), (2,)))["c"]
    assert said["distinct"] == {"values": [[0, 1], None], "counts": [[50, 50], None]}
    assert list(_texts("c", said)) == [("c[0]", "0 (50), 1 (50)")]
    assert [line[0] for line in _lines("c", said)] == ["c[0]", "c[1]"]


def test_the_largest_floats_have_finite_quantiles_and_large_ones_are_exact():
    largest = np.finfo("f8").max
    said = told(np.array([-largest, largest]), ColumnType(np.dtype("f8")))["c"]
    assert said["quantiles"]["50"] == 0
    assert np.isfinite([*said["quantiles"].values(), said["std"]]).all()
    stamps = 1.7e18 + 256.0 * np.arange(300)
    said = told(stamps, ColumnType(np.dtype("f8")))["c"]
    assert set(said["errors"].values()) == {0.0}
    assert list(said["quantiles"].values()) == np.quantile(stamps, [0.01, 0.1, 0.5, 0.9, 0.99]).tolist()
    cut_off = told(stamps.astype("i8"), ColumnType(np.dtype("i8")))["c"]
    for percent, value in cut_off["quantiles"].items():
        assert abs(value - said["quantiles"][percent]) <= cut_off["errors"][percent] <= 8192


@pytest.mark.parametrize("least", [2**53 + 12345, 2**60 + 7, -(2**62) + 9, 2**53 - 30])
@pytest.mark.parametrize("spread", [50, 3000, 60_000, 10**6, 2**55])
def test_a_histogram_of_integers_that_floats_do_not_hold_is_exact(least, spread):
    values = least + np.random.default_rng(0).integers(0, spread, 500)
    found = told(values, ColumnType(np.dtype("<i8")))["c"]["histogram"]
    edges = [int(edge) for edge in found["edges"]]
    counts = [0] * (len(edges) - 1)
    for value in values.tolist():  # one on an edge belongs to the bin on the far side of zero
        at = bisect.bisect_right(edges, value) if value >= 0 else bisect.bisect_left(edges, value)
        counts[at - 1] += 1
    assert counts == found["counts"]


def test_a_text_that_no_file_holds_is_counted_with_a_question_mark():
    dtype = np.dtype([("kind", "<U4")])
    said = told(np.array([("\ud800",), ("a",)], dtype), ColumnType(dtype))["c"]
    assert said["fields"]["kind"]["distinct"] == {"values": ["?", "a"], "counts": [1, 1]}


def test_a_number_is_described_as_numpy_describes_it():
    values = np.random.default_rng(0).normal(size=300).astype("f4")
    said = told(values, ColumnType(np.dtype("f4"), unit="m"))["c"]
    exact = values.astype("f8")
    assert (said["rows"], said["unavailable"], said["count"], said["nan"]) == (300, 0, 300, 0)
    assert (said["min"], said["max"], said["unit"]) == (exact.min(), exact.max(), "m")
    assert said["mean"] == pytest.approx(exact.mean(), rel=1e-14)
    assert said["std"] == pytest.approx(exact.std(), rel=1e-14)
    assert list(said["quantiles"].values()) == np.quantile(exact, [0.01, 0.1, 0.5, 0.9, 0.99]).tolist()
    assert set(said["errors"].values()) == {0.0}
    assert sum(said["histogram"]["counts"]) == 300


def test_rows_without_a_message_are_counted_apart_from_nan():
    values = np.array([1.0, np.nan, np.nan, 4.0])
    said = told(values, ColumnType(np.dtype("f8")), available=[True, True, False, True])
    assert said["c"] | {"quantiles": 0, "errors": 0, "histogram": 0} == {
        "type": "float64",
        "rows": 4,
        "unavailable": 1,
        "count": 2,
        "nan": 1,
        "infinite": 0,
        "min": 1.0,
        "max": 4.0,
        "mean": 2.5,
        "std": 1.5,
        "quantiles": 0,
        "errors": 0,
        "histogram": 0,
    }
    assert (said["c.age"]["count"], said["c.age"]["max"]) == (3, 30)
    assert said["c.age"].keys() - {"unit", "distinct"} == said["c"].keys()
    assert [said["c.age"][key] for key in ("rows", "unavailable", "nan", "infinite")] == [4, 1, 0, 0]


def test_rows_without_a_message_have_no_age_even_where_they_have_a_value():
    schema = Schema({"c": ColumnType(np.dtype("i8"))}, ("c",))
    columns = {
        "timestamp": np.arange(4),
        "c": np.array([2, 0, 0, 1]),
        "c.age": np.array([5, NO_AGE, NO_AGE, 7]),
        "c.available": np.ones(4, np.bool_),
    }
    said = summary(counted([Block("log", "0", 0, columns)], schema), schema)
    assert [said["c"][key] for key in ("rows", "unavailable", "count", "mean")] == [4, 0, 4, 0.75]
    found = [said["c.age"][key] for key in ("rows", "unavailable", "count", "min", "max", "mean")]
    assert found == [4, 2, 2, 5, 7, 6.0]


def test_whole_numbers_and_texts_are_listed_with_their_counts():
    said = told(np.array([3, 1, 3], "i2"), ColumnType(np.dtype("i2")))["c"]
    assert said["distinct"] == {"values": [1, 3], "counts": [1, 2]}
    said = told(np.array([True, False, True]), ColumnType(np.dtype("?")))["c"]
    assert said["distinct"] == {"values": [0, 1], "counts": [1, 2]}
    texts = Ragged.from_bytes([b"car", "né".encode(), b"car"])
    said = told(texts, ColumnType(np.dtype("u1"), (None,), "string"))["c"]
    assert said["distinct"] == {"values": ["car", "né"], "counts": [2, 1]}
    assert said["lengths"]["distinct"] == {"values": [3], "counts": [3]}
    stamps = np.array([2**62, 2**62 + 1], "i8")
    assert told(stamps, ColumnType(np.dtype("i8")))["c"]["max"] == 2**62 + 1


def test_a_vector_has_lists_and_a_list_of_structs_its_fields():
    said = told(np.arange(6.0).reshape(2, 3), ColumnType(np.dtype("f8"), (3,)))["c"]
    assert (said["count"], said["mean"], said["quantiles"]["50"]) == (
        [2, 2, 2],
        [1.5, 2.5, 3.5],
        [1.5, 2.5, 3.5],
    )
    dtype = np.dtype([("kind", "<U4"), ("at", "<f4", (2,)), ("inner", [("id", "<i8")])])
    values = np.zeros(3, dtype)
    values["kind"], values["at"], values["inner"]["id"] = (
        ["car", "car", "bus"],
        [[1, 2], [3, 4], [5, 6]],
        [7, 7, 8],
    )
    said = told(Ragged(values, [1, 2]), ColumnType(dtype, (None,)))["c"]
    assert said["fields"]["kind"]["distinct"] == {"values": ["bus", "car"], "counts": [1, 2]}
    assert said["fields"]["at"]["mean"] == [3.0, 4.0]
    assert said["fields"]["inner.id"]["distinct"] == {"values": [7, 8], "counts": [2, 1]}
    assert (said["lengths"]["min"], said["lengths"]["max"]) == (1, 2)


def test_an_image_has_its_channels_and_bytes_their_lengths():
    images = [np.full((4, 5, 3), [1, 2, 3], "u1"), np.full((6, 7, 3), [1, 2, 5], "u1")]
    said = told(Ragged.from_rows(images, IMAGE), IMAGE)["c"]
    assert said["count"] == [62, 62, 62]
    assert said["mean"] == [1.0, 2.0, pytest.approx((20 * 3 + 42 * 5) / 62)]
    assert said["lengths"]["max"] == [6, 7, 3]
    said = told(Ragged.from_bytes([b"abc", b""]), ColumnType(np.dtype("u1"), (None,), "bytes"))["c"]
    assert said["lengths"]["mean"] == 1.5
    assert "count" not in said


def test_of_large_values_a_sample_is_counted_unless_all_are_asked_for():
    rows = [np.random.default_rng(n).normal(size=(1000 + n, 4)).astype("f4") for n in range(3)]
    ctype = ColumnType(np.dtype("f4"), (None, 4))
    said = told(Ragged.from_rows(rows, ctype), ctype)["c"]
    assert said["count"] == [3 * SAMPLE] * 4
    assert said["left_out"] == 3003 - 3 * SAMPLE
    every = told(Ragged.from_rows(rows, ctype), ctype, every_value=True)["c"]
    values = np.concatenate(rows).astype("f8")
    assert every["count"] == [3003] * 4
    assert "left_out" not in every
    assert every["mean"] == pytest.approx(values.mean(axis=0), rel=1e-12)
    assert every["min"] == values.min(axis=0).tolist()
    assert np.abs(np.subtract(said["mean"], every["mean"])).max() < 0.2
    large = told(np.zeros((2, 9, 10), "f4"), ColumnType(np.dtype("f4"), (9, 10)))["c"]
    assert large["count"] == [18] * 10


@given(st.integers(0, 10**7), st.integers(1, 500))
def test_places_of_a_sample_are_different_and_spread_evenly(count, limit):
    found = places(count, limit)
    assert len(found) == min(count, limit)
    assert (np.diff(found) > 0).all()
    stretches = np.arange(len(found) + 1) * count // max(1, len(found))
    assert ((stretches[:-1] <= found) & (found < stretches[1:])).all()


def test_no_rows_are_no_numbers():
    said = told(np.empty(0), ColumnType(np.dtype("f8")))["c"]
    assert (said["count"], said["min"], said["quantiles"]["50"]) == (0, None, None)
    found = counted([random_block(SCHEMA, 0, seed=0)], SCHEMA)
    assert found.lanes[Key("steps", "", ROWS, 0)].count == 0
    assert {key.part for key in found.lanes} <= {ROWS, LENGTHS, VALUES}
