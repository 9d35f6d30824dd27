"""Alternative names of topics and fields: `topic: {any: [/grip, /gripper/state]}`.

Here: `with_first_names`, which gives columns and the clock the first name and collects the others.
Elsewhere: finding the name that a log has (logloom.io.logs.renamed_log).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import Field

from logloom.recipe.columns import FieldPath, RecipePart, Topic
from logloom.recipe.mistakes import Mistake
from logloom.validation import Path

KEY = "alternatives"
_ANY = "any"
_OF_TOPICS = ("topic", "topics", "static", "camera", "stamp", "sync")


class OtherNames(RecipePart):
    """`alternatives`: see `logloom.io.logs.interface.Alternatives`; recipes are stored with it."""

    topics: dict[Topic, tuple[Topic, ...]] = Field(default_factory=dict)
    fields: dict[Topic, dict[FieldPath, tuple[FieldPath, ...]]] = Field(default_factory=dict)


class _Names:
    """Names that a recipe gives, and mistakes among them."""

    def __init__(self, known: Mapping[str, Any]):
        self.topics: dict[str, list[str]] = {**known.get("topics", {})}
        self.fields: dict[str, dict[str, list[str]]] = {**known.get("fields", {})}
        self.mistakes: list[Mistake] = []

    def first(self, value: Any, known: dict[str, list[str]], path: Path) -> Any:
        """Return the first name of `{any: [...]}`, whose others are added to `known`; other values as is."""
        if not isinstance(value, Mapping) or _ANY not in value:
            return value
        names = value[_ANY]
        are_texts = isinstance(names, list | tuple) and all(isinstance(name, str) and name for name in names)
        if len(value) > 1 or not are_texts or len({*names}) < max(2, len(names)):
            self.mistakes.append(Mistake(path, "write two or more different names, like {any: [/a, /b]}"))
            return names[0] if are_texts and names else "?"
        first, *others = names
        if known.setdefault(first, others) != others:
            why = (
                f"`any` of {first} has other names elsewhere in the recipe; write the same ones in one order"
            )
            self.mistakes.append(Mistake(path, why))
        return first


def with_first_names(data: Mapping[str, Any]) -> tuple[dict[str, Any], list[Mistake]]:
    """Return a recipe's data with first names only and the others in `alternatives`, and mistakes."""
    given = data.get(KEY)
    names = _Names(given if isinstance(given, Mapping) else {})
    made = dict(data)
    clock, columns = data.get("clock"), data.get("columns")
    if isinstance(clock, Mapping):
        made["clock"] = dict(clock)
        if "topic" in clock:
            made["clock"]["topic"] = names.first(clock["topic"], names.topics, ("clock", "topic"))
        if isinstance(clock.get("sync"), list | tuple):
            synced = enumerate(clock["sync"])
            made["clock"]["sync"] = [
                names.first(topic, names.topics, ("clock", "sync", i)) for i, topic in synced
            ]
    if isinstance(columns, Mapping):
        made["columns"] = {
            key: _first_named(value, names, ("columns", str(key))) for key, value in columns.items()
        }
    names.mistakes += _misplaced(made, names.topics)
    if names.topics or names.fields:
        made[KEY] = {"topics": names.topics, "fields": names.fields}
    return made, names.mistakes


def _first_named(column: Any, names: _Names, path: Path) -> Any:
    """Return a column with first names."""
    if not isinstance(column, Mapping) or "topic" not in column:
        return column
    topic, field = names.first(column["topic"], names.topics, (*path, "topic")), column.get("field")
    parts = list(field) if isinstance(field, list | tuple) else [field]
    if not any(isinstance(part, Mapping) for part in parts):
        return {**column, "topic": topic}
    own: dict[str, list[str]] = dict(names.fields.get(topic, {})) if isinstance(topic, str) else {}
    paths = [names.first(part, own, (*path, "field")) for part in parts]
    if isinstance(topic, str) and own:
        names.fields[topic] = own
    return {**column, "topic": topic, "field": paths}


def in_any(column: Mapping[str, Any], others: OtherNames) -> dict[str, Any]:
    """Return the keys of a column with all names of its topic and fields, as recipes are written."""
    made, topic = dict(column), column.get("topic", "")
    fields, field = others.fields.get(topic, {}), column.get("field", [])

    def of_path(path: str) -> Any:
        return {_ANY: [path, *fields[path]]} if path in fields else path

    if topic in others.topics:
        made["topic"] = {_ANY: [topic, *others.topics[topic]]}
    if fields and field:
        made["field"] = of_path(field) if isinstance(field, str) else list(map(of_path, field))
    return made


def _misplaced(data: Mapping[str, Any], topics: Mapping[str, list[str]]) -> Iterator[Mistake]:
    """Find other names of a topic where a recipe uses the first, and names that two `any` have."""
    first_of: dict[str, str] = {}
    shared: dict[str, str] = {}  # a name, by the first one of the later `any`
    for first, others in topics.items():
        for name in others:
            if first_of.setdefault(name, first) != first:
                shared[first] = name
    places: list[tuple[Path, Any]] = [*_topics_in(_part(data, "clock"), ("clock",))]
    places += [(("time", "topics", name), name) for name in _part(_part(data, "time"), "topics")]
    for name, column in _part(data, "columns").items():
        if isinstance(column, Mapping):
            places += _topics_in(column, ("columns", name))
    for path, topic in places:
        if isinstance(topic, str) and topic in first_of:
            first = first_of[topic]
            yield Mistake(path, f"{topic} is one of the names in `any` of {first}; write {first} here")
        elif isinstance(topic, str) and topic in shared:
            name = shared[topic]
            why = f"{name} is one of the names in `any` of {first_of[name]}, too; leave it out of one"
            yield Mistake(path, why)


def _topics_in(part: Mapping[str, Any], path: Path) -> Iterator[tuple[Path, Any]]:
    """Find the topics that a clock or a column names, in its `tf`, `deskew` and other parts, too."""
    for key, value in part.items():
        if isinstance(value, Mapping):
            yield from _topics_in(value, (*path, str(key)))
        elif key in _OF_TOPICS and isinstance(value, list | tuple):
            yield from (((*path, key, i), one) for i, one in enumerate(value))
        elif key in _OF_TOPICS:
            yield (*path, key), value


def _part(data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = data.get(key)
    return value if isinstance(value, Mapping) else {}
