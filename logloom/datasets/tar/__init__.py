"""Load tar shards for training: chained iterators, and loaders made of them.

Here: `generic_open`, `sampleiterator`, decoders of fields, `DatasetDescriptor`, `dataloader`, `debugloader`.
Elsewhere: `sampleshuffle`, `sampletransforms` and `samplebatching` (logloom.datasets.tar.samples, importable
from here too), the archive itself (logloom.io.formats.tar), running threads or processes
(logloom.datasets.tar.tasks), what becomes of errors (logloom.datasets.tar.handlers).

A sample is {"__key__": "098953", ".left.jpg": bytes, ...}. Rules are pairs of a pattern and a function:

    decoding = [(".cls", clsdecode), (Rename(r"\\.(jpg|png)$", ".img"), imdecode), ("", bytes)]

The first pattern that fits a field's name wins: a string fits names that end in it, "" all names, a regular
expression those it is found in; Rename also puts its replacement where it was found. Fields that no rule fits
are dropped; `__key__` is kept.

`num_exceptions` and `last_exception` tell what dataloaders passed over, as attributes of this module.
"""

from __future__ import annotations

import io
import json
import logging
import os
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, BinaryIO

import numpy as np

from logloom.blocks import Array
from logloom.datasets.tar.handlers import (
    Handler,
    handler_of,
    ignore_and_continue,
    ignore_and_stop,
    reraise_exception,
    warn_and_continue,
    warn_and_stop,
)
from logloom.datasets.tar.samples import (
    Pattern,
    Rename,
    Rules,
    Sample,
    mapped,
    samplebatching,
    sampleshuffle,
    sampletransforms,
)
from logloom.datasets.tar.tasks import run_tasks
from logloom.errors import DatasetError, UsageError
from logloom.io.formats.tar.stream import decompressed, open_stream, stream_samples
from logloom.io.storage.braces import braceexpand
from logloom.io.storage.locks import Lock
from logloom.values import dataclass

__all__ = [
    "DatasetDescriptor",
    "Rename",
    "braceexpand",
    "clsdecode",
    "dataloader",
    "debugloader",
    "default_decoders",
    "generic_open",
    "ignore_and_continue",
    "ignore_and_stop",
    "imdecode",
    "jsondecode",
    "last_exception",
    "num_exceptions",
    "reraise_exception",
    "samplebatching",
    "sampleiterator",
    "sampleshuffle",
    "sampletransforms",
    "warn_and_continue",
    "warn_and_stop",
]

_log = logging.getLogger(__name__)
_counting = Lock()

num_exceptions = 0
"""How many exceptions `ignore_and_continue` and its like passed over in this process."""
last_exception: BaseException | None = None
"""The last of them; None where there was none."""


def generic_open(
    source: str | os.PathLike[str], allow_pipe: bool = False, storage_options: Mapping[str, Any] | None = None
) -> BinaryIO:
    """Opens a shard: a path, an fsspec URI (gs, s3, http, ...) or, if allowed, `pipe:<shell command>`.

    gzip, zstd, bzip2 and xz are undone, whatever the name ends in.

    Args:
        source: the shard.
        allow_pipe: whether `pipe:` may run a command.
        storage_options: fsspec options by protocol: {"gs": {"token": "anon"}}.

    Returns:
        The shard's bytes as a file, uncompressed.

    Raises:
        UsageError: a command that isn't allowed.
        DatasetError: there is no such file.
        StorageError: it can't be opened.
    """
    return open_stream(source, allow_pipe, storage_options)


