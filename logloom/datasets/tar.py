"""Loading tar shards for training: a chain of small iterators, and loaders made of it.

Here: `generic_open`, `sampleiterator`, `sampleshuffle`, `sampletransforms`, `samplebatching`, the decoders,
`DatasetDescriptor`, `dataloader` and `debugloader`.
Elsewhere: the archive itself (logloom.io.tar), running threads or processes (logloom.datasets.tasks).

A sample is {"__key__": "098953", ".left.jpg": bytes, ...}. Rules are pairs of a pattern and a function:

    decoding = [(".cls", clsdecode), (Rename(r"\\.(jpg|png)$", ".img"), imdecode), ("", bytes)]

The first pattern that fits a field's name wins: a string fits names that end in it, "" all names, a regular
expression those it is found in; Rename also puts its replacement where it was found. Fields that no rule fits
are dropped; `__key__` is kept.

`num_exceptions` and `last_exception` tell what dataloaders passed over, as attributes of this module.
"""

from __future__ import annotations

import io
import itertools
import json
import logging
import os
import random
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import numpy as np

from logloom.blocks import Array
from logloom.datasets.tasks import run_tasks
from logloom.errors import DatasetError, UsageError
from logloom.io.braces import braceexpand
from logloom.io.tar.stream import decompressed, open_stream, stream_samples

__all__ = [
    "DatasetDescriptor",
    "Rename",
    "braceexpand",
    "clsdecode",
    "dataloader",
    "debugloader",
    "default_decoders",
    "generic_open",
    "imdecode",
    "jsondecode",
    "last_exception",
    "num_exceptions",
    "samplebatching",
    "sampleiterator",
    "sampleshuffle",
    "sampletransforms",
]

_log = logging.getLogger(__name__)
_counting = threading.Lock()

num_exceptions = 0
last_exception: BaseException | None = None

Sample = dict[str, Any]
OnError = Callable[[Exception], None]


@dataclass(frozen=True)
class Rename:
    """A pattern that also renames: what it finds in a field's name becomes `replacement`."""

    pattern: str | re.Pattern[str]
    replacement: str


Pattern = str | re.Pattern[str] | Rename
Rules = Sequence[tuple[Pattern, Callable[[Any], Any]]] | Mapping[Any, Callable[[Any], Any]]


