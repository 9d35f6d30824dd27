"""Mistakes in a recipe: their place and a description in plain words.

Here: `Mistake`, `RecipePlaces` (the lines of a recipe's keys), the error that lists them all, nearest names.
Elsewhere: finding them (model, checks, logloom.transforms.rows.plan.resolve), words for values
(logloom.validation).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel

from logloom.errors import RecipeError
from logloom.text import near_to
from logloom.validation import YAML, InvalidPartsError, Path, describe, describe_value, dotted
from logloom.values import dataclass

MAX_LISTED = 100
# Steps that pydantic adds to a path: the chosen member of a union, the key of a mapping.
PYDANTIC_STEPS = frozenset({"<one>", "<other>", "<third>", "<fourth>", "[key]"})


@dataclass(frozen=True)
class Mistake:
    """A mistake at the key `path`; its line is that of the key unless `line` is given."""

    path: Path
    message: str
    line: int | None = None


@dataclass(frozen=True)
class RecipePlaces:
    """Lines of a recipe's keys; not part of its content, so ignored in comparisons.

    Attributes:
        source: the recipe's name in messages.
        lines: the line of each key and list item, from 1; empty for a recipe made in Python.
        origins: of keys that replace other keys, the replaced ones.
        options: options of a command that replace keys: {("logs",): "--log"}.
    """

    source: str = field(default="recipe", compare=False)
    lines: Mapping[Path, int] = field(default_factory=dict, compare=False)
    origins: Mapping[Path, Path] = field(default_factory=dict, compare=False)
    options: Mapping[Path, str] = field(default_factory=dict, compare=False)

    def line(self, path: Path) -> int | None:
        """Return the line of a key, or of its nearest known ancestor."""
        return next((self.lines[path[:n]] for n in range(len(path), -1, -1) if path[:n] in self.lines), None)

    def written(self, mistake: Mistake) -> Mistake:
        """Return the mistake with the key as written in the recipe."""
        path = mistake.path
        there = next((n for n in range(len(path), 0, -1) if path[:n] in self.origins), 0)
        return replace(mistake, path=(*self.origins[path[:there]], *path[there:])) if there else mistake

    def sentence(self, mistake: Mistake) -> str:
        """Format a mistake, as `recipe.yaml:12: columns.speed.tolerence: unknown key; did you mean
        tolerance?`
        """
        if option := self.options.get(mistake.path[:1]):
            return f"{option}: {mistake.message}"
        line = mistake.line or self.line(mistake.path)
        where = f"{self.source}:{line}" if line is not None else self.source
        return f"{where}: {dotted(mistake.path)}{': ' if mistake.path else ''}{mistake.message}"

    def error(self, mistakes: Iterable[Mistake]) -> RecipeError:
        """Combine all mistakes into one error, ordered by line."""

        def place(mistake: Mistake) -> tuple[int, list[str], str]:
            line = mistake.line or self.line(mistake.path) or 0
            return line, [str(step) for step in mistake.path], mistake.message

        once = sorted({self.written(mistake) for mistake in mistakes}, key=place)
        lines = [self.sentence(mistake) for mistake in once[:MAX_LISTED]]
        if len(once) > MAX_LISTED:
            lines.append(f"{self.source}: and {len(once) - MAX_LISTED} more")
        return RecipeError("\n".join(lines))


def texts_in(value: Any) -> list[str]:
    """Return the texts of a key that takes one or a list of them; other values are reported elsewhere."""
    values = [value] if isinstance(value, str) else value if isinstance(value, list | tuple) else []
    return [item for item in values if isinstance(item, str)]


def from_pydantic(errors: Iterable[Any], model: Any, prefix: Path = ()) -> Iterator[Mistake]:
    """Convert pydantic's errors to mistakes in plain words.

    Args:
        errors: `ValidationError.errors()`.
        model: the class or type that was validated; defines the known keys.
        prefix: path of the validated value in the recipe.
    """
    found = list(errors)
    for error in found:
        loc = error["loc"]
        if error["type"] == "too_short" and any(
            other["loc"][: len(loc)] == loc != other["loc"] for other in found
        ):
            continue  # it is only without its wrong items, which are reported
        last = len(loc) - 1 if error["type"] == "extra_forbidden" else len(loc)  # a key of the user's own
        steps = tuple(step for i, step in enumerate(loc) if i >= last or step not in PYDANTIC_STEPS)
        parts = error.get("ctx", {}).get("error")
        if isinstance(parts, InvalidPartsError):
            yield from from_pydantic(parts.found.errors(), parts.model, prefix + steps)
        else:
            yield Mistake(prefix + steps, _plain_words(error, model, steps))


def _plain_words(error: Any, model: Any, steps: Path) -> str:
    kind, value = error["type"], error["input"]
    if kind == "extra_forbidden":
        name, known = str(steps[-1]), _keys(model, steps[:-1])
        under = [f"`{key}`" for key in dict.fromkeys(known) if name in _keys(model, (*steps[:-1], key))]
        if under:
            return f"unknown key{_our_key(name, steps) or '; it belongs under ' + ' or '.join(under)}"
        return f"unknown key{_our_key(name, steps) or near_to(name, known)}"
    if kind == "literal_error":
        known = [word.strip("'") for word in error["ctx"]["expected"].replace(" or ", ", ").split(", ")]
        return _no_choice(value, known, _keys(model, steps))
    return describe(error, YAML)


def _our_key(name: str, steps: Path) -> str:
    """Return what a key of other tools is here; see `logloom.familiar_names`."""
    from logloom.familiar_names import CLOCK_KEYS, COLUMN_KEYS, KEYS, TIME_KEYS, ours

    tables = {("columns", 3): COLUMN_KEYS, ("clock", 2): CLOCK_KEYS, ("time", 2): TIME_KEYS, (name, 1): KEYS}
    return ours(name, tables.get((str(steps[0]), len(steps)), {}))


def _no_choice(value: Any, known: Sequence[str], keys: Sequence[str]) -> str:
    """Explain that a value is none of the known choices.

    Args:
        keys: of the mapping that is allowed instead of a choice, if any.
    """
    got, listed = describe_value(value, YAML), ", ".join(known)
    either = f"{listed}, or a mapping of {', '.join(keys)}"
    if not isinstance(value, str):
        return f"expected {either if keys else f'one of {listed}'}, got {got}"
    hint = near_to(value, known)
    if keys and "did you mean" not in hint:
        hint = f"; write {either}"
    return f"no such choice as {got}{hint}"


def _keys(model: Any, steps: Sequence[str | int]) -> list[str]:
    """Return the keys that the model at these steps takes."""
    if get_origin(model) is Annotated:
        return _keys(get_args(model)[0], steps)
    if get_origin(model) in (Union, UnionType):
        return [key for member in get_args(model) for key in _keys(member, steps)]
    if isinstance(model, type) and issubclass(model, BaseModel):
        fields = {info.alias or name: info for name, info in model.model_fields.items()}
        if not steps:
            return list(fields)
        info = fields.get(str(steps[0]))
        return _keys(info.annotation, steps[1:]) if info is not None else []
    inner = [member for member in get_args(model) if member is not Ellipsis]
    return _keys(inner[-1], steps[1:]) if inner and steps else []
