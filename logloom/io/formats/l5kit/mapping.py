"""Mapping of columns to L5Kit's frames, agents and traffic light faces.

Here: `plan_mapping` finds for every field the one source that fits, `RowMapping` applies it to blocks.
Elsewhere: the options of a recipe (options), writing mapped rows (stage).

A field takes what the recipe names for it, else the source field of its own name, else the one remaining
source of its shape, if exactly one field and one source of that shape remain. Where no source has its shape,
those count that can be converted: structs of x, y and z, and a quaternion for a yaw (field_values).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logloom.blocks import Array, Block, Ragged, Values
from logloom.errors import LogReadError, UsageError
from logloom.io.formats.l5kit.dtypes import AGENTS, LABELS, TL_FACE_LABELS, TL_FACES, ArrayKind
from logloom.io.formats.l5kit.field_values import (
    Form,
    form_of,
    numbers_of,
    paths_of,
    type_at,
    values_at,
    yaw_of,
)
from logloom.io.formats.l5kit.options import (
    AgentsFrom,
    FieldFrom,
    FieldSource,
    L5KitOptions,
    OneOrMore,
    TlFacesFrom,
    names_of,
)
from logloom.schema import ColumnType, Schema
from logloom.text import near_to
from logloom.values import dataclass

MAPPED_SCHEMA = Schema(
    {
        "ego_translation": ColumnType(np.dtype("<f8"), (3,), unit="m"),
        "ego_rotation": ColumnType(np.dtype("<f8"), (3, 3)),
        "agents": ColumnType(AGENTS.dtype, (None,)),
        "tl_faces": ColumnType(TL_FACES.dtype, (None,)),
    }
)
# Fields that hold a probability for each label; a class field may fill them.
_LABELLED = {"label_probabilities": LABELS, "traffic_light_face_status": TL_FACE_LABELS}
_UNKNOWN = {"label_probabilities": "PERCEPTION_LABEL_UNKNOWN", "traffic_light_face_status": "UNKNOWN"}
_EXAMPLE = {"label_probabilities": "PERCEPTION_LABEL_CAR", "traffic_light_face_status": "ACTIVE"}


@dataclass(frozen=True)
class FieldRule:
    """One field of a row of an array.

    Attributes:
        sources: dotted paths of the struct, whose numbers belong together.
        form: how they fill the field.
        labels: the label's index for each text of a class field; None where values are copied.
    """

    target: str
    sources: tuple[str, ...]
    form: Form = "values"
    labels: Mapping[str, int] | None = None


@dataclass(frozen=True)
class ArrayRules:
    """The mapping of a column's structs to rows of an array."""

    kind: ArrayKind
    column: str
    fields: tuple[FieldRule, ...]


@dataclass(frozen=True)
class EgoRule:
    """The columns whose numbers, next to each other, are the vehicle's position or rotation.

    Attributes:
        sources: each a column and a dotted path in its structs, "" for the column itself.
        width: how many numbers.
    """

    sources: tuple[tuple[str, str], ...]
    width: int

    def numbers(self, block: Block) -> NDArray[np.float64]:
        """Return the numbers of each row, (n, width)."""
        parts = []
        for name, path in self.sources:
            column = np.asarray(block.columns[name])
            values = values_at(column, path) if path else column
            parts.append(values.reshape(len(block), -1) if values.dtype.names is None else values)
        return numbers_of(parts).astype(np.float64)


@dataclass(frozen=True)
class RowMapping:
    """The mapping of a block to rows of L5Kit. Picklable."""

    translation: EgoRule
    rotation: EgoRule
    agents: ArrayRules | None
    tl_faces: ArrayRules | None

    @property
    def columns(self) -> list[str]:
        """The columns that it needs."""
        structs = [rules.column for rules in (self.agents, self.tl_faces) if rules is not None]
        ego = [name for name, _ in (*self.translation.sources, *self.rotation.sources)]
        return list(dict.fromkeys([*ego, *structs]))

    def apply(self, block: Block) -> dict[str, Values]:
        """The block's rows with the columns of `MAPPED_SCHEMA` and `timestamp`.

        Raises:
            LogReadError: a value doesn't fit its field; names log, partition, field and value.
        """
        place = f"{block.log_id} {block.partition}"
        n = len(block)
        rotation = self.rotation.numbers(block)
        if self.rotation.width == 4:
            rotation = matrix_from_quaternion(rotation, place)
        return {
            "timestamp": block.timestamp,
            "ego_translation": self.translation.numbers(block),
            "ego_rotation": rotation.reshape(n, 3, 3),
            "agents": map_structs(self.agents, AGENTS, block, place),
            "tl_faces": map_structs(self.tl_faces, TL_FACES, block, place),
        }


