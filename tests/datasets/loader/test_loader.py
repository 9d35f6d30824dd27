"""The Loader: order, resuming, failures, memory, processes."""

import contextlib
import itertools
import json
import multiprocessing
import os
import pickle
import random
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import logloom.datasets
import logloom.io.formats.table as tt
from logloom.datasets.loader.loader import Loader, LoaderError, SharedArray, torch_dataset
from logloom.errors import UsageError
from tests.tier import by_tier, examples

pytestmark = pytest.mark.timeout(by_tier(900, 14_400))


class Rows:
    """Rows that say who they are."""

    def __init__(self, length: int, size: int = 3):
        self.length, self.size = length, size

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        if not 0 <= index < self.length:
            raise IndexError(index)
        return {"id": index, "image": np.full((self.size,), index, np.int32)}


class ManyRows(Rows):
    """Offers many rows at once; single ones are refused, to show that they are not asked for."""

    def __getitem__(self, index):
        assert index == 0, "only for the spec"
        return super().__getitem__(index)

    def __getitems__(self, indices):
        return [Rows.__getitem__(self, index) for index in indices]


class ColumnRows(Rows):
    """Offers columns at once, into given arrays."""

    def __getitem__(self, index):
        assert index == 0, "only for the spec"
        return super().__getitem__(index)

    def get_many(self, indices, columns=None, out=None):
        out["id"][...] = indices
        out["image"][...] = indices[:, None]
        return dict(out)


def expected_ids(length, seed, shuffle=True):
    """The endless order, by definition."""
    for epoch in itertools.count():
        order = np.random.default_rng([seed, epoch]).permutation(length) if shuffle else np.arange(length)
        yield from order.tolist()


def take_ids(loader, batches):
    return [i for _ in range(batches) for i in next(loader)["id"].tolist()]


def test_a_loader_gives_batches_and_resumes_after_the_last_one():
    with Loader(Rows(6), batch=2, shuffle=False) as loader:
        batch = next(loader)
        assert batch["id"].tolist() == [0, 1]
        assert batch["image"].tolist() == [[0, 0, 0], [1, 1, 1]]
        state = loader.save()
    with Loader(Rows(6), batch=2, shuffle=False) as loader:
        loader.load(state)
        assert next(loader)["id"].tolist() == [2, 3]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_batches_are_the_seeded_order_across_epochs_with_none_short(method):
    with Loader(Rows(7), batch=3, workers=2, prefetch=2, mp=method, seed=5) as loader:
        assert iter(loader) is loader
        found = []
        for _ in range(9):
            batch = next(loader)
            assert batch["id"].shape == (3,)
            assert (batch["image"] == batch["id"][:, None]).all()
            found += batch["id"].tolist()
    assert found == list(itertools.islice(expected_ids(7, 5), 27))


def test_unshuffled_rows_come_in_their_own_order():
    with Loader(Rows(4), batch=3, shuffle=False, workers=2) as loader:
        assert take_ids(loader, 3) == [0, 1, 2, 3, 0, 1, 2, 3, 0]


@given(
    length=st.integers(1, 12),
    batch=st.integers(1, 9),
    seed=st.integers(0, 2**40),
    shards=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    rounds=st.integers(1, 4),
    shuffle=st.booleans(),
)
def test_a_state_of_any_shard_resumes_on_any_number_of_shards(length, batch, seed, shards, rounds, shuffle):
    """Run some batches on one number of shards, then on another, and so on: no row twice, none missing."""
    state, seen = {"step": 0, "seed": seed}, []
    for num_shards in shards:
        loaders = [
            Loader(Rows(length), batch, shuffle=shuffle, workers=0, shard_id=k, num_shards=num_shards, seed=1)
            for k in range(num_shards)
        ]
        for loader in loaders:
            loader.load(state)
        taken = [take_ids(loader, rounds) for loader in loaders]
        states = [loader.save() for loader in loaders]
        assert all(found == states[0] for found in states)
        assert {loader.consumed for loader in loaders} == {states[0]["step"]}
        seen += [taken[k][i] for i in range(rounds * batch) for k in range(num_shards)]
        state = pickle.loads(pickle.dumps(states[-1]))
    assert state["step"] == len(seen)
    assert seen == list(itertools.islice(expected_ids(length, seed, shuffle), len(seen)))


