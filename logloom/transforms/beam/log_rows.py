"""Work of the steps of `ReadFromLogs`: from a recipe to its logs and their rows.

    recipe  ->  logs, and the plan  ->  partitions of a log  ->  rows of a partition
                of a sample             from its index

Here: plain functions, and what goes from step to step.
Elsewhere: the steps (logloom.transforms.beam.read_logs), the same work in builds
(logloom.transforms.build.log_summaries, logloom.transforms.build.partition).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from logloom.blocks import Block
from logloom.errors import OF_CONTENT, InputError, LogloomError, LogReadError, StorageError, UsageError
from logloom.io.catalog.labels import LogLabels
from logloom.io.logs.duplicates import equal_logs
from logloom.io.logs.interface import MIN_TIME, Log, OpenOptions, Refusal
from logloom.io.logs.log_list import SAMPLE, LogFiles, LogList, list_failures, spread_evenly
from logloom.io.logs.match import access_to, check_files
from logloom.io.logs.messages.point_clouds import needs_message
from logloom.io.logs.opening import open_log, with_passes
from logloom.io.storage.threads import ahead
from logloom.recipe import Recipe
from logloom.recipe.labels import RecipeLabels
from logloom.recipe.logs import expand_logs, open_options
from logloom.text import counted, some_of
from logloom.transforms.build.commit import line_of
from logloom.transforms.build.partition_results import MAX_REASONS
from logloom.transforms.rows.accounts import check_clock, strays_of
from logloom.transforms.rows.derive.columns import NOT_OF_THE_LOG, DeriveError
from logloom.transforms.rows.plan.resolve import hold_to, resolve
from logloom.transforms.rows.plan.row_plan import RowPlan, Span
from logloom.transforms.rows.plan.topics import named_topics
from logloom.transforms.rows.row_stream import RowStream, build_blocks
from logloom.transforms.rows.spans import plan_spans
from logloom.values import dataclass

_BEGIN = MIN_TIME - 1  # of a loss that isn't of a partition; before all of these
_SHOWN = 20


@dataclass(frozen=True)
class IncompleteLog:
    """A log that gives no rows, or fewer than it would undamaged.

    Attributes:
        uris: of its files.
        status: "refused" (it is damaged, or doesn't fit the recipe, under `on_error: fail`), "skipped" (the
            same under `skip` and `salvage`), "salvaged" (its rows lack what was lost) or "duplicate" (left
            out by `duplicates: keep_first`). Only a salvaged log has rows.
        reasons: lines for people: why, or each loss with its place; of more than 100 losses the first.
    """

    log_id: str
    uris: tuple[str, ...]
    status: str
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class LogReading:
    """How the rows of a recipe are read.

    Attributes:
        contains: whether a log that fails only loses its rows; otherwise it ends the pipeline.
    """

    recipe: Recipe
    base: str | None
    max_bytes: int
    storage_options: Mapping[str, Any] | None
    allow_derive: tuple[str, ...]
    contains: bool

    @property
    def held_to(self) -> Recipe:
        """The recipe, under which a log that doesn't fit fails alone if failures are contained."""
        fails = self.recipe.on_error_mode == "fail"
        return self.recipe.model_copy(update={"on_error": "skip"}) if self.contains and fails else self.recipe


class LogSource(NamedTuple):
    """A log to read, with its labels by column."""

    log_id: str
    uris: tuple[str, ...]
    labels: Mapping[str, LogLabels]


class LogPiece(NamedTuple):
    """A partition of a log."""

    log: LogSource
    span: Span


class Loss(NamedTuple):
    """What was lost of a log: all of it, or some messages.

    Attributes:
        at: start of the partition that showed it.
        status: of the whole log, see `IncompleteLog`; "" if only messages were lost.
        refusals: by the reader.
        of_columns: messages that columns couldn't use.
    """

    log_id: str
    uris: tuple[str, ...]
    at: int
    status: str
    reason: str = ""
    refusals: tuple[Refusal, ...] = ()
    of_columns: tuple[Refusal, ...] = ()


class LogPlan(NamedTuple):
    """The common ground of all logs: how they are opened, and what becomes of them."""

    plan: RowPlan
    options: OpenOptions
    num_logs: int


