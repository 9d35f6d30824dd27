"""Logs whose clock was set back, split into logs of their passes: `time: {set_back: split}`."""

import json
import shutil

import numpy as np
import pytest

from logloom import datasets
from logloom.io.catalog.manifest import read_manifest
from logloom.io.logs.interface import MAX_TIME, MIN_TIME, OpenOptions, TopicRequest
from logloom.io.logs.opening import open_log
from logloom.io.storage.store import Store
from logloom.pipelines.build import build as building
from logloom.pipelines.plan.plan import plan_build
from logloom.pipelines.purge.purge import purge
from logloom.pipelines.repair.repair import repair
from logloom.pipelines.verify.verify import verify
from logloom.pipelines.versions.rollback import plan_drop
from logloom.recipe import Recipe
from tests.forking import command
from tests.pipelines.build.test_wrong_clocks import T0, TICK, Message, S, of, ticks, value, write

PASSES = [ticks(50), ticks(50, T0 + 2 * S), ticks(30, T0 + S)]
TWO = of("/x", *PASSES[0], *PASSES[1])
THREE = of("/x", *PASSES[0], *PASSES[1], *PASSES[2])
SPLIT = "time: {set_back: split}"


def differing(messages, number):
    """The same messages but for the first value, so that logs of them are no duplicates."""
    time = messages[0].log_time
    return [Message("/x", time, time, 0, value(1000 + number)), *messages[1:]]


def recipe_of(folder, logs, extra=SPLIT, columns="", name="recipe"):
    path = folder / f"{name}.yaml"
    path.write_text(
        f"name: t\nlogs: [{', '.join(map(str, logs))}]\nclock: {{rate: 10}}\n{extra}\ncolumns:\n"
        "  x: {topic: /x, field: data, resample: nearest, tolerance: 10ms}\n"
        f"{columns}outputs: {{parquet: {{}}}}\n"
    )
    return str(path)


def planned(folder, recipe, root="root", **choices):
    return plan_build(Recipe.load(recipe), str(folder / root), **choices)


def build(folder, recipe, root="root", **choices):
    return building.build(planned(folder, recipe, root, **choices), num_workers=1)


def is_proven(root):
    return verify(str(root), against_logs=True, num_workers=1).is_proven


def rows_of(root, column="x"):
    """By log_id the times and values of rows."""
    dataset, rows = datasets.open(str(root)), {}
    for i in range(len(dataset)):
        row = dataset[i]
        rows.setdefault(str(row["log_id"]), []).append((int(row["timestamp"]), float(row[column])))
    return rows


def statuses(root):
    return {one.log_id: one.status for one in read_manifest(Store.at(str(root))).logs}


def three_passes(folder, size):
    """A recipe over a log of three passes and a sound one, and what a build gives of them."""
    logs = [write(folder / "back.mcap", THREE, chunk_size=size)]
    logs.append(write(folder / "sound.mcap", of("/x", *ticks(20))))
    expected, first = {"sound": [(t, i) for i, t in enumerate(ticks(20))]}, 0
    for name, times in zip(["back", "back~2", "back~3"], PASSES, strict=True):
        expected[name] = list(zip(times, range(first, first + len(times)), strict=True))
        first += len(times)
    return recipe_of(folder, logs, f"{SPLIT}\npartition: {{rows: 20}}"), expected


def build_two(folder):
    """Build a log of two passes and a sound one."""
    logs = [write(folder / "back.mcap", TWO), write(folder / "sound.mcap", of("/x", *ticks(20)))]
    build(folder, recipe_of(folder, logs))


@pytest.fixture
def two(again):
    """A folder with back.mcap, sound.mcap, recipe.yaml, and the root of what they were built to."""
    return again(build_two)