@settings(max_examples=examples(1 / 4))
@given(
    workers=st.integers(1, 3), batch=st.integers(1, 8), prefetch=st.integers(0, 4), source=st.integers(0, 2)
)
def test_the_order_is_the_same_for_any_number_of_workers_and_way_to_read(workers, batch, prefetch, source):
    rows = [Rows, ManyRows, ColumnRows][source](11)
    with Loader(rows, batch, workers=workers, prefetch=prefetch, seed=3) as loader:
        found = take_ids(loader, 6)
    assert found == list(itertools.islice(expected_ids(11, 3), 6 * batch))


class FailingColumns(Rows):
    """Columns at once, but for one row that can't be read."""

    def __getitem__(self, index):
        if index == 5:
            raise OSError("unreadable")
        return super().__getitem__(index)

    def get_many(self, indices, columns=None, out=None):
        if 5 in indices:
            raise OSError("unreadable")
        return ColumnRows.get_many(self, indices, columns, out)


def test_a_job_of_several_batches_gives_those_before_the_row_that_failed():
    with Loader(FailingColumns(50), batch=2, shuffle=False, workers=2, prefetch=11) as loader:
        assert loader._together == 3
        assert take_ids(loader, 2) == [0, 1, 2, 3]
        with pytest.raises(LoaderError, match="row 5 "):
            next(loader)
        assert loader.save()["step"] == 4


@settings(max_examples=examples(1 / 4))
@given(
    workers=st.integers(1, 2),
    prefetch=st.integers(3, 12),
    shards=st.integers(1, 3),
    recycle=st.integers(0, 2),
)
def test_jobs_of_several_batches_keep_order_states_and_what_is_held(workers, prefetch, shards, recycle):
    options = {"workers": workers, "prefetch": prefetch, "num_shards": shards, "shard_id": shards - 1}
    wanted = list(itertools.islice(expected_ids(29, 3), 18 * shards))[shards - 1 :: shards]
    with Loader(ColumnRows(29), batch=2, seed=3, recycle_after=recycle, **options) as loader:
        found, held = [], []
        for number in range(9):
            batch = next(loader)
            found += batch["id"].tolist()
            assert loader.save()["step"] == (number + 1) * 2 * shards
            if number % 3 == 1 and not recycle:
                held.append(batch)
        assert found == wanted
        for batch, ids in zip(held, [wanted[2:4], wanted[8:10], wanted[14:16]], strict=False):
            assert batch["id"].tolist() == ids
            assert batch["image"][:, 0].tolist() == ids
        loader.load({"step": 4 * shards, "seed": 3})
        assert take_ids(loader, 7) == wanted[4:]


def test_segments_of_several_batches_are_used_again():
    with Loader(ColumnRows(50, 1000), batch=2, workers=2, prefetch=11) as loader:
        for _ in range(60):
            next(loader)
        assert len(loader._segments) * loader._together <= 11 + 2 * 3
        hoard = [next(loader) for _ in range(30)]
        assert len(loader._segments) >= 10
        del hoard
        for _ in range(10):
            next(loader)
        assert len(loader._segments) * loader._together <= 11 + 5 * 3


def test_more_workers_than_batches_share_a_batch():
    with Loader(Rows(50), batch=8, workers=5, prefetch=0, seed=3) as loader:
        assert take_ids(loader, 4) == list(itertools.islice(expected_ids(50, 3), 32))


