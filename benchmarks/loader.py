"""The Loader beside other loaders: two workers, batches of 32, globally shuffled, over bags and over a table.

    python -m benchmarks.loader [--rows 3000] [--rounds 5] [--folder /tmp]

Rows are 94 kB in eight columns, decoded to numpy. Each figure is the median of interleaved rounds, in the
same run, after the tenth batch; ratios are taken round by round. Also the time to the first batch, and the
memory that a long dataset costs with more and more workers (PSS), and what it costs to mix two datasets.
`make interop` installs granular, `make bench` array_record with grain and litdata (which shuffles within the
chunks it has open only).
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import mmap
import multiprocessing
import os
import pathlib
import tempfile
from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.harness import Contender, compare, in_process, ratios, spread
from benchmarks.report import Report
from benchmarks.scripts.bags_side import BATCH, SPEC, points
from benchmarks.scripts.sides import LOADERS, Side, open_sides
from logloom.datasets.loader.loader import Loader

PLAIN = "plain reads"
ONE, MIXED = "logloom, a dataset", "logloom, two datasets mixed"
TASKS = {
    "loader": ("rows", "rows"),
    "loader_function": ("rows, a function", "rows"),
    "first_batch": ("first batch", "batches"),
}
GRANULAR = "granular 0.17"  # later ones have no loader over a dataset
PEERS = {"array_record, grain": "array_record", "litdata": "litdata"}


def plain_reads(folder: pathlib.Path, rows: int, workers: int = 2) -> Contender:
    """The limit: forked workers that read rows of one file into shared memory, no decoding, no order."""
    path, size = folder / "plain", sum(np.asarray(v).nbytes for v in next(points(1)).values())
    path.write_bytes(bytes(size * rows))
    context = multiprocessing.get_context("fork")

    def work(number: int) -> None:
        descriptor = os.open(path, os.O_RDONLY)
        batch = memoryview(shared)[number * BATCH * size : (number + 1) * BATCH * size]
        order = np.random.default_rng(number).permutation(rows)[: rows // workers].tolist()
        for k, row in enumerate(order):
            at = k % BATCH * size
            os.preadv(descriptor, [batch[at : at + size]], row * size)

    shared = mmap.mmap(-1, workers * BATCH * size)

    def run() -> None:
        processes = [context.Process(target=work, args=(number,)) for number in range(workers)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()

    return in_process(run)


def table_loader(folder: pathlib.Path, rows: int, stack: contextlib.ExitStack) -> Contender:
    """The same rows from a table."""
    import logloom.io.formats.table as tt

    values = [
        {"log_id": "drive", "timestamp": point["stamp"], **{k: v for k, v in point.items() if k != "stamp"}}
        for point in points(rows)
    ]
    uri = str(folder / "table")
    tt.write_table(uri, values)
    source = tt.row_loader(tt.read_index(uri))
    loader = stack.enter_context(Loader(source, BATCH, workers=2))
    for _ in range(10):
        next(loader)

    def run() -> None:
        for batch in itertools.islice(loader, rows // BATCH):
            batch["front"]

    return in_process(run)


def mixed_loaders(folder: pathlib.Path, rows: int, stack: contextlib.ExitStack) -> dict[str, Contender]:
    """The same rows as one dataset, and as two datasets that are mixed, half of the rows from each."""
    import logloom.datasets
    import logloom.io.formats.table as tt

    parts = {"one": slice(None), "even": slice(0, None, 2), "odd": slice(1, None, 2)}
    every = [
        {"log_id": "drive", "timestamp": point["stamp"], **{k: v for k, v in point.items() if k != "stamp"}}
        for point in points(rows)
    ]
    for name, chosen in parts.items():
        tt.write_table(str(folder / f"table-{name}"), every[chosen])
    opened = {name: logloom.datasets.open(str(folder / f"table-{name}")) for name in parts}
    mixture = logloom.datasets.mix({name: (opened[name], 1) for name in ("even", "odd")})

    def contender(source: Any) -> Contender:
        loader = stack.enter_context(Loader(source, BATCH, workers=2))
        for _ in range(10):
            next(loader)

        def run() -> None:
            for batch in itertools.islice(loader, rows // BATCH):
                batch["front"]

        return in_process(run)

    return {ONE: contender(opened["one"]), MIXED: contender(mixture)}


def memory_of(folder: pathlib.Path, rows: int, workers: int) -> int:
    """Bytes that this process and its workers hold together (PSS), batches aside, for rows of one byte."""
    import logloom.io.formats.bags as bags

    path = folder / f"bytes-{rows}"
    if not path.exists():
        path.mkdir()
        (path / "spec.json").write_text('{"x": "byte"}')
        (path / "x.bag").write_bytes(bytes(rows))
        np.arange(1, rows + 1, dtype="<u8").tofile(path / "x.idx")
    source = bags.DatasetReader(path, {"byte": first_byte})
    before = {process.pid for process in multiprocessing.active_children()}
    with Loader(source, BATCH, workers=workers, prefetch=4) as loader:
        for _ in range(200):
            next(loader)
        pids = {process.pid for process in multiprocessing.active_children()} - before
        return sum(_shared_out(pid) for pid in [os.getpid(), *pids] if pid is not None)


def first_byte(record: bytes) -> int:
    return record[0]


def _shared_out(pid: int) -> int:
    """PSS without the batches' memory."""
    total, counted = 0, True
    for line in pathlib.Path(f"/proc/{pid}/smaps").read_text().splitlines():
        if "-" in line.split()[0]:
            counted = "memfd:" not in line
        elif line.startswith("Pss:") and counted:
            total += 1024 * int(line.split()[1])
    return total


