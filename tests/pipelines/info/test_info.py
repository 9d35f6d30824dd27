"""What `info`, `doctor` and `build` say of logs that aren't whole, aren't finished, or mean harm."""

import json
import pathlib
import sqlite3

import pytest
from mcap.writer import Writer

from logloom.cli.terminal.alignment import table_lines
from logloom.io.logs.opening import open_log
from logloom.pipelines.info.info import describe, suggested_recipe
from logloom.recipe import Recipe
from tests.forking import command as logloom
from tests.io.logs.rosbag2.test_rosbag2 import write_bag as write_bag2
from tests.transforms.ros2_logs import SPEED, START, speeds, write_log

HOSTILE = "/a\x1b[2J\nlogloom: all is well\x9b\u202e"


@pytest.fixture
def whole(tmp_path):
    return pathlib.Path(write_log(tmp_path / "drive.mcap", {"/can": (SPEED, speeds(400))}))


@pytest.fixture
def cut(whole):
    path = whole.with_name("cut.mcap")
    path.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    return path


# --- not finished ---------------------------------------------------------------------------------------


def write_chunks(path, is_finished=True):
    """A log of many chunks; not finished, it is as a recorder leaves it that is still at work: no footer."""
    with path.open("wb") as file:
        writer = Writer(file, chunk_size=100)
        writer.start()
        channel = writer.register_channel("/say", "json", writer.register_schema("S", "jsonschema", b"{}"))
        for i in range(50):
            writer.add_message(channel, START + i * 10**8, b'{"speed": 1.0}', START)
        if is_finished:
            writer.finish()
    return path


def unfinished_bag(tmp_path, shared_data):
    """A bag without its index, and a header that says so."""
    data = bytearray((shared_data / "logs" / "turtlesim.bag").read_bytes())
    at = data.index(b"index_pos=") + len(b"index_pos=")
    start = int.from_bytes(data[at : at + 8], "little")
    data[at : at + 8] = bytes(8)
    path = tmp_path / "live.bag.active"
    path.write_bytes(data[:start])
    return path


def unfinished_db3(tmp_path):
    """A bag whose last messages lie in the -wal beside it; gives the open connection, too."""
    path = next((write_bag2(tmp_path / "bag") or tmp_path / "bag").glob("*.db3"))
    live = tmp_path / "live.db3"
    live.write_bytes(path.read_bytes())
    writer = sqlite3.connect(live)
    writer.execute("PRAGMA journal_mode=WAL")
    writer.execute("UPDATE messages SET timestamp = timestamp WHERE id = 1")
    writer.commit()
    return live, writer


def test_an_mcap_file_without_footer_is_shown_with_a_note_and_build_says_what_it_is(tmp_path):
    path = write_chunks(tmp_path / "live.mcap", is_finished=False)
    shown = logloom("info", path)
    assert shown.returncode == 3
    assert "live: " in shown.stdout
    assert "/say" in shown.stdout
    assert (
        f"{path}: is still being written, its recorder crashed, or it was truncated: it ends" in shown.stderr
    )
    (log,) = json.loads(logloom("info", path, "--json").stdout)["logs"]
    assert list(log["unfinished"]) == [str(path)]
    refused = logloom("build", path, "--to", tmp_path / "root")
    assert refused.returncode == 1
    assert "is still being written, its recorder crashed, or it was truncated" in refused.stderr