def generic_open(
    source: str | os.PathLike[str],
    allow_pipe: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> BinaryIO:
    """Opens a shard: a path, an fsspec URI (gs, s3, http, ...) or, if allowed, `pipe:<shell command>`.

    gzip and zstd are undone, whatever the name ends in.

    Raises:
        UsageError: a command that isn't allowed.
        DatasetError: there is no such file.
        StorageError: it can't be opened.
    """
    return open_stream(source, allow_pipe, storage_options)


def sampleiterator(
    stream: BinaryIO, allow_truncated: bool = False, max_bytes: int = 4 << 30
) -> Iterator[Sample]:
    """The samples of an archive, every field as bytes.

    Args:
        stream: as `generic_open` or `open(path, "rb")` gives it.
        allow_truncated: whether an archive that was cut short ends without an error after its whole samples.
        max_bytes: a larger member is refused.

    Raises:
        DatasetError: the archive is damaged; names it and the byte offset.
    """
    name = str(getattr(stream, "name", "archive"))
    return stream_samples(decompressed(stream, name), name, allow_truncated, max_bytes)


def sampleshuffle(
    samples: Iterable[Sample], bufsize: int = 1000, rng: random.Random | None = None
) -> Iterator[Sample]:
    """Gives samples in random order, choosing among `bufsize` at a time; 0 or 1 keeps the order."""
    rng = rng or random.Random()
    buffer: list[Sample] = []
    for sample in samples:
        if len(buffer) < bufsize:
            buffer.append(sample)
        elif not buffer:
            yield sample
        else:
            at = rng.randrange(len(buffer))
            buffer[at], sample = sample, buffer[at]
            yield sample
    if bufsize > 1:
        rng.shuffle(buffer)
    yield from buffer


def sampletransforms(
    samples: Iterable[Sample], rules: Rules, on_error: OnError | None = None
) -> Iterator[Sample]:
    """Applies to each field the function of the first rule that fits its name.

    Args:
        samples: samples, or batches of them.
        rules: pairs of pattern and function (see the module), or a dict of them.
        on_error: called with what a sample raised; the sample is passed over. Without it, it is raised.
    """
    pairs = [*rules.items()] if isinstance(rules, Mapping) else [*rules]
    yield from _mapped(samples, lambda sample: _transformed(sample, pairs), on_error)


def _transformed(sample: Sample, rules: Sequence[tuple[Pattern, Callable[[Any], Any]]]) -> Sample:
    changed: Sample = {}
    for name, value in sample.items():
        if name.startswith("__"):
            changed[name] = value
            continue
        for pattern, function in rules:
            renamed = _matched(pattern, name)
            if renamed is not None:
                if renamed in changed:
                    raise DatasetError(f"sample {sample.get('__key__')}: two fields become {renamed!r}")
                changed[renamed] = function(value)
                break
    return changed


def _matched(pattern: Pattern, name: str) -> str | None:
    """The field's new name where the pattern fits, else None."""
    if isinstance(pattern, str):
        return name if name.endswith(pattern) else None
    if isinstance(pattern, re.Pattern):
        return name if pattern.search(name) else None
    renamed, found = re.subn(pattern.pattern, pattern.replacement, name, count=1)
    return renamed if found else None


def samplebatching(
    samples: Iterable[Sample], batchsize: int = 16, on_error: OnError | None = None
) -> Iterator[Sample]:
    """Collects samples into batches, {field: [value of each sample]}; the last may be short.

    Args:
        batchsize: 0 leaves samples as they are.
        on_error: as in `sampletransforms`.

    Raises:
        DatasetError: a sample has other fields than those it is batched with.
    """
    if batchsize == 0:
        yield from samples
        return
    batch: list[Sample] = []
    for sample in samples:
        if batch and sample.keys() != batch[0].keys():
            error = DatasetError(
                f"sample {sample.get('__key__')} has {', '.join(sample)}, others of its batch "
                f"{', '.join(batch[0])}"
            )
            if on_error is None:
                raise error
            on_error(error)
            continue
        batch.append(sample)
        if len(batch) == batchsize:
            yield {name: [sample[name] for sample in batch] for name in batch[0]}
            batch = []
    if batch:
        yield {name: [sample[name] for sample in batch] for name in batch[0]}


def clsdecode(data: bytes) -> int:
    """A class number written as text.

    Raises:
        DatasetError: no number.
    """
    try:
        return int(data)
    except ValueError as error:
        raise DatasetError(f"a class should be a number, found {data[:20]!r}") from error


def imdecode(data: bytes) -> Array:
    """An image: (height, width, 3) uint8 RGB; (height, width) as stored if it is gray of more than 8 bits.

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
    """What a JSON text says.

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


def _identity(value: Any) -> Any:
    return value


def _all_as_they_are() -> Rules:
    return [("", _identity)]


@dataclass
class DatasetDescriptor:
    """What to load and how.

    Attributes:
        sources: shards: paths, URIs, `pipe:` commands.
        shuffle: size of the shuffle buffer of each task.
        batchsize: 0 for single samples.
        decoding, augmenting, collating: rules; collating is applied to batches.
        mapping: a function of the whole sample, after augmenting.
        csize: batches kept ready.
        ntasks: how many tasks read at the same time; each takes shard after shard.
        verbose: log each shard; debug: log each sample, too.
        processes: whether tasks are processes (by fork) instead of threads.
        allow_pipe: whether sources may run commands.
        allow_truncated: whether shards that were cut short end without an error.
        seed: of the shuffling.
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
    storage_options: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if min(self.shuffle, self.batchsize) < 0 or min(self.csize, self.ntasks) < 1:
            raise UsageError("shuffle and batchsize can't be negative, csize and ntasks are at least 1")


def debugloader(
    desc: DatasetDescriptor, sources: Iterable[str | os.PathLike[str]] | None = None
) -> Iterator[Sample]:
    """The whole pipeline in the calling thread; whatever goes wrong is raised where it happens.

    Args:
        sources: desc.sources by default.
    """
    return _pipeline(desc, desc.sources if sources is None else sources, 0, None)


def dataloader(desc: DatasetDescriptor) -> Iterator[Sample]:
    """The whole pipeline in `desc.ntasks` threads or processes.

    A sample that raises is counted in `num_exceptions`, kept in `last_exception`, logged and passed over; a
    shard that can't be read is raised. Each task may end with a short batch. Closing the iterator ends them.
    """

    def task(number: int, sources: Iterable[Any], on_error: OnError) -> Iterator[Sample]:
        return _pipeline(desc, sources, number, on_error)

    return run_tasks(task, desc.sources, desc.ntasks, desc.csize, _count, desc.processes)


def _count(error: Exception) -> None:
    global num_exceptions, last_exception
    with _counting:
        num_exceptions += 1
        last_exception = error
    _log.warning("passed over a sample: %s: %s", type(error).__name__, error)


def _pipeline(
    desc: DatasetDescriptor,
    sources: Iterable[str | os.PathLike[str]],
    number: int,
    on_error: OnError | None,
) -> Iterator[Sample]:
    raw = itertools.chain.from_iterable(_shard_samples(desc, source) for source in sources)
    shuffled = sampleshuffle(raw, desc.shuffle, random.Random(f"{desc.seed}/{number}"))
    decoded = sampletransforms(shuffled, desc.decoding, on_error)
    augmented = sampletransforms(decoded, desc.augmenting, on_error)
    mapped = _mapped(augmented, desc.mapping, on_error)
    batched = samplebatching(mapped, desc.batchsize, on_error)
    return sampletransforms(batched, desc.collating, on_error)


def _shard_samples(desc: DatasetDescriptor, source: str | os.PathLike[str]) -> Iterator[Sample]:
    if desc.verbose or desc.debug:
        _log.info("reading %s", source)
    with generic_open(source, desc.allow_pipe, desc.storage_options) as stream:
        for sample in stream_samples(stream, os.fspath(source), desc.allow_truncated):
            if desc.debug:
                _log.info("%s: %s with %s", source, sample["__key__"], ", ".join(sample))
            yield sample


def _mapped(
    samples: Iterable[Sample], function: Callable[[Sample], Sample], on_error: OnError | None
) -> Iterator[Sample]:
    for sample in samples:
        try:
            changed = function(sample)
        except Exception as error:
            if on_error is None:
                raise
            on_error(error)
        else:
            yield changed
