"""The result of a partition: entries, or failures.

Elsewhere: building one (logloom.transforms.build.partition), the outcome of its log
(logloom.transforms.build.outcomes).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from logloom.errors import LogloomError
from logloom.io.catalog.entries import Entry
from logloom.io.catalog.pages import LogRecord, LogStatus
from logloom.io.storage.metadata import Text
from logloom.software import software
from logloom.transforms.build.job import Job, LogTask, survivors_key
from logloom.transforms.rows.derive.columns import NOT_OF_THE_LOG
from logloom.values import dataclass

MAX_REASONS = 100  # of a log in the manifest; a file lists all that was refused
_log = logging.getLogger(__name__)


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


def failure_of(job: Job, log_id: str, partition: str, error: Exception) -> Failure:
    """An error of planning or building a log as its failure.

    Args:
        partition: "" for the log as a whole.
    """
    kind = next((kind for of, kind in job.failure_kinds.items() if isinstance(error, of)), "rows")
    if kind == "rows" and isinstance(error.__cause__, NOT_OF_THE_LOG):
        kind = "machine"
    message = str(error) if isinstance(error, LogloomError) else f"{type(error).__name__}: {error}"
    if not isinstance(error, LogloomError):
        _log.warning("%s %s: %s", log_id, partition, message, exc_info=error)
    return Failure(log_id, partition, kind, message)


def skipped_record(log: LogTask, failures: Sequence[Failure]) -> LogRecord:
    """The record of a log that is left out; tried again once its content or our reading of it changes."""
    lines = dict.fromkeys(
        one.message if one.kind == "log" or not one.partition else f"partition {one.partition}: {one.message}"
        for one in failures
    )
    reasons = tuple(lines)[:MAX_REASONS]
    died = any(failure.kind == "worker" for failure in failures)
    key = survivors_key(log.key, software()) if died else log.key
    named = log.log_id, log.uris, log.content_id, log.split, key
    record = LogRecord(*named, LogStatus.skipped, "", 0, 0, {}, 0, reasons, units=0, catalogue=log.catalogue)
    return replace(record, duplicate_of=log.duplicate_of)
