"""What a job will do, as values: what it reads, the logs that stay, and its size.

Here: `Plan`, what running a job asks of any; and of builds from logs `BuildPlan`, and `PlannedLog`.
Elsewhere: making one (logloom.pipelines.plan.plan), that of a conversion (logloom.pipelines.convert.plan),
what people are told of it (logloom.pipelines.plan.summary).
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from logloom.io.catalog.entries import ENTRY, unit_folder
from logloom.io.catalog.pages import LogRecord
from logloom.io.logs.interface import LogSummary
from logloom.io.logs.known_logs import Memory
from logloom.io.logs.messages.adapters import VIDEO
from logloom.io.rows.log_ranges import LogRange
from logloom.pipelines.plan.log_tasks import ListedTasks
from logloom.pipelines.plan.next_version import KeptLogs
from logloom.recipe.labels import RecipeLabels
from logloom.runners import Size
from logloom.transforms.build.build_warnings import BuildWarning, log_warnings, strict_refusal
from logloom.transforms.build.job import Job, LogJob, LogTask, Target
from logloom.transforms.rows.plan.row_plan import RowPlan, Span, clock_topics
from logloom.transforms.rows.spans import ByteIndex, plan_spans

if TYPE_CHECKING:
    from logloom.pipelines.plan.duplicates import Duplicate


@dataclass(frozen=True)
class PlannedLog:
    """A log that will be read: what is worth remembering of its index, for there may be very many logs.

    Attributes:
        num_messages, message_bytes: in the log; bytes uncompressed.
        num_ticks: as many rows as there can be, before `rows:` drops any.
        bounds: (partitions, 4) int64, start and stop of each span and of its ticks; (partitions, 2) where
            messages are the clock.
        reads: (partitions, 2) int64, bytes of messages and chunks of the log in each span, its halo left out.
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
        """Plans a log's partitions, from its index."""
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
    """What a job will do, wherever its rows come from; as it stands here, it makes none.

    Attributes:
        notes: what the build does, for people.
        warnings: of what may be wrong with the version.
        up_to_date: the newest version already says all that a new one would.
        changes: records that change in the newest version beside those of logs that are built, see
            `Before.changes`.
        memory: what the next plan may remember of the logs; None where the root has it.
        wholes: likewise, digests of logs that were compared as a whole.
        staged: digests of files in runs/ with `elements`, where an engine's graph shouldn't hold them.
    """

    job: Target
    notes: tuple[str, ...] = ()
    warnings: tuple[BuildWarning, ...] = ()
    up_to_date: bool = False
    changes: tuple[LogRecord, ...] = ()
    memory: Memory | None = None
    wholes: Mapping[str, str] = field(default_factory=dict)
    staged: tuple[str, ...] = ()

    @property
    def elements(self) -> Iterator[LogTask | bytes]:
        """What the pipeline starts from; see `logloom.transforms.beam.build.build_logs`."""
        return iter(())

    @property
    def problem(self) -> str:
        """Why a build is known to commit nothing; "" where nobody knows that before it has run."""
        return ""

    @property
    def num_partitions(self) -> int:
        return sum(number for _, number in self.work.values())

    @property
    def size(self) -> Size:
        """How much work it is, for who chooses how many workers it is worth."""
        return Size(sum(size for size, _ in self.work.values()), self.num_partitions)

    @property
    def log_ids(self) -> Iterator[str]:
        """Of the logs that will be read, in their order."""
        return iter(sorted(self.work))

    @property
    def uris(self) -> Iterator[str]:
        """What will be read."""
        return iter(())

    @property
    def work(self) -> dict[str, tuple[int, int]]:
        """Of each log that will be read, its bytes and its partitions; guessed where nobody has opened it."""
        return {}

    @property
    def is_guessed(self) -> bool:
        """Whether figures are averages of the logs that were opened."""
        return False

    @property
    def partitions(self) -> Iterator[tuple[LogTask, Span | LogRange]]:
        """Those that will be built, of the logs that were opened."""
        return iter(())

    def unit_identities(self) -> list[tuple[str, str]]:
        """(output, identity) of every unit of `partitions`."""
        job = self.job
        if not isinstance(job, Job):
            return []
        partitions, outputs = self.partitions, job.outputs
        return [(name, job.unit_identity(name, *where)) for where in partitions for name in outputs]

    def finished(self) -> int:
        """How many units lie finished in the root."""
        return sum(
            self.job.store.exists(f"{unit_folder(output, identity)}/{ENTRY}")
            for output, identity in self.unit_identities()
        )


