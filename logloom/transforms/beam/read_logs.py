"""Logs as a source of blocks for any pipeline.

Here: `ReadFromLogs`, wiring only.
Elsewhere: whole builds, with finished units and a commit (logloom.pipelines.build.build).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from logloom.blocks import Block
from logloom.extras import beam_needed
from logloom.io.catalog.labels import LogLabels
from logloom.io.logs.interface import OpenOptions
from logloom.io.logs.match import access_to
from logloom.io.logs.opening import open_log, with_passes
from logloom.recipe import Recipe
from logloom.recipe.labels import RecipeLabels
from logloom.recipe.logs import expand_logs, open_options
from logloom.transforms.beam.shuffle import composite, spread_by_key
from logloom.transforms.rows.plan.resolve import resolve
from logloom.transforms.rows.plan.row_plan import RowPlan, Span
from logloom.transforms.rows.row_stream import build_blocks
from logloom.transforms.rows.spans import plan_spans

with beam_needed():
    import apache_beam as beam

Labels = Mapping[str, LogLabels]  # of a log, by column
Source = tuple[str, tuple[str, ...], Labels]  # log_id, files and labels
Piece = tuple[str, tuple[str, ...], Labels, Span]


class ReadFromLogs(beam.PTransform):
    """The rows of a recipe as blocks, straight from its logs; nothing is written.

    Opens the logs' indices when the pipeline is constructed, so that mistakes in the recipe show then.

    Attributes:
        schema: of the blocks.
    """

    def __init__(
        self,
        recipe: Recipe,
        base: str | None = None,
        max_bytes: int = 64 << 20,
        storage_options: Mapping[str, Any] | None = None,
        allow_derive: Sequence[str] = (),
    ):
        """Resolves the recipe against its logs.

        Args:
            recipe: its outputs are not used.
            base: the folder that relative log URIs start from.
            max_bytes: of a block, about.
            allow_derive: modules and packages that columns may be derived by; importing them runs their code.

        Raises:
            RecipeError: the recipe doesn't fit the logs; lists every mistake.
            LogReadError: a log can't be read.
        """
        super().__init__()
        self._max_bytes = max_bytes
        logs = expand_logs(recipe, base, storage_options)
        self._options = open_options(recipe, access_to(storage_options, logs))
        if recipe.time.set_back == "split":
            logs = with_passes(logs, self._options)
        labels = RecipeLabels(recipe, base, storage_options)
        self._logs: list[Source] = [(log.log_id, tuple(log.uris), labels.of(log.log_id)) for log in logs]
        opened = {log_id: open_log(uris, self._options, log_id) for log_id, uris, _ in self._logs}
        self._plan, _ = resolve(recipe, opened, allow_derive, labels=labels.types)
        self.schema = self._plan.schema

    def expand(self, begin: Any) -> Any:
        return (
            begin
            | "NameLogs" >> beam.Create(self._logs)
            | "SpreadLogs" >> composite(beam, spread_by_key, _log_id)
            | "PlanPartitions" >> beam.FlatMap(_plan_partitions, self._plan, self._options)
            | "SpreadPartitions" >> beam.Reshuffle()
            | "MakeRows" >> beam.FlatMap(_make_rows, self._plan, self._options, self._max_bytes)
        )


def _log_id(log: Source) -> str:
    return log[0]


def _plan_partitions(log: Source, plan: RowPlan, options: OpenOptions) -> Iterator[Piece]:
    log_id, uris, labels = log
    for span in plan_spans(open_log(uris, options, log_id).summary, plan):
        yield log_id, uris, labels, span


def _make_rows(piece: Piece, plan: RowPlan, options: OpenOptions, max_bytes: int) -> Iterable[Block]:
    log_id, uris, labels, span = piece
    log, how = open_log(uris, options, log_id), options.on_error
    return build_blocks(log, log_id, plan, span, max_bytes=max_bytes, labels=labels, on_error=how)
