"""Bags in Beam: `ReadFromBags` and `WriteToBags`, whose elements are blocks.

Elsewhere: the implementation that formats share (logloom.io.beam). The other modules here don't import Beam.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from logloom.errors import UsageError
from logloom.io.beam.read import ReadUnits
from logloom.io.beam.write import WriteTo
from logloom.io.formats.bags.bag import Generation
from logloom.io.formats.bags.format import FORMAT, BagsOptions
from logloom.schema import Schema
from logloom.validation import describe_first


class ReadFromBags(ReadUnits):
    """Reads the rows of folders of bags as blocks."""

    form = FORMAT


class WriteToBags(WriteTo):
    """Writes blocks as the shards of one dataset, one for each partition: 000000/, … (see `WriteTo`)."""

    def __init__(
        self,
        root: str,
        schema: Schema,
        types: Mapping[str, str] | None = None,
        generation: Generation = 1,
        storage_options: Mapping[str, Any] | None = None,
        **how: Any,
    ):
        """
        Args:
            root: path or URI of a new or empty folder.
            types, generation: as for `BagsWriter`.
            how: run_id, read_back, stale_after: see `WriteTo`.

        Raises:
            UsageError: the columns or types don't fit, or there is no such generation.
        """
        try:
            options = BagsOptions(types=dict(types or {}), generation=generation)
        except ValidationError as error:
            raise UsageError(describe_first(error)) from error
        super().__init__(root, FORMAT, schema, options, storage_options=storage_options, **how)
