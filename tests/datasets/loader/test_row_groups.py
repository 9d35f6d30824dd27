"""Rows shuffled by row groups: the order, resuming, and how often groups are read."""

import io
import itertools
import tarfile
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import logloom
import logloom.io.formats.table as tt
from logloom.blocks import Block, Ragged
from logloom.datasets import Dataset, Loader, mix, rows_seen
from logloom.datasets.loader.orders import Order
from logloom.datasets.loader.row_groups import groups_of, held
from logloom.errors import UsageError
from logloom.io.arrow.layout import ArrowLayout
from logloom.io.formats.parquet import ParquetReader, ParquetWriter
from logloom.io.formats.table.read.loader import RowLoader
from logloom.io.formats.zarr.foreign_source import ArraysSource
from logloom.io.rows.unit_rows import LoadedReader
from logloom.schema import ColumnType, Schema
from tests.absent import needs

LENGTH = 23
BOUNDS = [0, 4, 5, 9, 15, 16, 20, 23]


class Grouped(LoadedReader):
    """Rows in groups; notes what is read."""

    place, has_stamps = "stored", True

    def __init__(self):
        self.reads = []

    def load(self):
        numbers = np.arange(LENGTH)
        texts = Ragged.from_bytes([b"t%d" % number for number in range(LENGTH)])
        lists = Ragged.from_rows([np.full(n % 3, n) for n in numbers], SCHEMA.columns["list"])
        return SCHEMA, Block("a", "", 0, {"timestamp": numbers, "n": numbers, "text": texts, "list": lists})

    def group_bounds(self, names):
        return np.array(BOUNDS)

    def take(self, positions, names, out=None):
        self.reads.append(sorted({*(np.searchsorted(BOUNDS, positions, side="right") - 1).tolist()}))
        return super().take(positions, names, out)


SCHEMA = Schema(
    {
        "n": ColumnType(np.dtype("<i8")),
        "text": ColumnType(np.dtype("u1"), (None,), "string"),
        "list": ColumnType(np.dtype("<i8"), (None,)),
    }
)


def grouped_rows():
    return Dataset(Grouped(), range(LENGTH), tuple(SCHEMA.columns))


def order_of(positions, pool, seed, epoch):
    """The order of rows, by brute force; rows are named by their positions."""
    groups = [
        [number for number, position in enumerate(positions) if low <= position < high]
        for low, high in itertools.pairwise(BOUNDS)
    ]
    groups = [group for group in groups if group]
    rng = np.random.default_rng([seed, epoch])
    order = [groups[number] for number in rng.permutation(len(groups))]
    for first in range(0, len(order), pool):
        rows = list(itertools.chain.from_iterable(order[first : first + pool]))
        yield from (rows[number] for number in rng.permutation(len(rows)))


VIEWS = {
    "all": lambda rows: rows,
    "a slice": lambda rows: rows[3:17],
    "filtered": lambda rows: rows.filter("n > 2 and n != 15"),
    "another order": lambda rows: rows.shuffle(seed=4),
    "some twice": lambda rows: rows.take([3, 3, 20, 0, 11, 7]),
    "windows": lambda rows: rows.window([-2, 0, 1], on_edge="pad"),
    "mapped": lambda rows: rows.select(["n", "text"]).map(dict),
}


@pytest.mark.parametrize("pool", [1, 3, 100])
def test_the_order_is_that_of_groups_and_of_the_rows_in_a_pool(pool):
    for name, view in VIEWS.items():
        rows = view(grouped_rows())
        numbers = itertools.chain.from_iterable(
            order_of(rows.positions.tolist(), pool, 5, epoch) for epoch in itertools.count()
        )
        with Loader(rows, batch=4, workers=0, shuffle="groups", shuffle_groups=pool, seed=5) as loader:
            for _ in range(15):
                batch, wanted = next(loader), list(itertools.islice(numbers, 4))
                assert batch["n"].tolist() == [rows[number]["n"].tolist() for number in wanted], name
                if name != "windows":
                    assert batch["text"].tolist() == [rows[number]["text"] for number in wanted]


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_workers_and_functions_change_nothing(workers):
    rows = grouped_rows().window({"n": [-1, 0], "list": [0, 1]}, on_edge="repeat")
    options = {"batch": 3, "shuffle": "groups", "shuffle_groups": 3, "seed": 2}
    for source, fns in ((rows, []), (rows.select("n"), [tagged])):
        found = []
        for count in (0, workers):
            with Loader(source, fns=fns, workers=count, **options) as loader:
                found.append([next(loader) for _ in range(12)])
        for one, many in zip(*found, strict=True):
            for key in one:
                columns = [
                    batch[key] if isinstance(batch[key], tuple) else (batch[key],) for batch in (one, many)
                ]
                for own, part in zip(*columns, strict=True):
                    np.testing.assert_array_equal(part, own)


