"""Field paths, such as `a[3]` or `objects[].size`, and their column types.

Here: the grammar of paths, finding them in a definition, and the column types that follow from both.
Elsewhere: definitions (definitions), reading what was selected (logloom.io.logs.messages.ros.decoders),
adapters (adapters).

Meaning of a path:
* A number is a scalar, a fixed array a vector, any other array a ragged row; sequences of bytes are bytes,
  a string is a string, text in arrays and sub-messages has a fixed width. Times and durations are int64 ns.
* A sub-message whose numbers all have one type flattens in definition order; any other is a structured value.
* An array of sub-messages is an array of structured values, packed, with nested sub-messages as nested
  structured fields. `objects[].size` picks one field of each element.
* `a[3]` and `a[1:4]` index arrays; a message whose array is shorter has no value. `points[0].positions` is a
  list of the first element.
* Columns of tables may have any names. The longest name of a column that a path begins with is meant, so
  `speed [m/s]` and `pose.x` name columns of these names, if there are such.
"""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from logloom.caching import cached_property
from logloom.errors import UsageError
from logloom.io.logs.interface import FieldSpec
from logloom.io.logs.messages.definitions import Array, Field, Number, Struct, Text, Type
from logloom.schema import BYTES, STRING, ColumnType
from logloom.text import some_of
from logloom.values import dataclass

MAX_INDEX = 1 << 16  # of elements of an array without fixed length
MAX_VALUE_BYTES = 1 << 26  # of one structured value, including widths of text

_INDEX = r"(?:\[(\d*)(?:(:)(\d*))?\])?"
_WORD = re.compile(r"[A-Za-z_]\w*")
_STEP = re.compile(f"({_WORD.pattern}){_INDEX}")
_TIME = np.dtype("<i8")


class NoFieldError(UsageError):
    """Messages have no field of this name by their definition."""


class UntypedError(UsageError):
    """A field to which the definition of its messages gives no type that a column can have."""


@dataclass(frozen=True)
class Selection:
    """What is read of a message: follow `names`, then, at an array, pick of its elements and go on in them.

    Attributes:
        names: of fields, from a struct down; () for the value itself.
        type, array: of the field that they end at.
        pick: of an array: one element, a slice, or None for all.
        inner: what is read of each element of the array; None where there is no array.
        width: characters kept for text inside arrays and sub-messages.
        flatten: whether a sub-message whose numbers have one type becomes a vector.
        is_inside: whether it is in an array, or a sub-message kept whole, where text has a fixed width.
        fills: whether elements that an array within an array lacks are NaN, 0 or empty.
    """

    names: tuple[str, ...]
    type: Type
    array: Array | None
    width: int
    pick: int | slice | None = None
    inner: Selection | None = None
    flatten: bool = True
    is_inside: bool = False
    fills: bool = False

    @property
    def is_list(self) -> bool:
        """Whether this is a list without fixed length."""
        if self.array is None or self.inner is None:
            return False
        if isinstance(self.pick, int):
            return self.inner.is_list
        return self.array.length is None and self.pick is None

    @property
    def is_lists(self) -> bool:
        """Whether this is a list, or an array of fixed length, of lists without one."""
        if self.inner is None:
            return False
        return self.inner.is_lists if isinstance(self.pick, int) else self.inner.is_list

    @property
    def is_bytes(self) -> bool:
        """Whether this is a whole sequence of bytes, which becomes a row of bytes."""
        is_byte = isinstance(self.type, Number) and self.type.is_byte and self.pick is None
        return is_byte and self.array is not None and self.array.length is None

    @property
    def least(self) -> int:
        """How many elements of an array without fixed length are needed."""
        if self.pick is None or self.array is None or self.array.length is not None:
            return 0
        return int(self.pick.stop) if isinstance(self.pick, slice) else self.pick + 1

    @property
    def may_lack(self) -> bool:
        """Whether messages may lack the value, as an array may be too short."""
        lacks = self.least > 0 and not self.fills
        return lacks or (self.inner is not None and self.inner.may_lack)

    @cached_property
    def within(self) -> Selection:
        """The same, seen from inside the first of `names`."""
        return replace(self, names=self.names[1:])

    @cached_property
    def packed(self) -> np.dtype[Any]:
        """Return `packed` of `type`."""
        return packed(self.type, self.width)


def whole(name: str, field: Field, width: int) -> Selection:
    """Select a whole field of a structured value."""
    inner = Selection((), field.type, None, width, flatten=False, is_inside=True) if field.array else None
    return Selection((name,), field.type, field.array, width, inner=inner, flatten=False, is_inside=True)


