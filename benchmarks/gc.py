"""Garbage collection: what it costs a file, beside listing the folders.

The root is synthetic: logs of a hundred units of two files each, in one version, and as many more units as
`--garbage` says that no version names. Logloom itself writes the manifest and the logs' parts.

    python -m benchmarks.gc [--logs 500] [--garbage 0.1]
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import pathlib
import resource
import tempfile
import time
from collections.abc import Callable, Iterator

from blake3 import blake3

from benchmarks.harness import cache_folder, print_table, warn_if_busy
from logloom.io.catalog.entries import ENTRY, FAN_OUT, Entry, FileEntry, unit_names, write_log_part
from logloom.io.catalog.manifest import Manifest
from logloom.io.catalog.page_merge import write_records
from logloom.io.catalog.pages import LogRecord
from logloom.io.catalog.version_files import version_file
from logloom.io.storage.metadata import canonical
from logloom.io.storage.store import Store
from logloom.io.storage.stored_files import UNITS
from logloom.pipelines.gc.gc import collect_garbage
from logloom.schema import Schema

UNITS_OF_LOG, FILES = 100, 2
OLD = 30 * 86400


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--logs", type=int, default=500)
    parser.add_argument("--garbage", type=float, default=0.1, help="a share of as many units as are named")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=cache_folder()) as scratch:
        store = archive(pathlib.Path(scratch) / "root", arguments.logs, arguments.garbage)
        files = int(arguments.logs * UNITS_OF_LOG * FILES * (1 + arguments.garbage))
        small = archive(pathlib.Path(scratch) / "small", 1, 0)
        collect_garbage(small.uri, dry_run=True)  # which imports what it needs
        listing = seconds(lambda: sum(1 for _ in unit_names(store, "tar")))
        told = seconds(lambda: collect_garbage(store.uri, dry_run=True))
        removed = seconds(lambda: collect_garbage(store.uri))
        rows = [
            [name, f"{wall:.2f} s", f"{cpu:.2f} s", f"{(cpu - listing[1]) / files * 1e6:.1f} us"]
            for name, (wall, cpu) in (("listing folders", listing), ("gc --dry-run", told), ("gc", removed))
        ]
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        title = f"{files:,} files, {arguments.garbage:.0%} of them garbage; {peak:.0f} MB at most"
        print_table(title, ["", "wall", "CPU", "CPU a file, beside listing"], rows)
    warn_if_busy()


def seconds(work: Callable[[], object]) -> tuple[float, float]:
    """Of the wall clock, and of processors."""
    began = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - began[0], time.process_time() - began[1]


def archive(root: pathlib.Path, logs: int, garbage: float) -> Store:
    """A root of one version, and of units that it doesn't name, all old."""
    store = Store(str(root), fan_out=FAN_OUT)
    log_ids = [f"{number:08d}" for number in range(logs)]
    parts = {log_id: write_log_part(store, list(written(store, log_id))) for log_id in log_ids}
    for number in range(int(logs * garbage)):
        list(written(store, f"garbage {number}"))
    like = LogRecord("", ("",), "", "all", "", "whole", "", UNITS_OF_LOG, UNITS_OF_LOG, {}, 0)
    records = (dataclasses.replace(like, log_id=log_id, part=part) for log_id, part in parts.items())
    made = write_records(store, records)
    manifest = Manifest(
        1,
        None,
        "gc",
        {"columns": {}},
        Schema({}).to_json(),
        "",
        {"tar": {}},
        made,
        (),
        made.totals,
        "new",
        {},
        "",
        {},
        "",
        {},
    )
    store.create(version_file(1), manifest.to_bytes())
    return store


def written(store: Store, log_id: str) -> Iterator[Entry]:
    """The units of a log, written without waiting for the disk."""
    then = time.time() - OLD
    file = FileEntry("rows.bin", 1, blake3(b"x").hexdigest())
    for number in range(UNITS_OF_LOG):
        identity = blake3(f"{log_id}/{number}".encode()).hexdigest()[:32]
        unit = Entry(
            "tar", identity, log_id, "", str(number), number, number + 1, 1, (file,), {}, {}, {}, {}, ""
        )
        folder = store.path_of(f"{UNITS}/tar/{identity}")
        folder.mkdir(parents=True)
        for name, data in ((file.name, b"x"), (ENTRY, canonical(unit.to_json()))):
            (folder / name).write_bytes(data)
            os.utime(folder / name, (then, then))
        yield unit


if __name__ == "__main__":
    main()
