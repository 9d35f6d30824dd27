"""One command on a version, in a process of its own: how long it takes and how much memory it adds.

    python archive_side.py open|head|verify|splits ROOT [SAMPLE]

Prints JSON: seconds, bytes that the process grew by, and for `open` the same of its first row. Imports are
done before.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import logloom.datasets
from benchmarks.scripts.many import resident
from logloom.io.catalog.manifest import read_manifest
from logloom.io.catalog.version_files import version_numbers
from logloom.io.formats.registry import format_named
from logloom.io.storage.store import Store
from logloom.pipelines.head.head import head
from logloom.pipelines.stats.splits import built_splits
from logloom.pipelines.verify.verify import verify


def main(what: str, root: str, sample: str = "all") -> None:
    for name in ("pandas", "pyarrow.acero", "pyarrow.compute", "pyarrow.parquet"):
        importlib.import_module(name)
    format_named("tar")
    works: dict[str, Callable[[], Any]] = {
        "open": lambda: logloom.datasets.open(root),
        "head": lambda: head(root),
        "verify": lambda: _proven(root, sample),
        "splits": lambda: [built_splits(read_manifest(Store.at(root), n)) for n in _newest(root)],
    }
    idle = resident("VmRSS")
    began = time.perf_counter()
    made = works[what]()
    found = {"seconds": time.perf_counter() - began, "bytes": resident("VmHWM") - idle}
    if what == "open":
        began = time.perf_counter()
        made[0]
        found |= {"row": time.perf_counter() - began, "row_bytes": resident("VmHWM") - idle}
    print(json.dumps(found))


def _newest(root: str) -> list[int]:
    return version_numbers(Store.at(root))[-1:]


def _proven(root: str, sample: str) -> None:
    report = verify(root, sample=sample, num_workers=1)
    assert report.is_proven, report
    assert report.units


if __name__ == "__main__":
    main(*sys.argv[1:])