def select(root: Struct, path: str, width: int = 32) -> Selection:
    """Find a path in a definition.

    Raises:
        UsageError: no such field, or an invalid index; suggests the nearest valid path.
    """
    steps = _steps(root, path)
    parsed = [step for step in steps if step]
    if len(parsed) < len(steps):
        raise UsageError(
            f"field {path!r}: paths look like a.b, a[3].b, a[1:4] or a[].b"
            + (f"; {root.name} has {some_of((f.name for f in root.fields), 20)}" if _odd(root) else "")
        )
    return _select(root, root, parsed, path, width)


def _steps(root: Struct, path: str) -> list[re.Match[str] | None]:
    """Return the steps of a path, None for what isn't one."""
    steps: list[re.Match[str] | None] = []
    inside: Type = root
    while True:
        odd = _odd(inside) if isinstance(inside, Struct) else ()
        named = (name for name in odd if path.startswith(name) and path[len(name) :][:1] in ("", ".", "["))
        begun = max(named, key=len, default="")
        step = re.match(f"({re.escape(begun)}){_INDEX}", path) if begun else None
        if step is None or path[step.end() :][:1] not in ("", "."):
            first = path.partition(".")[0]
            step, end = _STEP.fullmatch(first), len(first)
        else:
            end = step.end()
        steps.append(step)
        if end == len(path):
            return steps
        path = path[end + 1 :]
        field = inside.field(step[1]) if step and isinstance(inside, Struct) else None
        inside = field.type if field else inside


@functools.lru_cache(maxsize=1024)
def _odd(struct: Struct) -> Sequence[str]:
    """Return the names of fields that aren't plain words."""
    return [field.name for field in struct.fields if not _WORD.fullmatch(field.name)]


def line_of(path: str) -> str:
    """Return the line of a recipe that names a path; brackets need quotes within {}."""
    return f'field: "{path}"' if re.search(r"[\[\]{},:#\s]", path) else f"field: {path}"


def _text(steps: Sequence[re.Match[str]]) -> str:
    return ".".join(step[0] for step in steps)


def _with_brackets(inside: Type, steps: Sequence[re.Match[str]]) -> str:
    """Return the text of steps with [] after each array that a path goes on in."""
    words = []
    for step in steps:
        field = inside.field(step[1]) if isinstance(inside, Struct) else None
        is_bare = field is not None and field.array is not None and not _index_in(step)
        words.append(step[0] + "[]" * (is_bare and step is not steps[-1]))
        inside = field.type if field is not None else inside
    return ".".join(words)


def _path_to(path: str, rest: Sequence[re.Match[str]]) -> str:
    """Return a path without its last steps."""
    return path[: len(path) - len(_text(rest)) - 1] if rest else path


def _index_in(step: re.Match[str]) -> str:
    """Return the index at the end of a step, with its brackets; "" without one."""
    return step[0][len(step[1]) :]


def has(root: Struct, path: str) -> bool:
    """Return whether `select` finds a path."""
    inside: Type = root
    words = [] if _odd(root) else re.sub(r"\[[^\]]*\]", "", path).split(".")
    for name in words:  # or an error would search for the nearest one
        field = inside.field(name) if isinstance(inside, Struct) else None
        if field is None:
            return False
        inside = field.type
    try:
        select(root, path)
    except UsageError:
        return False
    return True


def stamp_in(root: Struct, paths: Sequence[str]) -> Selection | None:
    """Return the first of some paths that leads to a time, or through a list to one per element."""
    for path in paths:
        if not has(root, path):
            continue
        selection = select(root, path)
        inmost = selection.inner or selection
        is_time = isinstance(inmost.type, Struct) and inmost.type.is_time and inmost.array is None
        if is_time and ("[]" in path) == (selection.inner is not None):
            return selection
    return None


def _select(root: Struct, inside: Struct, steps: Sequence[re.Match[str]], path: str, width: int) -> Selection:
    names: list[str] = []
    for i, step in enumerate(steps):
        field = inside.field(step[1])
        if field is None:
            if reason := dict(inside.omitted).get(step[1]):
                raise UntypedError(f"field {path!r}: {step[1]} {reason}")
            raise NoFieldError(_no_such_field(root, inside, step[1], path))
        names.append(field.name)
        rest = steps[i + 1 :]
        if field.array is not None:
            pick = _pick(field, step, path)
            if rest and not _index_in(step):
                way = line_of(f"{_path_to(path, rest)}[].{_with_brackets(field.type, rest)}")
                raise UsageError(f"field {path!r}: {field.name} is an array; write `{way}`")
            inner = _element(root, field, rest, path, width, is_one=isinstance(pick, int))
            return Selection(tuple(names), field.type, field.array, width, pick, inner)
        if _index_in(step):
            way = _path_to(path, rest).removesuffix(_index_in(step)) + (f".{_text(rest)}" if rest else "")
            raise UsageError(f"field {path!r}: {field.name} is no array; write `{line_of(way)}`")
        if not rest:
            return Selection(tuple(names), field.type, None, width)
        if not isinstance(field.type, Struct):
            way = line_of(_path_to(path, rest))
            raise UsageError(f"field {path!r}: {field.name} has no fields of its own; write `{way}`")
        inside = field.type
    raise AssertionError("a path has at least one step")


