"""An archive that grows: what opening, looking at and sampling a version costs, by the number of its logs.

The version is synthetic: one log of a hundred units is built, and the others' records say the same of logs
of other names. Logloom itself writes all records. Logs that `verify --sample` looks at have parts of their
own, and their sampled units folders of their own; all other logs name the part of the log that was built.

    python -m benchmarks.archive [--logs 1000,10000,100000] [--rounds N]
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence

import numpy as np
from blake3 import blake3

from benchmarks import workloads
from benchmarks.harness import cache_folder, print_table, spread, warn_if_busy
from logloom.io.entries import ENTRY, Entry, read_log_part, write_log_part
from logloom.io.manifest import Manifest, open_root, read_manifest, version_file
from logloom.io.manifest_digest import write_digest
from logloom.io.merging import write_records
from logloom.io.metadata import canonical
from logloom.io.shards import LogRecord
from logloom.io.storage import Store
from logloom.pipelines.build import build
from logloom.pipelines.plan import plan_build
from logloom.pipelines.verify import sampled_logs
from logloom.recipe import Recipe
from logloom.transforms.job import Committed
from logloom.transforms.partition import is_sampled

UNITS, ROWS = 100, 10  # of a log, of a unit
SAMPLED = 100  # units that verify reads back
RECIPE = f"""\
name: archive
logs: [LOG]
clock: {{rate: 10}}
columns:
  imu: {{topic: /imu/data, field: [angular_velocity, linear_acceleration], resample: nearest}}
partition: {{rows: {ROWS}}}
outputs:
  tar: {{ext: {{imu: npy}}}}
"""
SIDE = pathlib.Path(__file__).parent / "scripts" / "archive_side.py"
FIGURES = ("open", "first row", "head", "verify --sample", "splits")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--logs", default="1000,10000,100000", help="how many, of a hundred units each")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    counts = [int(count) for count in arguments.logs.split(",")]
    with tempfile.TemporaryDirectory(dir=cache_folder()) as scratch:
        found = {count: measured(archive(pathlib.Path(scratch), count), arguments.rounds) for count in counts}
    rows = []
    for name in FIGURES:
        seconds = {count: [one[name][0] for one in runs] for count, runs in found.items()}
        peaks = {count: max(one[name][1] for one in runs) for count, runs in found.items()}
        shown = [f"{spread(seconds[count], 3)} s, {peaks[count] / 1e6:.0f} MB" for count in counts]
        middles = [statistics.median(seconds[count]) for count in counts]
        rows.append([name, *shown, exponent(counts, middles), exponent(counts, list(peaks.values()))])
    columns = ["", *(f"{count:,} logs" for count in counts), "exponent: seconds", "memory"]
    print_table(f"A version of logs of {UNITS} units of {ROWS} rows; memory that it adds", columns, rows)
    warn_if_busy()


def exponent(counts: Sequence[int], values: Sequence[float]) -> str:
    """Of the power of the number of logs that values grow by."""
    if len(counts) < 2:
        return ""
    return f"{np.polyfit(np.log(counts), np.log(values), 1)[0]:.2f}"


def measured(root: pathlib.Path, rounds: int) -> list[dict[str, tuple[float, int]]]:
    """Seconds and bytes of each figure, a round each."""
    sample = f"sample:{SAMPLED / (len(read_manifest(Store.at(str(root))).logs) * UNITS):.12f}"
    return [one_round(root, sample) for _ in range(rounds)]


def one_round(root: pathlib.Path, sample: str) -> dict[str, tuple[float, int]]:
    opened = side("open", root)
    found = {"open": (opened["seconds"], opened["bytes"]), "first row": (opened["row"], opened["row_bytes"])}
    for name, what in (("head", "head"), ("verify --sample", "verify"), ("splits", "splits")):
        run = side(what, root, *([sample] if what == "verify" else []))
        found[name] = (run["seconds"], run["bytes"])
    return found


def side(what: str, root: pathlib.Path, *options: str) -> dict[str, float]:
    command = [sys.executable, str(SIDE), what, str(root), *options]
    env = {**os.environ, "PYTHONPATH": str(SIDE.parent.parent.parent)}
    return dict(json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, env=env).stdout))


# --- the synthetic archive ------------------------------------------------------------------------------


def archive(scratch: pathlib.Path, count: int) -> pathlib.Path:
    """The root of a version of that many logs."""
    log = workloads.tiny_mcaps(cache_folder(), 1, UNITS * ROWS) / "*.mcap"
    root = scratch / f"archive-{count}"
    recipe = Recipe.from_yaml(RECIPE.replace("LOG", json.dumps(str(log))), source="archive.yaml")
    build(plan_build(recipe, str(root)), view="none")
    store, one = open_root(Store.at(str(root)))
    version = Committed.of(store, one)
    (like,) = one.logs
    units = list(read_log_part(store, like.part))
    names = [f"{number:08d}" for number in range(count)]
    records = [
        dataclasses.replace(
            like, log_id=name, key=version.log_key(name, like.content_id, like.uris, like.split)
        )
        for name in names
    ]
    for number, share in sampled(one, count).items():
        records[number] = own_part(store, records[number], units, share)
    logs = write_records(store, records)
    many = dataclasses.replace(one, version=2, parent=1, logs=logs, totals=logs.totals)
    store.create(version_file(2), many.to_bytes())
    write_digest(store, 2, many.to_bytes())
    return root


def sampled(one: Manifest, count: int) -> dict[int, str]:
    """The logs that `verify` will look at, and which share of their units; and the first log."""
    chosen, share = sampled_logs(2, count, f"sample:{SAMPLED / (count * UNITS):.12f}")
    return dict.fromkeys([0, *chosen], share)


def own_part(store: Store, record: LogRecord, units: Sequence[Entry], share: str) -> LogRecord:
    """The record with a part of its own; the units that are read back lie there."""
    own = []
    for number, like in enumerate(units):
        identity = blake3(f"{record.log_id}/{number}".encode()).hexdigest()[:32]
        entry = dataclasses.replace(like, log_id=record.log_id, identity=identity)
        own.append(entry)
        if is_sampled(share, identity) or number == 0:
            folder = store.path_of(entry.folder)
            folder.mkdir(parents=True)
            for file in like.files:
                os.link(store.path_of(like.path_of(file)), folder / file.name)
            (folder / ENTRY).write_bytes(canonical(entry.to_json()))
    return dataclasses.replace(record, part=write_log_part(store, own))


if __name__ == "__main__":
    main()
