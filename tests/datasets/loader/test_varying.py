"""Batches of texts, bytes and lists of any length, and of windows, whatever process fills them."""

import gc
import itertools

import numpy as np
import pytest

import logloom.datasets
import logloom.io.formats.table as tt
from logloom.datasets import Loader, mix
from logloom.datasets.loader.loader import LoaderError
from logloom.errors import UsageError
from logloom.schema import ColumnType, Schema
from tests.tier import by_tier

pytestmark = pytest.mark.timeout(by_tier(900, 14_400))

TYPES = Schema(
    {
        "state": ColumnType(np.dtype("f4"), (2,)),
        "points": ColumnType(np.dtype("i2"), (None, 2)),
        "image": ColumnType(np.dtype("u1"), (None,), "bytes"),
        "task": ColumnType(np.dtype("u1"), (None,), "string"),
    }
)
COUNT = 14


def made(number, log_id):
    return {
        "log_id": log_id,
        "timestamp": number * 10**8,
        "state": np.full(2, number, "f4"),
        "points": np.full((number * 7 % 5, 2), number, "i2"),
        "image": bytes([number, 0]) * (9000 if number % 3 else 1),
        "task": f"pick {'the cube ' * (number % 4)}ö" if number else "",
    }


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """Two logs; what row 0 has is the shortest of all."""
    folder = tmp_path_factory.mktemp("varying")
    stored = [made(n, "take_0") for n in range(8)] + [made(n, "another take") for n in range(6)]
    tt.write_table(str(folder / "t"), stored, types=TYPES)
    return logloom.datasets.open(folder / "t")


def windows(rows):
    return rows.window({"image": range(-1, 1), "points": range(2), "task": [0, 1]}, on_edge="repeat")


def mapped(rows):
    return rows.select(["task", "image", "state"]).map(dict)


VIEWS = [lambda rows: rows, windows, lambda rows: rows.window([-1, 0], on_edge="pad"), mapped]


def values_of(batch, dataset):
    """The batch's samples, made of its columns."""
    size = len(next(iter(batch.values())))
    samples = [{} for _ in range(size)]
    for key, column in batch.items():
        at = 0
        for number in range(size):
            if not isinstance(column, tuple):
                samples[number][key] = column[number]
                continue
            found = []
            for length in np.atleast_1d(column[1][number]).tolist():
                found.append(column[0][at : at + length])
                at += length
            samples[number][key] = found if dataset.steps_of(key) else found[0]
    return samples


def check_batch(batch, dataset, numbers):
    for sample, number in zip(values_of(batch, dataset), numbers, strict=True):
        wanted = dataset[number]
        assert list(sample) == list(wanted)
        for key, value in wanted.items():
            found = sample[key]
            if isinstance(value, str | bytes):
                assert type(found) in (type(value), np.str_)  # log_ids
                assert found == value
            elif isinstance(value, list) and isinstance(value[0], np.ndarray):
                assert [one.tolist() for one in found] == [one.tolist() for one in value]
            elif isinstance(value, list):
                assert found.tolist() == value
            else:
                np.testing.assert_array_equal(found, value)


def order_of(length, seed):
    for epoch in itertools.count():
        yield from np.random.default_rng([seed, epoch]).permutation(length).tolist()


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize(("workers", "prefetch"), [(0, 2), (2, 10), (3, 0)])  # the last: a batch in parts
def test_a_batch_has_texts_bytes_and_lists_of_any_length_in_the_seeded_order(rows, view, workers, prefetch):
    dataset = view(rows)
    order, kept = order_of(len(dataset), 3), []
    with Loader(dataset, batch=5, workers=workers, prefetch=prefetch, seed=3) as loader:
        for _ in range(7):  # over the end of epochs
            kept.append((next(loader), list(itertools.islice(order, 5))))
        state = loader.save()
    gc.collect()
    for batch, numbers in kept:  # and what was given stays as it is
        check_batch(batch, dataset, numbers)
    with Loader(dataset, batch=3, workers=2, shard_id=1, num_shards=2, seed=0) as loader:
        loader.load(state)
        check_batch(next(loader), dataset, list(itertools.islice(order, 6))[1::2])


def test_spawned_workers_and_functions_make_batches_of_text(rows):
    with Loader(rows, batch=4, fns=[shout], workers=1, mp="spawn", shuffle=False) as loader:
        assert loader.spec["task"] == (np.dtype(object), ())
        batch = next(loader)
    assert batch["task"].tolist() == [rows[n]["task"].upper() for n in range(4)]
    assert batch["words"].tolist() == [["a" * n, "b"] for n in range(4)]
    assert [type(one) for one in batch["words"][3]] == [str, str]


def shout(row, seed):
    return {"task": row["task"].upper(), "words": np.array(["a" * int(row["state"][0]), "b"])}


