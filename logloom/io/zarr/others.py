"""Zarr groups that others wrote, such as xarray: arrays whose first axis is the rows.

Here: `open_groups`, and `along_rows`, which tells rows from what else lies in a group.
Elsewhere: our own datasets (reader).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from logloom.errors import DatasetError, UsageError
from logloom.io.storage import Store, filesystem

FILES = ("zarr.json", ".zgroup", ".zmetadata", ".zattrs")  # one of them makes a folder a group
_MAX_DEPTH = 8  # of groups in groups


def open_groups(store: Store) -> dict[str, dict[str, Any]]:
    """The outermost groups that have arrays: by path ("" is the group itself), their arrays by name.

    The arrays are as zarr opens them; scalars are left out.

    Raises:
        DatasetError: no group, or a damaged one.
        UsageError: there are no arrays.
    """
    import zarr

    try:
        found = dict(_with_arrays(zarr.open_group(_zarr_store(store), mode="r"), ""))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DatasetError(f"{store.uri}: no zarr group that can be read ({error})") from error
    if not found:
        raise UsageError(f"{store.uri}: a zarr group without arrays has no rows")
    return found


def _with_arrays(group: Any, path: str, depth: int = 0) -> Iterator[tuple[str, dict[str, Any]]]:
    arrays = {name: array for name, array in sorted(group.arrays()) if array.ndim}
    if arrays:
        yield path, arrays
    elif depth < _MAX_DEPTH:
        for name, inner in sorted(group.groups(), key=lambda pair: str(pair[0])):
            yield from _with_arrays(inner, f"{path}/{name}".lstrip("/"), depth + 1)


def _zarr_store(store: Store) -> Any:
    if store.local is not None:
        return str(store.local)
    from zarr.storage import FsspecStore

    fs, path = filesystem(store.uri, store.options)
    return FsspecStore.from_mapper(fs.get_mapper(path), read_only=True)


def along_rows(arrays: Mapping[str, Any], place: str) -> dict[str, Any]:
    """The arrays whose first axis is the rows: all but coordinates of their other axes.

    Raises:
        UsageError: they differ in length.
    """
    dimensions = {name: _dimensions(array) for name, array in arrays.items()}
    firsts = {names[0] for name, names in dimensions.items() if names and names != (name,)}
    inner = {axis for names in dimensions.values() for axis in names[1:]} - firsts
    rows = {name: array for name, array in arrays.items() if dimensions[name] != (name,) or name not in inner}
    lengths = {name: array.shape[0] for name, array in rows.items()}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{name}: {length}" for name, length in lengths.items())
        raise UsageError(
            f"{place}: its arrays differ in length ({told}), so it isn't clear what a row is; choose some "
            "of one length: columns=[…], on the command line --columns"
        )
    return rows


def _dimensions(array: Any) -> tuple[str | None, ...]:
    """The names of an array's axes; () where it has none."""
    names = getattr(array.metadata, "dimension_names", None) or array.attrs.get("_ARRAY_DIMENSIONS")
    is_whole = isinstance(names, list | tuple) and len(names) == array.ndim
    return tuple(names) if names and is_whole else ()
