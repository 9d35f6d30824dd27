"""Splits that list logs: who is where, and what happens to logs that come later."""

import pytest

import logloom as ll
from logloom.errors import RecipeError
from logloom.io.catalog.manifest import open_root
from logloom.io.storage.store import Store
from logloom.pipelines.plan.plan import plan_build
from logloom.recipe import Recipe
from tests.transforms.ros2_logs import SECOND, SPEED, START, speeds, write_log

RECIPE = """\
name: t
logs: logs/*.mcap
clock: {{rate: 10}}
columns: {{speed: {{topic: /can, field: speed}}}}
split: {}
outputs: {{tar: {{}}}}
"""


def write(place, *names):
    for name in names:
        start = START + 100 * SECOND * (int("".join(filter(str.isdigit, name))) + 500 * ("[" in name))
        write_log(place / f"logs/{name}.mcap", {"/can": (SPEED, speeds(10, start=start))})


@pytest.fixture
def place(tmp_path):
    write(tmp_path, "take_1", "take_2", "take_3")
    return tmp_path


def plan(place, split, **how):
    return plan_build(Recipe.from_yaml(RECIPE.format(split)), str(place / "root"), base=str(place), **how)


def splits(root):
    return {record.log_id: record.split for record in open_root(Store.at(str(root)))[1].logs}


@pytest.mark.parametrize(
    ("split", "found"),
    [
        ("{val: [take_3]}", {"train": "12", "val": "3"}),
        ("{train: 1, val: [take_3], test: [take_1]}", {"train": "2", "val": "3", "test": "1"}),
        ("{rest: 1, train: ['take_*'], val: [take_2]}", {"train": "13", "val": "2"}),
        ("{rest: 1, val: ['take_[23]'], train: ['take_*']}", {"train": "1", "val": "23"}),
    ],
)
def test_a_listed_log_is_in_the_split_that_lists_it(place, split, found):
    planned = plan(place, split)
    logs = {log.task.log_id: log.task.split for log in planned.logs}
    assert logs == {f"take_{number}": name for name, numbers in found.items() for number in numbers}
    assert not planned.warnings


def test_logs_that_come_later_go_to_the_rest_and_a_list_outlives_its_log(place):
    recipe = place / "r.yaml"
    recipe.write_text(RECIPE.format("{val: [take_3]}") + "vanished: keep\n")
    root = place / "root"
    ll.build(recipe, root)
    write(place, "take_4")
    (place / "logs/take_3.mcap").unlink()
    noted = [str(note) for note in ll.plan(recipe, root).notes]
    assert "split: logs that no list names, those of later builds too, go to 'train'" in noted
    ll.build(recipe, root)
    assert splits(root) == {"take_1": "train", "take_2": "train", "take_3": "val", "take_4": "train"}
    assert {row["log_id"] for row in ll.open(root, split="val")} == {"take_3"}
    assert ll.verify(root, against_logs=True).findings == ()
    recipe.write_text(recipe.read_text().replace("[take_3]", "[take_3, take_1]"))
    assert ll.build(recipe, root).built == 0  # a change of a split of whole logs builds none again
    assert splits(root)["take_1"] == "val"


def test_a_list_may_go_on_naming_a_log_that_vanished_versions_ago(place):
    recipe, root = place / "r.yaml", place / "root"
    recipe.write_text(RECIPE.format("{val: [take_3, take_2]}") + "vanished: drop\n")
    ll.build(recipe, root)
    (place / "logs/take_3.mcap").unlink()
    for night in ("take_4", "take_5"):
        write(place, night)
        ll.build(recipe, root)
    assert splits(root) == {"take_1": "train", "take_2": "val", "take_4": "train", "take_5": "train"}
    recipe.write_text(recipe.read_text().replace("take_3,", "take_3, take_6,"))
    with pytest.raises(RecipeError, match="no log has the log_id 'take_6'"):
        ll.plan(recipe, root)


def test_a_trial_on_other_logs_needs_no_listed_log(place):
    recipe = place / "r.yaml"
    recipe.write_text(RECIPE.format("{val: [take_3]}"))
    assert ll.plan(recipe, place / "root", log=str(place / "logs/take_1.mcap")).num_logs == 1
    assert ll.plan(recipe, place / "root", limit=1).num_logs == 1


@pytest.mark.parametrize(
    ("split", "message"),
    [
        ("{val: [take_03]}", "split.val[0]: no log has the log_id 'take_03'; did you mean take_"),
        ("{val: [take_3, gone]}", "split.val[1]: no log has the log_id 'gone'"),
        ("{val: take_3}", "split.val: 'take_3' is not a number; expected a share .*, or a list of logs"),
        ("{val: []}", "split.val: a list of logs has the log_id of at least one"),
        ("{train: [take_1], val: [take_2]}", "no split has the logs that no list names; give one a share"),
        ("{rest: 1, a: [take_1], b: [take_1]}", "b: 'take_1' is in a, too; leave it out of one"),
        ("{train: 0.9, val: [take_1]}", "the shares of the logs that no list names sum to 0.9, not to 1"),
        ("{val: [take_1], by: {column: speed}}", "val: lists logs, .*; leave out one"),
    ],
)
def test_a_list_that_makes_no_sense_is_a_mistake_with_its_line(place, split, message):
    with pytest.raises(RecipeError, match=f"recipe.yaml:5: .*{message.replace('[', '.')}"):
        plan(place, split)


def test_a_name_that_a_log_has_is_no_pattern_and_stays_what_it_was(place):
    write(place, "take_[1]4", "take_14", "take_[2]")
    recipe, root = place / "r.yaml", place / "root"
    text = RECIPE.format("{test: ['take_*4'], val: ['take_[1]4', 'take_[123]']}") + "vanished: drop\n"
    recipe.write_text(text)
    ll.build(recipe, root)
    first = {"take_1": "val", "take_2": "val", "take_3": "val", "take_[1]4": "val", "take_14": "test"}
    assert splits(root) == {**first, "take_[2]": "train"}
    assert ll.verify(root, against_logs=True).findings == ()
    (place / "logs/take_[1]4.mcap").unlink()
    write(place, "take_[123]")  # its name was a pattern, and goes on to be one, too
    ll.build(recipe, root)
    del first["take_[1]4"]
    assert splits(root) == {**first, "take_[2]": "train", "take_[123]": "val"}
    assert ll.verify(root).findings == ()
    recipe.write_text(text.replace("test: ['take_*4'], ", ""))
    ll.build(recipe, root)
    assert splits(root)["take_14"] == "train"  # for `take_[1]4` is still the log's name