def test_a_ros_1_bag_without_index_and_with_an_active_name_is_said_to_be_unfinished(tmp_path, shared_data):
    path = unfinished_bag(tmp_path, shared_data)
    told = []
    (log,) = describe([str(path)], {}, on_note=told.append)
    assert log.summary.num_messages > 8000
    assert any("is still being written" in note and "its name ends in .active" in note for note in told)
    renamed = path.with_name("live.bag")
    path.rename(renamed)
    told.clear()
    describe([str(renamed)], {}, on_note=told.append)
    assert any("is still being written" in note and "index_pos is 0" in note for note in told)
    found = logloom("doctor", renamed)
    assert found.returncode == 0  # a build takes what is in it, with a note
    assert "is still being written, its recorder crashed" in found.stdout
    (tmp_path / "r.yaml").write_text(
        f"name: r\nlogs: [{renamed}]\nclock: {{rate: 1}}\noutputs: {{tar: {{}}}}\n"
        "columns: {x: {topic: /turtle1/pose, field: x}}\n"
    )
    planned = logloom("plan", tmp_path / "r.yaml", "--to", tmp_path / "root")
    assert planned.returncode == 0, planned.stderr
    assert "note: " in planned.stderr
    assert "is still being written" in planned.stderr


def test_a_sqlite_bag_with_a_live_wal_is_shown_with_a_note(tmp_path):
    path, writer = unfinished_db3(tmp_path)
    try:
        told = []
        (log,) = describe([str(path)], {}, on_note=told.append)
        assert log.summary.num_messages > 0
        assert any("is still being written" in note and "-wal" in note for note in told)
        found = logloom("doctor", path)
        assert "is still being written" in found.stdout
        refused = logloom("build", path, "--to", tmp_path / "root")
        assert refused.returncode == 1
        assert "is still being written" in refused.stderr
    finally:
        writer.close()


def test_a_recipe_is_no_json(whole):
    refused = logloom("info", whole, "--recipe", "--json")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "--recipe prints YAML" in refused.stderr


# --- damaged --------------------------------------------------------------------------------------------


def test_on_error_reaches_the_suggestion_of_a_recipe(whole, cut, tmp_path):
    assert logloom("info", cut, "--recipe").returncode == 1
    salvaged = logloom("info", cut, "--recipe", "--on-error", "salvage")
    assert salvaged.returncode == 3
    recipe = Recipe.from_yaml(salvaged.stdout)
    assert recipe.on_error == "salvage"
    assert "salvaged: cut: " in salvaged.stderr
    built = logloom("build", cut, "--to", tmp_path / "salvaged", "--on-error", "salvage", "--json")
    assert built.returncode == 3, built.stderr
    assert 0 < json.loads(built.stdout)["rows"] <= 400
    built = logloom("build", cut, whole, "--to", tmp_path / "skipped", "--on-error", "skip", "--json")
    assert built.returncode == 3, built.stderr
    assert json.loads(built.stdout)["rows"] > 390
    assert "skipped: cut: " in built.stderr
    shown = logloom("info", cut, whole, "--on-error", "skip")
    assert (shown.returncode, "skipped: cut: " in shown.stderr) == (3, True)
    assert "salvaged" not in shown.stderr
    assert "cut: " not in shown.stdout


def test_a_damaged_log_is_shown_with_salvage_or_left_out_with_skip(whole, tmp_path):
    damaged = write_chunks(tmp_path / "damaged.mcap")
    row = open_log([str(damaged)]).parts[0].index.stretches[3]
    data = bytearray(damaged.read_bytes())
    data[int(row["offset"] + row["record"] - 5)] ^= 0xFF
    data[-60] ^= 0xFF  # and the summary, so that the index can't be had
    damaged.write_bytes(data)
    assert logloom("info", damaged).returncode == 1
    shown = logloom("info", damaged, "--on-error", "salvage")
    assert (shown.returncode, "/say" in shown.stdout) == (3, True)
    assert "salvaged: damaged: " in shown.stderr
    skipped = logloom("info", damaged, whole, "--on-error", "skip")
    assert skipped.returncode == 3
    assert "skipped: damaged: " in skipped.stderr
    assert "drive: 400 messages of 1 topic in" in skipped.stdout


@pytest.fixture
def flipped(whole):
    """A log with a whole index and a chunk of which a byte changed."""
    path = whole.with_name("flipped.mcap")
    data = bytearray(whole.read_bytes())
    row = open_log([str(whole)]).parts[0].index.stretches[0]
    data[int(row["offset"] + row["record"] - 5)] ^= 0xFF
    path.write_bytes(data)
    return path