def map_structs(rules: ArrayRules | None, kind: ArrayKind, block: Block, place: str) -> Ragged:
    """Map the structs of a block to rows of an array; without rules there are none.

    Raises:
        LogReadError: a value doesn't fit its field; `place` names log and partition.
    """
    if rules is None:
        return Ragged(np.empty(0, kind.dtype), np.zeros(len(block), np.int64))
    column = block.columns[rules.column]
    assert isinstance(column, Ragged)
    rows = np.empty(len(column.values), kind.dtype)
    for rule in rules.fields:
        parts = [values_at(column.values, path) for path in rule.sources]
        values = parts[0]
        if rule.labels is None:
            target = kind.dtype[rule.target]
            what = f"{place}: {rules.column}.{' and '.join(rule.sources)} for l5kit's {rule.target}"
            if rule.form == "numbers":
                values = numbers_of(parts)[:, : target.shape[0]]
            elif rule.form == "yaw":
                values = yaw_of(numbers_of(parts), what)
            rows[rule.target] = cast(values, target.base, what)
        else:
            labels, unknown = _LABELLED[rule.target], _UNKNOWN[rule.target]
            rows[rule.target] = one_hot(values, rule.labels, labels.index(unknown), len(labels))
    return Ragged(rows, column.shapes)


def matrix_from_quaternion(quaternions: NDArray[np.float64], place: str) -> NDArray[np.float64]:
    """Rotation matrices of quaternions (x, y, z, w) of any length but zero; NaN where a row has none.

    Args:
        quaternions: (N, 4); all NaN where no message was usable.
        place: log and partition, for errors.

    Returns:
        (N, 3, 3), row-major; column vectors are rotated.

    Raises:
        LogReadError: a quaternion is no rotation.
    """
    from logloom.io.logs.messages.adapters import rotation_matrix

    matrices = np.full((len(quaternions), 3, 3), np.nan)
    there = ~np.isnan(quaternions).all(axis=1)
    try:
        matrices[there] = rotation_matrix(quaternions[there])
    except ValueError as error:
        raise LogReadError(f"{place}: l5kit's ego_rotation: {error}") from error
    return matrices


def one_hot(values: Array, labels: Mapping[str, int], unknown: int, width: int) -> NDArray[np.float32]:
    """(N, width) with 1 at each value's label, at `unknown` for values without one."""
    classes, inverse = np.unique(values, return_inverse=True)
    index = np.array([labels.get(str(value), unknown) for value in classes.tolist()], np.intp)
    return np.eye(width, dtype=np.float32)[index[inverse]]


def cast(values: Array, dtype: np.dtype[Any], what: str) -> Array:
    """The values as another type: to integers half to even, integers to text in decimal.

    Raises:
        LogReadError: a value doesn't fit.
    """
    if dtype.kind == "U":
        text = values if values.dtype.kind == "U" else values.astype("U21")
        lengths = np.char.str_len(text)
        if lengths.size and lengths.max() > dtype.itemsize // 4:
            worst = text.flat[int(lengths.argmax())]
            raise LogReadError(f"{what}: {str(worst)!r} is longer than {dtype.itemsize // 4} characters")
        return text.astype(dtype)
    if dtype.kind in "iu" and values.size:
        if values.dtype.kind == "f":
            values = np.rint(values)
        limits = np.iinfo(dtype)
        low, high = values.min().item(), values.max().item()
        if not (low >= limits.min and high <= limits.max):  # NaN fits nowhere
            worst = high if low >= limits.min else low
            raise LogReadError(f"{what}: {worst} doesn't fit {dtype}")
    with np.errstate(over="ignore", invalid="ignore"):
        return values.astype(dtype)


# --- planning -------------------------------------------------------------------------------------------


