"""What a plan remembers of a log: its summary, and how to open it again.

Here: `Outline` and `outlines`.
Elsewhere: opening logs (logloom.io.logs.opening), planning builds (logloom.pipelines.plan.plan).
A log that was opened holds its whole index, a megabyte for an hour of many topics; a plan holds thousands.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from logloom.io.logs.interface import (
    FieldSpec,
    Log,
    LogSummary,
    MessagePlace,
    Messages,
    TimeSource,
    TopicRequest,
)
from logloom.schema import ColumnType


@dataclass(frozen=True)
class Outline:
    """A `Log` without its index; opened again when something else than the summary is asked for.

    Attributes:
        summary: see `Log`.
        unopened: the log, as it was before its index was read.
    """

    summary: LogSummary
    unopened: Log

    def column_type(self, topic: str, spec: FieldSpec) -> ColumnType:
        return self.unopened.column_type(topic, spec)

    def time_source(self, topic: str, sources: Sequence[TimeSource]) -> TimeSource | None:
        return self.unopened.time_source(topic, sources)

    def read(self, requests: Mapping[str, TopicRequest]) -> dict[str, Messages]:
        return self.unopened.read(requests)

    def places(self, topic: str, positions: NDArray[np.int64]) -> list[MessagePlace]:
        return self.unopened.places(topic, positions)

    def last_message(self, topic: str) -> Messages:
        return self.unopened.last_message(topic)


def outlines() -> Callable[[Log], Outline]:
    """A function that outlines logs; the definitions that these share are held once. Serves many threads."""
    known: dict[bytes, bytes] = {}

    def outline(log: Log) -> Outline:
        summary = log.summary
        topics = {
            name: replace(info, definition=known.setdefault(info.definition, info.definition))
            for name, info in summary.topics.items()
        }
        # Logs pickle, and so copy, as what they were opened with.
        return Outline(replace(summary, topics=topics), copy.copy(log))

    return outline
