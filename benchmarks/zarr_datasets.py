"""Zarr datasets beside zarr-python and tensorstore: writing, reading in order, random batches.

    python -m benchmarks.zarr_datasets [--rows 600] [--rounds 5] [--folder /tmp]

Rows are 94 kB in four columns. zarr-python writes one array per column, a chunk for each row of the two large
ones, as a training job would lay them out; tensorstore (where it can be imported) reads the same files.
logloom writes through staged units, as builds do, so its rows are written twice. Contenders take turns; each
figure is a median of rows per second over rounds of one run. Files lie in the page cache, nothing is fsynced.
"""

from __future__ import annotations

import argparse
import pathlib
import shutil
import statistics
import tempfile
import warnings
from collections.abc import Callable

import numpy as np
import zarr

from benchmarks.harness import Contender, compare, in_process, print_table, spread, warn_if_busy
from logloom.blocks import Block, Ragged
from logloom.io.storage import Store
from logloom.io.units import UnitContext
from logloom.io.zarr import ZarrOptions, ZarrReader
from logloom.io.zarr.assemble import StagedUnit, make_file, plan_assembly
from logloom.io.zarr.stage import StageWriter
from logloom.schema import BYTES, ColumnType, Schema

try:
    import tensorstore
except ImportError:
    tensorstore = None

IMAGE_BYTES, POINTS, BATCH = 61_000, 2048, 32
SCHEMA = Schema(
    {
        "camera.front": BYTES,
        "lidar.points": ColumnType(np.dtype("<f4"), (None, 4)),
        "state": ColumnType(np.dtype("<f8"), (16,)),
        "label": ColumnType(np.dtype("<i8")),
    }
)


def make_arrays(rows: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "timestamp": np.arange(rows) * 10**8,
        "camera.front": rng.integers(0, 256, (rows, IMAGE_BYTES), np.uint8),
        "lidar.points": rng.normal(size=(rows, POINTS, 4)).astype("<f4"),
        "state": rng.normal(size=(rows, 16)),
        "label": np.arange(rows),
    }


def make_block(arrays: dict[str, np.ndarray]) -> Block:
    columns: dict = dict(arrays)
    for name in ("camera.front", "lidar.points"):
        values = arrays[name]
        columns[name] = Ragged(values.reshape(-1, *values.shape[2:]), np.full(len(values), values.shape[1]))
    return Block("drive", "p", 0, columns)


def write_ours(folder: pathlib.Path, block: Block, options: ZarrOptions) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "unit").mkdir(parents=True)
    writer = StageWriter(folder / "unit", SCHEMA, UnitContext("drive", "", "p", "all"))
    for start in range(0, len(block), 100):
        writer.append(Block("drive", "p", start, block.take(slice(start, start + 100))))
    plan = plan_assembly([StagedUnit("drive", "unit", writer.close(), "")], SCHEMA, options)
    store = Store.at(str(folder))
    for name, data in [*(make_file(store, task) for task in plan.tasks), *plan.files.items()]:
        path = folder / "zarr" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def write_zarr(folder: pathlib.Path, arrays: dict[str, np.ndarray]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    group = zarr.open_group(folder, mode="w")
    for name, values in arrays.items():
        rows = 1 if values[0].nbytes > 4096 else 256
        made = group.create_array(
            name, shape=values.shape, chunks=(rows, *values.shape[1:]), dtype=values.dtype, compressors=None
        )
        for start in range(0, len(values), 256):
            made[start : start + 256] = values[start : start + 256]


def open_tensorstore(folder: pathlib.Path, names: list[str]) -> dict:
    kvstores = {name: {"driver": "file", "path": str(folder / name)} for name in names}
    return {
        name: tensorstore.open({"driver": "zarr3", "kvstore": kvstore}).result()
        for name, kvstore in kvstores.items()
    }


def read_tensorstore(arrays: dict, rows: list) -> None:
    for wanted in rows:
        for future in [array[wanted].read() for array in arrays.values()]:
            future.result()


def read_zarr(group: zarr.Group, names: list[str], rows: list) -> None:
    for wanted in rows:
        for name in names:
            group[name].oindex[wanted] if isinstance(wanted, np.ndarray) else group[name][wanted]


def contenders(root: pathlib.Path, num_rows: int) -> dict[str, dict[str, Contender]]:
    """What to do, to who does it, to how. Writes what is read once."""
    arrays = make_arrays(num_rows)
    block, names = make_block(arrays), [*arrays]
    plain = ZarrOptions(compress="none")
    write_ours(root / "lz4", block, ZarrOptions())
    write_ours(root / "none", block, plain)
    write_zarr(root / "peer", arrays)
    batches = list(
        np.random.default_rng(1).permutation(num_rows)[: num_rows // BATCH * BATCH].reshape(-1, BATCH)
    )
    slices = [slice(start, min(start + BATCH, num_rows)) for start in range(0, num_rows, BATCH)]
    group = zarr.open_group(root / "peer", mode="r")
    ours, ours_plain = ZarrReader(root / "lz4" / "zarr"), ZarrReader(root / "none" / "zarr")

    def in_order(reader: ZarrReader) -> Callable[[], object]:
        return lambda: [len(block) for block in reader.blocks(max_bytes=BATCH * 94_000)]

    def at_random(reader: ZarrReader) -> Callable[[], object]:
        return lambda: [len(reader.get_many(rows)) for rows in batches]

    found: dict[str, dict[str, Callable[[], object]]] = {
        "write": {
            "logloom lz4": lambda: write_ours(root / "w1", block, ZarrOptions()),
            "logloom": lambda: write_ours(root / "w2", block, plain),
            "zarr": lambda: write_zarr(root / "w3", arrays),
        },
        "read in order": {
            "logloom lz4": in_order(ours),
            "logloom": in_order(ours_plain),
            "zarr": lambda: read_zarr(group, names, slices),
        },
        f"batches of {BATCH}": {
            "logloom lz4": at_random(ours),
            "logloom": at_random(ours_plain),
            "zarr": lambda: read_zarr(group, names, batches),
        },
    }
    if tensorstore is not None:
        opened = open_tensorstore(root / "peer", names)
        found["read in order"]["tensorstore"] = lambda: read_tensorstore(opened, slices)
        found[f"batches of {BATCH}"]["tensorstore"] = lambda: read_tensorstore(opened, batches)
    return {what: {who: in_process(how) for who, how in each.items()} for what, each in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=600)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", default=None)
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    warn_if_busy()
    with tempfile.TemporaryDirectory(dir=chosen.folder) as folder:
        rows = []
        for what, each in contenders(pathlib.Path(folder), chosen.rows).items():
            samples = compare(each, rounds=chosen.rounds)
            for who, found in samples.items():
                peers = [name for name in samples if not name.startswith("logloom")]
                times = {
                    peer: [b.seconds / a.seconds for a, b in zip(found, samples[peer], strict=True)]
                    for peer in peers
                }
                rate = statistics.median(chosen.rows / sample.seconds for sample in found)
                against = ", ".join(f"{peer} {spread(ratio)}" for peer, ratio in times.items())
                rows.append([what, who, f"{rate:,.0f}", against if who not in peers else ""])
        print_table("Zarr, rows of 94 kB", ["what", "who", "rows/s", "times as fast as"], rows)


if __name__ == "__main__":
    main()
