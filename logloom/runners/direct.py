"""Beam's own local runner: in this process, or one worker process for each core.

It fails the job when a worker dies and does not retry; a second build then finds the finished units.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import threading
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Self

from logloom.errors import UsageError
from logloom.runners.fork_server import ForkServer, fork_server
from logloom.runners.options import Finished, RunnerOptions, Size, Submitted, spreads_of
from logloom.runners.running import Construct, JobFailedError
from logloom.runners.scratch import engine_folders
from logloom.words import OnMessage

# Below this, starting worker processes takes longer than they save. Copying is bound by memory and disk, and
# two processes copy little faster than one; to transcode takes ten times as long, and all cores.
IN_PROCESS_BYTES = 512 << 20
IN_PROCESS_BYTES_TRANSCODED = 64 << 20


def default_workers(size: Size, cores: int) -> int:
    """How many workers a build of this size is worth."""
    least = IN_PROCESS_BYTES_TRANSCODED if size.transcodes else IN_PROCESS_BYTES
    if size.message_bytes < least or size.partitions < 2:
        return 1
    return max(1, min(cores, size.partitions))


def num_workers(options: RunnerOptions, size: Size) -> int:
    """How many workers a run has."""
    return options.workers or default_workers(size, len(os.sched_getaffinity(0)))


def pipeline_options(num_workers: int, more: Sequence[str] = ()) -> Any:
    """Options for Beam's FnApiRunner.

    Args:
        num_workers: 1 runs in this process, more in as many worker processes.
        more: flags of Beam.

    Raises:
        UsageError: Beam doesn't know one of them.
    """
    from apache_beam.options.pipeline_options import PipelineOptions

    from logloom.runners.beam_flags import refuse_unknown

    refuse_unknown(more)
    return PipelineOptions(
        [f"--direct_num_workers={num_workers}", *more], save_main_session=False, pipeline_type_check=False
    )


def local_runner(num_workers: int, temporary: pathlib.Path) -> Any:
    """Beam's FnApiRunner, named in full: "DirectRunner" looks for a Prism to download first.

    Args:
        temporary: folder for the temporary files of worker processes.
    """
    from apache_beam.runners.portability.fn_api_runner import FnApiRunner

    from logloom.runners.local_workers import LocalEnvironment

    if num_workers == 1:
        return FnApiRunner()
    return FnApiRunner(default_environment=LocalEnvironment(temporary))


class Direct:
    """Runs pipelines here."""

    def __init__(self, options: RunnerOptions, size: Size):
        options.refuse(
            ["job_endpoint", "flink_master", "flink_job_server_jar", "environment"],
            "the direct runner works on this machine only; say --runner flink",
        )
        options.refuse(
            ["log_folder"], "the direct runner keeps no logs; leave it out, or say --runner prism or flink"
        )
        if options.engine_settings():
            raise UsageError(f"the direct runner has no setting {next(iter(options.engine_settings()))!r}")
        self._workers = num_workers(options, size)
        self._options = pipeline_options(self._workers, options.beam_flags())
        self._server: ForkServer | None = None

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            self._folders = stack.enter_context(engine_folders())
            if self._workers > 1:
                self._server = stack.enter_context(fork_server())
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        """Beam ends its workers itself."""
        self._stack.close()

    def submit(self, construct: Construct, name: str) -> _DirectJob:
        from logloom.runners.tidy import new_pipeline

        pipeline = new_pipeline(local_runner(self._workers, self._folders.temporary), self._options)
        construct(pipeline)
        return _DirectJob(pipeline, name, self._server)


class _DirectJob:
    def __init__(self, pipeline: Any, name: str, server: ForkServer | None):
        self._pipeline, self._name, self._server = pipeline, name, server

    def wait(self, on_message: OnMessage) -> Finished:
        from logloom.runners.local_workers import how_ended, on_loopback

        with _beams_threads_silent(), on_loopback(self._server) as workers:
            try:
                result = self._pipeline.run()
                result.wait_until_finish()
            except RuntimeError as error:
                lost = [worker.code for worker in workers if worker.code is not None]
                if not lost:
                    raise
                raise JobFailedError(
                    f"a worker process ended before its work did: it {how_ended(lost[0])}"
                ) from error
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


@contextlib.contextmanager
def _beams_threads_silent() -> Iterator[None]:
    """Prints no traceback of Beam's threads: they fail as workers end, which the job tells."""
    before = threading.excepthook

    def show(failed: threading.ExceptHookArgs) -> None:
        frames = traceback.walk_tb(failed.exc_traceback)
        if not any(frame.f_globals.get("__name__", "").startswith("apache_beam.") for frame, _ in frames):
            before(failed)

    threading.excepthook = show
    try:
        yield
    finally:
        threading.excepthook = before
