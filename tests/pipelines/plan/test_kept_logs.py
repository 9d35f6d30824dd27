"""Logs whose files are gone and whose rows stay: under which changes of a recipe, and how it is reported."""

import json
import re
import shlex

import pytest

from logloom import datasets
from logloom.errors import InputError, UsageError
from logloom.io.catalog.manifest import read_manifest
from logloom.io.storage.store import Store
from logloom.pipelines.build.build import build
from logloom.pipelines.plan.plan import plan_build
from logloom.pipelines.plan.summary import plan_summary
from logloom.pipelines.verify.verify import verify
from logloom.recipe import Recipe
from tests.cases import case
from tests.forking import command
from tests.transforms.ros2_logs import SECOND, START, write_log

NAMES = ("d 0", "d 1", "d 2")
CAN = ("demo_msgs/msg/Can", "int32 speed")
TEXT = """
name: t
logs: [logs/*.mcap]
vanished: keep
clock: {rate: 10}
columns:
  speed: {topic: /can, field: speed, resample: nearest, tolerance: 50ms}
partition: {rows: 20}
outputs: {tar: {}, zarr: {}}
"""


def write_drive(folder, name, messages=40, first=0):
    speeds = [(START + (first + at) * SECOND // 10, {"speed": first + at}) for at in range(messages)]
    return write_log(folder / f"logs/{name}.mcap", {"/can": (CAN, speeds)}, chunk_size=300)


def write_drives(folder):
    for name in NAMES:
        write_drive(folder, name)


def build_drives(folder):
    write_drives(folder)
    built(folder)


def build_without_one(folder):
    build_drives(folder)
    (folder / "logs/d 1.mcap").unlink()
    built(folder)


@pytest.fixture
def folder(again):
    """Three drives of forty messages, and a version of them."""
    return again(build_drives)


def planned(folder, text=TEXT):
    return plan_build(Recipe.from_yaml(text), str(folder / "root"), base=str(folder))


def built(folder, text=TEXT):
    build(planned(folder, text))
    return read_manifest(Store.at(str(folder / "root")))


def speeds_of(folder):
    """Of the rows of all splits, by log_id."""
    splits = read_manifest(Store.at(str(folder / "root"))).logs.column("split").unique().to_pylist()
    found = {}
    for dataset in (datasets.open(str(folder / "root"), output="tar", split=split) for split in splits):
        for row in (dataset[at] for at in range(len(dataset))):
            found.setdefault(str(row["log_id"]), []).append(int(row["speed"]))
    return found


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("partition: {rows: 20}", "partition: {rows: 15}"),
        ("partition: {rows: 20}", "partition: {rows: 20}\nsplit: {train: 0.5, val: 0.5, by: log_id}"),
        ("vanished: keep", "vanished: keep\non_error: salvage"),
        ("vanished: keep", "vanished: keep\non_error: {skip: 10%}"),
        ("vanished: keep", "vanished: keep\ntime: {set_back: first}"),
        ("vanished: keep", "vanished: keep\nhash: full\nsettle: 0s"),
    ],
)
def test_a_log_that_is_gone_keeps_its_rows_where_the_recipe_would_give_the_same(again, old, new):
    folder = again(build_without_one)
    (folder / "logs/d 2.mcap").unlink()
    changed = built(folder, TEXT.replace(old, new))
    assert dict(changed.logs.statuses) == {"whole": 1, "kept": 2}
    assert speeds_of(folder) == {name: list(range(40)) for name in NAMES}
    assert verify(str(folder / "root"), num_workers=1).findings == ()
    assert planned(folder, TEXT.replace(old, new)).up_to_date
    for name in ("d 1", "d 2"):
        write_drive(folder, name)
    back = built(folder, TEXT.replace(old, new))
    assert dict(back.logs.statuses) == {"whole": 3}
    assert verify(str(folder / "root"), against_logs=True, num_workers=1).findings == ()


