"""How a build grows: with workers, with an engine around it, with the number of logs; what that says of 1 PB.

workers    one worker and two, over images that are decoded, resized and encoded again
overhead   engines beside a plain loop that calls the same functions, over a log of 1 GB
many       memory and milliseconds of very many logs of a hundred partitions
requests   what a log, a partition and a GB ask of an object store (one in memory counts)
model      what a petabyte asks of a thousand workers, by the figures in `Costs`

Start-up (the same on a log of two rows) is set aside; `overhead` looks at the clock from the first finished
unit on, less what a log of two rows takes from there. Processor time stands beside the clock's, since it says
more on a busy machine.

    python -m benchmarks.scale [SECTION ...] [--model] [--flink] [--rounds N] [--images N] [--logs 100,1000]
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks import workloads
from benchmarks.build import RECIPE
from benchmarks.harness import (
    Contender,
    Sample,
    cache_folder,
    child,
    compare,
    print_table,
    ratios,
    spread,
    warn_if_busy,
)

SCRIPTS = pathlib.Path(__file__).parent / "scripts"
LOOP = "plain loop"
IMAGES_RECIPE = """\
name: scale
logs: [LOG]
log_id: log
clock: {rate: 12}
columns:
  image: {topic: /camera/compressed, as: image, resize: [360, 640], encode: jpg, resample: nearest}
partition: {rows: 30}
outputs:
  tar: {ext: {image: jpg}}
"""
MANY_RECIPE = """\
name: scale
logs: [LOG]
clock: {rate: 10}
columns:
  imu: {topic: /imu/data, field: [angular_velocity, linear_acceleration], resample: nearest}
partition: {rows: 1}
outputs:
  tar: {ext: {imu: npy}}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help="all of them by default")
    parser.add_argument("--model", action="store_true", help="the same as the section `model`")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--images", type=int, help="in the log of `workers` (600) or `overhead` (1100: 1 GB)")
    parser.add_argument("--logs", default="100,300,1000", help="how many, for `many`")
    parser.add_argument("--workers", type=int, default=1, help="for `many`")
    parser.add_argument(
        "--flink",
        action="store_true",
        help="Flink as well (for `many`, alone), which wants Java and its jars",
    )
    arguments = parser.parse_args()
    sections = arguments.sections + ["model"] * arguments.model or list(SECTIONS)
    for name in sections:
        if name not in SECTIONS:
            parser.error(f"no section {name!r}; there are {', '.join(SECTIONS)}")
    with tempfile.TemporaryDirectory(dir=cache_folder()) as scratch:
        for name in sections:
            SECTIONS[name](arguments, pathlib.Path(scratch))
    warn_if_busy()


def workers(arguments: argparse.Namespace, scratch: pathlib.Path) -> None:
    """One worker against two."""
    engines = ["direct", "flink"] if arguments.flink else ["direct"]
    log = workloads.jpeg_mcap(cache_folder(), arguments.images or 600)
    little = workloads.jpeg_mcap(cache_folder(), 31)  # two partitions, so that two workers start

    def contenders(log: pathlib.Path) -> dict[str, Contender]:
        recipe = recipe_file(scratch, IMAGES_RECIPE, log)
        return {
            f"{engine}, {count} workers": builder(scratch, recipe, engine, count)
            for engine in engines
            for count in (1, 2)
        }

    samples, startup = measured(contenders, log, little, arguments.rounds)
    rows = []
    for name, found in samples.items():
        alone = f"{name.partition(',')[0]}, 1 workers"
        times = ratios(samples[alone], found, startup[alone].seconds, startup[name].seconds)
        rows.append([name, *figures(found, startup[name]), spread(times)])
    title = f"{arguments.images or 600} images decoded, resized, encoded: start-up aside"
    print_table(title, ["job", *FIGURES, "times the speed of one"], rows)