def test_what_a_batch_holds_is_known_before_it_is_read(rows):
    text = np.dtype(object), ()
    assert Loader(rows, 1).spec == {
        "log_id": (np.dtype("<U12"), ()),
        "timestamp": (np.dtype("i8"), ()),
        "state": (np.dtype("f4"), (2,)),
        "points": (np.dtype("i2"), (None, 2)),
        "image": text,
        "task": text,
    }
    spec = Loader(windows(rows), 1).spec
    assert (spec["points"], spec["task"]) == ((np.dtype("i2"), (2, None, 2)), (np.dtype(object), (2,)))
    assert (spec["task.mask"], spec["state"]) == ((np.dtype(bool), (2,)), (np.dtype("f4"), (2,)))


def test_columns_are_read_at_once(rows, monkeypatch):
    for view in (rows, windows(rows)):
        loader = Loader(view, batch=4, workers=0, shuffle=False)
        _ = loader.spec
        with monkeypatch.context() as patch:
            patch.setattr(type(view), "__getitems__", None)  # rows one by one
            batch = next(loader)
        check_batch(batch, view, range(4))


def test_a_mixture_has_batches_of_windows_and_texts(rows):
    view = windows(rows)
    parts = {"one": (view.filter("log_id == 'take_0'"), 1), "other": (view.filter("log_id != 'take_0'"), 2)}
    mixture = mix(parts, seed=4)
    whole = next(iter(parts.values()))[0]
    with Loader(mixture, batch=9, workers=2, shuffle=False) as loader:
        batch = next(loader)
        state = loader.save()
        following = next(loader)
    assert sorted(batch["source"].tolist()) == ["one"] * 3 + ["other"] * 6
    for number, sample in enumerate(values_of(batch, whole)):
        part = parts[sample.pop("source")][0]
        places = {int(row["timestamp"]): place for place, row in enumerate(part)}
        wanted = part[places[int(sample["timestamp"])]]
        assert sample["task"].tolist() == wanted["task"], number
        assert sample["image"].tolist() == wanted["image"], number
        assert [one.tolist() for one in sample["points"]] == [one.tolist() for one in wanted["points"]]
        assert sample["points.mask"].tolist() == wanted["points.mask"].tolist()
    with Loader(mix(parts, seed=4), batch=9, workers=0, shuffle=False) as loader:
        loader.load(state)
        again = next(loader)
    assert again["task"].tolist() == following["task"].tolist()
    assert again["points"][0].tolist() == following["points"][0].tolist()
    with pytest.raises(UsageError, match="mix: two has windows of image of 3 rows, one of 2"):
        mix(
            {
                "one": (rows.window({"image": [0, 1], "task": range(3)}), 1),
                "two": (rows.window({"image": range(3), "task": [0, 1]}), 1),
            }
        )


def test_a_mixture_of_windows_of_lists_has_each_list_in_its_place(rows):
    past = rows.window([-1, 0], on_edge="pad").select(["points"])
    both = mix({"a": (past.take(slice(0, 7)), 1), "b": (past.take(slice(7, 14)), 1)})
    values, lengths = both.rows.get_many(np.array([9, 2, 13, 0]))["points"]
    assert lengths.shape == (4, 2)
    wanted = [one for number in (9, 2, 13, 0) for one in past[number]["points"]]
    assert lengths.reshape(-1).tolist() == list(map(len, wanted))
    assert values.tolist() == np.concatenate(wanted).tolist()


class Odd:
    """Rows of which the fourth isn't like the others."""

    def __init__(self, usual, odd):
        self.usual, self.odd = usual, odd

    def __len__(self):
        return 5

    def __getitem__(self, index):
        return {"v": self.odd if index == 3 else self.usual}


@pytest.mark.parametrize(
    ("usual", "odd", "words"),
    [
        ("a", 5, "'v' is int, in row 0 it is text or bytes"),
        (["a", "b"], ["a"], "'v' is list, in row 0 it is a list"),
        (b"a", np.zeros(2), "'v' is ndarray, in row 0 it is text or bytes"),
        (np.array([["a", "b"]] * 2), np.array(["c", "d"]), r"'v' is ndarray, in row 0 it is text \[2, 2\]"),
        (np.zeros(0), np.zeros(1), r"'v' is float64 \(1,\), in row 0 it is float64 \(0,\)"),
        (np.zeros((2, 3)), np.zeros((4, 3)), r"'v' is float64 \(4, 3\), in row 0 it is float64 \(2, 3\)"),
    ],
)
@pytest.mark.parametrize("workers", [0, 1])
def test_a_row_that_is_unlike_row_0_is_named_with_the_way_out(usual, odd, words, workers):
    with (
        Loader(Odd(usual, odd), batch=5, shuffle=False, workers=workers) as loader,
        pytest.raises(LoaderError, match=f"(?s)row 3 .*{words}.*function given as fns"),
    ):
        next(loader)


def test_values_that_are_neither_arrays_nor_text_are_refused_with_the_way_out():
    with pytest.raises(UsageError, match=r"'v' is dict, which has no fixed shape.*fns"):
        _ = Loader(Odd({"a": 1}, None), 1).spec
