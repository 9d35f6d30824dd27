"""Mapping of a recipe's columns to the keys of data infos.

A data info is OpenMMLab's record of a sample: a dict, which may have a list of dicts under `instances`.
Here: `plan_mapping`, which checks that columns fit, and returns an `InfoMapping` (of single values, each a
`Leaf`, and of the keys of instances), or every reason why there is none.
Elsewhere: the options of a recipe (options), applying a mapping to rows (infos).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from logloom.errors import UsageError
from logloom.io.formats.annotations.options import LabelFrom, Options
from logloom.schema import BYTES, STRING, ColumnType, Schema
from logloom.text import near_to
from logloom.values import dataclass

INFO = "data_info"  # the column of a staged unit that holds the infos
FileForm = Literal["bytes", "image", "raw"]
Path = tuple[str | int, ...]


@dataclass(frozen=True)
class Leaf:
    """A value of a data info.

    Attributes:
        path: its keys, from the outermost.
        column: its source; None for a constant.
        file: whether the column becomes a file, whose name the value is.
    """

    path: Path
    column: str | None = None
    value: Any = None
    file: bool = False


@dataclass(frozen=True)
class InstanceKey:
    """A key of an instance.

    Attributes:
        fields: of the struct whose numbers it holds; one alone keeps its shape. None for `value`.
        labels: class numbers by a field's value; None for other keys.
        unknown: the class number of other values; None where they are errors.
    """

    key: str
    fields: tuple[str, ...] = ()
    value: Any = None
    labels: Mapping[str, int] | None = None
    unknown: int | None = None


@dataclass(frozen=True)
class InfoMapping:
    """How rows become data infos. Picklable.

    Attributes:
        files: the form of each column that becomes files.
        instances: the column of structs; None for none.
        num_classes: how many classes the metainfo names, None where it names none.
    """

    leaves: tuple[Leaf, ...]
    files: Mapping[str, FileForm]
    instances: str | None
    fields: tuple[InstanceKey, ...]
    num_classes: int | None
    ext: Mapping[str, str]

    @property
    def schema(self) -> Schema:
        """Of the mapped rows: the info as JSON, and each file's bytes."""
        return Schema({INFO: STRING, **dict.fromkeys(self.files, BYTES)})


def mapping_of(options: Options, schema: Schema) -> InfoMapping:
    """The mapping of options that were checked.

    Raises:
        UsageError: they don't fit the columns.
    """
    mapping, problems = plan_mapping(options, schema)
    if mapping is None:
        raise UsageError("; ".join(problems))
    return mapping


def plan_mapping(options: Options, schema: Schema) -> tuple[InfoMapping | None, list[str]]:
    """The mapping of a recipe, or every reason why there is none, one line each."""
    problems: list[str] = []
    files: dict[str, FileForm] = {}
    leaves: list[Leaf] = []
    for key, node in options.tree.items():
        place = key if key in ("images", "lidar_points") else ("images" if key in options.images else "info")
        shown = place if place == key else f"{place}.{key}"
        leaves += _leaves((key,), node, schema, files, shown, problems)
    fields = _fields(options, schema, problems)
    for name in options.ext:
        if name not in files:
            problems.append(f"ext: column {name!r} becomes no file{near_to(name, files)}")
    if INFO in files:
        problems.append(f"column {INFO!r} can't become files; give it another name")
    if not leaves and options.instances is None:
        problems.append(
            "doesn't define what a data info contains; give images, lidar_points, instances or info"
        )
    if problems:
        return None, problems
    source = options.instances.from_ if options.instances is not None else None
    classes = options.classes
    count = len(classes) if classes is not None else None
    ordered = tuple(sorted(leaves, key=lambda leaf: [str(step) for step in leaf.path]))
    forms = dict(sorted(files.items()))
    return InfoMapping(ordered, forms, source, fields, count, dict(options.ext)), []


# --- values ---------------------------------------------------------------------------------------------


def _leaves(
    path: Path, node: Any, schema: Schema, files: dict[str, FileForm], shown: str, problems: list[str]
) -> list[Leaf]:
    if isinstance(node, Mapping):
        if set(node) == {"value"}:
            return [Leaf(path, value=node["value"])]
        pairs = list(node.items())
        if not pairs:
            return [Leaf(path, value={})]
    elif isinstance(node, list | tuple):
        if not any(isinstance(item, str | Mapping | list | tuple) for item in node):
            return [Leaf(path, value=list(node))]
        pairs = list(enumerate(node))
    elif isinstance(node, str):
        return _column_leaf(path, node, schema, files, shown, problems)
    else:
        return [Leaf(path, value=node)]
    return [
        leaf
        for key, item in pairs
        for leaf in _leaves((*path, key), item, schema, files, f"{shown}.{key}", problems)
    ]


