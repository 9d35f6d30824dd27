"""Searching a version, and what was found kept beside it: `logloom find`."""

import contextlib
import dataclasses
import json
import shutil

import numpy as np
import pytest

import logloom.io.formats.table as tt
from logloom import datasets
from logloom.datasets.search import find as finding
from logloom.datasets.search.find import find
from logloom.errors import DatasetError, UsageError
from logloom.io.catalog.intervals import (
    Intervals,
    Search,
    intervals_file,
    intervals_of,
    read_intervals,
    write_intervals,
)
from logloom.io.storage.store import Store
from logloom.pipelines.gc.gc import collect_garbage
from logloom.pipelines.purge.purge import purge
from logloom.pipelines.verify.verify import verify
from logloom.pipelines.versions.rollback import rollback
from logloom.recipe import Keep, Recipe
from tests.pipelines.conftest import build_at
from tests.pipelines.roots import age, commit_version
from tests.pipelines.test_commands import logloom

FAST = "ego.speed > 11.5 for 200ms and any(objects, class == 'car')"


COLUMNS = """columns:
  ego.position: {topic: /odom, field: pose.pose.position, resample: linear}
  ego.speed: {topic: /odom, field: twist.twist.linear.x, resample: mean, window: [-500ms, 0ms]}
  camera.front: {topic: /cam/front/compressed, field: data, resample: nearest, tolerance: 50ms}
  objects: {topic: /tracks, field: objects, strings: 16, resample: nearest}
rows: {require: [ego.position, camera.front]}
"""


def test_find_gives_the_times_at_which_a_filter_holds(tmp_path):
    speeds = [1.0, 9.0, 8.0, 1.0, 9.0]
    rows = [{"log_id": "a", "timestamp": n * 10**9, "speed": speed} for n, speed in enumerate(speeds)]
    tt.write_table(str(tmp_path / "drives"), rows)
    found = find(tmp_path / "drives", "speed > 5", before="500ms")
    assert [(one.log_id, one.start, one.stop, one.rows) for one in found.intervals] == [
        ("a", 500_000_000, 2_000_000_001, 2),
        ("a", 3_500_000_000, 4_000_000_001, 1),
    ]
    assert (found.matches, found.looked_at) == (3, 5)


@pytest.fixture(scope="module")
def drive(long_drive):
    return long_drive


def recipe_of(drive, rows, outputs="outputs: {table: {}, tar: {}, zarr: {}, bags: {}}"):
    text = drive.text[: drive.text.index("columns:")]
    return Recipe.from_yaml(f"{text}{COLUMNS}{outputs}\npartition: {{rows: {rows}}}\n")


@pytest.fixture(scope="module")
def searched(drive, root_of):
    """A version in all formats, by partitions of ten rows; not to be changed."""
    return root_of(recipe_of(drive, 10))


def expected(root, holds):
    """The runs of rows for which a function holds, as (log_id, start, stop)."""
    runs = []
    before = None
    for row in datasets.open(root, output="bags"):
        key = row["log_id"], int(row["timestamp"])
        if not holds(row):
            before = None
        elif before is not None and before[0] == key[0] and key[1] - before[1] <= 150_000_000:
            runs[-1][2] = key[1] + 1
            before = key
        else:
            runs.append([key[0], key[1], key[1] + 1])
            before = key
    return [tuple(run) for run in runs]


def found_in(root, where, **options):
    return [one[:3] for one in find(root, where, **options).intervals]


@pytest.mark.parametrize("output", ["table", "tar", "zarr", "bags"])
def test_each_format_gives_the_intervals_of_a_plain_loop(searched, output):
    wanted = [
        run
        for run in expected(searched, lambda row: row["ego.speed"] > 11.5)
        if run[2] - 1 - run[1] >= 200_000_000
    ]
    assert wanted
    found = find(searched, "ego.speed > 11.5 for 200ms", output=output)
    assert [(one.log_id, one.start, one.stop) for one in found.intervals] == wanted
    near = expected(searched, lambda row: sum(abs(one["centroid"][0]) < 15 for one in row["objects"]) > 1)
    assert near
    assert (
        found_in(searched, "count(objects, -15 < centroid[0], centroid[0] < 15) > 1", output=output) == near
    )


