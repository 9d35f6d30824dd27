"""Splits by place, time and value: nothing near another split, stable, and windows that stay within."""

import datetime
import itertools
import pickle
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import logloom.datasets
import logloom.io.formats.table as tt
from logloom.datasets.splits.distances import least_distance
from logloom.datasets.splits.split import nearest, split
from logloom.digests import share_of
from logloom.errors import UsageError
from tests.absent import needs

SHARES = {"train": 0.5, "val": 0.3, "test": 0.2}


def drive_table(path, drives, rows=250, start=0):
    """Drives that wind over two kilometres and cross themselves and each other; a tick each 100 ms."""
    made = []
    for number in range(start, start + drives):
        rng = np.random.default_rng(number)
        heading = np.cumsum(rng.normal(0, 0.15, rows)) + rng.uniform(0, 7)
        places = rng.uniform(-1000, 1000, 2) + np.cumsum(
            5 * np.stack([np.cos(heading), np.sin(heading)], 1), 0
        )
        for tick, place in enumerate(places):
            position = np.array([*place, 3.0]) if tick != 7 else np.full(3, np.nan)
            stamp = (number * 10_000 + tick) * 100_000_000
            made.append(
                {
                    "log_id": f"drive-{number:02}",
                    "timestamp": stamp,
                    "ego.position": position,
                    "tick": np.int64(tick),
                    "city": ("Bern", "Zug", "Chur")[number % 3],
                }
            )
    tt.write_table(str(path), made)
    return logloom.datasets.open(str(path))


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    return drive_table(tmp_path_factory.mktemp("split") / "drives", 6)


def by_place(rows, cell=200, gap=20, shares=SHARES):
    return split(rows, shares, by="place", position="ego.position", cell=cell, gap=gap)


def brute(one, other):
    return np.sqrt(np.square(one[:, None] - other[None]).sum(axis=2)).min()


def places_of(part):
    return np.array([row["ego.position"][:2] for row in part])


def test_splits_by_time_take_texts_as_well_as_seconds(rows):
    parts = split(rows, {"train": 0.7, "val": 0.3}, by="time", cell="5s", gap="500ms")
    assert list(parts) == ["train", "val"]
    assert 0.9 * len(rows) < sum(map(len, parts.values())) < len(rows)  # rows near a border are left out
    seconds = split(rows, {"train": 0.7, "val": 0.3}, by="time", cell=5.0, gap=0.5)
    assert {name: part.positions.tolist() for name, part in seconds.items()} == {
        name: part.positions.tolist() for name, part in parts.items()
    }
    (found,) = nearest(parts, "ego.position")
    assert found.splits == ("train", "val")
    assert 0 < found.metres < 20  # split by time, they come close


@pytest.mark.parametrize(("cell", "gap"), [(200, 20), (100, 100), (300, 0)])
def test_splits_by_place_lie_a_gap_apart_and_the_proof_is_the_brute_force_distance(rows, cell, gap):
    parts = by_place(rows, cell, gap)
    assert list(parts) == list(SHARES)
    assert sum(map(len, parts.values())) < len(rows)
    places = {name: places_of(part) for name, part in parts.items()}
    for found in nearest(parts, "ego.position"):
        one, other = (places[name] for name in found.splits)
        if len(one) and len(other):
            assert found.metres == brute(one, other) >= gap
            stamps = [
                dict(zip(part.index["timestamp"], places[name], strict=True)) for name, part in parts.items()
            ]
            every = {stamp: place for one in stamps for stamp, place in one.items()}
            (_, first), (_, second) = found.rows
            assert np.hypot(*(every[first] - every[second])) == pytest.approx(found.metres)
        else:
            assert found.metres == np.inf