def plan_mapping(options: L5KitOptions, schema: Schema) -> tuple[RowMapping | None, list[str]]:
    """The mapping of a recipe, or every reason why there is none, one line each."""
    problems: list[str] = []
    translation = _ego_rule("translation", options.translation, schema, [(3,)], problems)
    rotation = _ego_rule("rotation", options.rotation, schema, [(3, 3), (9,), (4,)], problems)
    agents = _array_rules("agents", AGENTS, options.agents, schema, problems)
    tl_faces = _array_rules("tl_faces", TL_FACES, options.tl_faces, schema, problems)
    if problems or translation is None or rotation is None:
        return None, problems
    return RowMapping(translation, rotation, agents, tl_faces), []


def mapping_of(options: L5KitOptions, schema: Schema) -> RowMapping:
    """The mapping of a recipe that was checked.

    Raises:
        UsageError: it has none.
    """
    mapping, problems = plan_mapping(options, schema)
    if mapping is None:
        raise UsageError("; ".join(problems))
    return mapping


def _find_column(key: str, name: str, schema: Schema, problems: list[str]) -> ColumnType | None:
    found = schema.columns.get(name)
    if found is None:
        problems.append(f"{key}: no column {name!r}{near_to(name, schema.columns)}")
    return found


def _ego_rule(
    key: str, given: OneOrMore, schema: Schema, shapes: Sequence[tuple[int, ...]], problems: list[str]
) -> EgoRule | None:
    names, sources, types = names_of(given), [], []
    for name in names:
        # The longest name of a column, then a path in its structs.
        ends = [len(name), *(i for i in reversed(range(len(name))) if name[i] == ".")]
        column = next((name[:end] for end in ends if name[:end] in schema.columns), name)
        ctype = _find_column(key, column, schema, problems)
        if ctype is None:
            return None
        path = name[len(column) + 1 :]
        dtype = np.dtype((ctype.dtype, ctype.tail))
        found = type_at(dtype, path) if path else dtype
        if found is None:
            paths = [f"{column}.{inner}" for inner in paths_of(dtype)]
            problems.append(f"{key}: {column} is {ctype} without {path!r}{near_to(name, paths)}")
            return None
        if ctype.is_ragged or ctype.kind != "array":
            found = np.dtype("U")  # which fills no field of numbers
        sources.append((column, path))
        types.append(found)
    for shape in shapes:
        if form_of(np.dtype((np.float64, shape)), types):
            return EgoRule(tuple(sources), math.prod(shape))
    wanted = " or ".join(str(list(shape)) for shape in shapes)
    if len(sources) == 1 and not sources[0][1]:
        what = f"column {names[0]} is {schema.columns[names[0]]}"
    else:
        what = " and ".join(f"{n} is {_type_name(t)}" for n, t in zip(names, types, strict=True))
    problems.append(f"{key}: {what}, it accepts numbers of shape {wanted}")
    return None


def _array_rules(
    key: str,
    kind: ArrayKind,
    source: str | AgentsFrom | TlFacesFrom | None,
    schema: Schema,
    problems: list[str],
) -> ArrayRules | None:
    if source is None:
        return None
    column = source if isinstance(source, str) else source.column
    ctype = _find_column(key, column, schema, problems)
    if ctype is None:
        return None
    if ctype.dtype.names is None or ctype.shape != (None,):
        problems.append(f"{key}: column {column} is {ctype}, it accepts a list of structs (struct[?])")
        return None
    named = {} if isinstance(source, str) else source.model_dump(exclude={"column"}, exclude_none=True)
    explicit: dict[str, FieldSource] = {target: getattr(source, target) for target in named}
    rules = _explicit_rules(key, kind, column, ctype.dtype, explicit, problems)
    rules += _found_rules(key, kind, column, ctype.dtype, rules, set(explicit), problems)
    return ArrayRules(kind, column, tuple(rules))


def _explicit_rules(
    key: str,
    kind: ArrayKind,
    column: str,
    dtype: np.dtype[Any],
    explicit: Mapping[str, FieldSource],
    problems: list[str],
) -> list[FieldRule]:
    rules = []
    for target, given in explicit.items():
        source, labels = (given.from_, given.map) if isinstance(given, FieldFrom) else (given, None)
        names = names_of(source)
        types = {name: type_at(dtype, name) for name in names}
        found = [one for one in types.values() if one is not None]
        if len(found) < len(types):
            problems += [
                f"{key}.{target}: {column} has no field {name!r}{near_to(name, _choice(dtype, name))}"
                for name, one in types.items()
                if one is None
            ]
        elif labels is not None:
            lines = _label_problems(target, labels, names, found[0])
            problems += [f"{key}.{target}: {line}" for line in lines]
            if not lines:
                index = {text: _LABELLED[target].index(label) for text, label in labels.items()}
                rules.append(FieldRule(target, names, labels=index))
        elif form := form_of(kind.dtype[target], found, target == "yaw", is_named=True):
            rules.append(FieldRule(target, names, form))
        else:
            problems.append(f"{key}.{target}: {_mismatch(kind, target, column, types)}")
    return rules