def test_a_recipe_is_suggested_from_whole_logs_where_a_chunk_of_another_is_damaged(whole, flipped, tmp_path):
    suggested = logloom("info", flipped, whole, "--recipe", "--on-error", "skip")
    assert (suggested.returncode, "skipped: flipped: " in suggested.stderr) == (3, True)
    recipe = Recipe.from_yaml(suggested.stdout)
    assert sorted(recipe.logs) == sorted([str(flipped), str(whole)])
    assert "400 messages" in suggested.stdout
    built = logloom("build", flipped, whole, "--to", tmp_path / "root", "--on-error", "skip", "--json")
    assert (built.returncode, json.loads(built.stdout)["rows"] > 390) == (3, True), built.stderr
    assert built.stderr.count("flipped.mcap: ") == 1, built.stderr


@pytest.mark.parametrize("mode", ["fail", "skip"])
def test_damage_in_all_logs_is_told_as_such_and_not_as_topics_that_are_left_out(flipped, tmp_path, mode):
    for command in (("info", flipped, "--recipe"), ("build", flipped, "--to", tmp_path / "root")):
        refused = logloom(*command, "--on-error", mode)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert "flipped.mcap: /can: its zstd data can't be decompressed" in refused.stderr
        assert "no topic" not in refused.stderr


def test_a_topic_that_a_build_of_logs_leaves_out_is_told(tmp_path):
    path = tmp_path / "log.mcap"
    with path.open("wb") as file:
        writer = Writer(file)
        writer.start()
        for topic, size in (("/short", 4), ("/whole", 8)):
            number = writer.register_schema("x/msg/X", "ros2msg", b"float64 a")
            channel = writer.register_channel(topic, "cdr", number)
            for i in range(50):
                writer.add_message(channel, START + i * 10**8, b"\0\1\0\0" + bytes(size), START)
        writer.finish()
    built = logloom("build", path, "--to", tmp_path / "root")
    assert built.returncode == 0, built.stderr
    assert f"left out: topic /short: {path}: at byte" in built.stderr
    assert "/whole" not in built.stderr


def test_a_file_that_is_no_log_is_not_called_unfinished(tmp_path, whole):
    path = tmp_path / "junk.mcap"
    path.write_bytes(b"\x93junk" * 100)
    refused = logloom("info", path)
    assert (refused.returncode, "is no MCAP file" in refused.stderr) == (1, True)
    assert "still being written" not in refused.stderr
    shown = logloom("info", path, whole, "--on-error", "skip")
    assert "skipped: junk: " in shown.stderr


# --- words ----------------------------------------------------------------------------------------------


def test_an_empty_log_has_no_times(tmp_path):
    shown = logloom("info", write_log(tmp_path / "empty.mcap", {}))
    assert shown.returncode == 0
    assert shown.stdout.startswith("empty: 0 messages of 0 topics, ")
    assert "1970" not in shown.stdout


def test_one_of_each_is_said_in_the_singular(tmp_path):
    path = write_log(tmp_path / "one.mcap", {"/can": (SPEED, speeds(1))})
    assert logloom("info", path).stdout.startswith("one: 1 message of 1 topic in 0 s")
    built = logloom("build", path, "--to", tmp_path / "root")
    assert "1 row of 1 log; 1 unit built" in built.stderr


def test_no_error_names_its_topic_twice(tmp_path):
    path = tmp_path / "log.mcap"
    with path.open("wb") as file:
        writer = Writer(file)
        writer.start()
        schema = writer.register_schema("x/msg/Y", "ros2msg", b"Nowhere field\n")
        writer.add_message(writer.register_channel("/t1", "cdr", schema), START, b"\0\1\0\0", START)
        writer.finish()
    (tmp_path / "r.yaml").write_text(
        "name: r\nlogs: [log.mcap]\nclock: {rate: 1}\n"
        "columns: {x: {topic: /t1, field: field}}\noutputs: {table: {}}\n"
    )
    refused = logloom("build", "r.yaml", "--to", "root", cwd=tmp_path)
    assert "topic /t1: definition of x/msg/Y: " in refused.stderr
    assert "topic /t1: topic /t1" not in refused.stderr


