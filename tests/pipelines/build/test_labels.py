"""Labels that are delivered later: joined to rows, in versions that keep all that didn't change."""

import json
import os
import pathlib
import re
import shutil

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

import logloom.datasets
from logloom.errors import InputError, RecipeError, UsageError
from logloom.io.catalog.artifacts import LABELS, LOG_FILES, files_named
from logloom.io.catalog.manifest import entries_of, read_manifest
from logloom.io.storage.store import Store
from logloom.pipelines.build.build import build
from logloom.pipelines.gc.gc import collect_garbage
from logloom.pipelines.plan.plan import plan_build
from logloom.pipelines.plan.summary import plan_summary
from logloom.pipelines.purge.purge import purge
from logloom.pipelines.purge.rows import ErasedTime
from logloom.pipelines.repair.repair import repair
from logloom.pipelines.verify.verify import verify
from logloom.pipelines.versions.rollback import plan_drop, rollback
from logloom.recipe import Keep, Recipe
from logloom.transforms.beam.read_logs import ReadFromLogs
from tests.cases import case
from tests.forking import command
from tests.once import copied
from tests.pipelines.conftest import build_at, digests
from tests.tier import by_tier
from tests.transforms.ros2_logs import SECOND, SPEED, START, speeds, write_log

TICK = SECOND // 10
OUTPUTS = "{table: {}, tar: {columns: [speed]}}"
OBJECTS = "objects: {table: labels/*.parquet, tolerance: 20ms}"


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """A folder with logs, labels and a root, and a copy of it: roots know where logs and labels are."""
    place = tmp_path_factory.mktemp("labels") / "place"
    for number, name in enumerate("abc"):
        shifted = START + number * 100 * SECOND
        write_log(place / "logs" / f"{name}.mcap", {"/can": (SPEED, speeds(40, start=shifted))})
    deliver(place, "a", range(0, 40, 2))
    deliver(place, "b", [0, 1, 5, 99], start=START + 100 * SECOND)
    deliver(place, "gone", [3, 4])
    build_at(recipe(place), place / "root")
    return place, copied(place, place.with_name("copy"))


@pytest.fixture
def place(template):
    """Three logs of four seconds and, beside them, labels of the first two and of one that isn't there."""
    place, copy = template
    shutil.rmtree(place)
    place.mkdir()
    for name in ("logs", "labels"):
        copied(copy / name, place / name)
    return place


@pytest.fixture
def root(place, template):
    """A root beside them, with a version of `recipe(place)`."""
    return copied(template[1] / "root", place / "root")


def deliver(place, log_id, ticks, start=START, score=0.5, times=None, per_tick=2, suffix="parquet"):
    """A table of labels, two at each of some ticks."""
    stamps = np.repeat([start + tick * TICK for tick in ticks] if times is None else times, per_tick)
    n = len(stamps)
    table = pa.table(
        {
            "log_id": pa.array([log_id] * n).dictionary_encode(),
            "timestamp": stamps.astype(np.int64),
            "class": [("car", "pedestrian")[i % 2] for i in range(n)],
            "box": pa.array([[i, 0, i + 1, 1] for i in range(n)], pa.list_(pa.float32(), 4)),
            "score": np.full(n, score),
        }
    )
    (place / "labels").mkdir(exist_ok=True)
    write = pq.write_table if suffix == "parquet" else pa.feather.write_feather
    write(table, str(place / "labels" / f"{log_id}.{suffix}"))


def recipe(place, columns=OBJECTS, rows=40, outputs=OUTPUTS, more=""):
    lines = "".join(f"  {line}\n" for line in columns.strip().splitlines())
    text = (
        f"name: t\nlogs: '{place}/logs/*.mcap'\nclock: {{rate: 10}}\npartition: {{rows: {rows}}}\n{more}"
        f"columns:\n  speed: {{topic: /can, field: speed}}\n{lines}outputs: {outputs}\n"
    )
    return Recipe.from_yaml(text.replace("labels/", f"{place}/labels/"))


def units(root, version):
    """The folders of a version's units with their portions, by log and output."""
    store = Store.at(str(root))
    found = {}
    for record, entry in entries_of(store, read_manifest(store, version).logs):
        found.setdefault((record.log_id, entry.output), set()).update(entry.folders)
    return found


def written(root):
    """Files of units, and what changes when one is written again."""
    return {p: (p.stat().st_ino, p.stat().st_mtime_ns) for p in root.glob("parts/**/*") if p.is_file()}


