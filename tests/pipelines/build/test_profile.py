"""Where the time of a build went: what is recorded, the table, and the file for speedscope."""

import json

import pytest

from logloom.io.storage import step_times
from logloom.io.storage.step_times import TimedStep, each, read_steps, recorded, step
from logloom.pipelines.build.profile import SCHEMA, breakdown, speedscope, totals_of
from logloom.recipe import Recipe
from tests.forking import command
from tests.pipelines.conftest import build_at

SECOND = 10**9
CLUSTER = [
    *("--runner", "flink", "--flink-master", "127.0.0.1:1"),
    *("--environment", "external", "--environment-config", "127.0.0.1:1"),
]


def one(name, start, stop, *, depth=0, thread="main", cpu=0, nbytes=0, host="a"):
    return TimedStep(host, 1, thread, name, depth, start * SECOND, stop * SECOND, cpu * SECOND, nbytes)


def check(document):
    """What speedscope's schema says of a document with evented profiles, and its importer of their events."""
    assert document["$schema"] == SCHEMA
    frames = document["shared"]["frames"]
    assert all(isinstance(frame["name"], str) for frame in frames)
    assert 0 <= document["activeProfileIndex"] < len(document["profiles"])
    for profile in document["profiles"]:
        assert (profile["type"], profile["unit"]) == ("evented", "nanoseconds")
        assert isinstance(profile["name"], str)
        at, around = profile["startValue"], []
        for event in profile["events"]:
            assert at <= event["at"] <= profile["endValue"]
            at = event["at"]
            assert 0 <= event["frame"] < len(frames)
            if event["type"] == "O":
                around.append(event["frame"])
            else:
                assert (event["type"], event["frame"]) == ("C", around.pop())
        assert not around
    return {frame["name"] for frame in frames}


@pytest.fixture
def recipe(drive, tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text(
        drive.text[: drive.text.index("outputs:")] + "outputs: {tar: {}}\npartition: {rows: 10}\n"
    )
    return path


def test_a_profiled_build_makes_the_same_version_and_a_file_that_speedscope_opens(recipe, tmp_path):
    root, plain, file = tmp_path / "root", tmp_path / "plain", tmp_path / "p.json"
    done = command("build", str(recipe), "--to", str(root), "--workers", "2", "--profile", str(file))
    assert done.returncode == 0, done.stderr
    document = json.loads(file.read_text())
    names = check(document)
    assert {"plan", "import Beam", "build partitions", "make rows", "write tar", "hash columns"} <= names
    assert {"sync", "read units back", "read rows", "commit"} <= names
    assert f"open {file} at https://www.speedscope.app" in done.stderr
    assert any(line.split()[:2] == ["commit", "1"] for line in done.stderr.splitlines())
    assert len({profile["name"].split()[1] for profile in document["profiles"]}) == 3  # processes
    build_at(Recipe.load(str(recipe)), plain)
    first = "versions/00000001.json"
    assert (root / first).read_bytes() == (plain / first).read_bytes()


def test_steps_of_threads_are_told_apart_and_begin_where_their_machine_does():
    found = [one("sync", 5, 6, host="a"), one("sync", 105, 107, host="b"), one("hash", 101, 103, host="b")]
    document = speedscope(sorted(found, key=lambda step: (step.host, step.start)), "build.json")
    check(document)
    assert [profile["events"][0]["at"] for profile in document["profiles"]] == [0, 0]


def test_time_in_an_inner_step_is_not_counted_twice():
    found = [
        one("build", 0, 10, cpu=4),
        one("write tar", 1, 4, depth=1, cpu=1, nbytes=100),
        one("sync", 2, 4, depth=2),
        one("write tar", 5, 6, depth=1, cpu=1, nbytes=50),
        one("write tar", 0, 2, thread="other", cpu=2),
    ]
    totals = {total.name: total for total in totals_of(found)}
    assert (totals["build"].seconds, totals["build"].waits) == (6, 4)
    written = totals["write tar"]
    assert (written.count, written.seconds, written.cpu, written.nbytes) == (3, 4, 4, 150)
    assert (totals["sync"].seconds, totals["sync"].bound_by) == (2, "disk")
    assert "of the time of 2 threads: 50% other, 50% disk" in breakdown(found)


def test_steps_of_a_worker_that_was_killed_amid_an_outer_one_are_shown(tmp_path):
    # No line of the outer step, and one that is cut short.
    line = ["main 1", "hash", 1, 5, 9, 4, 0]
    (tmp_path / "host-7").write_text(json.dumps(line) + "\n" + json.dumps(line)[:9])
    found = read_steps(str(tmp_path))
    assert [(step.host, step.process, step.name) for step in found] == [("host", 7, "hash")]
    check(speedscope(found, "x"))
    assert [total.seconds for total in totals_of(found)] == [4e-9]


def test_nothing_is_recorded_where_nobody_asks(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with recorded(""), step("a"):
        pass
    with recorded(str(tmp_path)):
        late = step("ends later")
        late.__enter__()
    late.__exit__(None, None, None)
    assert step_times._folder == ""
    assert [step.name for step in read_steps(str(tmp_path))] == ["ends later"]


def test_making_items_is_a_step_and_what_is_done_with_them_is_not(tmp_path):
    with recorded(str(tmp_path)):
        for item in each("make", [1, 2]):
            with step(f"use {item}"):
                pass
    names = [(one.name, one.depth) for one in read_steps(str(tmp_path))]
    assert names == [("make", 0), ("use 1", 0), ("make", 0), ("use 2", 0), ("make", 0)]


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (["--profile", "missing/p.json"], "can't be written"),
        (["--profile", "p.json", "--detach", *CLUSTER], "doesn't wait for"),
    ],
)
def test_what_cannot_be_profiled_is_refused_before_anything_is_built(recipe, tmp_path, more, why):
    more = [str(tmp_path / one) if one.endswith("p.json") else one for one in more]
    done = command("build", str(recipe), "--to", str(tmp_path / "root"), *more)
    assert done.returncode != 0
    assert why in done.stderr
    assert not (tmp_path / "root").exists()
