"""Options of a recipe under `outputs.zarr`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from logloom.io.storage.metadata import ChosenColumns


class ZarrOptions(ChosenColumns):
    """`outputs.zarr` of a recipe.

    Attributes:
        rows_per_chunk: rows of a chunk, the least that is read at a time; by default for chunks of 32 KiB
            (format 2: 1 MiB). Values of ragged columns are always cut by size, since rows differ.
        format: 3, many chunks to a file (a shard), each with a checksum; or 2, a file for each chunk.
        compress: of columns other than bytes and strings, which are stored as they are.
    """

    rows_per_chunk: int | None = Field(default=None, ge=1, le=1 << 30)
    format: Literal[2, 3] = 3
    compress: Literal["lz4", "zstd", "none"] = "lz4"