def test_partitions_of_any_size_give_the_same_intervals(drive, searched, tmp_path):
    wheres = [
        FAST,
        "delta(ego.speed, 1s) > 0.5 within 300ms",
        "not (ego.position[0] > 20 for 500ms)",
        "all(objects, extent[0] < 5) and ego.speed > 11",
    ]
    wanted = [find(searched, where) for where in wheres]
    assert any(one.intervals for one in wanted)
    for rows in (3, 1000):
        root = tmp_path / str(rows)
        build_at(recipe_of(drive, rows, "outputs: {bags: {}}"), root)
        for where, one in zip(wheres, wanted, strict=True):
            assert find(root, where) == one


def test_saved_intervals_are_taken_by_open_filter_split_mix_show_and_another_search(searched, tmp_path):
    root = tmp_path / "root"
    shutil.copytree(searched, root)
    found = find(root, FAST, before="300ms", after="200 ms", save="fast")
    assert found.saved.endswith("versions/intervals/00000001/fast.parquet")
    whole = datasets.open(root, columns=["ego.speed", "ego.position"])
    stamps, logs = whole.index["timestamp"].to_numpy(), whole.index["log_id"].astype(str).to_numpy()
    wanted = np.zeros(len(whole), bool)
    for one in found.intervals:
        wanted |= (logs == one.log_id) & (stamps >= one.start) & (stamps < one.stop)
    assert 0 < wanted.sum() == found.rows < len(whole)
    rows = datasets.open(root, where="in(fast)")
    assert rows.positions.tolist() == np.flatnonzero(wanted).tolist()
    other = whole.filter("not in(fast) and ego.speed > 11")
    assert set(other.positions) == {
        int(at) for at in np.flatnonzero(~wanted) if whole[int(at)]["ego.speed"] > 11
    }
    assert find(root, "in(fast)").intervals == tuple(
        sorted(one for one in find(root, "in(fast) and true").intervals)
    )
    parts = datasets.split(whole.filter("in(fast)"), {"train": 0.5, "val": 0.5}, by="time", cell=0.5)
    assert sum(map(len, parts.values())) == wanted.sum()
    mixture = datasets.mix({str(root): 1}, where="in(fast)", columns="ego.speed", repeat=False)
    assert len(mixture) == wanted.sum()
    told = logloom("show", root, "--where", "in(fast)", "--mcap", tmp_path / "fast.mcap")
    assert told.returncode == 0, told.stderr
    said = json.loads(
        logloom(
            *(
                "stats",
                root,
                "--splits",
                "--by",
                "time",
                "--cell",
                "1",
                "--share",
                "a=0.5",
                "--share",
                "b=0.5",
            ),
            *("--where", "in(fast)", "--json"),
        ).stdout
    )
    assert sum(one["rows"] for one in said["splits"].values()) == wanted.sum()


@pytest.fixture
def store(tmp_path):
    """Two versions with intervals."""
    store = Store.at(str(tmp_path / "root"))
    commit_version(store, 1, ["a", "b"])
    commit_version(store, 2, ["b", "c"])
    write_intervals(store, 1, "braking", intervals(["a", "b"]))
    write_intervals(store, 2, "braking", intervals(["b", "c"]))
    return store


def intervals(log_ids, where="x > 1"):
    starts = np.arange(len(log_ids)) * 10
    return Intervals(Search(where, 1, 2), log_ids, starts, starts + 5)


def same(one, other):
    return one.to_bytes() == other.to_bytes()


def test_a_name_is_given_once_unless_it_is_to_be_replaced(store):
    assert write_intervals(store, 1, "braking", intervals(["a", "b"]))  # the same once more
    with pytest.raises(UsageError, match=r"other intervals are saved under this name; --replace"):
        write_intervals(store, 1, "braking", intervals(["a"]))
    write_intervals(store, 1, "braking", intervals(["a"]), replace=True)
    assert same(read_intervals(store, 1, "braking"), intervals(["a"]))
    for name in ("", "..", "../x", "a/b", "A", "1a", "a.b", "a" * 101, "é", "a\n"):
        with pytest.raises(UsageError, match="can't name intervals"):
            write_intervals(store, 1, name, intervals(["a"]))


def test_what_nobody_saved_is_told_with_what_there_is(store):
    with pytest.raises(UsageError, match=r"version 2 has no intervals 'brakin'; did you mean braking"):
        read_intervals(store, 2, "brakin")
    commit_version(store, 3, ["b"])
    with pytest.raises(UsageError, match=r"version 2 has; another may have other logs"):
        read_intervals(store, 3, "braking")


