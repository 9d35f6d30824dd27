"""Checks that look at several keys of a recipe at once.

Here: functions of the recipe as plain data, which work even if other keys are invalid; `with_matched`, which
completes columns of topics that the clock matches.
Elsewhere: values of single keys (model, columns), checks that need the logs
(logloom.transforms.rows.plan.resolve).
"""

from __future__ import annotations

import string
from collections.abc import Iterator, Mapping
from typing import Any

from logloom.errors import UsageError
from logloom.io.formats.registry import taking
from logloom.recipe.mistakes import Mistake, texts_in
from logloom.resample.policies import POLICIES
from logloom.row_splits import COLUMN
from logloom.text import near_to

MATCHED = "matched"
_OF_LOGS = ("log_id", "stem", "parent", "path")
_TAKEN = ("host", "index")  # keys of a table of logs that only outputs use


def across_keys(data: Mapping[str, Any]) -> Iterator[Mistake]:
    """Find contradictions between keys."""
    columns = {
        name: column
        for name, column in _mapping(data, "columns").items()
        if isinstance(name, str) and isinstance(column, Mapping)
    }
    sampled = [name for name, column in columns.items() if "derive" not in column]
    names = [*columns, *(f"{name}.{part}" for name in sampled for part in ("age", "available"))]
    if _mapping(data, "logs").get("split") is not None and data.get("split") is not None:
        yield Mistake(("logs", "split"), "the recipe has its own `split`; leave out one of the two")
    yield from _split_by(
        _mapping(data, "split").get("by"), texts_in(_mapping(data, "logs").get("index")), columns
    )
    yield from _split_rows(_mapping(data, "split"), columns)
    yield from _filter(_mapping(data, "logs").get("where"), None, ("logs", "where"))
    yield from _catalogued(data, names)
    yield from _sync_mistakes(data.get("clock"), columns)
    yield from _without_period(data, columns)
    yield from _required(_mapping(data, "rows").get("require"), sampled, columns)
    yield from _filter(_mapping(data, "rows").get("where"), names)
    derived = {name: texts_in(column.get("from")) for name, column in columns.items() if "derive" in column}
    for name, inputs in derived.items():
        for i, wanted in enumerate(inputs):
            if wanted not in names:
                path = ("columns", name, "from", i)
                yield Mistake(path, f"no column {wanted!r}{near_to(wanted, names)}")
    yield from _circles(derived)
    yield from _looked_up(columns)


def _looked_up(columns: Mapping[str, Mapping[str, Any]]) -> Iterator[Mistake]:
    """Check that columns whose message times are looked up have one message at each tick."""
    single = []
    for name, column in columns.items():
        policy = column.get("resample", "previous")
        if "topic" in column and isinstance(policy, str) and policy in POLICIES:
            single += [name] if POLICIES[policy].uses == "one" else []
    for name, column in columns.items():
        at = column.get("at")
        if "tf" not in column or not isinstance(at, str) or at in single:
            continue
        path = ("columns", name, "at")
        if at in columns:
            yield Mistake(path, f"{at} has no single message at a tick, so its time can't be looked up")
        else:
            yield Mistake(path, f"no column {at!r}{near_to(at, single)}")


