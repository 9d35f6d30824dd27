"""L5Kit datasets in Beam: `ReadFromL5Kit` and `WriteToL5Kit`.

Elements are blocks.

Elsewhere: the implementation that formats share (logloom.io.beam).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from logloom.errors import UsageError
from logloom.io.beam.read import ReadDataset
from logloom.io.beam.write import WriteTo
from logloom.io.formats.l5kit.format import FORMAT
from logloom.io.formats.l5kit.options import L5KitOptions
from logloom.schema import Schema


class ReadFromL5Kit(ReadDataset):
    """Reads a dataset as blocks of frames; a log for each scene, named by its number (see `L5KitReader`).

    The columns are those of `logloom.io.formats.l5kit.mapping.MAPPED_SCHEMA`; `columns` selects among them.
    """

    form = FORMAT


class WriteToL5Kit(WriteTo):
    """Writes blocks as one dataset (see `WriteTo`)."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        schema: Schema,
        options: L5KitOptions,
        period: int | None = None,
        storage_options: Mapping[str, Any] | None = None,
        **how: Any,
    ):
        """Checks what can be checked before there are rows.

        Args:
            schema: of the blocks.
            period: of the rows' clock, in ns, if it has one.
            how: run_id, read_back, stale_after: see `WriteTo`.

        Raises:
            UsageError: the columns don't fit, or the host needs a log's URI, which blocks don't have.
        """
        if any(f"{{{name}}}" in options.host for name in ("stem", "parent", "path")):
            raise UsageError(f"host {options.host!r}: blocks have no URI; use {{log_id}} or a fixed name")
        super().__init__(path, FORMAT, schema, options, period=period, storage_options=storage_options, **how)