def test_a_version_that_says_the_same_has_the_same_intervals(store):
    rollback(store, 1, reason="back")
    assert same(read_intervals(store, 3, "braking"), intervals(["a", "b"]))
    write_intervals(store, 3, "braking", intervals(["b"]))
    assert same(read_intervals(store, 3, "braking"), intervals(["b"]))


def test_the_same_intervals_may_be_saved_again_by_other_software(store, monkeypatch):
    write_intervals(store, 2, "turning", intervals(["a"]))
    file = store.local / intervals_file(2, "turning")
    data = file.read_bytes()
    version = data.index(b"parquet-cpp-arrow version ") + len(b"parquet-cpp-arrow version ")
    file.chmod(0o644)
    file.write_bytes(data[:version] + b"9" + data[version + 1 :])
    write_intervals(store, 2, "turning", intervals(["a"]))
    with pytest.raises(UsageError, match="other intervals are saved under this name"):
        write_intervals(store, 2, "turning", intervals(["b"]))


def test_intervals_go_with_their_version_once_the_grace_is_over(store):
    (store.local / "versions/intervals/00000009").mkdir()
    (store.local / "versions/intervals/mine").mkdir()
    age(store.local, 30)
    done = collect_garbage(str(store.local), keep=Keep(last=1))
    assert done.removed == (1,)
    assert "intervals" not in done.amounts
    assert done.unknown == ["versions/intervals/00000009", "versions/intervals/mine"]
    assert intervals_of(store, 1) == ["braking"]
    age(store.local, 30)
    told = collect_garbage(str(store.local), dry_run=True)
    done = collect_garbage(str(store.local))
    assert told.amounts["intervals"] == done.amounts["intervals"]
    assert done.amounts["intervals"].files == 1
    assert (intervals_of(store, 1), intervals_of(store, 2)) == ([], ["braking"])


def test_a_purged_log_goes_from_what_was_saved(store):
    write_intervals(store, 1, "named", intervals(["a"], "log_id != 'b' and x > 1"))
    write_intervals(store, 1, "broken", intervals(["a"]))
    store.replace(intervals_file(1, "broken"), b"PAR1")
    before = store.read(intervals_file(1, "braking"))
    told = purge(str(store.local), ["b"], dry_run=True)
    assert store.read(intervals_file(1, "braking")) == before
    assert told.logs == ["b"]
    done = purge(str(store.local), ["b"])
    assert done.is_proven
    first, second = (read_intervals(store, number, "braking") for number in (1, 2))
    assert (first.log_ids, second.log_ids) == (("a",), ("c",))
    assert (second.starts.tolist(), second.search) == ([10], Search("x > 1", 1, 2))
    assert read_intervals(store, 1, "named").search.where == ""
    assert intervals_of(store, 1) == ["braking", "named"]
    assert purge(str(store.local), ["b"]).is_proven


def test_a_search_that_saves_after_a_purge_began_keeps_no_row_of_the_log(searched, tmp_path, monkeypatch):
    """The tombstones stand once rows were read, and before the file does."""
    root = tmp_path / "root"
    shutil.copytree(searched, root)
    logs = {one.log_id for one in find(root, "ego.speed > 1").intervals}
    gone = sorted(logs)[0]
    real = finding.write_intervals

    def late(store, number, name, found, **options):
        if not purged:
            purged.append(purge(str(root), [gone]))
        return real(store, number, name, found, **options)

    purged = []
    monkeypatch.setattr(finding, "write_intervals", late)
    find(root, "ego.speed > 1", save="fast")
    kept = read_intervals(Store.at(str(root)), 1, "fast")
    assert set(kept.log_ids) == logs - {gone}


