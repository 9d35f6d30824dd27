"""Checks of a clock that matches messages of several topics, and of its columns.

Here: functions of the recipe as plain data, as in checks.
Elsewhere: the keys of `clock` (model), the matching (logloom.resample.sync).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from logloom.recipe.mistakes import Mistake, texts_in
from logloom.resample.policies import POLICIES
from logloom.resample.sync import MAX_TOPICS
from logloom.text import near_to

MATCHED = "matched"


def with_matched(data: Mapping[str, Any]) -> dict[str, Any]:
    """Set `resample: matched` in columns of synced topics without `resample`."""
    topics, columns = _topics(data.get("clock")), data.get("columns")
    if not topics or not isinstance(columns, Mapping):
        return dict(data)
    return {**data, "columns": {name: _matched(column, topics) for name, column in columns.items()}}


def _matched(column: Any, topics: list[str]) -> Any:
    is_synced = isinstance(column, Mapping) and column.get("topic") in topics
    return {**column, "resample": MATCHED} if is_synced and "resample" not in column else column


def sync_mistakes(clock: Any, columns: Mapping[str, Mapping[str, Any]]) -> Iterator[Mistake]:
    """Find mistakes in a clock's keys for synced topics, and in the columns of these topics."""
    topics = _topics(clock)
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
        yield Mistake(("clock", "sync"), f"takes from 2 to {MAX_TOPICS} topics, got {len(topics)}")


def _topics(clock: Any) -> list[str]:
    return texts_in(clock.get("sync")) if isinstance(clock, Mapping) else []
