"""Blob tables beside Lance, Parquet row groups, granular, MDS and plain reads; prints a table for each size.

    python -m benchmarks.tables [--rounds 5] [--sizes 20000 200000 5000000] [--folder DIR]

Each contender is a process of its own (Lance and granular in `.venv-peers`, MosaicML's MDS, which needs
torch, in `.venv-mds`; `make bench-tables` makes both). They take turns, and each figure is a median over
rounds in one run. Files lie in the page cache. `plain` moves the same bytes without decoding, the limit; it
and logloom fsync what they write, the others do not.
"""

from __future__ import annotations

import argparse
import contextlib
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from benchmarks.harness import print_table

HERE = pathlib.Path(__file__).parent
PEERS = HERE.parent / ".venv-peers" / "bin" / "python"
INTERPRETERS = {
    "plain": sys.executable,
    "logloom": sys.executable,
    "logloom-row": sys.executable,
    "parquet": sys.executable,
    "granular": str(PEERS),
    "lance": str(PEERS),
    "mds": str(HERE.parent / ".venv-mds" / "bin" / "python"),
}
ORDERS = ("write", "row", "columns", "window", "batch")
BATCH = 32


class Contender:
    """A contender's process."""

    def __init__(self, name: str, folder: pathlib.Path, row_bytes: int, num_rows: int):
        command = [INTERPRETERS[name], str(HERE / "tables_contenders.py"), name, str(folder / name)]
        self._process = subprocess.Popen(
            [*command, str(row_bytes), str(num_rows)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, order: str, count: int) -> float:
        """Seconds that an order took."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{order} {count}\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


@contextlib.contextmanager
def started(folder: pathlib.Path, row_bytes: int, num_rows: int) -> Iterator[dict[str, Contender]]:
    found = {name: Contender(name, folder, row_bytes, num_rows) for name in INTERPRETERS}
    try:
        yield found
    finally:
        for contender in found.values():
            contender.close()


def measure(folder: pathlib.Path, row_bytes: int, rounds: int) -> None:
    num_rows = max(60, min(4000, 150_000_000 // row_bytes)) // 40 * 40
    repeats = {
        "row": max(20, 20_000_000 // row_bytes),
        "columns": 2000,
        "window": 500,
        "batch": max(3, 40_000_000 // row_bytes // BATCH),
    }
    rates: dict[str, dict[str, list[float]]] = {
        order: {name: [] for name in INTERPRETERS} for order in ORDERS
    }
    with started(folder, row_bytes, num_rows) as contenders:
        for number in range(rounds + 1):
            for order in ORDERS:
                if order == "write" and number > 3:
                    continue
                turn = list(contenders) if number % 2 else list(contenders)[::-1]
                for name in turn:
                    count = repeats.get(order, 1)
                    seconds = contenders[name].run(order, count)
                    if order == "write":
                        contenders[name].run("open", 1)
                        contenders[name].run("row", num_rows // 4)  # warm
                    if number:
                        units = num_rows if order == "write" else count * (BATCH if order == "batch" else 1)
                        rates[order][name].append(units / seconds)
    peers = ("granular", "lance", "parquet", "mds")
    rows = []
    for order in ORDERS:
        middle = {name: statistics.median(found) for name, found in rates[order].items()}
        best = max(middle[name] for name in peers)
        unit = "windows/s" if order == "window" else "rows/s"
        rows.append(
            [f"{order} {unit}"]
            + [f"{middle[name]:,.0f}" for name in INTERPRETERS]
            + [f"{middle[name] / best:.2f}" for name in ("logloom", "logloom-row")]
            + [f"{middle[name] / middle['plain']:.2f}" for name in ("logloom", "logloom-row")]
        )
    heads = ["", *INTERPRETERS, "/ best peer", "row group", "/ plain", "row group"]
    print_table(f"{num_rows} rows of {row_bytes:,} bytes", heads, rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sizes", type=int, nargs="+", default=[20_000, 200_000, 5_000_000])
    parser.add_argument("--folder", type=pathlib.Path, default=None)
    arguments = parser.parse_args()
    if missing := [python for python in INTERPRETERS.values() if not pathlib.Path(python).exists()]:
        sys.exit(f"{missing[0]} is missing; make bench-tables makes it")
    for row_bytes in arguments.sizes:
        folder = pathlib.Path(tempfile.mkdtemp(prefix="tables-", dir=arguments.folder))
        try:
            measure(folder, row_bytes, arguments.rounds)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
