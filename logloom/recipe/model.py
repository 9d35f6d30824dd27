"""The recipe: what to build from which logs.

Here: the grammar as pydantic models, which also build a recipe in Python. docs/recipe.md explains every key.
Elsewhere: columns (columns), values such as "50ms" (values), YAML and line numbers (yaml, mistakes), checks
that look at several keys at once (checks), what a recipe means for given logs (logloom.transforms.resolve).
"""

from __future__ import annotations

import os
import re
import string
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PrivateAttr,
    SerializeAsAny,
    Tag,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    model_validator,
)

from logloom.errors import LogloomError, RecipeError, StorageError
from logloom.io.filesystems import filesystem
from logloom.io.logs.base import TimeSource
from logloom.io.units import format_named, format_names
from logloom.recipe import checks, patterns, yaml
from logloom.recipe.columns import Column, ColumnName, Positive, RecipePart, Topic, as_list, text_check
from logloom.recipe.mistakes import Mistake, RecipePlaces, from_pydantic, nearest
from logloom.recipe.values import Delay, LengthOfTime, Percent, Rate, Share, Size, decimal_text
from logloom.uris import chained, is_local, shown

TEMPLATE_NAMES = ("stem", "parent", "path")
MAX_FILE_BYTES = 16 << 20

_LATER = ("keep", "settle")  # keys that came after the first versions
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")


def template_problem(template: str, names: Iterable[str] = TEMPLATE_NAMES) -> str | None:
    """What is wrong with a template such as "{parent}-{stem}"; None if nothing is."""
    known = list(names)
    try:
        parts = list(string.Formatter().parse(template))
    except ValueError as error:
        return f"{template!r} is no template: {error}"
    for _, name, spec, conversion in parts:
        if name is not None and (name not in known or spec or conversion):
            return f"{{{name}}} has no meaning here; there are {', '.join(f'{{{n}}}' for n in known)}"
    return None if template else "is empty"


def name_problem(name: str) -> str | None:
    """What is wrong with the name of a dataset or a split; None if nothing is."""
    return None if _NAME.fullmatch(name) else f"{name!r}: names are made of letters, digits, and . _ -"


def _split_by_problem(by: str) -> str | None:
    return None if by == "log_id" else template_problem(by, ("log_id", *TEMPLATE_NAMES))


def _is_mapping(value: Any) -> str:
    return "<other>" if isinstance(value, Mapping | BaseModel) else "<one>"


Template = Annotated[str, text_check(template_problem)]
Sources = Annotated[tuple[TimeSource, ...], BeforeValidator(as_list), Field(min_length=1)]
Name = Annotated[str, text_check(name_problem)]
Texts = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], BeforeValidator(as_list)]


class LogName(RecipePart):
    """`log_id: {match: <regex>, as: "{car}-{day}"}`: named groups of a regex found in the absolute URI."""

    match: Annotated[str, text_check(patterns.problem)]
    as_: str = Field(alias="as")

    @model_validator(mode="after")
    def _names_its_groups(self) -> Self:
        problem = template_problem(self.as_, [*re.compile(self.match).groupindex, *TEMPLATE_NAMES])
        if problem:
            raise ValueError(f"as: {problem}")
        return self


class LogTable(RecipePart):
    """`logs: {table: drives.parquet, uri: path}`: a table that lists the logs, a row for each file or folder.

    Attributes:
        table: URI of a Parquet, Feather or CSV file.
        uri, log_id, split: columns.
        where: a filter over the table's columns.
    """

    table: Annotated[str, Field(min_length=1)]
    uri: Annotated[str, Field(min_length=1)]
    log_id: Annotated[str, Field(min_length=1)] | None = None
    split: Annotated[str, Field(min_length=1)] | None = None
    where: str = ""


class Time(RecipePart):
    """`time`: which stamp of a message is its message time.

    Attributes:
        by: the first that a topic's messages have.
        max_delay: ns; the furthest a message time may lie from its log time, None for any distance.
        topics: `by` of single topics.
    """

    by: Sources = ("header", "log")
    max_delay: Delay = 1_000_000_000
    topics: dict[Topic, Sources] = Field(default_factory=dict)

    def sources(self, topic: str) -> tuple[TimeSource, ...]:
        return self.topics.get(topic, self.by)


class Clock(RecipePart):
    """`clock`: a rate in Hz, or the topic whose messages make rows."""

    rate: Rate | None = None
    topic: Topic | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.rate is None) == (self.topic is None):
            raise ValueError("write {rate: 10} (Hz) or {topic: /lidar}, one of both")
        return self


