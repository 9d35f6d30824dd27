"""Estimate the bottleneck of a build: the disk, the network or decoding.

Decoding is timed, on a few rows of the largest log that was opened. The speeds of disks and networks are
assumptions, which are reported.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Mapping

from logloom.errors import LogloomError
from logloom.io.logs.interface import Log
from logloom.pipelines.plan.build_plan import BuildPlan, PlannedLog
from logloom.runners.direct import default_workers
from logloom.transforms.build.job import opened
from logloom.transforms.rows.derive.columns import NOT_OF_THE_LOG
from logloom.transforms.rows.plan.row_plan import Span
from logloom.transforms.rows.row_stream import build_blocks
from logloom.uris import is_local
from logloom.values import dataclass

SPEEDS = {"disk": 500e6, "network": 100e6}  # bytes a second, of all workers together
SAMPLE_BYTES = 4 << 20  # of messages, which are read and decoded at a time
_TIMED = 2  # blocks of rows: the first also imports what decodes it


@dataclass(frozen=True)
class Bottleneck:
    """How long a build would take if only one resource limited it.

    Attributes:
        seconds: by resource: "decoding", "disk", "network".
        num_workers: that decode.
    """

    seconds: Mapping[str, float]
    num_workers: int

    @property
    def name(self) -> str:
        """The slowest resource."""
        return max(self.seconds, key=lambda what: (self.seconds[what], what))

    def __str__(self) -> str:
        """Describe it, with its assumptions."""
        how = {"decoding": f"{self.num_workers} at a time, as fast as a sample"}
        how |= {what: f"at {speed / 1e6:.0f} MB/s, assumed" for what, speed in SPEEDS.items()}
        parts = [f"{what} {seconds:.1f} s ({how[what]})" for what, seconds in self.seconds.items() if seconds]
        return f"{self.name}, by an estimate: {', '.join(parts)}"


def estimated(plan: BuildPlan) -> Bottleneck | None:
    """Estimate the bottleneck of a build on this machine; None if unknown.

    Reads and decodes some `SAMPLE_BYTES` of messages.
    """
    if plan.up_to_date or not plan.logs or not plan.num_ticks:
        return None
    log = max((log for log in plan.logs if len(log.bounds)), key=lambda log: log.message_bytes, default=None)
    if log is None:
        return None
    try:
        source = opened(plan.job, log.task)
        rows, seconds, row_bytes = _sampled(plan, log, source)
    except (LogloomError, *NOT_OF_THE_LOG):  # the build reports it; workers may have what is missing here
        return None
    if not rows:
        return None
    stored = source.summary.size / max(1, log.message_bytes) * plan.message_bytes
    num_workers = default_workers(plan.size, len(os.sched_getaffinity(0)))
    moved = {"disk": 0.0, "network": 0.0}
    moved["disk" if all(map(is_local, log.task.uris)) else "network"] += stored
    moved["disk" if plan.job.store.local is not None else "network"] += (
        row_bytes / rows * plan.num_ticks * len(plan.job.outputs)
    )
    decoding = seconds / rows * plan.num_ticks / min(num_workers, plan.num_partitions)
    return Bottleneck(
        {"decoding": decoding, **{what: size / SPEEDS[what] for what, size in moved.items()}}, num_workers
    )


def _sampled(plan: BuildPlan, log: PlannedLog, source: Log) -> tuple[int, float, int]:
    """Decode some rows of a log: their number, the CPU seconds that they take, and their bytes."""
    start, stop, *ticks = log.bounds[int(log.reads[:, 0].argmax())].tolist()
    span = Span(start, stop, (ticks[0], ticks[1]) if ticks else None)
    name = log.task.log_id
    labels = plan.labels.of(name) if plan.labels is not None else {}
    how = plan.job.open_options.on_error
    rows = build_blocks(
        source, name, plan.job.plan, span, max_bytes=SAMPLE_BYTES, labels=labels, on_error=how
    )
    blocks = iter(rows)
    found = 0, 0.0, 0
    for _ in range(_TIMED):
        began = time.process_time()
        for block in itertools.islice(blocks, 1):
            found = len(block), time.process_time() - began, block.nbytes
    return found
