"""Chains of views against plain lists of dicts, and what single views refuse."""

import math
import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import logloom.datasets
import logloom.io.formats.table as tt
from logloom.datasets import Loader, concat
from logloom.datasets.dataset import RowNumberError
from logloom.errors import UsageError
from tests.cases import case

LOGS = {"a": 5, "b": 1, "c": 4}
KEYS = ("log_id", "timestamp")


def stored_rows():
    found = []
    for log_id, count in LOGS.items():
        for tick in range(count):
            number = len(found)
            found.append(
                {
                    "log_id": log_id,
                    "timestamp": tick * 10,
                    "n": np.int64(number * 7 % 4),
                    "x": np.float64(math.nan if number % 3 == 1 else (number * 5) % 7),
                    "word": "pqr"[number * 2 % 3],
                    "v": np.array([number, -number], np.float32),
                }
            )
    return found


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    path = tmp_path_factory.mktemp("chains") / "t"
    tt.write_table(str(path), stored_rows())
    return logloom.datasets.open(str(path))


class Model:
    """Rows as numbers of `stored_rows`, and the stored name of each column."""

    def __init__(self):
        self.stored = stored_rows()
        self.numbers = list(range(len(self.stored)))
        self.names = {name: name for name in self.stored[0] if name not in KEYS}

    def value(self, number, name):
        return self.stored[number][self.names.get(name, name)]

    def row(self, number):
        return {name: self.value(number, name) for name in (*KEYS, *self.names)}

    def sorted(self, name, descending):
        has_value = [n for n in self.numbers if self.value(n, name) == self.value(n, name)]
        without = [n for n in self.numbers if n not in set(has_value)]
        # Python's sort is stable in both directions.
        return sorted(has_value, key=lambda n: self.value(n, name), reverse=descending) + without


def same(found, wanted):
    assert list(found) == list(wanted)
    for name, value in wanted.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


def steps(data, view, model):
    """One view more, of the dataset and of the model."""
    count, scalars = len(model.numbers), [name for name, own in model.names.items() if own != "v"]
    kinds = ["head", "tail", "slice", "list", "mask", "shuffle", "select", "drop", "rename", "sort_by"]
    kind = data.draw(st.sampled_from([*kinds, *(["filter"] if scalars else [])]))
    if kind in ("head", "tail"):
        some = data.draw(st.integers(0, count + 2))
        model.numbers = model.numbers[:some] if kind == "head" else model.numbers[max(0, count - some) :]
        return getattr(view, kind)(some)
    if kind == "slice":
        ends = st.none() | st.integers(-count - 1, count + 1)
        part = slice(data.draw(ends), data.draw(ends), data.draw(st.sampled_from([None, 1, 2, -1, -3])))
        model.numbers = model.numbers[part]
        return view[part]
    if kind == "list":
        chosen = data.draw(st.lists(st.integers(-count, count - 1), max_size=12)) if count else []
        model.numbers = [model.numbers[n] for n in chosen]
        return view[data.draw(st.sampled_from([chosen, np.array(chosen, np.int64)]))]
    if kind == "mask":
        mask = data.draw(st.lists(st.booleans(), min_size=count, max_size=count))
        model.numbers = [n for n, is_kept in zip(model.numbers, mask, strict=True) if is_kept]
        return view[mask] if data.draw(st.booleans()) else view.take(np.array(mask, bool))
    if kind == "shuffle":
        seed = data.draw(st.integers(0, 9))
        model.numbers = [model.numbers[n] for n in np.random.default_rng(seed).permutation(count)]
        return view.shuffle(seed)
    if kind in ("select", "drop"):
        chosen = data.draw(st.lists(st.sampled_from([*model.names]), unique=True)) if model.names else []
        keeps = kind == "select"
        model.names = {name: own for name, own in model.names.items() if (name in chosen) == keeps}
        return getattr(view, kind)([*chosen, "timestamp", "log_id"] if keeps else chosen)
    if kind == "rename":
        free = st.sampled_from(["n", "x", "word", "v", "other", "speed.now"])
        news = data.draw(st.lists(free, min_size=len(model.names), max_size=len(model.names), unique=True))
        changed = dict(zip(model.names, news, strict=True))
        model.names = {changed[name]: own for name, own in model.names.items()}
        return view.rename(changed)
    name = data.draw(st.sampled_from([*scalars, "log_id", "timestamp"]))
    if kind == "sort_by":
        descending = data.draw(st.booleans())
        model.numbers = model.sorted(name, descending)
        return view.sort_by(name, descending=descending)
    value = model.value(data.draw(st.integers(0, len(model.stored) - 1)), name)
    model.numbers = [n for n in model.numbers if model.value(n, name) == value]
    if not isinstance(value, str) and value != value:
        return view.filter(f"{name} == 1 and {name} == 2")
    return view.filter(f"{name} == {value!r}" if isinstance(value, str) else f"{name} == {value}")