class FoundLogs(NamedTuple):
    """The logs of a recipe."""

    plan: LogPlan
    sources: Sequence[LogSource]
    losses: Sequence[Loss]


def find_logs(reading: LogReading) -> FoundLogs:
    """Find the logs of a recipe, and resolve it for a sample of them, as builds do.

    Raises:
        RecipeError: the recipe has mistakes, or doesn't fit the logs.
        LogReadError: a log of the sample can't be read, and failures aren't contained; or none can.
        InputError: logs are copies, under `duplicates: fail`.
    """
    recipe = reading.recipe
    found = expand_logs(recipe, reading.base, reading.storage_options)
    access = access_to(reading.storage_options, found)
    options = open_options(recipe, access, redactions={})  # of a type that can be pickled
    found, losses = _without_duplicates(recipe, found, options)
    if recipe.time.set_back == "split":
        found = with_passes(found, options)
    labels = RecipeLabels(recipe, reading.base, reading.storage_options)
    plan = _resolved(reading, found, options, labels)
    sources = [LogSource(log.log_id, tuple(log.uris), labels.of(log.log_id)) for log in found]
    return FoundLogs(LogPlan(plan, options, len(found)), sources, losses)


def _without_duplicates(recipe: Recipe, found: LogList, options: OpenOptions) -> tuple[LogList, list[Loss]]:
    """Treat logs of equal content as `duplicates` says."""
    groups = [] if recipe.duplicates == "warn" else equal_logs(found, options.storage_options)
    doubles = {log.log_id: (log, first) for first, *others in groups for log in others}
    if doubles and recipe.duplicates == "fail":
        same = (f"{log_id} has the content of {first.log_id}" for log_id, (_, first) in doubles.items())
        raise InputError(f"duplicates: {some_of(same, _SHOWN)}; remove one, or set `duplicates: keep_first`")
    stay = np.setdiff1d(np.arange(len(found)), found.rows_of(doubles)) if doubles else None
    losses = [
        Loss(log_id, tuple(log.uris), _BEGIN, "duplicate", f"same content as {first.log_id}")
        for log_id, (log, first) in doubles.items()
    ]
    return found if stay is None else found.take(stay), losses


def _resolved(reading: LogReading, found: LogList, options: OpenOptions, labels: RecipeLabels) -> RowPlan:
    """Resolve a recipe for some of its logs; for more as long as these lack information.

    Raises:
        LogReadError, RecipeError: see `find_logs`.
    """
    recipe, left = reading.held_to, np.arange(len(found))
    opened, failed = dict[str, Log](), list[str]()
    while True:
        chosen = spread_evenly(left, max(SAMPLE, len(opened)))
        left = np.setdiff1d(left, chosen)
        for log, result in ahead(lambda log: (log, _opened(log, options)), [*found.at(chosen)]):
            if isinstance(result, str):
                failed.append(result)
            else:
                opened[log.log_id] = result
        if failed and (not reading.contains or not (opened or len(left))):
            raise LogReadError(list_failures(failed, len(found)))
        try:
            plan, _ = resolve(recipe, opened, reading.allow_derive, labels=labels.types)
            if not len(left) or not any(needs_message(column.spec) for column in plan.columns):
                return plan
        except OF_CONTENT:
            seen = set[str]().union(*(log.summary.topics for log in opened.values()))
            if not len(left) or (opened and not named_topics(recipe) - seen):
                raise


def _opened(log: LogFiles, options: OpenOptions) -> Log | str:
    """Return a log, or why it can't be read."""
    try:
        return _checked(log, options)
    except LogReadError as error:
        return str(error)
    except (LogloomError, *NOT_OF_THE_LOG):
        raise
    except Exception as error:  # any other error of a library for a log
        return f"{log.uris[0]}: {type(error).__name__}: {error}"


def _checked(log: LogFiles, options: OpenOptions) -> Log:
    opened = open_log(log.uris, options, log.log_id)
    check_files(log, lambda uris: open_log(uris, options))
    check_clock(opened.summary)
    return opened


