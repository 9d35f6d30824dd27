"""Samples of tar shards: the member of each column, its name and its form.

Here: `Member`, `members_of`, the rules for sample keys, and encoding and decoding of members.
Elsewhere: the archive (headers, writer, index), the small values of a row (sample_json).
A row is the sample `<log_id>/<timestamp>`; its members are `<key>.<column>.<ext>`, sorted, and
`<key>.meta.json` with log_id, timestamp, scalars, strings, ages and availabilities. Arrays are .npy, lists of
lists two of them: all elements, and `<column>.lengths.npy`; bytes are kept as they are. The form of a column
follows from its declared type alone.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from logloom.blocks import Array, Ragged, Values, bytes_of
from logloom.errors import DatasetError, UsageError
from logloom.io.formats.tar.npy import npy_header, read_npy
from logloom.io.formats.tar.sample_json import fits_meta, parse_meta, read_column, write_meta
from logloom.io.rows.flat_lists import flat_types
from logloom.schema import ColumnType, Schema
from logloom.values import dataclass

META = "meta.json"
EXTENSION = re.compile(r"[a-z0-9_]+")
_TIMESTAMP = re.compile(r"0|-?[1-9][0-9]{0,18}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")

Buffer = bytes | memoryview
RowValues = Array | list[Array]


@dataclass(frozen=True)
class Member:
    """One member of every sample.

    Attributes:
        suffix: what follows the key and a dot: `camera.front.jpg`.
        form: "npy", "raw" (bytes as they are) or "meta" (JSON of all `columns`).
        columns: the columns it holds: one, or those of meta.json in the order of their keys.
    """

    suffix: str
    form: Literal["npy", "raw", "meta"]
    columns: Mapping[str, ColumnType]

    def encode(
        self, log_id: str, stamps: Array, columns: Mapping[str, RowValues]
    ) -> tuple[list[bytes], list[Buffer]]:
        """Each row's bytes in two pieces, (heads, payloads); payloads are views where the values are so."""
        if self.form == "meta":
            return [b""] * len(stamps), [*write_meta(log_id, stamps, columns, self.columns)]
        ((name, ctype),) = self.columns.items()
        values = columns[name]
        payloads: list[Buffer]
        if isinstance(values, np.ndarray):
            payloads = [*_fixed_bytes(values)]
            return [npy_header(ctype.dtype, ctype.tail)] * len(payloads), payloads
        payloads = [bytes_of(row) for row in values]
        if self.form == "raw":
            return [b""] * len(payloads), payloads
        return [npy_header(ctype.dtype, row.shape) for row in values], payloads


def rows_of(name: str, ctype: ColumnType, values: Values, start: int, stop: int) -> RowValues:
    """Some rows of a column: an array, or one array per row where these differ in shape.

    Raises:
        UsageError: the values are not what the schema says.
    """
    if values.dtype != ctype.dtype or isinstance(values, Ragged) != ctype.is_ragged:
        raise UsageError(f"column {name}: its values are {values.dtype}, the schema has {ctype}")
    return [values[row] for row in range(start, stop)] if isinstance(values, Ragged) else values[start:stop]


def _fixed_bytes(values: Array) -> list[memoryview]:
    """The bytes of each row of an (n, *shape) array."""
    flat = bytes_of(values)
    size = len(flat) // len(values)
    return [flat[at : at + size] for at in range(0, len(flat), size)] if size else [flat] * len(values)


def members_of(schema: Schema, ext: Mapping[str, str]) -> list[Member]:
    """The members of a sample, in the order in which they are in it."""
    small = {name: ctype for name, ctype in schema.columns.items() if fits_meta(ctype)}
    members = [Member(META, "meta", {**small, **schema.meta})]
    for name, ctype in flat_types(schema.columns).items():
        if name not in small:
            raw = ctype.kind == "bytes"
            extension = ext.get(name, "bin") if raw else "npy"
            members.append(Member(f"{name}.{extension}", "raw" if raw else "npy", {name: ctype}))
    return sorted(members, key=lambda member: member.suffix)


def key_before(log_id: str) -> str:
    """The part of a sample's key before its timestamp.

    Raises:
        UsageError: a tar member can't safely be called so.
    """
    parts = log_id.split("/")
    unsafe = any(part in ("", ".", "..") for part in parts) or _CONTROL.search(log_id)
    # The webdataset package passes over members that begin with such a name.
    if unsafe or re.fullmatch(r"__.*__", parts[0]):
        raise UsageError(
            f"log_id {log_id!r} can't name tar members (absolute, empty or .. parts, control characters, "
            "__name__); give another `log_id` template in the recipe"
        )
    return f"{log_id}/"


def split_name(name: str) -> tuple[str, str] | None:
    """A member's (key, suffix), cut at the first dot after the last slash; None where there is none."""
    slash = name.rfind("/") + 1
    dot = name.find(".", slash)
    return (name[:dot], name[dot + 1 :]) if dot > slash else None


def parse_key(key: str, place: str) -> tuple[str, int]:
    """A key's log_id and timestamp.

    Raises:
        DatasetError: not of the form `<log_id>/<timestamp>`.
    """
    log_id, slash, digits = key.rpartition("/")
    if slash and _TIMESTAMP.fullmatch(digits) and -(2**63) <= int(digits) < 2**63:
        return log_id, int(digits)
    raise DatasetError(f"{place}: sample {key!r} is not called <log_id>/<timestamp>")


def column_of(suffix: str) -> str:
    """The column that a member other than meta.json holds."""
    return suffix.rpartition(".")[0]


def decode(name: str, ctype: ColumnType, data: Array, suffix: str) -> Array:
    """One row's value of a column that has a member of its own.

    Args:
        data: (size,) uint8, the member's bytes; the value is a view of them.

    Raises:
        ValueError: the member holds another type.
    """
    if ctype.kind == "bytes":
        return data
    if not suffix.endswith(".npy"):
        raise ValueError(f"{name} should be an .npy member")
    value = read_npy(data)
    if value.dtype != ctype.dtype or not _fits(value.shape, ctype.shape):
        raise ValueError(f"{name} is {value.dtype} {list(value.shape)}, the schema has {ctype}")
    return value


@functools.lru_cache(4096)
def _fits(shape: tuple[int, ...], declared: tuple[int | None, ...]) -> bool:
    return len(shape) == len(declared) and all(n in (None, m) for m, n in zip(shape, declared, strict=True))


def decode_meta(rows: Sequence[tuple[str, int, bytes]], types: Mapping[str, ColumnType]) -> dict[str, Values]:
    """The columns of meta.json members.

    Args:
        rows: log_id and timestamp as the key says, and the member's bytes.

    Raises:
        ValueError: no JSON, of another sample, or values of other types.
    """
    parsed = [parse_meta(data) for _, _, data in rows]
    for (log_id, timestamp, _), found in zip(rows, parsed, strict=True):
        if (found.get("log_id"), found.get("timestamp")) != (log_id, timestamp):
            raise ValueError(f"it is of another sample, {found.get('log_id')}/{found.get('timestamp')}")
    return {name: read_column(name, ctype, parsed) for name, ctype in types.items()}