DIFFERENT = [
    ("clock: {rate: 10}", "clock: {rate: 5}", "clock"),
    ("50ms", "60ms", "columns.speed"),
    ("columns:\n", "columns:\n  k: {topic: /can, field: speed, resample: count}\n", "columns.k"),
    ("outputs: {tar: {}", "rows: {where: speed > 3}\noutputs: {tar: {}", "rows"),
    ("zarr: {}", "bags: {}", "outputs.bags, outputs.zarr"),
    (
        "columns:\n",
        "on_error: skip\nsplit: {a: 0.5, b: 0.5}\n"
        "columns:\n  k: {topic: /can, field: speed, resample: count}\n",
        "columns.k",
    ),
]


def test_rows_of_another_recipe_are_refused_with_the_command_that_leaves_them_out(folder):
    (folder / "logs/d 1.mcap").unlink()
    for old, new, differs in DIFFERENT:
        other = TEXT.replace(old, new)
        with case(new), pytest.raises(UsageError, match="made by another recipe") as refused:
            planned(folder, other)
        assert f"(d 1), which differs in {differs}. Rows" in str(refused.value)
    line = re.search("`(logloom drop [^`]+)`", str(refused.value))[1]
    assert shlex.split(line)[2:] == [str(folder / "root"), "d 1"]
    assert command(*shlex.split(line)[1:]).returncode == 0
    assert dict(built(folder, other).logs.statuses) == {"whole": 2, "dropped": 1}


def test_a_log_that_is_gone_stops_the_build_unless_the_recipe_says_what_then(folder):
    (folder / "logs/d 1.mcap").unlink()
    with pytest.raises(InputError, match="vanished: keep"):
        planned(folder, TEXT.replace("vanished: keep\n", ""))
    dropping = TEXT.replace("vanished: keep", "vanished: drop")
    assert [log.log_id for log in built(folder, dropping).logs] == ["d 0", "d 2"]


def test_on_error_changes_rows_of_a_log_of_which_messages_were_refused(again):
    folder = again(write_drives)
    path = folder / "logs/d 1.mcap"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    salvaging = TEXT.replace("vanished: keep", "vanished: keep\non_error: salvage")
    assert built(folder, salvaging).logs.find("d 1").status == "salvaged"
    path.unlink()
    assert built(folder, salvaging).logs.find("d 1").status == "kept"
    with pytest.raises(UsageError, match=r"\(d 1\), which differs in on_error"):
        planned(folder)


def test_plans_and_builds_report_the_logs_that_keep_their_rows(folder):
    (folder / "logs/d 1.mcap").unlink()
    plan = planned(folder)
    assert "1 log whose files are missing keeps the rows of version 1 (d 1)" in plan.notes
    summary = plan_summary(plan)
    assert (summary["logs_gone"], summary["logs_kept"], summary["logs_reused"]) == (1, 1, 3)
    (folder / "r.yaml").write_text(TEXT)
    done = command("build", str(folder / "r.yaml"), "--to", str(folder / "root"), "--json")
    said = json.loads(done.stdout)
    assert (said["kept"], said["kept_logs"], said["shortened_logs"]) == (1, ["d 1"], [])
    assert (summary["kept_logs"], summary["shortened_logs"], summary["labels_kept"]) == (["d 1"], [], {})
    checked = command("verify", str(folder / "root"), "--against-logs", "--json")
    seen = json.loads(checked.stdout)
    assert (checked.returncode, seen["findings"], seen["kept"], seen["kept_logs"]) == (0, [], 1, ["d 1"])
    assert "1 kept log (d 1): compared with the manifest only, as the files vanished" in checked.stderr
    assert "manifest and logs; not counting 1 kept log, compared with the manifest only" in checked.stderr
    assert json.loads(command("verify", str(folder / "root"), "--json").stdout)["kept"] == 0
    again = command("build", str(folder / "r.yaml"), "--to", str(folder / "root"), "--json")
    end = "1 log keeps the rows of an earlier version (d 1)"
    assert f"up to date: version 2 of {folder / 'root'}; {end}\n" in again.stderr
    (folder / "r.yaml").write_text(TEXT.replace("vanished: keep", "vanished: fail"))
    for verb in (["build"], ["plan", "--check"]):
        failed = command(*verb, str(folder / "r.yaml"), "--to", str(folder / "root"))
        assert failed.returncode == 1, failed.stderr
    assert "note: 1 log whose files are missing keeps the rows of version 1 (d 1)" in done.stderr
