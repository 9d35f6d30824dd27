"""Beam's own local runner: in this process, or one worker process for each core.

Here: the options that make it so. It fails the job when a worker dies and does not retry; a second build
then finds the finished units.
"""

from __future__ import annotations

from typing import Any

IN_PROCESS_BYTES = 64 << 20  # below this, starting worker processes takes longer than the work


def pipeline_options(num_workers: int) -> Any:
    """Options for Beam's FnApiRunner.

    Args:
        num_workers: 1 runs in this process, more in as many worker processes.
    """
    from apache_beam.options.pipeline_options import PipelineOptions

    flags = ["--runner=apache_beam.runners.portability.fn_api_runner.FnApiRunner"]
    if num_workers > 1:
        flags += ["--direct_running_mode=multi_processing", f"--direct_num_workers={num_workers}"]
    else:
        flags += ["--direct_running_mode=in_memory", "--direct_num_workers=1"]
    return PipelineOptions(flags, save_main_session=False)


def default_workers(message_bytes: int, num_partitions: int, cores: int) -> int:
    """How many workers a build of this size is worth."""
    if message_bytes < IN_PROCESS_BYTES or num_partitions < 2:
        return 1
    return max(1, min(cores, num_partitions))