def controls(text: str) -> set[str]:
    return {c for c in text if not c.isprintable()} - {"\n"}


def test_names_can_not_steer_the_terminal(tmp_path):
    path = write_log(tmp_path / "evil.mcap", {HOSTILE: (SPEED, speeds()), "/can": (SPEED, speeds())})
    for command in (["info", path], ["doctor", path], ["info", path, "--recipe"]):
        said = logloom(*command)
        assert said.returncode == 0, said.stderr
        assert controls(said.stdout) == controls(said.stderr) == set()
        assert "\nlogloom: all is well" not in said.stdout
        assert "\\x1b[2J\\n" in said.stdout or "\\e[2J\\n" in said.stdout
    (log,) = json.loads(logloom("info", path, "--json").stdout)["logs"]
    assert [topic["topic"] for topic in log["topics"]] == [HOSTILE, "/can"]
    (tmp_path / "r.yaml").write_text(
        "name: r\nlogs: [evil.mcap]\nclock: {rate: 1}\ncolumns: {x: {topic: /kan, field: speed}}\n"
    )
    refused = logloom("build", "r.yaml", "--to", "root", cwd=tmp_path)
    assert (refused.returncode, controls(refused.stderr)) == (2, set())
    recipe = Recipe.from_yaml(suggested_recipe([path], {}))
    assert HOSTILE in {column.topic for column in recipe.columns.values()}


# --- tables ---------------------------------------------------------------------------------------------


def test_a_table_that_fits_has_a_line_for_each_row():
    lines = list(table_lines(("topic", "messages"), [("/imu", "1,200"), ("/camera", "3")], 80))
    assert lines == [
        " topic     messages",
        " ──────────────────",
        " /imu         1,200",
        " /camera          3",
    ]


def test_a_table_too_wide_folds_texts_within_their_column_and_drops_columns_without_values():
    row = ("/perception/agents/predicted", "perception_msgs/msg/PredictedAgentArray", "12", "", "9.99")
    columns = ("topic", "type", "messages", "silent", "Hz")
    assert list(table_lines(columns, [row], 80)) == [
        " topic                          type                             messages     Hz",
        " ───────────────────────────────────────────────────────────────────────────────",
        " /perception/agents/predicted   perception_msgs/msg/PredictedA         12   9.99",
        "                                gentArray",
    ]


def test_a_table_of_too_many_numbers_stands_in_blocks_each_with_its_labels():
    columns = ("column", "count", "min", "max", "mean", "std")
    lines = list(table_lines(columns, [("ego.speed", *["-1.23457e-05"] * 5)], 60))
    assert lines == [
        " column             count            min            max",
        " ──────────────────────────────────────────────────────",
        " ego.speed   -1.23457e-05   -1.23457e-05   -1.23457e-05",
        "",
        " column              mean            std",
        " ───────────────────────────────────────",
        " ego.speed   -1.23457e-05   -1.23457e-05",
    ]


def test_a_long_text_beside_a_label_goes_on_below_within_its_column():
    reason = "no usable message: none within 50 ms around the tick"
    lines = list(table_lines(("", ""), [("rows", "1"), ("reason", reason)], 40))
    assert lines == [
        " rows     1",
        " reason   no usable message: none within",
        "          50 ms around the tick",
    ]


def test_wide_characters_keep_columns_in_line():
    lines = list(table_lines(("topic", "n"), [("/車両", "1"), ("/car", "2")], 80))
    assert lines[2:] == [" /車両   1", " /car    2"]
