"""Beam's own local runner: in this process, or one worker process for each core.

Here: the options that make it so, and logloom's own errors out of Beam's. It fails the job when a worker dies
and does not retry; a second build then finds the finished units.
"""

from __future__ import annotations

import re
from typing import Any

from logloom import errors

IN_PROCESS_BYTES = 64 << 20  # below this, starting worker processes takes longer than the work

_RAISED = re.compile(r"^logloom\.errors\.(\w+): ", re.MULTILINE)
_STEP = re.compile(r" \[while running '[^']*'\]\s*\Z")


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


def own_error(error: Exception) -> errors.LogloomError | None:
    """The error of logloom that made a pipeline fail, None for any other.

    Beam adds the step's name to a message, and from another process hands on the traceback's text only.
    """
    text = _STEP.sub("", str(error))
    if isinstance(error, errors.LogloomError):
        return type(error)(text)
    *_, last = [None, *_RAISED.finditer(text)]
    if last is None or last[1] not in errors.__all__:
        return None
    found: errors.LogloomError = getattr(errors, last[1])(text[last.end() :])
    return found


def was_interrupted(error: BaseException | None) -> bool:
    """Whether an error came of Ctrl-C, which Beam turns into an error of the step that ran."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None