def pieces_of(log: LogSource, reading: LogReading, shared: LogPlan) -> Iterator[LogPiece | Loss]:
    """Yield the partitions of a log, and what its index shows to be lost; or why it fails."""
    try:
        opened = _checked(LogFiles(log.log_id, log.uris), shared.options)
        hold_to(shared.plan, reading.held_to, log.log_id, opened)
        spans = list(plan_spans(opened.summary, shared.plan))
        lost = (*opened.summary.refusals, *strays_of(shared.plan, opened.summary))
    except Exception as error:
        yield _failure(log, reading, None, error)
        return
    if lost:
        yield Loss(log.log_id, log.uris, _BEGIN, "", refusals=lost)
    for span in spans:
        yield LogPiece(log, span)


def failures_of(piece: LogPiece, reading: LogReading, shared: LogPlan) -> Iterator[Loss]:
    """Make the rows of a partition, only to see whether that fails."""
    try:
        for _ in _stream(piece, reading, shared):
            pass
    except Exception as error:
        yield _failure(piece.log, reading, piece.span, error)


def rows_of(piece: LogPiece, reading: LogReading, shared: LogPlan) -> Iterator[Block | Loss]:
    """Yield the rows of a partition, then what was lost of it."""
    stream = _stream(piece, reading, shared)
    yield from stream
    tally = stream.tally
    if tally.refusals:
        log = piece.log
        yield Loss(log.log_id, log.uris, piece.span.start, "", "", tally.lost, tally.refusals)


def _stream(piece: LogPiece, reading: LogReading, shared: LogPlan) -> RowStream:
    (log_id, uris, labels), span, how = piece.log, piece.span, shared.options.on_error
    log = open_log(uris, shared.options, log_id)
    return build_blocks(
        log, log_id, shared.plan, span, max_bytes=reading.max_bytes, labels=labels, on_error=how
    )


def _failure(log: LogSource, reading: LogReading, span: Span | None, error: Exception) -> Loss:
    """The loss of a log by an error of its own.

    Raises:
        Exception: the same error, if it isn't of the log, or failures aren't contained.
    """
    of_machine = isinstance(error, (StorageError, *NOT_OF_THE_LOG))
    of_rows = not isinstance(error, (LogReadError, DeriveError))
    of_machine |= of_rows and isinstance(error.__cause__, NOT_OF_THE_LOG)
    if of_machine or isinstance(error, UsageError) or not reading.contains:
        raise error
    text = str(error) if isinstance(error, LogloomError) else f"{type(error).__name__}: {error}"
    if span is not None and not isinstance(error, LogReadError):
        text = f"partition {span.name}: {text}"
    status = "refused" if reading.recipe.on_error_mode == "fail" else "skipped"
    return Loss(log.log_id, log.uris, _BEGIN if span is None else span.start, status, text)


def left_out(log_ids: Iterable[str], reading: LogReading, shared: LogPlan) -> frozenset[str]:
    """The logs that failed, which give no rows.

    Raises:
        LogReadError: they are more than `on_error: {skip: 1%}` allows.
    """
    found, total, budget = frozenset(log_ids), shared.num_logs, reading.recipe.skip_budget
    if budget and len(found) > budget * total:
        names = some_of(sorted(found))
        raise LogReadError(
            f"{len(found)} of {counted(total, 'log')} skipped, over the budget of {budget:.2%}: {names}"
        )
    return found


def incomplete_of(log_id: str, losses: Iterable[Loss]) -> IncompleteLog:
    """Describe a log by all of its losses, in any order."""
    found = sorted(losses, key=lambda loss: (loss.at, loss.status, loss.reason))
    uris, failed = found[0].uris, [loss for loss in found if loss.status]
    if failed:
        reasons = tuple(dict.fromkeys(loss.reason for loss in failed))
        return IncompleteLog(log_id, uris, failed[0].status, reasons[:MAX_REASONS])
    of_reader = (refusal for loss in found for refusal in loss.refusals)
    of_columns = (refusal for loss in found for refusal in loss.of_columns)
    refusals = [*dict.fromkeys([*of_reader, *of_columns])]
    reasons = tuple(map(line_of, refusals[:MAX_REASONS]))
    if len(refusals) > MAX_REASONS:
        reasons += (f"and {len(refusals) - MAX_REASONS:,} more",)
    return IncompleteLog(log_id, uris, "salvaged", reasons)