def overhead(arguments: argparse.Namespace, scratch: pathlib.Path) -> None:
    """Engines against the plain loop."""
    log = workloads.image_mcap(cache_folder(), arguments.images or 1100)
    little = workloads.image_mcap(cache_folder(), 2)

    def contenders(log: pathlib.Path) -> dict[str, Contender]:
        recipe = recipe_file(scratch, RECIPE, log)
        found = {LOOP: looper(scratch, recipe), "direct, 1 worker": builder(scratch, recipe, "direct", 1)}
        found |= {"flink, 1 worker": builder(scratch, recipe, "flink", 1)} if arguments.flink else {}
        return {name: since_first_unit(one, scratch / "out" / "root") for name, one in found.items()}

    samples, startup = measured(contenders, log, little, arguments.rounds)
    rows = []
    for name, found in samples.items():
        slower = ratios(found, samples[LOOP], startup[name].seconds, startup[LOOP].seconds)
        cpu = [
            (a.cpu - startup[name].cpu) / (b.cpu - startup[LOOP].cpu) - 1
            for a, b in zip(found, samples[LOOP], strict=True)
        ]
        rows.append(
            [name, *figures(found, startup[name]), percent([ratio - 1 for ratio in slower]), percent(cpu)]
        )
    title = f"{log.stat().st_size / 1e6:.0f} MB of images and IMU: from the first unit to the commit"
    print_table(title, ["job", "of two rows s", *FIGURES[1:], "more time", "more CPU"], rows)


def many(arguments: argparse.Namespace, scratch: pathlib.Path) -> None:
    """Very many logs of a hundred partitions of one row.

    Flink is given little memory; its JVM may be the largest process beside the driver.
    """
    engine = "flink" if arguments.flink else "direct"
    env = {"JAVA_TOOL_OPTIONS": "-Xmx768m"} if arguments.flink else {}
    counts = [int(count) for count in arguments.logs.split(",")]
    found = []
    for count in counts:
        recipe = recipe_file(scratch, MANY_RECIPE, workloads.tiny_mcaps(cache_folder(), count) / "*.mcap")
        options = [engine, str(arguments.workers)]
        found.append(json.loads(output_of(scratch, "many.py", recipe, *options, env=env)))
        if count == counts[0]:
            loop = json.loads(output_of(scratch, "kernel_loop.py", recipe))
    rows = [
        [
            f"{one['logs']:,}",
            f"{one['partitions']:,}",
            f"{one['plan_cpu'] / one['logs'] * 1e3:.1f}",
            f"{(one['plan_peak'] - one['idle']) / 1e6:.0f}",
            f"{one['build_seconds']:.0f}",
            f"{one['build_cpu'] / one['partitions'] * 1e3:.2f}",
            f"{one['driver_peak'] / 1e6:.0f}",
            f"{one['worker_peak'] / 1e6:.0f}",
        ]
        for one in found
    ]
    columns = [
        *("logs", "partitions", "planning, CPU ms a log", "MB planning adds", "build s"),
        *("CPU ms a partition", "driver's peak MB", "largest child's MB"),
    ]
    print_table(f"Many logs, {engine}, {arguments.workers} workers", columns, rows)
    build, read_back, finish = (
        loop[phase] / loop["partitions"] * 1e3 for phase in ("build", "read_back", "finish")
    )
    print(
        f"In a plain loop a partition takes {build + read_back + finish:.2f} ms of CPU (build {build:.2f}, "
        f"read back {read_back:.2f}, its share of finishing the log {finish:.2f}); the commit takes "
        f"{loop['commit'] / loop['logs'] * 1e3:.2f} ms a log."
    )
    if len(found) > 1:
        first, last = found[0], found[-1]
        more = last["partitions"] - first["partitions"]
        driver, plan, worker = (
            (last[peak] - first[peak]) / more for peak in ("driver_peak", "plan_peak", "worker_peak")
        )
        print(
            f"From {first['logs']} to {last['logs']} logs, bytes a partition more: {driver:.0f} in the driver"
            f" ({plan:.0f} of them by planning), {worker:.0f} in the largest child."
        )


def requests(arguments: argparse.Namespace, scratch: pathlib.Path) -> None:
    """Requests to an object store, by the phases of a build."""
    log = workloads.image_mcap(cache_folder(), 150)
    for partition_rows in (100, 5):
        command = [sys.executable, str(SCRIPTS / "count_requests.py"), str(log), str(partition_rows)]
        found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        kinds = sorted({kind for phase in found["phases"].values() for kind in phase})
        rows = [
            [phase, *(str(counts.get(kind, 0)) for kind in kinds)]
            for phase, counts in found["phases"].items()
        ]
        title = f"Requests: one log of {log.stat().st_size / 1e6:.0f} MB, {found['partitions']} partitions"
        print_table(title, ["phase", *kinds], rows)


# --- the model ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Costs:
    """What was measured (see benchmarks/README.md); seconds are of one core, bytes plain.

    Attributes:
        gb_cpu: building and reading back a GB of messages.
        partition_cpu: what each partition costs beside its bytes, in kernels and in the engine.
        list_cpu: of a new log, in the driver: listing it (most of that), and making a task of it.
        plan_cpu, plan_requests: of a log that is opened first, by a worker, or in the driver where it is of
            the sample; requests follow each other.
        sample: how many logs the driver opens.
        commit_cpu: of a log.
        open_requests: of a log opened by a worker.
        partition_gets, partition_puts: requests of a partition of one output beside the messages themselves.
        read_bytes: of messages, by one request.
        planned_bytes: of a log, in the driver.
        outcome_bytes: of a new log, that workers and the commit write of it beside its own part.
        shuffled_bytes: of a partition that goes alone, through each of the engine's two shuffles.
    """

    gb_cpu: float = 3.5
    partition_cpu: float = 0.0065
    list_cpu: float = 0.00005
    plan_cpu: float = 0.005
    sample: int = 64
    plan_requests: int = 9
    commit_cpu: float = 0.00001
    open_requests: int = 9
    partition_gets: int = 6
    partition_puts: int = 2
    read_bytes: int = 16 << 20
    planned_bytes: int = 700
    outcome_bytes: int = 220
    shuffled_bytes: int = 950


@dataclass(frozen=True)
class Work:
    """What is to be built, and by what.

    Attributes:
        row_bytes: of a row as it is written.
        latency: seconds of a small request.
        worker_rate: bytes a second between a worker and the store.
        openers: threads of the driver that open logs.
    """

    message_bytes: float = 1e15
    rows: float = 1e7
    log_bytes: float = 10e9
    workers: int = 1000
    partition_bytes: float = 512 * 2**20
    partition_rows: float = 1000
    row_bytes: float = 1e6
    latency: float = 0.03
    worker_rate: float = 0.5e9
    openers: int = 64


def scaled(work: Work, costs: Costs) -> dict[str, float]:
    """What a job asks for, by name; the formulas stand in docs/scale.md."""
    logs = work.message_bytes / work.log_bytes
    partitions = max(work.message_bytes / work.partition_bytes, work.rows / work.partition_rows, logs)
    written = work.rows * work.row_bytes
    opened = logs + min(partitions, logs * work.workers) + logs  # to plan, to build, to finish
    sample = min(logs, costs.sample)
    gets = sample * costs.plan_requests + opened * costs.open_requests
    gets += partitions * costs.partition_gets + (work.message_bytes + written) / costs.read_bytes
    cpu = work.message_bytes / 1e9 * costs.gb_cpu + partitions * costs.partition_cpu + logs * costs.plan_cpu
    building = max(cpu, (work.message_bytes + 2 * written) / work.worker_rate) / work.workers
    return {
        "logs": logs,
        "partitions": partitions,
        "planning s": logs * costs.list_cpu
        + sample * max(costs.plan_cpu, costs.plan_requests * work.latency / work.openers),
        "building s": building,
        "commit s": logs * costs.commit_cpu,
        "GETs": gets,
        "PUTs": partitions * costs.partition_puts + 2 * logs,
        "GETs a second": gets / building,
        "PUTs a second": partitions * costs.partition_puts / building,
        "bytes read a second": (work.message_bytes + written) / building,
        "driver bytes": logs * costs.planned_bytes,
        "commit bytes": logs * costs.outcome_bytes,
        "shuffled bytes": 2 * partitions * costs.shuffled_bytes,
    }


WORKS = {
    "1 TB, 1 M rows, 10 workers": Work(1e12, 1e6, workers=10),
    "100 TB, 10 M rows, 100": Work(1e14, 1e7, workers=100),
    "1 PB, 10 M rows, 1 000": Work(),
    "the same, logs of 1 GB": Work(log_bytes=1e9),
    "the same, 2 000 workers": Work(workers=2000),
}


def model(arguments: argparse.Namespace, scratch: pathlib.Path) -> None:
    """What larger jobs ask for."""
    found = {name: scaled(work, Costs()) for name, work in WORKS.items()}
    names = list(next(iter(found.values())))
    rows = [[name, *(short(one[name]) for one in found.values())] for name in names]
    print_table("By the model of docs/scale.md", ["", *found], rows)


def short(value: float) -> str:
    """Two or three digits and a thousand's letter: 1.9 M."""
    for limit, letter in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:.3g} {letter}"
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


SECTIONS: Mapping[str, Callable[[argparse.Namespace, pathlib.Path], None]] = {
    "workers": workers,
    "overhead": overhead,
    "many": many,
    "requests": requests,
    "model": model,
}


# --- measuring ------------------------------------------------------------------------------------------

FIGURES = ("start-up s", "work s", "CPU s", "peak MB")


def recipe_file(scratch: pathlib.Path, text: str, log: pathlib.Path) -> pathlib.Path:
    """A recipe over a log (or a glob)."""
    path = scratch / f"{log.stem.replace('*', 'all')}-{log.parent.name}.yaml"
    path.write_text(text.replace("LOG", json.dumps(str(log.resolve()))), encoding="utf-8")
    return path


def builder(scratch: pathlib.Path, recipe: pathlib.Path, engine: str, count: int) -> Contender:
    """`logloom build` into a fresh root."""
    options = [
        "--to",
        emptied(scratch) / "root",
        "--runner",
        engine,
        "--workers",
        str(count),
        "--view",
        "none",
    ]
    command = [sys.executable, "-m", "logloom", "build", recipe, *options, "--quiet"]
    return child(command, prepare=lambda: emptied(scratch))


def looper(scratch: pathlib.Path, recipe: pathlib.Path) -> Contender:
    """The plain loop into a fresh root."""
    command = [sys.executable, str(SCRIPTS / "kernel_loop.py"), str(recipe), str(emptied(scratch) / "root")]
    return child(command, prepare=lambda: emptied(scratch))


def since_first_unit(run: Contender, root: pathlib.Path) -> Contender:
    """Times a build from its first finished unit on: engines take longer to start than this work takes, and
    how much longer swings by more than what is to be measured."""

    def timed() -> Sample:
        sample = run()
        first = min(path.stat().st_mtime for path in root.glob("parts/*/*/*/entry.json"))
        (version,) = root.glob("versions/*.json")
        return dataclasses.replace(sample, seconds=version.stat().st_mtime - first)

    return timed


def output_of(
    scratch: pathlib.Path,
    script: str,
    recipe: pathlib.Path,
    *options: str,
    env: Mapping[str, str] | None = None,
) -> str:
    """What a script prints on a fresh root."""
    root = str(emptied(scratch) / "root")
    command = [sys.executable, str(SCRIPTS / script), str(recipe), root, *options]
    return subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, env={**os.environ, **(env or {})}
    ).stdout


def emptied(scratch: pathlib.Path) -> pathlib.Path:
    """The folder that roots are made in, without one."""
    out = scratch / "out"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    return out


def measured(
    contenders: Callable[[pathlib.Path], Mapping[str, Contender]],
    log: pathlib.Path,
    little: pathlib.Path,
    rounds: int,
) -> tuple[dict[str, list[Sample]], dict[str, Sample]]:
    """Samples of a log, and each contender's start-up: the least that it took on a little one."""
    startups = compare(contenders(little), rounds=3)
    least = {
        name: Sample(min(one.seconds for one in found), min(one.cpu for one in found))
        for name, found in startups.items()
    }
    return compare(contenders(log), rounds=rounds), least


def figures(found: Sequence[Sample], startup: Sample) -> list[str]:
    """What `FIGURES` names; CPU without start-up, too."""
    return [
        f"{startup.seconds:.1f}",
        spread([sample.seconds - startup.seconds for sample in found], 1),
        spread([sample.cpu - startup.cpu for sample in found], 1),
        f"{max(sample.peak_rss for sample in found) / 1e6:.0f}",
    ]


def percent(shares: Sequence[float]) -> str:
    """Median, with least and greatest, of shares of one."""
    low, middle, high = min(shares), statistics.median(shares), max(shares)
    return f"{middle:+.0%} ({low:+.0%} to {high:+.0%})"


if __name__ == "__main__":
    main()
