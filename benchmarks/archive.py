"""An archive that grows: what a version of many logs costs to open, and a night to plan and to build.

versions   opening, looking at and sampling a version, by the number of its logs
plan       planning a night of 1 % new logs, and its graph, by the number of logs that stay
pages      what a night of 1 % new logs writes of the manifest, by how log_ids begin
nights     building night after night, a few logs each; the first nights beside the last ones
new        new logs of one unit, planned and built: what a million of them would take
verbs      `versions`, `diff`, `plan --check` and `tag`, processes of their own: CPU time, and memory in all

Versions of `versions` and `plan` are synthetic: one log of a hundred units is built, and the others' records
say the same of logs of other names. Logloom itself writes all records. Logs that `verify --sample` looks at
have parts of their own, and their sampled units folders of their own; all other logs name the part of the log
that was built. In `plan` and `new` logs are links to one file. `nights` and `new` build what they plan.

    python -m benchmarks.archive [SECTION ...] [--logs 1000,10000,100000] [--rounds N] [--nights N] [--flink]
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import operator
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from blake3 import blake3

from benchmarks import workloads
from benchmarks.harness import cache_folder, print_table, spread, warn_if_busy
from logloom.digests import digest_of
from logloom.io.catalog.entries import ENTRY, Entry, find_entry, read_log_part, write_log_part
from logloom.io.catalog.manifest import Manifest, open_root, read_manifest
from logloom.io.catalog.manifest_digest import write_digest
from logloom.io.catalog.page_merge import merge_records, write_records
from logloom.io.catalog.pages import LogRecord
from logloom.io.catalog.version_files import version_file
from logloom.io.logs.files.sidecars import Sidecars
from logloom.io.logs.listings import SETTLED_NS
from logloom.io.logs.log_cache import Memory, RememberedLog
from logloom.io.logs.log_list import print_of
from logloom.io.logs.opening import open_log
from logloom.io.storage.metadata import canonical
from logloom.io.storage.store import Store
from logloom.pipelines.build.build import build
from logloom.pipelines.plan.plan import plan_build
from logloom.pipelines.verify.verify import sampled_logs
from logloom.recipe import Recipe
from logloom.recipe.logs import expand_logs
from logloom.transforms.build.job import Committed
from logloom.transforms.build.read_back import is_sampled
from logloom.transforms.rows.plan.topics import named_topics

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
NIGHTS = RECIPE.replace("name: archive", "name: nights") + "  zarr: {rows_per_chunk: 100}\n"
SIDE = pathlib.Path(__file__).parent / "scripts" / "archive_side.py"
# A process begins with the peak of the one that started it, so that one must be small.
RAN = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime + used.ru_stime, used.ru_maxrss)
"""
FIGURES = ("open", "first row", "head", "verify --sample", "splits")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help="all of them by default")
    parser.add_argument(
        "--logs", default="1000,10000,100000", help="how many; of a hundred units each but in `new`"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--nights", type=int, default=30)
    parser.add_argument("--flink", action="store_true", help="`new` on Flink, which wants Java and its jars")
    arguments = parser.parse_args()
    sections = {
        "versions": versions,
        "plan": plans,
        "pages": pages,
        "nights": nights,
        "new": new,
        "verbs": verbs,
    }
    for name in arguments.sections or sections:
        if name not in sections:
            parser.error(f"no section {name!r}; there are {', '.join(sections)}")
        with tempfile.TemporaryDirectory(dir=cache_folder()) as scratch:
            sections[name](arguments, pathlib.Path(scratch))
    warn_if_busy()


def counts_of(arguments: argparse.Namespace) -> list[int]:
    return [int(count) for count in arguments.logs.split(",")]


def versions(arguments: argparse.Namespace, scratch: pathlib.Path) -> None:
    """What a version costs to open."""
    counts = counts_of(arguments)
    found = {count: measured(archive(scratch, count), arguments.rounds) for count in counts}
    _shown_versions(counts, found)


def _shown_versions(counts: Sequence[int], found: Mapping[int, list[dict[str, tuple[float, int]]]]) -> None:
    rows = []
    for name in FIGURES:
        seconds = {count: [one[name][0] for one in runs] for count, runs in found.items()}
        peaks = {count: max(one[name][1] for one in runs) for count, runs in found.items()}
        shown = [f"{spread(seconds[count], 3)} s, {peaks[count] / 1e6:.0f} MB" for count in counts]
        middles = [statistics.median(seconds[count]) for count in counts]
        rows.append([name, *shown, exponent(counts, middles), exponent(counts, list(peaks.values()))])
    columns = ["", *(f"{count:,} logs" for count in counts), "exponent: seconds", "memory"]
    print_table(f"A version of logs of {UNITS} units of {ROWS} rows; memory that it adds", columns, rows)


def plans(arguments: argparse.Namespace, scratch: pathlib.Path) -> None:
    """What a night of 1 % new logs costs to plan."""
    counts = counts_of(arguments)
    found = {}
    for count in counts:
        recipe, root = listed_archive(scratch, count)
        link_logs(recipe.parent / f"logs-{count}", range(count, count + max(1, count // 100)))
        remembered = root / "index" / "listing"
        before = remembered.read_bytes()
        found[count] = []
        for _ in range(arguments.rounds):
            remembered.unlink()
            remembered.write_bytes(before)  # or the next round would know what this one opened
            found[count].append(night(recipe, root, "plan"))
    names = {
        "new logs": ("new", 1, "", 0),
        "opened": ("opened", 1, "", 0),
        "planning, wall": ("plan_seconds", 1, " s", 2),
        "planning, CPU": ("plan_cpu", 1, " s", 2),
        "planning adds": ("plan_bytes", 1e6, " MB", 0),
        "with the graph": ("driver_bytes", 1e6, " MB", 0),
        "graph": ("graph_bytes", 1e3, " kB", 0),
    }
    rows = []
    for name, (key, unit, word, digits) in names.items():
        values = {count: [one[key] / unit for one in runs] for count, runs in found.items()}
        shown = [f"{spread(values[count], digits)}{word}" for count in counts]
        rows.append([name, *shown, exponent(counts, [statistics.median(values[count]) for count in counts])])
    columns = ["", *(f"{count:,} logs stay" for count in counts), "exponent"]
    print_table(f"A night of 1 % new logs beside logs of {UNITS} units", columns, rows)


def pages(arguments: argparse.Namespace, scratch: pathlib.Path) -> None:
    """What a night's commit writes of records, merging alone."""
    like = LogRecord(
        "", ("/archive/logs/a.mcap",), "", "all", "", "whole", "", ROWS * UNITS, ROWS * UNITS, {}, 0
    )
    rows = []
    for count in counts_of(arguments):
        cars = max(1, count // 100)
        for first in ("date", "car"):
            names = [_named(first, night, car) for night in range(101) for car in range(cars)]
            store = Store.at(str(scratch / f"{first}-{count}"))
            made = [
                dataclasses.replace(
                    like, log_id=name, **{key: digest_of([name, key]) for key in ("key", "part")}
                )
                for name in names
            ]
            new = sorted(made[-cars:], key=operator.attrgetter("log_id"))
            before = write_records(store, sorted(made[:-cars], key=operator.attrgetter("log_id")))
            changes = write_records(store, new, "runs")
            began = time.process_time()
            after = merge_records(store, before, [changes])
            took = time.process_time() - began
            fresh = [page for page in after.pages if page not in before.pages]
            size = sum(page.size for page in fresh)
            rows.append(
                [
                    f"{len(before):,}, {first} first",
                    f"{len(new):,}",
                    f"{len(fresh)} of {len(after.pages)}",
                    f"{size / 1e6:.2f} MB",
                    f"{took:.2f} s",
                ]
            )
    columns = ["logs that stay", "new", "pages written", "bytes", "CPU"]
    print_table("What a night of one log a car writes of the manifest", columns, rows)


def _named(first: str, night: int, car: int) -> str:
    date, name = f"{2020 + night // 360}-{night // 30 % 12 + 1:02}-{night % 30 + 1:02}", f"car-{car:05}"
    return f"{date}/{name}" if first == "date" else f"{name}/{date}"


def nights(arguments: argparse.Namespace, scratch: pathlib.Path) -> None:
    """Builds of four new logs each."""
    more, each = arguments.nights, 4
    there = workloads.tiny_mcaps(cache_folder(), (more + 1) * each)
    names = sorted(there.glob("*.mcap"))
    logs, root = scratch / "logs", scratch / "root"
    logs.mkdir()
    recipe = scratch / "nights.yaml"
    recipe.write_text(NIGHTS.replace("LOG", json.dumps(str(logs / "*.mcap"))))
    found = []
    for number in range(more + 1):
        for path in names[number * each : (number + 1) * each]:
            (logs / path.name).symlink_to(path.resolve())
        found.append(night(recipe, root, "build"))
    found = found[1:]  # the first makes what all share
    rows = []
    for name, key in (
        ("planning, CPU s", "plan_cpu"),
        ("building, CPU s", "build_cpu"),
        ("wall s", "build_seconds"),
    ):
        values = [one[key] for one in found]
        fifth = max(1, len(values) // 5)
        ends = statistics.mean(values[:fifth]), statistics.mean(values[-fifth:])
        slope = np.polyfit(np.arange(len(values)), values, 1)[0]
        rows.append(
            [name, *(f"{end:.2f}" for end in ends), f"{ends[1] / ends[0]:.2f}", f"{slope * 1e3:+.1f} ms"]
        )
    columns = ["", "the first fifth of nights", "the last", "times", "a night more"]
    print_table(f"{more} nights of {each} logs of ten units in tar and zarr", columns, rows)


def new(arguments: argparse.Namespace, scratch: pathlib.Path) -> None:
    """New logs of one unit of ten rows."""
    counts, found = counts_of(arguments), []
    for count in counts:
        folder = scratch / f"logs-{count}"
        link_logs(folder, range(count), ROWS)
        recipe = scratch / f"new-{count}.yaml"
        recipe.write_text(RECIPE.replace("LOG", json.dumps(str(folder / "*.mcap"))))
        options = ["flink" if arguments.flink else "direct", "1"]
        found.append(night(recipe, scratch / f"root-{count}", "build", *options))
    rows = [
        [
            f"{count:,}",
            f"{one['opened']}",
            f"{one['plan_cpu']:.2f}",
            f"{one['plan_bytes'] / 1e6:.0f}",
            f"{one['build_seconds']:.0f}",
            f"{one['build_cpu'] / count * 1e3:.1f}",
            f"{one['driver_bytes'] / 1e6:.0f}",
        ]
        for count, one in zip(counts, found, strict=True)
    ]
    columns = [
        "logs",
        "opened by the driver",
        "plan CPU s",
        "plan adds MB",
        "build s",
        "CPU ms a log",
        "adds MB",
    ]
    print_table("New logs of one unit of ten rows", columns, rows)


def verbs(arguments: argparse.Namespace, scratch: pathlib.Path) -> None:
    """What people ask of versions; two of them, which differ in one log in a hundred."""
    rows = []
    for count in counts_of(arguments):
        recipe, root = listed_archive(scratch, count)
        commands = {"plan --check": ["plan", str(recipe), "--to", str(root), "--check"]}
        found = {name: [ran(command) for _ in range(arguments.rounds)] for name, command in commands.items()}
        changed_version(Store.at(str(root)))
        commands = {"versions": ["versions", str(root)], "diff": ["diff", str(root), "2", "3"]}
        commands["tag"] = ["tag", str(root), "gold"]
        found |= {name: [ran(command) for _ in range(arguments.rounds)] for name, command in commands.items()}
        for name, runs in found.items():
            seconds, peaks = zip(*runs, strict=True)
            rows.append([f"{count:,}", name, f"{spread(seconds, 2)} s", f"{max(peaks) / 1e6:.0f} MB"])
    print_table(f"Logs of {UNITS} units", ["logs", "", "CPU", "memory at most"], rows)


def changed_version(store: Store) -> None:
    """Commits a version of which every hundredth log says something else."""
    store, one = open_root(store)
    records = (
        record if number % 100 else dataclasses.replace(record, key="another", rows=record.rows - 1)
        for number, record in enumerate(one.logs)
    )
    logs = write_records(store, records)
    digest = blake3(store.read(version_file(one.version))).hexdigest()
    made = dataclasses.replace(
        one, version=one.version + 1, parent=one.version, parent_digest=digest, logs=logs, totals=logs.totals
    )
    store.create(version_file(made.version), made.to_bytes())
    write_digest(store, made.version, made.to_bytes())


def ran(arguments: Sequence[str]) -> tuple[float, int]:
    """The processor time in seconds, and the most memory in bytes, of a command."""
    command = [sys.executable, "-c", RAN, sys.executable, "-m", "logloom", *arguments]
    seconds, peak = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.split()
    return float(seconds), int(peak) << 10


def night(recipe: pathlib.Path, root: pathlib.Path, *options: str) -> dict[str, float]:
    """A plan or build in a process of its own."""
    script = SIDE.parent / "night_side.py"
    command = [sys.executable, str(script), str(recipe), str(root), *options]
    env = {**os.environ, "PYTHONPATH": str(SIDE.parent.parent.parent)}
    return dict(json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, env=env).stdout))


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


def link_logs(folder: pathlib.Path, numbers: Iterable[int], rows: int = UNITS * ROWS) -> None:
    """Logs of these numbers, links to one file whose listing is believed."""
    (log,) = workloads.tiny_mcaps(cache_folder(), 1, rows).glob("*.mcap")
    time.sleep(max(0.0, (SETTLED_NS + 10**9 - time.time_ns() + log.stat().st_ctime_ns) / 1e9))
    folder.mkdir(exist_ok=True)
    for number in numbers:
        (folder / f"{number:08d}.mcap").symlink_to(log.resolve())


def listed_archive(scratch: pathlib.Path, count: int) -> tuple[pathlib.Path, pathlib.Path]:
    """A recipe, and the root of a version of that many logs which a listing shows unchanged."""
    folder, root = scratch / f"logs-{count}", scratch / f"listed-{count}"
    link_logs(folder, range(1))
    path = scratch / f"listed-{count}.yaml"
    path.write_text(RECIPE.replace("LOG", json.dumps(str(folder / "*.mcap"))))
    recipe = Recipe.load(str(path))
    build(plan_build(recipe, str(root)), view="none")
    store = Store.at(str(root))
    one = read_manifest(store)
    (like,) = one.logs
    version = Committed.of(store, one)
    link_logs(folder, range(1, count))
    found = expand_logs(recipe)
    records = (
        dataclasses.replace(
            like,
            log_id=log.log_id,
            uris=log.uris,
            key=version.log_key(log.log_id, like.content_id, log.uris, like.split),
        )
        for log in found
    )
    logs = write_records(store, records)
    many = dataclasses.replace(one, version=2, parent=1, logs=logs, totals=logs.totals)
    store.create(version_file(2), many.to_bytes())
    write_digest(store, 2, many.to_bytes())
    topics, sidecars = named_topics(recipe), Sidecars(store.uri_of("index"), {})
    summary = open_log(found[0].uris).summary
    told = ((print_of(log), RememberedLog.of(found[0].uris, summary, topics)) for log in found)
    known = (
        (listed, dataclasses.replace(one, uris=log.uris))
        for (listed, one), log in zip(told, found, strict=True)
        if one
    )
    Memory.of(recipe.hash, topics, known).save(sidecars)
    return path, root


def archive(scratch: pathlib.Path, count: int) -> pathlib.Path:
    """The root of a version of that many logs."""
    log = workloads.tiny_mcaps(cache_folder(), 1, UNITS * ROWS) / "*.mcap"
    root = scratch / f"archive-{count}"
    recipe = Recipe.from_yaml(RECIPE.replace("LOG", json.dumps(str(log))), source="archive.yaml")
    build(plan_build(recipe, str(root)), view="none")
    store, one = open_root(Store.at(str(root)))
    version = Committed.of(store, one)
    (like,) = one.logs
    # Of entries a log's part leaves out the statistics.
    parts = (find_entry(store, unit.output, unit.identity) for unit in read_log_part(store, like.part))
    units = [entry for entry in parts if entry is not None]
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
