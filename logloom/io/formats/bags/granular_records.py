"""Conversion of the records of bags that granular wrote to columns.

Here: the column that each type becomes. utf8 is text; int, i64 and u64 are numbers; arrays are arrays; a tree
of arrays is structured; images, videos, msgpack and user-defined types stay bytes. Sequences of arrays,
numbers and text are ragged columns.
Elsewhere: reading bags (dataset_reader), datapoints (foreign_source).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from logloom.blocks import Array
from logloom.errors import DatasetError
from logloom.io.formats.bags.codecs import decode_int, decode_msgpack, decode_tree, decode_utf8, decoders
from logloom.io.formats.bags.spec import is_sequence
from logloom.io.rows.inference.files import Batch
from logloom.io.rows.inference.types import RawColumn

_NUMBERS = {"int": "<i8", "i64": "<i8", "u64": "<u8"}


def column_of(key: str, type_name: str, values: list[Any], place: str) -> RawColumn:
    """Convert the values of a key, decoded by `DECODERS`, to a column.

    Raises:
        DatasetError: a number is too large, or a sequence can't be a column.
    """
    base = type_name.removesuffix("[]")
    try:
        if is_sequence(type_name):
            return RawColumn([_sequence(base, row) for row in values], is_sequence=True)
        if base in _NUMBERS:
            return RawColumn(np.array(values, _NUMBERS[base]))
    except (ValueError, OverflowError) as error:
        raise DatasetError(f"{place}: {key}: {error}; leave it out by --columns") from error
    return RawColumn(values)


def _sequence(base: str, row: list[Any]) -> Array | None:
    """A row's sequence as one array; None for an empty one."""
    if not row:
        return None
    if base in _NUMBERS:
        return np.array(row, _NUMBERS[base])
    if base == "utf8":
        if any(text.endswith("\0") for text in row):
            raise ValueError("text that ends in NUL, which an array of text would lose")
        return np.array(row, np.str_)
    if base == "array":
        if len({(item.dtype, item.shape) for item in row}) > 1:
            raise ValueError("a sequence of arrays of different shapes")
        return np.stack(row)
    raise ValueError(f"a sequence of {base} is no column")


def _tree(record: bytes) -> Any:
    """A structured array where the tree is a dict of arrays of one length, else the record as it is."""
    found = decode_tree(record)
    if isinstance(found, np.ndarray):
        return found
    leaves = list(_leaves(found))
    if not leaves or not all(isinstance(leaf, np.ndarray) for leaf in leaves):
        return record
    rank = min(leaf.ndim for leaf in leaves)
    shape = leaves[0].shape[:rank]
    if any(leaf.shape[:rank] != shape for leaf in leaves):
        return record
    array = np.zeros(shape, _dtype_of(found, rank))
    _fill(array, found)
    return array


def _leaves(tree: Any) -> Iterator[Any]:
    if isinstance(tree, dict) and all(isinstance(name, str) and name for name in tree):
        for item in tree.values():
            yield from _leaves(item)
    else:
        yield tree


def _dtype_of(tree: Any, rank: int) -> np.dtype[Any]:
    if isinstance(tree, dict):
        return np.dtype([(name, _dtype_of(item, rank)) for name, item in tree.items()])
    return np.dtype((tree.dtype, tree.shape[rank:]))


def _fill(array: Array, tree: dict[str, Any]) -> None:
    for name, item in tree.items():
        if isinstance(item, dict):
            _fill(array[name], item)
        else:
            array[name] = item


DECODERS: Mapping[str, Callable[[bytes], Any]] = {  # all others stay bytes
    "utf8": decode_utf8,
    "int": decode_int,
    "i64": decoders["i64"],
    "u64": decoders["u64"],
    "array": decoders["array"],
    "tree": _tree,
}


def with_meta(batch: dict[str, RawColumn], metas: list[bytes], sampled: Sequence[str], place: str) -> Batch:
    """Add the ages and availabilities in `meta` records to the sampled columns of a batch."""
    try:
        rows = [decode_msgpack(record) for record in metas]
    except (ValueError, TypeError, RecursionError) as error:
        raise DatasetError(f"{place}: meta.bag holds no msgpack ({error!r})") from error
    found = dict(batch)
    for column in (name for name in sampled if name in batch):
        try:
            ages = np.array([row[f"{column}.age"] for row in rows], np.int64)
            available = np.array([row[f"{column}.available"] for row in rows], np.bool_)
        except (TypeError, KeyError, ValueError, OverflowError) as error:
            raise DatasetError(f"{place}: meta.bag says nothing of {column} ({error!r})") from error
        found[column] = RawColumn(batch[column].values, None, False, available, ages)
    return found