def _choice(dtype: np.dtype[Any], name: str) -> Sequence[str]:
    return paths_of(dtype) if "." in name else dtype.names or ()


def _label_problems(
    target: str, given: Mapping[str, str], names: Sequence[str], source: np.dtype[Any]
) -> list[str]:
    if target not in _LABELLED:
        return [f"map returns labels, and only {' and '.join(_LABELLED)} accept these"]
    if len(names) > 1:
        return [f"map accepts one field, not {' and '.join(names)}"]
    if source.kind not in "iuU":
        return [f"map needs a class of text or integers, got {source}"]
    labels = _LABELLED[target]
    return [f"no label {label!r}{near_to(label, labels)}" for label in given.values() if label not in labels]


def _found_rules(
    key: str,
    kind: ArrayKind,
    column: str,
    dtype: np.dtype[Any],
    explicit: Sequence[FieldRule],
    named: set[str],
    problems: list[str],
) -> list[FieldRule]:
    """Rules for the fields that the recipe doesn't name: by name, then by shape."""
    sources = {name: dtype[name] for name in dtype.names or ()}
    rules = []
    left = [target for target in kind.dtype.names or () if target not in named]
    for target in [target for target in left if target in sources]:
        left.remove(target)
        if form := form_of(kind.dtype[target], [sources[target]], target == "yaw", is_named=True):
            rules.append(FieldRule(target, (target,), form))
        else:
            problems.append(f"{key}.{target}: {_mismatch(kind, target, column, {target: sources[target]})}")
    used = {name for rule in [*explicit, *rules] for name in rule.sources}
    spare = [name for name in sources if name not in used]
    forms = {
        (target, name): form_of(kind.dtype[target], [sources[name]], target == "yaw")
        for target in left
        for name in spare
    }
    for target in left:
        plain = [name for name in spare if forms[target, name] == "values"]
        fitting = plain or [name for name in spare if forms[target, name]]
        rivals = [other for other in left if any(forms[other, name] for name in fitting)]
        if plain:
            rivals = [other for other in left if any(forms[other, name] == "values" for name in fitting)]
        if len(fitting) == 1 and rivals == [target]:
            rules.append(FieldRule(target, (fitting[0],), forms[target, fitting[0]] or "values"))
            continue
        why = f"{' and '.join(fitting)} fit {' and '.join(rivals)}" if fitting else "no field left there fits"
        problems.append(
            f"{key}.{target}: accepts {_type_name(kind.dtype[target])}; {why} in {column} "
            f"({', '.join(sources)}). Name its source: {_line_for(target, spare, sources)}"
        )
    return rules


def _line_for(target: str, spare: Sequence[str], sources: Mapping[str, np.dtype[Any]]) -> str:
    """Return the line of a recipe that names the source of a field."""
    texts = [name for name in spare if sources[name].kind == "U"] or [
        name for name in spare if sources[name].kind in "iu"
    ]
    if target in _LABELLED and texts:
        return f"{target}: {{from: {texts[0]}, map: {{<value>: {_EXAMPLE[target]}}}}}"
    return f"{target}: <field>"


def _mismatch(kind: ArrayKind, target: str, column: str, sources: Mapping[str, np.dtype[Any] | None]) -> str:
    found = " and ".join(f"{column}.{name} is {_type_name(one)}" for name, one in sources.items() if one)
    also = ", or a quaternion (x, y, z, w)" if target == "yaw" else ""
    return f"{found}, it accepts {_type_name(kind.dtype[target])}{also}"


def _type_name(dtype: np.dtype[Any]) -> str:
    name = f"struct of {', '.join(dtype.base.names)}" if dtype.base.names else str(dtype.base)
    name = "text" if dtype.base.kind == "U" else name
    return f"{name}{list(dtype.shape)}" if dtype.shape else name
