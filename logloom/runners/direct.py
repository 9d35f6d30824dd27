"""This machine: the steps in this process or in workers beside it, without Beam.

It fails the job when a worker dies and does not retry; a second build then finds the finished units.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Sequence
from typing import Any, Self

from logloom.cpus import available_cpus
from logloom.errors import UsageError
from logloom.extras import beam_needed
from logloom.runners.engine import Construct, EngineJob
from logloom.runners.fork_server import fork_server
from logloom.runners.inline import InlineJob
from logloom.runners.local_workers import LocalWorkers
from logloom.runners.options import Finished, RunnerOptions, Size, Submitted, spreads_of
from logloom.runners.scratch import engine_folders
from logloom.text import OnMessage

# Below this, starting worker processes takes longer than they save. Copying is bound by memory and disk, and
# two processes copy little faster than one: they end together at 1.4 GB. To transcode takes ten times as
# long, and all cores.
IN_PROCESS_BYTES = 1536 << 20
IN_PROCESS_BYTES_TRANSCODED = 64 << 20


def default_workers(size: Size, cores: int) -> int:
    """How many workers a build of this size is worth."""
    least = IN_PROCESS_BYTES_TRANSCODED if size.transcodes else IN_PROCESS_BYTES
    if size.message_bytes < least or size.partitions < 2:
        return 1
    return max(1, min(cores, size.partitions))


def num_workers(options: RunnerOptions, size: Size) -> int:
    """How many workers a run has; with options of Beam's its own runner takes the steps, in this process."""
    if options.beam_flags():
        return 1
    return options.workers or default_workers(size, available_cpus())


def pipeline_options(flags: Sequence[str] = ()) -> Any:
    """Options for Beam's FnApiRunner in this process.

    Args:
        flags: of Beam.

    Raises:
        UsageError: Beam doesn't know one of them, or its runner ignores it.
    """
    from apache_beam.options.pipeline_options import PipelineOptions

    from logloom.runners.beam_pipeline import refuse_ignored, refuse_unknown

    refuse_unknown(flags)
    refuse_ignored(flags, "direct")
    return PipelineOptions(
        ["--direct_num_workers=1", *flags], save_main_session=False, pipeline_type_check=False
    )


class Direct:
    """Runs pipelines here."""

    def __init__(self, options: RunnerOptions, size: Size):
        self._workers, self._options = num_workers(options, size), None
        if flags := options.beam_flags():
            if (options.workers or 1) > 1:
                raise UsageError(
                    "with options of Beam, Beam's local runner runs the steps in one process: leave out "
                    "--workers, or use --runner flink"
                )
            with beam_needed():
                self._options = pipeline_options(flags)

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            folders = stack.enter_context(engine_folders())
            self._pool = None
            if self._workers > 1:
                server = stack.enter_context(fork_server())
                self._pool = LocalWorkers(server, self._workers, folders.environment)
                stack.callback(self._pool.close)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def submit(self, construct: Construct, name: str) -> EngineJob:
        if self._options is None:
            return InlineJob(construct, name, self._pool)
        from apache_beam.runners.portability.fn_api_runner import FnApiRunner

        from logloom.runners.beam_pipeline import new_pipeline

        pipeline = new_pipeline(FnApiRunner(), self._options)
        construct(pipeline)
        return _BeamJob(pipeline, name)


class _BeamJob:
    """A pipeline that Beam's own runner runs in this process, because options of Beam were given."""

    def __init__(self, pipeline: Any, name: str):
        self._pipeline, self._name = pipeline, name

    def wait(self, on_message: OnMessage) -> Finished:
        result = self._pipeline.run()
        result.wait_until_finish()
        counters: Counter[str] = Counter()
        metrics = result.metrics().query()
        for counter in metrics["counters"]:  # one for each step
            if counter.key.metric.namespace == "logloom":
                counters[counter.key.metric.name] += int(counter.result)
        noted = ((one.key, one.result) for one in metrics["distributions"])
        return Finished(self._name, counters, spreads_of(noted))

    def detached(self) -> Submitted:
        raise UsageError("the direct runner can't detach")

    def cancel(self) -> None:
        """The job ended with the call that ran it."""
