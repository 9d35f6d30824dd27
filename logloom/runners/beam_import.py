"""Import of a job's module, with Beam or while local workers start without it."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from typing import Any

from logloom.extras import beam_needed, without_collection
from logloom.runners.direct import num_workers
from logloom.runners.fork_server import started_early
from logloom.runners.options import RunnerOptions, Size


@contextlib.contextmanager
def started(job: str, runner: RunnerOptions, size: Size | None) -> Iterator[Any]:
    """The module that runs a job, imported with Beam where that is needed; workers here import beside it.

    Args:
        job: name of the module.
        size: of the job; None where there is nothing to do.
    """
    with contextlib.ExitStack() as stack:
        with without_collection():
            if runner.name != "direct":
                with beam_needed():
                    importlib.import_module("apache_beam")
            elif size is not None and num_workers(runner, size) > 1:
                stack.enter_context(started_early([job]))
            module = importlib.import_module(job)
        yield module
