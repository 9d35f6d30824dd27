"""Metadata and chunks of a zarr format 2 array, as zarr 2 writes them.

Here: `ArrayMetadata`, dtypes as JSON, encoding and decoding of chunks.
Elsewhere: the four arrays (dtypes), reading rows (array_reader), writing them (assemble).
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from logloom.blocks import Array
from logloom.errors import DatasetError
from logloom.io.formats.chunk_files import MAX_CHUNK_BYTES, compress, decompress, padded
from logloom.io.formats.l5kit.dtypes import FORMAT_VERSION, LABELS, TL_FACE_LABELS
from logloom.io.storage.metadata import parsed
from logloom.values import dataclass

COMPRESSOR = {"blocksize": 0, "clevel": 5, "cname": "lz4", "id": "blosc", "shuffle": 1}
_KINDS = frozenset("biufU")


@dataclass(frozen=True)
class ArrayMetadata:
    """The content of a `.zarray`, of a one-dimensional array of structs or of rows of integers.

    Attributes:
        dtype: of a row: a struct, or integers in a shape, ("<u4", (2,)).
        compressed: whether chunks are blosc frames; else they are the rows' plain bytes.
        separator: between the numbers that name a chunk.
    """

    rows: int
    chunk_rows: int
    dtype: np.dtype[Any]
    compressed: bool = True
    separator: str = "."

    @property
    def num_chunks(self) -> int:
        return -(-self.rows // self.chunk_rows)

    @property
    def _codec(self) -> str:
        return "lz4" if self.compressed else "none"

    def chunk_name(self, index: int) -> str:
        """The file of a chunk, within the array's folder."""
        return self.separator.join(map(str, (index, *(0 for _ in self.dtype.shape))))

    def to_bytes(self) -> bytes:
        """The `.zarray`, byte for byte as zarr 2 writes it."""
        shape = list(self.dtype.shape)
        zeros = base64.standard_b64encode(bytes(self.dtype.itemsize)).decode()
        data = {
            "chunks": [self.chunk_rows, *shape],
            "compressor": COMPRESSOR if self.compressed else None,
            "dtype": self.dtype.base.str if shape else dtype_fields(self.dtype),
            "fill_value": 0 if shape else zeros,
            "filters": None,
            "order": "C",
            "shape": [self.rows, *shape],
            "zarr_format": 2,
        }
        return _json_bytes(data)

    @classmethod
    def from_bytes(cls, data: bytes, source: str, row_shape: tuple[int, ...] = ()) -> ArrayMetadata:
        """Reads a `.zarray`.

        Args:
            source: the file's name, for errors.
            row_shape: of rows of integers; () for structs.

        Raises:
            DatasetError: it is not zarr format 2, not such an array, or of an unknown encoding.
        """
        kind = f"zarr array with rows of {list(row_shape)}" if row_shape else "one-dimensional zarr array"
        value = parsed(data, f"{source}: not the metadata of a {kind}")
        try:
            (rows, *shape), (chunk_rows, *chunk_shape) = value["shape"], value["chunks"]
            fields, compressor, version = value["dtype"], value["compressor"], value["zarr_format"]
            filters, separator = value.get("filters"), value.get("dimension_separator", ".")
            is_plain = value.get("order", "C") == "C" and separator in (".", "/")
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise DatasetError(f"{source}: not the metadata of a {kind}") from error
        if version != 2:
            raise DatasetError(f"{source}: zarr format {version}, L5Kit datasets are of format 2")
        if shape != list(row_shape) or chunk_shape != shape or not is_plain:
            raise DatasetError(f"{source}: not the metadata of a {kind}")
        dtype = _integers(fields, row_shape, source) if row_shape else dtype_from_fields(fields, source)
        for name, number, lowest in (("shape", rows, 0), ("chunks", chunk_rows, 1)):
            if type(number) is not int or not lowest <= number < 1 << 62:
                raise DatasetError(f"{source}: {name} [{number!r}] makes no sense")
        if chunk_rows * dtype.itemsize > MAX_CHUNK_BYTES:
            raise DatasetError(f"{source}: a chunk would take {chunk_rows * dtype.itemsize} bytes")
        known = compressor is None or (isinstance(compressor, Mapping) and compressor.get("id") == "blosc")
        if not known or filters:
            raise DatasetError(
                f"{source}: compressor {compressor!r} with filters {filters!r}; known are blosc and none. "
                "Open it with zarr (ChunkedDataset(path).root) and write it anew"
            )
        return cls(rows, chunk_rows, dtype, compressor is not None, separator)

    def encode(self, rows: Array) -> bytes:
        """A chunk's bytes; fewer rows than a chunk holds are followed by zero bytes, as zarr 2 does."""
        chunk = padded(rows.astype(self.dtype.base, copy=False), self.chunk_rows)
        return bytes(compress(chunk, self._codec))

    def decode(self, data: bytes, source: str) -> Array:
        """The rows of a chunk, all `chunk_rows` of them.

        Raises:
            DatasetError: the bytes are not a valid chunk.
        """
        size = self.chunk_rows * self.dtype.itemsize
        raw = decompress(data, self._codec, size, source)
        return raw.view(self.dtype.base).reshape(self.chunk_rows, *self.dtype.shape)


def dtype_fields(dtype: np.dtype[Any]) -> list[list[Any]]:
    """A structured dtype as zarr format 2 writes it: [name, dtype] or [name, dtype, shape]."""
    fields: list[list[Any]] = []
    for name in dtype.names or ():
        base, shape = dtype[name].subdtype or (dtype[name], ())
        fields.append([name, base.str, list(shape)] if shape else [name, base.str])
    return fields


def dtype_from_fields(fields: Any, source: str) -> np.dtype[Any]:
    """The inverse of `dtype_fields`: structs of numbers, bools and text, or arrays of these.

    Raises:
        DatasetError: it is something else.
    """
    try:
        if not isinstance(fields, Sequence) or isinstance(fields, str) or not fields:
            raise ValueError("no struct")
        parts = [(_text(name), _text(base), *map(_shape, shape)) for name, base, *shape in fields]
        dtype = np.dtype(parts)
    except (ValueError, TypeError, SyntaxError, MemoryError) as error:
        raise DatasetError(f"{source}: dtype {str(fields)[:200]} is no struct of plain fields") from error
    strange = [name for name in dtype.names or () if dtype[name].base.kind not in _KINDS]
    if strange or not 0 < dtype.itemsize <= MAX_CHUNK_BYTES:
        raise DatasetError(f"{source}: dtype {str(fields)[:200]} is no struct of numbers and text")
    return dtype


def _integers(name: Any, shape: tuple[int, ...], source: str) -> np.dtype[Any]:
    if not (isinstance(name, str) and re.fullmatch(r"[<|][iu][1248]", name)):
        raise DatasetError(f"{source}: dtype {str(name)[:200]} is no type of integers")
    return np.dtype((name, shape))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("not text")
    return value


def _shape(value: Any) -> tuple[int, ...]:
    if not isinstance(value, Sequence) or not all(type(n) is int and 0 <= n < 1 << 31 for n in value):
        raise TypeError("not a shape")
    return tuple(value)


def group_files() -> dict[str, bytes]:
    """The metadata of the group that holds the four arrays, by file name."""
    attributes = {"format_version": FORMAT_VERSION, "labels": LABELS, "tl_face_labels": TL_FACE_LABELS}
    return {".zgroup": _json_bytes({"zarr_format": 2}), ".zattrs": _json_bytes(attributes)}


def _json_bytes(value: Any) -> bytes:
    return json.dumps(value, indent=4, sort_keys=True).encode("ascii")