def tagged(row, seed):
    return {"n": row["n"], "step": np.int64(seed[1])}


@given(
    length=st.integers(1, 40),
    cuts=st.sets(st.integers(1, 39)),
    pool=st.integers(1, 5),
    seed=st.integers(0, 3),
    step=st.integers(0, 200),
)
def test_a_position_has_its_row_whatever_is_asked_with_it_and_each_comes_once(length, cuts, pool, seed, step):
    bounds = np.array(sorted({0, length, *(cut for cut in cuts if cut < length)}))

    class Rows(Grouped):
        def group_bounds(self, names):
            return bounds

        def __len__(self):
            return length

    rows = Dataset(Rows(), range(length), ())
    order = Order(length, True, groups_of(rows), pool)
    epoch = order.rows(np.arange(length), seed)
    assert sorted(epoch.tolist()) == list(range(length))
    window = np.arange(step, step + 2 * length)
    alone = [order.rows(np.array([position]), seed)[0] for position in window]
    assert order.rows(window, seed).tolist() == alone
    groups = np.searchsorted(bounds, epoch, side="right")
    pools = [len({*group}) for _, group in itertools.groupby(groups.tolist())]
    assert len(pools) >= len(bounds) - 1
    lanes = order.lanes(np.arange(length), seed)
    assert 0 <= lanes.min() <= lanes.max() < pool
    assert all(len({*lanes[groups == group].tolist()}) == 1 for group in range(1, len(bounds)))


@given(st.integers(0, 60), st.integers(1, 7), st.integers(1, 4), st.integers(1, 3))
def test_a_state_goes_on_with_the_same_rows(batches, batch, pool, shards):
    shuffle = {"shuffle": "groups", "shuffle_groups": pool}
    options = {"batch": batch, "workers": 0, "num_shards": shards, **shuffle}
    rows = grouped_rows().select("n")
    with Loader(rows, shard_id=0, **options) as loader:
        for _ in range(batches):
            next(loader)
        state = loader.save()
        following = [next(loader)["n"].tolist() for _ in range(4)]
    with Loader(rows, **options) as loader:
        loader.load(state)
        assert [next(loader)["n"].tolist() for _ in range(4)] == following
    seen = rows_seen(rows, range(state["step"], state["step"] + batch * shards), **shuffle)
    assert [row["timestamp"] for row in seen][::shards] == following[0]


def test_shards_divide_the_rows_of_an_epoch():
    found = []
    for shard in range(3):
        options = {"shard_id": shard, "num_shards": 3, "shuffle": "groups", "shuffle_groups": 2, "workers": 0}
        with Loader(grouped_rows(), batch=1, **options) as loader:
            found += [next(loader)["n"].item() for _ in range(LENGTH)]
    assert Counter(found) == dict.fromkeys(range(LENGTH), 3)


def test_a_mixture_shuffles_the_groups_of_each_source():
    parts = {"day": (grouped_rows(), 2), "night": (grouped_rows().filter("n < 12"), 1)}
    for workers in (0, 3):
        with Loader(mix(parts), batch=6, workers=workers, shuffle="groups", shuffle_groups=2) as loader:
            found = [next(loader) for _ in range(6)]
        sources = np.concatenate([batch["source"] for batch in found])
        numbers = np.concatenate([batch["n"] for batch in found])
        texts = np.concatenate([batch["text"] for batch in found])
        assert [f"t{number}" for number in numbers] == texts.tolist()
        assert sorted(numbers[sources == "night"]) == list(range(12))
        assert Counter(numbers[sources == "day"][:LENGTH].tolist()) == dict.fromkeys(range(LENGTH), 1)
        seen = rows_seen(mix(parts), range(36), shuffle="groups", shuffle_groups=2)
        assert [row["timestamp"] for row in seen] == numbers.tolist()


