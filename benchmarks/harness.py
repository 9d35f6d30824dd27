"""Honest comparisons: contenders take turns (A B A B …), so that what slows the machine slows each of them.

A contender is a function that runs once and gives a `Sample`. `in_process` wraps a plain function, `child` a
command in a fresh process, whose peak memory is then known. Ratios are taken pair by pair within a round.
"""

from __future__ import annotations

import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Sample:
    """One run.

    Attributes:
        seconds: wall time.
        cpu: user and system seconds.
        peak_rss: bytes; the largest of a child and of the processes that it waited for (daemons are not
            seen), 0 in process.
    """

    seconds: float
    cpu: float
    peak_rss: int = 0


Contender = Callable[[], Sample]


def in_process(function: Callable[[], object]) -> Contender:
    """Times a function in this process."""

    def run() -> Sample:
        cpu, began = time.process_time(), time.perf_counter()
        function()
        return Sample(time.perf_counter() - began, time.process_time() - cpu)

    return run


def child(
    command: Sequence[str | os.PathLike[str]],
    *,
    prepare: Callable[[], object] | None = None,
    env: Mapping[str, str] | None = None,
) -> Contender:
    """Times a command in a process of its own, after `prepare`, which is not timed.

    Raises:
        RuntimeError: (when run) the command failed; holds what it said.
    """

    def run() -> Sample:
        if prepare is not None:
            prepare()
        os.sync()  # what the last sample left to be written is not this one's work
        return run_child(command, env=env)

    return run


def run_child(command: Sequence[str | os.PathLike[str]], *, env: Mapping[str, str] | None = None) -> Sample:
    """Runs a command once; see `child`."""
    with tempfile.TemporaryFile() as output:
        began = time.perf_counter()
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env={**os.environ, **(env or {})}
        )
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            output.seek(0)
            said = output.read().decode(errors="replace")[-4000:]
            line = " ".join(str(part) for part in command)
            raise RuntimeError(f"{line} exited with {process.returncode}:\n{said}")
    unit = 1 if sys.platform == "darwin" else 1024
    return Sample(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * unit)


def compare(
    contenders: Mapping[str, Contender], *, rounds: int = 5, warm_up: int = 1
) -> dict[str, list[Sample]]:
    """Lets contenders take turns; the order turns about from round to round, against drifts within one.

    Returns:
        name to its samples, one a round, without those of the warm-up rounds.
    """
    samples: dict[str, list[Sample]] = {name: [] for name in contenders}
    for number in range(warm_up + rounds):
        order = list(contenders) if number % 2 == 0 else list(contenders)[::-1]
        for name in order:
            sample = contenders[name]()
            if number >= warm_up:
                samples[name].append(sample)
    return samples


def ratios(
    base: Sequence[Sample], other: Sequence[Sample], base_aside: float = 0, other_aside: float = 0
) -> list[float]:
    """How many times longer `base` took than `other` in each round, after taking start-up (seconds) aside."""
    return [(a.seconds - base_aside) / (b.seconds - other_aside) for a, b in zip(base, other, strict=True)]


def spread(values: Sequence[float], digits: int = 2) -> str:
    """Median, with least and greatest: "1.20 (1.10–1.50)"."""
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle:.{digits}f} ({low:.{digits}f}–{high:.{digits}f})"


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> None:
    """Prints a table; the first `left` columns to the left, the others to the right."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left")
    for position, name in enumerate(columns):
        table.add_column(name, justify="left" if position < left else "right")
    for row in rows:
        table.add_row(*row)
    Console(width=None if sys.stdout.isatty() else 140, highlight=False).print(table)


def warn_if_busy() -> None:
    """Says so when others used the machine in the last minute: wall times then mean little."""
    load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    if load > cores + 0.5:
        print(f"The machine was busy with other things (load {load:.1f} on {cores} cores): measure again.")


def cache_folder() -> pathlib.Path:
    """Where workloads are kept between runs: LOGLOOM_BENCH_CACHE, or .cache/benchmarks in the repository."""
    default = pathlib.Path(__file__).parent.parent / ".cache" / "benchmarks"
    folder = pathlib.Path(os.environ.get("LOGLOOM_BENCH_CACHE", default))
    folder.mkdir(parents=True, exist_ok=True)
    return folder
