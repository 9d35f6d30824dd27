"""One night's plan, and its build where that is asked for, in a process of its own.

    python night_side.py RECIPE ROOT plan|build [RUNNER WORKERS]

Prints JSON: seconds and processor seconds of planning, bytes that it adds to the process, bytes of the graph,
how many logs were opened, kept and are to be read; of a build the same figures. Imports are done before.
"""

from __future__ import annotations

import importlib
import json
import resource
import sys
import time

import apache_beam as beam

from benchmarks.scripts.many import resident
from logloom.io.formats.registry import format_named
from logloom.pipelines.build.build import build, construct, prepared
from logloom.pipelines.plan.plan import plan_build
from logloom.recipe import Recipe
from logloom.runners import RunnerOptions


def main(recipe: str, root: str, what: str, runner: str = "direct", workers: str = "1") -> None:
    for name in ("pandas", "pyarrow.acero", "pyarrow.compute", "pyarrow.parquet"):
        importlib.import_module(name)
    loaded = Recipe.load(recipe)
    for output in loaded.outputs:
        format_named(output)
    idle = resident("VmRSS")
    began = time.perf_counter(), processor()
    plan = plan_build(loaded, root)
    found = {
        "plan_seconds": time.perf_counter() - began[0],
        "plan_cpu": processor() - began[1],
        "plan_bytes": resident("VmHWM") - idle,
        "opened": len(plan.opened),
        "new": plan.num_logs,
        "kept": plan.kept.logs,
    }
    if what == "plan":
        found |= {"graph_bytes": graph_bytes(plan), "driver_bytes": resident("VmHWM") - idle}
    else:
        began = time.perf_counter(), processor()
        done = build(plan, runner=RunnerOptions(runner, workers=int(workers)), view="none")
        found |= {
            "build_seconds": time.perf_counter() - began[0],
            "build_cpu": processor() - began[1],
            "driver_bytes": resident("VmHWM") - idle,
            "units": done.built,
        }
    print(json.dumps(found))


def graph_bytes(plan: object) -> int:
    """Of the graph that an engine would be given."""
    pipeline = beam.Pipeline()
    construct(pipeline, prepared(plan))  # type: ignore[arg-type]
    return len(pipeline.to_runner_api().SerializeToString())


def processor() -> float:
    """Seconds of this process and of the children that it waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


if __name__ == "__main__":
    main(*sys.argv[1:])
