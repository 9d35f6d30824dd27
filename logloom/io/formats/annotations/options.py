"""Options of a recipe under `outputs.annotations`.

Here: `Options` and the grammar of values.
Elsewhere: the check that columns fit (mapping), the conversion of rows to data infos (infos).

As a value of a data info, a text is the name of a column; a number, true, false, null or {value: …} is a
constant; a list or a mapping contains such values. Under a key that ends in `_path` a column becomes a file.
"""

from __future__ import annotations

import math
import re
import string
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)

from logloom.io.formats.annotations.files import LOADERS
from logloom.io.storage.metadata import with_text_keys
from logloom.validation import YAML, InvalidPartsError, describe_value

SUFFIXES = ("json", "yaml", "yml", "pkl")
_EXTENSION = re.compile(r"[a-z0-9_]{1,16}")
_MAX_DEPTH = 16


def _file_problem(file: str) -> str | None:
    try:
        parts = [part for part in string.Formatter().parse(file) if part[1] is not None]
    except ValueError as error:
        return f"{file!r} is no template: {error}"
    if not parts or any(
        (name, spec, conversion) != ("split", "", None) for _, name, spec, conversion in parts
    ):
        return f"{file!r}: write {{split}} where the split's name goes, as in annotations/{{split}}.json"
    if any(part in ("", ".", "..") for part in file.split("/")) or not file.isprintable() or "\\" in file:
        return f"{file!r}: a path within the output's folder, without empty or .. parts"
    if file.rpartition(".")[2] not in SUFFIXES:
        return f"{file!r}: annotation files end in {', '.join(f'.{suffix}' for suffix in SUFFIXES)}"
    return None


def _checked_file(file: str) -> str:
    problem = _file_problem(file)
    if problem:
        raise ValueError(problem)
    return file


def _checked_tree(value: Any) -> Any:
    problem = _tree_problem(value, 0)
    if problem:
        raise ValueError(problem)
    return value


def _tree_problem(value: Any, depth: int) -> str | None:
    if depth > _MAX_DEPTH:
        return "is nested too deeply"
    if isinstance(value, Mapping):
        strange = next((key for key in value if not isinstance(key, str)), None)
        if strange is not None:
            return f"keys are texts, got {strange!r}; put it in quotes"
        return next((p for item in value.values() if (p := _tree_problem(item, depth + 1))), None)
    if isinstance(value, list | tuple):
        return next((p for item in value if (p := _tree_problem(item, depth + 1))), None)
    if (
        value is None
        or isinstance(value, str | int | bool)
        or (isinstance(value, float) and math.isfinite(value))
    ):
        return None
    return f"{value!r} is neither a column nor a value of JSON"


def _checked_extensions(value: dict[str, str]) -> dict[str, str]:
    for name, extension in value.items():
        if not _EXTENSION.fullmatch(extension):
            raise ValueError(f"{name}: {extension!r} is no extension, use a-z, 0-9 and _, like jpg")
    return value


def _told_as(expected: str) -> WrapValidator:
    """Give one message for a value that fits none of several types; pydantic has one for each."""

    def check(value: Any, fits: ValidatorFunctionWrapHandler) -> Any:
        try:
            return fits(value)
        except ValidationError:
            raise ValueError(f"expected {expected}, got {describe_value(value, YAML)}") from None

    return WrapValidator(check)


Tree = Annotated[dict[str, Any], AfterValidator(_checked_tree)]
ClassOrNumber = Annotated[str | int, _told_as("the name of a class or its number")]
NumberOrFail = Annotated[int | Literal["fail"], _told_as("a class number, or fail")]


