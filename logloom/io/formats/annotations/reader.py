"""Rows of annotation files of OpenMMLab 2.0, from logloom or other tools.

Here: `AnnotationReader`.
Elsewhere: parsing the files (files), the interface that OpenMMLab's users know
(logloom.datasets.openmmlab).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from logloom.blocks import Block, Ragged
from logloom.caching import cached_property
from logloom.io.formats.annotations.files import AnnotationError, load_annotations
from logloom.io.formats.annotations.infos import as_json
from logloom.io.formats.annotations.mapping import INFO
from logloom.io.rows.log_ranges import Stretches
from logloom.io.rows.sources import BLOCK_BYTES, RowSource
from logloom.io.storage.filesystems import file_name_of
from logloom.schema import STRING, Schema


class AnnotationReader(RowSource):
    """The data infos of a file in order, each as JSON text in the column `data_info`.

    Rows have the log_id and timestamp of their infos; where any has none, the file's name and the infos'
    numbers replace them. Reads the file on first use, pickles without it.
    """

    _schema = Schema({INFO: STRING})

    def __init__(self, uri: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None):
        """Names the file; it is read when a row is asked for.

        Args:
            uri: of the annotation file.
            storage_options: fsspec options by protocol: {"gs": {"token": "anon"}}.
        """
        self.uri = self.place = os.fspath(uri)
        self._storage_options = storage_options

    def __reduce__(self) -> tuple[Any, ...]:
        return (AnnotationReader, (self.uri, self._storage_options))

    @cached_property
    def _annotations(self) -> dict[str, Any]:
        return load_annotations(self.uri, self._storage_options)

    @property
    def metainfo(self) -> dict[str, Any]:
        found: dict[str, Any] = self._annotations["metainfo"]
        return found

    @cached_property
    def _keys(self) -> list[tuple[str, int]]:
        """log_id and timestamp of each row."""
        infos = self._annotations["data_list"]
        if all(_is_timed(info) for info in infos):
            return [(info["log_id"], info["timestamp"]) for info in infos]
        name = file_name_of(self.uri).rpartition(".")[0]
        return [(name, number) for number in range(len(infos))]

    def __len__(self) -> int:
        return len(self._keys)

    @cached_property
    def stretches(self) -> Stretches:
        return Stretches.of_rows([log_id for log_id, _ in self._keys])

    def scan(
        self, names: Sequence[str], max_bytes: int = BLOCK_BYTES, start: int = 0, stop: int | None = None
    ) -> Iterator[Block]:
        """Return rows [start, stop) in order, in blocks.

        Raises:
            AnnotationError: an info is not a JSON value.
        """
        step = max(1, max_bytes // 4096)
        for _, begin, end in self.stretches.between(start, stop):
            for first in range(begin, end, step):
                yield self._block(first, min(first + step, end), first - begin, names)

    def _block(self, start: int, stop: int, first_row: int, names: Sequence[str]) -> Block:
        keys = self._keys[start:stop]
        try:
            infos = self._annotations["data_list"][start:stop] if names else []
            texts = [as_json(info).encode() for info in infos]
        except (TypeError, ValueError) as error:
            raise AnnotationError(
                f"{self.uri}: infos {start} to {stop} are no values of JSON ({error})"
            ) from error
        stamps = np.array([stamp for _, stamp in keys], np.int64)
        columns = {name: Ragged.from_bytes(texts) for name in names}
        return Block(keys[0][0], "file", first_row, {"timestamp": stamps, **columns})


def _is_timed(info: Any) -> bool:
    if not isinstance(info, Mapping):
        return False
    stamp = info.get("timestamp")
    return isinstance(info.get("log_id"), str) and type(stamp) is int and -(1 << 63) <= stamp < 1 << 63
