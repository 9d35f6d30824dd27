"""Beam transforms over annotation files; their elements are blocks.

Elsewhere: the wiring (logloom.io.beam), reading files (reader), staging and assembling (stage, assemble).
Builds from recipes have their own wiring in logloom.pipelines, with units that outlive a job.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from logloom.blocks import Block
from logloom.extras import beam_needed
from logloom.io.annotations.format import FORMAT
from logloom.io.annotations.mapping import mapping_of
from logloom.io.annotations.options import Options
from logloom.io.annotations.reader import AnnotationReader
from logloom.io.storage import Store
from logloom.schema import Schema

with beam_needed():
    import apache_beam as beam

from logloom.io.beam import Assembling, WriteAssembled


class ReadFromAnnotations(beam.PTransform):
    """Reads annotation files as blocks of data infos (see `AnnotationReader`); each is read by one worker."""

    def __init__(
        self,
        uris: str | Sequence[str],
        columns: Sequence[str] | None = None,
        max_bytes: int = 64 << 20,
        storage_options: Mapping[str, Any] | None = None,
    ):
        super().__init__()
        self.uris = [uris] if isinstance(uris, str | os.PathLike) else list(uris)
        self.columns = columns
        self.max_bytes = max_bytes
        self.storage_options = storage_options

    def expand(self, begin: Any) -> Any:
        return (
            begin
            | "NameFiles" >> beam.Create([os.fspath(uri) for uri in self.uris])
            | "SpreadFiles" >> beam.Reshuffle()
            | "ReadInfos" >> beam.FlatMap(_read, self.columns, self.max_bytes, self.storage_options)
        )


class WriteToAnnotations(WriteAssembled):
    """Writes blocks as one annotation file with the files it names, and gives its URI once it is whole.

    Files go to `folder` as they come; otherwise as `WriteAssembled`.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        schema: Schema,
        options: Options,
        split: str = "all",
        storage_options: Mapping[str, Any] | None = None,
    ):
        """Checks what can be checked before there are rows.

        Args:
            schema: of the blocks.
            split: names the file, by `options.file`.

        Raises:
            UsageError: the columns don't fit.
        """
        mapping_of(options, schema)
        target, file = Store.at(os.fspath(folder), storage_options), options.file_of(split)
        # The file's name, whatever split units are of, and where there are none.
        named = options.model_copy(update={"file": file.replace("{", "{{").replace("}", "}}")})
        super().__init__(Assembling(FORMAT, target, schema, named, (file,)))
        self._uri = target.uri_of(file)

    def expand(self, blocks: Any) -> Any:
        uri = self._uri
        return super().expand(blocks) | "NameFile" >> beam.Map(lambda _: uri)


def _read(
    uri: str, columns: Sequence[str] | None, max_bytes: int, storage_options: Mapping[str, Any] | None
) -> Iterator[Block]:
    return AnnotationReader(uri, storage_options).blocks(columns, max_bytes)
