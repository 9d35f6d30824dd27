"""One of many processes that work on a root at once: builds, collects garbage or reads, again and again.

    python -m tests.pipelines.faults.crowd build RECIPE ROOT DONE
    python -m tests.pipelines.faults.crowd collect|read ROOT DONE

Prints what it did, as JSON. Whoever collects or reads goes on until there is a file DONE.
"""

from __future__ import annotations

import json
import pathlib
import sys
import time
from typing import Any

import logloom.datasets
from logloom.errors import CommitConflictError, LogloomError, ReadBackError
from logloom.io.catalog.version_files import version_numbers
from logloom.io.storage.store import Store
from logloom.pipelines.build.build import build
from logloom.pipelines.gc.gc import collect_garbage
from logloom.pipelines.plan.plan import plan_build
from logloom.recipe import Recipe

_ATTEMPTS = 30
PAUSE = 0.1  # seconds between rounds, so that who builds gets on, too


def build_it(recipe: str, root: str, done: str) -> dict[str, Any]:
    """Builds until its version is there; whoever was first, or gc, may send it back."""
    refused: list[str] = []
    while len(refused) < _ATTEMPTS:
        try:
            plan = plan_build(Recipe.load(recipe), root)
            if plan.up_to_date:
                return {"version": plan.job.parent, "refused": refused}
            built = build(plan, num_workers=1, view="none", beside=True)
            return {"version": built.manifest.version, "refused": refused}
        except CommitConflictError as error:
            refused.append(str(error))
        except ReadBackError as error:
            if "`logloom gc`" not in str(error) and "build again" not in str(error):
                raise
            refused.append(str(error))
    raise AssertionError(f"never committed: {refused}")


def collect(root: str, done: str) -> dict[str, Any]:
    removed = rounds = 0
    while not pathlib.Path(done).exists():
        removed += sum(amount.items for amount in collect_garbage(root).amounts.values())
        rounds += 1
        time.sleep(PAUSE)
    return {"rounds": rounds, "removed": removed}


def read(root: str, done: str) -> dict[str, Any]:
    """Reads the newest version, and each that it opened before, all rows with their checksums."""
    opened: dict[int, Any] = {}
    rounds = rows = 0
    while not pathlib.Path(done).exists():
        for number in version_numbers(Store.at(root))[-1:]:
            if number not in opened:
                opened[number] = logloom.datasets.open(root, version=number, output="tar", check=True)
        for dataset in opened.values():
            rows += sum(1 for _ in dataset)
        rounds += 1
        time.sleep(PAUSE)
    return {"rounds": rounds, "rows": rows, "versions": sorted(opened)}


def main(what: str, *arguments: str) -> None:
    work = {"build": build_it, "collect": collect, "read": read}[what]
    try:
        print(json.dumps(work(*arguments)))
    except (LogloomError, AssertionError) as error:
        print(json.dumps({"error": type(error).__name__, "message": str(error)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
