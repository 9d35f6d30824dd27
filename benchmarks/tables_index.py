"""The index of a table of ten million rows: its size on disk and in memory, and how long it takes to open.

    python -m benchmarks.tables_index [--rows 10000000] [--rounds 3] [--folder DIR]

A hundred logs of four column groups; the blobs are not written, since opening never touches them. Each
opening is a process of its own. `pyarrow` reads the same columns of the same files into Arrow's memory, no
more. Processor seconds are those of all threads.
"""

from __future__ import annotations

import argparse
import pathlib
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import pyarrow as pa

from benchmarks.harness import print_table, spread
from logloom.io.formats.table import description as d
from logloom.io.formats.table.index.assemble import describe
from logloom.io.formats.table.index.files import HASH_TYPE, write_file
from logloom.io.formats.table.write.part_writer import make_plan
from logloom.schema import ColumnType, Schema

LOGS = 100
GROUPS = ("camera", "lidar", "radar", "small")
OPEN = """
import sys, time
import logloom.io.formats.table as tt, logloom.io.formats.table.index.index, pandas
began, cpu = time.perf_counter(), time.process_time()
index = tt.read_index(sys.argv[1])
took = time.perf_counter() - began, time.process_time() - cpu
held = index.memory_usage(deep=True).sum() / len(index)
print(*took, held)
"""
ARROW = """
import pathlib, sys, time
import pyarrow.parquet as pq
from concurrent.futures import ThreadPoolExecutor
began, cpu = time.perf_counter(), time.process_time()
def read(file):
    names = [n for n in pq.read_schema(file).names if not n.endswith(".hash")]
    texts = [n for n in names if n.endswith(".blob") or n == "log_id"]
    return pq.read_table(file, columns=names, read_dictionary=texts, use_threads=False)
with ThreadPoolExecutor() as pool:
    tables = list(pool.map(read, sorted(pathlib.Path(sys.argv[1], "index").iterdir())))
took = time.perf_counter() - began, time.process_time() - cpu
print(*took, sum(t.nbytes for t in tables) / sum(map(len, tables)))
"""


def make_index(root: pathlib.Path, rows: int) -> None:
    """Writes a table's description and index files, as if its parts of 1000 rows had been written."""
    plan = make_plan(
        Schema({"speed": ColumnType(np.dtype("<f4")), **{name: _bytes() for name in GROUPS}}),
        "speed",
        {name: [name] for name in GROUPS} | {"small": ["speed", "small"]},
    )
    rng = np.random.default_rng(0)
    each = rows // LOGS
    (root / "index").mkdir(parents=True)
    logs = []
    for number in range(LOGS):
        log_id = f"drive-{number:04d}"
        write_file(str(root / d.log_file(log_id)), _log(log_id, number * each, each, rng))
        logs.append(d.LogRows(log_id, d.log_file(log_id), each, ""))
    sizes = {"bytes": dict.fromkeys(GROUPS, rows), "longest": dict.fromkeys(GROUPS, 1)}
    (root / d.FILE).write_bytes(d.to_bytes(describe(plan, [sizes], logs, None, ())))


def _bytes() -> ColumnType:
    return ColumnType(np.dtype("u1"), (None,), "bytes")


def _log(log_id: str, first: int, rows: int, rng: np.random.Generator) -> pa.Table:
    columns = {
        "log_id": pa.array([log_id] * rows).dictionary_encode(),
        "timestamp": pa.array((first + np.arange(rows)) * 10**8),
        "speed": pa.array(rng.random(rows, np.float32)),
        d.service(0, "row"): pa.array(np.arange(rows)),
    }
    part = np.arange(rows) // 1000
    for group in GROUPS:
        lengths = rng.integers(30_000, 60_000, rows) // 8 * 8
        ends = np.cumsum(lengths)
        starts = ends - lengths
        paths = pa.array(
            [f"parts/{log_id}~{n * 1000}-{n * 1000 + 1000}/{group}.blob" for n in range(part[-1] + 1)]
        )
        blobs = pa.DictionaryArray.from_arrays(pa.array(part, pa.int32()), paths)
        hashes = np.frombuffer(rng.bytes(32 * rows), "V32")
        columns[d.service(0, group, "blob")] = blobs
        columns[d.service(0, group, "offset")] = pa.array(starts - starts[part * 1000])
        columns[d.service(0, group, "length")] = pa.array(lengths)
        columns[d.service(0, group, "hash")] = pa.FixedSizeBinaryArray.from_buffers(
            HASH_TYPE, rows, [None, pa.py_buffer(hashes.tobytes())]
        )
    return pa.table(columns)


def run(program: str, root: pathlib.Path) -> list[float]:
    """Seconds, processor seconds and bytes a row, as a program says."""
    command = [sys.executable, "-c", program, str(root)]
    said = subprocess.run(command, check=True, capture_output=True, text=True)
    return [float(word) for word in said.stdout.split()]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=pathlib.Path, default=None)
    arguments = parser.parse_args()
    root = pathlib.Path(tempfile.mkdtemp(prefix="index-", dir=arguments.folder))
    try:
        make_index(root, arguments.rows)
        size = sum(path.stat().st_size for path in (root / "index").iterdir())
        found: dict[str, list[list[float]]] = {name: [] for name in ("read_index", "pyarrow")}
        for _ in range(arguments.rounds):
            for name, program in (("read_index", OPEN), ("pyarrow", ARROW)):
                found[name].append(run(program, root))
        lines = [
            [name, *(spread([run[i] for run in runs]) for i in (0, 1)), f"{runs[0][2]:.0f}"]
            for name, runs in found.items()
        ]
        title = f"{arguments.rows:,} rows, {len(GROUPS)} groups: "
        title += f"{size / arguments.rows / len(GROUPS):.0f} bytes on disk per row and group"
        print_table(title, ["", "seconds to open", "processor seconds", "bytes a row in memory"], lines)
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