class _AnnotationPart(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class LabelFrom(_AnnotationPart):
    """A class number made from a field.

    Attributes:
        map: the class, its name in `metainfo.classes` or its number, for values of the field.
        unknown: the class number of other values, or "fail".
    """

    from_: str = Field(alias="from")
    map: Annotated[dict[str, ClassOrNumber], BeforeValidator(with_text_keys)] = Field(default_factory=dict)
    unknown: NumberOrFail = "fail"


Labels = dict[str, LabelFrom]
_LABELS = TypeAdapter(Labels)


def _is_mapping(value: Any) -> bool:
    """Whether a value is made of others, and not {value: …}."""
    return isinstance(value, Mapping) and set(value) != {"value"}


class Instances(BaseModel):
    """`instances`: a column of structs, and what each key of an instance is made from.

    A text names a field of the struct, a list of texts several whose numbers go end to end; numbers, true,
    false, null and {value: …} are constants; {from: field, map: …} gives class numbers.
    """

    model_config = ConfigDict(extra="allow", frozen=True, populate_by_name=True)
    __pydantic_extra__: dict[str, Any]

    from_: str = Field(alias="from")

    @model_validator(mode="after")
    def _known_forms(self) -> Instances:
        try:
            labels = self.labels
        except ValidationError as error:
            raise InvalidPartsError(error, Labels) from error
        for key, value in self.__pydantic_extra__.items():
            if key in labels:
                continue
            if isinstance(value, Sequence) and not isinstance(value, str):
                if not value or not all(isinstance(item, str) for item in value):
                    raise ValueError(f"{key}: a list names fields of {self.from_}, as in [x1, y1, x2, y2]")
            else:
                _checked_tree(value)
        return self

    @property
    def labels(self) -> Labels:
        """How class numbers are made, by the keys that have one."""
        given = {key: dict(value) for key, value in self.__pydantic_extra__.items() if _is_mapping(value)}
        return _LABELS.validate_python(given)

    @property
    def keys(self) -> dict[str, Any]:
        """What each key of an instance is made from; labels as `LabelFrom`."""
        return {**self.__pydantic_extra__, **self.labels}


class Options(_AnnotationPart):
    """`outputs.annotations` of a recipe.

    Attributes:
        file: of each split, within the output's folder; .json, .yaml, .yml or .pkl.
        images: keys of the one image, in the data info itself ({img_path: camera.front}), or a
            mapping for each camera, under `images` ({CAM_FRONT: {img_path: camera.front}}).
        lidar_points: keys under `lidar_points`, such as {lidar_path: lidar.points, num_pts_feats: 4}.
        instances: the objects of a row.
        info: further keys of each data info.
        metainfo: copied into the file; `classes` gives class numbers their names.
        ext: extension of a column's files; by default by their content (jpg, png, bin).
    """

    file: Annotated[str, AfterValidator(_checked_file)] = "annotations/{split}.json"
    images: Tree = Field(default_factory=dict)
    lidar_points: Tree = Field(default_factory=dict)
    instances: Instances | None = None
    info: Tree = Field(default_factory=dict)
    metainfo: Tree = Field(default_factory=dict)
    ext: Annotated[dict[str, str], AfterValidator(_checked_extensions)] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _one_kind_of_images(self) -> Options:
        cameras = [_is_mapping(value) for value in self.images.values()]
        if any(cameras) and not all(cameras):
            raise ValueError("images: either keys of one image, or a mapping for each camera, not both")
        twice = [key for key in self.info if key in ("images", "lidar_points", "instances", "data_list")]
        if twice:
            raise ValueError(f"info: {twice[0]} has a key of its own in this output")
        return self

    @property
    def tree(self) -> dict[str, Any]:
        """A whole data info, instances aside."""
        images = dict(self.images)
        if any(map(_is_mapping, images.values())):
            images = {"images": images}
        lidar = {"lidar_points": dict(self.lidar_points)} if self.lidar_points else {}
        return {**self.info, **images, **lidar}

    @property
    def classes(self) -> list[str] | None:
        """The names of the classes, in order; None where none are given."""
        given = self.metainfo.get("classes")
        return [str(name) for name in given] if isinstance(given, list | tuple) else None

    def file_of(self, split: str) -> str:
        """The annotation file of a split.

        Args:
            split: its name.
        """
        return self.file.format(split=split)


assert set(SUFFIXES) <= set(LOADERS)
