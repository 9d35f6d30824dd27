"""Handing elements to all workers, on every engine.

Flink's optimizer takes what a Reshuffle spread for spread ever after, whatever grew out of it, and drops a
second Reshuffle that follows with nothing but maps between: the partitions of one log would all be built by
the worker that planned them. A GroupByKey is never dropped, nor the Reshuffle after it, so the first of two
in a row is this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from logloom.extras import beam_needed

with beam_needed():
    import apache_beam as beam


class SpreadByKey(beam.PTransform):
    """The elements, each at the worker that its key leads to."""

    def __init__(self, key: Callable[[Any], str]):
        """
        Args:
            key: of an element; picklable. Better different for each than few.
        """
        super().__init__()
        self._key = key

    def expand(self, elements: Any) -> Any:
        return (
            elements
            | "Key" >> beam.Map(_keyed, self._key)
            | "Group" >> beam.GroupByKey()
            | "Ungroup" >> beam.FlatMap(_elements)
        )


def _keyed(element: Any, key: Callable[[Any], str]) -> tuple[str, Any]:
    return key(element), element


def _elements(group: tuple[str, Iterable[Any]]) -> Iterable[Any]:
    return group[1]