def test_workers_killed_at_random_lose_and_repeat_no_row():
    rng = random.Random(4)
    state, seen, deaths = {"step": 0, "seed": 9}, [], 0
    for _ in range(6):
        with Loader(Rows(23, 1000), batch=4, workers=rng.randint(1, 3), prefetch=3) as loader:
            loader.load(state)
            iter(loader)
            victims = [p.pid for p in multiprocessing.active_children() if p.name.startswith("loader-")]
            killer = threading.Timer(rng.uniform(0, 0.02), os.kill, (rng.choice(victims), signal.SIGKILL))
            killer.start()
            try:
                while True:
                    seen += next(loader)["id"].tolist()
            except LoaderError as error:
                assert "signal 9" in str(error)  # noqa: PT017
                deaths += 1
            killer.join()
            state = loader.save()
        assert state["step"] == len(seen)
    assert deaths == 6
    assert seen == list(itertools.islice(expected_ids(23, 9), len(seen)))


@settings(max_examples=examples(1 / 4))
@given(
    length=st.integers(1, 30),
    batch=st.integers(1, 5),
    seed=st.integers(0, 2**40),
    runs=st.lists(
        st.tuples(st.integers(1, 3), st.integers(1, 3), st.none() | st.floats(0, 0.02)),
        min_size=2,
        max_size=3,
    ),
    choices=st.integers(0, 2**40),
)
@pytest.mark.slow
def test_runs_on_any_shards_and_workers_some_killed_go_on_where_the_last_state_was_saved(
    length, batch, seed, runs, choices
):
    """Each run has its numbers of shards and workers, and perhaps a time at which one worker is killed."""
    state, seen = {"step": 0, "seed": seed}, []
    chance = random.Random(choices)  # not Hypothesis's: how many choices there are depends on the moment
    for num_shards, workers, moment in runs:
        with contextlib.ExitStack() as stack:
            loaders = [
                stack.enter_context(
                    Loader(Rows(length), batch, workers=workers, shard_id=k, num_shards=num_shards)
                )
                for k in range(num_shards)
            ]
            for loader in loaders:
                loader.load(state)
                iter(loader)
            timer = None
            if moment is not None:
                victims = [p.pid for p in multiprocessing.active_children() if p.name.startswith("loader-")]
                timer = threading.Timer(moment, os.kill, (chance.choice(victims), signal.SIGKILL))
                timer.start()
            with contextlib.suppress(LoaderError):
                for _ in range(8):
                    # All shards are done with a batch before its state is saved, as in training.
                    taken = [next(loader)["id"].tolist() for loader in loaders]
                    seen += [taken[k][i] for i in range(batch) for k in range(num_shards)]
                    state = loaders[chance.randrange(num_shards)].save()
            if timer is not None:
                timer.join()
        assert state["step"] == len(seen)
    assert seen == list(itertools.islice(expected_ids(length, seed), len(seen)))


def crash_at_step_7(row, seed):
    if seed[1] == 7:
        os.kill(os.getpid(), signal.SIGKILL)
    return row


def test_a_worker_that_crashes_names_signal_row_and_step():
    with Loader(Rows(100), batch=4, shuffle=False, fns=[crash_at_step_7], workers=2) as loader:
        assert take_ids(loader, 1) == [0, 1, 2, 3]
        with pytest.raises(LoaderError, match=r"signal 9 at row 7 \(step 7\)"):
            next(loader)
        assert loader.save() == {"step": 4, "seed": 0}


def crash_at_step_7_while_the_other_sleeps(row, seed):
    if seed[1] < 4:
        time.sleep(0.2)
    return crash_at_step_7(row, seed)


def test_what_other_workers_still_do_comes_before_the_crash_of_one():
    fns = [crash_at_step_7_while_the_other_sleeps]
    with Loader(Rows(100), batch=4, shuffle=False, fns=fns, workers=2) as loader:
        assert take_ids(loader, 1) == [0, 1, 2, 3]
        with pytest.raises(LoaderError, match=r"signal 9 at row 7 \(step 7\)"):
            next(loader)
        assert loader.save() == {"step": 4, "seed": 0}


def fail_at_row_5(row, seed):
    if row["id"] == 5:
        raise ZeroDivisionError("no row five today")
    return row


