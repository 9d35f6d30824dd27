"""docs/recipe.md and the pages on outputs name every key."""

import pathlib
import re
from typing import get_args

import pytest
from pydantic import BaseModel

from logloom.io.formats.annotations.options import LabelFrom
from logloom.io.formats.registry import format_named, format_names
from logloom.recipe import (
    Clock,
    DerivedColumn,
    Keep,
    LabelColumn,
    LogName,
    LogTable,
    Partition,
    Recipe,
    Rows,
    SkipBudget,
    Split,
    Time,
    TopicColumn,
)
from logloom.recipe import yaml as recipe_yaml
from logloom.recipe.columns import ADAPTERS, DTYPES
from logloom.recipe.table_entries import RowTime, TableEntry
from logloom.resample.policies import POLICIES

DOCS = pathlib.Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "recipe.md").read_text(encoding="utf-8")
# The pages on outputs that aren't called as these are.
PAGE_OF = {"annotations": "openmmlab"}
BASE = {"name": "t", "logs": "x", "clock": {"rate": 1}, "columns": {"a": {"topic": "/a", "field": "a"}}}


@pytest.mark.parametrize(
    "model",
    [
        Recipe,
        LogName,
        LogTable,
        Time,
        Clock,
        Rows,
        Partition,
        Split,
        SkipBudget,
        Keep,
        TableEntry,
        RowTime,
        TopicColumn,
        DerivedColumn,
        LabelColumn,
    ],
)
def test_every_key_is_explained(model):
    for name, info in model.model_fields.items():
        assert re.search(rf"\b{info.alias or name}\b", TEXT), f"{model.__name__}.{info.alias or name}"


def models_in(kind):
    """A model, or those in a type, and those of their fields."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        inner = [info.annotation for info in kind.model_fields.values()]
        return {kind, *(model for one in inner for model in models_in(one))}
    return {model for one in get_args(kind) for model in models_in(one)}


@pytest.mark.parametrize("output", format_names())
def test_every_key_of_an_output_is_explained_on_its_page(output):
    page = f"{PAGE_OF.get(output, output)}.md"
    text = (DOCS / page).read_text(encoding="utf-8")
    assert re.search(rf"\({page}\)", TEXT), f"docs/recipe.md doesn't link to {page}"
    shown = "\n".join(re.findall(r"```yaml.*?^```|`[^`\n]+`", text, re.MULTILINE | re.DOTALL))
    models = models_in(format_named(output).Options) | ({LabelFrom} if output == "annotations" else set())
    for model in models:
        for name, info in model.model_fields.items():
            key = info.alias or name
            assert re.search(rf"\b{key}\b", shown), f"{page} says nothing of {model.__name__}.{key}"


@pytest.mark.parametrize("word", sorted([*POLICIES, *ADAPTERS]))
def test_every_policy_and_adapter_is_explained(word):
    assert re.search(rf"`{word}[`\[]", TEXT)


def tables_of_policies(page):
    """By policy, the cells beside it in each table of policies of a page."""
    for table in re.findall(r"^\| `resample` .*\n\|[-|]+\n((?:\|.*\n)+)", page, re.MULTILINE):
        cells = [line.strip("|\n ").split(" | ") for line in table.splitlines()]
        yield {policy: line[1:] for line in cells for policy in re.findall(r"`(\w+)`", line[0])}


def test_the_table_of_policies_lists_those_that_there_are():
    (chosen,) = tables_of_policies((DOCS / "rows.md").read_text(encoding="utf-8"))
    assert chosen.keys() == POLICIES.keys()
    for policy, (uses, usable) in chosen.items():
        rules = POLICIES[policy]
        assert ("`tolerance`" in usable) == rules.tolerates, policy
        assert ("window" in uses or "t + a" in uses) == (rules.uses == "window"), policy
        assert ("before" in uses or "after" in uses) == (rules.uses == "two") or rules.uses == "one", policy


@pytest.mark.parametrize(("key", "value"), re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", TEXT, re.MULTILINE))
def test_a_documented_default_is_the_default(key, value):
    models = [Recipe, Time, Clock, Rows, Partition, Keep, TableEntry, RowTime, TopicColumn, DerivedColumn]
    dumped = [
        model.model_construct().model_dump(by_alias=True, mode="json")
        for model in models
        if model is not Recipe
    ]
    dumped.append(Recipe.model_validate(BASE).model_dump(by_alias=True, mode="json"))
    found = [data[key] for data in dumped if key in data]
    written, _, _ = recipe_yaml.load(value, "docs")
    assert written in found or (key, value) == ("window", "[-period, 0s]")


def test_the_types_of_the_table_are_the_types():
    assert all(name in DTYPES for name in ("bool", "int8", "uint64", "float32", "float64"))
