"""What a recipe may say under `outputs.zarr`."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from logloom.schema import Schema


class ZarrOptions(BaseModel):
    """`outputs.zarr` of a recipe.

    Attributes:
        rows_per_chunk: rows of a chunk, the least that is read at a time; by default as many as make 32 KiB
            (format 2: 1 MiB). Values of ragged columns are always cut by size, since rows differ.
        format: 3, many chunks to a file (a shard), each with a checksum; or 2, a file for each chunk.
        compress: of columns other than bytes and strings, which are stored as they are.
        columns: names or globs of the columns to write; all by default.
    """

    model_config = ConfigDict(extra="forbid")

    rows_per_chunk: int | None = Field(default=None, ge=1, le=1 << 30)
    format: Literal[2, 3] = 3
    compress: Literal["lz4", "zstd", "none"] = "lz4"
    columns: list[str] | None = None

    def stored(self, schema: Schema) -> Schema:
        """The part of a schema that this output holds.

        Raises:
            UsageError: a pattern matches nothing.
        """
        return schema.part(self.columns)
