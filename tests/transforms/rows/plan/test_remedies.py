"""Whatever an error names as a way on leads to a column, or to an error that says that there is none."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest
import yaml

import logloom
from logloom.errors import RecipeError
from logloom.io.logs.opening import open_log
from logloom.recipe import Recipe
from logloom.transforms.rows.plan.resolve import resolve
from tests.absent import present
from tests.transforms.ros2_logs import SPEED, START, VIDEO, speeds, write_log
from tests.transforms.rows.plan.languages import COUNT, LANGUAGES, LENGTH

STEPS = 4  # from the first error to a column
Keys = Mapping[str, Any]
OPTIONS = {
    "lerobot": {"features": {"observation.state": ["c"]}, "task": "drive", "fps": 10},
    "l5kit": {"translation": "c", "rotation": "c"},
}
PLAIN = present("tar", "parquet")[0]  # an output that stores any column
HELD = "; outputs that store it as it is: "


def recipe_of(keys: Keys, path, output: str = PLAIN) -> Recipe:
    columns = {"c": {"topic": "/x", **keys}}
    outputs: Any = {output: OPTIONS.get(output, {})}
    return Recipe.model_validate(
        {"name": "t", "logs": str(path), "clock": {"rate": 10}, "columns": columns, "outputs": outputs}
    )


def remedies(error: str, keys: Keys) -> list[Keys]:
    """The columns that an error proposes instead: its lines in backticks, and the nearest names."""
    found = []
    dropped = set(re.findall(r"(?:leave out|without a) `(\w+)(?:: [^`]+)?`", error))
    kept = {key: value for key, value in keys.items() if key not in dropped}
    for line in re.findall(r"(?<!leave out )`([^`]+: [^`]+)`", error):
        found.append({**kept, **yaml.safe_load("{" + line.replace("<length>", str(LENGTH)) + "}")})
    if dropped and not found:
        found.append(kept)
    found += [{**keys, "field": name} for name in re.findall(r"did you mean ([^\s?`]+)\?", error)]
    return found


def walk(log, path, keys: Keys, before: tuple[Keys, ...] = ()) -> list[Keys]:
    """The columns that following each remedy of each error ends at."""
    chain = (*before, keys)
    try:
        resolve(recipe_of(keys, path), {"log": log})
        return [keys]
    except RecipeError as caught:
        error = str(caught)
    ways = remedies(error, keys)
    assert ways or "can't be a column" in error, f"{chain}: names no way on: {error}"
    assert len(before) < STEPS, f"{chain}: too many steps: {error}"
    assert all(way not in chain for way in ways), f"{chain}: leads back: {error}"
    ends = [end for way in ways for end in walk(log, path, way, chain)]
    assert ends or not ways, f"{chain}: no way that it names leads to a column: {error}"
    return ends


@pytest.fixture(scope="module", params=LANGUAGES)
def language(request, tmp_path_factory):
    """A log in a language, its file, and the fields to begin with."""
    path, fields = LANGUAGES[request.param](tmp_path_factory.mktemp("log"))
    return open_log([str(path)]), path, fields


@pytest.fixture(scope="module")
def ends(language):
    """The columns at the ends of each field's remedies, by policy; and why a way leads nowhere."""
    log, path, fields = language
    found, failed = {}, []
    for resample in ("previous", "linear", "slerp", "window"):
        columns = found.setdefault(resample, [])
        for field in fields:
            try:
                made = walk(log, path, {"field": field, "resample": resample})
                columns += [end for end in made if end not in columns]
            except AssertionError as error:
                failed.append(str(error))
    return found, failed


def test_each_way_that_an_error_names_leads_to_a_column(ends):
    _, failed = ends
    assert not failed, "\n".join(failed)


def problem_of(log, path, keys: Keys, output: str) -> str:
    """The line about a column of an output; "" if there is none. L5Kit's rotation is another matter."""
    try:
        resolve(recipe_of(keys, path, output), {"log": log})
    except RecipeError as caught:
        lines = [line for line in str(caught).splitlines() if f"outputs.{output}: rotation" not in line]
        return "\n".join(lines)
    return ""


@pytest.mark.parametrize("output", present("lerobot", "l5kit", "lance"))
def test_what_an_output_refuses_it_takes_by_the_lines_named_and_others_as_it_is(language, output):
    log, path, fields = language
    planned = refused = 0
    for field in fields:
        for resample in ("previous", "window"):
            keys = {"field": field, "resample": resample}
            if problem_of(log, path, keys, PLAIN):
                continue  # of the column itself
            planned += 1
            line = problem_of(log, path, keys, output)
            if not line:
                continue
            refused += 1
            assert HELD in line, line
            assert line.count(PLAIN) == 1, line  # an output is named once
            for other in line.partition(HELD)[2].split(", "):
                assert not problem_of(log, path, keys, other), (line, other)
            for way in remedies(line.partition(HELD)[0], keys):
                rest = problem_of(log, path, way, output)
                assert not rest or HELD in rest, (way, rest)
                assert "shape" not in way or not rest, (way, rest)
    assert refused or not planned or output == "lance"


def test_the_columns_at_the_ends_build(language, ends, tmp_path):
    _, path, _ = language
    found, _ = ends
    ends = found["previous"] + [end for end in found["linear"] if end not in found["previous"]]
    columns = {f"c{i}": {"topic": "/x", **end} for i, end in enumerate(ends)}
    clock, outputs = {"topic": "/x"}, {"table": {}}
    tolerance = {"tolerance": "1s"}
    columns = {name: {**keys, **tolerance} for name, keys in columns.items()}
    made = {"name": "t", "logs": str(path), "clock": clock, "columns": columns, "outputs": outputs}
    logloom.build(Recipe.model_validate(made), str(tmp_path / "root"))
    rows = logloom.open(str(tmp_path / "root"))
    assert len(rows) == COUNT
    found = rows.get_many(range(COUNT), columns=[f"c{i}.available" for i in range(len(ends))])
    never = [ends[i] for i in range(len(ends)) if not found[f"c{i}.available"].any()]
    assert not never, never


@pytest.mark.parametrize("keys", [{"field": "data"}, {"field": "data", "as": "image"}])
def test_a_picture_of_video_is_found_from_its_data(keys, tmp_path):
    message = {"timestamp": {"sec": 1, "nanosec": 0}, "data": b"", "format": "h264"}
    path = write_log(tmp_path / "log.mcap", {"/x": (VIDEO, [(START, message)])})
    ends = walk(open_log([path]), path, keys)
    assert {"as": "image"} in ends


@pytest.mark.parametrize("keys", [{"field": "speed", "shape": [3]}, {"field": "note", "dtype": "float32"}])
def test_a_key_that_has_no_meaning_is_left_out(keys, tmp_path):
    path = write_log(tmp_path / "log.mcap", {"/x": (SPEED, speeds())})
    assert walk(open_log([path]), path, keys) == [{"field": keys["field"]}]


@pytest.mark.parametrize("keys", [{"as": "navsat"}, {"field": "at.latitude", "as": "navsat"}])
def test_an_adapter_is_led_to_the_part_that_it_reads(keys, tmp_path):
    definition = "Fix at\n===\nMSG: lab/Fix\nfloat64 latitude\nfloat64 longitude\nfloat64 altitude\n"
    fix = {"latitude": 48.0, "longitude": 11.0, "altitude": 500.0}
    path = write_log(tmp_path / "log.mcap", {"/x": (("lab/Drive", definition), [(START, {"at": fix})])})
    assert walk(open_log([path]), path, keys) == [{"as": "navsat", "field": "at"}]