def reasons(root, version="latest"):
    return {log.log_id: log.reasons for log in read_manifest(Store.at(str(root)), version).logs}


def test_rows_hold_the_labels_of_their_tick_and_what_matches_nothing_is_told(place, root):
    rows = logloom.datasets.open(f"{root}@1", output="table")
    assert len(rows) == 120
    found = {(row["log_id"], int(row["timestamp"])): row["objects"] for row in rows}
    first = found["a", START]
    assert first["class"].tolist() == ["car", "pedestrian"]
    assert first["box"].tolist() == [[0, 0, 1, 1], [1, 0, 2, 1]]
    assert len(found["a", START + TICK]) == 0
    assert sum(map(len, found.values())) == 40 + 6
    b = START + 100 * SECOND
    told = reasons(root)
    assert told["a"][0].startswith(f"objects: 20 of 40 rows have no label: at {START + TICK}, ")
    assert told["b"][0] == f"objects: 2 of 8 labels match no row: at {b + 99 * TICK} ns"
    assert told["b"][1].startswith("objects: 37 of 40 rows have no label")
    assert told["c"][0].startswith("objects: 40 of 40 rows have no label")
    assert {log.status for log in read_manifest(Store.at(str(root))).logs} == {"whole"}
    assert verify(str(root), against_logs=True, num_workers=1).findings == ()
    plan = plan_build(recipe(place), str(place / "other"))
    table = f"{place}/labels/*.parquet"
    assert f"objects: 4 labels of {table} belong to 1 unknown log (gone)" in plan.notes
    assert f"objects: 1 log has no label in {table} (c)" in plan.notes


def test_partitions_and_workers_change_neither_rows_nor_accounts(place):
    times = [START + 5 * TICK + 9_000_000, START + 30 * TICK - 19_000_000, START + 20 * TICK + 50_000_000]
    deliver(place, "a", (), times=times)
    found = {}
    for rows, workers in ((1000, 1), (10, 1), (7, by_tier(1, 2))):
        root = place / f"{rows}-{workers}"
        build_at(recipe(place, rows=rows, outputs="{tar: {}}"), root, num_workers=workers)
        held = [
            (row["log_id"], int(row["timestamp"]), row["objects"].tobytes())
            for row in logloom.datasets.open(str(root), output="tar")
        ]
        found[rows] = held, reasons(root)
    assert found[10] == found[1000] == found[7]
    assert "2 of 6 labels match no row" in found[10][1]["a"][0]


def test_a_column_of_labels_reuses_all_other_column_groups(place):
    root = place / "root"
    build_at(recipe(place, ""), root)
    before = written(root)
    build_at(recipe(place), root)
    after = written(root)
    assert {path: after[path] for path in before if path.name.endswith(".blob")} == {
        path: stamp for path, stamp in before.items() if path.name.endswith(".blob")
    }
    new = {p.name.rpartition("!")[2] for p in after.keys() - before.keys() if p.name.endswith(".blob")}
    assert new == {"objects.blob", "meta.blob"}
    assert verify(str(root), against_logs=True, num_workers=1).findings == ()


def test_labels_that_come_later_build_the_units_of_their_log_alone(place, root):
    first, before = units(root, 1), written(root)
    deliver(place, "c", [7], start=START + 200 * SECOND)
    plan = plan_build(recipe(place), str(root))
    assert [log.task.log_id for log in plan.logs] == ["c"]
    assert plan_summary(plan)["logs_reused"] == 2
    built = build_at(recipe(place), root)
    second = units(root, 2)
    for output in ("table", "tar"):
        assert second["a", output] == first["a", output]
        assert second["b", output] == first["b", output]
        assert second["c", output].isdisjoint(first["c", output]) == (output == "tar")
    assert built.reused == 0
    after = written(root)
    assert {path: after[path] for path in before} == before
    new = {p.name.rpartition("!")[2] for p in after.keys() - before.keys() if p.name.endswith(".blob")}
    assert new == {"objects.blob", "meta.blob"}
    rows = logloom.datasets.open(str(root), output="table")
    assert sum(len(row["objects"]) for row in rows) == 40 + 6 + 2
    assert sum(len(row["objects"]) for row in logloom.datasets.open(f"{root}@1", output="table")) == 46
    assert verify(str(root), against_logs=True, num_workers=1).findings == ()
    assert verify(str(root), 1, against_logs=True, num_workers=1).findings == ()


