"""Logs that were cut after a version was built from them, as by a copy that failed half-way."""

import json

import pytest

from logloom.errors import LogReadError, UsageError
from logloom.io.catalog.manifest import read_manifest
from logloom.io.storage.store import Store
from logloom.pipelines.build.build import build
from logloom.pipelines.plan.plan import plan_build
from logloom.pipelines.plan.summary import plan_summary
from logloom.pipelines.verify.verify import verify
from logloom.recipe import Recipe
from logloom.text import human_bytes
from tests.forking import command
from tests.io.logs.rosbag2.test_rosbag2 import write_bag
from tests.pipelines.build.test_wrong_clocks import T0, S, of, ticks, write
from tests.pipelines.plan.test_kept_logs import CAN, speeds_of, write_drive
from tests.transforms.ros2_logs import SECOND, START, write_log

NAMES = ("d0", "d1", "d2")
WHOLE = list(range(40))
TEXT = """
name: t
logs: [logs/*]
log_id: "{stem}"
clock: {rate: 10}
columns:
  speed: {topic: /can, field: speed, resample: nearest, tolerance: 50ms}
partition: {rows: 20}
outputs: {tar: {}}
"""


def build_drives(folder):
    for name in NAMES:
        write_drive(folder, name)
    built(folder)


@pytest.fixture
def folder(again):
    """A version of three drives of forty messages."""
    return again(build_drives)


def planned(folder, *more, text=TEXT, **choices):
    recipe = Recipe.from_yaml("\n".join([text, *more]))
    return plan_build(recipe, str(folder / "root"), base=str(folder), **choices)


def built(folder, *more, **choices):
    build(planned(folder, *more, **choices))
    return read_manifest(Store.at(str(folder / "root")))


def cut(path, share=0.5):
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])


def fewer(path):
    write_drive(path.parent.parent, path.stem, messages=25)


def emptied(path):
    path.write_bytes(b"")


@pytest.mark.parametrize("on_error", ["fail", "skip", "salvage"])
@pytest.mark.parametrize("damage", [cut, fewer, emptied])
def test_a_log_that_was_cut_is_refused_or_keeps_its_rows_whatever_on_error_says(folder, damage, on_error):
    first = built(folder, f"on_error: {on_error}")
    damage(folder / "logs/d1.mcap")
    with pytest.raises(LogReadError, match=r"d1: \S+d1.mcap was cut since version \d was built: ") as refused:
        planned(folder, f"on_error: {on_error}")
    text = str(refused.value)
    assert f" of {human_bytes(first.logs.find('d1').size)}, " in text
    assert f"version {first.version} has it complete" in text
    assert "exclude" not in text  # another remedy than that of `shortened`
    assert "`shortened: keep` to keep the rows" in text
    assert "`shortened: build` to build the" in text

    keeping = (f"on_error: {on_error}", "shortened: keep")
    kept = built(folder, *keeping)
    assert kept.logs.find("d1").status == "kept"
    assert speeds_of(folder) == dict.fromkeys(NAMES, WHOLE)
    assert planned(folder, *keeping).up_to_date
    assert verify(str(folder / "root"), num_workers=1).findings == ()
    write_drive(folder, "d1")
    assert built(folder, *keeping).logs.find("d1") == first.logs.find("d1")


def test_what_a_cut_log_holds_now_is_built_where_the_recipe_says_so(folder):
    fewer(folder / "logs/d1.mcap")
    built(folder, "shortened: build")
    assert speeds_of(folder)["d1"] == list(range(25))
    assert planned(folder).up_to_date  # it is as it was built last, and so isn't shorter


