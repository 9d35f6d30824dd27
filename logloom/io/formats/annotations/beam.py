"""Annotation files in Beam: `ReadFromAnnotations` and `WriteToAnnotations`.

Elements are blocks.

Elsewhere: the implementation that formats share (logloom.io.beam).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from logloom.io.beam.read import ReadDataset
from logloom.io.beam.write import WriteTo
from logloom.io.formats.annotations.format import FORMAT
from logloom.io.formats.annotations.options import Options
from logloom.schema import Schema


class ReadFromAnnotations(ReadDataset):
    """Reads annotation files as blocks of data infos (see `AnnotationReader`)."""

    form = FORMAT


class WriteToAnnotations(WriteTo):
    """Writes blocks as one annotation file with the files it refers to, ordered by (log_id, timestamp).

    The folder may contain other annotation files, which may refer to the same files (see `WriteTo`).
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        schema: Schema,
        options: Options,
        split: str = "all",
        storage_options: Mapping[str, Any] | None = None,
        **how: Any,
    ):
        """Checks what can be checked before there are rows.

        Args:
            schema: of the blocks.
            split: names the file, by `options.file`.
            how: run_id, read_back, stale_after: see `WriteTo`.

        Raises:
            UsageError: the columns don't fit.
        """
        file = options.file_of(split)
        options = options.model_copy(
            update={"file": file.replace("{", "{{").replace("}", "}}")}
        )  # a template
        super().__init__(folder, FORMAT, schema, options, storage_options=storage_options, file=file, **how)
