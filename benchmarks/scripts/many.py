"""A build of many logs, and the memory of the process that drives it and of its largest worker.

    python many.py RECIPE ROOT RUNNER WORKERS

Prints JSON; bytes and seconds. With one worker of the direct runner, driver and worker are the same process.
"""

from __future__ import annotations

import json
import pathlib
import resource
import sys
import time

from logloom.pipelines.build.build import build
from logloom.pipelines.plan.plan import plan_build
from logloom.recipe import Recipe
from logloom.runners import RunnerOptions


def main(recipe: str, root: str, runner: str, workers: str) -> None:
    loaded = Recipe.load(recipe)
    idle = resident("VmRSS")
    began = time.perf_counter(), time.process_time()
    plan = plan_build(loaded, root)
    planned = time.perf_counter(), time.process_time()
    plan_peak = resident("VmHWM")
    build(plan, runner=RunnerOptions(runner, workers=int(workers)), view="none")
    seconds = time.perf_counter() - planned[0]
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cpu = sum(usage.ru_utime + usage.ru_stime for usage in used) - planned[1]
    print(
        json.dumps(
            {
                "logs": plan.num_logs,
                "partitions": plan.num_partitions,
                "plan_seconds": planned[0] - began[0],
                "plan_cpu": planned[1] - began[1],
                "build_seconds": seconds,
                "build_cpu": cpu,
                "idle": idle,
                "plan_peak": plan_peak,
                "driver_peak": resident("VmHWM"),
                "worker_peak": used[1].ru_maxrss << 10,
            }
        )
    )


def resident(name: str) -> int:
    """VmRSS or VmHWM of this process, in bytes."""
    status = pathlib.Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition(f"{name}:")[2].split()[0]) << 10


if __name__ == "__main__":
    main(*sys.argv[1:])
