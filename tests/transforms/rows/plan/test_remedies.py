"""Whatever an error names as a way on leads to a column, or to an error that says that there is none."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from logloom.errors import RecipeError
from logloom.io.logs.opening import open_log
from logloom.recipe import Recipe
from logloom.transforms.rows.plan.resolve import resolve
from tests.transforms.rows.plan.languages import LANGUAGES, LENGTH

STEPS = 4  # from the first error to a column
Keys = Mapping[str, Any]


def recipe_of(keys: Keys, path) -> Recipe:
    columns = {"c": {"topic": "/x", **keys}}
    outputs: Any = {"tar": {}}
    return Recipe.model_validate(
        {"name": "t", "logs": str(path), "clock": {"rate": 10}, "columns": columns, "outputs": outputs}
    )


def remedies(error: str, keys: Keys) -> list[Keys]:
    """The columns that an error proposes instead: its lines in backticks, and the nearest names."""
    found = []
    for line in re.findall(r"`([^`]+: [^`]+)`", error):
        given = yaml.safe_load("{" + line.replace("<length>", str(LENGTH)) + "}")
        if f"leave out `{line}`" in error:
            found.append({key: value for key, value in keys.items() if key not in given})
        else:
            found.append({**keys, **given})
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


def test_each_way_that_an_error_names_leads_to_a_column(language):
    log, path, fields = language
    failed = []
    for field in fields:
        for resample in ("previous", "linear", "slerp", "window"):
            try:
                walk(log, path, {"field": field, "resample": resample})
            except AssertionError as error:
                failed.append(str(error))
    assert not failed, "\n".join(failed)
