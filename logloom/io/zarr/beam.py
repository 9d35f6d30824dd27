"""Beam transforms over zarr datasets; their elements are blocks.

Elsewhere: the wiring (logloom.io.beam), reading rows (reader), staging and assembling (stage, assemble).
Builds from recipes have their own wiring in logloom.pipelines, with units that outlive a job.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from logloom.errors import UsageError
from logloom.io.beam import Assembling, ReadDataset, WriteAssembled
from logloom.io.storage import Store
from logloom.io.zarr.format import FORMAT
from logloom.io.zarr.options import ZarrOptions
from logloom.io.zarr.reader import ZarrReader
from logloom.schema import Schema


class ReadFromZarr(ReadDataset):
    """Reads a dataset that logloom wrote as blocks, logs side by side (see `ZarrReader`)."""

    opener = ZarrReader


class WriteToZarr(WriteAssembled):
    """Writes blocks as one dataset and gives its path, once it is whole (see `WriteAssembled`)."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        schema: Schema,
        options: ZarrOptions | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ):
        """Checks what can be checked before there are rows.

        Args:
            schema: of the blocks.

        Raises:
            UsageError: a column can't be an array.
        """
        options = options or ZarrOptions()
        if problems := FORMAT.check(options, schema):
            raise UsageError("; ".join(problems))
        target = Store.at(os.fspath(path), storage_options)
        super().__init__(Assembling(FORMAT, target, schema, options, ("zarr.json", ".zgroup")))