def test_the_same_labels_in_other_files_are_up_to_date_and_taken_back_ones_are_found(place, root):
    whole = pa.concat_tables([pq.read_table(path) for path in sorted((place / "labels").iterdir())])
    for path in (place / "labels").iterdir():
        path.unlink()
    pq.write_table(whole, place / "labels" / "all.parquet", row_group_size=7)
    assert plan_build(recipe(place), str(root)).up_to_date
    first = units(root, 1)
    pq.write_table(whole.slice(2), place / "labels" / "all.parquet")
    build_at(recipe(place), root)
    pq.write_table(whole, place / "labels" / "all.parquet")
    built = build_at(recipe(place), root)
    assert units(root, 3) == first
    assert built.built == 0


@pytest.mark.usefixtures("_settled_at_once")
def test_what_a_log_is_labelled_with_is_known_to_a_plan_that_opens_no_log(place, opened):
    root, labelled = place / "root", recipe(place, outputs="{tar: {}}")
    build_at(labelled, root)
    opened.clear()
    assert plan_build(labelled, str(root)).up_to_date
    assert set(opened) <= {"a"}  # one is held to the recipe
    deliver(place, "b", [1], start=START + 100 * SECOND, score=0.75)
    assert [log.task.log_id for log in plan_build(labelled, str(root)).logs] == ["b"]


def test_one_label_a_key_and_several_columns_of_one_table(place):
    deliver(place, "a", range(40), per_tick=1)
    columns = """\
kind: {table: labels/a.parquet, field: class, expect: one}
box: {table: labels/a.parquet, field: box, expect: one}
scores: {table: labels/a.parquet, field: score}
pairs: {table: labels/a.parquet, field: [score, class], strings: 10}
"""
    labelled = recipe(place, columns, outputs="{table: {}}", more="rows: {require: [kind]}\n")
    build_at(labelled, place / "root")
    rows = list(logloom.datasets.open(str(place / "root"), output="table"))
    assert len(rows) == 40
    assert [row["kind"] for row in rows[:3]] == ["car", "pedestrian", "car"]
    assert rows[3]["box"].tolist() == [3, 0, 4, 1]
    assert rows[3]["scores"].tolist() == [0.5]
    assert rows[3]["pairs"].tolist() == [(0.5, "pedestrian")]


@pytest.mark.parametrize("suffix", ["feather", "parquet"])
def test_a_key_that_stands_twice_where_one_is_expected_is_named_with_its_file(place, suffix):
    deliver(place, "a", range(3), suffix=suffix)
    said = f"kind: {{table: labels/a.{suffix}, field: class, expect: one}}"
    with pytest.raises(RecipeError) as caught:
        plan_build(recipe(place, said), str(place / "root"))
    path = f"{place}/labels/a.{suffix}"
    assert f"{path}, row 1: log 'a' at {START} ns has a label already ({path}, row 0)" in str(caught.value)
    assert "columns.kind.table" in str(caught.value)
    assert "expect: many" in str(caught.value)


def rewritten(place, change, name="a"):
    path = place / "labels" / f"{name}.parquet"
    pq.write_table(change(pq.read_table(path)), path)


UNFIT = [
    (lambda t: t.drop_columns("log_id"), "a.parquet: on: no column 'log_id'"),
    (lambda t: t.append_column("poly", [[[[1.0]]] * len(t)]), "unsupported name or type of poly"),
    (
        lambda t: t.append_column("ids", pa.array([[]] * len(t), pa.list_(pa.int64()))),
        "write `field: ids` with `expect: one`",
    ),
    (lambda t: t.append_column("at", [[{"ids": [1, 2]}] * len(t)]), "at.ids has no fixed length"),
    (lambda t: t.set_column(4, "score", pa.array([1] * len(t))), "score <i8 in"),
    (lambda t: t.set_column(1, "timestamp", pa.array([0.5] * len(t))), "can't store nanoseconds"),
    (
        lambda t: t.set_column(1, "timestamp", pa.array([None] * len(t), pa.int64())),
        "row 0: timestamp is null",
    ),
    (lambda t: t.set_column(0, "log_id", pa.array([1] * len(t))), "names of logs are text"),
    (lambda t: t.set_column(0, "log_id", pa.array(["a"] * 3 + [None] * 37)), "row 3: log_id is null"),
    (
        lambda t: t.set_column(2, "class", pa.array(["x" * 33] * len(t))),
        "has 33 characters, the column keeps 32; raise `strings`",
    ),
    (lambda t: t.set_column(2, "class", pa.array([None] * 40, pa.string())), "row 0: class is null"),
    (lambda t: t.select(["log_id", "timestamp"]), "has no columns apart from"),
]


