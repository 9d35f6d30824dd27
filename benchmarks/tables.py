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
import sys
import tempfile
from collections.abc import Iterator

from benchmarks.harness import Contender, Sample, compare
from benchmarks.report import Report
from benchmarks.scripts.sides import Answering

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
TASKS = {
    "write": "write",
    "row": "random rows",
    "columns": "two small columns",
    "window": "window of 10 rows, small columns",
    "batch": "batch of 32 random rows",
}
BATCH = 32


def seconds_of(program: Answering, order: str, count: int) -> float:
    """Seconds that an order took."""
    return float(str(program.ask(f"{order} {count}")))


def contender(program: Answering, order: str, count: int, warm: int) -> Contender:
    """Times an order. What was written is opened after, and `warm` of its rows are read."""

    def once() -> Sample:
        seconds = seconds_of(program, order, count)
        if order == "write":
            seconds_of(program, "open", 1)
            seconds_of(program, "row", warm)
        return Sample(seconds, 0.0)

    return once


@contextlib.contextmanager
def started(folder: pathlib.Path, row_bytes: int, num_rows: int) -> Iterator[dict[str, Answering]]:
    with contextlib.ExitStack() as stack:
        yield {
            name: stack.enter_context(
                Answering(
                    [
                        python,
                        HERE / "tables_contenders.py",
                        name,
                        folder / name,
                        str(row_bytes),
                        str(num_rows),
                    ]
                )
            )
            for name, python in INTERPRETERS.items()
            if pathlib.Path(python).exists()
        }


def measure(report: Report, folder: pathlib.Path, row_bytes: int, rounds: int) -> None:
    num_rows = max(60, min(4000, 150_000_000 // row_bytes)) // 40 * 40
    repeats = {
        "write": 1,
        "row": max(20, 20_000_000 // row_bytes),
        "columns": 2000,
        "window": 500,
        "batch": max(3, 40_000_000 // row_bytes // BATCH),
    }
    size = f"{row_bytes / 1000:,.0f} kB"
    with started(folder, row_bytes, num_rows) as programs:
        for order, count in repeats.items():
            contenders = {
                name: contender(program, order, count, num_rows // 4) for name, program in programs.items()
            }
            samples = compare(contenders, rounds=min(rounds, 3) if order == "write" else rounds)
            units = num_rows if order == "write" else count * (BATCH if order == "batch" else 1)
            unit = "windows" if order == "window" else "rows"
            report.add(f"{TASKS[order]}, {size}", units, unit, samples, ["plain"])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sizes", type=int, nargs="+", default=[20_000, 200_000, 5_000_000])
    parser.add_argument("--folder", type=pathlib.Path, default=None)
    arguments = parser.parse_args()
    report = Report("Tables")
    for row_bytes in arguments.sizes:
        folder = pathlib.Path(tempfile.mkdtemp(prefix="tables-", dir=arguments.folder))
        try:
            measure(report, folder, row_bytes, arguments.rounds)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    report.finish()
    if missing := [name for name, python in INTERPRETERS.items() if not pathlib.Path(python).exists()]:
        print(f"Not installed, so not compared: {', '.join(missing)}; `make bench-tables` installs them.")


if __name__ == "__main__":
    main()
