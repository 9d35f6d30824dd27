"""Datasets by weight: which row comes when, in any reader of a mixture, and what is refused."""

import collections
import json
import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import logloom.datasets
import logloom.io.formats.table as tt
from logloom.datasets import Loader, mix
from logloom.datasets.loader.orders import MixedOrder, pattern_of, shares_of
from logloom.datasets.views import positions
from logloom.errors import UsageError
from logloom.io.rows.log_ranges import Stretches


def open_table(path, name, length, **more):
    rows = [
        {"log_id": name, "timestamp": 10 * k, "x": np.full(2, k, np.float32), "n": np.int64(k), **more}
        for k in range(length)
    ]
    tt.write_table(str(path / name), rows)
    return logloom.datasets.open(str(path / name))


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mixed")
    return {"urban": open_table(folder, "urban", 7), "highway-north": open_table(folder, "highway-north", 3)}


def sequence(weights, lengths, seed, count, loader_seed=0, shuffle=True):
    """The first positions by the definition: slots by earliest end, each source's own permutations."""
    total = sum(weights)
    taken, found = [0] * len(weights), []
    for position in range(count):
        allowed = [
            s for s, w in enumerate(weights) if w and taken[s] * total < (position + 1) * w
        ]  # one more of it is less than one row too many
        ends = {s: -(-(taken[s] + 1) * total // weights[s]) for s in allowed}
        source = min(allowed, key=lambda s: (ends[s], s))
        epoch, place = divmod(taken[source], lengths[source])
        if shuffle:
            order = np.random.default_rng([seed, loader_seed, source, epoch]).permutation(lengths[source])
            place = int(order[place])
        found.append((source, place))
        taken[source] += 1
    return found


def test_uris_are_opened_with_the_options_and_pinned(tmp_path, two):
    for name, length in (("day", 4), ("night", 2)):
        open_table(tmp_path, name, length)
    day, night = str(tmp_path / "day"), str(tmp_path / "night")
    mixture = mix({day: 0.75, night: 0.25}, columns=["n"])
    assert [set(row) for row in mixture] == [{"source", "log_id", "timestamp", "n"}] * len(mixture)
    counts = collections.Counter(row["source"] for row in mixture)
    assert counts[day] - 3 * counts[night] in range(-3, 4)
    assert [one["share"] for one in mixture.pins["sources"]] == ["3/4", "1/4"]
    assert "day: 0.75 of 4 rows" in repr(mixture)


def test_all_versions_of_datasets_end_to_end_are_pinned(tmp_path):
    parts = []
    for number in (1, 2):
        folder = tmp_path / f"v{number:08}"
        folder.mkdir()
        parts.append(open_table(folder, "table", 3))
    mixture = mix({"one": (parts[0], 1), "both": (logloom.datasets.concat(parts), 1)})
    assert [one["version"] for one in mixture.pins["sources"]] == [1, [1, 2]]


@given(st.lists(st.integers(0, 40), min_size=1, max_size=6).filter(any))
def test_shares_are_within_one_row_of_the_weights_in_every_prefix(weights):
    shares = shares_of(weights)
    pattern, total = pattern_of(shares), sum(shares)
    assert [Fraction(s, total) for s in shares] == [Fraction(w, sum(weights)) for w in weights]
    counts = np.cumsum([pattern == s for s in range(len(shares))], axis=1)
    for source, share in enumerate(shares):
        ahead = counts[source] * total - np.arange(1, total + 1) * share  # in rows, times total
        assert (np.abs(ahead) < total).all()
        assert counts[source][-1] == share


@given(
    weights=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    lengths=st.lists(st.integers(1, 9), min_size=4, max_size=4),
    seeds=st.tuples(st.integers(0, 2**33), st.integers(0, 2**33)),
    start=st.integers(0, 150),
    shuffle=st.booleans(),
)
def test_any_position_is_looked_up_as_counting_from_the_first_finds_it(
    weights, lengths, seeds, start, shuffle
):
    lengths, shares = lengths[: len(weights)], shares_of(weights)
    order = MixedOrder(lengths, shares, shuffle, repeat=True, seed=seeds[0])
    expected = sequence(shares, lengths, seeds[0], start + 40, seeds[1], shuffle)[start:]
    starts = np.cumsum([0, *lengths])
    found = order.rows(np.arange(start, start + 40), seeds[1]).tolist()
    assert found == [starts[source] + row for source, row in expected]


@given(
    weights=st.lists(st.integers(0, 9), min_size=1, max_size=4).filter(any),
    lengths=st.lists(st.integers(1, 9), min_size=4, max_size=4),
    repeat=st.booleans(),
)
def test_an_epoch_ends_where_each_source_came_whole_or_before_one_begins_anew(weights, lengths, repeat):
    lengths, shares = lengths[: len(weights)], shares_of(weights)
    order = MixedOrder(lengths, shares, True, repeat)
    rows = order.rows(np.arange(2 * order.length), 3)
    first, second = rows[: order.length].tolist(), rows[order.length :].tolist()
    starts = np.cumsum([0, *lengths])
    wanted = {row for s, share in enumerate(shares) if share for row in range(starts[s], starts[s + 1])}
    if repeat:
        assert set(first) == wanted
        assert set(first[:-1]) < wanted
        for source, share in enumerate(shares):  # epochs of a source are exact, across those of the mixture
            own = [row for row in rows.tolist() if share and starts[source] <= row < starts[source + 1]]
            for at in range(0, len(own) - lengths[source] + 1, lengths[source]):
                assert len(set(own[at : at + lengths[source]])) == lengths[source]
    else:
        assert len(set(first)) == len(first)
        assert set(first) <= wanted
        assert len(set(second)) == len(second)
        longer = MixedOrder(lengths, shares, True, repeat=True).rows(np.arange(order.length + 1), 3)
        assert len(set(longer.tolist())) == order.length  # one row more is one that came


def ids(batch):
    return list(zip(batch["source"].tolist(), batch["n"].tolist(), strict=True))


def test_a_loader_gives_the_rows_of_the_mixture_with_their_source(two):
    mixture = mix({name: (rows, weight) for (name, rows), weight in zip(two.items(), (3, 2), strict=True)})
    names = list(two)
    expected = [(names[s], row) for s, row in sequence([3, 2], [7, 3], 0, 60)]
    assert [(row["source"], row["n"]) for row in mixture] == expected[: len(mixture)]
    with Loader(mixture, batch=4, workers=2, prefetch=2) as loader:
        batches = [next(loader) for _ in range(15)]
    assert [one for batch in batches for one in ids(batch)] == expected
    assert batches[0]["source"].dtype == "<U13"
    for batch in batches:
        assert (batch["log_id"] == batch["source"]).all()
        assert (batch["x"] == batch["n"][:, None]).all()
    other = mix({names[0]: (two[names[0]], 3), names[1]: (two[names[1]], 2)}, seed=1)
    assert [row["n"] for row in other] != [row["n"] for row in mixture]


def test_functions_of_a_loader_see_the_source_of_names_of_any_length(two):
    mixture = mix({name: (rows, 1) for name, rows in two.items()})

    def added(row, seed):
        return {"source": row["source"], "log_id": row["log_id"], "n": row["n"] + 1}

    with Loader(mixture, batch=4, workers=1, fns=[added]) as loader:
        batch = next(loader)
    assert ids(batch) == [(list(two)[s], row + 1) for s, row in sequence([1, 1], [7, 3], 0, 4)]


@given(
    shards=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    batch=st.integers(1, 5),
    rounds=st.integers(1, 3),
    seed=st.integers(0, 9),
)
def test_a_state_of_any_shard_goes_on_with_any_number_of_shards(two, shards, batch, rounds, seed):
    mixture = mix({name: (rows, weight) for (name, rows), weight in zip(two.items(), (5, 2), strict=True)})
    state, seen = {**Loader(mixture, 1, workers=0).save(), "seed": seed}, []
    for count in shards:
        loaders = [Loader(mixture, batch, workers=0, shard_id=k, num_shards=count) for k in range(count)]
        for loader in loaders:
            loader.load(json.loads(json.dumps(state, sort_keys=True)))
        taken = [[one for _ in range(rounds) for one in ids(next(loader))] for loader in loaders]
        seen += [taken[k][i] for i in range(rounds * batch) for k in range(count)]
        state = loaders[0].save()
    names = list(two)
    assert seen == [(names[s], row) for s, row in sequence([5, 2], [7, 3], 0, len(seen), seed)]
    assert isinstance(state["step"], int)
    assert state["step"] == len(seen)


def test_a_state_of_other_sources_is_refused_and_says_what_differs(two):
    urban, highway = two.values()
    with Loader(mix({"a": (urban, 1), "b": (highway, 1)}), 2, workers=0) as loader:
        state = loader.save()
        loader.load(state)
        with pytest.raises(UsageError, match="over another source of rows, not over a mixture"):
            loader.load({"step": 0, "seed": 0})
        with pytest.raises(UsageError, match="no state of a mixture"):
            loader.load({"step": 0, "seed": 0, "mix": {"seed": 0, "repeat": True, "sources": [3]}})
    with Loader(urban, 2, workers=0) as loader, pytest.raises(UsageError, match="over a mixture, not"):
        loader.load(state)
    for other, why in (
        ({"a": (urban.take(6), 1), "b": (highway, 1)}, "rows of a was 7, is 6"),
        ({"a": (urban, 2), "b": (highway, 1)}, "share of a was 1/2, is 2/3; share of b was 1/2, is 1/3"),
        ({"b": (highway, 1), "a": (urban, 1)}, "place of a was 0, is 1"),
    ):
        with Loader(mix(other), 2, workers=0) as loader, pytest.raises(UsageError, match=why):
            loader.load(state)
    other = mix({"a": (urban, 1), "b": (highway, 1)}, seed=4)
    with Loader(other, 2, workers=0) as loader, pytest.raises(UsageError, match="seed was 0, is 4"):
        loader.load(state)


def test_a_state_of_as_many_other_rows_is_refused(two):
    urban, highway = two.values()
    with Loader(mix({"a": (urban.take(slice(0, 4)), 1), "b": (highway, 1)}), 2, workers=0) as loader:
        state = json.loads(json.dumps(loader.save()))
    again = urban.filter("n < 4")
    assert [row["n"] for row in again] == [0, 1, 2, 3]
    with Loader(mix({"a": (again, 1), "b": (highway, 1)}), 2, workers=0) as loader:
        loader.load(state)  # the same rows, chosen another way
    for other in (urban.take(slice(1, 5)), urban.filter("n > 2"), urban.take([3, 2, 1, 0])):
        assert len(other) == 4
        mixed = mix({"a": (other, 1), "b": (highway, 1)})
        message = "digest of the chosen rows of a was"
        with Loader(mixed, 2, workers=0) as loader, pytest.raises(UsageError, match=message):
            loader.load(state)
    del state["mix"]["sources"][0]["digest"]
    mixed = mix({"a": (again, 1), "b": (highway, 1)})
    with Loader(mixed, 2, workers=0) as loader, pytest.raises(UsageError, match="is no state of"):
        loader.load(state)


def test_a_state_of_a_mixture_that_shuffles_is_refused_where_the_loader_does_not(two):
    mixture = mix({name: (rows, 1) for name, rows in two.items()})
    with Loader(mixture, 2, workers=0) as loader:
        state = loader.save()
    with (
        Loader(mixture, 2, workers=0, shuffle=False) as loader,
        pytest.raises(UsageError, match="another mixture: shuffle was True, is False"),
    ):
        loader.load(state)


def test_the_digest_of_rows_is_the_same_however_logs_are_stored():
    rows = positions.digest_of_rows(range(2, 7), Stretches.of_logs(["a", "b"], [4, 5]))
    other = Stretches.of_logs(["b", "a"], [5, 4])
    assert positions.digest_of_rows(np.array([7, 8, 0, 1, 2]), other) == rows
    cut = Stretches(["a", "a", "b"], ["p0", "p1", "p0"], [""] * 3, np.array([3, 1, 5]))
    assert positions.digest_of_rows(range(2, 7), cut) == rows
    assert positions.digest_of_rows(np.arange(2, 7), cut) == rows
    assert positions.digest_of_rows(range(3, 8), cut) != rows
    assert positions.digest_of_rows(np.array([3, 2, 4, 5, 6]), cut) != rows
    assert positions.digest_of_rows(range(0), cut) == positions.digest_of_rows(np.arange(0), other)


def test_windows_and_functions_of_datasets_are_kept(two):
    past = {name: (rows.window([-1, 0]), 1) for name, rows in two.items()}
    mixture = mix(past)
    with Loader(mixture, 3, workers=0) as loader:
        batch = next(loader)
    assert batch["n"].shape == (3, 2)
    assert (np.diff(batch["n"]) == 1).all()
    doubled = mix({name: (rows.map(lambda row: {"n": 2 * row["n"]}), 1) for name, rows in two.items()})
    with Loader(doubled, 4, workers=0) as loader:
        batch = next(loader)
    assert ids(batch) == [(list(two)[s], 2 * row) for s, row in sequence([1, 1], [7, 3], 0, 4)]


def test_a_mixture_pickles_and_gives_many_rows_in_the_order_asked_for(two):
    mixture = mix({name: (rows, 1) for name, rows in two.items()})
    copy = pickle.loads(pickle.dumps(mixture))
    every = [(row["source"], row["n"]) for row in mixture]
    chosen = [5, 0, 5, 3]
    assert [(row["source"], row["n"]) for row in copy.__getitems__(chosen)] == [every[p] for p in chosen]
    for position in (-1 - len(mixture), len(mixture)):
        with pytest.raises(IndexError, match=f"row {position} of {len(mixture)}"):
            mixture[position]


def test_datasets_that_cannot_be_mixed_are_refused_by_name(tmp_path, two):
    urban, highway = two.values()
    other = open_table(tmp_path, "other", 2, more=np.float32(1))
    with pytest.raises(UsageError, match=r"mix: dataset 1 .* has other columns .*: it also has more"):
        mix({"urban": (urban, 1), "other": (other, 1)})
    with pytest.raises(UsageError, match="windows of 2 rows, urban of 0"):
        mix({"urban": (urban, 1), "highway": (highway.window([0, 1]), 1)})
    with pytest.raises(UsageError, match="urban has a column 'n'"):
        mix({"urban": (urban, 1)}, key="n")
    with pytest.raises(UsageError, match="highway has no rows"):
        mix({"urban": (urban, 1), "highway": (highway.take(0), 1)})
    assert len(mix({"urban": (urban, 1), "highway": (highway.take(0), 0)})) == 7
    with pytest.raises(UsageError, match="is a list, no dataset"):
        mix({"urban": ([], 1)})
    with pytest.raises(UsageError, match="expected names or URIs with weights, not a list; pass a dict"):
        mix([urban, highway])
    with pytest.raises(UsageError, match=r"mix: urban has no weight; .*\{'urban': \(rows, 1\)\}"):
        mix({"urban": urban})
    with pytest.raises(UsageError, match="seed=-1"):
        mix({"urban": (urban, 1)}, seed=-1)
    plain = urban.map(lambda row: {"n": row["n"]})
    for changed, why in (
        (highway.map(lambda row: {"n": float(row["n"])}), r"n is int64 \[\] of a, and float64 \[\] of b"),
        (highway.map(lambda row: {"m": row["n"]}), "b lacks n; also has m"),
    ):
        mixture = mix({"a": (plain, 1), "b": (changed, 1)})
        with Loader(mixture, 2, workers=0) as loader, pytest.raises(UsageError, match=why):
            next(loader)


@pytest.mark.parametrize(
    ("weights", "why"),
    [
        ([-1, 2], "none is negative"),
        ([0, 0], "not all are 0"),
        (["much", 1], "weight 'much': not a number; a weight is a number"),
        ([float("nan"), 1], "weight nan: not a number"),
        ([float("inf"), 1], "weight inf: not a number"),
        (["1/0", 1], "weight '1/0': not a number"),
        ([0.33333333, 0.66666668], "round them"),
        ([], "^mix: no sources"),
    ],
)
def test_weights_that_are_none_are_refused(weights, why):
    with pytest.raises(UsageError, match=why):
        shares_of(weights)


def test_weights_are_exact():
    assert shares_of([0.6, 0.4]) == [3, 2]
    assert shares_of([0.1, 0.2, 0.7]) == [1, 2, 7]
    assert shares_of([1, Fraction(1, 2), "0.5"]) == [2, 1, 1]


def one_by_one(mixture, numbers):
    """A batch as rows that are read alone make it."""
    rows = [mixture.rows[int(number)] for number in numbers]
    return {key: [row[key] for row in rows] for key in rows[0]}


def assert_batch(mixture, numbers):
    batch, expected = mixture.rows.get_many(np.array(numbers)), one_by_one(mixture, numbers)
    assert list(batch) == list(expected)
    for key, column in batch.items():
        np.testing.assert_array_equal(column, expected[key])


def test_a_batch_of_tables_is_one_read_whatever_rows_are_chosen_of_them(two, tmp_path, monkeypatch):
    urban, highway = two.values()
    third = open_table(tmp_path, "third", 4).filter("n > 0").shuffle(3)
    parts = {"a": (urban.take([5, 0, 0, 6]), 2), "b": (highway, 1), "c": (third, 1), "d": (urban, 1)}
    mixture = mix(parts)
    order = np.random.default_rng(0).integers(0, len(mixture.rows), 40)
    read = type(urban.source.leaves()[0].loader).get_many
    calls = []
    monkeypatch.setattr(
        type(urban.source.leaves()[0].loader), "get_many", lambda *a, **k: calls.append(1) or read(*a, **k)
    )
    out = {"x": np.empty((40, 2), np.float32)}
    batch = mixture.rows.get_many(order, out=out)
    assert batch["x"] is out["x"]
    assert len(calls) == 1
    assert_batch(mixture, order)
    assert_batch(pickle.loads(pickle.dumps(mixture)), order)
    assert_batch(mix({"empty": (urban.head(0), 0), "b": (highway, 1)}), [0, 2, 1])
    both = logloom.datasets.concat([urban, highway, urban])
    calls.clear()
    numbers = [16, 3, 8, 9, 3]
    assert both.get_many(numbers)["n"].tolist() == [6, 3, 1, 2, 3]
    assert len(calls) == 1


def test_a_batch_of_tables_that_store_rows_apart_is_put_together(two, tmp_path):
    rows = [
        {"log_id": "z", "timestamp": k, "x": np.full(2, k, np.float32), "n": np.int64(k)} for k in range(5)
    ]
    tt.write_table(str(tmp_path / "apart"), rows, groups={"one": ["x"], "other": ["n"]})
    apart = logloom.datasets.open(str(tmp_path / "apart"))
    mixture = mix({"urban": (two["urban"], 1), "apart": (apart, 1)})
    assert_batch(mixture, [0, 11, 7, 6, 7])
    assert logloom.datasets.concat([two["urban"], apart]).get_many([8, 1])["n"].tolist() == [1, 1]


def test_tables_that_are_opened_with_other_storage_options_are_read_apart(two):
    (own,) = two["urban"].source.leaves()
    other = logloom.datasets.open(own.place, storage_options={"auto_mkdir": False})
    assert own.joined(two["highway-north"].source.leaves()) is not None
    assert own.joined(other.source.leaves()) is None


def shifted(row):
    return {**row, "n": row["n"] + 100}


def pair(row):
    return row["source"], int(row["n"])


def test_rows_of_a_mixture_are_chosen_as_those_of_a_list(two):
    mixture = mix({name: (rows, weight) for (name, rows), weight in zip(two.items(), (3, 2), strict=True)})
    every = [(row["source"], int(row["n"])) for row in mixture]
    mask = [number % 3 == 0 for number in range(len(every))]
    pairs = mixture.map(pair)
    assert pairs[-1] == every[-1]
    assert list(pairs[2:9:2]) == every[2:9:2]
    assert list(pairs[::-1][1:3]) == every[::-1][1:3]
    assert list(pairs[[4, -2]]) == [every[4], every[-2]]
    assert list(pairs[mask]) == [one for one, is_kept in zip(every, mask, strict=True) if is_kept]
    assert ids(mixture.get_many(mask)) == list(pairs[mask])
    assert ids(mixture.get_many([-1, 0])) == [every[-1], every[0]]
    assert ids(mixture[3:].get_many(slice(2))) == every[3:5]
    assert pickle.loads(pickle.dumps(pairs))[2:4][0] == every[2]
    with pytest.raises(UsageError, match=f"a mask of 1 for {len(mixture)} rows"):
        mixture[[True]]
    with pytest.raises(UsageError, match="pass the whole mixture"):
        Loader(mixture[2:5], batch=2)


def test_columns_and_functions_of_a_mixture_are_those_of_its_datasets(two):
    mixture = mix({name: (rows, 1) for name, rows in two.items()})
    few = mixture.select(["source", "timestamp", "n"])
    assert (few.columns, list(few[0])) == (("n",), ["source", "log_id", "timestamp", "n"])
    assert list(mixture.get_many([0, 1], "n")) == list(few[0])
    empty = mixture.get_many([])
    assert (empty["x"].shape, empty["x"].dtype) == ((0, 2), np.float32)
    assert (empty["source"].shape, empty["log_id"]) == ((0,), [])
    moved = mixture.map(shifted)
    assert [row["n"] for row in moved[:5]] == [row["n"] + 100 for row in mixture[:5]]
    assert list(moved[0]) == list(mixture[0])
    with Loader(moved, batch=3, workers=0) as loader:
        batch = next(loader)
    assert ids(batch) == [(row["source"], row["n"]) for row in moved[:3]]


def test_statistics_of_a_mixture_count_each_row_as_often_as_it_comes(two):
    mixture = mix({name: (rows, weight) for (name, rows), weight in zip(two.items(), (1, 5), strict=True)})
    values = np.array([row["n"] for row in mixture])
    assert np.mean(values) != np.mean([row["n"] for rows in two.values() for row in rows])
    for stats in (mixture.stats("n"), mixture.stats(["n"])["n"], mixture.stats()["n"]):
        assert (stats["rows"], stats["min"], stats["max"]) == (len(mixture), values.min(), values.max())
        assert stats["mean"] == pytest.approx(values.mean())
        assert stats["std"] == pytest.approx(values.std())
    assert mixture.map(shifted).stats("n")["mean"] == pytest.approx(values.mean() + 100)
    assert mixture[:4].stats("n")["mean"] == pytest.approx(values[:4].mean())


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("filter", r"call it on each dataset before mix, or on logloom\.datasets\.concat"),
        ("to_pandas", r"call it on each dataset before mix"),
        ("head", r"here it is mixture\[:n\]"),
        ("num_rows", r"here it is len"),
        ("nothing", "has no attribute 'nothing'"),
    ],
)
def test_what_a_mixture_lacks_is_named(two, name, message):
    with pytest.raises(AttributeError, match=message):
        getattr(mix({"all": (two["urban"], 1)}), name)
