"""An annotation file as rows: any of OpenMMLab 2.0, whoever wrote it.

Here: `AnnotationReader`.
Elsewhere: the files themselves (files), the interface that OpenMMLab's users know
(logloom.datasets.openmmlab).
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from logloom.blocks import Block, Ragged
from logloom.io.annotations.files import AnnotationError, load_annotations
from logloom.io.annotations.infos import as_json
from logloom.io.annotations.mapping import INFO
from logloom.io.filesystems import file_name_of
from logloom.schema import STRING, Schema


class AnnotationReader:
    """The data infos of a file in order, each as JSON text in the column `data_info`.

    Rows have the log_id and timestamp that infos say; where any says none, the file's name and the infos'
    numbers stand for them. Reads the file on first use, pickles without it.
    """

    schema = Schema({INFO: STRING})

    def __init__(self, uri: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None):
        self.uri = os.fspath(uri)
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
        if all(_says_when(info) for info in infos):
            return [(info["log_id"], info["timestamp"]) for info in infos]
        name = file_name_of(self.uri).rpartition(".")[0]
        return [(name, number) for number in range(len(infos))]

    def __len__(self) -> int:
        return len(self._keys)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.row(index)

    def row(self, index: int, columns: Sequence[str] | None = None) -> dict[str, Any]:
        index = range(len(self))[index]
        names = self.schema.select(columns)
        return self._block(index, index + 1, 0).row(0, self.schema, names)

    def blocks(self, columns: Sequence[str] | None = None, max_bytes: int = 64 << 20) -> Iterator[Block]:
        """All rows in order, a log after the other.

        Raises:
            AnnotationError: an info is no value of JSON.
        """
        self.schema.select(columns)
        start = 0
        for _, rows in itertools.groupby(self._keys, key=lambda key: key[0]):
            begin, end = start, start + sum(1 for _ in rows)
            step = max(1, max_bytes // 4096)
            for first in range(begin, end, step):
                yield self._block(first, min(first + step, end), first - begin)
            start = end

    def _block(self, start: int, stop: int, first_row: int) -> Block:
        keys = self._keys[start:stop]
        try:
            texts = [as_json(info).encode() for info in self._annotations["data_list"][start:stop]]
        except (TypeError, ValueError) as error:
            raise AnnotationError(
                f"{self.uri}: infos {start} to {stop} are no values of JSON ({error})"
            ) from error
        stamps = np.array([stamp for _, stamp in keys], np.int64)
        return Block(keys[0][0], "file", first_row, {"timestamp": stamps, INFO: Ragged.from_bytes(texts)})


def _says_when(info: Any) -> bool:
    if not isinstance(info, Mapping):
        return False
    stamp = info.get("timestamp")
    return isinstance(info.get("log_id"), str) and type(stamp) is int and -(1 << 63) <= stamp < 1 << 63
