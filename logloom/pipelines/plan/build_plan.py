"""Plans of jobs: what to read, the logs to keep, and the size.

Here: `Plan`, the interface for running a job; and for builds from logs `BuildPlan`, and `PlannedLog`.
Elsewhere: making one (logloom.pipelines.plan.plan), that of a conversion (logloom.pipelines.convert.plan),
its summary (logloom.pipelines.plan.summary).
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from logloom.io.catalog.entries import ENTRY, unit_folder
from logloom.io.catalog.pages import LogRecord
from logloom.io.logs.interface import LogSummary
from logloom.io.logs.log_cache import Memory
from logloom.io.logs.messages.adapters import VIDEO
from logloom.io.rows.log_ranges import LogRange
from logloom.pipelines.plan.log_tasks import ListedTasks
from logloom.pipelines.plan.next_version import KeptLogs
from logloom.recipe.labels import RecipeLabels
from logloom.runners import Size
from logloom.transforms.build.build_warnings import log_warnings, strict_refusal
from logloom.transforms.build.job import Job, LogJob, LogTask, Target
from logloom.transforms.rows.notices import BuildWarning, Notice
from logloom.transforms.rows.plan.row_plan import RowPlan, Span, clock_topics
from logloom.transforms.rows.sequences import SequenceCounts
from logloom.transforms.rows.spans import ByteIndex, plan_spans
from logloom.values import dataclass

if TYPE_CHECKING:
    from logloom.pipelines.plan.duplicates import Duplicate


@dataclass(frozen=True)
class PlannedLog:
    """A log to read: a small part of its index, as there may be very many logs.

    Attributes:
        num_messages, message_bytes: in the log; bytes uncompressed.
        num_ticks: the maximum number of rows, before `rows:` drops any.
        bounds: (partitions, 4) int64, start and stop of each span and of its ticks; (partitions, 2) if
            messages are the clock.
        reads: (partitions, 2) int64, bytes of messages and chunks of the log in each span, without its halo.
        warnings: about its times.
    """

    task: LogTask
    num_messages: int
    message_bytes: int
    num_ticks: int
    bounds: NDArray[np.int64]
    reads: NDArray[np.int64]
    warnings: tuple[BuildWarning, ...] = ()

    @classmethod
    def of(cls, task: LogTask, summary: LogSummary, plan: RowPlan) -> PlannedLog:
        """Plan a log's partitions from its index."""
        spans = plan_spans(summary, plan)
        if names := clock_topics(plan.clock):
            topics = [summary.topics.get(name) for name in names]
            num_ticks = min(0 if topic is None else topic.num_ticks for topic in topics)
        else:
            num_ticks = sum(span.ticks[1] - span.ticks[0] for span in spans if span.ticks is not None)
        rows = [(span.start, span.stop, *(span.ticks or ())) for span in spans]
        bounds = np.array(rows, np.int64) if rows else np.empty((0, 2), np.int64)
        sizes = ByteIndex(summary)
        reads = [(sizes.between(s.start, s.stop), sizes.chunks(s.start, s.stop)) for s in spans]
        of_spans = np.array(reads, np.int64).reshape(-1, 2)
        size = int(summary.chunk_bytes.sum())
        found = log_warnings(plan, task.uris[0], summary, [(span.start, span.stop) for span in spans])
        return cls(task, summary.num_messages, size, num_ticks, bounds, of_spans, tuple(found))

    @property
    def spans(self) -> Iterator[Span]:
        """Its partitions, in time order."""
        for start, stop, *ticks in self.bounds.tolist():
            yield Span(start, stop, (ticks[0], ticks[1]) if ticks else None)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The interface of plans for any source of rows; itself a plan without rows.

    Attributes:
        noted: notes for people.
        warnings: of possible faults of the version.
        up_to_date: the latest version equals the one that would be built.
        changes: changed records of the latest version apart from built logs, see `Before.changes`.
        memory: cache of logs for the next plan; None if the root has it.
        wholes: digests of logs that were compared completely, for the next plan.
        staged: digests of files in runs/ with `elements`, if an engine's graph shouldn't contain them.
    """

    job: Target
    noted: tuple[Notice, ...] = ()
    warnings: tuple[BuildWarning, ...] = ()
    up_to_date: bool = False
    changes: tuple[LogRecord, ...] = ()
    memory: Memory | None = None
    wholes: Mapping[str, str] = field(default_factory=dict)
    staged: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """The texts of its notes."""
        return tuple(note.text for note in self.noted)

    @property
    def elements(self) -> Iterator[LogTask | bytes]:
        """The inputs of the pipeline; see `logloom.transforms.beam.build.build_logs`."""
        return iter(())

    @property
    def problem(self) -> str:
        """Why a build is known to commit nothing; "" if that is unknown before it runs."""
        return ""

    @property
    def num_partitions(self) -> int:
        return sum(number for _, number in self.work.values())

    @property
    def size(self) -> Size:
        """Amount of work, for choosing the number of workers."""
        return Size(sum(size for size, _ in self.work.values()), self.num_partitions)

    @property
    def log_ids(self) -> Iterator[str]:
        """Log_ids of the logs to read, in order."""
        return iter(sorted(self.work))

    @property
    def uris(self) -> Iterator[str]:
        """URIs to read."""
        return iter(())

    @property
    def work(self) -> dict[str, tuple[int, int]]:
        """Bytes and partitions of each log to read; estimates for unopened logs."""
        return {}

    @property
    def is_guessed(self) -> bool:
        """Whether figures are averages of the opened logs."""
        return False

    @property
    def partitions(self) -> Iterator[tuple[LogTask, Span | LogRange]]:
        """Partitions to build, of the opened logs."""
        return iter(())

    def unit_identities(self) -> list[tuple[str, str]]:
        """(output, identity) of every unit of `partitions`."""
        job = self.job
        if not isinstance(job, Job):
            return []
        partitions, outputs = self.partitions, job.outputs
        return [(name, job.unit_identity(name, *where)) for where in partitions for name in outputs]

    def finished(self) -> int:
        """Number of finished units in the root."""
        return sum(
            self.job.store.exists(f"{unit_folder(output, identity)}/{ENTRY}")
            for output, identity in self.unit_identities()
        )


@dataclass(frozen=True, kw_only=True)
class BuildPlan(Plan):
    """Plan of a build from logs.

    Attributes:
        logs: to read, opened.
        left: logs to be opened by workers. Figures of the plan use the average of the others.
        compared: logs of the latest version that workers open, and build if they changed. They count as kept.
        compared_bytes: of their files, if workers read all of them.
        unreadable: logs that are skipped.
        staying: logs whose rows of the latest version are kept, as their files are missing or truncated.
        shortened: of these, the logs with truncated files.
        left_out: dropped logs.
        num_unsettled: number of logs that wait for a later build, as their files changed recently.
        sources: URIs and globs, or the table, of the recipe's `logs`.
        kept: logs of the latest version that need no work.
        opened: opened logs, in name order; the files of others are unchanged since a build opened them.
        samples: of these, cached ones that were opened only to check the recipe.
        num_purged: number of logs that are left out as they were purged.
        labels: current labels of logs.
        labels_gone, labels_kept: see `PlanLogs`.
        duplicates: logs with the content of another one, by log_id.
        sequences: the episodes or scenes of outputs that have such, estimated from a sample.
    """

    job: LogJob
    logs: tuple[PlannedLog, ...]
    left: ListedTasks
    compared: ListedTasks
    compared_bytes: int = 0
    dropped: tuple[str, ...] = ()
    staying: tuple[str, ...] = ()
    shortened: tuple[str, ...] = ()
    unreadable: tuple[LogRecord, ...] = ()
    left_out: tuple[str, ...] = ()
    num_unsettled: int = 0
    sources: tuple[str, ...] = ()
    kept: KeptLogs = field(default_factory=KeptLogs)
    opened: tuple[str, ...] = ()
    samples: tuple[str, ...] = ()
    num_purged: int = 0
    labels: RecipeLabels | None = None
    labels_gone: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    labels_kept: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    duplicates: Mapping[str, Duplicate] = field(default_factory=dict)
    sequences: tuple[SequenceCounts, ...] = ()

    @property
    def tasks(self) -> Iterator[LogTask]:
        """The logs to read."""
        return itertools.chain((log.task for log in self.logs), self.left, self.compared)

    @property
    def elements(self) -> Iterator[LogTask | bytes]:
        return self.tasks

    @property
    def log_ids(self) -> Iterator[str]:
        opened = (log.task.log_id for log in self.logs)
        return heapq.merge(opened, self.left.log_ids, self.compared.log_ids)

    @property
    def uris(self) -> Iterator[str]:
        return (uri for task in self.tasks for uri in task.uris)

    @property
    def num_logs(self) -> int:
        """Number of logs to build, including those that workers open."""
        return len(self.logs) + len(self.left)

    @property
    def num_files(self) -> int:
        """Number of files of these logs; files that share a log_id are one log."""
        return sum(len(log.task.uris) for log in self.logs) + self.left.files.num_files(self.left.rows)

    @property
    def problem(self) -> str:
        """Why the build is known to fail: too many skipped logs, a split without any, or a refusal of
        `--strict`. Workers may find more.
        """
        if self.up_to_date:
            return ""
        skipped, total, settings = len(self.unreadable), self.num_logs + self.kept.logs, self.job.settings
        total += len(self.unreadable) + len(self.left_out)
        names = (record.log_id for record in self.unreadable)
        over = self.job.over_budget(skipped, total, lambda: names)
        return over or self._empty_splits() or (strict_refusal(self.warnings) if settings.strict else "")

    def _empty_splits(self) -> str:
        """Why the first version of a root isn't built: shares of few logs leave a split without any."""
        if self.job.parent is not None or self.num_logs == 1 or self.job.settings.allow_empty:
            return ""  # a later version that is refused would stop nights
        empty = [one.text for one in self.warnings if one.kind == "split" and one.is_doubtful]
        return "; ".join([*empty, "`--allow-empty` builds it so"]) if empty else ""

    @property
    def partitions(self) -> Iterator[tuple[LogTask, Span]]:
        return ((log.task, span) for log in self.logs for span in log.spans)

    @property
    def num_partitions(self) -> int:
        return self._of_all(len(log.bounds) for log in self.logs)

    @property
    def message_bytes(self) -> int:
        return self._of_all(log.message_bytes for log in self.logs)

    @property
    def size(self) -> Size:
        """Amount of work, for choosing the number of workers."""
        specs = [column.spec for column in self.job.plan.columns]
        transcodes = any(spec.resize or spec.encode or spec.adapter == VIDEO for spec in specs)
        num_bytes, num_tasks = self.message_bytes + self.compared_bytes, len(self.compared)
        return Size(num_bytes, self.num_partitions + num_tasks, transcodes)

    @property
    def largest_partition(self) -> int:
        """Bytes of messages in the largest partition, which becomes one shard of each output."""
        return max((int(log.reads[:, 0].max(initial=0)) for log in self.logs), default=0)

    @property
    def chunk_reads(self) -> int:
        """Chunks to read, counting one that two partitions share twice; the maximum number of range
        requests.
        """
        return self._of_all(int(log.reads[:, 1].sum()) for log in self.logs)

    @property
    def num_ticks(self) -> int:
        """Ticks of the logs to read: the maximum number of rows, before `rows:` drops any."""
        return self._of_all(log.num_ticks for log in self.logs)

    @property
    def ticks_of_left(self) -> int:
        """Estimated ticks of one log that workers open first."""
        return self.num_ticks // max(1, self.num_logs)

    def _of_all(self, counts: Iterable[int]) -> int:
        """Extrapolate a sum over the logs to read from the opened ones."""
        return sum(counts) * self.num_logs // max(1, len(self.logs))

    @property
    def work(self) -> dict[str, tuple[int, int]]:
        found = {log.task.log_id: (log.message_bytes, len(log.bounds)) for log in self.logs}
        mean = self.message_bytes // max(1, self.num_logs), -(-self.num_partitions // max(1, self.num_logs))
        found |= dict.fromkeys(self.left.log_ids, mean)
        return found | dict.fromkeys(self.compared.log_ids, (0, 0))

    @property
    def is_guessed(self) -> bool:
        return bool(self.left or self.compared)
