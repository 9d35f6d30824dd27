"""Beam transforms over L5Kit datasets; their elements are blocks.

Elsewhere: the wiring (logloom.io.beam), reading rows (rows), staging and assembling (stage, assemble). Builds
from recipes have their own wiring in logloom.pipelines, with units that outlive a job.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from logloom.errors import UsageError
from logloom.io.beam import Assembling, ReadDataset, WriteAssembled
from logloom.io.l5kit.format import FORMAT
from logloom.io.l5kit.mapping import mapping_of
from logloom.io.l5kit.options import L5KitOptions
from logloom.io.l5kit.rows import L5KitReader
from logloom.io.storage import Store
from logloom.schema import Schema


class ReadFromL5Kit(ReadDataset):
    """Reads a dataset as blocks of frames; a log for each scene, named by its number (see `L5KitReader`).

    The columns are those of `logloom.io.l5kit.mapping.MAPPED_SCHEMA`; `columns` selects among them.
    """

    opener = L5KitReader


class WriteToL5Kit(WriteAssembled):
    """Writes blocks as one dataset and gives its path, once it is whole (see `WriteAssembled`)."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        schema: Schema,
        options: L5KitOptions,
        period: int | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ):
        """Checks what can be checked before there are rows.

        Args:
            schema: of the blocks.
            period: of the rows' clock, in ns, where it has one.

        Raises:
            UsageError: the columns don't fit, or the host needs a log's URI, which blocks don't have.
        """
        mapping_of(options, schema)
        if any(f"{{{name}}}" in options.host for name in ("stem", "parent", "path")):
            raise UsageError(f"host {options.host!r}: blocks have no URI; use {{log_id}} or a fixed name")
        target = Store.at(os.fspath(path), storage_options)
        super().__init__(Assembling(FORMAT, target, schema, options, (".zgroup",), period=period))
