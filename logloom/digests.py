"""BLAKE3 digests of files and of columns.

Here: an incremental digest for each column of a partition, digests of files and JSON values, and shares by
hash.
A column's digest depends on its values alone, never on how rows were grouped into blocks or files:
BLAKE3 over (name, dtype, shape, kind) as JSON; then, where lengths differ by row, the BLAKE3 of the u64
little-endian leading lengths of all rows (of lists of lists, the number of lists of all rows, then the BLAKE3
of the lengths of all lists); then the BLAKE3 of the little-endian values in row order, C order
(of structured types, of the BLAKE3 of each field; text inside them as it is stored, UTF-32 of full width).
The inner digests allow streaming values before the last length is known.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
from blake3 import blake3

from logloom.blocks import Array, Block, Lists, Ragged, Values, bytes_of
from logloom.schema import STRING, TIMESTAMP, ColumnType, Schema, dtype_to_json

_PIECE = 1 << 20  # bytes of a file that are hashed at a time


class ColumnDigest:
    """Digest of one column, fed block by block."""

    def __init__(self, name: str, ctype: ColumnType):
        head = [name, dtype_to_json(ctype.dtype), list(ctype.shape), ctype.kind]
        self._head = json.dumps(head, separators=(",", ":")).encode()
        self._ctype = ctype
        self._lengths, self._inner = blake3(), blake3()
        self._values = blake3()
        # Structured values go field by field over the whole column, so each field has a digest of its own.
        self._fields = {path: blake3() for path in _field_paths(ctype.dtype)}

    def update(self, values: Values) -> None:
        """Take the next rows: (n, *shape), or n ragged rows."""
        if isinstance(values, Ragged):
            shapes = values.shapes
            if isinstance(values, Lists):
                shapes = values.inner.shapes
                self._inner.update(bytes_of(values.inner.values.astype("<i8", copy=False)))
            self._lengths.update(bytes_of(shapes.astype("<i8", copy=False)))
            for part in [values.values] if values.is_joined else values:
                self._update_values(part)
        else:
            self._update_values(values)

    def _update_values(self, values: Array) -> None:
        if values.size == 0:
            return
        if not self._fields:
            self._values.update(_bytes_of(values, self._ctype.dtype))
        for path, digest in self._fields.items():
            part = values
            for name in path:
                part = part[name]
            digest.update(_bytes_of(part, part.dtype))

    def hexdigest(self) -> str:
        for digest in self._fields.values():
            self._values.update(digest.digest())
        self._fields = {}
        whole = blake3(self._head)
        if self._ctype.is_ragged:
            whole.update(self._lengths.digest())
        if self._ctype.kind == "lists":
            whole.update(self._inner.digest())
        return whole.update(self._values.digest()).hexdigest()


class RowsDigest:
    """Digests of every column of a partition's rows, `log_id` and `timestamp` among them."""

    def __init__(self, schema: Schema):
        self._digests = {
            name: ColumnDigest(name, ctype)
            for name, ctype in {"log_id": STRING, "timestamp": TIMESTAMP, **schema.all}.items()
        }

    def update(self, block: Block) -> None:
        """Take the next rows."""
        log_id = np.frombuffer(block.log_id.encode(), np.uint8)
        ids = Ragged(np.tile(log_id, len(block)), np.full(len(block), len(log_id)))
        for name, digest in self._digests.items():
            digest.update(ids if name == "log_id" else block.columns[name])

    def hexdigests(self) -> dict[str, str]:
        return {name: digest.hexdigest() for name, digest in self._digests.items()}


def digests_of_rows(blocks: Iterable[Block], schema: Schema) -> dict[str, str]:
    """Return each column's digest, of rows in blocks of any size."""
    digest = RowsDigest(schema)
    for block in blocks:
        digest.update(block)
    return digest.hexdigests()


def _field_paths(dtype: np.dtype[Any]) -> list[tuple[str, ...]]:
    paths: list[tuple[str, ...]] = []
    for name in dtype.names or ():
        inner = dtype[name].base
        paths += [(name, *path) for path in _field_paths(inner)] if inner.names else [(name,)]
    return paths


def _bytes_of(values: Array, dtype: np.dtype[Any]) -> memoryview:
    little = np.ascontiguousarray(values, dtype.newbyteorder("<"))
    return little.reshape(-1).view(np.uint8).data


def file_digest(path: str | os.PathLike[str]) -> str:
    """Return the BLAKE3 of a local file, in hex."""
    # Not a map of the file: its pages would count as this process's memory, and a file cut meanwhile kill it.
    digest, piece = blake3(max_threads=1), bytearray(_PIECE)
    with open(path, "rb", buffering=0) as file:
        while length := file.readinto(piece):
            digest.update(memoryview(piece)[:length])
    return digest.hexdigest()


def digest_of(value: Any) -> str:
    """BLAKE3 of a JSON value in canonical form, in hex; names units and identifies recipes."""
    return blake3(_canonical(value)).hexdigest()


def digests_of(first: Sequence[Any], others: Iterable[str]) -> Iterator[str]:
    """Return `digest_of` lists with the same beginning.

    Args:
        first: their common beginning; not empty.
        others: the rest of each, as canonical JSON with a comma between two values.
    """
    beginning = _canonical(first)[:-1] + b","
    return (blake3(beginning + text.encode() + b"]").hexdigest() for text in others)


def _canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def share_of(value: str, shares: Mapping[str, Decimal] | Mapping[str, Fraction]) -> str:
    """Return the name to whose share of all possible values this one belongs.

    u is the first 8 bytes, big-endian, of BLAKE3 of the value; the first name in order whose cumulative
    share · 2⁶⁴ exceeds u takes it. Exact: shares are decimals or fractions.

    Args:
        shares: by name; they sum to 1.
    """
    u = int.from_bytes(blake3(value.encode()).digest()[:8], "big")
    below, over = 0, 1  # the cumulative share, as a fraction
    for name, share in shares.items():
        part, whole = share.as_integer_ratio()
        below, over = below * whole + part * over, over * whole
        if u * over < below << 64:
            return name
    raise AssertionError("shares sum to 1")
