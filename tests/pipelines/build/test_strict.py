"""Warnings of lost or doubtful data: no option hides them, and `--strict` refuses to commit them."""

import json
import re

import pytest

from logloom.errors import LogloomError
from logloom.io.catalog.version_files import version_numbers
from logloom.io.storage.store import Store
from logloom.pipelines.build.build import build
from logloom.pipelines.plan.plan import plan_build
from logloom.pipelines.purge.purge import purge
from logloom.recipe import Recipe
from logloom.transforms.build.build_warnings import as_json, strict_refusal
from logloom.transforms.build.settings import BuildSettings
from logloom.transforms.rows.notices import BuildWarning
from tests.forking import command
from tests.pipelines.conftest import build_at
from tests.transforms.ros2_logs import SECOND, SPEED, START, speeds, write_log

RECIPE = """
name: cars
logs: [logs/*.mcap]
clock: {rate: 10}
columns: {speed: {topic: /can, field: speed}}
outputs: {tar: {}}
"""
STRAY = [*speeds(count=12), *speeds(start=START + 2 * 86400 * SECOND, count=1)]
NAMESAKE = "d02: a log of this name was purged. This one has another content, so it is built"


def write(folder, name, messages):
    (folder / "logs").mkdir(exist_ok=True)
    write_log(folder / f"logs/{name}.mcap", {"/can": (SPEED, messages)})


@pytest.fixture
def cars(tmp_path):
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    for number in range(3):
        write(tmp_path, f"d0{number}", speeds(count=12 + number))
    return tmp_path


def run(verb, folder, *more):
    return command(verb, "recipe.yaml", "--to", "root", *more, cwd=folder)


def versions(folder):
    return version_numbers(Store.at(str(folder / "root")))


@pytest.fixture
def repacked(cars):
    """A root from which d02 was purged, and a log of its name with other bytes."""
    build_at(Recipe.from_yaml(RECIPE), cars / "root", base=str(cars))
    assert purge(str(cars / "root"), ["d02"]).is_proven
    write(cars, "d02", speeds(count=13, start=START + SECOND))
    return cars


def test_a_purged_log_that_comes_back_repacked_is_a_warning_that_no_option_hides(repacked):
    planned = run("plan", repacked, "--json")
    assert planned.stderr.count(f"warning: {NAMESAKE}") == 1
    done = run("build", repacked, "--quiet", "--json")
    assert done.returncode == 0
    assert done.stderr.count(f"warning: {NAMESAKE}") == 1
    for one in (planned, done):
        said = json.loads(one.stdout)
        (warning,) = said["warnings"]
        assert warning.startswith(NAMESAKE)
        assert said["doubtful"] == [warning]


def test_strict_refuses_a_purged_log_that_comes_back_and_commits_nothing(repacked):
    planned = run("plan", repacked, "--strict")
    done = run("build", repacked, "--strict", "--quiet")
    for one in (planned, done):
        assert one.returncode == 1
        assert "--strict: 1 warning names lost or doubtful data; mend it" in one.stderr
        assert f"\n  {NAMESAKE}" in one.stderr
    assert versions(repacked) == [1]
    (repacked / "logs/d02.mcap").unlink()
    strict = BuildSettings(strict=True)
    build_at(Recipe.from_yaml(RECIPE), repacked / "root", base=str(repacked), settings=strict)
    assert versions(repacked) == [1, 2]


def test_strict_refuses_what_workers_find_in_logs_that_no_plan_opened(cars):
    write(cars, "d01", STRAY)
    recipe = Recipe.from_yaml(RECIPE)
    plan = plan_build(
        recipe, str(cars / "root"), base=str(cars), sample=1, settings=BuildSettings(strict=True)
    )
    assert not plan.warnings
    with pytest.raises(LogloomError, match=r"(?s)--strict: 1 warning names.*1 message outside the recording"):
        build(plan)
    assert versions(cars) == []
    again = plan_build(recipe, str(cars / "root"), base=str(cars), sample=1)
    built = build(again)
    assert [one.text.partition(": ")[2][:31] for one in built.warnings] == ["/can: 1 message outside the rec"]
    assert built.built == 0  # the refused build has left its units


def test_a_warning_of_the_plan_is_printed_and_listed_once_by_the_build(cars):
    write(cars, "d01", STRAY)
    done = run("build", cars, "--json")
    assert done.returncode == 3
    (warning,) = json.loads(done.stdout)["doubtful"]
    assert done.stderr.count(f"warning: {warning}\n") == 1


def test_strict_leaves_to_on_error_what_becomes_of_damaged_logs(cars):
    whole = (cars / "logs/d01.mcap").read_bytes()
    (cars / "logs/d01.mcap").write_bytes(whole[: len(whole) // 2])
    for on_error in ("skip", "salvage"):
        done = run("build", cars, "--strict", "--on-error", on_error)
        assert done.returncode == 3, done.stderr
    assert versions(cars) == [1, 2]


def test_strict_refuses_a_split_that_gets_no_log_until_its_logs_are_listed(cars):
    recipe = cars / "recipe.yaml"
    recipe.write_text(f'{RECIPE}split: {{val: 0.5, train: 0.5, by: "{{parent}}"}}\n')
    done = run("build", cars, "--strict")
    assert done.returncode == 1
    (line,) = set(re.findall("name logs, as in `([^`]*)`", done.stderr))
    assert versions(cars) == []
    recipe.write_text(f"{RECIPE}{line}\n")
    done = run("build", cars, "--strict", "--json")
    assert (done.returncode, json.loads(done.stdout)["doubtful"]) == (0, [])
    assert {found["logs"] for found in json.loads(done.stdout)["splits"].values()} == {1, 2}


def test_strict_accepts_that_the_only_log_is_in_one_split(cars):
    text = RECIPE.replace("logs/*.mcap", f"{cars}/logs/d00.mcap") + "split: {val: 0.5, train: 0.5}\n"
    plan = plan_build(Recipe.from_yaml(text), str(cars / "root"), settings=BuildSettings(strict=True))
    assert (plan.num_logs, plan.problem) == (1, "")


def test_strict_asks_nothing_of_a_version_that_is_up_to_date(cars):
    write(cars, "d01", STRAY)
    assert not build_at(Recipe.from_yaml(RECIPE), cars / "root", base=str(cars)).is_whole
    assert run("build", cars, "--strict").returncode == 0
    assert run("plan", cars, "--strict").returncode == 0


def test_a_refusal_lists_the_first_twenty_warnings_and_each_once():
    found = [BuildWarning(f"w{number}") for number in range(25)]
    lines = strict_refusal([*found, *found, BuildWarning("other", is_doubtful=False)]).splitlines()
    assert lines[0].startswith("--strict: 25 warnings name lost or doubtful data")
    assert lines[1:] == [*(f"  w{number}" for number in range(20)), "  … and 5 more"]
    assert strict_refusal([BuildWarning("other", is_doubtful=False)]) == ""
    assert as_json([found[0], found[0]]) == {"warnings": ["w0"], "doubtful": ["w0"]}
