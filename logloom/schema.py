"""Column types.

Here: `ColumnType` and `Schema`, their checks and their JSON form.
Elsewhere: the values (logloom.blocks), where types come from (logloom.io.logs.messages.fields).
A row is `log_id` (str), `timestamp` (int64 ns since the Unix epoch), then the columns.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import field, replace
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from logloom.errors import UsageError
from logloom.text import near_to, shortened
from logloom.validation import adapter_of
from logloom.values import dataclass

COLUMN_NAME = re.compile(r"[a-z_][a-z0-9_]*(\.[a-z_][a-z0-9_]*)*")
RESERVED_NAMES = frozenset({"log_id", "timestamp", "refs", "meta"})
RESERVED_LAST_PARTS = frozenset({"age", "available"})
LISTS = "[?][?"
"""What the text of a type of lists of lists contains, and that of no other."""
MIN_TIME = int(np.iinfo(np.int64).min)
"""The smallest time, in nanoseconds; also that of messages without a readable stamp."""
MAX_TIME = int(np.iinfo(np.int64).max)
TimeRanges = tuple[tuple[int, int], ...]  # [start, stop) each, int64 ns, ascending and apart
NO_AGE = int(np.iinfo(np.int64).min)
"""The age of a row that has no usable message."""


def check_column_name(name: str) -> str:
    """Check a column name and return it.

    Raises:
        UsageError: the name breaks the grammar, or is reserved.
    """
    if not COLUMN_NAME.fullmatch(name):
        raise UsageError(
            f"column {name!r}: names are parts of a-z, 0-9 and _ joined by dots, like camera.front"
        )
    if name in RESERVED_NAMES or name.rsplit(".", 1)[-1] in RESERVED_LAST_PARTS:
        raise UsageError(
            f"column {name!r}: log_id, timestamp, refs, meta, *.age and *.available are reserved"
        )
    return name


def base_of(name: str) -> str:
    """Return the column whose age or availability this is; else the column itself."""
    base, _, last = name.rpartition(".")
    return base if base and last in RESERVED_LAST_PARTS else name


def root_of(name: str, known: Collection[str]) -> str | None:
    """Return the column that a dotted name begins with; None if there is none.

    Examples:
        >>> root_of("pose.position.x", ["pose", "speed"]), root_of("x", ["speed"])
        ('pose', None)
    """
    while name not in known:
        name = name.rpartition(".")[0]
        if not name:
            return None
    return name


@dataclass(frozen=True)
class ColumnType:
    """The type of one row's value of a column.

    Attributes:
        dtype: of an element, always little-endian; structured, and then packed, for arrays of sub-messages;
            text inside a structured dtype is `<U{n}`.
        shape: of a row. None means lengths that differ by row; these come first: (), (3,), (None,),
            (None, 4), (None, None, None).
        kind: "array" (a numpy value), "bytes" (a Python bytes; dtype uint8, shape (None,)), "string"
            (a Python str, stored as UTF-8; dtype uint8, shape (None,)) or "lists" (a list of arrays whose
            first axis differs, of any number of arrays; shape (None, None, *tail)).
        unit: a UDUNITS name such as "m s-1", or "".
        description: one line for people, or "".
        names: of the elements along the first axis of fixed length, such as joints; () without any.
        attributes: further attributes of its source, such as a standard_name: pairs of a name and JSON.

    Examples:
        >>> points = ColumnType(np.dtype("f4"), (None, 4), unit="m")
        >>> str(points), points.is_ragged, points.tail
        ('float32[?, 4]', True, (4,))
        >>> str(ColumnType(np.dtype("f8"), (None, None), "lists"))
        'float64[?][?]'
    """

    dtype: np.dtype[Any]
    shape: tuple[int | None, ...] = ()
    kind: Literal["array", "bytes", "string", "lists"] = "array"
    unit: str = ""
    description: str = ""
    attributes: tuple[tuple[str, str], ...] = field(default=(), compare=False)
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        dtype = np.dtype(self.dtype).newbyteorder("<")
        if dtype.names is not None:  # stored without the gaps that aligned fields have between them
            dtype = dtype_from_json(dtype_to_json(dtype))
        object.__setattr__(self, "dtype", dtype)
        fixed = self.shape[self.num_ragged :]
        if None in fixed:
            raise ValueError(f"lengths that differ must come first, got {self.shape}")
        if self.kind == "lists" and self.num_ragged != 2:
            raise ValueError(f"lists of lists have the shape (None, None, *tail), got {self.shape}")
        if self.kind in ("bytes", "string") and (self.dtype != np.uint8 or self.shape != (None,)):
            raise ValueError(f"{self.kind} is uint8 of shape (None,), got {self.dtype} {self.shape}")
        if self.names and self.tail[:1] != (len(self.names),):
            raise ValueError(f"{len(self.names)} names don't fit the shape {self.shape}")

    @property
    def num_ragged(self) -> int:
        """How many leading axes differ in length by row; 0 for a fixed shape."""
        return next((i for i, n in enumerate(self.shape) if n is not None), len(self.shape))

    @property
    def is_ragged(self) -> bool:
        """Whether rows may differ in length."""
        return self.num_ragged > 0

    @property
    def flat(self) -> ColumnType:
        """Of lists of lists, the type of all elements of a row in one list."""
        return replace(self, kind="array", shape=(None, *self.tail))

    @property
    def is_list_of_numbers(self) -> bool:
        """Whether rows are lists of single numbers, of any length."""
        return self.kind == "array" and self.shape == (None,) and self.dtype.kind in "iufb"

    @property
    def tail(self) -> tuple[int, ...]:
        """The axes that have one length in every row."""
        return tuple(n for n in self.shape if n is not None)

    def __str__(self) -> str:
        if self.kind in ("bytes", "string"):
            return self.kind
        name = "struct" if self.dtype.names else str(self.dtype)
        if self.kind == "lists":
            return f"{name}{LISTS}{str(self.flat).removeprefix(name).removeprefix('[?')}"
        return (
            f"{name}[{', '.join('?' if n is None else str(n) for n in self.shape)}]" if self.shape else name
        )

    def to_json(self) -> dict[str, Any]:
        """The type as JSON; a unit, a description, attributes and names only where there are any."""
        data = {"dtype": dtype_to_json(self.dtype), "shape": list(self.shape), "kind": self.kind}
        texts = {"unit": self.unit, "description": self.description, "attributes": dict(self.attributes)}
        names = {"names": list(self.names)} if self.names else {}
        return data | {key: value for key, value in texts.items() if value} | names


BYTES = ColumnType(np.dtype("u1"), (None,), "bytes")
"""Any bytes, such as an encoded image."""
STRING = ColumnType(np.dtype("u1"), (None,), "string")
"""Text in UTF-8."""


def dtype_to_json(dtype: np.dtype[Any]) -> Any:
    """The dtype as JSON: a string such as "<f8", or a list of [name, dtype, shape] for structured ones."""
    if dtype.names is None:
        return dtype.str
    fields = []
    for name in dtype.names:
        base, shape = dtype[name].subdtype or (dtype[name], ())
        fields.append([name, dtype_to_json(base), list(shape)])
    return fields


def dtype_from_json(data: Any) -> np.dtype[Any]:
    """The inverse of `dtype_to_json`; structured dtypes are packed.

    Raises:
        ValueError: no such dtype, or one of Python objects.
    """
    try:
        if isinstance(data, str):
            dtype = np.dtype(data)
        else:
            dtype = np.dtype([(name, dtype_from_json(base), tuple(shape)) for name, base, shape in data])
    except (TypeError, ValueError, SyntaxError) as error:
        raise ValueError(f"no dtype: {shortened(repr(data))} ({error})") from error
    if dtype.hasobject or (isinstance(data, str) and (dtype.names is not None or dtype.subdtype)):
        raise ValueError(f"not a dtype of a column: {shortened(repr(data))}")
    return dtype


TIMESTAMP = ColumnType(np.dtype("<i8"), unit="ns")
"""Of each row: nanoseconds since the Unix epoch."""
AGE = ColumnType(np.dtype("<i8"), unit="ns")
AVAILABLE = ColumnType(np.dtype("?"))


@dataclass(frozen=True)
class Schema:
    """The columns of a dataset in recipe order.

    Attributes:
        columns: name to type; without log_id, timestamp, ages and availabilities.
        sampled: columns of topics; each `c` of them also has the columns `c.age` (int64 ns,
            tick minus message time, `NO_AGE` where nothing was usable) and `c.available` (bool).

    Examples:
        >>> number = ColumnType(np.dtype("f8"))
        >>> columns = {"ego.speed": number, "ego.turn": number, "label": number}
        >>> schema = Schema(columns, sampled=("ego.speed",))
        >>> schema.select("ego.*")
        ('ego.speed', 'ego.turn')
        >>> list(schema.meta)
        ['ego.speed.age', 'ego.speed.available']
    """

    columns: Mapping[str, ColumnType]
    sampled: tuple[str, ...] = field(default=())

    @property
    def meta(self) -> dict[str, ColumnType]:
        """The ages and availabilities, stored together; in a fixed order."""
        return {
            f"{c}.{part}": t for c in self.sampled for part, t in (("age", AGE), ("available", AVAILABLE))
        }

    @property
    def all(self) -> dict[str, ColumnType]:
        """The columns followed by the ages and availabilities; the columns of a block apart from
        `timestamp`. Made anew each time: ask once for many columns.
        """
        return {**self.columns, **self.meta}

    def select(self, patterns: Iterable[str] | None) -> tuple[str, ...]:
        """The names that match, in schema order.

        Args:
            patterns: names or globs in which `*` crosses dots; `.*` alone means every column; None is every
                column. Ages and availabilities match only when named in full or by a pattern that ends in
                `.age` or `.available`.

        Raises:
            UsageError: a pattern matches nothing.
        """
        if patterns is None:
            return tuple(self.columns)
        chosen: set[str] = set()
        meta = self.meta
        for pattern in [patterns] if isinstance(patterns, str) else patterns:
            wants_meta = pattern.rsplit(".", 1)[-1] in RESERVED_LAST_PARTS
            names = meta if wants_meta else self.columns
            if pattern in names:  # as most are, of thousands perhaps
                chosen.add(pattern)
                continue
            found = set(names) if pattern == ".*" else {n for n in names if fnmatch.fnmatchcase(n, pattern)}
            if not found:
                raise UsageError(f"no column matches {pattern!r}{near_to(pattern, self.columns)}")
            chosen |= found
        return tuple(name for name in self.all if name in chosen)

    def part(self, patterns: Iterable[str] | None) -> Schema:
        """The schema of the columns that match, with their ages and availabilities.

        Args:
            patterns: as for `select`; ages and availabilities can't be had without their column.

        Raises:
            UsageError: a pattern matches nothing.
        """
        chosen = set(self.select(patterns))
        columns = {name: ctype for name, ctype in self.columns.items() if name in chosen}
        return Schema(columns, tuple(name for name in self.sampled if name in chosen))

    def _repr_html_(self) -> str:
        """HTML for notebooks."""
        from logloom.markup import table

        rows = [(name, one, one.unit, one.description) for name, one in self.columns.items()]
        return table("Schema", ("column", "type", "unit", "description"), rows)

    def to_json(self) -> dict[str, Any]:
        """The schema as JSON; `from_json` gives an equal one."""
        # A list: canonical JSON sorts the keys of objects, and the order of columns matters.
        columns = [{"name": name, **ctype.to_json()} for name, ctype in self.columns.items()]
        return {"columns": columns, "sampled": list(self.sampled)}

    @classmethod
    def from_json(cls, data: Any) -> Schema:
        """Read a schema from JSON.

        Args:
            data: what `to_json` gave.

        Returns:
            An equal schema.

        Raises:
            ValueError: no schema; pydantic's own where a field has the wrong type.
        """
        parsed: _SchemaJson = adapter_of(_SchemaJson).validate_python(
            dict(data) if isinstance(data, Mapping) else data  # of any kind, which a dataclass doesn't take
        )
        columns: dict[str, ColumnType] = {}
        for column in parsed.columns:
            if column.name in columns:
                raise ValueError(f"column {column.name!r} is listed twice")
            try:
                columns[column.name] = column.ctype
            except ValueError as error:
                raise ValueError(f"column {column.name!r}: {error}") from error
        if unknown := sorted(set(parsed.sampled) - columns.keys()):
            raise ValueError(f"sampled: no column {unknown[0]!r}")
        return cls(columns, parsed.sampled)


@dataclass(frozen=True)
class _ColumnJson:
    name: Annotated[str, Field(min_length=1)]
    dtype: str | list[Any]
    shape: tuple[Annotated[int, Field(strict=True, ge=0, lt=2**63)] | None, ...]
    kind: Literal["array", "bytes", "string", "lists"]
    unit: str = ""
    description: str = ""
    attributes: dict[str, str] = field(default_factory=dict)
    names: tuple[str, ...] = ()

    @property
    def ctype(self) -> ColumnType:
        dtype, attributes = dtype_from_json(self.dtype), tuple(sorted(self.attributes.items()))
        return ColumnType(dtype, self.shape, self.kind, self.unit, self.description, attributes, self.names)


@dataclass(frozen=True)
class _SchemaJson:
    columns: tuple[_ColumnJson, ...]
    sampled: tuple[str, ...]