@pytest.mark.parametrize("workers", [0, 2])
def test_a_failing_function_surfaces_with_its_own_traceback_and_the_row(workers):
    with Loader(Rows(100), batch=4, shuffle=False, fns=[fail_at_row_5], workers=workers) as loader:
        assert take_ids(loader, 1) == [0, 1, 2, 3]
        with pytest.raises(
            LoaderError, match=r"(?s)row 5 \(step 5\).*fail_at_row_5.*no row five today"
        ) as caught:
            next(loader)
        assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
        assert loader.save()["step"] == 4
        with pytest.raises(LoaderError, match="closed"):
            next(loader)


class BrokenRows(ManyRows):
    def __getitems__(self, indices):
        if 6 in indices:
            raise OSError("bad sector")
        return super().__getitems__(indices)

    def __getitem__(self, index):
        if index == 6:
            raise OSError("bad sector")
        return Rows.__getitem__(self, index)


def test_a_row_that_many_at_once_hide_is_still_named():
    with (
        Loader(BrokenRows(9), batch=9, shuffle=False, workers=1) as loader,
        pytest.raises(LoaderError, match=r"(?s)row 6 \(step 6\).*bad sector"),
    ):
        next(loader)


class UnfitColumns(Rows):
    """Columns that can't be read as `flaw` says, though rows can."""

    def __init__(self, length, flaw):
        super().__init__(length)
        self.flaw = flaw

    def get_many(self, indices, columns=None, out=None):
        if self.flaw == "fails":
            raise OSError("no column 'image' today")
        found = dict(out, id=indices, image=np.zeros((len(indices), 5), np.int32))
        if self.flaw == "lacks":
            del found["image"]
        return found


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("flaw", "words"),
    [
        ("fails", "OSError: no column 'image' today"),
        ("lacks", "'image' is only in rows"),
        ("wide", r"'image' is int32 \(\d, 5\), in row 0 it is int32 \(\d, 3\)"),
    ],
)
def test_columns_that_can_not_be_read_at_once_are_said_once_with_the_reason(flaw, words, workers):
    with (
        warnings.catch_warnings(record=True) as caught,
        Loader(UnfitColumns(20, flaw), batch=2, shuffle=False, workers=workers) as loader,
    ):
        warnings.simplefilter("always")
        assert take_ids(loader, 10) == list(range(20))
    said = [str(one.message) for one in caught if issubclass(one.category, UserWarning)]
    said = [text for text in said if "pylance" not in text and "lance is not fork-safe" not in text]
    assert len(said) == 1
    assert re.search(f"UnfitColumns.get_many can't fill batches .*{words}.* rows are read one", said[0])


class UnevenRows(Rows):
    def __getitem__(self, index):
        row = super().__getitem__(index)
        return row if index < 3 else row | {"image": np.zeros(self.size + 1, np.int32)}


class OtherKeys(Rows):
    def __getitem__(self, index):
        return super().__getitem__(index) | ({"extra": 1} if index == 3 else {})


class OtherTypes(Rows):
    def __getitem__(self, index):
        return super().__getitem__(index) | ({"id": 3.5} if index == 3 else {})


class UnevenImages(Rows):
    def __getitem__(self, index):
        return {"camera": np.zeros((720 if index < 3 else 480, 1280, 3), np.uint8)}


def test_images_of_two_sizes_name_the_keys_of_the_recipe_that_make_them_one():
    words = r"give `shape: \[720, 1280, 3\]` in the recipe to refuse others, or `resize: \[720, 1280\]`"
    with (
        Loader(UnevenImages(5), batch=5, shuffle=False, workers=0) as loader,
        pytest.raises(LoaderError, match=f"(?s)row 3 .*{words}"),
    ):
        next(loader)


@pytest.mark.parametrize(
    ("rows", "words"), [(UnevenRows, "'image'"), (OtherKeys, "extra"), (OtherTypes, "float64")]
)
def test_a_row_that_does_not_fit_the_batch_is_refused_by_name(rows, words):
    with (
        Loader(rows(5), batch=5, shuffle=False, workers=1) as loader,
        pytest.raises(LoaderError, match=f"(?s)row 3 .*{words}"),
    ):
        next(loader)


