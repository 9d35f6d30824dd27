"""Tar shards beside the webdataset package: writing, streaming, random rows. Prints a table.

    python -m benchmarks.tar [--rows 1000] [--rounds 7] [--folder /tmp]

Rows are 93 kB in eight columns. Files lie in the page cache and are not fsynced. `make bench` installs wids,
which webdataset 1.0 no longer holds.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import tempfile
from collections.abc import Callable

import numpy as np
import webdataset

from benchmarks.harness import Contender, compare, in_process
from benchmarks.report import Report
from benchmarks.scripts.sides import LOADERS, Side
from logloom.blocks import Block, Ragged
from logloom.datasets.tar import generic_open, sampleiterator
from logloom.io.formats.tar import TarReader, TarWriter
from logloom.schema import BYTES, ColumnType, Schema

EXT = {"camera.front": "jpg", "camera.rear": "jpg"}
SCHEMA = Schema(
    {
        "camera.front": BYTES,
        "camera.rear": BYTES,
        "lidar.points": ColumnType(np.dtype("<f4"), (None, 4)),
        "ego.position": ColumnType(np.dtype("<f8"), (3,)),
        "ego.rotation": ColumnType(np.dtype("<f8"), (3, 3)),
        "imu": ColumnType(np.dtype("<f8"), (10, 6)),
        "speed": ColumnType(np.dtype("<f4")),
        "label": ColumnType(np.dtype("<i8")),
    }
)


def make_block(rows: int) -> Block:
    rng = np.random.default_rng(0)
    points = [rng.normal(size=(int(n), 4)).astype("<f4") for n in rng.integers(1800, 2200, rows)]
    columns = {
        "timestamp": 1_700_000_000_000_000_000 + np.arange(rows) * 10**8,
        "lidar.points": Ragged.from_rows(points, SCHEMA.columns["lidar.points"]),
        "speed": rng.normal(size=rows).astype("<f4"),
        "label": np.arange(rows),
    }
    for name in EXT:
        columns[name] = Ragged.from_bytes([rng.bytes(int(n)) for n in rng.integers(25_000, 35_000, rows)])
    for name in ("ego.position", "ego.rotation", "imu"):
        columns[name] = rng.normal(size=(rows, *SCHEMA.columns[name].tail))
    return Block("car/drive", "p", 0, columns)


def samples_of(block: Block) -> list[dict]:
    """The same rows as the webdataset package wants them."""
    samples = []
    for n in range(len(block)):
        row = block.row(n, SCHEMA)
        sample = {"__key__": f"{row['log_id']}/{row['timestamp']}"}
        sample |= {f"{name}.jpg": row[name] for name in EXT}
        sample |= {
            f"{name}.npy": row[name] for name in ("lidar.points", "ego.position", "ego.rotation", "imu")
        }
        samples.append(sample | {"meta.json": {"speed": float(row["speed"]), "label": int(row["label"])}})
    return samples


def writing(folder: pathlib.Path, block: Block) -> dict[str, Callable[[], object]]:
    samples = samples_of(block)
    values = [
        [
            memoryview(np.ascontiguousarray(block.columns[name][n]).reshape(-1).view("u1"))
            for name in SCHEMA.columns
        ]
        for n in range(len(block))
    ]

    def ours() -> None:
        (folder / "ours.tar").unlink(missing_ok=True)
        writer = TarWriter(folder / "ours.tar", SCHEMA, EXT)
        writer.append(block)
        writer.close()

    def theirs() -> None:
        (folder / "theirs.tar").unlink(missing_ok=True)
        with webdataset.TarWriter(str(folder / "theirs.tar"), mtime=0) as sink:
            for sample in samples:
                sink.write(sample)

    def plain() -> None:
        (folder / "plain").unlink(missing_ok=True)
        with (folder / "plain").open("wb", buffering=0) as file:
            for row in values:
                os.writev(file.fileno(), row)

    return {"logloom": ours, "webdataset": theirs, "plain writes": plain}


def streaming(shard: str) -> dict[str, Callable[[], object]]:
    buffer = bytearray(1 << 20)

    def ours() -> None:
        for _ in sampleiterator(generic_open(shard)):
            pass

    def theirs() -> None:
        for _ in webdataset.WebDataset(shard, shardshuffle=False):
            pass

    def plain() -> None:
        with pathlib.Path(shard).open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass

    return {"logloom": ours, "webdataset": theirs, "plain reads": plain}


def random_rows(shard: str, order: list[int]) -> dict[str, Callable[[], object]]:
    reader = TarReader(shard)
    size = os.path.getsize(shard) // len(order)
    descriptor = os.open(shard, os.O_RDONLY)

    def ours() -> None:
        for n in order:
            reader[n]

    def plain() -> None:
        for n in order:
            os.pread(descriptor, size, n * size)

    return {"logloom": ours, "plain reads": plain}


def typed_rows(shard: str, order: list[int]) -> dict[str, dict[str, Callable[[], object]]]:
    reader = TarReader(shard, SCHEMA)
    return {
        "typed rows": {"logloom": lambda: [reader[n] and None for n in order]},
        "two small columns": {"logloom": lambda: [reader.row(n, ["imu", "speed"]) and None for n in order]},
        "blocks": {"logloom": lambda: [len(block) for block in reader.blocks()]},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--folder", help="where files are written; the system's temporary folder by default")
    arguments = parser.parse_args()
    rows, block = arguments.rows, make_block(arguments.rows)
    order = np.random.default_rng(1).permutation(rows).tolist()
    report = Report(f"Tar: {rows} rows of {block.nbytes // rows // 1000} kB")

    def add(task: str, sides: dict[str, Contender]) -> None:
        samples = compare(sides, rounds=arguments.rounds)
        report.add(task, rows, "rows", samples, [name for name in sides if name.startswith("plain")])

    with tempfile.TemporaryDirectory(dir=arguments.folder) as name, contextlib.ExitStack() as stack:
        folder = pathlib.Path(name)
        add("write", timed(writing(folder, block)))
        shard = str(folder / "ours.tar")
        tasks = {
            "stream raw samples": timed(streaming(shard)),
            "random raw rows": timed(random_rows(shard, order)),
            **{what: timed(sides) for what, sides in typed_rows(shard, order).items()},
        }
        if LOADERS.exists():
            wids = stack.enter_context(Side(LOADERS, "wids_side.py", "wids", folder, rows))
            tasks["random raw rows"]["wids"] = wids.task("random_rows")
            tasks["typed rows"]["wids"] = wids.task("decoded_rows")
        for task, sides in tasks.items():
            add(task, sides)
    report.finish()


def timed(functions: dict[str, Callable[[], object]]) -> dict[str, Contender]:
    """Contenders that run in this process."""
    return {name: in_process(function) for name, function in functions.items()}


if __name__ == "__main__":
    main()