class Rows(RecipePart):
    """`rows`: the ticks that become rows: those where `require` is available and `where` holds."""

    require: Texts = ()
    where: str = ""


class Partition(RecipePart):
    """`partition`: the share of a log that one worker builds: ticks, and message bytes by the index."""

    rows: Positive = 1000
    bytes: Size = 512 << 20


class Split(RecipePart):
    """`split`: names and shares, which sum to 1; `by` is what decides, a template of log_id and URI."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Share]

    by: Annotated[str, text_check(_split_by_problem)] = "log_id"

    @property
    def shares(self) -> dict[str, Decimal]:
        return dict(self.__pydantic_extra__)

    @model_validator(mode="after")
    def _sums_to_one(self) -> Self:
        for name in self.shares:
            if problem := name_problem(name):
                raise ValueError(problem)
        total = sum(self.shares.values(), Decimal(0))
        if total != 1:
            raise ValueError(f"the shares sum to {decimal_text(total)}, not to 1")
        return self


class Keep(RecipePart):
    """`keep`: the versions that garbage collection leaves; the newest version always stays.

    A version stays if any of these names it.

    Attributes:
        last: so many of the newest versions.
        daily: the newest version of each of the last so many days that have one.
        tags: "all" versions that have a tag, or "none" for that reason alone.
    """

    last: Positive | None = None
    daily: Positive | None = None
    tags: Literal["all", "none"] = "all"

    @model_validator(mode="after")
    def _says_how_many(self) -> Self:
        if self.last is None and self.daily is None:
            raise ValueError("write {last: 30}, {daily: 14}, or both; without `keep` every version stays")
        return self


class SkipBudget(RecipePart):
    """`on_error: {skip: 1%}`: how many logs at most may be left out."""

    skip: Percent


@dataclass(frozen=True)
class _RecipeText:
    """What is known of the text that a recipe is read from."""

    places: RecipePlaces
    mistakes: list[Mistake]


class Recipe(RecipePart):
    """What to build from which logs.

    `Recipe(name=…, columns={…})`, `Recipe.from_yaml(text)` and `Recipe.load(uri)` make one.

    Raises:
        RecipeError: lists every mistake, with its line where the recipe is a text.
    """

    name: Name
    logs: Annotated[
        Annotated[Texts, Field(min_length=1), Tag("<one>")] | Annotated[LogTable, Tag("<other>")],
        Discriminator(_is_mapping),
    ]
    log_id: Annotated[
        Annotated[Template, Tag("<one>")] | Annotated[LogName, Tag("<other>")], Discriminator(_is_mapping)
    ] = "{stem}"
    time: Time = Time()
    clock: Clock
    columns: Annotated[dict[ColumnName, Column], Field(min_length=1)]
    rows: Rows = Rows()
    partition: Partition = Partition()
    split: Split | None = None
    on_error: Annotated[
        Annotated[Literal["fail", "skip", "salvage"], Tag("<one>")] | Annotated[SkipBudget, Tag("<other>")],
        Discriminator(_is_mapping),
    ] = "fail"
    vanished: Literal["fail", "keep", "drop"] = "fail"
    hash: Literal["ends", "full"] = "ends"
    keep: Keep | None = None
    settle: LengthOfTime | None = None
    outputs: dict[str, SerializeAsAny[BaseModel]] = Field(default_factory=dict)

    _places: RecipePlaces = PrivateAttr(default_factory=RecipePlaces)

    @classmethod
    def from_yaml(cls, text: str, source: str = "recipe.yaml") -> Recipe:
        """Reads a recipe.

        Args:
            source: its name in messages.

        Raises:
            RecipeError: lists every mistake with its line.
        """
        data, places, mistakes = yaml.load(text, source)
        return cls.model_validate(data, context=_RecipeText(places, mistakes), by_alias=True, by_name=False)

    @classmethod
    def load(cls, uri: str, storage_options: Mapping[str, Any] | None = None) -> Recipe:
        """Reads a recipe from a file or any fsspec URI.

        Raises:
            RecipeError: it isn't there, isn't text, or has mistakes.
            StorageError: it can't be read.
        """
        fs, path = filesystem(uri, storage_options)
        source = _short(uri)
        try:
            data: bytes = fs.cat_file(path, start=0, end=MAX_FILE_BYTES)
            return cls.from_yaml(data.decode("utf-8-sig"), source)
        except (FileNotFoundError, IsADirectoryError) as error:
            raise RecipeError(f"{source}: there is no such file") from chained(error)
        except UnicodeDecodeError as error:
            raise RecipeError(f"{source}: is no text (byte {error.start} is no UTF-8)") from error
        except OSError as error:
            raise StorageError(f"{source}: can't be read: {error}") from chained(error)
        except LogloomError:
            raise
        except Exception as error:  # every object store has errors of its own
            raise StorageError(f"{source}: can't be read: {type(error).__name__}: {error}") from chained(
                error
            )

    def to_yaml(self) -> str:
        """The recipe as YAML, without what is default; `from_yaml` gives an equal one."""
        return yaml.dump(self.model_dump(by_alias=True, exclude_defaults=True))

    def identity_json(self) -> dict[str, Any]:
        """The recipe as JSON with every default written out; `Recipe.model_validate` gives an equal one.

        URIs of logs stand in it without their credentials: versions keep it.
        JSON's objects have no order, so the orders that matter stand beside them, under `order`. Keys that
        earlier software doesn't know stand in it only where they say something.
        """
        order = {"columns": list(self.columns), "split": list(self.split.shares) if self.split else []}
        said = {**self.model_dump(mode="json", by_alias=True), "order": order}
        if isinstance(self.logs, LogTable):
            said["logs"]["table"] = shown(self.logs.table)
        else:
            said["logs"] = [shown(uri) for uri in self.logs]
        return {key: value for key, value in said.items() if key not in _LATER or value is not None}

    def output_options(self) -> dict[str, BaseModel]:
        """The options of each output, of its format's own type."""
        return dict(self.outputs)

    @property
    def on_error_mode(self) -> Literal["fail", "skip", "salvage"]:
        return "skip" if isinstance(self.on_error, SkipBudget) else self.on_error

    @property
    def skip_budget(self) -> float:
        """The share of the logs that may be skipped; 0 where there is no such limit."""
        return float(self.on_error.skip) if isinstance(self.on_error, SkipBudget) else 0.0

    @property
    def places(self) -> RecipePlaces:
        """Where the recipe's keys stand in its text."""
        return self._places

    @model_validator(mode="wrap")
    @classmethod
    def _all_mistakes_at_once(
        cls, data: Any, handler: ValidatorFunctionWrapHandler, info: ValidationInfo
    ) -> Recipe:
        if isinstance(data, Recipe):
            return data
        text = info.context if isinstance(info.context, _RecipeText) else _RecipeText(RecipePlaces(), [])
        if not isinstance(data, Mapping):
            what = Mistake((), "a recipe is a mapping: name, logs, clock, columns, outputs")
            raise text.places.error([*text.mistakes, what])
        plain = {str(key): _plain(value) if key != "outputs" else value for key, value in data.items()}
        if info.context is None:
            plain = _in_order(plain)
        outputs, mistakes = _outputs(plain.get("outputs", {}))
        mistakes += [*text.mistakes, *checks.across_keys(plain)]
        try:
            recipe: Recipe = handler({**plain, "outputs": outputs})
        except ValidationError as error:
            mistakes += from_pydantic(error.errors(), cls)
        if mistakes:
            raise text.places.error(mistakes)
        recipe._places = text.places
        return recipe


