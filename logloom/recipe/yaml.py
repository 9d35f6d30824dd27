"""YAML for recipes: safe, with line numbers of keys and original text of numbers.

Here: `load` and `dump`. Plain data only: mappings with text keys, lists, text, numbers, true, false, null.
Elsewhere: the meaning of the data (model).
Words such as on, yes, 2026-11-21 or 1:30 are text here, as in YAML 1.2. Aliases may repeat a part, within
limits; tags, merge keys and duplicate keys are refused.
"""

from __future__ import annotations

import contextlib
import re
from decimal import Decimal
from typing import Any

import yaml

from logloom.recipe.mistakes import Mistake, RecipePlaces
from logloom.recipe.values import ExactFloat, decimal_text
from logloom.text import is_printable, printable, printable_lines
from logloom.validation import Path

MAX_BYTES = 16 << 20
LARGE = 1 << 16  # characters that libyaml parses, if installed: a recipe of 3,000 topics
MAX_DEPTH = 40
MAX_VALUES = 200_000  # including those that aliases repeat
MAX_NUMBER = 40  # characters

_TAG = "tag:yaml.org,2002:"
_SCALARS = [
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+", list("-+0123456789")),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", list("-+.0123456789")),
]


class _RecipeLoader(yaml.SafeLoader):
    yaml_implicit_resolvers: dict[str, list[Any]] = {}  # noqa: RUF012 (so PyYAML wants it)


class _FastLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    yaml_implicit_resolvers = _RecipeLoader.yaml_implicit_resolvers


class _Dumper(yaml.SafeDumper):
    yaml_implicit_resolvers = _RecipeLoader.yaml_implicit_resolvers

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    """Write text that needs escapes in double quotes, the only style with escapes."""
    return dumper.represent_scalar(f"{_TAG}str", text, style=None if is_printable(text) else '"')


for _name, _pattern, _first in _SCALARS:
    _RecipeLoader.add_implicit_resolver(_TAG + _name, re.compile(rf"(?:{_pattern})\Z"), _first)
_Dumper.add_representer(ExactFloat, lambda dumper, value: dumper.represent_scalar(f"{_TAG}float", value.text))
_Dumper.add_representer(
    Decimal, lambda dumper, value: dumper.represent_scalar(f"{_TAG}float", decimal_text(value))
)
_Dumper.add_representer(str, _represent_text)
_Dumper.add_multi_representer(tuple, lambda dumper, value: dumper.represent_list(value))


def load(text: str, source: str) -> tuple[Any, RecipePlaces, list[Mistake]]:
    """Parse YAML to data, the line of each key and list item, and mistakes.

    Duplicate keys, tags and the like are left out of the data and reported as mistakes.

    Raises:
        RecipeError: the text isn't YAML.
    """
    if len(text) > MAX_BYTES:
        raise RecipePlaces(source).error(
            [Mistake((), f"{len(text)} characters, more than a recipe may have ({MAX_BYTES})")]
        )
    try:
        node = _compose(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = Mistake((), f"not YAML: {error.problem or error.context}")
        raise RecipePlaces(source, {(): mark.line + 1} if mark else {}).error([problem]) from error
    except yaml.YAMLError as error:  # a character that YAML doesn't allow
        raise RecipePlaces(source).error([Mistake((), f"no YAML: {str(error).splitlines()[0]}")]) from error
    except RecursionError as error:
        raise RecipePlaces(source).error([Mistake((), "is nested too deeply")]) from error
    reading = _NodeWalk()
    data = reading.value(node, ()) if node is not None else None
    return data, RecipePlaces(source, reading.lines), reading.mistakes


def _compose(text: str) -> yaml.Node | None:
    """Compose nodes; raise yaml.YAMLError with the messages of PyYAML's own parser."""
    if len(text) >= LARGE:
        with contextlib.suppress(yaml.YAMLError):
            return yaml.compose(text, _FastLoader)
    return yaml.compose(text, _RecipeLoader)


def dump(data: Any) -> str:
    """Write data as YAML in its own order; `load` gives it back equal. Control characters are escaped."""
    text: str = yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=2**31)
    return printable_lines(text)


def flow(data: Any) -> str:
    """Write data as YAML on one line."""
    text: str = yaml.dump(
        data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=2**31, default_flow_style=True
    )
    return printable(text.removesuffix("\n").removesuffix("\n..."))


class _NodeWalk:
    """A single walk through the composed nodes."""

    def __init__(self) -> None:
        self.lines: dict[Path, int] = {}
        self.mistakes: list[Mistake] = []
        self._count = 0

    def value(self, node: yaml.Node, path: Path) -> Any:
        self._count += 1
        if self._count > MAX_VALUES or len(path) > MAX_DEPTH:
            if self._count <= MAX_VALUES + 1:
                self._refuse(path[:2], f"more than {MAX_VALUES} values or {MAX_DEPTH} levels")
            self._count = max(self._count, MAX_VALUES + 1)
            return None
        if isinstance(node, yaml.MappingNode) and node.tag == f"{_TAG}map":
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode) and node.tag == f"{_TAG}seq":
            items = []
            for i, item in enumerate(node.value):
                self.lines[(*path, i)] = item.start_mark.line + 1
                items.append(self.value(item, (*path, i)))
            return items
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, path)
        return self._refuse(path, f"the tag {node.tag} is not supported in recipes")

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                self._refuse(path, "a key must be text", line)
                continue
            key = key_node.value
            inner = (*path, key)
            if key in result:
                self._refuse(inner, f"duplicate key, in lines {self.lines[inner]} and {line}", line)
                continue
            self.lines[inner] = line
            result[key] = self.value(value_node, inner)
        return result

    def _scalar(self, node: yaml.ScalarNode, path: Path) -> Any:
        text: str = node.value
        kind = node.tag.removeprefix(_TAG)
        if kind in ("str", "value", "merge"):
            return text
        if kind == "null":
            return None
        if kind == "bool" and text.lower() in ("true", "false"):
            return text.lower() == "true"
        if kind in ("int", "float") and len(text) > MAX_NUMBER:
            return self._refuse(path, f"a number of {len(text)} characters")
        try:
            if kind == "int":
                return int(text)
            if kind == "float":
                number = ExactFloat(text)
                return number if abs(number) < float("inf") else self._refuse(path, f"{text} is too large")
        except ValueError:  # a tag written out: !!int "many"
            pass
        return self._refuse(path, f"the tag {node.tag} is not supported in recipes")

    def _refuse(self, path: Path, message: str, line: int | None = None) -> None:
        self.mistakes.append(Mistake(path, message, line))
