"""`logloom.datasets.open` over versions: all outputs give the same rows, and views mean what they say."""

import copy
import json
import multiprocessing
import os
import pathlib
import pickle
import re
import shutil
import urllib.parse
from concurrent.futures import ProcessPoolExecutor

import fsspec
import numpy as np
import pytest

import logloom.datasets
import logloom.io.formats.table as tt
from logloom.datasets import Loader
from logloom.demo import demo_recipe
from logloom.errors import DatasetError, UsageError
from logloom.io.catalog.tags import change_tags
from logloom.io.formats.registry import by_preference, format_named, format_names
from logloom.io.storage.store import Store
from logloom.pipelines.head.head import head
from logloom.recipe import Recipe
from logloom.schema import Schema
from tests.absent import ABSENT, outputs_present, present
from tests.conftest import REPOSITORY

OUTPUTS = outputs_present("""\
  bags: {types: {camera.front: jpg}}
  table: {index: [ego.speed, ego.position]}
  zarr: {rows_per_chunk: 16}
partition: {rows: 15}
split: {train: 0.5, val: 0.5, by: log_id}
""")
KEPT_AS_THEY_ARE = present("bags", "table", "tar", "zarr")
ROWS = [*KEPT_AS_THEY_ARE, *present("l5kit")]


@pytest.fixture(scope="module")
def root(logs_of, root_of):
    """A version of three drives in every format, in two splits; sensors drop out, so there are gaps."""
    return root_of(Recipe.from_yaml(demo_recipe(logs_of(4, 3)) + OUTPUTS))


def same(a, b):
    """Whether two samples are equal: values, dtypes, shapes, and the order of their keys."""
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, np.ndarray | np.generic):
        a, b = np.asarray(a), np.asarray(b)
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    return a == b


@pytest.fixture(scope="module")
def rows(root):
    """All rows, read one by one from the tar shards."""
    return list(logloom.datasets.open(root, output="tar"))


def test_a_table_opens_as_rows_by_number(tmp_path):
    rows = [
        {"log_id": "a", "timestamp": ms * 10**6, "ego.speed": np.float32(ms / 8), "task": "pick"}
        for ms in (0, 10, 20)
    ]
    tt.write_table(str(tmp_path / "drives"), rows)
    dataset = logloom.datasets.open(tmp_path / "drives", columns=["ego.*"])
    assert len(dataset) == 3
    assert dataset[1] == {"log_id": "a", "timestamp": 10**7, "ego.speed": 1.25}
    assert [row["ego.speed"] for row in dataset] == [0, 1.25, 2.5]


@pytest.mark.parametrize("output", KEPT_AS_THEY_ARE)
def test_every_output_gives_the_same_rows_by_number_by_list_and_in_a_for_loop(root, rows, output):
    dataset = logloom.datasets.open(root, output=output)
    assert len(dataset) == len(rows) > 60
    assert [row["timestamp"] for row in rows] == sorted(row["timestamp"] for row in rows)
    assert all(map(same, dataset, rows))
    numbers = [5, 63, 5, -1, 0, 31]
    assert all(map(same, dataset.__getitems__(numbers), [rows[number] for number in numbers]))
    assert same(dataset[-2], rows[-2])
    with pytest.raises(IndexError, match=f"row {len(rows)} of {len(rows)}"):
        dataset[len(rows)]
    with pytest.raises(IndexError):
        dataset[-len(rows) - 1]


def test_the_frames_of_l5kit_are_rows_of_the_same_logs_at_the_same_times(root, rows):
    dataset = logloom.datasets.open(root, output="l5kit")
    assert [(r["log_id"], r["timestamp"]) for r in dataset] == [(r["log_id"], r["timestamp"]) for r in rows]
    number = 41
    np.testing.assert_array_equal(dataset[number]["ego_translation"], rows[number]["ego.position"])
    assert len(dataset[number]["agents"]) == len(rows[number]["objects"])
    index, others = (logloom.datasets.open(root, output=o).index for o in ("l5kit", "tar"))
    assert index.equals(others)


@pytest.mark.parametrize("output", ROWS)
def test_a_folder_of_the_view_opens_as_what_the_manifest_says(root, output):
    view = root / "v00000001" / output
    whole = logloom.datasets.open(view)
    assert len(whole) == len(logloom.datasets.open(root, output=output))
    split = logloom.datasets.open(view / ("train.zarr" if output in ("zarr", "l5kit") else "train"))
    assert set(split.index["split"]) == {"train"}
    assert 0 < len(split) < len(whole)
    assert split.index.log_id.tolist() == [row["log_id"] for row in split]


