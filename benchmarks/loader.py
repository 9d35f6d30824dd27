"""The Loader beside granular's: two workers, batches of 32, globally shuffled, over bags and over a table.

    python -m benchmarks.loader [--rows 3000] [--rounds 5] [--folder /tmp]

Rows are 94 kB in eight columns, decoded to numpy. Each figure is the median of interleaved rounds, in the
same run, after the tenth batch; ratios are taken round by round. Also the time to the first batch, and the
memory of two workers and of one (proportional set size). `make interop` installs granular.
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

import numpy as np

from benchmarks.harness import Contender, in_process, print_table, warn_if_busy
from benchmarks.scripts.bags_side import BATCH, SPEC, points
from benchmarks.scripts.sides import open_sides, rows_of_table
from logloom.datasets.loader import Loader


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
    import logloom.io.tables as tt

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


def memory_of(folder: pathlib.Path, workers: int) -> int:
    """Bytes of the worker processes together, as the kernel shares them out."""
    import logloom.io.bags as bags

    source = bags.DatasetReader(folder / "logloom" / "data", bags.decoders)
    before = {process.pid for process in multiprocessing.active_children()}
    with Loader(source, BATCH, workers=workers, prefetch=4) as loader:
        for _ in range(40):
            next(loader)
        pids = {process.pid for process in multiprocessing.active_children()} - before
        return sum(_private_bytes(pid) for pid in pids if pid is not None)


def _private_bytes(pid: int) -> int:
    """PSS without the batches' memory, which counts apart."""
    total, counted = 0, True
    for line in pathlib.Path(f"/proc/{pid}/smaps").read_text().splitlines():
        if "-" in line.split()[0]:
            counted = "memfd:" not in line
        elif line.startswith("Pss:") and counted:
            total += 1024 * int(line.split()[1])
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=3000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", help="where files are written; the system's temporary folder by default")
    arguments = parser.parse_args()
    rows, rounds = arguments.rows, arguments.rounds
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name, contextlib.ExitStack() as stack:
        folder = pathlib.Path(name)
        sides = {k: s for k, s in open_sides(folder, rows).items() if k != "granular 0.24"}
        for side in sides.values():
            stack.enter_context(side)
            side.task("write")()
        contenders = {key: side.task("loader") for key, side in sides.items()}
        contenders["plain reads"] = plain_reads(folder, rows)
        lines = rows_of_table("rows", contenders, rounds, rows)
        functions = {key: side.task("loader_function") for key, side in sides.items()}
        lines += rows_of_table("rows, a function", functions, rounds, rows)
        theirs = {key: task for key, task in contenders.items() if key.startswith("granular")}
        over_table: dict[str, Contender] = {"logloom": table_loader(folder, rows, stack), **theirs}
        lines += rows_of_table("rows of a table", over_table, rounds, rows)
        first = {key: side.task("first_batch") for key, side in sides.items()}
        lines += rows_of_table("first batches", first, rounds, 1)
        one, two = memory_of(folder, 1), memory_of(folder, 2)
    title = f"Loader: {rows} rows of 94 kB in {len(SPEC)} columns, 2 workers, batch {BATCH}"
    print_table(title, ["what", "who", "per second", "logloom is faster by"], lines)
    print(f"Workers, beside the batches: one {one / 1e6:.1f} MB, two {two / 1e6:.1f} MB ({two / one:.2f}x)")
    warn_if_busy()


if __name__ == "__main__":
    main()
