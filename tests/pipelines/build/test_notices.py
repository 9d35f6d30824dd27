"""Notes and warnings: each is printed once, and JSON lists all of them, also with `--quiet`."""

import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from logloom.transforms.rows.notices import BuildWarning, Notice
from tests.absent import present
from tests.forking import command
from tests.transforms.ros2_logs import COMPRESSED, SECOND, SPEED, START, speeds, write_log

RECIPE = """
name: cars
logs: [logs/*.mcap]
on_error: skip
clock: {rate: 10}
split: {val: 0.5, train: 0.5, by: "{parent}"}
columns:
  speed: {topic: /can, field: speed}
  rear: {topic: /rear, field: speed, resample: nearest}
  slow: {topic: /slow, field: speed, resample: linear}
  score: {table: scores.parquet, tolerance: 20ms}
outputs: {OUTPUT: {}}
"""
SHOWN = re.compile(r"^(note|warning|skipped|salvaged|empty|left out): ")


@pytest.fixture
def cars(tmp_path):
    """A log without damage, one without a topic, one of the same bytes, and one that is no log."""
    output = present("table", "tar")[0]
    (tmp_path / "recipe.yaml").write_text(RECIPE.replace("OUTPUT", output))
    (tmp_path / "logs").mkdir()
    can, slow = (SPEED, speeds(50)), (SPEED, speeds(5, step=SECOND))
    write_log(tmp_path / "logs/a.mcap", {"/can": can, "/rear": can, "/slow": slow})
    (tmp_path / "logs/b.mcap").write_bytes((tmp_path / "logs/a.mcap").read_bytes())
    write_log(tmp_path / "logs/c.mcap", {"/can": can, "/slow": slow})
    (tmp_path / "logs/d.mcap").write_bytes(b"no log")
    table = {"log_id": ["gone", "a"], "timestamp": np.array([START, START]), "score": [1.0, 2.0]}
    pq.write_table(pa.table(table), tmp_path / "scores.parquet")
    return tmp_path


def run(verb, folder, *more, to="root"):
    done = command(verb, "recipe.yaml", "--to", to, "--json", *more, cwd=folder)
    lines = [line for line in done.stderr.splitlines() if SHOWN.match(line)]
    return json.loads(done.stdout)["notices"], lines


def printed(notices, *hidden):
    return [f"{one['severity']}: {one['text']}" for one in notices if one["severity"] not in hidden]


def test_json_lists_what_a_terminal_shows_of_a_plan_and_of_a_build(cars):
    planned, lines = run("plan", cars)
    assert printed(planned) == lines
    kinds = {(one["severity"], one.get("kind", ""), one.get("column", "")) for one in planned}
    assert kinds >= {
        ("note", "absent", ""),
        ("note", "labels", "score"),
        ("skipped", "", ""),
        ("warning", "duplicate", ""),
        ("warning", "split", ""),
        ("warning", "tolerance", "slow"),
    }
    assert [one["text"].partition(" ")[0] for one in planned if one["severity"] == "skipped"] == ["d:"]
    quiet, shown = run("build", cars, "--quiet", "--allow-empty")
    assert printed(quiet, "note", "empty") == shown
    again, lines = run("build", cars, "--allow-empty", to="other")
    assert printed(again) == lines
    assert printed(again) == printed(quiet)
    assert {one["kind"] for one in again if one.get("column") == "slow"} == {"tolerance"}


def test_a_topic_that_a_suggested_recipe_leaves_out_is_listed(tmp_path):
    theora = [(time, {"format": "theora", "data": b"x"}) for time, _ in speeds(50)]
    write_log(tmp_path / "a.mcap", {"/can": (SPEED, speeds(50)), "/camera": (COMPRESSED, theora)})
    done = command("build", "a.mcap", "--to", "root", "--json", "--quiet", cwd=tmp_path)
    lines = [line for line in done.stderr.splitlines() if SHOWN.match(line)]
    assert [line[:24] for line in lines] == ["left out: topic /camera:"]
    assert printed(json.loads(done.stdout)["notices"], "note", "empty") == lines


def test_a_notice_has_no_empty_fields_in_json():
    assert Notice("b", kind="labels").to_json() == {
        "text": "b",
        "severity": "note",
        "is_doubtful": False,
        "kind": "labels",
    }
    warning = BuildWarning("x: y; z", column="x", line="tolerance: 1s")
    assert warning.printed == "warning: x: y; z"
    assert not warning.is_quieted
    assert warning.to_json()["is_doubtful"]