def _column_leaf(
    path: Path, column: str, schema: Schema, files: dict[str, FileForm], shown: str, problems: list[str]
) -> list[Leaf]:
    ctype = schema.columns.get(column) or schema.meta.get(column)
    if ctype is None:
        hint = f"{near_to(column, schema.columns)}; a text itself is written {{value: {column}}}"
        problems.append(f"{shown}: no column {column!r}{hint}")
        return []
    if str(path[-1]).endswith("_path") and ctype.kind != "string":
        form = _file_form(ctype)
        if form is None:
            problems.append(f"{shown}: column {column} is {ctype}, which has no form as a file")
            return []
        files[column] = form
        return [Leaf(path, column, file=True)]
    if ctype.kind == "bytes":
        problems.append(
            f"{shown}: column {column} is bytes, which an annotation file can't store; under a key that ends "
            "in _path, such as img_path, it becomes a file"
        )
        return []
    if not _is_plain(ctype.dtype):
        problems.append(f"{shown}: column {column} is {ctype}, which JSON has no form for")
        return []
    return [Leaf(path, column)]


def _file_form(ctype: ColumnType) -> FileForm | None:
    if ctype.kind == "bytes":
        return "bytes"
    if ctype.kind == "lists":
        return None
    rank, channels = len(ctype.shape), ctype.shape[-1:]
    if ctype.dtype == np.uint8 and (rank == 2 or (rank == 3 and channels[0] in (None, 1, 3, 4))):
        return "image"
    numbers = {ctype.dtype[name] for name in ctype.dtype.names} if ctype.dtype.names else {ctype.dtype}
    # Points of fields of one type are rows of numbers, which readers of .bin files expect.
    return "raw" if len(numbers) == 1 and numbers.pop().base.kind in "biuf" else None


def _is_plain(dtype: np.dtype[Any]) -> bool:
    if dtype.names is not None:
        return all(_is_plain(dtype[name].base) for name in dtype.names)
    return dtype.base.kind in "biufU"


# --- instances ------------------------------------------------------------------------------------------


def _fields(options: Options, schema: Schema, problems: list[str]) -> tuple[InstanceKey, ...]:
    given = options.instances
    if given is None:
        return ()
    ctype = schema.columns.get(given.from_)
    if ctype is None:
        problems.append(f"instances.from: no column {given.from_!r}{near_to(given.from_, schema.columns)}")
        return ()
    if ctype.dtype.names is None or ctype.shape != (None,):
        problems.append(f"instances.from: column {given.from_} is {ctype}, it accepts a list of structs")
        return ()
    fields = []
    for key, value in sorted(given.keys.items()):
        if isinstance(value, str | LabelFrom | list | tuple):
            fields += _field(key, value, given.from_, ctype.dtype, options, problems)
        else:
            constant = value["value"] if isinstance(value, Mapping) else value
            fields.append(InstanceKey(key, value=constant))
    return tuple(fields)


def _field(
    key: str, value: Any, column: str, dtype: np.dtype[Any], options: Options, problems: list[str]
) -> list[InstanceKey]:
    names = (value.from_,) if isinstance(value, LabelFrom) else (value,) if isinstance(value, str) else value
    own = dtype.names or ()
    missing = [name for name in names if name not in own]
    if missing:
        problems += [
            f"instances.{key}: {column} has no field {name!r}{near_to(name, own)}" for name in missing
        ]
        return []
    strange = [name for name in names if not _is_plain(dtype[name].base)]
    texts = [name for name in names if dtype[name].base.kind == "U"]
    if strange or (len(names) > 1 and texts):
        name = (strange or texts)[0]
        problems.append(f"instances.{key}: {column}.{name} is no number")
        return []
    is_label = isinstance(value, LabelFrom) or (
        key.removesuffix("_3d").endswith("label") and isinstance(value, str)
    )
    if not is_label:
        return [InstanceKey(key, tuple(names))]
    return _label_field(key, value, names[0], column, dtype[names[0]], options, problems)


def _label_field(
    key: str, value: Any, name: str, column: str, dtype: np.dtype[Any], options: Options, problems: list[str]
) -> list[InstanceKey]:
    """A class number: a number unchanged, or a text by its position in the metainfo's classes."""
    place = f"instances.{key}"
    classes = options.classes
    if dtype.shape or dtype.kind not in "iuU":
        problems.append(f"{place}: a class is a text or an integer, {column}.{name} is {dtype}")
        return []
    given = dict(value.map) if isinstance(value, LabelFrom) else {}
    if not given and dtype.kind == "U":
        if classes is None:
            problems.append(
                f"{place}: {column}.{name} is text; name the classes in order in metainfo.classes, "
                f"or their numbers: {{from: {name}, map: {{car: 0}}}}"
            )
            return []
        given = {str(name): number for number, name in enumerate(classes)}
    labels: dict[str, int] = {}
    for text, label in given.items():
        if isinstance(label, str):
            if classes is None or label not in classes:
                problems.append(
                    f"{place}: no class {label!r} in metainfo.classes{near_to(label, classes or ())}"
                )
                continue
            label = classes.index(label)
        if classes is not None and not -1 <= label < len(classes):
            problems.append(f"{place}: class {label} of {len(classes)} in metainfo.classes")
            continue
        labels[text] = label
    unknown = value.unknown if isinstance(value, LabelFrom) and value.unknown != "fail" else None
    return [InstanceKey(key, (name,), labels=labels, unknown=unknown)]
