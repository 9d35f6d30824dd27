"""`tables` of a recipe: what it takes, mistakes with their places, and builds by it."""

import pytest

import logloom.datasets
from logloom.errors import LogReadError, RecipeError, UsageError
from logloom.pipelines.info.info import suggested_recipe
from logloom.pipelines.plan.plan import plan_build
from logloom.recipe import Recipe
from logloom.recipe.logs import table_dialects
from tests.cases import case
from tests.pipelines.conftest import build_at

RECIPE = """\
name: tabled
logs: ["{folder}/*.csv"]
log_id: "{{parent}}"
clock: {{topic: /gps}}
columns:
  x: {{topic: /gps, field: "x [m]", tolerance: 1s}}
tables:
- {entry}
outputs: {{tar: {{}}}}
"""
TEXT = "Zeit;x [m];n\n2023-11-14 23:13:20,5;1,5;1\n2023-11-14 23:13:21,5;;2\n"
ENTRY = "{files: gps.csv, delimiter: ;, decimal: ',', time: {column: Zeit, zone: Europe/Berlin}}"


def recipe(entry, folder="/nowhere"):
    return Recipe.from_yaml(RECIPE.format(folder=folder, entry=entry), source="recipe.yaml")


REFUSED = [  # entry, message
    ("{delimiter: ;}", r"recipe\.yaml:8: tables\[0\]\.files: is missing"),
    ("{files: a, delimiter: ';;'}", r"tables\[0\]\.delimiter: ';;': expected one character such as ;"),
    ("{files: a, delimitr: ;}", "tables.0..delimitr: unknown key; did you mean delimiter"),
    ("{files: a, decimal: x}", r"tables\[0\]\.decimal: no such choice as 'x'"),
    ("{files: a, decimal: ','}", "delimiter and decimal are both ','"),
    ("{files: a, encoding: utf-9}", r"encoding: no such encoding as 'utf-9'; did you mean utf-8"),
    ("{files: a, encoding: base64}", "no such encoding as 'base64'"),
    ("{files: a, header: 3}", "header: expected true, false, or a list"),
    ("{files: a, skip: -1}", r"tables\[0\]\.skip: "),
    ("{files: a, time: {column: t, unit: h}}", r"time\.unit: no such choice as 'h'; there are s, ms, us, ns"),
    ("{files: a, time: {column: t, zone: Europe/Berln}}", r"no such zone as .*did you mean Europe/Berlin"),
    ("{files: a, time: {column: t, zone: '+1'}}", "write an offset like"),
    ("{files: a, time: {column: t, zone: ../x}}", "no such zone"),
    ("{files: a, time: {column: t, zone: UTC, unit: s}}", "leave one out"),
    ("{files: a, time: {}}", r"time: write \{column: Zeit\}, or \{seconds: sec"),
    ("{files: a, time: {seconds: s}}", r"write \{column: Zeit\}, or"),
    ("{files: a, time: {column: t, seconds: s, nanoseconds: n}}", r"write \{column: Zeit\}, or"),
    ("{files: a, time: {seconds: s, nanoseconds: n, unit: s}}", "need no `unit`"),
    ("{files: a, time: {column: [a, b, c]}}", r"time\.column: "),
]


def test_mistakes_are_reported_with_their_place():
    for entry, message in REFUSED:
        with case(entry), pytest.raises(RecipeError, match=message):
            recipe(entry)


def test_an_entry_is_what_its_dialect_states():
    for entry in (
        {"files": "a*.csv", "delimiter": "tab", "decimal": ",", "encoding": "latin-1", "skip": 2},
        {"files": "*", "header": ["a", "b"], "columns": {"a": "b c"}},
        {"files": "*", "header": False, "time": {"column": ["a", "b"], "zone": "+01:00"}},
        {"files": "x", "time": {"seconds": "a", "nanoseconds": "b"}},
    ):
        made = Recipe.model_validate(
            {
                "name": "a",
                "logs": ["a"],
                "clock": {"rate": 1},
                "columns": {"x": {"topic": "/a", "field": "x", "tolerance": "1s"}},
                "tables": [entry],
            }
        )
        (dialect,) = table_dialects(made)
        assert dialect.to_data() == entry
        assert Recipe.from_yaml(made.to_yaml()) == made
        assert Recipe.model_validate(made.identity_json()) == made