@pytest.mark.parametrize("size", [100, 10**6])
def test_each_pass_gives_the_rows_of_its_part_alone(tmp_path, size):
    recipe, expected = three_passes(tmp_path, size)
    build(tmp_path, recipe)
    assert rows_of(tmp_path / "root") == expected
    assert planned(tmp_path, recipe).up_to_date
    assert is_proven(tmp_path / "root")


def test_commands_name_passes(tmp_path):
    recipe, expected = three_passes(tmp_path, 700)
    plan = json.loads(command("plan", recipe, "--to", str(tmp_path / "root"), "--json").stdout)
    assert plan["logs_to_read"] == 4
    built = command("build", recipe, "--to", str(tmp_path / "root"))
    assert built.returncode == 0, built.stderr
    assert rows_of(tmp_path / "root") == expected
    why = command("head", str(tmp_path / "root"), "-n", "51", "--why")
    assert why.returncode == 0, why.stderr
    assert f"back~2 {PASSES[1][0]}" in why.stdout
    assert "/x #50" in why.stdout


def test_passes_of_two_topics_and_of_another_shape(tmp_path):
    times = {"/a": [ticks(40), ticks(60, T0 - 25 * S)], "/x": [ticks(40), ticks(60, T0 - 25 * S)]}
    messages = [
        one
        for part in (0, 1)
        for pair in zip(of("/a", *times["/a"][part]), of("/x", *times["/x"][part]), strict=True)
        for one in pair
    ]
    log = write(tmp_path / "back.mcap", messages, chunk_size=500)
    columns = "  a: {topic: /a, field: data, resample: linear, tolerance: 200ms}\n"
    recipe = recipe_of(tmp_path, [log], columns=columns)
    build(tmp_path, recipe)
    for column in ("x", "a"):
        expected = {"back": list(zip(times["/a"][0], range(40), strict=True))}
        expected["back~2"] = list(zip(times["/a"][1], range(60), strict=True))
        assert rows_of(tmp_path / "root", column) == expected


def test_all_passes_lie_in_one_split(tmp_path):
    logs = [write(tmp_path / f"drive{i}.mcap", differing(TWO, i)) for i in range(4, 8)]
    split = f"{SPLIT}\nsplit: {{by: log_id, train: 0.5, val: 0.5}}"
    built = build(tmp_path, recipe_of(tmp_path, logs, split))
    found = {}
    for one in built.manifest.logs:
        found.setdefault(one.log_id.partition("~")[0], set()).add(one.split)
    assert all(len(splits) == 1 for splits in found.values())
    assert set.union(*found.values()) == {"train", "val"}
    first = recipe_of(tmp_path, logs, split.replace("set_back: split", "set_back: first"), name="first")
    for log in planned(tmp_path, first, "other").logs:
        assert {log.task.split} == found[log.task.log_id]


def test_a_static_topic_counts_for_all_passes(tmp_path):
    for name, static in [("first", [T0 + TICK]), ("last", [])]:
        early, late = of("/k", *static), of("/k", *([] if static else [T0 + 3 * S]))
        messages = [TWO[0], *early, *TWO[1:70], *late, *TWO[70:]]
        write(tmp_path / f"{name}.mcap", messages, chunk_size=400)
    columns = "  k: {topic: /k, field: data, resample: static}\n"
    logs = [tmp_path / "first.mcap", tmp_path / "last.mcap"]
    build(tmp_path, recipe_of(tmp_path, logs, columns=columns))
    rows = rows_of(tmp_path / "root", "k")
    assert {name: (len(own), {value for _, value in own}) for name, own in rows.items()} == {
        name: (50, {0.0}) for name in ("first", "first~2", "last", "last~2")
    }
    assert is_proven(tmp_path / "root")


def test_a_log_that_is_named_like_a_pass_is_refused(tmp_path):
    logs = [write(tmp_path / "back.mcap", TWO), write(tmp_path / "back~2.mcap", of("/x", *ticks(9)))]
    done = command("build", recipe_of(tmp_path, logs), "--to", str(tmp_path / "root"))
    assert done.returncode == 2
    assert "back~2.mcap: its log_id 'back~2' is that of pass 2 of log 'back'" in done.stderr
    assert f"({logs[0]})" in done.stderr
    build(tmp_path, recipe_of(tmp_path, logs, "time: {set_back: first}"))
    assert {name: len(own) for name, own in rows_of(tmp_path / "root").items()} == {"back": 50, "back~2": 9}


