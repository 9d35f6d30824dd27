"""Samples of tar shards in the WebDataset convention as rows of columns, for conversions.

Here: the column that each member becomes. `left.jpg` is column `left` (`left.jpg` where there is a left.json
too); `__key__` is column `key`, and a member of this name `key_`. Arrays (.npy), text (.txt, .json) and class
numbers (.cls) are decoded; all others stay bytes. In shards that logloom wrote, meta.json contains log, time
and small values.
Elsewhere: reading archives, and refusing hostile ones (stream), samples (shards).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from logloom.errors import DatasetError
from logloom.io.formats.tar.npy import read_npy
from logloom.io.formats.tar.sample_json import own_meta
from logloom.io.formats.tar.samples import EXTENSION, META
from logloom.io.rows.inference.files import Batch
from logloom.io.rows.inference.types import RawColumn
from logloom.schema import RESERVED_LAST_PARTS

KEY = "__key__"
_KEY_COLUMN = "key"


def _names_of(sample: Mapping[str, Any], is_own: bool) -> dict[str, str]:
    """The members' columns, and their suffixes without the first dot.

    Args:
        is_own: whether logloom wrote it; in others' the samples' keys are a column, too.
    """
    suffixes = [suffix[1:] for suffix in sample if suffix != KEY]
    stems = [suffix.rpartition(".")[0] or suffix for suffix in suffixes]
    names = stems if len(set(stems)) == len(stems) else suffixes
    if not is_own:
        names = [_beside_key(name, names) for name in names]
    return dict(zip(names, suffixes, strict=True))


def _beside_key(name: str, names: Sequence[str]) -> str:
    """The name of a member's column where `key` is the samples' keys."""
    if name == _KEY_COLUMN:
        while name == _KEY_COLUMN or name in names:
            name += "_"
    return name


def notes_of(sample: Mapping[str, Any]) -> list[str]:
    """For people: which members aren't called as their columns."""
    if _own_meta(sample) is not None:
        return []
    as_they_are = _names_of(sample, is_own=True)
    return [
        f"member {suffix} is column {name}; column {_KEY_COLUMN} has the samples' keys"
        for name, suffix in _names_of(sample, is_own=False).items()
        if name not in as_they_are
    ]


def forms_of(sample: Mapping[str, Any]) -> dict[str, str]:
    """Extensions of the members that stay bytes, by column."""
    names = _names_of(sample, _own_meta(sample) is not None)
    extensions = {name: suffix.rpartition(".")[2] for name, suffix in names.items()}
    return {
        name: {"jpeg": "jpg"}.get(extension, extension)
        for name, extension in extensions.items()
        if extension not in _DECODERS and EXTENSION.fullmatch(extension)
    }


def row_of(sample: Mapping[str, Any], place: str, names: Sequence[str] | None) -> dict[str, Any]:
    """A sample's values by column; None is all of them.

    Raises:
        DatasetError: a member isn't what its extension says.
    """
    meta = _own_meta(sample)
    row: dict[str, Any] = {_KEY_COLUMN: sample[KEY]} if meta is None else {**meta}
    for name, suffix in _names_of(sample, meta is not None).items():
        if (suffix == META and meta is not None) or (names is not None and name not in names):
            continue
        decode = _DECODERS.get(suffix.rpartition(".")[2])
        data = sample[f".{suffix}"]
        try:
            row[name] = decode(data) if decode is not None else data
        except (ValueError, UnicodeDecodeError) as error:
            raise DatasetError(f"{place}: {sample[KEY]}.{suffix}: {error}") from error
    wanted = {name for name in row if names is None or name in names}
    return {name: value for name, value in row.items() if {name, name.rpartition(".")[0]} & wanted}


def _own_meta(sample: Mapping[str, Any]) -> dict[str, Any] | None:
    """What meta.json says in a shard that logloom wrote, None in others."""
    data = sample.get(f".{META}")
    return None if data is None else own_meta(sample[KEY], data)


def _class_number(data: bytes) -> int:
    number = int(data.decode("ascii"))
    if not -(2**63) <= number < 2**63:
        raise ValueError(f"{number} is more than int64 holds")
    return number


def _array(data: bytes) -> Any:
    return read_npy(np.frombuffer(data, np.uint8))


def _text(data: bytes) -> str:
    return data.decode("utf-8")


_DECODERS: dict[str, Callable[[bytes], Any]] = {
    **dict.fromkeys(("cls", "cls2", "class", "count", "index", "inx", "id"), _class_number),
    **dict.fromkeys(("txt", "text", "transcript", "json", "jsn"), _text),
    "npy": _array,
}


def is_meta(name: str, row: Mapping[str, Any]) -> bool:
    """Whether it is the age or availability of another column."""
    base, _, last = name.rpartition(".")
    return last in RESERVED_LAST_PARTS and base in row


def batch_of(rows: Sequence[Mapping[str, Any]]) -> Batch:
    """Rows of the same columns."""
    return {name: _column(name, rows) for name in rows[0] if not is_meta(name, rows[0])}


def _column(name: str, rows: Sequence[Mapping[str, Any]]) -> RawColumn:
    values = [row[name] for row in rows]
    plain: Any = values
    if all(type(value) is int for value in values):
        plain = np.array(values, "<i8")
    elif isinstance(values[0], np.generic) and len({type(value) for value in values}) == 1:
        plain = np.array(values)
    if f"{name}.available" not in rows[0]:
        return RawColumn(plain)
    available = np.array([row[f"{name}.available"] for row in rows], np.bool_)
    ages = np.array([row[f"{name}.age"] for row in rows], np.int64)
    return RawColumn(plain, None, False, available, ages)
