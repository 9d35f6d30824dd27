"""Layout of an array in chunks and files, with its JSON (zarr formats 2 and 3).

Here: `ZarrOptions`, `ArrayLayout`, its metadata written and read, and the metadata of groups.
Elsewhere: the bytes of chunks and files (shards), which arrays there are (columns).

In format 3 a file is a shard: chunks one after the other, each closed by its CRC32C, and an index of their
offsets at the end. In format 2 a file is a chunk. Arrays are cut along their first axis only.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping
from json.encoder import encode_basestring_ascii
from typing import Any, Literal

import numpy as np
from pydantic import Field

from logloom.caching import cached_property
from logloom.errors import DatasetError
from logloom.io.formats.chunk_files import MAX_CHUNK_BYTES, ZSTD_LEVEL
from logloom.io.formats.zarr.columns import LogArray
from logloom.io.storage.metadata import ChosenColumns
from logloom.values import dataclass


class ZarrOptions(ChosenColumns):
    """`outputs.zarr` of a recipe.

    Attributes:
        rows_per_chunk: rows of a chunk, the least that is read at a time; by default for chunks of 32 KiB
            (format 2: 1 MiB). Values of ragged columns are always cut by size, since rows differ.
        format: 3, many chunks to a file (a shard), each with a checksum; or 2, a file for each chunk.
        compress: of columns other than bytes and strings, which are stored as they are.
    """

    rows_per_chunk: int | None = Field(default=None, ge=1, le=1 << 30)
    format: Literal[2, 3] = 3
    compress: Literal["lz4", "zstd", "none"] = "lz4"


CHUNK_BYTES = 32 << 10
CHUNK_BYTES_V2 = 1 << 20
SHARD_BYTES = 16 << 20  # buffers of this size are used again by malloc, larger ones come as fresh pages
_PLAIN = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
_PLAIN += ["float16", "float32", "float64", "complex64", "complex128"]
_LITTLE = {"name": "bytes", "configuration": {"endian": "little"}}


@dataclass(frozen=True)
class ArrayLayout:
    """The layout of an array in files.

    Attributes:
        chunk: entries along the first axis that are read together.
        shard: entries of a file, a multiple of `chunk`; in format 2 equal to `chunk`.
        compress: "lz4", "zstd" or "none".
        format: of zarr, 3 or 2.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    chunk: int
    shard: int
    compress: str
    format: int

    @classmethod
    def choose(cls, array: LogArray, length: int, options: ZarrOptions, plain: bool) -> ArrayLayout:
        """Choose the layout of a new array by its declared type, its length and the options alone.

        Args:
            length: of the first axis.
            plain: whether to leave it uncompressed regardless of the options.
        """
        row = max(1, array.row_bytes)
        wanted = (CHUNK_BYTES if options.format == 3 else CHUNK_BYTES_V2) // row
        if options.rows_per_chunk is not None and array.axis != "values":
            wanted = min(options.rows_per_chunk, MAX_CHUNK_BYTES // row)
        chunk = max(1, min(wanted, length))
        per_file = max(1, min(SHARD_BYTES // (chunk * row), -(-length // chunk)))
        shard = chunk * per_file if options.format == 3 else chunk
        compress = "none" if plain else options.compress
        return cls(array.dtype, (length, *array.tail), chunk, shard, compress, options.format)

    @cached_property
    def tail(self) -> tuple[int, ...]:
        return self.shape[1:]

    @cached_property
    def row_bytes(self) -> int:
        return math.prod(self.tail) * self.dtype.itemsize

    @cached_property
    def chunk_bytes(self) -> int:
        """Of a chunk, uncompressed."""
        return self.chunk * self.row_bytes

    @property
    def num_files(self) -> int:
        return -(-self.shape[0] // self.shard) if self.row_bytes else 0

    def chunks_in(self, file: int) -> int:
        """The number of chunks of a file with entries of the array."""
        entries = min(self.shard, self.shape[0] - file * self.shard)
        return -(-entries // self.chunk)

    def file_name(self, file: int) -> str:
        """Within the array's folder."""
        places = [str(file), *["0"] * len(self.tail)]
        return "/".join(["c", *places]) if self.format == 3 else ".".join(places)

    def metadata(self) -> dict[str, Any]:
        """The layout's entries of zarr.json or .zarray, without names and attributes."""
        tail = [max(1, n) for n in self.tail]
        if self.format == 2:
            return {
                "chunks": [self.chunk, *tail],
                "compressor": self._compressor_v2(),
                "dtype": self.dtype.str,
                # xarray takes a format 2 fill value for "missing", so a true 0 would become NaN.
                "fill_value": None,
                "filters": None,
                "order": "C",
                "shape": list(self.shape),
                "zarr_format": 2,
            }
        grid = {"name": "regular", "configuration": {"chunk_shape": [self.shard, *tail]}}
        # The value that other readers give for a lost chunk: NaN if the type has one.
        return {
            "chunk_grid": grid,
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "codecs": _sharding(self.chunk, tuple(tail), self.dtype.itemsize, self.compress),
            "data_type": _data_type(self.dtype),
            "fill_value": {"b": False, "f": "NaN", "c": ["NaN", "NaN"], "U": ""}.get(self.dtype.kind, 0),
            "node_type": "array",
            "shape": list(self.shape),
            "storage_transformers": [],
            "zarr_format": 3,
        }

    def _compressor_v2(self) -> dict[str, Any] | None:
        shuffle = int(self.dtype.itemsize > 1)
        return {
            "none": None,
            "lz4": {"blocksize": 0, "clevel": 5, "cname": "lz4", "id": "blosc", "shuffle": shuffle},
            "zstd": {"id": "zstd", "level": ZSTD_LEVEL},
        }[self.compress]

    @classmethod
    def from_metadata(cls, data: Any, source: str) -> ArrayLayout:
        """Reads a layout.

        Args:
            source: of the metadata, for errors.

        Raises:
            DatasetError: it isn't one that logloom writes.
        """
        try:
            layout = cls._parse(data)
            layout._check()
            expected = layout.metadata()
        except (ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
            raise DatasetError(f"{source}: not the metadata of a zarr array ({error!r})") from error
        strange = [key for key, value in expected.items() if data.get(key) != value]
        if strange:
            raise DatasetError(
                f"{source}: {strange[0]} is {str(data.get(strange[0]))[:200]}, not as logloom writes it; "
                "open it with zarr or xarray"
            )
        return layout

    @classmethod
    def _parse(cls, data: Mapping[str, Any]) -> ArrayLayout:
        shape = tuple(data["shape"])
        if data["zarr_format"] == 2:
            compressor = data["compressor"]
            compress = "none" if compressor is None else "zstd" if compressor["id"] == "zstd" else "lz4"
            chunk = data["chunks"][0]
            return cls(np.dtype(data["dtype"]), shape, chunk, chunk, compress, 2)
        (sharding,) = [codec["configuration"] for codec in data["codecs"]]
        names = [codec["name"] for codec in sharding["codecs"]]
        compress = "lz4" if "blosc" in names else "zstd" if "zstd" in names else "none"
        shard = data["chunk_grid"]["configuration"]["chunk_shape"][0]
        dtype = _dtype_of(data["data_type"])
        return cls(dtype, shape, sharding["chunk_shape"][0], shard, compress, data["zarr_format"])

    def _check(self) -> None:
        numbers = (*self.shape, self.chunk, self.shard)
        if not self.shape or not all(type(n) is int and 0 <= n < 1 << 62 for n in numbers):
            raise ValueError("a shape that makes no sense")
        if self.format not in (2, 3) or not self.chunk or not self.shard or self.shard % self.chunk:
            raise ValueError("chunks that make no sense")
        if self.dtype.kind not in "biufcU" or not self.dtype.itemsize:
            raise ValueError("not a plain data type")
        if self.chunk_bytes > MAX_CHUNK_BYTES or self.shard // self.chunk > SHARD_BYTES:
            raise ValueError("a chunk or shard of absurd size")


@functools.cache  # one object for all arrays of this kind, of which `json_bytes` makes one text
def _sharding(chunk: int, tail: tuple[int, ...], itemsize: int, compress: str) -> list[dict[str, Any]]:
    codecs: list[dict[str, Any]] = [_LITTLE if itemsize > 1 else {"name": "bytes"}]
    if compress == "lz4":
        shuffle = "shuffle" if itemsize > 1 else "noshuffle"
        settings = {"blocksize": 0, "clevel": 5, "cname": "lz4", "shuffle": shuffle, "typesize": itemsize}
        codecs.append({"name": "blosc", "configuration": settings})
    if compress == "zstd":
        codecs.append({"name": "zstd", "configuration": {"checksum": False, "level": ZSTD_LEVEL}})
    sharding = {
        "chunk_shape": [chunk, *tail],
        "codecs": [*codecs, {"name": "crc32c"}],
        "index_codecs": [_LITTLE, {"name": "crc32c"}],
        "index_location": "end",
    }
    return [{"name": "sharding_indexed", "configuration": sharding}]


@functools.cache  # numpy takes a while to spell a name
def _data_type(dtype: np.dtype[Any]) -> Any:
    if dtype.kind == "U":
        return {"name": "fixed_length_utf32", "configuration": {"length_bytes": dtype.itemsize}}
    return dtype.name


def _dtype_of(data_type: Any) -> np.dtype[Any]:
    if isinstance(data_type, Mapping):
        return np.dtype(f"<U{data_type['configuration']['length_bytes'] // 4}")
    if data_type not in _PLAIN:
        raise ValueError(f"data type {data_type!r}")
    dtype: np.dtype[Any] = np.dtype(data_type)
    return dtype.newbyteorder("<")


def json_bytes(value: Any) -> bytes:
    """Do as `json.dumps` with indent=1 and sorted keys, in half of the time: that indents item by item.

    An object that occurs several times in a value is formatted once.

    >>> value = {"b": [1, {}], "a": "é"}
    >>> json_bytes(value) == json.dumps(value, indent=1, sort_keys=True).encode()
    True
    """
    return _indented(value, "\n", {}).encode()


def _indented(value: Any, line: str, made: dict[tuple[int, str], str]) -> str:
    """Format a value whose own line begins with `line`; `made` caches texts by object and line."""
    if isinstance(value, str):
        return encode_basestring_ascii(value)
    if not isinstance(value, Mapping | list | tuple) or not value:
        return str(value) if type(value) is int else json.dumps(value)
    if (text := made.get((id(value), line))) is None:
        text = made[id(value), line] = _indented_items(value, line, made)
    return text


def _indented_items(value: Any, line: str, made: dict[tuple[int, str], str]) -> str:
    inner = line + " "
    if isinstance(value, Mapping):
        items = [
            f"{encode_basestring_ascii(key)}: {_indented(value[key], inner, made)}" for key in sorted(value)
        ]
        return f"{{{inner}{f',{inner}'.join(items)}{line}}}"
    return f"[{inner}{f',{inner}'.join([_indented(item, inner, made) for item in value])}{line}]"