def double(row, seed):
    return {"double": row["id"] * 2, "seed": np.array(seed)}


def test_the_size_of_a_batch_has_the_name_that_torch_gives_it_as_well():
    rows = [{"x": np.float64(i)} for i in range(6)]
    with Loader(rows, batch_size=3, workers=0, shuffle=False) as loader:
        assert next(loader)["x"].tolist() == [0, 1, 2]
    for sizes in ({}, {"batch": 3, "batch_size": 3}):
        with pytest.raises(UsageError, match="batch=16"):
            Loader(rows, **sizes)


def test_functions_are_given_seed_and_step_and_make_the_spec():
    with Loader(Rows(10), batch=2, fns=[double], workers=2, seed=8, shard_id=1, num_shards=3) as loader:
        assert loader.spec == {"double": (np.dtype("int64"), ()), "seed": (np.dtype("int64"), (2,))}
        loader.load({"step": 30, "seed": 8})
        batch = next(loader)
    assert batch["seed"].tolist() == [[8, 31], [8, 34]]
    order = list(itertools.islice(expected_ids(10, 8), 40))
    assert batch["double"].tolist() == [2 * order[31], 2 * order[34]]


@pytest.mark.parametrize("running", [False, True])
def test_a_state_is_loaded_before_or_after_iter(running):
    with Loader(Rows(10), batch=3, workers=2, seed=2) as loader:
        take_ids(loader, 4)
        state = loader.save()
        following = take_ids(loader, 3)
    assert state == {"step": 12, "seed": 2}
    with Loader(Rows(10), batch=3, workers=2) as other:
        if running:
            take_ids(other, 2)
        other.load(state)
        iter(other)
        assert take_ids(other, 3) == following
        other.load(state)
        assert take_ids(other, 3) == following


@pytest.fixture(scope="module")
def versions(tmp_path_factory):
    """Two versions, the second with one more log, as tables of the folders that versions have."""
    opened = {}
    for number, logs in ((1, "ac"), (2, "abc")):
        folder = tmp_path_factory.mktemp("root") / f"v{number:08}"
        folder.mkdir()
        rows = [{"log_id": log, "timestamp": k, "n": np.int64(k)} for log in logs for k in range(6)]
        tt.write_table(str(folder / "table"), rows)
        opened[number] = logloom.datasets.open(str(folder / "table"))
    return opened


def test_a_state_over_other_rows_is_refused_and_says_what_differs(versions):
    first, second = versions[1], versions[2]
    with Loader(first, batch=4, workers=0) as loader:
        next(loader)
        state = json.loads(json.dumps(loader.save()))
    assert (state["step"], state["dataset"]["version"], state["dataset"]["rows"]) == (4, 1, 12)
    for other, why in (
        (second, "version was 1, is 2; rows was 12, is 18"),
        (first.head(11), "rows was 12, is 11"),
        (first.shuffle(seed=1), "digest of the chosen rows was"),
        (first.shard(0, 2), "rows was 12, is 6"),
        (first.filter("n > 0").take(range(10)), "rows was 12, is 10"),
        (first.window([-1, 0]), "rows was 12, is 10"),
    ):
        with Loader(other, batch=4, workers=0) as loader:
            with pytest.raises(UsageError, match=f"other rows: {why}.* open what it had, by version"):
                loader.load(state)
            assert loader.save()["step"] == 0
    with (
        Loader(first, batch=4, workers=0, shuffle=False) as loader,
        pytest.raises(UsageError, match="shuffle was True, is False"),
    ):
        loader.load(state)
    with (
        Loader(Rows(12), batch=4, workers=0) as loader,
        pytest.raises(UsageError, match="a single dataset, not"),
    ):
        loader.load(state)