def data_memory(folder: pathlib.Path, workers: int) -> int:
    """What five million rows more cost: the interpreters' own memory cancels out."""
    return memory_of(folder, 5_000_000, workers) - memory_of(folder, 1000, workers)


def phase(
    report: Report,
    task: str,
    folder: pathlib.Path,
    rows: int,
    rounds: int,
    more: Mapping[str, Contender] | None = None,
) -> None:
    """Adds one task; its processes are its own, for granular's keep every batch's descriptors."""
    what, unit = TASKS[task]
    with contextlib.ExitStack() as stack:
        contenders = {}
        for name, side in open_sides(folder, rows).items():
            stack.enter_context(side)
            if name in ("logloom", GRANULAR):
                side.task("write")()
                contenders[name] = side.task(task)
        if LOADERS.exists() and task in ("loader", "first_batch"):
            for name, who in PEERS.items():
                side = stack.enter_context(Side(LOADERS, "loader_side.py", who, folder / who, rows))
                side.task("write")()
                contenders[name] = side.task(task)
        samples = compare({**contenders, **(more or {})}, rounds=rounds)
        report.add(what, 1 if unit == "batches" else rows, unit, samples, [n for n in samples if n == PLAIN])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=3000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", help="where files are written; the system's temporary folder by default")
    arguments = parser.parse_args()
    rows, rounds = arguments.rows, arguments.rounds
    report = Report(f"Loader: {rows} rows of 94 kB in {len(SPEC)} columns, 2 workers, batch {BATCH}")
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name, contextlib.ExitStack() as stack:
        folder = pathlib.Path(name)
        more = {
            "logloom, a table": table_loader(folder, rows, stack),
            **mixed_loaders(folder, rows, stack),
            PLAIN: plain_reads(folder, rows),
        }
        phase(report, "loader", folder, rows, rounds, more)
        alone = compare({name: more[name] for name in (ONE, MIXED)}, rounds=rounds)
        cost = spread(ratios(alone[MIXED], alone[ONE]))
        phase(report, "loader_function", folder, rows, rounds)
        phase(report, "first_batch", folder, rows, rounds)
        memory = {workers: data_memory(folder, workers) / 1e6 for workers in (1, 2, 4)}
    report.finish()
    text = ", ".join(f"{n} workers {mb:.0f} MB ({mb / memory[1]:.2f}x)" for n, mb in memory.items())
    print(f"Mixing two datasets takes {cost} times as long as loading one of the same rows")
    print(f"Memory of five million rows' index and order: {text}")


if __name__ == "__main__":
    main()
