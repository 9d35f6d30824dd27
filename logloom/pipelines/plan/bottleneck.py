"""Estimate the bottleneck of a build: the disk, the network, decoding or encoding.

Decoding and encoding are timed, on a few rows of the largest log that was opened. The speeds of disks and
networks are assumptions, which are reported.
"""

from __future__ import annotations

import contextlib
import itertools
import pathlib
import tempfile
import time
from collections.abc import Mapping

from logloom.blocks import Block, take
from logloom.cpus import available_cpus
from logloom.errors import LogloomError
from logloom.io.formats.interface import UnitContext
from logloom.io.formats.registry import format_named
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
_BLOCKS = 2  # of rows: the first also imports what decodes it
_TIMED = ("decoding", "encoding")
_ENCODES = 0.3  # seconds, of each output
_ROWS = 8  # that are encoded at a time


@dataclass(frozen=True)
class Bottleneck:
    """How long a build would take if only one resource limited it.

    Attributes:
        seconds: by resource: "decoding", "encoding", "disk", "network".
        num_workers: that decode and encode.
    """

    seconds: Mapping[str, float]
    num_workers: int

    @property
    def name(self) -> str:
        """The slowest resource."""
        return max(self.seconds, key=lambda what: (self.seconds[what], what))

    def __str__(self) -> str:
        """Describe it, with its assumptions."""
        timed = ", ".join(f"{what} {self.seconds.get(what, 0.0):.1f} s" for what in _TIMED)
        parts = [f"{timed} ({self.num_workers} at a time, as a sample)"]
        for what, speed in SPEEDS.items():
            if seconds := self.seconds[what]:
                parts.append(f"{what} {seconds:.1f} s (at {speed / 1e6:.0f} MB/s, assumed)")
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
        rows, seconds, row_bytes, encoding = _sampled(plan, log, source)
    except (LogloomError, *NOT_OF_THE_LOG):  # the build reports it; workers may have what is missing here
        return None
    if not rows:
        return None
    stored = source.summary.size / max(1, log.message_bytes) * plan.message_bytes
    num_workers = default_workers(plan.size, available_cpus())
    moved = {"disk": 0.0, "network": 0.0}
    moved["disk" if all(map(is_local, log.task.uris)) else "network"] += stored
    moved["disk" if plan.job.store.local is not None else "network"] += (
        row_bytes / rows * plan.num_ticks * len(plan.job.outputs)
    )
    ticks = plan.num_ticks / min(num_workers, plan.num_partitions)  # of each worker
    processor = {"decoding": seconds / rows * ticks, "encoding": encoding * ticks}
    return Bottleneck(
        {**processor, **{what: size / SPEEDS[what] for what, size in moved.items()}}, num_workers
    )


def _sampled(plan: BuildPlan, log: PlannedLog, source: Log) -> tuple[int, float, int, float]:
    """Decode some rows of a log: their number, the CPU seconds that they take, their bytes; and encode some:
    the CPU seconds of a row in all outputs.
    """
    start, stop, *ticks = log.bounds[int(log.reads[:, 0].argmax())].tolist()
    span = Span(start, stop, (ticks[0], ticks[1]) if ticks else None)
    name = log.task.log_id
    labels = plan.labels.of(name) if plan.labels is not None else {}
    how = plan.job.open_options.on_error
    rows = build_blocks(
        source, name, plan.job.plan, span, max_bytes=SAMPLE_BYTES, labels=labels, on_error=how
    )
    blocks = iter(rows)
    found, encoding, last = (0, 0.0, 0), 0.0, None
    for _ in range(_BLOCKS):
        began = time.process_time()
        for block in itertools.islice(blocks, 1):
            found, last = (len(block), time.process_time() - began, block.nbytes), block
    if last is not None and len(last):
        context = UnitContext(name, log.task.uris[0], span.name, log.task.split, plan.job.period)
        with contextlib.suppress(LogloomError):  # the build reports what an output can't hold
            encoding = sum(_encoding(plan, output, last, context) for output in plan.job.outputs)
    return (*found, encoding)


def _encoding(plan: BuildPlan, output: str, block: Block, context: UnitContext) -> float:
    """Return the CPU seconds in which an output encodes and writes a row."""
    rows = 0
    with tempfile.TemporaryDirectory(prefix="logloom-") as folder:
        options, began = plan.job.outputs[output], time.process_time()
        writer = format_named(output).writer(pathlib.Path(folder), plan.job.schema, options, context)
        while rows < len(block) and time.process_time() - began < _ENCODES:
            some = slice(rows, rows + _ROWS)
            columns = {one: take(values, some) for one, values in block.columns.items()}
            writer.append(Block(block.log_id, block.partition, block.first_row + rows, columns))
            rows = min(rows + _ROWS, len(block))
        writer.close()
        return (time.process_time() - began) / rows