def test_dropping_a_log_drops_all_its_passes(two):
    recipe, root = str(two / "recipe.yaml"), str(two / "root")
    alone = command("drop", "--workers", "1", root, "back~2")
    assert alone.returncode == 2
    assert "'back~2' is a pass of log 'back'" in alone.stderr
    assert command("drop", "--workers", "1", root, "back").returncode == 0
    assert statuses(root) == {"back": "dropped", "back~2": "dropped", "sound": "whole"}
    assert planned(two, recipe).up_to_date
    assert command("drop", "--workers", "1", root, "back", "--undo").returncode == 0
    build(two, recipe)
    assert statuses(root) == {"back": "whole", "back~2": "whole", "sound": "whole"}


def test_a_log_that_was_dropped_before_it_was_split_has_no_passes(tmp_path):
    logs = [write(tmp_path / "back.mcap", TWO), write(tmp_path / "sound.mcap", of("/x", *ticks(20)))]
    build(tmp_path, recipe_of(tmp_path, logs, "time: {set_back: first}"))
    building.build(plan_drop(Store.at(str(tmp_path / "root")), ["back"]), num_workers=1)
    build(tmp_path, recipe_of(tmp_path, logs))
    assert statuses(tmp_path / "root") == {"back": "dropped", "sound": "whole"}