def _pick(field: Field, step: re.Match[str], path: str) -> int | slice | None:
    first, colon, last = step[2], step[3], step[4]
    if not (first or colon):
        return None
    length = field.array.length if field.array else None
    if length is None and colon and not last:
        raise UsageError(
            f"field {path!r}: {field.name} has another length in each message; write both ends, as in "
            f"{field.name}[0:3], or take {field.name} whole"
        )
    start, stop = int(first or 0), int(last or length or 0) if colon else int(first or 0) + 1
    if length is None and stop > MAX_INDEX:
        raise UsageError(f"field {path!r}: indices are at most {MAX_INDEX - 1}")
    if not start < stop or (length is not None and stop > length):
        if length is None:
            raise UsageError(f"field {path!r}: {step[0]} selects nothing")
        raise UsageError(f"field {path!r}: {field.name} has {length} elements, 0 to {length - 1}")
    return slice(start, stop) if colon else start


def _element(
    root: Struct, field: Field, rest: Sequence[re.Match[str]], path: str, width: int, is_one: bool
) -> Selection:
    if not rest:
        return Selection((), field.type, None, width, flatten=is_one, is_inside=True)
    if not isinstance(field.type, Struct):
        way = line_of(_path_to(path, rest).removesuffix("[]"))
        raise UsageError(
            f"field {path!r}: elements of {field.name} have no fields of their own; write `{way}`"
        )
    inner = _select(root, field.type, rest, path, width)
    if inner.is_lists and not is_one:
        way = line_of(re.sub(r"\[[^\]]*\]$", "", _path_to(path, rest)) + f"[0].{_text(rest)}")
        raise UsageError(
            f"field {path!r}: a column stores lists of lists, but no lists within these; take those of one "
            f"element: `{way}`"
        )
    return replace(inner, is_inside=True, fills=not is_one)


def _no_such_field(root: Struct, inside: Struct, name: str, path: str) -> str:
    plain = re.sub(r"\[[^\]]*\]", "", path)
    known = {re.sub(r"\[\]", "", known): known for known in paths(root)}
    near = difflib.get_close_matches(plain, known, n=1, cutoff=0.4)
    if not near:  # a name alone, somewhere deeper
        last = plain.rsplit(".", 1)[-1]
        ends = [p for p in known if p.rsplit(".", 1)[-1] == last]
        near = ends or difflib.get_close_matches(name, [f.name for f in inside.fields], n=1)
    hint = f"; did you mean {known.get(near[0], near[0])}?" if near else ""
    fields = some_of((f.name for f in inside.fields), 20) or "no fields"
    return f"field {path!r}: {inside.name} has no {name!r}{hint} (it has {fields})"


def paths(root: Struct, limit: int = 2000) -> list[str]:
    """The paths of a definition, sub-messages before their fields; the first `limit` of them."""

    def walk(struct: Struct, prefix: str) -> Iterator[str]:
        for field in struct.fields:
            yield prefix + field.name
            if isinstance(field.type, Struct) and not field.type.is_time:
                yield from walk(field.type, f"{prefix}{field.name}{'[]' if field.array else ''}.")

    return [path for path, _ in zip(walk(root, ""), range(limit), strict=False)]


def column_type(selection: Selection) -> ColumnType:
    """What a column of one path holds.

    Raises:
        UsageError: not supported as a column; suggests a field.
    """
    if selection.is_bytes:
        return BYTES
    if selection.array is None and isinstance(selection.type, Text):
        return STRING
    dtype, shape = value_type(selection)
    if selection.is_lists:
        return ColumnType(dtype, (None, None, *shape[2:]), "lists")
    return ColumnType(dtype, shape)


