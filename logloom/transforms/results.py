"""What became of a partition: entries, or failures.

Elsewhere: building one (logloom.transforms.partition), what becomes of its log (logloom.transforms.outcomes).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from logloom.io.entries import Entry
from logloom.io.metadata import Text
from logloom.transforms.job import LogTask


@dataclass(frozen=True)
class Failure:
    """Something that stops a build, or leaves a log out of it.

    Attributes:
        kind: "log" (the source is damaged), "derive" (a function of the user's fails on it), "rows" (a value
            doesn't fit the recipe or an output), "worker" (processes die of it), "recipe" (nothing of the
            log's), "machine" (another attempt may do without) or "readback" (what was written doesn't read
            back).
    """

    log_id: Text
    partition: Text
    kind: Text
    message: Text


@dataclass(frozen=True)
class PartitionResult:
    """What became of one partition: an entry for each output, or failures.

    Attributes:
        built: how many of the entries this attempt wrote; the others were found finished.
        seconds: what the attempt took.
    """

    log: LogTask
    partition: str
    entries: tuple[Entry, ...]
    failures: tuple[Failure, ...] = ()
    built: int = 0
    seconds: float = 0.0


def listed(failures: Sequence[Failure], total: int = 0) -> str:
    """The failures as lines for people, at most twenty.

    Args:
        total: how many there are, if more than these.
    """
    lines = [f"{f.log_id} {f.partition}".rstrip() + f": {f.message}" for f in failures[:20]]
    more = max(total, len(failures)) - len(lines)
    return "\n".join(lines + [f"… and {more} more"] * (more > 0))