@given(st.data())
def test_chains_of_views_have_the_rows_of_lists_and_dicts(rows, data):
    view, model = rows, Model()
    for _ in range(data.draw(st.integers(1, 6))):
        view = steps(data, view, model)
    assert len(view) == len(model.numbers)
    wanted = [model.row(number) for number in model.numbers]
    for found, row in zip(view, wanted, strict=True):
        same(found, row)
    batch = pickle.loads(pickle.dumps(view)).get_many(slice(None))
    assert list(batch) == [*KEYS, *model.names]
    for name in batch:
        np.testing.assert_array_equal(batch[name], [row[name] for row in wanted] or batch[name][:0])
    frame = view.to_pandas()
    assert (list(frame), len(frame)) == ([*KEYS, *model.names], len(wanted))
    assert view.to_arrow().schema == view[:0].to_arrow().schema
    for name, own in model.names.items():
        assert view.stats([name])[name]["rows"] == len(wanted)
        if own != "v":
            values = {row[name] for row in wanted if row[name] == row[name]}
            assert view.unique(name).tolist() == sorted(values)
    windows = view.window({name: [-1, 0] for name in model.names}, on_edge="pad") if model.names else view
    for found, number in zip(windows, model.numbers, strict=True):
        has_before = model.stored[number]["timestamp"] > 0
        for name in model.names:
            assert found[f"{name}.mask"].tolist() == [has_before, True]
            np.testing.assert_array_equal(found[name][1], model.value(number, name))
            if has_before:
                np.testing.assert_array_equal(found[name][0], model.value(number - 1, name))
    both = concat([view, view])
    assert [row["timestamp"] for row in both] == 2 * [row["timestamp"] for row in wanted]


@pytest.mark.parametrize(
    "key", [[0, -1], np.array([0, -1]), (-1, 0)[::-1], range(0, -1, -1), [True, False] * 5]
)
def test_several_rows_are_a_view_and_a_batch(rows, key):
    numbers = np.arange(10)[list(key)]
    assert rows.take(key).positions.tolist() == numbers.tolist()
    assert rows.get_many(key)["n"].tolist() == [rows[number]["n"] for number in numbers.tolist()]
    if not isinstance(key, tuple):
        assert rows[key].positions.tolist() == numbers.tolist()


def test_a_column_of_the_index_or_of_pandas_is_a_mask(rows):
    assert {row["log_id"] for row in rows[rows.index["log_id"] == "c"]} == {"c"}
    assert rows.get_many(rows.index["log_id"] == "b")["log_id"] == ["b"]


def test_views_of_windows_and_of_mapped_rows_keep_their_form(rows):
    windows = rows.window([-1, 0])
    assert windows.sort_by("timestamp", descending=True)[0]["timestamp"].tolist() == [30, 40]
    assert windows.rename({"n": "m"}).filter("m > 1")[0]["m"].shape == (2,)
    own = rows.window({"n": [-1, 0]}, on_edge="pad").drop("x").rename({"n": "x", "v": "n"})
    assert list(own[0]) == ["log_id", "timestamp", "x", "word", "n", "x.mask"]
    assert own.get_many([1])["n"].shape == (1, 2)
    mapped = rows.map(lambda row: {"neg": -row["n"], "word": row["word"]})
    assert mapped.sort_by("neg")[0]["neg"] == -3
    assert mapped.unique("neg").tolist() == [-3, -2, -1, 0]
    assert list(mapped.drop("neg")[0]) == ["word"]
    assert set(mapped.stats()) == {"word"}
    assert rows.sort_by(["word", "n"], descending=True)[0]["n"] == 3
    assert rows.sort_by([]).positions.tolist() == rows.positions.tolist()
    assert list(rows.select("timestamp")[0]) == [*KEYS]
    assert rows.select(["x", "timestamp"]).columns == ("x",)


