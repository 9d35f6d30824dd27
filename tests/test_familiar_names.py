"""Names of other tools: each error of an unknown name says what it is here, and ours are right."""

import re

import pytest

import logloom as ll
from logloom import familiar_names as names
from logloom.cli import verbs
from logloom.datasets import Loader
from logloom.errors import RecipeError
from logloom.recipe import Recipe
from logloom.recipe.columns import TopicColumn
from logloom.resample.policies import POLICIES
from tests.forking import command

RECIPE = """\
name: t
logs: a.mcap
clock: {rate: 10}
columns:
  x: {topic: /x, field: data, resample: linear}
outputs: {tar: {}}
"""


def message_of(text):
    with pytest.raises(RecipeError) as caught:
        Recipe.from_yaml(text)
    return str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("name: t", "name: t\nfrequency: 10", "frequency: unknown key; here it is clock: {rate: 10}"),
        ("name: t", "name: t\ntopics: [/x]", "topics: unknown key; here it is columns"),
        ("name: t", "name: t\noutput: {}", "output: unknown key; here it is outputs"),
        ("{rate: 10}", "{hz: 10}", "clock.hz: unknown key; here it is rate"),
        ("resample:", "interpolation:", "columns.x.interpolation: unknown key; here it is resample"),
        ("resample: linear", "max_age: 1s", "columns.x.max_age: unknown key; here it is tolerance"),
        ("resample: linear", "delay: 1s", "columns.x.delay: unknown key; here it is offset"),
        ("resample: linear", "type: float32", "columns.x.type: unknown key; here it is dtype for numbers"),
        ("linear", "ffill", "columns.x.resample: no such policy as 'ffill'; here it is previous"),
        ("linear", "bilinear", "columns.x.resample: no such policy as 'bilinear'; here it is linear"),
        ("linear", "linaer", "columns.x.resample: no such policy as 'linaer'; did you mean linear?"),
    ],
)
def test_an_unknown_key_or_policy_of_a_recipe_says_what_is_ours(old, new, message):
    assert message in message_of(RECIPE.replace(old, new))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("ls", "No such command 'ls'; here it is versions, or info for logs"),
        ("merge a b", "No such command 'merge'; here it is build, which adds logs to a root"),
        ("build r.yaml --output root", "No such option: --output; here it is --to"),
        ("build r.yaml -j 2", "No such option: -j; here it is --workers"),
        ("head root --format json", "No such option: --format; here it is --json"),
        ("head root --limit 3", "No such option: --limit; here it is -n"),
        ("convert a b --to zarr", "No such option: --to; here it is --format"),
        ("info a.mcap -v", "No such option: -v; here it is --debug"),
        ("head root --colums x", "No such option: --colums (Possible options: --columns"),
    ],
)
def test_an_unknown_verb_or_option_says_what_is_ours(call, message, tmp_path):
    done = command(*call.split(), cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr


def test_an_unknown_name_in_python_says_what_is_ours():
    for name, own in (("load", "open"), ("read", "open"), ("DataLoader", "Loader")):
        with pytest.raises(AttributeError, match=f"{name}.*; here it is {own}"):
            getattr(ll, name)
    for name, own in (("num_workers", "workers"), ("drop_last", "no argument"), ("collate_fn", "fns")):
        with pytest.raises(TypeError, match=f"'{name}'; here it is {own}"):
            Loader([], 2, **{name: 1})


def test_the_tables_name_only_what_exists_and_nothing_that_is_ours():
    known = {*verbs()}
    assert {own.split()[0].strip(",;`") for own in names.COMMANDS.values()} - known == {"the"}
    assert names.COMMANDS.keys().isdisjoint(known)
    policies = {re.split(r"\W", own)[0] for own in names.POLICIES.values()}
    assert policies <= set(POLICIES)
    assert names.POLICIES.keys().isdisjoint(POLICIES)
    fields = {info.alias or name for name, info in TopicColumn.model_fields.items()}
    assert names.COLUMN_KEYS.keys().isdisjoint(fields)
    assert {own.split()[0].strip(",;") for own in names.COLUMN_KEYS.values()} - fields <= {"where", "clock"}
    assert names.KEYS.keys().isdisjoint(Recipe.model_fields)
    assert all(hasattr(ll, own.split()[0].partition(".")[0]) for own in names.FUNCTIONS.values())
