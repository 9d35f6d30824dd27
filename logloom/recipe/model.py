"""The recipe: a model of what to build from which logs.

Here: the recipe as a pydantic model, also for recipes made in Python. docs/recipe.md explains every key.
Elsewhere: its parts (sections), columns (columns), values such as "50ms" (values), YAML and line numbers
(yaml, mistakes), checks that look at several keys at once (checks), applying a recipe to given logs
(logloom.transforms.rows.plan.resolve).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    Field,
    PrivateAttr,
    SerializeAsAny,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    model_validator,
)

from logloom.errors import RecipeError, UsageError
from logloom.io.formats.registry import format_named
from logloom.io.storage.faults import MISSING
from logloom.io.storage.filesystems import contents
from logloom.io.storage.missing_paths import missing_words
from logloom.io.storage.store import Store
from logloom.recipe import checks, yaml
from logloom.recipe.alternatives import KEY as ALTERNATIVES
from logloom.recipe.alternatives import OtherNames, in_any, with_first_names
from logloom.recipe.calibration import expanded
from logloom.recipe.columns import Column, ColumnName, LabelColumn, RecipePart
from logloom.recipe.mistakes import Mistake, RecipePlaces, from_pydantic
from logloom.recipe.sections import (
    Clock,
    Keep,
    LogName,
    LogTable,
    Name,
    Partition,
    Rows,
    SkipBudget,
    Split,
    Template,
    Texts,
    Time,
)
from logloom.recipe.table_entries import TableEntry
from logloom.recipe.values import Settling
from logloom.row_splits import RowSplit
from logloom.uris import chained, is_local, path_of, shown
from logloom.validation import OneOrKeys
from logloom.values import dataclass

MAX_FILE_BYTES = 16 << 20


@dataclass(frozen=True)
class _RecipeText:
    """The text of a recipe that was read from one."""

    places: RecipePlaces
    mistakes: list[Mistake]


class Recipe(RecipePart):
    """What to build from which logs.

    `Recipe(name=…, columns={…})`, `Recipe.from_yaml(text)` and `Recipe.load(uri)` make one.

    Raises:
        RecipeError: lists every mistake, with its line if the recipe is text.

    Examples:
        >>> recipe = Recipe(
        ...     name="small",
        ...     logs=["drive.mcap"],
        ...     clock={"rate": 10},
        ...     columns={"speed": {"topic": "/can", "field": "speed", "tolerance": "50ms"}},
        ...     outputs={"tar": {}},
        ... )
        >>> Recipe.from_yaml(recipe.to_yaml()) == recipe
        True
        >>> Recipe.from_yaml(recipe.to_yaml().replace("clock", "clok"))
        Traceback (most recent call last):
        logloom.errors.RecipeError: recipe.yaml: clock: is missing
        recipe.yaml:4: clok: unknown key; did you mean clock?
    """

    name: Name
    logs: OneOrKeys[Annotated[Texts, Field(min_length=1)], LogTable]
    log_id: OneOrKeys[Template, LogName] = "{stem}"
    time: Time = Field(default_factory=Time)
    clock: Clock
    columns: Annotated[dict[ColumnName, Column], Field(min_length=1)]
    rows: Rows = Field(default_factory=Rows)
    partition: Partition = Field(default_factory=Partition)
    split: Split | None = None
    on_error: OneOrKeys[Literal["fail", "skip", "salvage"], SkipBudget] = "fail"
    vanished: Literal["fail", "keep", "drop"] = "fail"
    shortened: Literal["fail", "keep", "build"] = "fail"
    duplicates: Literal["warn", "fail", "keep_first"] = "warn"
    hash: Literal["ends", "full"] = "ends"
    keep: Keep | None = None
    settle: Settling | None = None
    tables: tuple[TableEntry, ...] = ()
    alternatives: OtherNames = Field(default_factory=OtherNames)
    outputs: dict[str, SerializeAsAny[BaseModel]] = Field(default_factory=dict)

    _places: RecipePlaces = PrivateAttr(default_factory=RecipePlaces)

    @classmethod
    def from_yaml(cls, text: str, source: str = "recipe.yaml") -> Recipe:
        """Reads a recipe.

        Args:
            text: of the recipe.
            source: its name in messages.

        Returns:
            The recipe, checked except for what depends on the logs.

        Raises:
            RecipeError: lists every mistake with its line.
        """
        data, places, mistakes = yaml.load(text, source)
        return cls.model_validate(data, context=_RecipeText(places, mistakes), by_alias=True, by_name=False)

    @classmethod
    def load(cls, uri: str, storage_options: Mapping[str, Any] | None = None) -> Recipe:
        """Reads a recipe from a file or any fsspec URI.

        Args:
            uri: of the file.
            storage_options: fsspec options by protocol: {"gs": {"token": "anon"}}.

        Returns:
            The recipe, as `from_yaml` gives it.

        Raises:
            RecipeError: the file doesn't exist, isn't text, or has mistakes.
            StorageError: it can't be read.
        """
        source = _short(uri)
        try:
            data = contents(uri, storage_options, MAX_FILE_BYTES)
            return cls.from_yaml(data.decode("utf-8-sig"), source)
        except MISSING as error:
            problem = missing_words(Store.at(uri, storage_options)) or "is a folder; give a recipe's file"
            raise RecipeError(f"{source}: {problem}") from chained(error)
        except UnicodeDecodeError as error:
            raise RecipeError(f"{source}: not a text file (byte {error.start} is not UTF-8)") from error

    def to_yaml(self) -> str:
        """Return the recipe as YAML without defaults; `from_yaml` gives an equal one."""
        data = self.model_dump(by_alias=True, exclude_defaults=True)
        data["columns"] = {name: in_any(own, self.alternatives) for name, own in data["columns"].items()}
        return yaml.dump(data)

    def _repr_html_(self) -> str:
        """HTML for notebooks."""
        from logloom.markup import preformatted

        return preformatted(f"Recipe {self.name}", self.to_yaml())

    def identity_json(self) -> dict[str, Any]:
        """Return the recipe as JSON with defaults; `Recipe.model_validate` gives an equal one.

        URIs of logs have no credentials, as versions store it. JSON objects are unordered, so relevant orders
        are stored separately, under `order`.
        """
        order = {"columns": list(self.columns), "split": self.split.names if self.split else []}
        data = {**self.model_dump(mode="json", by_alias=True), "order": order}
        if self.alternatives == OtherNames():
            del data[ALTERNATIVES]
        if isinstance(self.logs, LogTable):
            data["logs"]["table"] = shown(self.logs.table)
        else:
            data["logs"] = [shown(uri) for uri in self.logs]
        for name, column in self.label_columns.items():
            data["columns"][name]["table"] = shown(column.table)
        return data

    @property
    def label_columns(self) -> dict[str, LabelColumn]:
        """The columns of labels."""
        return {name: column for name, column in self.columns.items() if isinstance(column, LabelColumn)}

    @property
    def row_split(self) -> RowSplit | None:
        """How to split single rows; None if whole logs are split, or nothing."""
        return None if self.split is None else self.split.of_rows

    def output_options(self) -> dict[str, BaseModel]:
        """Options of each output, of its format's own type."""
        return dict(self.outputs)

    @property
    def on_error_mode(self) -> Literal["fail", "skip", "salvage"]:
        return "skip" if isinstance(self.on_error, SkipBudget) else self.on_error

    @property
    def skip_budget(self) -> float:
        """The share of the logs that may be skipped; 0 without a limit."""
        return float(self.on_error.skip) if isinstance(self.on_error, SkipBudget) else 0.0

    @property
    def places(self) -> RecipePlaces:
        """Lines of the recipe's keys in its text."""
        return self._places

    def with_logs(self, uris: Iterable[str], option: str) -> Recipe:
        """Return the recipe with other `logs`.

        Args:
            uris: of the logs; globs are allowed.
            option: option of a command that provides them, for messages.

        Returns:
            A copy.
        """
        made = self.model_copy(update={"logs": tuple(uris)})
        made._places = replace(self._places, options={("logs",): option})
        return made

    @model_validator(mode="wrap")
    @classmethod
    def _all_mistakes_at_once(
        cls, data: Any, handler: ValidatorFunctionWrapHandler, info: ValidationInfo
    ) -> Recipe:
        if isinstance(data, Recipe):
            return data
        text = info.context if isinstance(info.context, _RecipeText) else _RecipeText(RecipePlaces(), [])
        if not isinstance(data, Mapping):
            what = Mistake((), "expected a mapping with name, logs, clock, columns and outputs")
            raise text.places.error([*text.mistakes, what])
        plain = {str(key): _plain(value) if key != "outputs" else value for key, value in data.items()}
        if info.context is None:
            plain = _in_order(plain)
        plain, of_names = with_first_names(plain)
        plain = checks.with_matched(plain)
        outputs, mistakes = _outputs(plain.get("outputs", {}), plain.get("logs"))
        columns, origins, wrong = expanded(plain.get("columns"))
        if "columns" in plain:
            plain["columns"] = columns
        places = replace(text.places, origins=origins)
        mistakes += [*text.mistakes, *wrong, *of_names, *checks.across_keys(plain)]
        try:
            recipe: Recipe = handler({**plain, "outputs": outputs})
        except ValidationError as error:
            mistakes += from_pydantic(error.errors(), cls)
        if mistakes:
            raise places.error(mistakes)
        recipe._places = places
        return recipe


