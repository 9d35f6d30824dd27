"""Foreign zarr groups, such as xarray's: arrays whose first axis is the rows.

Here: `find_groups`, and `along_rows`, which separates arrays of rows from other arrays of a group;
`dimensions_of`.
Elsewhere: datasets that logloom wrote (reader).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from logloom.errors import DatasetError, UsageError
from logloom.io.storage.faults import fault_of
from logloom.io.storage.filesystems import filesystem
from logloom.io.storage.store import Store

FILES = ("zarr.json", ".zgroup", ".zmetadata", ".zattrs")  # one of them makes a folder a group
_MAX_DEPTH = 8  # of groups in groups
_MAX_ROWS = 1 << 62  # beyond it positions don't fit their numbers

Groups = dict[str, dict[str, Any]]


def find_groups(store: Store) -> tuple[Groups, dict[str, str]]:
    """Find the outermost groups that have arrays: by path ("" is the group itself), their arrays by name.

    The arrays are as zarr opens them. Also returns, by path, why zarr can't open others.

    Raises:
        DatasetError: no group, or a damaged one.
        StorageError: it can't be read.
        UsageError: there are no arrays.
    """
    import zarr

    unreadable: dict[str, str] = {}
    try:
        try:
            group = zarr.open_group(_zarr_store(store), mode="r")
        except (ValueError, TypeError):  # metadata of all arrays in one file, where one is of an unknown type
            group = zarr.open_group(_zarr_store(store), mode="r", use_consolidated=False)
        found = dict(_with_arrays(group, "", store, unreadable))
    except (OSError, ValueError, KeyError, TypeError) as error:
        damage = DatasetError(f"{store.uri}: no zarr group that can be read ({error})")
        raise fault_of(store.uri, error) or damage from error
    if not found:
        reasons = "; ".join(f"{path}: {reason}" for path, reason in unreadable.items())
        raise UsageError(f"{store.uri}: a zarr group without arrays has no rows{reasons and f' ({reasons})'}")
    return found, unreadable


def _with_arrays(
    group: Any, path: str, store: Store, unreadable: dict[str, str], depth: int = 0
) -> Iterator[tuple[str, dict[str, Any]]]:
    arrays: dict[str, Any] = {}
    groups: dict[str, Any] = {}
    for name in _member_names(group, path, store):
        place = f"{path}/{name}".lstrip("/")
        try:
            node = group[name]
        except json.JSONDecodeError:
            raise
        except Exception as error:  # each type and codec has errors of its own
            if (fault := fault_of(f"{store.uri}/{place}", error)) is not None:
                raise fault from error
            if any(store.exists(f"{place}/{file}") for file in ("zarr.json", ".zarray", ".zgroup")):
                unreadable[place] = str(error) or type(error).__name__
            continue
        (arrays if hasattr(node, "ndim") else groups)[name] = node
    if any(array.ndim for array in arrays.values()):
        yield path, arrays
    elif depth < _MAX_DEPTH:
        for name, inner in groups.items():
            yield from _with_arrays(inner, f"{path}/{name}".lstrip("/"), store, unreadable, depth + 1)


def _member_names(group: Any, path: str, store: Store) -> list[str]:
    found_metadata = getattr(group.metadata, "consolidated_metadata", None)
    names = (
        store.names(path)
        if found_metadata is None
        else {key.split("/")[0] for key in found_metadata.metadata}
    )
    return sorted(name for name in names if not name.startswith(".") and name != "zarr.json")


def _zarr_store(store: Store) -> Any:
    if store.local is not None:
        return str(store.local)
    from zarr.storage import FsspecStore

    fs, path = filesystem(store.uri, store.options)
    return FsspecStore.from_mapper(fs.get_mapper(path), read_only=True)


def along_rows(arrays: Mapping[str, Any], place: str) -> dict[str, Any]:
    """Choose the arrays whose first axis is the rows: all but scalars, and coordinates of other axes.

    Raises:
        UsageError: they differ in length.
        DatasetError: they claim an impossible length.
    """
    arrays = {name: array for name, array in arrays.items() if array.ndim}
    dimensions = {name: dimensions_of(array) for name, array in arrays.items()}
    firsts = {names[0] for name, names in dimensions.items() if names and names != (name,)}
    inner = {axis for names in dimensions.values() for axis in names[1:]} - firsts
    rows = {name: array for name, array in arrays.items() if dimensions[name] != (name,) or name not in inner}
    lengths = {name: array.shape[0] for name, array in rows.items()}
    if len(set(lengths.values())) > 1:
        lengths_of = ", ".join(f"{name}: {length}" for name, length in lengths.items())
        raise UsageError(
            f"{place}: its arrays differ in length ({lengths_of}), so it isn't clear what a row is; choose "
            "some of one length: columns=[…], on the command line --columns"
        )
    if (most := max(lengths.values(), default=0)) > _MAX_ROWS:
        raise DatasetError(f"{place}: its arrays claim {most} rows, their metadata are damaged")
    return rows


def dimensions_of(array: Any) -> tuple[str | None, ...]:
    """The names of an array's axes; () where it has none."""
    names = getattr(array.metadata, "dimension_names", None) or array.attrs.get("_ARRAY_DIMENSIONS")
    is_whole = isinstance(names, list | tuple) and len(names) == array.ndim
    is_named = is_whole and all(isinstance(name, str | None) for name in names)
    return tuple(names) if names and is_named else ()
