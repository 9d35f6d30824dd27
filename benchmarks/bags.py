"""Bags beside granular 0.17 and 0.24, and beside plain files: writing, rows, masks, windows, sequences.

    python -m benchmarks.bags [--rows 3000] [--rounds 7] [--folder /tmp]

Rows are 94 kB in eight columns. Each figure is the median of interleaved rounds, in the same run; ratios are
taken round by round: how many times faster logloom was. Files lie in the page cache. `make interop` installs
granular; it runs in environments of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import shutil
import tempfile
from collections.abc import Callable, Sequence

import numpy as np

import logloom.io.formats.bags as bags
from benchmarks.harness import Contender, compare, in_process
from benchmarks.report import Report
from benchmarks.scripts.bags_side import SPEC, points, records
from benchmarks.scripts.sides import Side, open_sides
from logloom.blocks import Block
from logloom.schema import ColumnType, Schema

READING = {
    "row": "random row",
    "row_uncached": "random row, cache_index=False",
    "pair": "two small columns",
    "pair_uncached": "two small columns, cache_index=False",
    "window": "window of 10 rows, two columns",
}
SEQUENCES = {"sequence_range": "10 of 40 frames", "sequence_window": "10 of 40 small values"}


def block_of(rows: int) -> tuple[Block, Schema]:
    """The same rows as a block."""
    columns = {key: np.stack([np.asarray(p[key]) for p in points(rows)]) for key in SPEC}
    stamps = columns.pop("stamp")
    schema = Schema({key: ColumnType(values.dtype, values.shape[1:]) for key, values in columns.items()})
    return Block("drive", "p", 0, {"timestamp": stamps, **columns}), schema


def writing(folder: pathlib.Path, rows: int) -> dict[str, Callable[[], None]]:
    """Ways to write in this process: (ours, plain files) with and without waiting for the disk."""
    block, schema = block_of(rows)
    values, plain = list(points(rows)), records(bags, rows)

    def fresh(name: str) -> pathlib.Path:
        shutil.rmtree(folder / name, ignore_errors=True)
        return folder / name

    def unit() -> None:
        directory = fresh("unit")
        directory.mkdir()
        writer = bags.BagsWriter(directory, schema)
        writer.append(block)
        writer.close()

    def dataset() -> None:
        with bags.DatasetWriter(fresh("dataset"), SPEC, bags.encoders) as writer:
            for value in values:
                writer.append(value)

    def files(durable: bool) -> None:
        directory = fresh("plain")
        directory.mkdir()
        with contextlib.ExitStack() as stack:
            opened = {key: stack.enter_context((directory / key).open("wb")) for key in SPEC}
            for i in range(rows):
                for key, file in opened.items():
                    file.write(plain[i % len(plain)][key])
            for file in opened.values():
                file.flush()
                if durable:
                    os.fsync(file.fileno())

    return {
        "unit": unit,
        "dataset": dataset,
        "plain": lambda: files(False),
        "plain, fsync": lambda: files(True),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=3000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--folder", help="where files are written; the system's temporary folder by default")
    arguments = parser.parse_args()
    rows, rounds = arguments.rows, arguments.rounds
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name, contextlib.ExitStack() as stack:
        folder = pathlib.Path(name)
        sides: dict[str, Side] = open_sides(folder, rows)
        for side in sides.values():
            stack.enter_context(side)
        ways = {key: in_process(function) for key, function in writing(folder, rows).items()}
        report = Report(f"Bags: {rows} rows of 94 kB")

        def add(task: str, contenders: dict[str, Contender], limits: Sequence[str] = ()) -> None:
            report.add(task, rows, "rows", compare(contenders, rounds=rounds), limits)

        limits = ["plain files"]
        add("write a unit, no fsync", {"logloom": ways["unit"], "plain files": ways["plain"]}, limits)
        durable = {"logloom": ways["dataset"], "plain files": ways["plain, fsync"]}
        add("write a dataset, fsync", durable, limits)
        granular: dict[str, Contender] = {k: s.task("write") for k, s in sides.items() if k != "logloom"}
        if granular:
            add("write, no fsync", {"logloom (unit)": ways["unit"], **granular})
        sides["logloom"].task("write")()
        for task, what in READING.items():
            add(what, {k: side.task(task) for k, side in sides.items()})
        with_sequences = {k: side for k, side in sides.items() if k != "granular 0.24"}
        for side in with_sequences.values():
            side.task("write_sequences")()
        for task, what in SEQUENCES.items():
            add(what, {k: s.task(task) for k, s in with_sequences.items()})
    report.finish()


if __name__ == "__main__":
    main()