def _plain(value: Any) -> Any:
    """Parts that were built in Python, as the data they stand for."""
    if isinstance(value, BaseModel):
        return value.model_dump(by_alias=True, exclude_unset=True)
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _in_order(data: dict[str, Any]) -> dict[str, Any]:
    """The data of `identity_json` in the order that it names."""
    orders = data.get("order")
    if not isinstance(orders, Mapping):
        return data
    data = {key: value for key, value in data.items() if key != "order"}
    for key, names in orders.items():
        if isinstance(data.get(key), dict) and isinstance(names, list):
            here = data[key]
            data[key] = {name: here[name] for name in names if name in here} | here
    return data


def _outputs(value: Any) -> tuple[Any, list[Mistake]]:
    """Outputs with their formats' own options; what is wrong is left out and listed."""
    if not isinstance(value, Mapping):
        return value, []
    known = format_names()
    options: dict[str, BaseModel] = {}
    mistakes: list[Mistake] = []
    for name, given in value.items():
        if name not in known:
            mistakes.append(Mistake(("outputs", str(name)), f"no such output{nearest(str(name), known)}"))
            continue
        model = format_named(name).Options
        try:
            options[name] = given if isinstance(given, model) else model.model_validate(given or {})
        except ValidationError as error:
            mistakes += from_pydantic(error.errors(), model, ("outputs", name))
    return options, mistakes


def _short(uri: str) -> str:
    """A local path as people would type it from here."""
    if not is_local(uri):
        return shown(uri)
    path = uri.split("://", 1)[-1]
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative
