import json

import numpy as np

import logloom.datasets as logloom_datasets
from logloom.pipelines.plan.plan import plan_build
from logloom.pipelines.plan.summary import plan_summary
from logloom.pipelines.stats.splits import built_splits, empty_splits, in_words, planned_splits
from logloom.recipe import Recipe
from tests.pipelines.conftest import build_at
from tests.pipelines.test_commands import logloom

# Both drives lie in one folder, so one split has all.
SPLIT = 'split: {val: 0.5, train: 0.5, by: "{parent}"}\n'


def test_plan_and_build_tell_rows_by_split_and_warn_of_one_that_gets_none(drive, tmp_path):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(drive.text + SPLIT)
    root = tmp_path / "root"
    planned = logloom("plan", recipe, "--to", root, "--json")
    said = json.loads(planned.stdout)
    assert set(said["splits"]) == {"val", "train"}
    (empty,) = [name for name, found in said["splits"].items() if not found["logs"]]
    (full,) = {"val", "train"} - {empty}
    assert said["splits"][full] == {"logs": len(drive.logs), "rows_at_most": said["rows_at_most"]}
    assert said["splits"][empty] == {"logs": 0, "rows_at_most": 0}
    (warning,) = said["warnings"]
    assert f"split '{empty}' gets none of {len(drive.logs)} logs" in warning
    assert planned.stderr.count(f"warning: {warning}") == 1
    table = logloom("plan", recipe, "--to", root).stdout
    assert f"{empty} at most 0 rows of 0 logs" in table
    assert f"{full} at most {said['rows_at_most']:,} rows of {len(drive.logs)} logs" in table
    assert "warning" not in table

    refused = logloom("build", recipe, "--to", root)
    assert refused.returncode == 1, refused.stderr
    assert f"{empty}: [{drive.logs[-1].stem}]" in refused.stderr, refused.stderr
    assert not (root / "versions").exists()
    built = logloom("build", recipe, "--to", root, "--json", "--allow-empty")
    result = json.loads(built.stdout)
    assert result["splits"][full] == {"logs": len(drive.logs), "rows": result["rows"]}
    assert result["splits"][empty] == {"logs": 0, "rows": 0}
    assert result["warnings"] == said["warnings"]
    assert built.stderr.count("gets none of") == 1
    assert f"{full} {result['rows']:,} of {len(drive.logs)} logs" in built.stderr
    again = json.loads(logloom("plan", recipe, "--to", root, "--json").stdout)
    assert again["up_to_date"]
    assert again["splits"][full] == {"logs": len(drive.logs), "rows_at_most": result["rows"]}


def test_a_recipe_without_splits_has_one_and_no_warning(drive, built, tmp_path):
    plan = plan_build(drive.recipe(), str(tmp_path / "root"))
    counts = planned_splits(plan)
    assert counts == {"all": {"logs": len(drive.logs), "rows_at_most": plan.num_ticks}}
    assert plan_summary(plan)["warnings"] == empty_splits(counts) == []


def test_rows_by_split_are_those_of_its_logs(drive, tmp_path):
    recipe = Recipe.from_yaml(f"{drive.text}split: {{b: 1, a: [drive-01]}}\n")
    manifest = build_at(recipe, tmp_path / "root").manifest
    counts = built_splits(manifest)
    for name, found in counts.items():
        logs = [record for record in manifest.logs if record.split == name]
        assert found == {"logs": len(logs), "rows": sum(record.rows for record in logs)}
    assert list(counts) == ["b", "a"]


def test_a_split_whose_logs_give_no_row_is_warned_of():
    counts = {"train": {"logs": 2, "rows": 1500}, "val": {"logs": 3, "rows": 0}}
    assert empty_splits(counts) == ["split 'val' gets no row of its 3 logs"]
    assert in_words(counts) == "train 1,500 of 2 logs, val 0 of 3 logs"
    assert empty_splits({"train": {"logs": 0, "rows": 0}}) == []


def test_splits_of_a_version_are_counted_and_measured(drive, tmp_path):
    """Both drives begin at one place, so splits by log lie no gap apart: that is what the command shows."""
    recipe = Recipe.from_yaml(f"{drive.text}split: {{b: 1, a: [drive-01]}}\n")
    manifest = build_at(recipe, tmp_path / "root").manifest
    told = logloom("stats", tmp_path / "root", "--splits", "--position", "ego.position", "--json")
    said = json.loads(told.stdout)
    assert said["splits"] == built_splits(manifest)
    assert said["left_out"] == 0
    assert said["warnings"] == empty_splits(built_splits(manifest))
    assert told.stderr.count("warning: ") == len(said["warnings"])
    rows = logloom_datasets.open(str(tmp_path / "root"), columns="ego.position")
    places = {
        name: np.array(
            [row["ego.position"][:2] for row in rows.take((rows.index["split"] == name).to_numpy())]
        )
        for name in ("b", "a")
    }
    (pair,) = said["nearest"]
    assert pair["splits"] == ["b", "a"]
    if all(map(len, places.values())):
        between = np.sqrt(np.square(places["b"][:, None] - places["a"][None]).sum(axis=2)).min()
        assert pair["metres"] == between
        assert {row["log_id"] for row in pair["rows"]} == {record.log_id for record in manifest.logs}
    else:
        assert (pair["metres"], pair["rows"]) == (None, [])
    table = logloom("stats", tmp_path / "root", "--splits").stdout
    assert all(f"{one['rows']:,}" in table for one in said["splits"].values())


def test_the_command_takes_times_with_their_unit_or_in_seconds(built):
    by_time = ("stats", built, "--splits", "--by", "time", "--share", "a=0.5", "--share", "b=0.5", "--json")
    in_seconds = logloom(*by_time, "--cell", "0.5", "--gap", "0.1")
    assert in_seconds.returncode == 0, in_seconds.stderr
    assert json.loads(in_seconds.stdout)["left_out"] > 0
    assert logloom(*by_time, "--cell", "500ms", "--gap", "100ms").stdout == in_seconds.stdout
    for cell, why in [
        ("5 parsecs", "cell='5 parsecs': not a length of time"),
        ("nan", "not a length of time"),
    ]:
        done = logloom(*by_time, "--cell", cell)
        assert (done.returncode, why in done.stderr) == (2, True), done.stderr
    done = logloom(
        *("stats", built, "--splits", "--by", "place", "--position", "ego.position"),
        *("--share", "a=1", "--cell", "5s"),
    )
    assert "lengths of places are numbers of metres" in done.stderr