@dataclass(frozen=True, kw_only=True)
class BuildPlan(Plan):
    """What a build from logs will do.

    Attributes:
        logs: that will be read, and were opened.
        left: those that workers open first. Figures of the plan count each as one of the others on average.
        compared: logs of the newest version that workers open, and build if they changed. They count as kept.
        compared_bytes: of their files, where workers read all of them.
        unreadable: logs that are skipped.
        staying: logs whose rows stay as the newest version has them, as their files are gone, or were cut.
        shortened: of these, the logs whose files were cut.
        left_out: logs that somebody dropped.
        num_unsettled: how many logs wait for a later build, since their files changed lately.
        sources: URIs and globs, or the table, that the recipe's `logs` name.
        kept: logs of the newest version that need no work.
        opened: logs that were, in name order; the others are listed as they were when a build opened them.
        samples: of these, the remembered ones that were opened only to hold the recipe to.
        num_purged: how many logs are left out since they were purged.
        labels: that logs have, as their tables are now.
        labels_gone, labels_kept: see `PlanLogs`.
        duplicates: logs that have the content of another one, by log_id.
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

    @property
    def tasks(self) -> Iterator[LogTask]:
        """The logs that will be read."""
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
        """Of logs to build, with those that workers open."""
        return len(self.logs) + len(self.left)

    @property
    def num_files(self) -> int:
        """Of these logs; files that share a log_id are one log."""
        return sum(len(log.task.uris) for log in self.logs) + self.left.files.num_files(self.left.rows)

    @property
    def problem(self) -> str:
        """That more logs are skipped already than the recipe allows, or what `--strict` refuses; workers
        may have to skip more, and find more."""
        if self.up_to_date:
            return ""
        skipped, total = len(self.unreadable), self.num_logs + self.kept.logs
        total += len(self.unreadable) + len(self.left_out)
        names = (record.log_id for record in self.unreadable)
        over = self.job.over_budget(skipped, total, lambda: names)
        return over or (strict_refusal(self.warnings) if self.job.settings.strict else "")

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
        """How much work it is, for who chooses how many workers it is worth."""
        specs = [column.spec for column in self.job.plan.columns]
        transcodes = any(spec.resize or spec.encode or spec.adapter == VIDEO for spec in specs)
        num_bytes, num_tasks = self.message_bytes + self.compared_bytes, len(self.compared)
        return Size(num_bytes, self.num_partitions + num_tasks, transcodes)

    @property
    def largest_partition(self) -> int:
        """Bytes of messages in the largest partition: what becomes one shard of each output."""
        return max((int(log.reads[:, 0].max(initial=0)) for log in self.logs), default=0)

    @property
    def chunk_reads(self) -> int:
        """Chunks to read, one that two partitions share counted twice; as many range requests at most."""
        return self._of_all(int(log.reads[:, 1].sum()) for log in self.logs)

    @property
    def num_ticks(self) -> int:
        """Ticks of the logs that will be read: as many rows as there can be, before `rows:` drops any."""
        return self._of_all(log.num_ticks for log in self.logs)

    @property
    def ticks_of_left(self) -> int:
        """Of one log that workers open first."""
        return self.num_ticks // max(1, self.num_logs)

    def _of_all(self, counts: Iterable[int]) -> int:
        """A sum over the logs that will be read, by those that were opened."""
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
