"""What benchmarks measure is kept, compared and drawn without change."""

import subprocess
import sys
from pathlib import Path

from benchmarks.chart import draw
from benchmarks.harness import Sample
from benchmarks.report import Task

TASK = Task(
    "random <rows>",
    1000,
    "rows",
    {
        "logloom": [Sample(1.5, 1), Sample(2.5, 1)],
        "peer": [Sample(4.5, 1), Sample(5.5, 1)],
        "a faster peer": [Sample(1, 1), Sample(1, 1)],
        "plain": [Sample(0.5, 1), Sample(0.5, 1)],
    },
    ["plain"],
    {"logloom": 0.5, "peer": 0.5},
)


def test_ratios_are_taken_round_by_round_and_without_start_up() -> None:
    assert TASK.faster("peer") == [4, 2.5]
    assert TASK.faster("plain") == [0.5, 0.25]


def test_the_fastest_peer_is_named_and_limits_are_no_peers() -> None:
    assert TASK.peers == ["peer", "a faster peer"]
    assert TASK.best(TASK.peers) == "a faster peer"


def test_json_holds_all_of_a_task() -> None:
    assert Task.from_json(TASK.as_json("Tables")) == TASK


def test_a_chart_of_the_same_figures_has_the_same_bytes_and_names_who_is_faster(tmp_path: Path) -> None:
    alone = Task("without peers", 1, "rows", {"logloom": [Sample(1, 1)]})
    tasks = [each.as_json("Tables") for each in (TASK, alone)]
    found = {"date": "2026-01-01", "cores": 2, "processor": "x", "tasks": tasks}
    for name in ("a.svg", "b.svg"):
        draw(found, tmp_path / name)
    text = (tmp_path / "a.svg").read_text()
    assert text == (tmp_path / "b.svg").read_text()
    assert "a faster peer 0.75x" in text
    assert "random &lt;rows&gt;" in text
    assert "without peers" not in text


def test_an_unknown_benchmark_is_told_with_those_that_exist() -> None:
    command = [sys.executable, "-m", "benchmarks", "tabels"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parent.parent)
    assert done.returncode == 2
    assert "tabels" in done.stderr
    assert "tables" in done.stderr.replace("tabels", "")