def sampleiterator(
    stream: BinaryIO,
    allow_truncated: bool = False,
    max_bytes: int = 4 << 30,
    handler: str | Handler | None = None,
) -> Iterator[Sample]:
    """The samples of an archive, every field as bytes.

    Args:
        stream: as `generic_open` or `open(path, "rb")` gives it.
        allow_truncated: whether an archive that was cut short ends without an error after its whole samples.
        max_bytes: a larger member is refused.
        handler: called with the error of a damaged archive, whose samples end there; None raises it.

    Raises:
        DatasetError: the archive is damaged; names it and the byte offset.
    """
    name = str(getattr(stream, "name", "archive"))
    given = handler_of(handler)
    try:
        yield from stream_samples(decompressed(stream, name), name, allow_truncated, max_bytes)
    except Exception as error:
        if given is None:
            raise
        given(error)


def clsdecode(data: bytes) -> int:
    """Decode a class number written as text.

    Args:
        data: the bytes of a member.

    Raises:
        DatasetError: no number.
    """
    try:
        return int(data)
    except ValueError as error:
        raise DatasetError(f"a class should be a number, found {data[:20]!r}") from error


def imdecode(data: bytes) -> Array:
    """Decode an image: (height, width, 3) uint8 RGB, or (height, width) as stored if gray of over 8 bits.

    Args:
        data: the bytes of a member.

    Raises:
        DatasetError: no image that decodes.
    """
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data)) as image:
            deep = image.mode in ("F", "I") or image.mode.startswith("I;16")
            return np.array(image if deep else image.convert("RGB"))
    except Exception as error:  # Pillow raises many kinds
        raise DatasetError(f"no image that decodes: {error}") from error


def jsondecode(data: bytes) -> Any:
    """Decode a JSON text.

    Args:
        data: the bytes of a member.

    Raises:
        DatasetError: no JSON.
    """
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"no JSON: {error}") from error


default_decoders: list[tuple[Pattern, Callable[[Any], Any]]] = [
    (".cls", clsdecode),
    (Rename(r"\.(jpg|jpeg|png|p[bgpn]m)$", ".img"), imdecode),
    (".json", jsondecode),
]
"""What decodes a field, by the end of its name; the first that fits."""


def _identity(value: Any) -> Any:
    return value


def _all_as_they_are() -> Rules:
    return [("", _identity)]


@dataclass
class DatasetDescriptor:
    """What to load and how.

    Attributes:
        sources: shards: paths, URIs, `pipe:` commands.
        shuffle: size of the shuffle buffer of each task; from 2 on, shards come in another order, too.
        batchsize: 0 for single samples.
        decoding, augmenting, collating: rules; collating is applied to batches.
        mapping: a function of the whole sample, after augmenting.
        csize: batches kept ready.
        ntasks: how many tasks read at the same time, each every ntasks-th shard.
        verbose: log each shard; debug: log each sample, too.
        processes: whether tasks are processes (by fork) instead of threads.
        allow_pipe: whether sources may run commands.
        allow_truncated: whether shards that were cut short end without an error.
        seed, epoch: determine the order. Each new loader uses the current epoch and increments it; set it to
            get that one, such as when training is resumed.
        handler: what becomes of shards and samples that can't be read or raise: "raise", "warn" (and go on),
            "ignore", or a function as the webdataset package has them. None: as each loader says.
        storage_options: for fsspec, by protocol.
    """

    sources: Sequence[str | os.PathLike[str]] = ()
    shuffle: int = 1000
    batchsize: int = 16
    decoding: Rules = field(default_factory=_all_as_they_are)
    augmenting: Rules = field(default_factory=_all_as_they_are)
    mapping: Callable[[Sample], Sample] = _identity
    collating: Rules = field(default_factory=_all_as_they_are)
    csize: int = 100
    ntasks: int = 4
    verbose: bool = False
    debug: bool = False
    processes: bool = False
    allow_pipe: bool = False
    allow_truncated: bool = False
    seed: int = 0
    epoch: int = 0
    handler: str | Handler | None = None
    storage_options: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if min(self.shuffle, self.batchsize) < 0 or min(self.csize, self.ntasks) < 1:
            raise UsageError("shuffle and batchsize can't be negative, csize and ntasks are at least 1")
        handler_of(self.handler)