def _type_of(path: str, selection: Selection) -> ColumnType:
    """Return `column_type`; an error names the parts of a sub-message that can be columns.

    Raises:
        UsageError: not supported as a column.
    """
    try:
        return column_type(selection)
    except UsageError as error:
        inmost = selection
        while inmost.inner is not None:
            inmost = inmost.inner
        if not isinstance(inmost.type, Struct):
            raise
        is_array = selection.inner is not None and not inmost.names and not path.endswith("]")
        begin = f"{path}[]" if is_array else path
        parts = [f"{begin}.{name}" for name in _columns_in(inmost.type)]
        if not parts:
            raise
        ways = " or ".join(f"`{line_of(part)}`" for part in parts[:3])
        raise UsageError(f"field {path!r}: {error}; write {ways}") from error


def _columns_in(struct: Struct) -> list[str]:
    """Return the fields of a message that can be columns, those of one length first."""
    found: dict[str, bool] = {}
    for field in struct.fields:
        try:
            found[field.name] = column_type(select(struct, field.name)).is_ragged and field.array is not None
        except UsageError:
            continue
    return sorted(found, key=lambda name: found[name])


def value_type(selection: Selection) -> tuple[np.dtype[Any], tuple[int | None, ...]]:
    """dtype and shape of what is read; text has a fixed width here."""
    if selection.inner is not None and selection.array is not None:
        dtype, shape = value_type(selection.inner)
        if isinstance(selection.pick, int):
            return dtype, shape
        length = selection.array.length
        if isinstance(selection.pick, slice):
            length = selection.pick.stop - selection.pick.start
        return dtype, (length, *shape)
    dtype = selection.packed
    numbers = flat(dtype) if selection.flatten else None
    return numbers if numbers is not None else (dtype, ())


def flat(dtype: np.dtype[Any]) -> tuple[np.dtype[Any], tuple[int]] | None:
    """Return the number type and count of a packed structured dtype; None if it has several types."""
    kinds = set(_leaves(dtype))
    if len(kinds) != 1:
        return None
    kind = kinds.pop()
    return None if kind.kind == "U" else (kind, (dtype.itemsize // kind.itemsize,))


def _leaves(dtype: np.dtype[Any]) -> Iterator[np.dtype[Any]]:
    for name in dtype.names or ():
        base = dtype[name].base
        if base.names is None:
            yield base
        else:
            yield from _leaves(base)


def packed(kind: Type, width: int, where: str = "") -> np.dtype[Any]:
    """Return the dtype of a value inside arrays: packed and little-endian, text as `<U{width}`.

    Sub-messages without fields are left out.

    Raises:
        UsageError: it contains an array without fixed length or no numbers at all, or is too large.
    """
    if isinstance(kind, Number):
        return kind.dtype
    if isinstance(kind, Text):
        return np.dtype(f"<U{width}")
    if kind.is_time:
        return _TIME
    members: list[Any] = []
    for field in kind.fields:
        name = f"{where}.{field.name}" if where else field.name
        if field.array is not None and field.array.length is None:
            raise UsageError(
                f"{kind.name} contains {name}, whose length differs, so it can't be a whole value of a column"
            )
        if isinstance(field.type, Struct) and not field.type.fields:
            continue
        inner = packed(field.type, width, name)
        members.append((field.name, inner, (field.array.length,)) if field.array else (field.name, inner))
    if not members:
        raise UsageError(f"{kind.name} has no fields, so it can't be a column")
    dtype = np.dtype(members)
    if dtype.itemsize > MAX_VALUE_BYTES:
        raise UsageError(f"{kind.name} would take {dtype.itemsize} bytes a value: name the fields to take")
    return dtype


def joined_type(spec: FieldSpec, selections: Sequence[Selection]) -> ColumnType:
    """Return the type of a column of one or more paths; several are concatenated along the last axis.

    Raises:
        UsageError: several paths whose types or shapes differ.
    """
    if len(selections) == 1:
        return _type_of(spec.paths[0], selections[0])
    types = [_type_of(path, one) for path, one in zip(spec.paths, selections, strict=True)]
    first = types[0]
    widths = []
    for path, selection, kind in zip(spec.paths, selections, types, strict=True):
        if kind.kind != "array" or kind.dtype != first.dtype or kind.dtype.names:
            raise UsageError(
                f"fields of one column must all have one number type: {path} is {kind}, not {first}"
            )
        same = selection.names == selections[0].names if kind.is_ragged else not first.is_ragged
        if not same or len(kind.tail) > 1:
            raise UsageError(
                f"field {path} can't be concatenated with {spec.paths[0]}: their rows have other shapes"
            )
        widths.append(kind.tail[0] if kind.tail else 1)
    ragged = (None,) if first.is_ragged else ()
    return ColumnType(first.dtype, (*ragged, sum(widths)))