def test_only_rows_near_another_splits_cell_and_those_without_a_position_are_left_out(rows):
    """Said a second time, row by row: the cells around each row, and how far their squares are."""
    cell, gap = 200, 20
    whole = by_place(rows, cell, 0)
    split_of = {}
    for name, part in whole.items():
        for place in places_of(part):
            split_of[tuple(np.floor(place / cell).astype(int))] = name
    left = {stamp for part in by_place(rows, cell, gap).values() for stamp in part.index["timestamp"]}
    for row in rows:
        place = row["ego.position"][:2]
        if np.isnan(place).any():
            assert row["timestamp"] not in left
            continue
        own = split_of[tuple(np.floor(place / cell).astype(int))]
        near = [
            name
            for square, name in split_of.items()
            if np.hypot(*np.maximum(np.abs(place - (np.array(square) + 0.5) * cell) - cell / 2, 0)) < gap
        ]
        if row["timestamp"] in left:
            assert set(near) == {own}  # of the squares that some row lies in
        elif set(near) == {own}:  # a square that no row lies in may be of another split, too
            x = np.mod(place, cell)
            assert min(*x, *(cell - x)) < gap


def test_a_place_stays_in_its_split_when_drives_arrive(rows, tmp_path):
    more = drive_table(tmp_path / "more", 9)
    before, after = by_place(rows), by_place(more)
    for name, part in before.items():
        now = set(after[name].index["timestamp"])
        assert set(part.index["timestamp"]) == {stamp for stamp in now if stamp < 6 * 10_000 * 100_000_000}


def test_windows_of_a_split_hold_its_rows_alone(rows):
    parts = by_place(rows)
    for name, part in parts.items():
        own = set(part.index["timestamp"])
        windows = part.window(range(-2, 1))
        assert 0 < len(windows) < len(part)
        for window in windows:
            assert set(window["timestamp"].tolist()) <= own, name
        padded = part.window([-1, 0, 1], on_edge="pad")
        assert len(padded) == len(part)
        for window in padded:
            assert set(window["timestamp"][window["mask"]].tolist()) <= own
    merged = logloom.datasets.concat([parts["train"], rows.take(3)])
    own = set(parts["train"].index["timestamp"]) | set(rows.take(3).index["timestamp"])
    assert all(set(one["timestamp"].tolist()) <= own for one in merged.window([-1, 0]))
    again = pickle.loads(pickle.dumps(parts["train"])).filter("tick > 20").window([-1, 0])
    assert all(set(one["timestamp"].tolist()) <= own for one in again)


def test_a_split_of_a_split_keeps_the_borders_of_both(rows):
    train = by_place(rows)["train"]
    halves = split(train, {"a": 0.5, "b": 0.5}, by="time", cell=2.0)
    for part in halves.values():
        own = set(part.index["timestamp"])
        assert all(set(one["timestamp"].tolist()) <= own for one in part.window([-1, 0]))
    assert sum(map(len, halves.values())) == len(train)


