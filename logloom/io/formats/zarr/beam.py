"""Zarr datasets in Beam: `ReadFromZarr` and `WriteToZarr`.

Elements are blocks.

Elsewhere: the implementation that formats share (logloom.io.beam).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from logloom.io.beam.read import ReadDataset
from logloom.io.beam.write import WriteTo
from logloom.io.formats.zarr.format import FORMAT
from logloom.io.formats.zarr.layout import ZarrOptions
from logloom.schema import Schema


class ReadFromZarr(ReadDataset):
    """Reads a dataset that logloom wrote as blocks, logs side by side (see `ZarrReader`)."""

    form = FORMAT


class WriteToZarr(WriteTo):
    """Writes blocks as one dataset (see `WriteTo`)."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        schema: Schema,
        options: ZarrOptions | None = None,
        storage_options: Mapping[str, Any] | None = None,
        **how: Any,
    ):
        """Checks what can be checked before there are rows.

        Args:
            schema: of the blocks.
            how: run_id, read_back, stale_after: see `WriteTo`.

        Raises:
            UsageError: a column can't be an array.
        """
        super().__init__(path, FORMAT, schema, options, storage_options=storage_options, **how)
