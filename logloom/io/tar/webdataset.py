"""Tar shards in the WebDataset convention: a row for each sample.

Here: which columns members become. `left.jpg` is column `left` (`left.jpg` where there is a left.json too);
`__key__` is column `key`. Arrays (.npy), text (.txt, .json) and class numbers (.cls) are what they say; all
others stay bytes. In shards that logloom wrote, meta.json says log, time and small values.
Elsewhere: reading archives, and refusing hostile ones (stream), samples for training (shards).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from logloom.errors import DatasetError
from logloom.io.folders import content_of, files_of
from logloom.io.pieces import Batch, DatasetPiece
from logloom.io.survey import RawColumn
from logloom.io.surveyed import SurveyedSource
from logloom.io.tar.meta import own_meta
from logloom.io.tar.npy import read_npy
from logloom.io.tar.samples import EXTENSION, META
from logloom.io.tar.stream import SUFFIXES, open_stream, stream_samples
from logloom.schema import RESERVED_LAST_PARTS

_KEY = "__key__"


class WebDatasetSource(SurveyedSource):
    """See `SurveyedSource`; a piece is a shard."""

    kind = "webdataset"

    def find(self) -> None:
        """
        Raises:
            DatasetError: there is no shard.
        """
        store = self._store
        self._store, self._shards = files_of(store, SUFFIXES)
        if not self._shards:
            raise DatasetError(f"{store.uri}: no shards ({', '.join(SUFFIXES)})")

    def names(self) -> Sequence[str]:
        """Of the first sample."""
        uri = self._store.uri_of(self._shards[0])
        for sample in self._samples(self._shards[0]):
            row = _row(sample, uri, None)
            return [name for name in row if not _is_meta(name, row)]
        raise DatasetError(f"{uri}: no samples")

    def pieces(self, names: Sequence[str] | None) -> Sequence[DatasetPiece]:
        """The shards by name."""
        return [
            DatasetPiece(self._store.uri_of(shard), shard, *content_of(self._store, [shard]))
            for shard in self._shards
        ]

    def batches(self, piece: DatasetPiece, names: Sequence[str] | None, max_bytes: int) -> Iterator[Batch]:
        """See `SurveyedSource.batches`."""
        rows: list[dict[str, Any]] = []
        size = 0
        for sample in self._samples(piece.where):
            row = _row(sample, piece.place, names)
            if rows and row.keys() != rows[0].keys():
                odd = ", ".join(sorted(row.keys() ^ rows[0].keys())[:5])
                raise DatasetError(
                    f"{piece.place}: sample {sample[_KEY]} has other members than those before ({odd})"
                )
            rows.append(row)
            size += sum(len(data) for data in sample.values())
            if size >= max_bytes:
                yield _batch(rows)
                rows, size = [], 0
        if rows:
            yield _batch(rows)

    def forms(self, names: Sequence[str]) -> Mapping[str, str]:
        """Extensions of members that stay bytes, by the first sample."""
        sample = next(iter(self._samples(self._shards[0])), {})
        found = {}
        for name, suffix in _names_of(sample).items():
            extension = suffix.rpartition(".")[2]
            if extension not in _DECODERS and EXTENSION.fullmatch(extension):
                found[name] = {"jpeg": "jpg"}.get(extension, extension)
        return {name: form for name, form in found.items() if name in names}

    def _samples(self, shard: str) -> Iterator[dict[str, Any]]:
        uri = self._store.uri_of(shard)
        with open_stream(uri, options=self._store.options) as stream:
            yield from stream_samples(stream, uri)


def _names_of(sample: Mapping[str, Any]) -> dict[str, str]:
    """The members' columns, and their suffixes without the first dot."""
    suffixes = [suffix[1:] for suffix in sample if suffix != _KEY]
    stems = [suffix.rpartition(".")[0] or suffix for suffix in suffixes]
    return dict(zip(stems if len(set(stems)) == len(stems) else suffixes, suffixes, strict=True))


def _row(sample: Mapping[str, Any], place: str, names: Sequence[str] | None) -> dict[str, Any]:
    """A sample's values by column; None is all of them."""
    meta = _own_meta(sample)
    row: dict[str, Any] = {"key": sample[_KEY]} if meta is None else {**meta}
    for name, suffix in _names_of(sample).items():
        if (suffix == META and meta is not None) or (names is not None and name not in names):
            continue
        decode = _DECODERS.get(suffix.rpartition(".")[2])
        data = sample[f".{suffix}"]
        try:
            row[name] = decode(data) if decode is not None else data
        except (ValueError, UnicodeDecodeError) as error:
            raise DatasetError(f"{place}: {sample[_KEY]}.{suffix}: {error}") from error
    wanted = {name for name in row if names is None or name in names}
    return {name: value for name, value in row.items() if {name, name.rpartition(".")[0]} & wanted}


def _own_meta(sample: Mapping[str, Any]) -> dict[str, Any] | None:
    """What meta.json says in a shard that logloom wrote, None in others."""
    data = sample.get(f".{META}")
    return None if data is None else own_meta(sample[_KEY], data)


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


def _is_meta(name: str, row: Mapping[str, Any]) -> bool:
    base, _, last = name.rpartition(".")
    return last in RESERVED_LAST_PARTS and base in row


def _batch(rows: Sequence[Mapping[str, Any]]) -> Batch:
    return {name: _column(name, rows) for name in rows[0] if not _is_meta(name, rows[0])}


def _column(name: str, rows: Sequence[Mapping[str, Any]]) -> RawColumn:
    values = [row[name] for row in rows]
    plain: Any = values
    for kind, dtype in ((bool, "?"), (int, "<i8"), (float, "<f8")):
        if all(type(value) is kind for value in values):
            plain = np.array(values, dtype)
    if f"{name}.available" not in rows[0]:
        return RawColumn(plain)
    available = np.array([row[f"{name}.available"] for row in rows], np.bool_)
    ages = np.array([row[f"{name}.age"] for row in rows], np.int64)
    return RawColumn(plain, None, False, available, ages)
