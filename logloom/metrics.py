"""Metrics of a running build: for Beam on its workers, else for a local collector."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import field

from logloom.values import dataclass


@dataclass
class CollectedMetrics:
    """Counts of this process's steps.

    Attributes:
        spreads: by name, the count, sum, minimum and maximum of noted numbers.
    """

    counters: Counter[str] = field(default_factory=Counter)
    spreads: dict[str, tuple[int, int, int, int]] = field(default_factory=dict)

    def add(self, other: CollectedMetrics) -> None:
        """Add counts of another process."""
        self.counters.update(other.counters)
        for name, numbers in other.spreads.items():
            self.note(name, numbers)

    def note(self, name: str, numbers: tuple[int, int, int, int]) -> None:
        """Add numbers to a distribution of `spreads`."""
        many, total, least, most = self.spreads.get(name, (0, 0, numbers[2], numbers[3]))
        self.spreads[name] = (
            many + numbers[0],
            total + numbers[1],
            min(least, numbers[2]),
            max(most, numbers[3]),
        )


_COLLECTED: ContextVar[CollectedMetrics | None] = ContextVar("logloom metrics", default=None)


@contextlib.contextmanager
def collected() -> Iterator[CollectedMetrics]:
    """Collect counts of steps in this thread while the block runs, without Beam's engines."""
    held = CollectedMetrics()
    token = _COLLECTED.set(held)
    try:
        yield held
    finally:
        _COLLECTED.reset(token)


def merge(metrics: CollectedMetrics) -> None:
    """Merge counts of another process into this thread's."""
    here = _COLLECTED.get()
    if here is not None:
        here.add(metrics)


def count(**counts: int) -> None:
    """Add to counters; engines that do work twice count it twice."""
    here = _COLLECTED.get()
    if here is not None:
        here.counters.update(counts)
        return
    from apache_beam.metrics import Metrics

    for name, number in counts.items():
        Metrics.counter("logloom", name).inc(number)


def spread(**numbers: int) -> None:
    """Add a number each to distributions."""
    here = _COLLECTED.get()
    if here is not None:
        for name, number in numbers.items():
            here.note(name, (1, number, number, number))
        return
    from apache_beam.metrics import Metrics

    for name, number in numbers.items():
        Metrics.distribution("logloom", name).update(number)
