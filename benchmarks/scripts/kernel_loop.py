"""The plain loop: partitions built, read back, finished and committed by function calls, without an engine.

    python kernel_loop.py RECIPE ROOT

Prints, as JSON, how many logs and partitions there are, and the processor seconds of each phase.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from logloom.pipelines.build.build import raise_outcome
from logloom.pipelines.plan.plan import plan_build
from logloom.recipe import Recipe
from logloom.transforms.build import commit, partition, read_back
from logloom.transforms.build.outcomes import merge_outcomes, write_outcomes


def main(recipe: str, root: str) -> None:
    spent = dict.fromkeys(("plan", "build", "read_back", "finish", "commit"), 0.0)

    @contextmanager
    def phase(name: str) -> Iterator[None]:
        began = time.process_time()
        yield
        spent[name] += time.process_time() - began

    with phase("plan"):
        plan = plan_build(Recipe.load(recipe), root, sample=None)  # the loop takes the logs that were opened
    job = plan.job
    outcomes = []
    for log in plan.logs:
        results = []
        for piece in partition.plan_partitions(job, log.task):
            with phase("build"):
                built = partition.build_partition(job, piece)
            with phase("read_back"):
                results.append(read_back.read_back(job, built))
        with phase("finish"):
            outcomes.append(commit.finish_log(job, results))
    with phase("commit"):
        commit.commit(job, merge_outcomes(job, [write_outcomes(job, outcomes)]), [])
        raise_outcome(commit.read_outcome(job), job)
    print(json.dumps({"logs": len(plan.logs), "partitions": plan.num_partitions, **spent}))


if __name__ == "__main__":
    main(*sys.argv[1:])
