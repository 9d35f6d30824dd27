"""Write a dataset, a folder with a bag for each key, datapoint by datapoint.

Here: `DatasetWriter`, and `UnfinishedDataset`, the files of a dataset while they are written.
Elsewhere: reading (logloom.io.formats.bags.dataset_reader), single bags (logloom.io.formats.bags.bag),
several datasets as one (logloom.io.formats.bags.shards), rows of blocks (logloom.io.formats.bags.row_writer).
"""

from __future__ import annotations

import json
import pathlib
import shutil
import tempfile
import uuid
from collections.abc import Mapping
from typing import Any

import msgpack

from logloom.errors import UsageError
from logloom.io.formats.bags.bag import Generation, RecordFile
from logloom.io.formats.bags.codecs import array_parts, encode_array
from logloom.io.formats.bags.files import SPEC, ClosedAtEnd, Folder, already_there, open_folder
from logloom.io.formats.bags.spec import REFS, Codecs, check_spec, codecs_for, is_sequence
from logloom.io.storage.filesystems import explained

_AT_ONCE = 512 << 10  # larger arrays are written from where they are; smaller ones gather into large writes


class DatasetWriter(ClosedAtEnd):
    """Writes a dataset; its folder appears when it is closed, whole.

    Until then its files are in a folder next to it. Leaving the `with` by an exception leaves nothing behind.

    Examples:
        >>> spec = {"label": "int", "words": "utf8[]"}
        >>> with bags.DatasetWriter("new", spec, bags.encoders) as writer:
        ...     for number in range(3):
        ...         place = writer.append({"label": number, "words": ["stop"] * number}, flush=False)
        >>> place  # in the dataset, from 0
        2
    """

    def __init__(
        self,
        directory: Any,
        spec: Mapping[str, str],
        encoders: Codecs,
        *,
        generation: Generation = 1,
        beside: Folder | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ):
        """
        Args:
            directory: a path, URI or path-like object of a folder that doesn't exist yet.
            spec: the type of each key; `type[]` for lists.
            encoders: a function to bytes for each type; None takes bytes as they are.
            generation: 1, which every client reads, or 3.
            beside: the folder next to which unfinished files are kept; by default the folder itself.
            storage_options: fsspec options by protocol: {"gs": {"token": "anon"}}.

        Raises:
            UsageError: the folder exists, or a key or a type is invalid.
        """
        folder = open_folder(directory, storage_options)
        self._unfinished = UnfinishedDataset(folder, spec, generation, beside=beside)
        self._encoders = codecs_for(self.spec, encoders, "encoder", folder.name)
        self._plan = list(self._unfinished.files.items())
        self._refs = self._unfinished.refs
        self._has_sequences = any(map(is_sequence, self.spec.values()))
        self._length = 0

    @property
    def spec(self) -> dict[str, str]:
        return self._unfinished.spec

    @property
    def closed(self) -> bool:
        """Whether the dataset was finished, or given up by an exception."""
        return self._unfinished.closed

    @property
    def size(self) -> int:
        """Bytes of the bags, their tables included."""
        return self._unfinished.size

    def __len__(self) -> int:
        return self._length

    def append(self, datapoint: Mapping[str, Any], flush: bool = True) -> int:
        """Adds a datapoint, whole or not at all.

        Args:
            datapoint: a value for each key of the spec, in any order; an iterable for a sequence.
            flush: ignored, as in granular; records are written when enough of them are buffered.

        Returns:
            The datapoint's number.

        Raises:
            UsageError: other keys than the spec's, or a value that can't be encoded (with the cause).
        """
        self._unfinished.check_open()
        if datapoint.keys() != self.spec.keys():
            self._complain(datapoint)
        before = [len(file) for _, file in self._plan] if self._has_sequences else None
        try:
            refs = [self._append_value(key, file, datapoint[key]) for key, file in self._plan]
        except BaseException:
            for number, (_, file) in enumerate(self._plan):
                file.rollback(before[number] if before else self._length)
            raise
        if self._refs is not None:
            self._refs.append(msgpack.packb(refs))
        self._length += 1
        return self._length - 1

    def _append_value(self, key: str, file: RecordFile, value: Any) -> Any:
        encoder = self._encoders[key]
        if not is_sequence(self.spec[key]):
            return self._append_record(key, file, encoder, value)
        first = len(file)
        for item in value:  # one at a time: it may be a generator of many large values
            self._append_record(key, file, encoder, item)
        count = len(file) - first
        return [first, count] if count else []

    def _append_record(self, key: str, file: RecordFile, encoder: Any, value: Any) -> int:
        try:
            if encoder is encode_array and getattr(value, "nbytes", 0) >= _AT_ONCE:
                return file.append_at_once(*array_parts(value))
            record = encoder(value) if encoder else value
            if type(record) is not bytes:
                raise TypeError(f"the encoder must return bytes, not {type(record).__name__}")
        except Exception as error:
            raise UsageError(
                f"datapoint {self._length}: {key!r} can't be encoded as {self.spec[key]}: {error}"
            ) from error
        return file.append(record)

    def _complain(self, datapoint: Mapping[str, Any]) -> None:
        missing = sorted(self.spec.keys() - datapoint.keys())
        unknown = sorted(map(str, datapoint.keys() - self.spec.keys()))
        words = [f"lacks {', '.join(missing)}"] * bool(missing) + [f"has {', '.join(unknown)}"] * bool(
            unknown
        )
        raise UsageError(
            f"datapoint {self._length} {' and '.join(words)}; its keys must be those of the spec: "
            f"{', '.join(self.spec)}"
        )

    def flush(self) -> None:
        """Hands everything to the operating system."""
        self._unfinished.flush()

    def close(self) -> None:
        """Finish the dataset and give its folder its name.

        Raises:
            UsageError: another writer finished this dataset first.
        """
        self._unfinished.close()

    def _abandon(self) -> None:
        self._unfinished.abandon()