@pytest.mark.parametrize("output", KEPT_AS_THEY_ARE)
def test_get_many_stacks_what_rows_hold(root, rows, output):
    dataset = logloom.datasets.open(root, output=output, columns=["ego.*", "lidar.points", "camera.front"])
    numbers = np.array([40, 3, 3, 70])
    out = {"ego.rotation": np.empty((4, 3, 3))}
    batch = dataset.get_many(numbers, out=out)
    assert list(batch) == list(dataset[0])
    chosen = [rows[number] for number in numbers]
    assert batch["log_id"] == [row["log_id"] for row in chosen]
    assert batch["camera.front"] == [row["camera.front"] for row in chosen]
    np.testing.assert_array_equal(batch["timestamp"], [row["timestamp"] for row in chosen])
    np.testing.assert_array_equal(batch["ego.rotation"], [row["ego.rotation"] for row in chosen])
    values, lengths = batch["lidar.points"]
    assert lengths.tolist() == [len(row["lidar.points"]) for row in chosen]
    np.testing.assert_array_equal(values, np.concatenate([row["lidar.points"] for row in chosen]))
    assert list(dataset.get_many([1], columns="ego.speed")) == ["log_id", "timestamp", "ego.speed"]


def test_a_root_opens_by_those_of_its_outputs_that_installed_parts_read(root, rows, uninstall):
    first, *others = (name for name in ("table", "zarr", "bags", "tar") if name in KEPT_AS_THEY_ARE)
    uninstall(first)
    dataset = logloom.datasets.open(root, where="ego.speed > 0")
    assert all(map(same, dataset, [row for row in rows if row["ego.speed"] > 0]))
    assert same(list(dataset), list(logloom.datasets.open(root, output=others[0], where="ego.speed > 0")))
    (shown,) = head(str(root), count=1)
    assert shown.origin.entry.output == others[0]
    refused = f"no installed part offers output '{first}'; there are .*{others[0]}"
    for read in (logloom.datasets.open, head):
        with pytest.raises(UsageError, match=refused):
            read(str(root), output=first)
    uninstall(first, "l5kit", *others)
    with pytest.raises(UsageError, match="no installed part offers output"):
        logloom.datasets.open(root)


def test_the_index_says_where_each_row_belongs_and_a_table_adds_its_own_columns(root, rows):
    dataset = logloom.datasets.open(root)  # the table is the first choice
    index = dataset.shuffle(3).index
    shuffled = list(dataset.shuffle(3))
    assert index.log_id.tolist() == [row["log_id"] for row in shuffled]
    assert index.timestamp.tolist() == [row["timestamp"] for row in shuffled]
    if present("table"):
        np.testing.assert_array_equal(index["ego.speed"], [row["ego.speed"] for row in shuffled])
    assert set(index["split"]) == {"train", "val"}
    for _, own in dataset.index.groupby("log_id", observed=True):
        assert own.row.tolist() == list(range(len(own)))
        assert own.partition.nunique() > 1