@pytest.mark.parametrize("batch", [1, 5, 23, 40])
def test_each_group_is_read_once_an_epoch_and_few_are_kept(batch):
    rows = grouped_rows().select("n")
    with Loader(rows, batch=batch, workers=0, shuffle="groups", shuffle_groups=3) as loader:
        assert loader.spec
        rows.source.reads.clear()
        for _ in range(-(-LENGTH // batch)):
            next(loader)
        kept = loader._filler._work.source.source.groups
        assert len(kept) <= 3
    first = rows.source.reads[: len(BOUNDS) - 1]
    assert sorted(first) == [[number] for number in range(len(BOUNDS) - 1)]


def test_groups_in_memory_have_all_columns_whatever_is_asked_for_first(gaps):
    rows = held(gaps, [groups_of(gaps)], 1)
    assert rows.get_many([0, 1], "y")["y"].tolist() == [1.0, 2.0]
    assert rows.get_many([0, 1])["x"].tolist() == [5, 0]
    assert rows.get_many([0, 1], "x.available")["x.available"].tolist() == [True, False]
    assert rows[1]["y"] == 2


@pytest.fixture
def gaps(tmp_path):
    pq.write_table(pa.table({"x": [5, None], "y": [1.0, 2.0]}), tmp_path / "gaps.parquet")
    return logloom.open(tmp_path / "gaps.parquet")


def test_a_state_of_another_shuffle_is_refused():
    rows = grouped_rows()
    options = {"batch": 2, "workers": 0}

    def state(**own):
        with Loader(rows, **options, **own) as loader:
            next(loader)
            return loader.save()

    groups = {"shuffle": "groups"}
    for saved, own, words in (
        ({"shuffle": True}, groups, "shuffle=True, not shuffle='groups'.*pass shuffle=True"),
        (groups, {"shuffle": False}, "a loader with shuffle='groups', not shuffle=False"),
        (groups, {**groups, "shuffle_groups": 2}, "shuffle_groups was 8, is 2"),
    ):
        with Loader(rows, **options, **own) as loader, pytest.raises(UsageError, match=words):
            loader.load(state(**saved))
    saved = state(shuffle="groups")
    assert saved["shuffle"] == "groups"
    saved["groups"] = {**saved["groups"], "digest": "of others"}
    words = "digest of the row groups was of others"
    with Loader(rows, **options, **groups) as loader, pytest.raises(UsageError, match=words):
        loader.load(saved)


def test_a_state_goes_on_with_equal_rows_chosen_by_number():
    rows, options = grouped_rows(), {"batch": 2, "workers": 0, "shuffle": "groups"}
    with Loader(rows, **options) as loader, Loader(rows.take(np.arange(LENGTH)), **options) as other:
        next(loader)
        other.load(loader.save())
        assert next(other)["n"].tolist() == next(loader)["n"].tolist()


def test_what_has_no_groups_is_refused():
    with pytest.raises(UsageError, match="a list has no row groups; pass rows of"):
        Loader([{"n": 1}], batch=1, shuffle="groups")
    with pytest.raises(UsageError, match="shuffle='group': unknown; pass True, False or 'groups'"):
        Loader(grouped_rows(), batch=1, shuffle="group")
    with pytest.raises(UsageError, match="shuffle_groups=0: out of range"):
        Loader(grouped_rows(), batch=1, shuffle="groups", shuffle_groups=0)


STORED = 3000


@pytest.fixture
def watch(monkeypatch):
    """Notes what a function was asked for, as another one names it."""
    found = []

    def watched(owner, name, asked):
        own = getattr(owner, name)

        def call(*arguments, **options):
            found.append(asked(*arguments))
            return own(*arguments, **options)

        monkeypatch.setattr(owner, name, call)
        return found

    return watched


def check_epoch(rows, groups):
    """Each row comes once."""
    assert len(groups_of(rows).starts) - 1 == groups
    with Loader(rows, batch=100, workers=0, prefetch=0, shuffle="groups", shuffle_groups=4) as loader:
        numbers = [next(loader)["x"] for _ in range(STORED // 100)]
    assert sorted(np.concatenate(numbers).tolist()) == list(range(STORED))


def numbers_from(start, stop):
    return pa.table({"x": np.arange(start, stop, dtype="f8")})


def test_row_groups_of_others_parquet_are_read_once(tmp_path, watch):
    for name, bounds in (("0", (0, 1500)), ("1", (1500, STORED))):
        pq.write_table(numbers_from(*bounds), tmp_path / f"{name}.parquet", row_group_size=300)
    rows = logloom.open(tmp_path)
    found = watch(pq.ParquetFile, "iter_batches", lambda file, size, groups: groups[0])
    check_epoch(rows, 10)
    assert Counter(found) == dict.fromkeys(range(5), 2)


def block_of(start, stop):
    return Block("a", "", 0, {"timestamp": np.arange(start, stop), "x": np.arange(start, stop, dtype="f8")})


def test_row_groups_of_our_parquet_are_read_once(tmp_path, watch):
    schema = Schema({"x": ColumnType(np.dtype("<f8"))})
    writer = ParquetWriter(tmp_path / "rows.parquet", ArrowLayout(schema), 300 * 16)
    for first in range(0, STORED, 300):
        writer.append(block_of(first, first + 300))
    writer.close()
    rows = logloom.open(tmp_path)
    groups = len(groups_of(rows).starts) - 1
    assert groups >= 10
    found = watch(ParquetReader, "_table", lambda reader, group, *_: group)
    check_epoch(rows, groups)
    assert Counter(found) == dict.fromkeys(range(groups), 1)


def test_ranges_of_a_lance_table_are_read_once(tmp_path, watch):
    needs("lance")
    lance = pytest.importorskip("lance")
    from logloom.io.formats.lance import reader

    lance.write_dataset(numbers_from(0, STORED), str(tmp_path / "t"), max_rows_per_file=500)
    rows = logloom.open(tmp_path / "t")
    found = watch(reader, "_rows_at", lambda *arguments: [(arguments[3], row) for row in arguments[5]])
    check_epoch(rows, 6)
    read = Counter(itertools.chain.from_iterable(found))
    assert read.pop((0, 0)) == 2  # also for the form of samples
    assert len(read) == STORED - 1
    assert {*read.values()} == {1}


def test_ranges_of_a_table_are_read_once(tmp_path, watch):
    rows = [{"log_id": "ab"[n // 1500], "timestamp": n, "x": np.float64(n)} for n in range(STORED)]
    tt.write_table(str(tmp_path / "t"), rows)
    opened = logloom.open(tmp_path / "t")
    found = watch(RowLoader, "get_many", lambda loader, positions, *_: positions.tolist())
    check_epoch(opened, 3)
    assert sorted(itertools.chain.from_iterable(found)) == list(range(STORED))


def test_chunks_of_zarr_are_read_once(tmp_path, watch):
    zarr = pytest.importorskip("zarr")
    group = zarr.open_group(tmp_path / "z", mode="w")
    group.create_array("x", data=np.arange(STORED, dtype="f8"), chunks=(400,))
    rows = logloom.open(tmp_path / "z")
    found = watch(ArraysSource, "_read", lambda source, path, name, own: (own[0], own[-1] + 1))
    check_epoch(rows, 4)
    assert sorted(found)[1:] == [(0, 800), (800, 1600), (1600, 2400), (2400, 3000)]


@pytest.fixture
def shards(tmp_path):
    with tarfile.open(tmp_path / "s.tar", "w") as file:
        for number in range(12):
            member = tarfile.TarInfo(f"k{number:03}.txt")
            member.size = 3
            file.addfile(member, io.BytesIO(b"t%02d" % number))
    return logloom.open(tmp_path / "s.tar")


@pytest.mark.parametrize("workers", [0, 2])
def test_rows_of_shards_keep_their_keys(shards, workers):
    for rows, name in ((shards, "txt"), (shards.rename({"txt": "t"}), "t"), (mix({"a": (shards, 1)}), "txt")):
        with Loader(rows, batch=4, workers=workers, shuffle="groups", seed=1) as loader:
            found = [next(loader) for _ in range(3)]
        pairs = {
            (key, value) for batch in found for key, value in zip(batch["__key__"], batch[name], strict=True)
        }
        assert pairs == {(f"k{number:03}", b"t%02d" % number) for number in range(12)}


def test_windows_of_columns_of_shards_have_the_key_of_the_row(shards):
    windows = shards.window({"txt": [-1, 0]}, on_edge="pad")
    assert list(windows[1]) == list(windows.keys)
    assert windows[1]["__key__"] == "k001"
    assert windows.get_many([2, 0])["__key__"] == ["k002", "k000"]


def test_renamed_rows_have_the_groups_of_their_source():
    rows = grouped_rows()
    renamed = rows.rename({"n": "text", "text": "n"})
    assert renamed.source.group_bounds(("text",)).tolist() == BOUNDS