def test_splits_by_time_lie_a_gap_apart(rows):
    parts = split(rows, SHARES, by="time", cell=5.0, gap=0.5)
    stamps = {name: part.index["timestamp"].to_numpy() for name, part in parts.items()}
    assert all(map(len, stamps.values()))
    for one, other in itertools.combinations(stamps.values(), 2):
        assert np.abs(one[:, None] - other[None]).min() >= 500_000_000
    cells = {name: set((found // 5_000_000_000).tolist()) for name, found in stamps.items()}
    assert not set.intersection(*cells.values())


@pytest.mark.parametrize("column", ["city", "log_id", "tick"])
def test_rows_of_one_value_are_in_one_split(rows, column):
    parts = split(rows, SHARES, by=column)
    assert sum(map(len, parts.values())) == len(rows)
    values = [
        {row[column] if isinstance(row[column], str) else int(row[column]) for row in part}
        for part in parts.values()
    ]
    assert sum(map(len, values)) == len(set.union(*values))
    again = split(rows.shuffle(3).take(50), SHARES, by=column)
    for name, part in again.items():
        assert set(part.index["timestamp"]) <= set(parts[name].index["timestamp"])


def test_texts_of_any_length_are_split_as_a_build_splits_them(tmp_path):
    names = [*map(str, range(200)), *(f"{n}\0" for n in range(200)), "x" * 200_000]
    frame = {"log_id": ["a"] * len(names), "timestamp": np.arange(len(names)), "city": names}
    write_rows = [dict(zip(frame, values, strict=True)) for values in zip(*frame.values(), strict=True)]
    tt.write_table(str(tmp_path / "table"), write_rows)
    parts = split(logloom.datasets.open(str(tmp_path / "table")), SHARES, by="city")
    shares = {name: Decimal(str(share)) for name, share in SHARES.items()}
    for name, part in parts.items():
        assert {share_of(row["city"], shares) for row in part} == {name}


@given(
    points=st.lists(st.tuples(st.integers(-50, 50), st.integers(-50, 50)), min_size=2, max_size=60),
    cut=st.integers(1, 59),
    scale=st.sampled_from([1.0, 0.1, 1e6]),
    few=st.sampled_from([0, 1, 5, 1000]),
)
def test_the_least_distance_is_that_of_all_pairs(points, cut, scale, few):
    every = np.array(points, np.float64) * scale
    one, other = every[: cut % len(every)], every[cut % len(every) :]
    found, at = least_distance(one, other, few)
    if not len(one):
        assert (found, at) == (np.inf, ())
        return
    assert found == brute(one, other)
    assert np.hypot(*(one[at[0]] - other[at[1]])) == pytest.approx(found)


def test_the_least_distance_of_many_points_is_found_by_boxes():
    rng = np.random.default_rng(0)
    one, other = rng.uniform(0, 1000, (20_000, 2)), rng.uniform((1030, 0), (2030, 1000), (3000, 2))
    found, (a, b) = least_distance(one, other)
    near = one[one[:, 0] > 900]
    assert found == brute(near, other[other[:, 0] < 1130]) == brute(one[[a]], other[[b]])
    assert least_distance(one, np.concatenate([other, one[17:18]])) == (0.0, (17, 3000))


def test_what_makes_no_sense_is_refused(rows, tmp_path):
    for change, why in (
        ({"cell": None}, "must be larger than 0"),
        ({"gap": 300}, "at least as large as the gap"),
        ({"gap": -1}, "at least as large as the gap"),
        ({"gap": float("nan")}, "at least as large as the gap"),
        ({"cell": "500m"}, "numbers of metres"),
        ({"cell": np.timedelta64(5, "s")}, "numbers of metres"),
        ({"gap": datetime.timedelta(seconds=5)}, "numbers of metres"),
        ({"by": "time", "cell": "5 parsecs"}, "split: cell='5 parsecs': not a length of time"),
        ({"by": "time", "cell": 5, "gap": -1}, "split: gap=-1: not a length of time"),
        ({"by": "time", "cell": float("nan")}, "split: cell=nan: not a length of time"),
        ({"position": None}, "position="),
        ({"position": "tick"}, "a position has two numbers"),
        ({"position": "ego.positoin"}, "ego.position"),
        ({"position": "ego.*"}, "no single column"),
        ({"shares": {"a": 0.5, "b": 0.4}}, "they sum to 0.9, not to 1; change one, or pass whole"),
        ({"shares": {"a": 1.5, "b": -0.5}}, "above 0"),
        ({"shares": {"a": "much"}}, "above 0"),
        ({"shares": {"a": float("nan"), "b": 1}}, "above 0"),
        ({"shares": {}}, "above 0"),
        ({"by": "ego.position"}, "texts or whole numbers"),
        ({"by": "town"}, "town"),
    ):
        asked = {
            "shares": SHARES,
            "by": "place",
            "position": "ego.position",
            "cell": 200,
            "gap": 20,
            **change,
        }
        with pytest.raises(UsageError, match=why):
            split(rows, **asked)
    with pytest.raises(UsageError, match=r"split: shares=\[0\.8, 0\.2\]; pass a dict of names and shares"):
        split(rows, [0.8, 0.2], by="log_id")
    with pytest.raises(UsageError, match="split first, then window or map"):
        by_place(rows.window([-1, 0]))
    with pytest.raises(UsageError, match="before windows"):
        rows.apart(np.ones(len(rows), bool), np.zeros(3))


def test_shares_within_rounding_and_whole_numbers_are_exact_shares(rows):
    thirds = [
        dict.fromkeys("abc", 1 / 3),
        dict.fromkeys("abc", Fraction(1, 3)),
        dict.fromkeys("abc", "1/3"),
        dict.fromkeys("abc", 1),
        dict.fromkeys("abc", np.int32(7)),
        dict.fromkeys("abc", 0.333333),
    ]
    first, *others = (
        [part.positions.tolist() for part in by_place(rows, shares=one).values()] for one in thirds
    )
    assert all(first)
    assert all(other == first for other in others)
    parts = by_place(rows, shares={"train": 50, "val": 30, "test": np.int64(20)})
    wanted = by_place(rows)
    assert {name: part.positions.tolist() for name, part in parts.items()} == {
        name: part.positions.tolist() for name, part in wanted.items()
    }


def test_lists_of_logs_come_before_shares(rows):
    plain = split(rows, {"train": 0.5, "test": 0.5}, by="log_id")
    parts = split(rows, {"train": 0.5, "val": ["drive-03", "drive-0[15]"], "test": 0.5}, by="log_id")
    assert list(parts) == ["train", "val", "test"]
    logs = {name: set(part.index["log_id"]) for name, part in parts.items()}
    assert logs["val"] == {"drive-01", "drive-03", "drive-05"}
    for name in ("train", "test"):
        assert logs[name] == set(plain[name].index["log_id"]) - logs["val"]
    assert sum(map(len, parts.values())) == len(rows)
    with pytest.raises(UsageError, match="val: no log has the log_id 'drive-3'; did you mean drive-0"):
        split(rows, {"train": 1, "val": ["drive-3"]}, by="log_id")
    with pytest.raises(UsageError, match="b: 'drive-03' is in a, too; leave it out of one"):
        split(rows, {"train": 1, "a": ["drive-03"], "b": ["drive-03"]}, by="log_id")
    with pytest.raises(UsageError, match="val: a list of logs has the log_id of at least one"):
        split(rows, {"train": 1, "val": []}, by="log_id")
    with pytest.raises(UsageError, match="val lists logs, which goes with by='log_id'"):
        split(rows, {"train": 1, "val": ["drive-03"]}, by="city")


def test_listed_logs_may_continue_in_another_file(tmp_path):
    needs("parquet")
    for start, logs in ((0, ["a", "b"]), (2, ["b", "c"])):
        table = pa.table({"log_id": logs, "timestamp": [start, start + 1]})
        pq.write_table(table, tmp_path / f"{start}.parquet")
    parts = split(logloom.open(tmp_path), {"train": 1, "val": ["b"]}, by="log_id")
    assert {name: [row["timestamp"] for row in part] for name, part in parts.items()} == {
        "train": [0, 3],
        "val": [1, 2],
    }


def test_what_is_the_name_of_a_log_is_no_pattern(tmp_path):
    rows = [{"log_id": log, "timestamp": 0, "x": 1.0} for log in ("run 1", "run 2", "run [1]")]
    tt.write_table(str(tmp_path / "t"), rows)
    parts = split(logloom.open(tmp_path / "t"), {"train": 1, "val": ["run [1]"]}, by="log_id")
    assert {name: [row["log_id"] for row in part] for name, part in parts.items()} == {
        "train": ["run 1", "run 2"],
        "val": ["run [1]"],
    }
