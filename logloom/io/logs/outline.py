"""Outlines of logs for plans: a log's summary, and how to open it again.

Here: `Outline` and `outlines`.
Elsewhere: opening logs (logloom.io.logs.opening), planning builds (logloom.pipelines.plan.plan). An open log
has its whole index in memory, a megabyte for an hour of many topics; a plan has thousands of logs.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from logloom.io.logs.interface import (
    FieldSpec,
    Log,
    LogSummary,
    MessagePlace,
    Messages,
    MessageTime,
    TopicRequest,
)
from logloom.schema import ColumnType
from logloom.values import dataclass


@dataclass(frozen=True)
class Outline:
    """A `Log` without its index; opened again when more than the summary is needed.

    Attributes:
        summary: see `Log`.
        unopened: the log, as it was before its index was read.
    """

    summary: LogSummary
    unopened: Log

    def column_type(self, topic: str, spec: FieldSpec) -> ColumnType:
        return self.unopened.column_type(topic, spec)

    def time_source(self, topic: str, sources: Sequence[MessageTime]) -> MessageTime | None:
        return self.unopened.time_source(topic, sources)

    def read(self, requests: Mapping[str, TopicRequest]) -> dict[str, Messages]:
        return self.unopened.read(requests)

    def places(self, topic: str, positions: NDArray[np.int64]) -> list[MessagePlace]:
        return self.unopened.places(topic, positions)

    def last_message(self, topic: str, spec: FieldSpec | None = None) -> Messages:
        return self.unopened.last_message(topic, spec)


def outlines() -> Callable[[Log], Outline]:
    """Return a function that outlines logs, sharing equal definitions. Thread-safe."""
    known: dict[bytes, bytes] = {}

    def outline(log: Log) -> Outline:
        summary = log.summary
        topics = {
            name: replace(info, definition=known.setdefault(info.definition, info.definition))
            for name, info in summary.topics.items()
        }
        # Logs pickle, and so copy, as their arguments.
        return Outline(replace(summary, topics=topics), copy.copy(log))

    return outline
