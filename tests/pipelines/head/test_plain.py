"""`logloom head` of what is no root: any dataset that `logloom.open` opens."""

import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from logloom.io.formats import bags
from tests.forking import command

TIMED = {"log_id": "utf8", "timestamp": "i64", "meta": "msgpack", "speed": "array", "word": "utf8"}


@pytest.fixture
def timed(tmp_path):
    with bags.DatasetWriter(tmp_path / "timed", TIMED, bags.encoders) as writer:
        for number in range(3):
            row = {"log_id": "drive", "timestamp": 10**9 + number, "speed": np.full(2, number, "f4")}
            meta = {"speed.age": 7 + number, "speed.available": True}
            writer.append({**row, "word": f"w{number}", "meta": meta})
    return tmp_path / "timed"


def test_rows_of_a_plain_folder_are_shown_as_open_gives_them(timed):
    done = command("head", timed, "--skip", 1, "-n", 5, "-c", "speed*", "-c", "*.age", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == [
        {"log_id": "drive", "timestamp": 10**9 + number, "speed": [number, number], "speed.age": 7 + number}
        for number in (1, 2)
    ]
    shown = command("head", timed, "-n", 1).stdout
    assert "drive 1000000000 (1970-01-01 00:00:01 UTC)" in shown
    assert "w0" in shown
    assert "w1" not in shown


def test_a_missing_value_is_marked_also_where_its_type_has_no_nan(tmp_path):
    values = {"gear": 0, "moves": False, "speed": float("nan"), "word": ""}
    pq.write_table(pa.table({name: [None, value] for name, value in values.items()}), tmp_path / "x.parquet")
    missing, measured = json.loads(command("head", tmp_path, "--json").stdout)
    assert {name: missing.pop(f"{name}.available") for name in values} == dict.fromkeys(values, False)
    assert missing == measured
    shown = [line.split() for line in command("head", tmp_path).stdout.splitlines()]
    lines = [" ".join(words) for words in shown if words and words[0] in values]
    marked = ["gear 0 (unavailable)", "moves False (unavailable)", "speed nan (unavailable)"]
    assert lines == [*marked, "word (unavailable)", "gear 0", "moves False", "speed nan", "word"]


def test_rows_of_a_plain_folder_may_be_filtered(timed):
    rows = json.loads(
        command("head", timed, "--where", "timestamp > 1000000000", "-c", "word", "--json").stdout
    )
    assert [row["word"] for row in rows] == ["w1", "w2"]
    shown = command("head", timed, "--log", "drove")
    assert "no rows of a log 'drove'; did you mean drive?" in shown.stderr


def test_rows_without_times_are_shown_by_number(tmp_path):
    with bags.DatasetWriter(tmp_path / "set", {"tree": "msgpack", "x": "i64"}, bags.encoders) as writer:
        for number in range(2):
            writer.append({"tree": {"a": [number, None], "b": b"12"}, "x": number})
    done = command("head", tmp_path / "set", "--skip", 1, "--json")
    assert json.loads(done.stdout) == [{"tree": {"a": [1, None], "b": {"bytes": 2}}, "x": 1}]
    assert "row 1" in command("head", tmp_path / "set", "--skip", 1).stdout


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--why"], "--why: .* is no root of logloom and names no logs"),
        (["--skip", "3"], "3 rows, so none is at 3"),
        (["--output", "tar"], "no root of logloom, so it has no output"),
        (["-c", "sped"], "no column matches 'sped'; did you mean speed"),
    ],
)
def test_what_a_plain_folder_lacks_is_refused(timed, options, words):
    done = command("head", timed, *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.search(words, done.stderr)


def test_other_commands_name_what_reads_a_plain_folder(timed):
    done = command("stats", timed)
    assert done.returncode == 2
    assert "no version here, but log_id.bag" in done.stderr
    assert f"`logloom convert {timed} ROOT` makes a version of it" in done.stderr


def test_columns_that_cant_be_read_are_named_once_and_the_others_shown(tmp_path):
    pq.write_table(pa.table({"n": [1], "odd": pa.array([[1, None]])}), tmp_path / "x.parquet")
    done = command("head", tmp_path, "--json")
    assert json.loads(done.stdout) == [{"n": 1}]
    assert done.stderr.count("odd: ") == 1
    assert done.stderr.startswith(f"warning: {tmp_path}: left out, since they can't be read: odd: ")
    assert command("head", tmp_path, "-c", "odd").returncode == 2