def debugloader(
    desc: DatasetDescriptor, sources: Iterable[str | os.PathLike[str]] | None = None
) -> Iterator[Sample]:
    """The whole pipeline in the calling thread; whatever goes wrong is raised where it happens.

    Args:
        desc: the dataset.
        sources: desc.sources by default.
    """
    shards, epoch = _next_epoch(desc, desc.sources if sources is None else sources)
    handler = _reporting(handler_of(desc.handler), _tally)
    return _pipeline(desc, shards, f"{epoch}/0", handler, handler)


def dataloader(desc: DatasetDescriptor) -> Iterator[Sample]:
    """The whole pipeline in `desc.ntasks` threads or processes, whose batches take turns.

    The order follows from the shards, seed, epoch and number of tasks. A sample that raises is counted in
    `num_exceptions`, kept in `last_exception`, logged and passed over; a shard that can't be read is raised;
    `desc.handler` decides otherwise. Each task may end with a short batch. Closing the iterator ends them.
    """
    handler = handler_of(desc.handler)
    shards, epoch = _next_epoch(desc, desc.sources)

    def task(number: int, sources: Iterable[Any], report: Callable[[Exception], None]) -> Iterator[Sample]:
        reporting = _reporting(handler, report)
        return _pipeline(desc, sources, f"{epoch}/{number}", reporting or report, reporting)

    report = _count if handler is None else _tally
    return run_tasks(task, shards, desc.ntasks, desc.csize, report, desc.processes)


def _next_epoch(
    desc: DatasetDescriptor, sources: Iterable[str | os.PathLike[str]]
) -> tuple[list[str | os.PathLike[str]], int]:
    """The shards in the order of this epoch, and its number; the next one's is kept."""
    epoch, desc.epoch = desc.epoch, desc.epoch + 1
    shards = list(sources)
    if desc.shuffle > 1:
        random.Random(f"{desc.seed}/{epoch}").shuffle(shards)  # nosec B311 # no secret
    return shards, epoch


def _reporting(handler: Handler | None, report: Callable[[Exception], None]) -> Handler | None:
    """The handler, what it passes over being reported."""
    if handler is None:
        return None

    def handle(error: Exception) -> Any:
        answer = handler(error)
        report(error)
        return answer

    return handle


def _tally(error: Exception) -> None:
    global num_exceptions, last_exception
    with _counting:
        num_exceptions += 1
        last_exception = error


def _count(error: Exception) -> None:
    _tally(error)
    _log.warning("passed over a sample: %s: %s", type(error).__name__, error)


def _pipeline(
    desc: DatasetDescriptor,
    sources: Iterable[str | os.PathLike[str]],
    part: str,
    handler: Handler | None,
    shard_handler: Handler | None,
) -> Iterator[Sample]:
    raw = _samples(desc, sources, shard_handler)
    rng = random.Random(f"{desc.seed}/{part}")  # nosec B311 # no secret
    shuffled = sampleshuffle(raw, desc.shuffle, rng)
    decoded = sampletransforms(shuffled, desc.decoding, handler)
    augmented = sampletransforms(decoded, desc.augmenting, handler)
    changed = mapped(augmented, desc.mapping, handler)
    batched = samplebatching(changed, desc.batchsize, handler)
    return sampletransforms(batched, desc.collating, handler)


def _samples(
    desc: DatasetDescriptor, sources: Iterable[str | os.PathLike[str]], handler: Handler | None
) -> Iterator[Sample]:
    for source in sources:
        try:
            if desc.verbose or desc.debug:
                _log.info("reading %s", source)
            with generic_open(source, desc.allow_pipe, desc.storage_options) as stream:
                for sample in stream_samples(stream, os.fspath(source), desc.allow_truncated):
                    if desc.debug:
                        _log.info("%s: %s with %s", source, sample["__key__"], ", ".join(sample))
                    yield sample
        except Exception as error:
            if handler is None:
                raise
            if handler(error) is False:
                return
