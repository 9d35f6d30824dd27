"""Summaries of logs that workers open first, where the driver doesn't open all.

    listed: URIs, split  ->  opened: content id, key, checked against the plan  ->  partitions
                                        |
                                        what the next plan may remember of it

Logs of the parent version are included where no listing shows whether they changed and there are many: a log
whose key is that of its record gets no partitions.

Here: `summarize`, and `remembered`.
Elsewhere: the logs that the driver opens (logloom.pipelines.plan.logs), the plan made of summaries
(logloom.transforms.rows.plan.resolve), saving what is remembered in the root
(logloom.transforms.build.outcomes).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from logloom.errors import OF_CONTENT, LogReadError, StorageError
from logloom.io.catalog.entries import read_log_part
from logloom.io.logs.interface import unfinished_words
from logloom.io.logs.log_cache import Memory, RememberedLog
from logloom.io.logs.log_list import LogFiles
from logloom.io.logs.match import check_files
from logloom.io.logs.opening import open_log
from logloom.io.video.index import video_index
from logloom.recipe.logs import split_of
from logloom.transforms.build.bundles import packed
from logloom.transforms.build.job import Job, LogJob, LogTask, PartitionTask, opened, opened_now
from logloom.transforms.build.partition import plan_bundles
from logloom.transforms.build.partition_results import Failure, failure_of
from logloom.transforms.rows.accounts import check_clock
from logloom.transforms.rows.derive.columns import NOT_OF_THE_LOG
from logloom.transforms.rows.plan.resolve import hold_to
from logloom.transforms.rows.plan.topics import named_topics
from logloom.transforms.rows.video_columns import video_topics

_log = logging.getLogger("logloom.build")  # engines show it on their pages


class Opened(NamedTuple):
    """A log as its index says it is.

    Attributes:
        failed: why it can't be built; None where it can.
        bundles: its partitions, those together that one worker builds after each other.
        size: bytes of its messages, uncompressed.
    """

    log: LogTask
    failed: Failure | None = None
    bundles: Sequence[list[PartitionTask]] = ()
    size: int = 0


def summarize(job: LogJob, log: LogTask) -> Opened:
    """A log with all that its index says, opened unless the driver has; and its partitions.

    Raises:
        StorageError: a store or disk refused.
    """
    log, failed = _held_to_plan(job, log)
    if failed is not None or log.stays:
        return Opened(log, failed)
    try:
        bundles = plan_bundles(job, log)
        found = opened(job, log)
        for topic in video_topics(job.plan):
            if topic in found.summary.topics:
                video_index(found, topic)  # once, before many partitions ask for it
        return Opened(log, None, bundles, int(found.summary.chunk_bytes.sum()))
    except (StorageError, *NOT_OF_THE_LOG):
        raise  # the fault of this machine or store, not of the log
    except Exception as error:  # whatever is odd about a log stays in that log
        return Opened(log, failure_of(job, log.log_id, "", error))


def _held_to_plan(job: LogJob, log: LogTask) -> tuple[LogTask, Failure | None]:
    """The log, opened and held to the plan unless the driver has; and why it can't be built, if so.

    Raises:
        StorageError: a store or disk refused.
    """
    recipe = job.held_to
    if log.content_id or recipe is None:
        return log, None
    try:
        found = opened_now(job, log.log_id, log.uris)
        check_files(LogFiles(log.log_id, log.uris), lambda uris: open_log(uris, job.open_options))
        uris, content_id = found.summary.uris, found.summary.content_id
        split = split_of(recipe, log.log_id, uris, log.split, log.catalogue)
        key = job.log_key(log.log_id, content_id, uris, split, log.catalogue)
        log = replace(log, uris=uris, content_id=content_id, split=split, key=key)
        before = read_log_part(job.store, log.replaces) if log.replaces else []
        if any(unit.content_id != content_id for unit in before):
            log = replace(log, replaces=None)
        check_clock(found.summary)
        hold_to(job.plan, recipe, log.log_id, found)
    except OF_CONTENT as error:
        kind = "log" if isinstance(error, LogReadError) else "recipe"
        return log, Failure(log.log_id, "", kind, str(error))
    except (StorageError, *NOT_OF_THE_LOG):
        raise
    except Exception as error:  # whatever else a library raises of a log
        return log, failure_of(job, log.log_id, "", error)
    for uri, why in found.summary.unfinished.items():
        _log.warning("%s: %s; what is in it now is built", uri, unfinished_words(why))
    return log, None


def remembered(job: Job, log: LogTask) -> bytes:
    """What the next plan may remember of a log that a worker was the first to open, "" for nothing.

    It is the data of a `Memory`, packed.
    """
    if not isinstance(job, LogJob) or job.held_to is None or not (log.listed and log.content_id):
        return b""
    topics = named_topics(job.held_to)
    try:
        one = RememberedLog.of(log.uris, opened(job, log).summary, topics)
    except LogReadError:
        return b""
    by = job.open_options.known_by
    return packed([Memory.of(by, topics, [(log.listed, one)]).to_data()]) if one else b""