def test_a_build_reads_tables_as_the_recipe_states(tmp_path):
    folder = tmp_path / "drive"
    folder.mkdir()
    (folder / "gps.csv").write_text(TEXT)
    build_at(recipe(ENTRY, folder), str(tmp_path / "root"))
    rows = logloom.datasets.open(str(tmp_path / "root")).select(["x", "x.age"])
    assert [row["timestamp"] for row in rows] == [1_700_000_000_500_000_000, 1_700_000_001_500_000_000]
    assert [row["x"] for row in rows] == [1.5, 1.5]  # the second cell is empty, so the first counts
    assert rows[1]["x.age"] == 10**9
    other = ENTRY.replace("Europe/Berlin", "UTC")
    assert plan_build(recipe(ENTRY, folder), str(tmp_path / "root")).num_partitions == 0
    build_at(recipe(other, folder), str(tmp_path / "root"))
    rows = logloom.datasets.open(str(tmp_path / "root"))
    assert rows[0]["timestamp"] == 1_700_003_600_500_000_000


def test_what_a_table_lacks_is_a_mistake_of_the_recipe(tmp_path):
    folder = tmp_path / "drive"
    folder.mkdir()
    (folder / "gps.csv").write_text(TEXT)
    for entry, message in [
        (
            ENTRY.replace("column: Zeit", "column: Zeitt"),
            r"recipe\.yaml:8: tables\[0\]\.time: .*'Zeitt'; did you mean Zeit",
        ),
        (ENTRY[:-1] + ", columns: {q: r}}", r"recipe\.yaml:8: tables\[0\]\.columns: .*no column 'q'"),
        (
            "{files: other.csv}",
            r"write in the recipe, if this guess is right:\ntables:\n- {files: gps\.csv, delim",
        ),
        (
            "{files: gps.csv, encoding: ascii, delimiter: ;}",
            r"delimiter: ;, encoding: ascii, time: \{column: Zeit\}",
        ),
    ]:
        with case(entry), pytest.raises((UsageError, LogReadError), match=message):
            plan_build(recipe(entry, folder), str(tmp_path / "root"))


def test_keys_of_text_are_refused_for_other_tables_and_unused_patterns_noted(tmp_path):
    import pandas as pd

    frame = pd.DataFrame({"timestamp_ns": [1, 2], "x [m]": [1.0, 2.0]})
    frame.to_parquet(tmp_path / "gps.parquet")
    text = RECIPE.format(folder=tmp_path, entry="{files: gps.*, decimal: ',', delimiter: ;}")
    with pytest.raises(RecipeError, match=r"tables\[0\]\.delimiter: is for CSV; gps\.parquet has"):
        plan_build(Recipe.from_yaml(text.replace("*.csv", "*.parquet")), str(tmp_path / "root"))
    text = RECIPE.format(folder=tmp_path, entry="{files: imu.*, decimal: ',', delimiter: ;}")
    plan = plan_build(Recipe.from_yaml(text.replace("*.csv", "*.parquet")), str(tmp_path / "root"))
    assert any("tables[0]: no table of these logs is 'imu.*'" in note for note in plan.notes)


def test_a_suggested_recipe_states_what_was_guessed_and_builds(tmp_path):
    for name, text in {
        "one": "Zeit;speed [m/s];Größe;note;speed [m/s]\n"
        + "".join(f"{1_700_000_000 + i};{i},5;{i};x;{i}\n" for i in range(20)),
        "two": "%time,field.pose.x,n\n" + "".join(f"{1_700_000_000_000 + 100 * i},{i},\n" for i in range(20)),
    }.items():
        folder = tmp_path / name
        folder.mkdir()
        (folder / "gps.csv").write_text(text)
        made = suggested_recipe([str(folder)], {})
        built = Recipe.from_yaml(made)
        build_at(built, str(tmp_path / f"{name}-root"))
        rows = logloom.datasets.open(str(tmp_path / f"{name}-root"))
        assert len(rows) > 10
        if name == "one":
            assert list(built.columns) == ["gps.speed_m_s", "gps.grosse", "gps.speed_m_s_2"]
            assert "- {files: gps.csv, delimiter: ;, decimal: ',', time: {column: Zeit, unit: s}}" in made
            assert "# gps.note: {topic: /gps, field: note" in made
        else:
            assert list(built.columns) == ["gps.field.pose.x"]
            assert "left out: n: null: no column has this type" in made