def _mapping(data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = data.get(key)
    return value if isinstance(value, Mapping) else {}


def names_in(template: str) -> list[str]:
    """Return the names in braces; none of text that isn't a template."""
    try:
        return [name for _, name, _, _ in string.Formatter().parse(template) if name]
    except ValueError:
        return []


def _split_rows(split: Mapping[str, Any], columns: Mapping[str, Any]) -> Iterator[Mistake]:
    """Check that the columns to split rows by exist, and that no column has the split's name."""
    by = split.get("by")
    wanted = {("position",): split.get("position"), ("by", "column"): _mapping(split, "by").get("column")}
    for path, name in wanted.items():
        if isinstance(name, str) and name not in columns:
            yield Mistake(("split", *path), f"no column {name!r}{near_to(name, columns)}")
    if _is_of_rows(by) and COLUMN in columns:
        why = f"the split of rows is stored in a column {COLUMN}; rename this one"
        yield Mistake(("columns", COLUMN), why)


def _is_of_rows(by: Any) -> bool:
    """Whether `split.by` splits single rows."""
    return isinstance(by, Mapping) or by in ("place", "time")


def _split_by(by: Any, index: list[str], columns: Mapping[str, Any]) -> Iterator[Mistake]:
    """Find names in `split.by` that neither logs nor the table of logs define."""
    known = [*_OF_LOGS, *filter(str.isidentifier, index)]
    for name in names_in(by) if isinstance(by, str) else ():
        if name not in known:
            listed = ", ".join(f"{{{one}}}" for one in known)
            why = f"{{{name}}} is unknown; there are {listed}"
            more = "" if index else ", and columns that `logs` names as `index` of a table"
            more += f"; {{column: {name}}} splits rows by that column" if name in columns else ""
            yield Mistake(("split", "by"), why + more)


def _catalogued(data: Mapping[str, Any], names: list[str]) -> Iterator[Mistake]:
    """Check what a table of logs provides for outputs against the outputs and columns of the recipe."""
    logs, outputs = _mapping(data, "logs"), _mapping(data, "outputs")
    by = _mapping(data, "split").get("by")
    taken = ["log_id", "timestamp", *names, *([COLUMN] if _is_of_rows(by) else [])]
    splits = isinstance(by, str) and set(names_in(by)) & set(texts_in(logs.get("index")))
    for key in filter(logs.get, _TAKEN):
        takers = {form.name: form.takes_for_option for form in taking(key)}
        if takers.keys().isdisjoint(outputs) and not (key == "index" and splits):
            words = f"the output {' or '.join(takers)}, which" if takers else "an output of a part that"
            lacks = "this recipe doesn't have" if takers else "isn't installed"
            yield Mistake(("logs", key), f"is for {words} {lacks}")
        for name, for_option in takers.items():
            if for_option and _mapping(outputs, name).get(key):
                why = f"the table of `logs` has a `{key}`; leave out one of the two"
                yield Mistake(("outputs", name, key), why)
    for i, name in enumerate(texts_in(logs.get("index"))):
        path = ("logs", "index", i) if not isinstance(logs["index"], str) else ("logs", "index")
        if name in taken or name.startswith("__"):
            yield Mistake(path, f"{name!r} is a column of the rows; rename the table's column")


def _without_period(data: Mapping[str, Any], columns: Mapping[str, Mapping[str, Any]]) -> Iterator[Mistake]:
    """Check columns of rows per message, where no period provides a default tolerance or window."""
    clock = _mapping(data, "clock")
    if not {"topic", "sync"} & clock.keys() or "rate" in clock:
        return
    whose = "a topic" if "topic" in clock else "of synced topics"
    for name, column in columns.items():
        policy = column.get("resample", "previous")
        if {"derive", "tf", "table"} & column.keys() or not isinstance(policy, str) or policy not in POLICIES:
            continue
        rules = POLICIES[policy]
        for key, is_needed in (("tolerance", rules.tolerates), ("window", rules.uses == "window")):
            if is_needed and column.get(key) is None:
                why = f"resample: {policy} needs a `{key}` where the clock is {whose}"
                yield Mistake(("columns", name, key), why)


def _required(value: Any, sampled: list[str], columns: Mapping[str, Any]) -> Iterator[Mistake]:
    for i, name in enumerate(texts_in(value)):
        if name in columns and name not in sampled:
            yield Mistake(("rows", "require", i), f"{name} is derived, so it is always available")
        elif name not in sampled:
            yield Mistake(("rows", "require", i), f"no column {name!r}{near_to(name, sampled)}")


def _filter(
    text: Any, names: list[str] | None, path: tuple[str, str] = ("rows", "where")
) -> Iterator[Mistake]:
    """Check a filter over columns of these names; None allows any name."""
    if not isinstance(text, str) or not text:
        return
    from logloom.query import where  # few recipes have a filter

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
                yield Mistake(
                    ("columns", name, "from"), ("is derived from itself, directly or through other columns")
                )
                break
            seen.update(ahead)


# --- a clock that matches messages of several topics ------------------------------------------------------


def with_matched(data: Mapping[str, Any]) -> dict[str, Any]:
    """Set `resample: matched` in columns of synced topics without `resample`."""
    topics, columns = _synced(data.get("clock")), data.get("columns")
    if not topics or not isinstance(columns, Mapping):
        return dict(data)
    completed = {
        name: {"resample": MATCHED, **column}
        for name, column in columns.items()
        if isinstance(column, Mapping) and column.get("topic") in topics
    }
    return {**data, "columns": {**columns, **completed}}


def _sync_mistakes(clock: Any, columns: Mapping[str, Mapping[str, Any]]) -> Iterator[Mistake]:
    """Find mistakes in a clock's keys for synced topics, and in the columns of these topics."""
    topics = _synced(clock)
    if isinstance(clock, Mapping):
        yield from _clock_mistakes(clock, topics)
    for name, column in columns.items():
        topic, policy = column.get("topic"), column.get("resample")
        path = ("columns", name, "resample")
        if not isinstance(topic, str) or not isinstance(policy, str) or policy not in POLICIES:
            continue
        if policy == MATCHED and not topics:
            yield Mistake(path, "matched needs `clock: {sync: [/camera, /lidar], within: 50ms}`")
        elif policy == MATCHED and topic not in topics:
            yield Mistake(path, f"{topic} isn't in the `sync` of the clock{near_to(topic, topics)}")
        elif policy != MATCHED and topic in topics and POLICIES[policy].uses == "one":
            why = f"{policy} may use another message than the clock matched; leave `resample` out"
            yield Mistake(path, why)


def _clock_mistakes(clock: Mapping[str, Any], topics: list[str]) -> Iterator[Mistake]:
    if not clock.get("sync"):
        for key, default in (("within", None), ("stamp", None), ("match", "approximate")):
            if clock.get(key, default) != default:
                yield Mistake(("clock", key), "needs `sync`, the topics whose messages are matched")
        return
    from logloom.resample.sync import MAX_TOPICS

    for i, topic in enumerate(topics):
        if topic in topics[:i]:
            yield Mistake(("clock", "sync", i), f"{topic} is listed twice")
    stamp, within = clock.get("stamp"), clock.get("within")
    if isinstance(stamp, str) and topics and stamp not in topics:
        yield Mistake(("clock", "stamp"), f"{stamp} isn't in `sync`{near_to(stamp, topics)}")
    if clock.get("match", "approximate") == "approximate" and within is None:
        yield Mistake(("clock", "sync"), "needs `within`, like 50ms, or `match: exact`")
    if clock.get("match") == "exact" and within is not None:
        yield Mistake(("clock", "within"), "has no meaning with match: exact, where all stamps are equal")
    if topics and not 2 <= len(topics) <= MAX_TOPICS:
        yield Mistake(("clock", "sync"), f"accepts from 2 to {MAX_TOPICS} topics, got {len(topics)}")


def _synced(clock: Any) -> list[str]:
    return texts_in(clock.get("sync")) if isinstance(clock, Mapping) else []
