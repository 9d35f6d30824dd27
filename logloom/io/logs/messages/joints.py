"""The adapter `joints`: values of joints by name, in the order of a recipe.

Here: finding the names that belong to a field, the type of the column, and values of messages.
Elsewhere: other adapters (adapters), reading fields (each decoder).

A message states its joints by a list of names, `name` or `joint_names`, beside the field or in a message
around it; the field has one item for each of them: a number, or a sub-message of numbers, such as a
transform. Elements of a list may also have a name each (`joints[].position`), or a list of named interfaces
(`interface_values.position` of control_msgs/DynamicJointState). The order of names may change in each
message; places are found once for each distinct list.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from logloom.blocks import Ragged, Values
from logloom.errors import UsageError
from logloom.io.logs.interface import FieldSpec
from logloom.io.logs.messages.definitions import Struct, Text
from logloom.io.logs.messages.fields import Selection, flat, has, select, value_type
from logloom.io.logs.messages.values import UnfitError, flattened
from logloom.schema import ColumnType
from logloom.values import dataclass

NAME = "joints"
# The same joint by joint, for columns of joints of which messages have some: (joints, 1 + k) a message, with
# what is known of each joint before its k numbers.
EACH = "each_joint"
LACKS, HAS, REFUSED = 0.0, 1.0, -1.0
NAME_LENGTH = 64  # characters of a joint's name, unless `strings` is larger
LISTS = ("name", "joint_names", "names", "joint_name")  # usual names of a list of names
_INTERFACES = ("interface_names", "values")  # of an element of a list of named interfaces
_EACH = "[]."
_FLOAT64 = np.dtype("<f8")


class Read(Protocol):
    """Reads the fields at some paths, with text in arrays of a width; of some messages, or of all."""

    def __call__(
        self, paths: Sequence[str], width: int, rows: NDArray[np.intp] | None = None
    ) -> Sequence[Values]: ...


def paths(spec: FieldSpec, root: Struct) -> dict[str, str]:
    """Return the paths of names and values, or of names and lists of interfaces.

    Raises:
        UsageError: not one field, or one without names.
    """
    if len(spec.paths) != 1:
        raise UsageError(f"as {NAME}: write one `field`, such as position")
    path = spec.paths[0]
    names = _names_of(path, root)
    if names is None:
        raise UsageError(
            f"as {NAME}: {root.name} has no list of joints' names ({', '.join(LISTS)}) beside {path}"
        )
    parts, dot, _ = path.rpartition(".")
    if dot and all(has(root, f"{parts}[0].{word}") for word in _INTERFACES):
        return {"names": names, "interfaces": parts}
    select(root, path)  # or an error that suggests the nearest path
    return {"names": names, "values": path}


def _names_of(path: str, root: Struct) -> str | None:
    """Return the path of the names that belong to a field."""
    before, is_each, _ = path.partition(_EACH)
    parts = path.split(".")
    prefixes = [".".join(parts[:i]) for i in range(len(parts) - 1, -1, -1)]
    for prefix in [f"{before}[]"] if is_each else prefixes:
        for word in LISTS:
            found = f"{prefix}.{word}" if prefix else word
            if has(root, found) and _is_list_of_text(select(root, found)):
                return found
    return None


def _is_list_of_text(selection: Selection) -> bool:
    inmost = selection.inner
    return (
        selection.pick is None
        and inmost is not None
        and inmost.array is None
        and isinstance(inmost.type, Text)
    )


def column_type(spec: FieldSpec, root: Struct) -> ColumnType:
    """Return the type of a column: a number or a vector for each joint.

    Raises:
        UsageError: the field has no list of numbers.
    """
    words = paths(spec, root)
    if spec.adapter == EACH:
        whole = column_type(replace(spec, adapter=NAME), root)
        return ColumnType(_FLOAT64, (len(spec.names), 1 + math.prod(whole.tail[1:])))
    if "interfaces" in words:
        return ColumnType(_FLOAT64, (len(spec.names),), names=spec.names)
    selection = select(root, words["values"])
    if selection.inner is not None and not isinstance(selection.pick, slice) and not selection.is_bytes:
        dtype, shape = value_type(selection)
        numbers = (dtype, ()) if dtype.names is None else flat(dtype)
        if shape and numbers is not None and numbers[0].kind in "iufb" and None not in shape[1:]:
            tail = (*shape[1:], *numbers[1])
            return ColumnType(_FLOAT64, (len(spec.names), *tail), names=spec.names)
    raise UsageError(f"as {NAME}: field {words['values']} is not a list with numbers for each joint")


def convert(spec: FieldSpec, found: Mapping[str, Values]) -> Values:
    """Return (N, joints, ...) values of messages that have all joints.

    Args:
        found: `names` and `values`.

    Raises:
        UnfitError: a message lacks a joint, has one twice, or more values than joints.
    """
    lists = _lists(found["names"])
    flat_values, counts = _listed(found["values"])
    kinds = [_JointPlaces.of(names, spec.names) for names in lists.distinct]
    for code, kind in enumerate(kinds):
        if kind.problem:
            raise UnfitError(int(np.argmax(lists.codes == code)), kind.problem)
    if (odd := counts != lists.counts).any():
        row = int(np.argmax(odd))
        raise UnfitError(
            row, f"{int(counts[row])} values of {int(lists.counts[row])} joints in {spec.paths[0]}"
        )
    places = np.array([kind.places for kind in kinds], np.intp).reshape(len(kinds), len(spec.names))
    before = np.cumsum(counts) - counts
    return np.asarray(flat_values[before[:, None] + places[lists.codes]], _FLOAT64)


def has_value(spec: FieldSpec, found: Mapping[str, Values]) -> NDArray[np.bool_]:
    """(N,) whether messages have all joints, with a value each."""
    lists = _lists(found["names"])
    _, counts = _listed(found["values"])
    has_all = np.array(
        [not _JointPlaces.of(names, spec.names).is_lacking for names in lists.distinct], np.bool_
    )
    return has_all[lists.codes] & (counts >= lists.counts)


def take(spec: FieldSpec, root: Struct, read: Read) -> Values:
    """Return the column of messages whose fields `read` returns; see `convert`."""
    words = paths(spec, root)
    if spec.adapter == EACH:
        return _each_interface(spec, words, read) if "interfaces" in words else _each(spec, words, read)
    if "interfaces" not in words:
        return convert(spec, _read(words, spec, read))
    values, is_held, problems = _of_interfaces(spec, words, read)
    problems |= {int(row): "it lacks the interface of a joint" for row in np.flatnonzero(~is_held)[:1]}
    for row, problem in sorted(problems.items()):
        raise UnfitError(row, problem)
    return values


def holds(spec: FieldSpec, root: Struct, read: Read) -> NDArray[np.bool_]:
    """(N,) whether messages have a value for the column; see `has_value`."""
    words = paths(spec, root)
    if "interfaces" not in words:
        return has_value(spec, _read(words, spec, read))
    _, is_held, problems = _of_interfaces(spec, words, read)
    is_held[list(problems)] = True  # to be refused
    return is_held


def _each(spec: FieldSpec, words: Mapping[str, str], read: Read) -> NDArray[np.float64]:
    found = _read(words, spec, read)
    lists = _lists(found["names"])
    items, counts = _listed(found["values"])
    kinds = [[_JointPlaces.of(names, (wanted,)) for wanted in spec.names] for names in lists.distinct]
    each = (len(kinds), len(spec.names))
    known = [LACKS if kind.is_lacking else REFUSED if kind.problem else HAS for row in kinds for kind in row]
    states = np.array(known).reshape(each)[lists.codes]
    states[counts < lists.counts] = LACKS
    states[(counts > lists.counts)[:, None] & (states == HAS)] = REFUSED
    places = np.array([kind.places[0] for row in kinds for kind in row], np.intp).reshape(each)[lists.codes]
    places += (np.cumsum(counts) - counts)[:, None]
    numbers = np.full((*states.shape, math.prod(items.shape[1:])), np.nan)
    numbers[states == HAS] = items[places[states == HAS]].reshape(-1, numbers.shape[2])
    return np.concatenate([states[:, :, None], numbers], axis=2)


def _each_interface(spec: FieldSpec, words: Mapping[str, str], read: Read) -> NDArray[np.float64]:
    parts = []
    for name in spec.names:
        values, is_held, problems = _of_interfaces(replace(spec, names=(name,)), words, read)
        states = np.where(is_held, HAS, LACKS)
        states[list(problems)] = REFUSED
        parts.append(np.stack([states, values[:, 0]], axis=1))
    return np.stack(parts, axis=1)


def distinct_lists(names: Values) -> list[tuple[str, ...]]:
    """Return each list of names once, in the order of the first message that has it."""
    lists = _lists(names)
    _, first = np.unique(lists.codes, return_index=True)
    return [lists.distinct[int(lists.codes[row])] for row in np.sort(first)]


def _read(words: Mapping[str, str], spec: FieldSpec, read: Read) -> dict[str, Values]:
    return dict(zip(words, read(list(words.values()), _width(spec)), strict=True))


def _width(spec: FieldSpec) -> int:
    return max(spec.strings, NAME_LENGTH)


@dataclass(frozen=True)
class _NameLists:
    """The lists of names of messages.

    Attributes:
        distinct: each list once.
        codes: (N,) the list of each message.
        counts: (N,) names of each message.
    """

    distinct: list[tuple[str, ...]]
    codes: NDArray[np.intp]
    counts: NDArray[np.int64]


@dataclass(frozen=True)
class _JointPlaces:
    """Places of wanted joints in a list of names.

    Attributes:
        problem: why they have no places; "" if they have.
        is_lacking: whether a joint isn't in the list.
    """

    places: list[int] = field(default_factory=list)
    problem: str = ""
    is_lacking: bool = False

    @classmethod
    def of(cls, names: Sequence[str], wanted: Sequence[str]) -> _JointPlaces:
        if lacking := [name for name in wanted if name not in names]:
            return cls([0] * len(wanted), f"it lacks the joint {lacking[0]!r}", is_lacking=True)
        if twice := [name for name in wanted if names.count(name) > 1]:
            return cls([0] * len(wanted), f"it has the joint {twice[0]!r} twice")
        return cls([names.index(name) for name in wanted])


# names     a b c   c a b   c a b   a b c       mostly as in the message before
# starts    *       *               *           of runs of equal lists, which are looked up
# codes     0       1       1       0
def _lists(names: Values) -> _NameLists:
    """Find the distinct lists of names; only the first of a run of equal lists is looked up."""
    texts, counts = _listed(names)
    before = np.cumsum(counts) - counts
    known: dict[tuple[int, bytes], int] = {}
    distinct: list[tuple[str, ...]] = []
    codes = np.zeros(len(counts), np.intp)
    for count in np.unique(counts).tolist():
        rows = np.flatnonzero(counts == count)
        own = np.ascontiguousarray(texts[before[rows][:, None] + np.arange(count)])
        words = own.view(np.uint32).reshape(len(rows), -1)
        is_start = np.ones(len(rows), np.bool_)
        is_start[1:] = (words[1:] != words[:-1]).any(axis=1)
        starts = np.flatnonzero(is_start)
        found = []
        for start in starts.tolist():
            code = known.setdefault((count, words[start].tobytes()), len(distinct))
            if code == len(distinct):
                distinct.append(tuple(own[start].tolist()))
            found.append(code)
        codes[rows] = np.array(found, np.intp)[np.cumsum(is_start) - 1]
    return _NameLists(distinct, codes, counts)


def _listed(values: Values) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the items of all messages, joined, with sub-messages as vectors, and how many each has."""
    if isinstance(values, Ragged):
        return flattened(values.values), values.lengths
    items = values.reshape(-1, *values.shape[2:])
    return flattened(items), np.full(len(values), values.shape[1], np.int64)


