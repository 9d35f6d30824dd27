"""The JSON beside the chunks of a zarr format 2 array, as zarr 2 writes it; and one chunk's bytes.

Here: `ArrayMetadata`, dtypes as JSON, encoding and decoding of chunks.
Elsewhere: which arrays there are (dtypes), reading rows (array), writing them (assemble).
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logloom.blocks import Array
from logloom.errors import DatasetError
from logloom.io.l5kit.dtypes import FORMAT_VERSION, LABELS, TL_FACE_LABELS

MAX_CHUNK_BYTES = 1 << 30
COMPRESSOR = {"blocksize": 0, "clevel": 5, "cname": "lz4", "id": "blosc", "shuffle": 1}
_BLOSC_HEADER = struct.Struct(
    "<BBBBIII"
)  # version, version of lz4, flags, typesize, nbytes, blocksize, cbytes
_KINDS = frozenset("biufU")


@dataclass(frozen=True)
class ArrayMetadata:
    """What a `.zarray` of a one-dimensional structured array says.

    Attributes:
        compressed: whether chunks are blosc frames; else they are the rows' plain bytes.
    """

    rows: int
    chunk_rows: int
    dtype: np.dtype[Any]
    compressed: bool = True

    @property
    def num_chunks(self) -> int:
        return -(-self.rows // self.chunk_rows)

    def to_bytes(self) -> bytes:
        """The `.zarray`, byte for byte as zarr 2 writes it."""
        data = {
            "chunks": [self.chunk_rows],
            "compressor": COMPRESSOR if self.compressed else None,
            "dtype": dtype_fields(self.dtype),
            "fill_value": base64.standard_b64encode(bytes(self.dtype.itemsize)).decode(),
            "filters": None,
            "order": "C",
            "shape": [self.rows],
            "zarr_format": 2,
        }
        return _json_bytes(data)

    @classmethod
    def from_bytes(cls, data: bytes, source: str) -> ArrayMetadata:
        """Reads a `.zarray`.

        Args:
            source: the file's name, for errors.

        Raises:
            DatasetError: not zarr format 2, not a one-dimensional struct, or coded in a way unknown here.
        """
        try:
            value = json.loads(data)
            (rows,), (chunk_rows,) = value["shape"], value["chunks"]
            fields, compressor, version = value["dtype"], value["compressor"], value["zarr_format"]
            filters = value.get("filters")
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise DatasetError(f"{source}: not the metadata of a one-dimensional zarr array") from error
        if version != 2:
            raise DatasetError(f"{source}: zarr format {version}, L5Kit datasets are of format 2")
        dtype = dtype_from_fields(fields, source)
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
        return cls(rows, chunk_rows, dtype, compressor is not None)

    def encode(self, rows: Array) -> bytes:
        """A chunk's bytes; fewer rows than a chunk holds are followed by zero bytes, as zarr 2 does."""
        from numcodecs import blosc

        # Threads leave the order of blocks in the frame to chance.
        blosc.use_threads = False
        chunk = np.zeros(self.chunk_rows, self.dtype)
        chunk[: len(rows)] = rows
        if not self.compressed:
            return chunk.tobytes()
        compressed: bytes = blosc.compress(chunk, b"lz4", clevel=5, shuffle=1, blocksize=0)
        return compressed

    def decode(self, data: bytes, source: str) -> Array:
        """The rows of a chunk, all `chunk_rows` of them.

        Raises:
            DatasetError: the bytes are no such chunk.
        """
        size = self.chunk_rows * self.dtype.itemsize
        if not self.compressed:
            if len(data) != size:
                raise DatasetError(f"{source}: {len(data)} bytes, a chunk has {size}")
            return np.frombuffer(data, self.dtype)
        _check_blosc_header(data, size, source)
        from numcodecs import blosc

        chunk = np.empty(self.chunk_rows, self.dtype)
        try:
            blosc.decompress(data, chunk.view(np.uint8))
        except (RuntimeError, ValueError) as error:
            raise DatasetError(f"{source}: damaged ({error})") from error
        return chunk


def _check_blosc_header(data: bytes, size: int, source: str) -> None:
    # blosc trusts the lengths in its header and would read or write beyond the buffers.
    if len(data) < _BLOSC_HEADER.size:
        raise DatasetError(f"{source}: {len(data)} bytes, too short for a blosc frame")
    *_, nbytes, _, cbytes = _BLOSC_HEADER.unpack_from(data)
    if cbytes != len(data):
        raise DatasetError(f"{source}: {len(data)} bytes, its header says {cbytes}: truncated or damaged")
    if nbytes != size:
        raise DatasetError(f"{source}: holds {nbytes} bytes of rows, a chunk has {size}: damaged")


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


def row_bytes(rows: Array) -> NDArray[np.uint8]:
    """The bytes of structured rows as they lie in memory, without a copy where they are packed."""
    return np.ascontiguousarray(rows).reshape(-1).view(np.uint8)