def test_a_state_fits_the_same_rows_whatever_is_made_of_them(versions):
    rows = versions[1]
    with Loader(rows, batch=4, workers=0) as loader:
        next(loader)
        state, following = loader.save(), next(loader)["n"].tolist()
    for same in (
        rows.select("n"),
        rows.map(lambda row: {"n": row["n"]}),
        rows.filter("n >= 0"),
        rows.take(np.arange(12)),
        pickle.loads(pickle.dumps(rows)),
    ):
        with Loader(same, batch=4, workers=0) as loader:
            loader.load(state)
            assert next(loader)["n"].tolist() == following
    padded = rows.window([-1, 0], on_edge="pad").select("n")
    with Loader(padded, batch=2, workers=0, num_shards=2, shard_id=1) as loader:
        loader.load(state)
        assert next(loader)["n"][:, 1].tolist() == following[1::2]


def test_a_state_of_step_and_seed_alone_is_taken_as_it_is(versions):
    with Loader(versions[1], batch=4, workers=0) as loader:
        loader.load({"step": 8, "seed": 3})
        state = loader.save()
    assert (state["step"], state["seed"]) == (8, 3)


def in_threads(count, work):
    """What each of some threads that begin together gave, or raised."""
    barrier, found = threading.Barrier(count), [None] * count

    def run(number):
        barrier.wait()
        try:
            found[number] = work()
        except Exception as error:
            found[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(50)
    assert not any(thread.is_alive() for thread in threads)
    return found


@pytest.mark.parametrize("workers", [0, 2])
def test_threads_share_out_batches_and_each_is_given_once(workers):
    with Loader(ColumnRows(31), batch=3, workers=workers, prefetch=5, seed=4) as loader:
        taken = in_threads(8, lambda: [next(loader)["id"].tolist() for _ in range(40)])
        assert loader.save()["step"] == 8 * 40 * 3
    order = list(itertools.islice(expected_ids(31, 4), 8 * 40 * 3))
    wanted = [order[at : at + 3] for at in range(0, len(order), 3)]
    assert sorted(batch for own in taken for batch in own) == sorted(wanted)
    for own in taken:  # a thread is given later batches later
        places = iter(wanted)
        assert all(batch in places for batch in own)


@pytest.mark.parametrize("workers", [0, 2])
def test_what_fails_in_one_thread_ends_all_and_says_why(workers):
    with Loader(Rows(100), batch=4, shuffle=False, fns=[fail_at_row_5], workers=workers) as loader:

        def take_all():
            while True:
                next(loader)

        found = in_threads(4, take_all)
        assert all(isinstance(error, LoaderError) for error in found)
        assert all("no row five today" in str(error) for error in found)
        assert sum("closed since row 5" in str(error) for error in found) == 3
        assert loader.save()["step"] == 4


def test_closing_ends_the_wait_of_another_thread():
    loader = Loader(Rows(10), batch=2, workers=2, shuffle=False, fns=[sleep_long], prefetch=0)
    next(loader)
    next(loader)
    found, waits, wait = [], threading.Event(), loader._workers.wait

    def wait_and_say_so(wanted):
        waits.set()
        return wait(wanted)

    loader._workers.wait = wait_and_say_so

    def take():
        try:
            next(loader)
        except LoaderError as error:
            found.append(str(error))

    thread = threading.Thread(target=take)
    thread.start()
    assert waits.wait(30)
    loader.close()
    thread.join(30)
    assert not thread.is_alive()
    assert ["the loader is closed" in text for text in found] == [True]


@pytest.mark.parametrize("state", [{}, {"step": -1, "seed": 0}, {"step": "x", "seed": 0}, {"step": 1}])
def test_what_is_no_state_is_refused(state):
    with pytest.raises(UsageError, match="no state"):
        Loader(Rows(3), 1).load(state)


@pytest.mark.parametrize(
    "options",
    [
        {"batch": 0},
        {"workers": -1},
        {"prefetch": -1},
        {"recycle_after": -1},
        {"shard_id": 1},
        {"num_shards": 0},
        {"seed": -1},
    ],
)
def test_numbers_out_of_range_are_refused(options):
    [(name, value)] = options.items()
    with pytest.raises(UsageError, match=f"^Loader: {name}={value}: out of range; "):
        Loader(Rows(3), **({"batch": 1} | options))


def test_an_empty_source_is_refused():
    with pytest.raises(UsageError, match="no rows"):
        Loader(Rows(0), 1)


def test_a_batch_stays_as_it_is_while_anything_of_it_is_used():
    with Loader(Rows(50, 1000), batch=2, shuffle=False, workers=2, prefetch=1) as loader:
        kept = next(loader)["image"][1:, ::7]
        whole = [next(loader) for _ in range(3)]
        for _ in range(10):
            next(loader)
        assert (kept == 1).all()
        assert [batch["id"].tolist() for batch in whole] == [[2, 3], [4, 5], [6, 7]]
    assert (kept == 1).all()
    assert (whole[2]["image"] == whole[2]["id"][:, None]).all()


def test_dropped_batches_give_their_memory_to_later_ones():
    with Loader(Rows(50, 1000), batch=2, workers=2, prefetch=3) as loader:
        for _ in range(40):
            next(loader)
        assert len(loader._segments) <= 3 + 3


def test_hoarded_memory_is_let_go():
    with Loader(Rows(50, 1000), batch=2, workers=1, prefetch=1) as loader:
        hoard = [next(loader) for _ in range(30)]
        assert len(loader._segments) >= 30
        del hoard
        for _ in range(10):
            next(loader)
        assert len(loader._segments) <= 8
        assert take_ids(loader, 1)


def test_recycling_bounds_memory_whoever_holds_on():
    with Loader(Rows(50, 10), batch=2, workers=2, prefetch=2, recycle_after=2) as loader:
        hoard = [next(loader) for _ in range(40)]
        assert len(loader._segments) <= 2 + 1 + 2 + 2
        assert len(hoard) == 40


def test_closing_ends_all_processes_and_is_repeatable():
    before = set(multiprocessing.active_children())
    loader = Loader(Rows(10), batch=2, workers=3)
    next(loader)
    assert len(set(multiprocessing.active_children()) - before) == 3
    loader.close()
    loader.close()
    assert set(multiprocessing.active_children()) == before


def test_a_forgotten_loader_ends_its_processes():
    before = set(multiprocessing.active_children())
    loader = Loader(Rows(10), batch=2, workers=2)
    next(loader)
    del loader
    deadline = time.monotonic() + 10
    while set(multiprocessing.active_children()) - before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert set(multiprocessing.active_children()) == before


def sleep_long(row, seed):
    if seed[1] > 3:
        time.sleep(1000)
    return row


def test_closing_ends_workers_that_sleep():
    loader = Loader(Rows(10), batch=2, workers=2, shuffle=False, fns=[sleep_long])
    next(loader)
    start = time.monotonic()
    loader.close()
    assert time.monotonic() - start < 300


def run_script(text, *, send=None, wait_for=None):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(text)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
        # Jobs that a script starts in the background ignore it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    lines = []
    try:
        if wait_for is not None:
            while wait_for not in (line := process.stdout.readline()):
                assert line, process.stderr.read()
            lines.append(line)
            os.killpg(process.pid, send) if send == signal.SIGINT else process.send_signal(send)
        out, err = process.communicate(timeout=30)
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    return process.returncode, "".join(lines) + out, err


SCRIPT = """
    import multiprocessing, time
    from logloom.datasets.loader.loader import Loader

    class Rows:
        def __len__(self):
            return 100
        def __getitem__(self, index):
            return {"id": index}

    loader = Loader(Rows(), batch=2, workers=2)
    next(loader)
    pids = [process.pid for process in multiprocessing.active_children()]
    print("ready", *pids, flush=True)
"""


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_ctrl_c_ends_everything_with_one_traceback():
    code, out, err = run_script(
        SCRIPT + "\n    while True:\n        next(loader)", send=signal.SIGINT, wait_for="ready"
    )
    assert code == -signal.SIGINT or code == 130 or "KeyboardInterrupt" in err
    assert err.count("Traceback") == 1, err
    assert not any(alive(int(pid)) for pid in out.split()[1:3])


def test_workers_end_when_their_parent_is_killed():
    _, out, _ = run_script(SCRIPT + "\n    time.sleep(100)", send=signal.SIGKILL, wait_for="ready")
    pids = [int(pid) for pid in out.split()[1:3]]
    deadline = time.monotonic() + 15
    while any(map(alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(alive, pids))


def test_a_script_may_end_without_closing():
    code, _, err = run_script(SCRIPT)
    assert (code, err) == (0, "")


def test_what_can_not_be_sent_to_a_spawned_worker_is_explained():
    lock = threading.Lock()
    with pytest.raises(UsageError, match=r"can't be sent to a spawned worker .*lock.*mp=multiprocessing"):
        next(Loader(Rows(3), 1, fns=[lambda row, seed: {**row, "x": lock.locked()}], workers=1, mp="spawn"))


def test_lambdas_local_functions_and_shared_values_reach_spawned_workers():
    offset, seen = 100, multiprocessing.get_context("spawn").Value("q", 0)

    def count(row, seed):
        with seen.get_lock():
            seen.value += 1
        return {"id": row["id"] + offset}

    class LocalRows(Rows):
        def __init__(self, decode):
            super().__init__(4)
            self.decode = decode

        def __getitem__(self, index):
            return self.decode(super().__getitem__(index))

    rows = LocalRows(lambda row: {"id": row["id"] * 2})
    fns = [count, lambda row, seed: {**row, "step": seed[1]}]
    with Loader(rows, 4, fns=fns, shuffle=False, workers=1, prefetch=0, mp="spawn") as loader:
        batch = next(loader)
    assert batch["id"].tolist() == [100, 102, 104, 106]
    assert batch["step"].tolist() == [0, 1, 2, 3]
    assert seen.value >= 4


def test_importing_the_loader_does_not_import_beam_or_torch():
    code = "import sys, logloom.datasets.loader.loader\n"
    code += "print({'apache_beam', 'torch', 'pandas'} & set(sys.modules))"
    assert run_script(code)[1].strip() == "set()"


def test_without_torch_the_extra_is_named():
    if "torch" in sys.modules or __import__("importlib.util").util.find_spec("torch"):
        pytest.skip("torch is here")
    with pytest.raises(UsageError, match=r"logloom\[torch\]"):
        torch_dataset(Loader(Rows(3), 1))


def fill_row(arguments):
    target, row = arguments
    target.array[row] = row


def fill_rows(jobs, done):
    while (message := jobs.get()) is not None:
        fill_row(message)
        done.put(message[1])


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_shared_array_is_filled_by_other_processes(method):
    context = multiprocessing.get_context(method)
    array = SharedArray((10, 8), np.int32)
    jobs, done = context.Queue(), context.Queue()
    workers = [
        context.Process(target=fill_rows, args=(jobs, done)) for _ in range(2 if method == "fork" else 1)
    ]
    for worker in workers:
        worker.start()
    for row in range(10):
        jobs.put((array, row))
    for _ in range(10):
        done.get(timeout=30)
    for _ in workers:
        jobs.put(None)
    for worker in workers:
        worker.join()
    result = array.result()
    assert (result == np.arange(10)[:, None]).all()
    assert result.shape == (10, 8)


def test_a_shared_array_is_gone_when_closed_or_its_result_dropped():
    closed, taken = SharedArray((4,), "f4"), SharedArray((4,), "f4")
    names = [pickle.dumps(closed), pickle.dumps(taken)]
    closed.close()
    with pytest.raises(ValueError, match="closed"):
        _ = closed.array
    result = taken.result()
    result[:] = 3
    assert pickle.loads(names[1]).array.tolist() == [3] * 4
    del result, taken
    for name in names:
        with pytest.raises(FileNotFoundError):
            pickle.loads(name)