def test_a_table_that_does_not_fit_is_an_error_that_names_it(place):
    path = place / "labels" / "a.parquet"
    table = pq.read_table(path)
    for change, said in UNFIT:
        pq.write_table(change(table), path)
        with case(said), pytest.raises(RecipeError) as caught:
            plan_build(recipe(place), str(place / "root"))
        with case(str(caught.value)):
            assert said in str(caught.value)
            assert "columns.objects" in str(caught.value)
            assert "parquet" in str(caught.value)


def with_plain_lists(place):
    """As pandas and polars write them: the type of `box` says no length."""
    for path in place.glob("labels/*.parquet"):
        table = pq.read_table(path)
        boxes = table["box"].cast(pa.list_(pa.float64()))
        pq.write_table(table.set_column(3, "box", boxes), path, row_group_size=7)


def test_lists_of_one_length_are_arrays_though_their_type_says_no_length(place):
    with_plain_lists(place)
    fields = {"whole": "", "two": "field: [class, box], ", "one": "field: box, "}
    lines = (f"{name}: {{table: labels/*.parquet, {field}tolerance: 20ms}}" for name, field in fields.items())
    build_at(recipe(place, "\n".join(lines), outputs="{table: {}}"), place / "root")
    row = logloom.datasets.open(str(place / "root"), output="table")[0]
    for boxes in (row["whole"]["box"], row["two"]["box"], row["one"]):
        assert boxes.dtype == np.float64
        assert boxes.tolist() == [[0, 0, 1, 1], [1, 0, 2, 1]]


def test_a_list_of_another_length_is_an_error_that_says_which_and_one_label_a_time_holds_it(place):
    with_plain_lists(place)
    path = place / "labels" / "b.parquet"
    table = pq.read_table(path)
    boxes = pa.array([[0.0] * 4] * 4 + [[1.0, 2.0]] + [[0.0] * 4] * 3)
    pq.write_table(table.set_column(3, "box", boxes)[::2], path)
    for field in ("", "field: box, ", "field: [box, score], "):
        with pytest.raises(RecipeError) as caught:
            plan_build(recipe(place, f"objects: {{table: labels/*.parquet, {field}}}"), str(place / "root"))
        assert f"{path}, row 2: box has 2 items here and 4 in the first label" in str(caught.value)
        assert "write `field: box` with `expect: one`" in str(caught.value)
    one = "objects: {table: labels/b.parquet, field: box, expect: one}"
    build_at(recipe(place, one, outputs="{table: {}}"), place / "root")
    rows = logloom.datasets.open(str(place / "root"), output="table")
    assert [row["objects"].tolist() for row in rows if len(row["objects"])] == [[0] * 4, [0] * 4, [1, 2]]


@pytest.mark.parametrize("field", ["[pos.x, class]", "pos.at"])
def test_a_label_of_several_fields_takes_whole_columns(place, field):
    rewritten(place, lambda t: t.append_column("pos", pa.array([{"x": 1.0, "at": {"y": 2, "z": "a"}}] * 40)))
    with pytest.raises(RecipeError, match=r"columns\.o\.field: .*'pos\.\w+' is a part .* write pos"):
        plan_build(recipe(place, f"o: {{table: labels/a.parquet, field: {field}}}"), str(place / "root"))


def test_tables_that_are_missing_cut_or_no_tables_are_errors_before_anything_is_written(place):
    path = place / "labels" / "a.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    for columns, said in [
        (OBJECTS, "can't be read as parquet"),
        ("o: {table: nothing/*.parquet}", "matches nothing"),
        ("o: {table: labels/none.parquet}", "there is no such file"),
        ("o: {table: labels/b.parquet, field: [class, box], expect: one}", "accepts one column"),
        ("o: {table: labels/b.parquet, field: clas}", "did you mean class"),
    ]:
        with pytest.raises(RecipeError) as caught:
            plan_build(recipe(place, columns), str(place / "root"))
        assert said in str(caught.value)
    assert not (place / "root").exists()


MISTAKES = [
    ("{table: a.parquet, tolerance: -1ms}", "tolerance"),
    ("{table: a.parquet, on: [t, t]}", "can't be both the log and the time"),
    ("{table: a.parquet, field: [timestamp]}", "is a key"),
    ("{table: a.parquet, tolerence: 1ms}", "did you mean tolerance?"),
    ("{table: a.parquet, expect: two}", "no such choice"),
]


