"""The layout of datasets saved by `save_to_disk` of Hugging Face's `datasets`.

Here: `files_by_split`, which files these are, and `declared` and `converted`, types that its features declare
beyond those of Arrow.
Elsewhere: reading the files (files).

A dataset is a folder of Arrow streams whose `state.json` lists them. A dataset with splits is a folder with
`dataset_dict.json`, which lists the folders of the splits. The schema of each stream contains the features:
arrays of a fixed shape, which Arrow stores as lists of lists, and names of classes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logloom.errors import DatasetError
from logloom.io.storage.folders import files_of
from logloom.io.storage.metadata import parsed
from logloom.io.storage.store import Store
from logloom.text import some_of

SUFFIXES = (".arrow", ".feather")
DATASET, SPLITS = "state.json", "dataset_dict.json"
_SAVE = "save the dataset again by save_to_disk"
_MOST_CLASSES = 1000  # that a description lists
_NULL_BYTES = 256 << 20  # of the declared shape of a row without a value, or of all nulls within rows


def files_by_split(store: Store) -> tuple[Store, dict[str, str | None]]:
    """Find the files of a dataset.

    Returns:
        A folder; and by the name of each file in it, in the order of the rows, its split, None
        without splits.

    Raises:
        DatasetError: there is no file; a file is missing or outside of the folder, or rows are selected by
            indices.
    """
    names = store.names()
    if SPLITS in names:
        place = store.uri_of(SPLITS)
        splits = _texts(parsed(store.read(SPLITS), place), "splits", place)
        found: dict[str, str | None] = {}
        for split in splits:
            found |= {f"{split}/{name}": split for name in _listed(store, split)}
        return store, found
    if DATASET in names:
        return store, dict.fromkeys(_listed(store, ""))
    folder, files = files_of(store, SUFFIXES)
    if not files:
        raise DatasetError(f"{store.uri}: no Arrow files; correct the path")
    return folder, dict.fromkeys(files)


def _listed(store: Store, folder: str) -> list[str]:
    """The files of a folder that its `state.json` lists."""
    place, there = store.uri_of(f"{folder}/{DATASET}".lstrip("/")), store.names(folder)
    if DATASET not in there:
        raise DatasetError(f"{place}: missing; copy the dataset again, or {_SAVE}")
    state = parsed(store.read(f"{folder}/{DATASET}".lstrip("/")), place)
    if isinstance(state, dict) and (state.get("_indices_data_files") or state.get("_indices_files")):
        raise DatasetError(
            f"{place}: selects its rows by a file of indices, which isn't supported; load it by `datasets`, "
            "call flatten_indices(), and save the result"
        )
    files = state.get("_data_files") if isinstance(state, dict) else None
    if not isinstance(files, list) or not all(isinstance(file, dict) for file in files):
        raise DatasetError(f"{place}: no list of files in _data_files; {_SAVE}")
    listed = _texts({"filename": [file.get("filename") for file in files]}, "filename", place)
    if missing := [name for name in listed if name not in there]:
        raise DatasetError(
            f"{place}: lists {some_of(missing)}, which the folder lacks; copy the dataset again"
        )
    return listed


def _texts(value: Any, key: str, place: str) -> list[str]:
    """Names in one folder that a file lists, each once."""
    found = value.get(key) if isinstance(value, dict) else None
    if not isinstance(found, list) or not found or not all(isinstance(name, str) for name in found):
        raise DatasetError(f"{place}: no list of names in {key}; {_SAVE}")
    for name in found:
        if not name or name.startswith(".") or {*name} & {"/", "\\", "\0", ":"}:
            raise DatasetError(f"{place}: {key} {name!r:.80} leads out of the folder; {_SAVE}")
    if len({*found}) < len(found):
        raise DatasetError(f"{place}: lists a name twice in {key}; {_SAVE}")
    return found


def declared(schema: pa.Schema) -> pa.Schema:
    """Return the schema of a stream with the shapes and classes of its features.

    >>> import json
    >>> info = {"info": {"features": {"a": {"_type": "Array2D", "shape": [2, 3], "dtype": "int8"}}}}
    >>> stored = pa.schema({"a": pa.list_(pa.list_(pa.int8()))}, {"huggingface": json.dumps(info)})
    >>> declared(stored).field("a").type
    FixedSizeListType(fixed_size_list<item: fixed_size_list<item: int8>[3]>[2])
    """
    features = _features(schema)
    fields = []
    for field in schema:
        feature = features.get(field.name)
        if isinstance(feature, dict):
            shape, names = feature.get("shape"), feature.get("names")
            if isinstance(shape, list) and str(feature.get("_type", "")).startswith("Array"):
                field = field.with_type(_shaped(field.type, shape))
            if feature.get("_type") == "ClassLabel" and isinstance(names, list):
                listed = ", ".join(f"{number} {name}" for number, name in enumerate(names[:_MOST_CLASSES]))
                field = field.with_metadata({**(field.metadata or {}), "description": f"classes: {listed}"})
        fields.append(field)
    return pa.schema(fields, schema.metadata)


def _features(schema: pa.Schema) -> Mapping[str, Any]:
    """The features by column; none where the schema has no valid ones, as they only add to Arrow's types."""
    try:
        found = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))["info"]["features"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _shaped(kind: pa.DataType, shape: Sequence[Any]) -> pa.DataType:
    """Lists of lists as a type of fixed shape, whose first axis may be None; unchanged if it doesn't fit."""
    inner = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
    for _ in shape:
        if not pa.types.is_list(inner):
            return kind
        inner = inner.value_type
    for axis in range(len(shape) - 1, -1, -1):
        length = shape[axis]
        if length is None and axis == 0:
            inner = pa.list_(inner)
        elif type(length) is int and 0 < length < 1 << 31:
            inner = pa.list_(inner, length)
        else:
            return kind
    return inner


def fixed_bytes(kind: pa.DataType) -> int:
    """Return how many bytes a value of a type has, even a null, as far as the type determines it.

    >>> fixed_bytes(pa.list_(pa.list_(pa.int16(), 3), 100)), fixed_bytes(pa.list_(pa.int16()))
    (600, 0)
    """
    if pa.types.is_fixed_size_list(kind):
        return int(kind.list_size) * fixed_bytes(kind.value_type)
    return (int(kind.bit_width) + 7) // 8 if pa.types.is_primitive(kind) else 0


def converted(array: Any, kind: pa.DataType, is_inner: bool = False) -> Any:
    """Convert lists of lists to the type that `declared` returns for them.

    Args:
        is_inner: whether the array contains parts of rows.

    Raises:
        ValueError: a row has another shape, or nulls of this shape need too much memory.
    """
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if array.type == kind or not pa.types.is_list(array.type):
        return array
    if pa.types.is_fixed_size_list(kind):
        valid = np.asarray(array.is_valid())
        nulls = array.null_count if is_inner else min(array.null_count, 1)
        if nulls * fixed_bytes(kind) > _NULL_BYTES:
            raise ValueError(
                f"a null of the declared shape, {kind}, needs {fixed_bytes(kind):,} bytes, and nulls may "
                f"need {_NULL_BYTES:,}"
            )
        present = array.drop_null()
        if pc.any(pc.not_equal(pc.list_value_length(present), kind.list_size)).as_py():
            raise ValueError(f"a row of another shape than the declared one, {kind}")
        inner = converted(present.flatten(), kind.value_type, True)
        found = pa.FixedSizeListArray.from_arrays(inner, type=kind)
        rows = pa.array(np.maximum(np.cumsum(valid) - 1, 0), mask=~valid)
        return found if valid.all() else found.take(rows)
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    inner = converted(array.flatten(), kind.value_type, True)
    return pa.ListArray.from_arrays(offsets, inner, type=kind, mask=array.is_null())
