"""Logs as a source of blocks for any pipeline.

Here: `ReadFromLogs`, wiring only.
Elsewhere: the work of the steps (logloom.transforms.beam.log_rows), whole builds, with finished units and a
commit (logloom.pipelines.build.build).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from logloom.blocks import Block
from logloom.caching import cached_property
from logloom.errors import UsageError
from logloom.extras import beam_needed
from logloom.metrics import count
from logloom.recipe import Recipe
from logloom.schema import Schema
from logloom.transforms.beam import log_rows
from logloom.transforms.beam.log_rows import IncompleteLog, LogPiece, LogPlan, LogReading, LogSource, Loss
from logloom.transforms.beam.shuffle import composite, spread_by_key

with beam_needed():
    import apache_beam as beam

T = TypeVar("T")
_LOSSES = "losses"


class ReadLogs(NamedTuple):
    """The outputs of `ReadFromLogs.with_exception_handling`: two PCollections.

    Attributes:
        rows: Blocks.
        refused: `IncompleteLog`s: one for each log that isn't whole.
    """

    rows: Any
    refused: Any


class ReadFromLogs(beam.PTransform):
    """The rows of a recipe as blocks, straight from its logs; nothing is written.

    The rows are those of a build. Workers find and open the logs: constructing a pipeline reads nothing, so
    mistakes in the recipe that only its logs show fail the job. `on_error` of the recipe decides what becomes
    of a damaged log:

    * `fail`: the job fails with the log's error;
    * `skip`: the log gives no rows; over the budget of `{skip: 1%}` the job fails;
    * `salvage`: it gives the rows that its whole messages allow.

    To know whether a log is whole, `skip` and `salvage` make its rows twice: no row may come out before.

    Counters in the namespace "logloom": `rows`, `logs`, `logs_refused`, `logs_skipped`, `logs_salvaged`,
    `logs_duplicate`. Engines that do work twice count it twice.

    Examples:
        >>> recipe = Recipe.load("demo/recipe.yaml")
        >>> with beam.Pipeline() as pipeline:
        ...     blocks = pipeline | ReadFromLogs(recipe, base="demo")
        ...     rows = blocks | beam.Map(len) | beam.CombineGlobally(sum)
    """

    def __init__(
        self,
        recipe: Recipe,
        base: str | None = None,
        max_bytes: int = 64 << 20,
        storage_options: Mapping[str, Any] | None = None,
        allow_derive: Sequence[str] = (),
    ):
        """Takes note of what to read.

        Args:
            recipe: its outputs are not used.
            base: the folder that relative log URIs start from, as workers see it.
            max_bytes: of a block, about.
            storage_options: fsspec options by protocol.
            allow_derive: modules and packages that columns may be derived by; importing them runs their code.

        Raises:
            UsageError: `max_bytes` isn't positive.
        """
        super().__init__()
        if max_bytes < 1:
            raise UsageError(f"max_bytes {max_bytes}: a block has at least one byte; leave it out")
        contains, derive = recipe.on_error_mode != "fail", tuple(allow_derive)
        self._reading = LogReading(recipe, base, max_bytes, storage_options, derive, contains)
        self._has_refused = False

    def with_exception_handling(self) -> ReadFromLogs:
        """Return a transform with a second output: the logs that aren't whole, with the reasons.

        No log fails the job then. Under `on_error: fail` a damaged one gives no rows, and its status is
        "refused". What concerns no single log still fails: mistakes in the recipe, a missing file that it
        names, a store that refuses, more logs than `{skip: 1%}` allows, and logs of which none can be read.

        Returns:
            The transform, whose outputs are `ReadLogs`.

        Examples:
            >>> recipe = Recipe.load("demo/recipe.yaml")
            >>> with beam.Pipeline() as pipeline:
            ...     rows, refused = pipeline | ReadFromLogs(recipe, base="demo").with_exception_handling()
            ...     lines = refused | beam.Map(lambda log: f"{log.log_id} {log.status}: {log.reasons[0]}")
        """
        of = self._reading
        other = ReadFromLogs(of.recipe, of.base, of.max_bytes, of.storage_options, of.allow_derive)
        other._reading = replace(of, contains=True)
        other._has_refused = True
        return other

    @cached_property
    def schema(self) -> Schema:
        """The schema of the blocks. Opens logs, in this process; nothing else here does.

        Raises:
            RecipeError: the recipe doesn't fit the logs; lists every mistake.
            LogReadError: a log can't be read, under `on_error: fail`; or none can.
        """
        return log_rows.find_logs(self._reading).plan.plan.schema

    def expand(self, begin: Any) -> Any:
        reading = self._reading
        start = begin | "Start" >> beam.Impulse()
        found = start | "FindLogs" >> beam.FlatMap(_find_logs, reading).with_outputs(
            "plan", _LOSSES, main="logs"
        )
        plan = beam.pvalue.AsSingleton(found.plan)
        planned = (
            found.logs
            | "SpreadLogs" >> composite(beam, spread_by_key, _log_id)
            | "PlanPartitions"
            >> beam.FlatMap(_plan_partitions, reading, plan).with_outputs(_LOSSES, main="pieces")
        )
        pieces, losses = planned.pieces, [found[_LOSSES], planned[_LOSSES]]
        if reading.contains:
            failed = (
                pieces
                | "SpreadChecks" >> beam.Reshuffle()
                | "CheckPartitions" >> beam.FlatMap(log_rows.failures_of, reading, plan)
            )
            losses.append(failed)
            names = beam.pvalue.AsList(
                (planned[_LOSSES], failed)
                | "JoinFailures" >> beam.Flatten()
                | "NameFailed" >> beam.FlatMap(_failed)
            )
            left_out = start | "LeaveOut" >> beam.Map(_left_out, reading, plan, names)
            pieces = pieces | "KeepWhole" >> beam.Filter(_is_kept, beam.pvalue.AsSingleton(left_out))
        made = (
            pieces
            | "SpreadPartitions" >> beam.Reshuffle()
            | "MakeRows" >> beam.FlatMap(_make_rows, reading, plan).with_outputs(_LOSSES, main="rows")
        )
        refused = (
            (*losses, made[_LOSSES])
            | "JoinLosses" >> beam.Flatten()
            | "GroupByLog" >> beam.GroupBy(_log_id)
            | "DescribeLosses" >> beam.MapTuple(_describe).with_output_types(IncompleteLog)
        )
        made.rows.element_type = Block
        return ReadLogs(made.rows, refused) if self._has_refused else made.rows


def _log_id(element: LogSource | Loss) -> str:
    return element.log_id


def _or_loss(elements: Iterable[T | Loss]) -> Iterator[Any]:
    """Send losses to the output for these."""
    for element in elements:
        yield beam.pvalue.TaggedOutput(_LOSSES, element) if isinstance(element, Loss) else element


def _find_logs(_: bytes, reading: LogReading) -> Iterator[Any]:
    found = log_rows.find_logs(reading)
    yield beam.pvalue.TaggedOutput("plan", found.plan)
    yield from _or_loss([*found.sources, *found.losses])


def _plan_partitions(log: LogSource, reading: LogReading, plan: LogPlan) -> Iterator[Any]:
    count(logs=1)
    return _or_loss(log_rows.pieces_of(log, reading, plan))


def _failed(loss: Loss) -> Iterator[str]:
    if loss.status:
        yield loss.log_id


def _left_out(_: bytes, reading: LogReading, plan: LogPlan, names: Sequence[str]) -> frozenset[str]:
    return log_rows.left_out(names, reading, plan)


def _is_kept(piece: LogPiece, left_out: frozenset[str]) -> bool:
    return piece.log.log_id not in left_out


def _make_rows(piece: LogPiece, reading: LogReading, plan: LogPlan) -> Iterator[Any]:
    for element in _or_loss(log_rows.rows_of(piece, reading, plan)):
        if isinstance(element, Block):
            count(rows=len(element))
        yield element


def _describe(log_id: str, losses: Iterable[Loss]) -> IncompleteLog:
    found = log_rows.incomplete_of(log_id, losses)
    count(**{f"logs_{found.status}": 1})
    return found