def test_mistakes_in_the_recipe_name_the_key(tmp_path):
    for column, said in MISTAKES:
        with case(column), pytest.raises(RecipeError, match=re.escape(said)):
            recipe(tmp_path, f"objects: {column}")


def test_units_of_time_come_from_the_columns_name_or_type(place):
    table = pq.read_table(place / "labels" / "a.parquet")
    us = pa.array(np.array(table["timestamp"]) // 1000)
    named = table.set_column(1, "timestamp_us", us)
    typed = table.set_column(1, "at", us.cast(pa.timestamp("us")))
    for name, other in (("named", named), ("typed", typed)):
        pq.write_table(other, place / "labels" / f"{name}.parquet")
    columns = """\
named: {table: labels/named.parquet, on: [log_id, timestamp_us]}
typed: {table: labels/typed.parquet, on: [log_id, at]}
"""
    build_at(recipe(place, columns, outputs="{table: {}}"), place / "root")
    rows = list(logloom.datasets.open(str(place / "root"), output="table"))
    assert all(row["named"].tobytes() == row["typed"].tobytes() for row in rows)
    assert sum(len(row["named"]) for row in rows) == 40


def label_files(root, version="latest"):
    store = Store.at(str(root))
    return {name for log in read_manifest(store, version).logs for name in LOG_FILES[LABELS].of(log)}


def test_gc_keeps_the_labels_of_versions_and_removes_those_of_builds_that_failed(place, root):
    stray = root / "logs" / f"{'0' * 64}.labels"
    stray.write_bytes(b"left behind")
    for path in root.glob("logs/*.labels"):
        os.utime(path, (0, 0))
    done = collect_garbage(str(root), grace_s=3600)
    assert not stray.exists()
    assert done.unknown == []
    assert len(label_files(root)) == 2
    assert all((root / name).is_file() for name in label_files(root))


def test_damaged_and_lost_labels_are_named_by_verify_and_no_repair_calls_their_version_sound(root):
    damaged, lost = sorted(label_files(root))
    (root / damaged).chmod(0o644)
    (root / damaged).write_bytes(b"x")
    (root / lost).unlink()
    expected = {
        f"{root}/{damaged}: labels of the log: its bytes changed",
        f"{root}/{lost}: labels of the log: missing",
    }
    assert {finding.message for finding in verify(str(root), num_workers=1).findings} == expected
    for done in (repair(str(root), dry_run=True, num_workers=1), repair(str(root), num_workers=1)):
        assert not done.is_sound
        assert {finding.message for finding in done.damaged} == expected
    assert done.repaired == ()
    assert len(done.unrepaired) == 2
    assert all("put it back from a copy" in finding.message for finding in done.unrepaired)


def test_a_purge_takes_along_what_builds_that_never_committed_left_of_its_log(place, root):
    for log_id, first in (("a", START), ("b", START + 100 * SECOND)):
        deliver(place, log_id, [1], start=first, score=0.9)
    build_at(recipe(place), place / "killed")
    left = {}
    for record in read_manifest(Store.at(str(place / "killed"))).logs:
        left[record.log_id] = files_named(record)
        for name in left[record.log_id]:
            assert record.log_id == "c" or not (root / name).exists()
            shutil.copy(place / "killed" / name, root / name)
    assert [len(left[log_id]) for log_id in "ab"] == [3, 3]
    assert purge(str(root), ["b"]).is_proven
    assert not any((root / name).exists() for name in left["b"])
    assert all((root / name).exists() for name in left["a"])


def test_a_purge_takes_the_labels_of_its_log_and_of_its_time_along(place, root):
    of = {log.log_id: LOG_FILES[LABELS].of(log) for log in read_manifest(Store.at(str(root))).logs}
    assert purge(str(root), ["b"]).is_proven
    assert not (root / of["b"][0]).exists()
    assert (root / of["a"][0]).exists()


@pytest.mark.parametrize("times", [[], [ErasedTime("b", START + 100 * SECOND, START + 101 * SECOND)]])
def test_labels_of_a_dropped_log_that_was_purged_are_missed_nowhere(place, root, times):
    store = Store.at(str(root))
    build(plan_drop(store, ["b"]))
    (name,) = LOG_FILES[LABELS].of(read_manifest(store).logs.find("b"))
    (root / name).rename(place / "kept")
    assert [finding.log_id for finding in verify(str(root), num_workers=1).findings] == ["b"]
    (place / "kept").rename(root / name)
    assert purge(str(root), [] if times else ["b"], times).is_proven
    assert not (root / name).exists()
    assert verify(str(root), num_workers=1).findings == ()
    assert repair(str(root), num_workers=1).is_sound
    build_at(recipe(place, rows=20), root)
    assert verify(str(root), num_workers=1).findings == ()
    assert rollback(store, 2).manifest.version == 4


def test_labels_of_erased_time_are_kept_nowhere(place, root):
    (old,) = next(LOG_FILES[LABELS].of(log) for log in read_manifest(Store.at(str(root))).logs)
    assert purge(str(root), [], [ErasedTime("a", START, START + SECOND)]).is_proven
    assert not (root / old).exists()
    build_at(recipe(place), root)
    rows = logloom.datasets.open(str(root), output="table")
    held = {int(row["timestamp"]): len(row["objects"]) for row in rows if row["log_id"] == "a"}
    assert min(held) == START + SECOND
    assert sum(held.values()) == 30
    (new,) = next(LOG_FILES[LABELS].of(log) for log in read_manifest(Store.at(str(root))).logs)
    assert np.int64(START).tobytes() not in (root / new).read_bytes()
    assert not any("match no row" in line for line in reasons(root)["a"])
    assert verify(str(root), against_logs=True, num_workers=1).findings == ()


def test_beam_reads_rows_with_their_labels(place, root):
    wanted = {}
    for row in logloom.datasets.open(str(root), output="table"):
        wanted[row["log_id"], int(row["timestamp"])] = row["objects"].tobytes()
    source = ReadFromLogs(recipe(place))
    found = {}

    def check(blocks):
        for block in blocks:
            for i in range(len(block)):
                row = block.row(i, source.schema)
                found[row["log_id"], int(row["timestamp"])] = row["objects"].tobytes()
        assert found == wanted

    with beam.Pipeline("FnApiRunner") as pipeline:
        from apache_beam.testing.util import assert_that

        assert_that(pipeline | source, check)


def test_plan_head_and_versions_speak_of_labels(place, root, monkeypatch):
    text = recipe(place).to_yaml()
    (place / "recipe.yaml").write_text(text)
    said = command("plan", str(place / "recipe.yaml"), "--to", str(place / "root"))
    assert said.returncode == 0, said.stderr
    assert "1 unknown log (gone)" in " ".join(said.stderr.split())
    monkeypatch.chdir(place)
    why = command("head", str(place / "root"), "--why", "--json", "--rows", "3")
    one, none, other = (row["why"]["columns"]["objects"] for row in json.loads(why.stdout))
    assert [pathlib.Path(found["uri"]).name for found in one["rows"]] == ["a.parquet"] * 2
    assert [found["row"] for found in (*one["rows"], *other["rows"])] == [0, 1, 2, 3]
    assert one["label_time"] == START
    assert (none["label_time"], none["rows"]) == (None, None)
    assert "no label within" in none["reason"]
    deliver(place, "a", range(0, 40, 2), score=0.25)
    said = command("head", str(place / "root"), "--why", "--rows", "1").stdout
    assert "the table has changed since the build" in " ".join(said.split())
    log = command("versions", str(place / "root"), "--log", "b").stdout
    assert "2 of 8 labels match no row" in " ".join(log.split())
    assert json.loads(command("versions", str(place / "root"), "--log", "b", "--json").stdout)


def labels_held(root, version="latest"):
    """How many labels the rows of each log hold, of those that hold any."""
    found = {}
    for row in logloom.datasets.open(f"{root}@{version}", output="table"):
        found[row["log_id"]] = found.get(row["log_id"], 0) + len(row["objects"])
    return {log_id: count for log_id, count in found.items() if count}


def file_is_lost(place):
    (place / "labels" / "a.parquet").unlink()


def rows_are_lost(place):
    path = place / "labels" / "a.parquet"
    pq.write_table(pq.read_table(path).slice(0, 0), path)


def everything_is_lost(place):
    shutil.rmtree(place / "labels")


LOST = {
    file_is_lost: (["a"], {"b": 6}, r"1 log lost labels .* 1 has \(a\): .*not found any more: a.parquet"),
    rows_are_lost: (["a"], {"b": 6}, r"1 log lost labels .* 1 has \(a\): .* has none of it any more"),
    everything_is_lost: (["a", "b"], {}, r"2 logs lost labels .* 1 has \(a, b\): .*matches nothing"),
}
# Without its rows a file is as good as lost: how a plan sees that is shown of all three.
BUILT_ON = by_tier([file_is_lost, everything_is_lost], list(LOST))


@pytest.mark.parametrize("lose", LOST)
def test_labels_that_vanish_stop_a_build_before_it_writes_and_come_back_as_they_were(place, root, lose):
    aside = place / "aside"
    shutil.copytree(place / "labels", aside)
    lose(place)
    before = digests(root)
    with pytest.raises(InputError, match=LOST[lose][2]) as caught:
        build_at(recipe(place), root)
    assert "set `vanished: keep` to keep these labels, or `vanished: drop`" in str(caught.value)
    assert f"restore the {'rows' if lose is rows_are_lost else 'files'}" in str(caught.value)
    assert digests(root) == before
    shutil.copytree(aside, place / "labels", dirs_exist_ok=True)
    assert plan_build(recipe(place), str(root)).up_to_date


@pytest.mark.parametrize("lose", BUILT_ON)
def test_labels_that_vanish_stay_where_the_recipe_keeps_them(place, root, lose):
    keeping = recipe(place, more="vanished: keep\n")
    lose(place)
    plan = plan_build(keeping, str(root))
    assert plan.up_to_date
    assert [note for note in plan.notes if note.endswith("these labels are kept")]
    assert plan_summary(plan)["labels_kept"] == {"objects": LOST[lose][0]}
    assert not any("a has no label" in note for note in plan.notes)
    # Also in rows that are made again, beside a log that came.
    write_log(place / "logs" / "d.mcap", {"/can": (SPEED, speeds(40, start=START + 400 * SECOND))})
    slower = recipe(place, more="vanished: keep\n", columns=OBJECTS + "\nfast: {topic: /can, field: speed}")
    build_at(slower, root)
    assert labels_held(root) == labels_held(root, 1) == {"a": 40, "b": 6}
    assert plan_build(slower, str(root)).up_to_date
    assert collect_garbage(str(root), keep=Keep(last=1)).kept
    assert verify(str(root), against_logs=True, num_workers=1).findings == ()


@pytest.mark.parametrize("lose", BUILT_ON)
def test_labels_that_vanish_are_left_out_and_told_of_once_where_the_recipe_drops_them(place, root, lose):
    logs, left, _ = LOST[lose]
    dropping = recipe(place, more="vanished: drop\n")
    lose(place)
    plan = plan_build(dropping, str(root))
    assert plan_summary(plan)["labels_gone"] == {"objects": logs}
    assert [note for note in plan.notes if "built without them" in note]
    assert [log.task.log_id for log in plan.logs] == logs
    build_at(dropping, root)
    assert labels_held(root) == left
    assert labels_held(root, 1) == {"a": 40, "b": 6}
    again = plan_build(dropping, str(root))
    assert again.up_to_date
    assert plan_summary(again)["labels_gone"] in ({}, {"objects": []})
    assert not any("lost labels" in note for note in again.notes)
    assert verify(str(root), against_logs=True, num_workers=1).findings == ()
    if lose is not everything_is_lost:
        assert plan_build(recipe(place), str(root)).up_to_date  # nothing vanishes any more


def round_two(place):
    """Labels of further times of log a, in a file of their own."""
    deliver(place, "a2", (), times=[START + tick * TICK for tick in (1, 3)])
    path = place / "labels" / "a2.parquet"
    table = pq.read_table(path)
    names = pa.array(["a"] * len(table)).dictionary_encode()
    pq.write_table(table.set_column(0, "log_id", names), path)


def test_one_of_two_files_with_labels_of_a_log_vanishes(place):
    root = place / "root"
    labelled, keeping, dropping = (
        recipe(place, outputs="{table: {}}", more=more)
        for more in ("", "vanished: keep\n", "vanished: drop\n")
    )
    round_two(place)
    build_at(labelled, root)
    assert labels_held(root) == {"a": 44, "b": 6}
    (place / "labels" / "a2.parquet").unlink()
    with pytest.raises(InputError, match=r"1 log lost labels that version 1 has \(a\): .*more: a2.parquet"):
        plan_build(labelled, str(root))
    assert plan_build(keeping, str(root)).up_to_date
    build_at(dropping, root)
    assert labels_held(root) == {"a": 40, "b": 6}
    assert plan_build(labelled, str(root)).up_to_date


def test_new_labels_of_a_log_that_keeps_lost_ones_are_reported_as_waiting(place):
    keeping = recipe(place, outputs="{tar: {}}", more="vanished: keep\n")
    round_two(place)
    build_at(keeping, place / "root")
    (place / "labels" / "a2.parquet").unlink()
    deliver(place, "a", range(0, 42, 2))
    (note,) = [note for note in plan_build(keeping, str(place / "root")).notes if "are kept" in note]
    assert note.endswith("; new labels of a are ignored until the missing files are restored")


def test_labels_of_a_log_that_is_gone_and_kept_are_not_of_an_unknown_log(place):
    keeping = recipe(place, outputs="{tar: {}}", more="vanished: keep\n")
    build_at(keeping, place / "root")
    (place / "logs" / "a.mcap").unlink()
    notes = plan_build(keeping, str(place / "root")).notes
    (note,) = [note for note in notes if "belong to 1 log" in note and "(a)" in note]
    assert "belong to 1 log that isn't built now and keeps its rows (a)" in note


def test_labels_that_were_corrected_or_moved_did_not_vanish(place):
    root = place / "root"
    round_two(place)
    build_at(recipe(place), root)
    deliver(place, "a", range(2, 40, 2))  # one that was wrong is gone
    build_at(recipe(place), root)
    assert labels_held(root) == {"a": 42, "b": 6}
    (place / "labels" / "a.parquet").rename(place / "labels" / "a-corrected.parquet")
    rewritten(place, lambda table: table.slice(2), "a-corrected")
    (place / "labels" / "a2.parquet").rename(place / "labels" / "rounds.parquet")
    assert [log.task.log_id for log in plan_build(recipe(place), str(root)).logs] == ["a"]


def test_a_recipe_without_its_column_of_labels_or_with_another_one_lost_none(place, root):
    shutil.rmtree(place / "labels")
    build_at(recipe(place, columns=""), root)
    deliver(place, "b", [1], start=START + 100 * SECOND)
    build_at(recipe(place, columns="boxes: {table: labels/*.parquet}"), root)
    assert read_manifest(Store.at(str(root))).version == 3


def test_labels_that_hold_something_else_than_before_cannot_be_kept(place, root):
    file_is_lost(place)
    other = OBJECTS.replace("tolerance", "field: score, tolerance")
    with pytest.raises(UsageError, match=r"objects: labels vanished \(a\) whose values differ"):
        plan_build(recipe(place, other, more="vanished: keep\n"), str(root))
    everything_is_lost(place)
    with pytest.raises(RecipeError, match="matches nothing"):
        plan_build(recipe(place, other, more="vanished: drop\n"), str(root))


def test_a_log_whose_labels_or_time_were_purged_did_not_lose_them(place, root):
    assert purge(str(root), ["a"], [ErasedTime("b", START + 100 * SECOND, START + 150 * SECOND)]).is_proven
    file_is_lost(place)
    plan = plan_build(recipe(place), str(root))
    assert not any("lost labels" in note for note in plan.notes)


def test_logs_are_named_up_to_a_bound_where_many_lose_labels(place):
    root = place / "root"
    names = [f"m{number:02}" for number in range(21)]
    for number, name in enumerate(names):
        start = START + (10 + number) * 100 * SECOND
        write_log(place / "logs" / f"{name}.mcap", {"/can": (SPEED, speeds(4, start=start))})
        deliver(place, name, [1], start=start)
    build_at(recipe(place, outputs="{tar: {columns: [speed]}}"), root)
    for name in names:
        (place / "labels" / f"{name}.parquet").unlink()
    with pytest.raises(InputError) as caught:
        plan_build(recipe(place, outputs="{tar: {columns: [speed]}}"), str(root))
    assert "21 logs lost labels that version 1 has (m00, m01, " in str(caught.value)
    assert "m19, …)" in str(caught.value)


def test_build_and_plan_tell_in_json_which_labels_are_gone(place, root):
    (place / "recipe.yaml").write_text(recipe(place).to_yaml() + "vanished: drop\n")
    named = str(place / "recipe.yaml"), "--to", str(place / "root"), "--json"
    assert json.loads(command("build", *named).stdout)["labels_gone"] == {}
    file_is_lost(place)
    assert json.loads(command("plan", *named).stdout)["labels_gone"] == {"objects": ["a"]}
    built = command("build", *named)
    assert built.returncode == 0, built.stderr
    assert json.loads(built.stdout)["labels_gone"] == {"objects": ["a"]}
    assert "1 log lost labels that version 1 has (a)" in " ".join(built.stderr.split())
