"""Random rows of Parquet, Lance and Arrow files that others wrote, beside pyarrow, pylance and `datasets`.

    python -m benchmarks.random_rows [--rows 200000] [--take 4000] [--rounds 3]

Rows have a number, thirty float32, a text and a list of numbers. Each side opens the same files in a process
of its own, which isn't timed, and takes the same rows once; the peak is that of the whole process.
Arrow files are in the layout of Hugging Face's `save_to_disk`; where its package `datasets` isn't installed,
pyarrow takes the rows of the mapped file. Normalizing a column is measured beside not normalizing it.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import pathlib
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.harness import Contender, Sample, compare, in_process
from benchmarks.report import Report

GROUP_ROWS = 20_000
BATCH = 256
EPOCHS = ("logloom, groups", "logloom, all rows", "pyarrow, in order")
FILE = "data-00000-of-00001.arrow"
STATE = {
    "_data_files": [{"filename": FILE}],
    "_fingerprint": "0",
    "_format_columns": None,
    "_format_kwargs": {},
    "_format_type": None,
    "_output_all_columns": False,
    "_split": None,
}


def write(folder: pathlib.Path, num_rows: int) -> None:
    """Writes the rows as one Parquet file, as a Lance table and as Arrow files."""
    import lance
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    state = pa.FixedSizeListArray.from_arrays(rng.random(num_rows * 30).astype("f4"), 30)
    points = pa.ListArray.from_arrays(np.arange(0, num_rows * 4 + 1, 4, "i4"), rng.random(num_rows * 4))
    texts = [f"text {number}" for number in range(num_rows)]
    table = pa.table({"x": rng.random(num_rows), "state": state, "text": texts, "points": points})
    (folder / "parquet").mkdir()
    pq.write_table(table, folder / "parquet" / "rows.parquet", row_group_size=GROUP_ROWS)
    lance.write_dataset(table, folder / "lance", max_rows_per_file=GROUP_ROWS)
    (folder / "arrow").mkdir()
    with pa.ipc.new_stream(folder / "arrow" / FILE, table.schema) as stream:
        stream.write_table(table, max_chunksize=1000)  # as `datasets` does
    (folder / "arrow" / "state.json").write_text(json.dumps(STATE))
    (folder / "arrow" / "dataset_info.json").write_text("{}")


def opened(who: str, folder: pathlib.Path) -> Callable[[Any], object]:
    """Opens the rows; gives what takes some of them."""
    if who == "logloom":
        import logloom

        return logloom.open(str(folder)).get_many
    if who in EPOCHS:
        return epoch(who, folder)
    if who == "normalized":
        import logloom

        return logloom.open(str(folder)).normalized("x").get_many
    if who == "datasets":
        import datasets  # type: ignore[import-not-found,unused-ignore]

        return datasets.load_from_disk(str(folder)).with_format("numpy").__getitem__  # type: ignore[no-any-return]
    if folder.name == "lance":
        import lance

        return lance.dataset(str(folder)).take  # type: ignore[no-any-return]
    import pyarrow as pa
    import pyarrow.dataset

    if folder.name == "arrow":
        table = pa.ipc.open_stream(pa.memory_map(str(folder / FILE))).read_all()
        return lambda rows: table.take(pa.array(rows)).combine_chunks()
    dataset = pyarrow.dataset.dataset(str(folder))
    return lambda rows: dataset.take(pa.array(rows))


def epoch(who: str, folder: pathlib.Path) -> Callable[[Any], object]:
    """Opens the rows; gives what reads each of them once."""
    if who == "pyarrow, in order":
        import pyarrow.dataset

        dataset = pyarrow.dataset.dataset(str(folder))
        return lambda _: [batch.num_rows for batch in dataset.to_batches(batch_size=BATCH)]
    import logloom

    rows = logloom.open(str(folder))
    options = {"batch": BATCH, "workers": 0, "shuffle": "groups" if who == "logloom, groups" else True}
    loader = logloom.Loader(rows, **options)  # type: ignore[arg-type]
    next(loader)
    return lambda _: [len(next(loader)["x"]) for _ in range(len(rows) // BATCH)]


def measure(who: str, folder: pathlib.Path, num_rows: int, count: int) -> None:
    """Prints how long one side took in this process."""
    rows = np.random.default_rng(1).integers(0, num_rows, count)
    take = opened(who, folder)
    sample = in_process(lambda: take(rows))()
    print(json.dumps([sample.seconds, sample.cpu, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10]))


def side(who: str, folder: pathlib.Path, num_rows: int, count: int) -> Contender:
    """Measures one side in a process of its own."""
    return lambda: Sample(*json.loads(in_child(who, folder, num_rows, count).splitlines()[-1]))


def in_child(who: str, folder: pathlib.Path, num_rows: int, count: int) -> str:
    """Runs one side, or what writes the rows; this process stays small, as its peak counts for children."""
    options = ["--side", who, "--folder", str(folder), "--rows", str(num_rows), "--take", str(count)]
    command = [sys.executable, "-m", "benchmarks.random_rows", *options]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--take", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--side", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=pathlib.Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.side == "write":
        write(arguments.folder, arguments.rows)
        return
    if arguments.side:
        measure(arguments.side, arguments.folder, arguments.rows, arguments.take)
        return
    report = Report("Random rows of others")
    with tempfile.TemporaryDirectory() as folder:
        in_child("write", pathlib.Path(folder), arguments.rows, 0)
        of_arrow = "datasets" if importlib.util.find_spec("datasets") else "pyarrow"
        for kind, first, peer in (
            ("parquet", "logloom", "pyarrow"),
            ("lance", "logloom", "pylance"),
            ("arrow", "logloom", of_arrow),
            ("arrow", "normalized", "logloom"),
        ):
            place = pathlib.Path(folder) / kind
            sides = {who: side(who, place, arguments.rows, arguments.take) for who in (first, peer)}
            found = compare(sides, rounds=arguments.rounds, warm_up=0)
            name = "normalized rows" if first == "normalized" else "random rows"
            report.add(f"{name}, {kind}", arguments.take, "rows", found)
        place = pathlib.Path(folder) / "parquet"
        epochs = {who: side(who, place, arguments.rows, arguments.take) for who in EPOCHS}
        found = compare(epochs, rounds=arguments.rounds, warm_up=0)
        report.add("an epoch of rows, parquet", arguments.rows, "rows", found)
    report.finish()


if __name__ == "__main__":
    main()