def _plain(value: Any) -> Any:
    """Convert parts that were built in Python to plain data."""
    if isinstance(value, BaseModel):
        return value.model_dump(by_alias=True, exclude_unset=True)
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _in_order(data: dict[str, Any]) -> dict[str, Any]:
    """Order the data of `identity_json` as it specifies."""
    orders = data.get("order")
    if not isinstance(orders, Mapping):
        return data
    data = {key: value for key, value in data.items() if key != "order"}
    for key, names in orders.items():
        if isinstance(data.get(key), dict) and isinstance(names, list):
            here = data[key]
            data[key] = {name: here[name] for name in names if isinstance(name, str) and name in here} | here
    return data


def _outputs(value: Any, logs: Any) -> tuple[Any, list[Mistake]]:
    """Parse outputs with their formats' own options; wrong ones are left out and reported.

    Args:
        logs: of the same recipe.
    """
    if not isinstance(value, Mapping):
        return value, []
    options: dict[str, BaseModel] = {}
    mistakes: list[Mistake] = []
    for name, given in value.items():
        try:
            form = format_named(str(name))
        except UsageError as error:
            mistakes.append(Mistake(("outputs", str(name)), str(error)))
            continue
        model = form.Options
        try:
            options[name] = given if isinstance(given, model) else model.model_validate(given or {})
            if form.takes_for_option and isinstance(logs, Mapping) and logs.get(form.takes):
                options[name] = options[name].model_copy(update={form.takes: ""})  # the table says it
        except ValidationError as error:
            mistakes += from_pydantic(error.errors(), model, ("outputs", name))
    return options, mistakes


def _short(uri: str) -> str:
    """Shorten a local path relative to the working folder."""
    if not is_local(uri):
        return shown(uri)
    path = path_of(uri)
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative
