"""What the phases of a build ask of an object store: calls of fsspec, where one in memory counts them.

    python count_requests.py LOG ROWS

ROWS: of a partition. Prints JSON: how many partitions, and phase to kind of call to count.
"""

from __future__ import annotations

import functools
import json
import pathlib
import sys
import threading
from collections import Counter
from typing import Any, ClassVar

import fsspec
from fsspec.implementations.memory import MemoryFileSystem

from logloom.pipelines.plan.plan import plan_build
from logloom.recipe import Recipe
from logloom.transforms.build import commit, partition, read_back
from logloom.transforms.build import job as jobs
from logloom.transforms.build.outcomes import merge_outcomes, write_outcomes

RECIPE = """\
name: requests
logs: ["memory://logs/log.mcap"]
clock: {rate: 10}
columns:
  image: {topic: /camera/image, as: image, shape: [480, 640, 3], resample: nearest}
  imu: {topic: /imu/data, field: [angular_velocity, linear_acceleration], resample: nearest}
partition: {rows: ROWS}
outputs:
  tar: {ext: {image: npy, imu: npy}}
"""
KINDS = ("cat_file", "cp_file", "exists", "info", "ls", "open", "pipe_file", "put_file", "rm_file")


class CountedFileSystem(MemoryFileSystem):
    """Counts what it is asked for, but not what it asks itself for."""

    counts: ClassVar[Counter[str]] = Counter()
    asking: ClassVar[threading.local] = threading.local()


def counted(kind: str) -> Any:
    plain = getattr(MemoryFileSystem, kind)

    @functools.wraps(plain)
    def ask(self: CountedFileSystem, *args: Any, **options: Any) -> Any:
        if getattr(self.asking, "already", False):
            return plain(self, *args, **options)
        self.asking.already = True
        self.counts[kind] += 1
        try:
            return plain(self, *args, **options)
        finally:
            self.asking.already = False

    return ask


def main(log: str, rows: str) -> None:
    for kind in KINDS:
        setattr(CountedFileSystem, kind, counted(kind))
    fsspec.register_implementation("memory", CountedFileSystem, clobber=True)
    fsspec.filesystem("memory").pipe_file("/logs/log.mcap", pathlib.Path(log).read_bytes())
    CountedFileSystem.counts.clear()
    phases = {}

    def end(phase: str) -> None:
        phases[phase] = dict(CountedFileSystem.counts)
        CountedFileSystem.counts.clear()
        jobs._open.cache_clear()  # each phase runs in a process of its own

    plan = plan_build(Recipe.from_yaml(RECIPE.replace("ROWS", rows), source="recipe"), "memory://root")
    end("plan, in the driver")
    job, (planned,) = plan.job, plan.logs
    pieces = partition.plan_partitions(job, planned.task)
    end("plan partitions, in a worker")
    results = [partition.build_partition(job, piece) for piece in pieces]
    end("build")
    results = [read_back.read_back(job, result) for result in results]
    end("read back")
    outcome = commit.finish_log(job, results)
    end("finish")
    commit.commit(job, merge_outcomes(job, [write_outcomes(job, [outcome])]), [])
    end("commit")
    print(json.dumps({"partitions": len(pieces), "phases": phases}))


if __name__ == "__main__":
    main(*sys.argv[1:])