class UnfinishedDataset:
    """The files of a dataset while they are written.

    Attributes:
        files: of records by key, sorted.
        refs: the file of references, None in the third generation.
        closed: whether the files were finished or abandoned.
    """

    def __init__(
        self,
        folder: Folder,
        spec: Mapping[str, str],
        generation: Generation = 1,
        *,
        beside: Folder | None = None,
        scratch: pathlib.Path | None = None,
    ):
        """
        Args:
            folder: where it will be published.
            beside: the folder next to which the files are kept until then, if it is on a disk.
            scratch: a folder to fill instead, which the caller publishes.
        """
        self.spec = check_spec(spec, folder.name)
        if generation not in (1, 3):
            raise UsageError(f"{folder.name}: generation {generation}; 1 and 3 are written")
        sequences = [key for key, type_name in self.spec.items() if is_sequence(type_name)]
        if generation == 3 and sequences:
            raise UsageError(
                f"{folder.name}: {sequences[0]} is a sequence, which generation 3 lacks; write 1"
            )
        if generation == 1 and REFS in self.spec:
            raise UsageError(
                f"{folder.name}: `refs` is the name of a file of its own; call the key otherwise"
            )
        if scratch is None and folder.exists(SPEC):
            raise UsageError(already_there(folder.name))
        self._folder = folder
        self._generation = generation
        # Without sequences datapoint i is record i, so the .idx files of generation 3 fit beside.
        self._idx = not sequences
        self._owned = None if scratch is not None else _scratch_beside(folder, beside or folder)
        self.path = scratch if scratch is not None else pathlib.Path(str(self._owned))
        self.files = {key: RecordFile(self.path / f"{key}.bag") for key in self.spec}
        self.refs = RecordFile(self.path / f"{REFS}.bag") if generation == 1 else None
        self.closed = False

    @property
    def _all(self) -> list[RecordFile]:
        return [*self.files.values(), *([self.refs] if self.refs is not None else [])]

    @property
    def size(self) -> int:
        table = 8 if self._generation == 1 else 0
        return sum(file.nbytes + 8 * len(file) + table for file in self._all)

    def check_open(self) -> None:
        """
        Raises:
            UsageError: it is closed.
        """
        if self.closed:
            raise UsageError(f"{self._folder.name}: the writer is closed")

    def flush(self) -> None:
        for file in self._all:
            file.flush()

    def close(self) -> None:
        """Finish all files, and publish them unless the caller does."""
        if self.closed:
            return
        self.closed = True
        try:
            for file in self._all:
                file.finish(table=self._generation == 1, idx=self._idx and file is not self.refs)
            with explained(str(self.path)):
                (self.path / SPEC).write_text(json.dumps(self.spec))
            if self._owned is not None:
                self._folder.publish(self.path)
        finally:
            self._remove()

    def abandon(self) -> None:
        """Remove the unfinished files."""
        if not self.closed:
            self.closed = True
            for file in self._all:
                file.abandon()
            self._remove()

    def _remove(self) -> None:
        if self._owned is not None:
            shutil.rmtree(self._owned, ignore_errors=True)


def _scratch_beside(folder: Folder, beside: Folder) -> pathlib.Path:
    parent = beside.scratch_parent()
    if parent is None:
        return pathlib.Path(tempfile.mkdtemp(prefix="logloom-bags-"))
    base = pathlib.PurePath(beside.name).name
    own = "" if folder is beside else f".{pathlib.PurePath(folder.name).name}"
    path = parent / f".{base}{own}.{uuid.uuid4().hex[:8]}.unfinished"
    with explained(folder.name):
        path.mkdir(parents=True)
    return path
