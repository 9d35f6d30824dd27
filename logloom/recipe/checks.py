"""Checks that look at several keys of a recipe at once.

Here: functions of the recipe as plain data, so that they speak even where other keys are wrong.
Elsewhere: what one key may hold (model, columns), what needs the logs (logloom.transforms.resolve).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from logloom import where
from logloom.errors import UsageError
from logloom.recipe.mistakes import Mistake, nearest
from logloom.resample.policies import POLICIES


def across_keys(data: Mapping[str, Any]) -> Iterator[Mistake]:
    """Mistakes in what keys say of each other."""
    columns = {
        name: column
        for name, column in _mapping(data, "columns").items()
        if isinstance(name, str) and isinstance(column, Mapping)
    }
    sampled = [name for name, column in columns.items() if "derive" not in column]
    names = [*columns, *(f"{name}.{part}" for name in sampled for part in ("age", "available"))]
    if "split" in _mapping(data, "logs") and data.get("split") is not None:
        yield Mistake(("logs", "split"), "the recipe has a `split` of its own; leave out one of both")
    yield from _filter(_mapping(data, "logs").get("where"), None, ("logs", "where"))
    yield from _without_period(data, columns)
    yield from _required(_mapping(data, "rows").get("require"), sampled, columns)
    yield from _filter(_mapping(data, "rows").get("where"), names)
    derived = {name: _texts(column.get("from")) for name, column in columns.items() if "derive" in column}
    for name, inputs in derived.items():
        for i, wanted in enumerate(inputs):
            if wanted not in names:
                path = ("columns", name, "from", i)
                yield Mistake(path, f"no column {wanted!r}{nearest(wanted, names)}")
    yield from _circles(derived)


def _mapping(data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = data.get(key)
    return value if isinstance(value, Mapping) else {}


def _texts(value: Any) -> list[str]:
    values = [value] if isinstance(value, str) else value if isinstance(value, list | tuple) else []
    return [item for item in values if isinstance(item, str)]


def _without_period(data: Mapping[str, Any], columns: Mapping[str, Mapping[str, Any]]) -> Iterator[Mistake]:
    """Rows for each message of a topic have no period to take a tolerance or window from."""
    clock = _mapping(data, "clock")
    if "topic" not in clock or "rate" in clock:
        return
    for name, column in columns.items():
        policy = column.get("resample", "previous")
        if "derive" in column or not isinstance(policy, str) or policy not in POLICIES:
            continue
        rules = POLICIES[policy]
        for key, is_needed in (("tolerance", rules.tolerates), ("window", rules.uses == "window")):
            if is_needed and column.get(key) is None:
                why = f"resample: {policy} needs a `{key}` where the clock is a topic"
                yield Mistake(("columns", name, key), why)


def _required(value: Any, sampled: list[str], columns: Mapping[str, Any]) -> Iterator[Mistake]:
    for i, name in enumerate(_texts(value)):
        if name in columns and name not in sampled:
            yield Mistake(("rows", "require", i), f"{name} is derived, so it is always available")
        elif name not in sampled:
            yield Mistake(("rows", "require", i), f"no column {name!r}{nearest(name, sampled)}")


def _filter(
    text: Any, names: list[str] | None, path: tuple[str, str] = ("rows", "where")
) -> Iterator[Mistake]:
    """Mistakes in a filter over columns of these names, or of any."""
    if not isinstance(text, str) or not text:
        return
    try:
        found = where.parse(text)
        if names is not None:
            found.check_names([*names, "timestamp"])
    except UsageError as error:
        yield Mistake(path, str(error).removeprefix("where, "))


def _circles(derived: Mapping[str, list[str]]) -> Iterator[Mistake]:
    for name in derived:
        seen, ahead = set[str](), [name]
        while ahead:
            ahead = [inner for outer in ahead for inner in derived.get(outer, ()) if inner not in seen]
            if name in ahead:
                yield Mistake(("columns", name, "from"), "is derived from itself, perhaps by way of others")
                break
            seen.update(ahead)