def test_a_renamed_view_has_the_values_of_its_source_wherever_it_is_read(rows):
    view = rows.rename({"x": "y", "n": "x"})
    for text in ("{} > 1 for 10ns", "{} >= 2 and not {} == 3", "{} > 4 within 10ns"):
        with case(text):
            found, wanted = view.filter(text.format("y", "y")), rows.filter(text.format("x", "x"))
            assert found.positions.tolist() == wanted.positions.tolist()
    assert view.source.row(3, ["y"])["y"] == rows[3]["x"]
    assert [block.columns["x"].tolist() for block in view.source.blocks(["x"])] == [
        block.columns["n"].tolist() for block in rows.source.blocks(["n"])
    ]
    with Loader(view, batch=10, shuffle=False, workers=0) as loader:
        batch = next(loader)
    assert list(batch) == [*KEYS, "x", "y", "word", "v"]
    np.testing.assert_array_equal(batch["y"], rows.get_many(slice(None))["x"])
    into = {"y": np.empty(10), "timestamp": np.empty(10, np.int64)}
    assert view.get_many(slice(None), out=into)["y"] is into["y"]
    np.testing.assert_array_equal(into["y"], batch["y"])


@pytest.fixture
def gaps(tmp_path):
    columns = {"i": pa.array([3, None, 1, 1]), "t": ["b", None, "a", ""], "f": [2.0, None, math.nan, -1.0]}
    pq.write_table(pa.table(columns), tmp_path / "x.parquet")
    return logloom.datasets.open(tmp_path / "x.parquet")


def test_rows_without_a_value_come_last_and_have_none_of_the_different_ones(gaps):
    rows = gaps
    for name, upwards, downwards, values in (
        ("i", [2, 3, 0, 1], [0, 2, 3, 1], [1, 3]),
        ("t", [3, 2, 0, 1], [0, 2, 3, 1], ["", "a", "b"]),
        ("f", [3, 0, 1, 2], [0, 3, 1, 2], [-1.0, 2.0]),
        (["i", "f"], [3, 2, 0, 1], [0, 3, 2, 1], None),
    ):
        with case(name):
            assert rows.sort_by(name).positions.tolist() == upwards
            assert rows.sort_by(name, descending=True).positions.tolist() == downwards
            assert values is None or rows.unique(name).tolist() == values


def test_scaled_columns_are_without_a_value_where_the_stored_ones_are(gaps):
    scaled = gaps.normalized(["i", "f"])
    assert scaled.sort_by("i").positions.tolist() == [2, 3, 0, 1]
    assert scaled.select("f").sort_by("f", descending=True).positions.tolist() == [0, 3, 1, 2]
    assert len(scaled.unique("i")) == 2
    assert scaled[:0].unique("i").tolist() == []
    assert gaps.map(lambda row: {"i": -row["i"]}).unique("i").tolist() == [-3, -1, 0]


def test_the_mask_of_a_scaled_column_is_selected_alone(gaps):
    windows = gaps.window({"f": [-1, 0]}, on_edge="pad").normalized("f")
    found = windows.select(["f.mask"])
    assert {name: value.tolist() for name, value in found[0].items()} == {"f.mask": [False, True]}
    assert found.columns == ("f",)
    assert gaps.window([-1, 0], on_edge="pad").normalized("f").select("mask").columns == ()


def test_windows_of_availabilities_are_renamed_with_their_column(gaps):
    windows = gaps.select(["i", "i.available"]).window({"i": [0, 1], "i.available": [-1, 0]}, on_edge="pad")
    sample = windows.rename({"i": "y"})[0]
    assert sample["y.available"].tolist() == [False, True]
    assert sample["y.available.mask"].tolist() == [False, True]


