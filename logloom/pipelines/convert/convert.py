"""Conversion: a build whose rows come from a version or a foreign dataset.

Elsewhere: planning (logloom.pipelines.convert.plan), the job's steps (logloom.pipelines.build.build), plain
folders (logloom.pipelines.convert.plain_folder).
"""

from __future__ import annotations

from collections.abc import Callable

from logloom.pipelines.build.build import build
from logloom.pipelines.build.progress import Watch
from logloom.pipelines.build.result import Built
from logloom.pipelines.convert.plan import ConvertPlan
from logloom.runners.options import RunnerOptions
from logloom.text import OnMessage, ignore_message


def convert(
    plan: ConvertPlan,
    *,
    runner: RunnerOptions | None = None,
    watch: Callable[..., Watch] = Watch.silent,
    on_message: OnMessage = ignore_message,
) -> Built:
    """Runs a planned conversion to its end, as `build` does, with a view of however many units.

    Args:
        plan: as `plan_convert` gives it.
        runner: the engine; None is this machine, with one worker process.
        watch: makes what shows the progress of a plan.
        on_message: called with what the engine does, in words.

    Returns:
        The version's manifest, its view, and what was written and counted.

    Raises:
        LogloomError: as of `build`.
    """
    return build(plan, runner=runner, view="link", watch=watch, on_message=on_message)