def test_purging_a_log_purges_all_its_passes(two):
    recipe, root = str(two / "recipe.yaml"), str(two / "root")
    alone = command("purge", root, "--log", "back~2")
    assert alone.returncode == 2, alone.stderr
    assert "'back~2' is a pass of log 'back'" in alone.stderr
    done = command("purge", root, "--log", "back", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["logs"] == ["back", "back~2"]
    build(two, recipe)
    assert statuses(root) == {"sound": "whole"}
    shutil.copy(two / "back.mcap", two / "other.mcap")
    more = recipe_of(two, [two / f"{name}.mcap" for name in ("back", "sound", "other")])
    again = command("build", more, "--to", root)
    assert "other~2: left out" in again.stderr  # by its content
    assert statuses(root) == {"sound": "whole"}


def test_a_log_that_was_purged_before_it_was_split_stays_away(tmp_path):
    logs = [write(tmp_path / "back.mcap", TWO), write(tmp_path / "sound.mcap", of("/x", *ticks(20)))]
    build(tmp_path, recipe_of(tmp_path, logs, "time: {set_back: last}"))
    assert purge(str(tmp_path / "root"), ["back"]).is_proven
    build(tmp_path, recipe_of(tmp_path, logs))
    assert statuses(tmp_path / "root") == {"sound": "whole"}


def test_time_that_is_purged_of_a_log_goes_from_all_passes(tmp_path):
    log, root = write(tmp_path / "back.mcap", TWO), str(tmp_path / "root")
    recipe = recipe_of(tmp_path, [log])
    build(tmp_path, recipe)
    start, stop = T0 + 3 * S, T0 + 4 * S
    done = command("purge", root, "--rows", f"back:{start}..{stop}", "--json")
    assert done.returncode == 0, done.stderr
    build(tmp_path, recipe)
    rows = rows_of(root)
    assert set(rows) == {"back", "back~2"}
    for own, times in zip(rows.values(), PASSES[:2], strict=True):
        assert [t for t, _ in own] == [t for t in times if not start <= t < stop]
    assert is_proven(root)


def test_a_log_that_changes_changes_all_its_passes(tmp_path):
    log, root = write(tmp_path / "back.mcap", THREE), tmp_path / "root"
    recipe = recipe_of(tmp_path, [log], f"{SPLIT}\nshortened: build")
    build(tmp_path, recipe)
    write(tmp_path / "back.mcap", of("/x", *PASSES[1], *PASSES[2]))
    build(tmp_path, recipe)
    assert {name: [t for t, _ in own] for name, own in rows_of(root).items()} == {
        "back": PASSES[1],
        "back~2": PASSES[2],
    }
    write(tmp_path / "back.mcap", of("/x", *ticks(9)))
    build(tmp_path, recipe)
    assert {name: len(own) for name, own in rows_of(root).items()} == {"back": 9}
    assert is_proven(root)


def test_a_recipe_may_change_between_a_part_and_all_passes(tmp_path):
    log, root = write(tmp_path / "back.mcap", TWO), tmp_path / "root"
    for part, expected in [("first", 1), ("split", 2), ("last", 1), ("split", 2)]:
        build(tmp_path, recipe_of(tmp_path, [log], f"time: {{set_back: {part}}}"))
        assert len(rows_of(root)) == expected
    assert [t for t, _ in rows_of(root)["back~2"]] == PASSES[1]


def test_workers_open_passes(tmp_path):
    logs = [write(tmp_path / f"drive{i}.mcap", differing(TWO, i)) for i in range(4)]
    recipe, root = recipe_of(tmp_path, logs), tmp_path / "root"
    assert planned(tmp_path, recipe, sample=2).left
    build(tmp_path, recipe, sample=2)
    rows = rows_of(root)
    assert len(rows) == 8
    for name, own in rows.items():
        assert [t for t, _ in own] == PASSES[1 if name.endswith("~2") else 0], name
    assert planned(tmp_path, recipe).up_to_date


def test_a_repair_builds_a_pass_again(two):
    root = two / "root"
    whole = {path: path.read_bytes() for path in (root / "parts").rglob("*.parquet")}
    for path in whole:
        path.chmod(0o644)
        path.write_bytes(b"broken")
    assert verify(str(root), num_workers=1).findings
    assert repair(str(root), num_workers=1).is_sound
    assert {path: path.read_bytes() for path in whole} == whole


def test_logs_that_are_gone_go_with_their_passes(two):
    logs = [two / "sound.mcap"]
    build(two, recipe_of(two, logs, f"{SPLIT}\nvanished: keep"))
    assert statuses(two / "root") == {"back": "kept", "back~2": "kept", "sound": "whole"}
    build(two, recipe_of(two, logs, f"{SPLIT}\nvanished: drop"))
    assert statuses(two / "root") == {"sound": "whole"}


def test_a_pass_that_a_log_lacks_is_an_error(tmp_path):
    log = write(tmp_path / "back.mcap", TWO)
    with pytest.raises(Exception, match="has 2 passes, and no pass 3"):
        _ = open_log([str(log)], OpenOptions(set_back="split"), "back~3").summary
    found = open_log([str(log)], OpenOptions(set_back="split"), "back~2")
    messages = found.read({"/x": TopicRequest(MIN_TIME, MAX_TIME, ("log",))})["/x"]
    assert messages.log_time.tolist() == PASSES[1]
    assert np.array_equal(np.sort(messages.position), messages.position)


def test_a_damaged_chunk_of_one_pass_is_none_of_another(tmp_path):
    log = write(tmp_path / "back.mcap", TWO, chunk_size=400, compression="none")
    root = tmp_path / "root"
    data = bytearray(log.read_bytes())
    data[data.index(TWO[3].data)] ^= 1
    log.write_bytes(bytes(data))
    recipe = recipe_of(tmp_path, [log], f"{SPLIT}\non_error: salvage")
    done = command("build", recipe, "--to", str(root))
    assert done.returncode == 3, done.stderr
    assert statuses(root) == {"back": "salvaged", "back~2": "whole"}
    assert [t for t, _ in rows_of(root)["back~2"]] == PASSES[1]