def test_statistics_of_all_columns_or_several_are_by_name(rows):
    every = rows.stats()
    assert list(every) == ["n", "x", "word", "v"]
    assert every["x"] == rows.stats("x") == rows.stats(["x", "n"])["x"]
    renamed = rows.rename({"x": "y"}).stats("y")
    assert renamed == every["x"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda rows: rows[[True]], "a mask of 1 for 10 rows"),
        (lambda rows: rows[np.ones(11, bool)], "a mask of 11 for 10 rows"),
        (lambda rows: rows.get_many([True]), "a mask of 1 for 10 rows"),
        (lambda rows: rows.get_many([1.5]), "chosen by .* integers or bools"),
        (lambda rows: rows[["x", "n"]], r"rows\.select\(\[…\]\) chooses columns"),
        (lambda rows: rows[1, 2], r"rows\.take\(\[…\]\) return several rows"),
        (lambda rows: rows.tail(-1), r"tail\(-1\): .* rows\[1:\] skips 1 rows"),
        (lambda rows: rows.sort_by("v"), "sort_by: rows have more than one number or text of v; make one"),
        (lambda rows: rows.unique("wrod"), "no column matches 'wrod'; did you mean word"),
        (lambda rows: rows.map(dict).sort_by("wrod"), "no key matches 'wrod'; did you mean word"),
        (lambda rows: rows.sort_by("*"), "names no single column"),
        (lambda rows: rows.drop("timestamp"), "drop: all rows have timestamp"),
        (lambda rows: rows.drop("wrod"), "no column matches 'wrod'; did you mean word"),
        (lambda rows: rows.rename({"wrod": "y"}), "no column matches 'wrod'; did you mean word"),
        (lambda rows: rows.rename({"x": "n"}), "rename: two columns would be 'n'"),
        (lambda rows: rows.rename({"x": "n.mask"}).window({"n": [0]}, on_edge="pad"), "'n.mask' is a column"),
        (lambda rows: rows.rename({"x": "row"}), "rename: 'x' can't become 'row'"),
        (lambda rows: rows.rename({"x": "y.age"}), r"neither in \.age nor in \.available"),
        (lambda rows: rows.map(dict).rename({"x": "y"}), "call rename before map"),
        (lambda rows: rows.stats("timestamp"), "rows.index"),
        (lambda rows: rows.rename({"x": "y"}).filter("x > 1"), "x"),
        (lambda rows: rows.sort_by(["x", "n"], descending=[True]), "one for each of 2 columns"),
        (lambda rows: rows.sort_by("x", descending="no"), "descending='no'; pass True or False"),
        (lambda rows: rows.sort_by("x", descending=1), "descending=1; pass True or False"),
        (lambda rows: rows.sort_by("x", ascending=False), "no argument ascending; descending=True"),
        (lambda rows: rows.sort_by("x", reverse=True), "no argument reverse; descending=True"),
        (lambda rows: rows[True], r"rows\[True\]: rows are reached by number"),
        (lambda rows: rows[np.array(True)], "rows are reached by number"),
        (lambda rows: rows.map(lambda row: {"k": None}).unique("k"), "k is None in some rows; return NaN"),
        (
            lambda rows: rows.normalized(["n", "x"]).filter("x > 1"),
            "changed x; call filter before",
        ),
        (lambda rows: rows.normalized("x").window([0]).filter("not x > 1"), "normalized changed x"),
        (lambda rows: rows.filter("round(x) == 1"), r"as in 0\.5 <= column < 1\.5"),
    ],
)
def test_what_a_view_refuses_names_the_remedy(rows, call, message):
    with pytest.raises(UsageError, match=message):
        call(rows)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("x", r"'x'; rows\.select\('x'\) has that column"),
        ("wrod", r"'wrod'; did you mean word\?"),
        ("filtre", r"'filtre'; did you mean filter\?"),
        ("zzzzzz", "no attribute 'zzzzzz'$"),
    ],
)
def test_an_unknown_attribute_names_the_column_or_the_nearest(rows, name, message):
    with pytest.raises(AttributeError, match=message):
        getattr(rows, name)
    with pytest.raises(AttributeError, match=r"rows\.select\('ego\.\*'\)"):
        rows.rename({"x": "ego.speed"}).ego  # noqa: B018


def test_a_flag_for_each_column_orders_it(rows):
    view = rows.sort_by(["word", "n", "timestamp"], descending=[True, False, np.True_])
    keys = [(-ord(row["word"]), row["n"], -row["timestamp"]) for row in view]
    assert keys == sorted(keys)
    assert rows.sort_by(["word", "n"], descending=(False, False)).positions.tolist() == (
        rows.sort_by(["word", "n"]).positions.tolist()
    )


@pytest.mark.parametrize("of", [int, float, bool, lambda n: [0.5, 1, 2, 3][n]])
def test_numbers_of_python_that_functions_return_are_ordered(rows, of):
    view = rows.map(lambda row: {"k": of(row["n"])})
    values = [of(row["n"]) for row in rows]
    assert view.unique("k").tolist() == sorted(set(values))
    assert [row["k"] for row in view.sort_by("k", descending=True)] == sorted(values, reverse=True)


def test_statistics_of_a_key_that_a_function_added_name_another_way(rows):
    with pytest.raises(UsageError, match="no column matches 'k'") as caught:
        rows.map(lambda row: {"k": len(row["word"])}).stats("k")
    assert any(".describe()" in note for note in caught.value.__notes__)


def test_a_text_filter_of_other_columns_stays_possible_after_normalized(rows):
    view = rows.normalized("x")
    assert view.filter("n > 1 and log_id != 'b'").positions.tolist() == (
        rows.filter("n > 1 and log_id != 'b'").positions.tolist()
    )


def test_a_row_that_there_is_not_is_an_index_error(rows):
    for key in (10, [10], np.array([0, -11]), 2**64 - 1, 2**70, np.array([2**64 - 1], np.uint64)):
        with pytest.raises(IndexError, match="of 10"):
            rows[key]
        with pytest.raises(IndexError, match="of 10"):
            rows.source.get_many(key)
    with pytest.raises(RowNumberError):
        rows["x"]