def test_a_log_with_fewer_bytes_and_the_same_messages_is_built(folder):
    path = folder / "logs/d1.mcap"
    size = path.stat().st_size
    speeds = [(START + at * SECOND // 10, {"speed": at}) for at in WHOLE]
    write_log(path, {"/can": (CAN, speeds)}, chunk_size=10**6)
    assert path.stat().st_size < size
    assert built(folder).logs.find("d1").status == "whole"
    assert speeds_of(folder) == dict.fromkeys(NAMES, WHOLE)


def test_a_topic_that_no_column_uses_may_go(tmp_path):
    speeds = [(START + at * SECOND // 10, {"speed": at}) for at in WHOLE]
    write_log(tmp_path / "logs/d0.mcap", {"/can": (CAN, speeds), "/other": (CAN, speeds)})
    built(tmp_path)
    write_log(tmp_path / "logs/d0.mcap", {"/can": (CAN, speeds)})
    assert built(tmp_path).version == 2


def test_a_shorter_extent_in_the_recipe_is_no_cut_of_logs(folder):
    until = "time: {to: '2023-11-14T22:13:21Z'}"  # a second after the start
    write_log(folder / "logs/d3.mcap", {"/can": (CAN, [(START, {"speed": 0})])})
    assert built(folder, until).logs.find("d1").status == "whole"
    assert speeds_of(folder)["d1"] == WHOLE[:11]


@pytest.mark.usefixtures("_settled_at_once")
def test_only_logs_with_fewer_bytes_are_opened_to_see_whether_they_were_cut(tmp_path, opened):
    build_drives(tmp_path)
    fewer(tmp_path / "logs/d1.mcap")
    opened.clear()
    assert planned(tmp_path, "shortened: keep").shortened == ("d1",)
    assert set(opened) <= {"d0", "d1"}  # one of the others, to hold the recipe to


def test_a_folder_of_a_log_that_lacks_a_file_was_shortened(tmp_path):
    recipe = TEXT.replace('"{stem}"', r'{match: "(?P<log>d[0-9])_", as: "{log}"}')
    for name, first in (("d0_0", 0), ("d0_1", 20), ("d1_0", 0), ("d1_1", 20)):
        write_drive(tmp_path, name, messages=20, first=first)
    build(planned(tmp_path, text=recipe))
    (tmp_path / "logs/d1_1.mcap").unlink()
    with pytest.raises(LogReadError, match=r"d1: \S+d1_1.mcap is missing since .*20 of 40 messages of /can"):
        planned(tmp_path, text=recipe)
    build(planned(tmp_path, "shortened: keep", text=recipe))
    assert speeds_of(tmp_path)["d1"] == WHOLE


def test_a_log_that_lost_its_last_pass_keeps_all_its_passes(tmp_path):
    (tmp_path / "logs").mkdir()
    passes = of("/can", *ticks(50), *ticks(50, T0 + 2 * S))
    split = "time: {set_back: split}"
    text = TEXT.replace("field: speed", "field: data")
    write(tmp_path / "logs/back.mcap", passes)
    first = built(tmp_path, split, text=text)
    assert [one.log_id for one in first.logs] == ["back", "back~2"]
    write(tmp_path / "logs/back.mcap", of("/can", *ticks(50)))
    with pytest.raises(LogReadError, match=r"^back: .* 50 of 100 messages of /can"):
        planned(tmp_path, split, text=text)
    kept = built(tmp_path, split, "shortened: keep", text=text)
    assert [one.status for one in kept.logs] == ["kept", "kept"]
    assert kept.totals["rows"] == first.totals["rows"]


@pytest.mark.parametrize("mode", ["NONE", "FILE"])
def test_a_bag_is_measured_as_it_lies_there_packed_or_not(tmp_path, mode):
    bags = [write_bag(tmp_path / f"logs/{name}", mode=mode) for name in ("d0", "d1")]
    field = "field: linear_acceleration.x, resample: previous, tolerance: 1s"
    text = TEXT.replace("/can", "/imu")
    text = text.replace("field: speed, resample: nearest, tolerance: 50ms", field)
    first = built(tmp_path, text=text)
    files = [next(path for path in bag.iterdir() if ".db3" in path.name) for bag in bags]
    assert [record.size for record in first.logs] == [file.stat().st_size for file in files]
    assert planned(tmp_path, text=text).up_to_date
    cut(files[1])
    with pytest.raises(LogReadError, match=r"d1: \S+db3\S* was cut since version 1 was built"):
        planned(tmp_path, "on_error: skip", text=text)
    kept = built(tmp_path, "shortened: keep", text=text)
    assert kept.logs.find("d1").rows == first.logs.find("d1").rows


def test_rows_of_a_table_that_are_gone_are_noticed(tmp_path):
    lines = ["time,speed", *(f"{START + at * SECOND // 10},{at}" for at in WHOLE)]
    tables = [tmp_path / f"logs/{name}/can.csv" for name in ("d0", "d1")]
    for table in tables:
        table.parent.mkdir(parents=True)
        table.write_text("\n".join(lines) + "\n")
    text = TEXT.replace("logs/*", "logs/*/can.csv").replace("{stem}", "{parent}")
    built(tmp_path, text=text)
    tables[1].write_text("\n".join(lines[:20]) + "\n")
    with pytest.raises(LogReadError, match="19 of 40 messages of /can"):
        planned(tmp_path, text=text)
    built(tmp_path, "shortened: keep", text=text)
    assert speeds_of(tmp_path)["d1"] == WHOLE


def test_logs_that_workers_would_open_first_are_looked_at_too(folder):
    (folder / "root/index/listing").unlink(missing_ok=True)
    for name in ("d0", "d1"):
        fewer(folder / f"logs/{name}.mcap")
    with pytest.raises(LogReadError, match=r"d0: .*; version 1 has it complete\nd1: .*complete\nCopy"):
        planned(folder, sample=1, compare=False)
    plan = planned(folder, "shortened: keep", sample=1, compare=False)
    assert plan.shortened == ("d0", "d1")
    build(plan)
    assert speeds_of(folder) == dict.fromkeys(NAMES, WHOLE)


def test_a_log_that_is_cut_while_its_recipe_changes_is_left_to_the_user(folder):
    cut(folder / "logs/d1.mcap")
    other = TEXT.replace("50ms", "60ms")
    with pytest.raises(Exception, match=r"another recipe \(d1\), which differs in columns.speed"):
        planned(folder, "shortened: keep", text=other)


def test_a_recipe_that_finds_only_logs_that_were_cut_and_cannot_be_read_says_so(tmp_path):
    write_drive(tmp_path, "d0")
    built(tmp_path)
    emptied(tmp_path / "logs/d0.mcap")
    with pytest.raises(
        UsageError, match=r"none of 1 log is to be built: d0: \S+ was cut .* its rows are kept$"
    ):
        planned(tmp_path, "shortened: keep")


def test_the_key_is_no_part_of_units_identities(folder):
    assert not (folder / "root/index").exists()  # nothing but keys can tell
    plan = planned(folder, "shortened: build")
    assert plan.up_to_date


def test_commands_report_what_was_cut_and_what_is_kept(folder):
    cut(folder / "logs/d1.mcap")
    recipe = folder / "r.yaml"
    recipe.write_text(TEXT)
    refused = command("build", recipe, "--to", folder / "root")
    assert refused.returncode == 1
    assert "d1.mcap was cut since version 1" in refused.stderr
    assert len(list((folder / "root/versions").glob("0*1.json"))) == 1
    recipe.write_text(TEXT + "shortened: keep\n")
    plan = json.loads(command("plan", recipe, "--to", folder / "root", "--json").stdout)
    assert (plan["logs_shortened"], plan["logs_kept"], plan["logs_to_read"]) == (1, 1, 0)
    assert plan_summary(planned(folder, "shortened: keep"))["logs_shortened"] == 1
    done = command("build", recipe, "--to", folder / "root", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["kept"] == 1
    assert "version 1 has it complete, and its rows are kept" in done.stderr