def _of_interfaces(
    spec: FieldSpec, words: Mapping[str, str], read: Read
) -> tuple[NDArray[np.float64], NDArray[np.bool_], dict[int, str]]:
    """Return (N, joints) values of one interface, (N,) whether messages have all, and problems by message."""
    interface, width = spec.paths[0].rpartition(".")[2], _width(spec)
    lists = _lists(read([words["names"]], width)[0])
    values = np.full((len(lists.codes), len(spec.names)), np.nan)
    is_held = np.zeros(len(values), np.bool_)
    problems: dict[int, str] = {}
    for code, names in enumerate(lists.distinct):
        kind, rows = _JointPlaces.of(names, spec.names), np.flatnonzero(lists.codes == code)
        if kind.problem:
            if not kind.is_lacking:
                problems |= dict.fromkeys(rows.tolist(), kind.problem)
            continue
        wanted = [f"{words['interfaces']}[{place}].{word}" for place in kind.places for word in _INTERFACES]
        found = read(wanted, width, rows)
        is_held[rows] = True
        for joint, (interfaces, numbers) in enumerate(zip(found[::2], found[1::2], strict=True)):
            values[rows, joint], has_one = _interface(interface, interfaces, numbers)
            is_held[rows] &= has_one
    return values, is_held, problems


def _interface(
    name: str, interfaces: Values, numbers: Values
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """(n,) values of an interface of one joint, and whether messages have it."""
    lists = _lists(interfaces)
    items, counts = _listed(numbers)
    places = np.array([names.index(name) if name in names else -1 for names in lists.distinct], np.int64)
    at = places[lists.codes]
    has_one = (at >= 0) & (at < counts)
    values = np.full(len(at), np.nan)
    values[has_one] = items[((np.cumsum(counts) - counts) + at)[has_one]]
    return values, has_one