def test_damage_is_found_by_verify_and_whoever_reads(searched, tmp_path):
    root = tmp_path / "root"
    shutil.copytree(searched, root)
    find(root, FAST, save="fast")
    assert verify(str(root), num_workers=1).is_proven
    store = Store.at(str(root))
    data = bytearray(store.read(intervals_file(1, "fast")))
    data[len(data) // 3] ^= 1
    store.replace(intervals_file(1, "fast"), bytes(data))
    (finding,) = verify(str(root), num_workers=1).findings
    assert "fast.parquet: not intervals, or damaged" in finding.message
    with pytest.raises(DatasetError, match="search again with"):
        datasets.open(root, where="in(fast)")


def test_any_flipped_byte_is_an_error_or_the_same_intervals():
    found = intervals(["a", "b", "c"])
    data = found.to_bytes()
    assert same(Intervals.from_bytes(data, "x"), found)
    for place in range(len(data)):
        for bit in (1, 128):
            damaged = bytearray(data)
            damaged[place] ^= bit
            with contextlib.suppress(DatasetError):
                assert same(Intervals.from_bytes(bytes(damaged), "x"), found)
    for cut in range(0, len(data), 7):
        with pytest.raises(DatasetError):
            Intervals.from_bytes(data[:cut], "x")


def test_the_command_shows_saves_lists_and_marks_the_place_of_a_mistake(searched, tmp_path):
    root = tmp_path / "root"
    shutil.copytree(searched, root)
    found = find(root, FAST, after="1s")
    told = logloom("find", root, FAST, "--after", "1s", "--save", "fast", "--json")
    said = json.loads(told.stdout)
    assert said == {**dataclasses.replace(found, saved=said["saved"]).to_json()}
    assert "in(fast)" in told.stderr
    table = logloom("find", root, FAST, "--after", "1s").stdout
    assert f"{len(found.intervals)} interval" in table
    listed = json.loads(logloom("find", root, "--json").stdout)
    assert listed == [
        {"name": "fast", "intervals": len(found.intervals), "where": FAST, "before": 0, "after": 10**9}
    ]
    assert FAST in logloom("find", root).stdout
    again = logloom("find", root, "ego.speed > 1", "--save", "fast")
    assert (again.returncode, "--replace" in again.stderr) == (2, True)
    assert logloom("find", root, "ego.speed > 1", "--save", "fast", "--replace").returncode == 0
    wrong = logloom("find", root, "ego.sped > 1 for 1s")
    assert wrong.returncode == 2
    assert "did you mean ego.speed" in wrong.stderr
    assert wrong.stderr.rstrip("\n").endswith("    ego.sped > 1 for 1s\n    ^")
    for arguments in (["--save", "../x"], ["--before", "5 apples"], ["--after", "-1s"], ["--after", "9e9d"]):
        assert logloom("find", root, FAST, *arguments).returncode == 2
    assert logloom("find", root, "in(nothing)").returncode == 2


def test_recipes_and_indices_say_who_takes_such_a_filter(drive, searched):
    with pytest.raises(UsageError, match=r"'for' is for rows of a dataset: `logloom find`"):
        drive.recipe(**{"rows: {require:": 'rows: {where: "ego.speed > 1 for 1s", require:'})
    table = str(searched / "v00000001/table/all")
    with pytest.raises(UsageError, match=r"'in\(…\)' is for rows of a dataset"):
        tt.read_index(table, where="in(fast)")


def test_a_plain_table_is_searched_and_nothing_is_saved_with_it(searched):
    table = searched / "v00000001/table/all"
    assert found_in(table, "ego.speed > 11.5 for 200ms") == found_in(searched, "ego.speed > 11.5 for 200ms")
    with pytest.raises(UsageError, match="no root of logloom, so nothing can be saved"):
        find(table, "ego.speed > 9", save="fast")


def test_a_chain_of_chains_is_searched_by_threads_that_never_wait_for_each_other(searched):
    rows = datasets.open(searched, columns="ego.speed")
    one, other = datasets.concat([rows[:20], rows[20:]]), datasets.concat([rows[:30], rows[30:]])
    found = datasets.concat([one, other]).filter("ego.speed > 11.5 for 200ms")
    assert len(found) == 2 * len(rows.filter("ego.speed > 11.5 for 200ms"))


def test_rows_of_several_versions_have_no_intervals(searched):
    rows = datasets.open(searched, columns="ego.speed")
    with pytest.raises(UsageError, match=r"in\(fast\): these rows are of no version, or of several"):
        datasets.concat([rows, rows]).filter("in(fast)")
    again = datasets.concat([rows, rows]).filter("ego.speed > 11.5 for 200ms")
    assert len(again) == 2 * len(rows.filter("ego.speed > 11.5 for 200ms"))
