"""Iterators over samples of tar shards: shuffled, transformed, batched.

Elsewhere: the chain made of them, and what rules are (logloom.datasets.tar), what becomes of errors
(logloom.datasets.tar.handlers).
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from logloom.datasets.tar.handlers import Handler, handler_of
from logloom.errors import DatasetError
from logloom.values import dataclass

Sample = dict[str, Any]


@dataclass(frozen=True)
class Rename:
    """A pattern that also renames: what it finds in a field's name becomes `replacement`."""

    pattern: str | re.Pattern[str]
    replacement: str


Pattern = str | re.Pattern[str] | Rename
Rules = Sequence[tuple[Pattern, Callable[[Any], Any]]] | Mapping[Any, Callable[[Any], Any]]


def sampleshuffle(
    samples: Iterable[Sample], bufsize: int = 1000, rng: random.Random | None = None
) -> Iterator[Sample]:
    """Gives samples in random order.

    Args:
        samples: in the order in which they are read.
        bufsize: among how many samples the next one is chosen; 0 or 1 keeps the order.
        rng: what chooses; None is one of a random seed.

    Yields:
        Each sample once.
    """
    rng = rng or random.Random()  # nosec B311 # no secret
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
    samples: Iterable[Sample], rules: Rules, handler: str | Handler | None = None
) -> Iterator[Sample]:
    """Applies to each field the function of the first rule that fits its name.

    Args:
        samples: samples, or batches of them.
        rules: pairs of pattern and function (see the module), or a dict of them.
        handler: called with what a sample raised, which is passed over; None raises it. A function or a name,
            see `logloom.datasets.tar.handlers`.

    Yields:
        The samples, with what the functions made of their fields.
    """
    pairs = [*rules.items()] if isinstance(rules, Mapping) else [*rules]
    yield from mapped(samples, lambda sample: _transformed(sample, pairs), handler_of(handler))


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
    samples: Iterable[Sample], batchsize: int = 16, handler: str | Handler | None = None
) -> Iterator[Sample]:
    """Collects samples into batches, {field: [value of each sample]}; the last may be short.

    Args:
        samples: one after the other.
        batchsize: 0 leaves samples as they are.
        handler: as in `sampletransforms`.

    Yields:
        The batches, or the samples where `batchsize` is 0.

    Raises:
        DatasetError: a sample has other fields than those it is batched with.
    """
    if batchsize == 0:
        yield from samples
        return
    given = handler_of(handler)
    batch: list[Sample] = []
    for sample in samples:
        if batch and sample.keys() != batch[0].keys():
            error = DatasetError(
                f"sample {sample.get('__key__')} has {', '.join(sample)}, others of its batch "
                f"{', '.join(batch[0])}"
            )
            if given is None:
                raise error
            if given(error) is False:
                break
            continue
        batch.append(sample)
        if len(batch) == batchsize:
            yield {name: [sample[name] for sample in batch] for name in batch[0]}
            batch = []
    if batch:
        yield {name: [sample[name] for sample in batch] for name in batch[0]}


def mapped(
    samples: Iterable[Sample], function: Callable[[Sample], Sample], handler: Handler | None
) -> Iterator[Sample]:
    """What a function makes of each sample; where it raises, the handler says whether to go on."""
    for sample in samples:
        try:
            changed = function(sample)
        except Exception as error:
            if handler is None:
                raise
            if handler(error) is False:
                return
        else:
            yield changed