def test_a_split_and_a_filter_keep_the_rows_that_pass(root, rows):
    val = [row["ego.speed"] for row in logloom.datasets.open(root, split="val")]
    limit = sorted(val)[len(val) // 2]
    where = f"ego.speed > {limit} and available(objects)"
    dataset = logloom.datasets.open(root, split="val", where=where)
    logs = {log for log, split in set(zip(*(dataset.index[k] for k in ("log_id", "split")), strict=True))}
    expected = [r for r in rows if r["log_id"] in logs and r["ego.speed"] > limit]
    assert 0 < len(expected) < len(val)
    assert all(map(same, dataset, expected))
    assert len(dataset) == len(expected)


@pytest.mark.parametrize("output", KEPT_AS_THEY_ARE)
def test_filters_name_columns_of_the_data_and_of_the_index(root, rows, output):
    last = rows[-1]
    where = f"log_id == '{last['log_id']}' and ego.position[0] >= {last['ego.position'][0]} and timestamp > 0"
    found = logloom.datasets.open(root, output=output, where=where, columns="ego.speed")
    same_log = [r for r in rows if r["log_id"] == last["log_id"]]
    expected = [r["timestamp"] for r in same_log if r["ego.position"][0] >= last["ego.position"][0]]
    assert [row["timestamp"] for row in found] == expected
    assert len(logloom.datasets.open(root, output=output, where="row < 2 and split in ('train', 'val')")) == 6


def test_ages_come_when_they_are_named(root):
    dataset = logloom.datasets.open(root, columns=["camera.front.age", "ego.speed"])
    assert dataset.columns == ("ego.speed", "camera.front.age")
    assert abs(int(dataset[0]["camera.front.age"])) < 10**8
    assert list(dataset.schema.columns) == ["ego.speed", "camera.front"]
    assert dataset.select("*.age").columns == ("camera.front.age",)


@pytest.mark.parametrize("output", ROWS)
def test_windows_are_neighbours_as_stored_and_never_cross_logs_or_gaps(root, rows, output):
    column = "ego_translation" if output == "l5kit" else "ego.position"
    plain = logloom.datasets.open(root, output=output, columns=[column])
    offsets, period = np.arange(-2, 2), 10**8
    windows = plain.shuffle(1).window(range(-2, 2))
    seen = set()
    for window in windows:
        assert window["timestamp"].shape == (4,)
        assert window[column].shape == (4, 3)
        assert np.diff(window["timestamp"]).max() <= 1.5 * period
        seen.add((window["log_id"], int(window["timestamp"][2])))
    stamps = {(row["log_id"], int(row["timestamp"])): n for n, row in enumerate(rows)}

    def is_whole(number):
        around = [rows[n] for n in number + offsets if 0 <= n < len(rows)]
        gaps = np.diff([row["timestamp"] for row in around])
        return len(around) == 4 and len({r["log_id"] for r in around}) == 1 and gaps.max() <= 1.5 * period

    assert seen == {key for key, number in stamps.items() if is_whole(number)}
    assert 0 < len(windows) < len(plain)


def test_the_longest_gap_of_windows_is_a_text_or_seconds(root):
    dataset = logloom.datasets.open(root, columns="ego.speed")
    stamps = dataset.index.timestamp.to_numpy()
    same_log = dataset.index.log_id.to_numpy()[1:] == dataset.index.log_id.to_numpy()[:-1]
    for max_gap, ns in (
        ("150ms", 150_000_000),
        (0.15, 150_000_000),
        (0.3, 300_000_000),
        ("99ms", 99_000_000),
    ):
        expected = int((same_log & (np.diff(stamps) <= ns)).sum())
        assert len(dataset.window([-1, 0], max_gap=max_gap)) == expected
    assert len(dataset.window([-1, 0], max_gap=0.3)) > len(dataset.window([-1, 0], max_gap="99ms")) == 0


@pytest.mark.parametrize("output", KEPT_AS_THEY_ARE)
def test_padded_windows_carry_a_mask_and_nothing_where_it_is_false(root, rows, output):
    dataset = logloom.datasets.open(root, output=output, columns=["ego.position", "imu", "camera.front"])
    padded = dataset.window([-1, 0, 1], on_edge="pad", max_gap=None)
    assert len(padded) == len(rows)
    first = padded[0]
    assert first["mask"].tolist() == [False, True, True]
    assert np.isnan(first["ego.position"][0]).all()
    assert same(first["ego.position"][1], rows[0]["ego.position"])
    assert first["camera.front"] == [b"", rows[0]["camera.front"], rows[1]["camera.front"]]
    assert first["imu"][0].shape == (0, 6)
    assert same(first["imu"][2], rows[1]["imu"])
    ends = [n for n in range(len(rows) - 1) if rows[n]["log_id"] != rows[n + 1]["log_id"]]
    for number in (*ends, -1):
        assert padded[number]["mask"].tolist() == [True, True, False]
    batch = padded.get_many([0, 10])
    assert batch["ego.position"].shape == (2, 3, 3)
    assert batch["mask"].shape == (2, 3)
    assert batch["imu"][1].shape == (2, 3)
    assert len(batch["imu"][0]) == batch["imu"][1].sum()
    assert all(map(same, padded.__getitems__([0, 10]), [first, padded[10]]))
    beyond = dataset.window([500], on_edge="pad")[3]
    assert not beyond["mask"].any()
    assert np.isnan(beyond["ego.position"]).all()
    assert beyond["log_id"] == rows[3]["log_id"]


def test_a_window_that_must_be_whole_says_which_row_lacks_which_offsets(root, rows):
    dataset = logloom.datasets.open(root, columns="ego.speed").window([-2, 0], stride=2, on_edge="error")
    assert len(dataset[4]["ego.speed"]) == 2
    message = rf"row 1 of log {rows[0]['log_id']!r} has no rows at offsets \[-4\].*drop"
    with pytest.raises(UsageError, match=message) as caught:
        dataset[1]
    assert not isinstance(caught.value, IndexError)  # which would end a for loop in silence


def test_windows_after_a_filter_hold_rows_that_the_filter_left_out(root, rows):
    fast = logloom.datasets.open(root, columns="ego.speed", where="row == 5")
    window = fast.window([-1, 0])[0]
    np.testing.assert_array_equal(window["ego.speed"], [rows[4]["ego.speed"], rows[5]["ego.speed"]])


def double(row):
    return {"twice": 2 * row["ego.position"], "log_id": row["log_id"], "bytes": b"x"}


def keys_of(row):
    return {**row, "keys": ",".join(row)}


def test_a_function_before_a_window_sees_rows_and_one_after_it_sees_windows(root, rows):
    dataset = logloom.datasets.open(root, columns=["ego.position"])
    before = dataset.map(double).window([-1, 0], on_edge="pad").map(keys_of)
    assert before[0]["keys"] == "twice,log_id,bytes,mask"
    assert before[0]["bytes"] == [None, b"x"]
    assert before[0]["log_id"] == rows[0]["log_id"]
    np.testing.assert_array_equal(before[1]["twice"], [2 * rows[n]["ego.position"] for n in (0, 1)])
    assert np.isnan(before[0]["twice"][0]).all()
    after = dataset.window([-1, 0]).map(double)
    assert after[0]["twice"].shape == (2, 3)
    assert list(after.select("twi*")[0]) == ["twice"]
    with pytest.raises(UsageError, match="no key matches 'twiec'; did you mean twice"):
        after.select("twiec")[0]


def test_views_chain_in_any_order(root):
    whole = logloom.datasets.open(root, columns=["ego.*"])
    every = [whole.shard(number, 3) for number in range(3)]
    assert sorted(np.concatenate([shard.positions for shard in every])) == list(range(len(whole)))
    a = whole.shuffle(7).take(20).select("ego.speed").shard(1, 2)
    b = whole.select("ego.speed").shuffle(7).take(range(20)).shard(1, 2)
    assert all(map(same, a, b))
    assert len(a) == len(b) == 10
    assert whole.shuffle(7).positions.tolist() != whole.shuffle(8).positions.tolist()
    assert same(whole[5:9][-1], whole[8])
    assert len(whole.take(10**6)) == len(whole)
    mask = np.zeros(len(whole), bool)
    mask[[3, 4]] = True
    assert whole.take(mask).positions.tolist() == [3, 4]
    assert len(whole.take([])) == 0
    assert list(whole.take([])) == []
    assert whole.take([]).__getitems__([]) == []


def test_mistakes_name_the_choices_and_the_nearest(root, tmp_path):
    def refused(match, **arguments):
        with pytest.raises(UsageError, match=match):
            logloom.datasets.open(**{"uri": root, **arguments})

    refused("no version 7; there is only 1", version=7)
    for falsy in (0, False, ""):
        refused(f"no version {falsy!r}; there is only 1", version=falsy)
    refused("no version 'best'", version="best")
    for version in (2, "gold", "latest"):
        refused(f"names version 1, and version={version!r} another", uri=f"{root}@1", version=version)
    assert len(logloom.datasets.open(f"{root}@1", version=1)) == len(logloom.datasets.open(root))
    refused("columns=5: not a name; pass a text", columns=5)
    refused("columns=5: not a name; pass a text", columns=5, where="ego.speed > 3")
    refused("split=5: not a name; pass a text", split=5)
    for unnamed in ("", "@1"):
        refused(f"'{unnamed}' names no root", uri=unnamed)
        with pytest.raises(UsageError, match=f"'{unnamed}' names no root"):
            logloom.datasets.find(unnamed, {"fast": "ego.speed > 9"})
    (tmp_path / "nov/versions").mkdir(parents=True)
    refused("nov: no version here; `logloom build RECIPE --to ", uri=tmp_path / "nov")
    *_, output = KEPT_AS_THEY_ARE
    refused(f"no output '{output}s'; did you mean {output}", output=f"{output}s")
    refused("no split 'trian'; did you mean train", split="trian")
    refused(r"no column matches 'ego\.sped'; did you mean ego.speed", columns=["ego.sped"])
    refused("where, character 1 of .*no column 'ego.sped'; did you mean ego.speed", where="ego.sped > 3")
    refused("only single numbers", where="ego.position > 3")
    dataset = logloom.datasets.open(root)
    for wrong, match in [
        (lambda: dataset.window([]), "offsets are integers"),
        (lambda: dataset.window(5), "offsets are integers such as .*, got 5"),
        (lambda: dataset.window([[1], [1, 2]]), "offsets are integers"),
        (lambda: dataset.select([5]), r"columns=\[5\]: not a name; pass a text"),
        (lambda: dataset.window([0], stride=0), "at least 1"),
        (lambda: dataset.window(["-1s", "0s"], stride=1 << 40), "no log is so long"),
        (lambda: dataset.window([0], on_edge="wrap"), "drop, pad, repeat, error"),
        (lambda: dataset.window([0], max_gap=-0.1), "window: max_gap=-0.1: not a length of time"),
        (lambda: dataset.window([0], max_gap=float("nan")), "window: max_gap=nan: not a length of time"),
        (lambda: dataset.window([0], max_gap="300"), "window: max_gap='300': not a length of time"),
        (lambda: dataset.window([0]).window([0]), "windows already"),
        (lambda: dataset.window([0], on_edge="pad", mask="imu"), "name the mask otherwise"),
        (lambda: dataset.shard(3, 3), "shard 3 of 3"),
        (lambda: dataset.take(-1), "can't be negative"),
        (lambda: dataset.take([10**6]), "row 1000000 of"),
        (lambda: dataset.take([True]), "a mask of 1"),
        (lambda: dataset.select("speed"), "did you mean ego.speed"),
    ]:
        with pytest.raises(UsageError, match=match):
            wrong()


@pytest.mark.parametrize(
    "arguments", [{}, {"version": 1}, {"output": "tar"}, {"split": "train"}, {"columns": "ego.*"}]
)
def test_a_missing_path_is_said_to_be_missing_with_the_nearest_one(root, arguments):
    for path, said in (
        (root.with_name("roott"), "there is no such file or folder; did you mean root?"),
        (f"{root}t@1", "there is no such file or folder; did you mean root?"),
        (
            root.with_name("xyz") / "train",
            f"no such file or folder: {root.parent} has no 'xyz'; check the path",
        ),
    ):
        with pytest.raises(UsageError, match=re.escape(said)) as caught:
            logloom.datasets.open(path, **arguments)
        assert str(path) in str(caught.value)
        assert "output" not in str(caught.value)
    fsspec.filesystem("memory").pipe_file("/nowhere/xyz/a", b"")
    for name, near in (("xy", "did you mean xyz?"), ("pose", "check the path")):
        said = re.escape(f"memory://nowhere/{name}: nothing is there; {near}")
        with pytest.raises(UsageError, match=said):
            logloom.datasets.open(f"memory://nowhere/{name}", **arguments)


@pytest.mark.skipif(bool(ABSENT), reason="names all outputs")
def test_the_order_in_which_outputs_are_preferred_is_the_documented_one():
    names = [name for name in by_preference(format_names()) if format_named(name).has_rows]
    others = names.index("l5kit")
    order = ", ".join([*names[:others], "any of other packages", *names[others:]])
    page = (REPOSITORY / "docs/training.md").read_text()
    assert order in " ".join(logloom.datasets.open.__doc__.split())
    assert order in " ".join(page.split())


def test_what_is_no_dataset_but_a_recipe_or_logs_is_named_with_the_remedy(tmp_path):
    (tmp_path / "r.yaml").write_text("name: x")
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/a.mcap").write_bytes(b"\x89MCAP0\r\n")
    for place, said in (
        ("r.yaml", "is a recipe; give the ROOT that `logloom build "),
        ("logs", "contains logs, no dataset; `logloom build "),
        ("logs/a.mcap", "is a log; `logloom build "),
    ):
        with pytest.raises(UsageError, match=f"{tmp_path / place}: {said}"):
            logloom.open(tmp_path / place)


@pytest.mark.parametrize("arguments", [{}, {"version": 1}, {"output": "table"}, {"split": "train"}])
def test_a_root_without_a_version_is_no_dataset_of_its_parquet_files(root, tmp_path, arguments):
    bare = tmp_path / "bare"
    shutil.copytree(root, bare, ignore=lambda folder, names: [name for name in names if name == "versions"])
    assert list((bare / "logs").glob("*.parquet"))
    for path in (bare, f"{bare}@1"):
        with pytest.raises(UsageError, match=rf"{bare}: no version yet, .* build first: `logloom build"):
            logloom.datasets.open(path, **arguments)
    with pytest.raises(UsageError, match="no version yet"):
        logloom.datasets.find(str(bare), "ego.speed > 3")


def test_folders_within_and_around_a_root_are_no_datasets(root):
    for name in ("logs", "parts", "versions", "versions/pages"):
        with pytest.raises(
            UsageError, match=rf"{name}: a folder of the root {root}, no dataset; open the root"
        ):
            logloom.datasets.open(root / name)
    with pytest.raises(UsageError, match=rf"{root.parent}: .* the folder of the root {root}; open that"):
        logloom.datasets.open(root.parent)


def test_versions_open_by_number_tag_and_at_sign(root, tmp_path):
    store = tmp_path / "root"
    store.symlink_to(root)
    tagged = tmp_path / "tagged"
    tagged.mkdir()
    for path in root.iterdir():
        if path.name not in ("versions", "tmp"):
            (tagged / path.name).symlink_to(path)
    (tagged / "versions").mkdir()
    for path in (root / "versions").iterdir():
        (tagged / "versions" / path.name).symlink_to(path)
    change_tags(Store.at(str(tagged)), lambda tags: {"best": 1})
    for uri, version in [(tagged, "best"), (tagged, 1), (f"{tagged}@best", None), (store, "latest")]:
        assert len(logloom.datasets.open(uri, version)) > 60


@pytest.mark.parametrize(
    ("method", "output"), [*(("fork", output) for output in KEPT_AS_THEY_ARE), ("spawn", "tar")]
)
def test_a_dataset_that_was_read_serves_forked_and_spawned_processes(root, method, output):
    """Of starting interpreters one is enough: pickling is tested for all outputs."""
    dataset = logloom.datasets.open(root, output=output, columns=["ego.speed"])
    numbers = [3, 70, 12]
    expected = dataset.__getitems__(numbers)
    with ProcessPoolExecutor(1, multiprocessing.get_context(method)) as pool:
        found = pool.submit(dataset.__getitems__, numbers).result(timeout=60)
    assert same(found, expected)


def open_payload(folder):
    links = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
    files = {os.readlink(link) for link in links if os.path.islink(link)}
    return {file for file in files if file.startswith(str(folder)) and "parts" in file and "." in file}


def test_rows_of_versions_one_after_the_other_tell_their_timestamps(root, rows):
    one, other = (logloom.datasets.open(root, output="tar") for _ in range(2))  # threads find their stamps
    both = logloom.datasets.concat([one, other.head(3)])
    stamps = [row["timestamp"] for row in rows]
    assert both.index["timestamp"].tolist() == stamps + stamps[:3]


@pytest.mark.parametrize("turned", [False, True])
def test_columns_have_ages_in_both_datasets_or_in_neither(root, rows, tmp_path, turned):
    built = logloom.datasets.open(root, output="tar").select("ego.speed")
    plain = [{name: row[name] for name in ("log_id", "timestamp", "ego.speed")} for row in rows[:3]]
    tt.write_table(str(tmp_path / "plain"), plain, types=Schema(built.schema.columns))
    parts = [built, logloom.datasets.open(tmp_path / "plain").select("ego.speed")]
    both = logloom.datasets.concat(parts[::-1] if turned else parts)
    assert "ego.speed.age" in built.schema.all
    assert "ego.speed.age" not in both.schema.all
    assert {name for row in both for name in row} == {"log_id", "timestamp", "ego.speed"}


@pytest.mark.parametrize("output", present("bags", "tar"))
def test_a_version_opens_without_any_of_its_units(root, rows, output, tmp_path):
    shutil.copytree(root, tmp_path / "root")
    for folder in ("parts", "logs"):
        (tmp_path / "root" / folder).rename(tmp_path / folder)
    dataset = logloom.datasets.open(tmp_path / "root", output=output, columns="ego.*")
    assert len(dataset) == len(rows)
    with pytest.raises(DatasetError):
        dataset[0]
    for folder in ("parts", "logs"):
        (tmp_path / folder).rename(tmp_path / "root" / folder)
    assert same(dataset[0], {name: rows[0][name] for name in ("log_id", "timestamp", *dataset.columns)})


@pytest.mark.parametrize("output", ROWS)
def test_opening_reads_no_payload_and_a_pickle_holds_no_reader(root, output):
    opened = open_payload(root)
    dataset = logloom.datasets.open(root, output=output)
    assert open_payload(root) <= opened
    before = len(pickle.dumps(dataset))
    row = dataset[7]
    dataset.index  # noqa: B018
    again = pickle.loads(pickle.dumps(dataset))
    assert len(pickle.dumps(dataset)) == before
    assert same(again[7], row)
    assert same(copy.copy(dataset)[7], row)


def small(row):
    return {"speed": row["ego.speed"], "points": row["lidar.points"][:4]}


@pytest.mark.parametrize("output", KEPT_AS_THEY_ARE)
def test_the_loader_gives_the_rows_of_a_dataset_plain_mapped_and_in_windows(root, output):
    whole = logloom.datasets.open(root, output=output)
    plain, windows = whole.select("ego.*"), whole.select("ego.position").window([-1, 0])
    for dataset in (plain, whole.map(small), windows):
        with Loader(dataset, batch=8, shuffle=False, workers=2) as loader:
            batch = next(iter(loader))
            second = next(loader)
        for key, values in batch.items():
            np.testing.assert_array_equal(values, [dataset[number][key] for number in range(8)])
            np.testing.assert_array_equal(second[key][0], dataset[8][key])


@pytest.mark.parametrize("on_edge", ["drop", "pad"])
def test_the_loader_reads_columns_at_once_where_rows_need_no_function(root, monkeypatch, on_edge):
    dataset = logloom.datasets.open(root, columns="ego.*").window([-1, 0], on_edge=on_edge)
    monkeypatch.setattr(type(dataset), "_samples", None)  # which gives rows one by one
    spec = {**{k: (v.dtype, v.shape[1:]) for k, v in dataset.get_many([0]).items() if k != "log_id"}}
    loader = Loader(dataset, batch=8, workers=0)
    loader.spec = {"log_id": (np.dtype("<U8"), ()), **spec}
    assert next(iter(loader))["ego.position"].shape == (8, 2, 3)


def test_spec_says_what_a_sample_holds(root):
    dataset = logloom.datasets.open(root, columns=["ego.position", "ego.speed"])
    assert dataset.spec == {
        "log_id": (np.dtype("<U8"), ()),
        "timestamp": (np.dtype("<i8"), ()),
        "ego.position": (np.dtype("<f8"), (3,)),
        "ego.speed": (np.dtype("<f8"), ()),
    }
    assert dataset.window([0, 1]).spec["ego.position"] == (np.dtype("<f8"), (2, 3))
    with pytest.raises(UsageError, match="no rows"):
        dataset.take(0).spec  # noqa: B018


def test_a_root_whose_view_is_gone_gives_the_same_rows(root, rows, tmp_path):
    bare = pathlib.Path(tmp_path / "bare")
    bare.mkdir()
    for name in ("parts", "logs", "versions"):
        (bare / name).symlink_to(root / name)
    for output in KEPT_AS_THEY_ARE:
        dataset = logloom.datasets.open(bare, output=output)
        assert all(map(same, dataset.__getitems__([0, 44, 9]), [rows[0], rows[44], rows[9]]))
        assert len(dataset.window([0, 1])) > 0


@pytest.fixture(scope="module")
def stored(root):
    """The same version in an object store, which has no view."""
    fs = fsspec.filesystem("memory")
    for folder in ("parts", "logs", "versions"):
        for path in (root / folder).rglob("*"):
            if path.is_file():
                fs.pipe_file(f"/open-test/{path.relative_to(root)}", path.read_bytes())
    yield "memory://open-test"
    fs.rm("/open-test", recursive=True)


@pytest.mark.parametrize("output", ROWS)
def test_a_version_in_an_object_store_gives_the_same_rows(root, stored, output):
    there, here = (logloom.datasets.open(uri, output=output) for uri in (stored, root))
    assert all(map(same, there.__getitems__([3, 60, 3]), here.__getitems__([3, 60, 3])))
    assert there.window([-1, 0]).positions.tolist() == here.window([-1, 0]).positions.tolist()


@pytest.mark.parametrize("output", present("l5kit", "zarr"))
def test_a_dataset_that_holds_other_rows_than_the_manifest_says_is_refused(root, output, tmp_path):
    for name in ("parts", "logs"):
        (tmp_path / name).symlink_to(root / name)
    manifest = json.loads((root / "versions/00000001.json").read_text())
    train, val = (part for part in manifest["assembled"] if part["output"] == output)
    for name in ("identity", "entry"):
        train[name], val[name] = val[name], train[name]
    (tmp_path / "versions").mkdir()
    (tmp_path / "versions/pages").symlink_to(root / "versions/pages")
    (tmp_path / "versions/00000001.json").write_text(json.dumps(manifest))
    with pytest.raises(DatasetError, match=r"\d+ rows, the manifest has \d+; see `logloom verify`"):
        logloom.datasets.open(tmp_path, output=output)[0]


def test_shards_tell_their_times_where_no_other_output_is_left(root, tmp_path):
    for name in ("logs", "versions"):
        (tmp_path / name).symlink_to(root / name)
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts/tar").symlink_to(root / "parts/tar")
    dataset = logloom.datasets.open(tmp_path, output="tar")
    assert dataset.index.equals(logloom.datasets.open(root, output="tar").index)


@pytest.mark.parametrize("output", ROWS)
def test_a_plain_copy_of_a_view_gives_the_rows_of_its_splits(root, tmp_path, output):
    shutil.copytree(root / "v00000001" / output, tmp_path / "copy")
    version, copied = logloom.datasets.open(root, output=output), logloom.datasets.open(tmp_path / "copy")
    assert len(copied) == len(version)
    numbers = [len(copied) - 1, 0, 40]
    assert list(copied.get_many(numbers).get("log_id", [])) == [
        copied[number]["log_id"] for number in numbers if "log_id" in copied[number]
    ]
    for split in ("train", "val"):
        mine = logloom.datasets.open(tmp_path / "copy", split=split)
        assert set(mine.index["split"]) == {split}
        expected = list(logloom.datasets.open(root, output=output, split=split))
        assert [row["timestamp"] for row in mine] == [row["timestamp"] for row in expected]
    assert len(logloom.datasets.open(tmp_path / "copy", where="split == 'val'")) == len(mine)
    if output != "l5kit":  # which knows scenes by number
        assert [row["log_id"] for row in copied] == [row["log_id"] for row in version]
    with pytest.raises(UsageError, match="no split 'vall'; did you mean val"):
        logloom.datasets.open(tmp_path / "copy", split="vall")
    name = "train.zarr" if output in ("zarr", "l5kit") else "train"
    with pytest.raises(UsageError, match="one dataset, not a folder for each split"):
        logloom.datasets.open(tmp_path / "copy" / name, split="train")


def test_folders_that_are_no_splits_of_one_dataset_are_refused(root, tmp_path):
    shutil.copytree(root / "v00000001/tar/train", tmp_path / "copy/train")
    shutil.copytree(root / "v00000001/table/val", tmp_path / "copy/val")
    with pytest.raises(UsageError, match="val has other columns than train"):
        logloom.datasets.open(tmp_path / "copy")
    assert len(logloom.datasets.open(tmp_path / "copy", split=["train"])) > 0
    (tmp_path / "copy/notes").mkdir()
    with pytest.raises(UsageError, match="it contains notes, train, val"):
        logloom.datasets.open(tmp_path / "copy")


def test_shards_that_logloom_wrote_are_rows_wherever_they_lie(root, rows, tmp_path):
    shutil.copytree(root / "v00000001/tar", tmp_path / "copy")
    dataset = logloom.datasets.open(tmp_path / "copy")
    version = logloom.datasets.open(root, output="tar")
    names = ["*", "camera.front.age", "camera.front.available", "lidar.points.age"]
    assert set(dataset.columns) == set(version.columns)
    assert dataset.schema.sampled
    whole, plain = (
        logloom.datasets.open(p, columns=names) for p in (root / "v00000001/tar", tmp_path / "copy")
    )
    for mine, row in zip(plain, whole, strict=True):
        assert same({name: mine[name] for name in row}, row)
    numbers = [5, 63, 5, -1]
    assert all(map(same, dataset.__getitems__(numbers), [dataset[number] for number in numbers]))
    assert dataset.index["timestamp"].tolist() == version.index["timestamp"].tolist()
    assert len(dataset.window([-1, 0])) == len(version.window([-1, 0], max_gap=None))
    assert len(logloom.datasets.open(tmp_path / "copy", where="ego.speed > 9")) == sum(
        row["ego.speed"] > 9 for row in rows
    )
    alone = logloom.datasets.open(tmp_path / "copy/train/000000.tar")
    first = logloom.datasets.open(root, output="tar", split="train")[0]
    assert same(alone[0]["ego.position"], first["ego.position"])
    assert same(pickle.loads(pickle.dumps(dataset))[7], dataset[7])


@pytest.fixture(scope="module")
def place(root, tmp_path_factory):
    """A copy of the root in a folder with an odd name."""
    return shutil.copytree(root, tmp_path_factory.mktemp("odd") / "100% [a]#?{b,c}%20" / "data@1")


@pytest.mark.parametrize("output", ROWS)
def test_a_folder_of_any_name_is_opened(place, rows, output):
    stamps = [row["timestamp"] for row in rows]
    for given in (
        place,
        f"{place}@1",
        f"{place}/v00000001/{output}",
        f"file://{urllib.parse.quote(str(place))}",
    ):
        found = logloom.datasets.open(given, **({} if f"/{output}" in str(given) else {"output": output}))
        assert found.index["timestamp"].tolist() == stamps, given
        assert [row["timestamp"] for row in found[::20]] == stamps[::20], given


@pytest.mark.parametrize("output", present("parquet", "tar"))
def test_a_file_is_opened_before_its_name_is_expanded(tmp_path, logs_of, root_of, output):
    recipe = Recipe.from_yaml(demo_recipe(logs_of(1, 1)) + f"\n  {output}: {{}}\n" * (output != "tar"))
    root = root_of(recipe)
    first = next((root / f"v00000001/{output}/all").glob(f"*.{output}"))
    whole = logloom.datasets.open(first)
    for name in ("x{1,2}", "x{0..1}", "x[1]?*", "x%20#"):
        copied = shutil.copy(first, tmp_path / f"{name}.{output}")
        assert len(logloom.datasets.open(copied)) == len(whole) > 0, name
    os.rename(tmp_path / f"x{{1,2}}.{output}", tmp_path / f"x1.{output}")
    with pytest.raises(DatasetError, match=f"x2.{output}: there is no such file"):
        logloom.datasets.open(tmp_path / f"x{{1,2}}.{output}")
