import json

from logloom.pipelines.plan import plan_build
from logloom.pipelines.plan_summary import plan_summary
from logloom.pipelines.splits import built_splits, empty_splits, in_words, planned_splits
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
    assert f"{empty} 0 of 0 logs" in table
    assert "warning" not in table

    built = logloom("build", recipe, "--to", root, "--json", "--quiet")
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
    recipe = Recipe.from_yaml(f"{drive.text}split: {{b: 0.5, a: 0.5}}\n")
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
