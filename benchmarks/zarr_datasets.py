"""Zarr datasets beside zarr-python, the zarrs codecs and tensorstore: writing, reading, random batches.

    python -m benchmarks.zarr_datasets [--rows 600] [--rounds 5] [--folder /tmp]

Rows are 94 kB in four columns of fixed shape, the same for all; `ragged` are the same rows in columns that
may differ in length, as bytes and points do. logloom writes through staged units, as builds do, so its rows
are written twice. Contenders take turns; each figure is a median of rows per second over rounds of one run.
Files lie in the page cache, nothing is fsynced. `make bench` installs the peers.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import pathlib
import shutil
import tempfile
from collections.abc import Callable

import numpy as np

from benchmarks.harness import Contender, compare, in_process
from benchmarks.report import Report
from benchmarks.scripts.sides import LOADERS, Side
from logloom.blocks import Block, Ragged
from logloom.io.formats.interface import StagedUnit, UnitContext
from logloom.io.formats.zarr import ZarrOptions, ZarrReader
from logloom.io.formats.zarr.assemble import make_file, plan_assembly
from logloom.io.formats.zarr.stage import ZarrStageWriter
from logloom.io.storage.store import Store
from logloom.schema import BYTES, ColumnType, Schema

BATCH, BLOCK_ROWS, ROW_BYTES = 32, 100, 94_000
SMALL = {"state": ColumnType(np.dtype("<f8"), (16,)), "label": ColumnType(np.dtype("<i8"))}
FIXED = Schema(
    {"camera": ColumnType("u1", (61_000,)), "points": ColumnType(np.dtype("<f4"), (2048, 4)), **SMALL}
)
NAMES = ("log_id", "timestamp", "camera", "points", *SMALL)
RAGGED = Schema({"camera": BYTES, "points": ColumnType(np.dtype("<f4"), (None, 4)), **SMALL})


def make_blocks(schema: Schema, rows: int) -> list[Block]:
    """The rows as a builder's worker would hand them over."""
    rng = np.random.default_rng(0)
    blocks = []
    for start in range(0, rows, BLOCK_ROWS):
        count = min(BLOCK_ROWS, rows - start)
        columns: dict = {"timestamp": np.arange(start, start + count) * 10**8}
        values = {
            "camera": rng.integers(0, 256, (count, 61_000), np.uint8),
            "points": rng.normal(size=(count, 2048, 4)).astype("<f4"),
        }
        for name, array in values.items():
            ctype = schema.all[name]
            lengths = np.full(count, array.shape[1])
            columns[name] = (
                Ragged(array.reshape(-1, *ctype.tail), lengths[:, None]) if ctype.is_ragged else array
            )
        columns |= {"state": rng.normal(size=(count, 16)), "label": np.arange(start, start + count)}
        blocks.append(Block("drive", "p", start, columns))
    return blocks


def write_ours(folder: pathlib.Path, schema: Schema, blocks: list[Block], options: ZarrOptions) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "unit").mkdir(parents=True)
    writer = ZarrStageWriter(folder / "unit", schema, UnitContext("drive", "", "p", "all"))
    for block in blocks:
        writer.append(block)
    rows = sum(map(len, blocks))
    unit = StagedUnit("drive", "", "all", "p", "unit", rows, writer.close(), dict.fromkeys(NAMES, ""))
    plan = plan_assembly([unit], schema, options)
    store = Store.at(str(folder))
    for name, data in itertools.chain((make_file(store, task) for task in plan.tasks), plan.files.items()):
        path = folder / "zarr" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def contenders(root: pathlib.Path, rows: int, stack: contextlib.ExitStack) -> dict[str, dict[str, Contender]]:
    """What to do, to who does it, to how. Writes what is read once."""
    order = np.random.default_rng(1).permutation(rows)
    batches = list(order[: rows // BATCH * BATCH].reshape(-1, BATCH))
    found: dict[str, dict[str, Contender]] = {"write": {}, "read in order": {}, "random batches": {}}

    def in_order(reader: ZarrReader) -> Callable[[], object]:
        return lambda: [len(block) for block in reader.blocks(max_bytes=BATCH * ROW_BYTES)]

    def at_random(reader: ZarrReader) -> Callable[[], object]:
        return lambda: [len(reader.get_many(rows)) for rows in batches]

    def add(who: str, folder: pathlib.Path, schema: Schema, options: ZarrOptions) -> None:
        blocks = make_blocks(schema, rows)
        write_ours(folder, schema, blocks, options)
        reader = ZarrReader(folder / "zarr")
        found["write"][who] = in_process(lambda: write_ours(root / "w", schema, blocks, options))
        found["read in order"][who] = in_process(in_order(reader))
        found["random batches"][who] = in_process(at_random(reader))

    add("logloom", root / "ours-none", FIXED, ZarrOptions(compress="none"))
    add("logloom lz4", root / "ours-lz4", FIXED, ZarrOptions())
    add("logloom lz4, ragged", root / "ours-ragged", RAGGED, ZarrOptions())
    if LOADERS.exists():
        for who in ("zarr", "zarrs", "tensorstore"):
            folder = root if who == "tensorstore" else root / who
            side = stack.enter_context(Side(LOADERS, "zarr_side.py", who, folder, rows))
            side.task("write")()
            if who != "tensorstore":
                found["write"][who] = side.task("write")
            found["read in order"][who], found["random batches"][who] = (
                side.task("in_order"),
                side.task("batches"),
            )
        shards = stack.enter_context(Side(LOADERS, "zarr_side.py", "zarrs", root / "shards", rows))
        found["write"]["zarrs, shards"] = shards.task("write_shards")
        found["read in order"]["tensorstore, our lz4"] = side.task("ours_in_order")
        found["random batches"]["tensorstore, our lz4"] = side.task("ours_batches")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=600)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", default=None)
    chosen = parser.parse_args()
    report = Report("Zarr, rows of 94 kB")
    with tempfile.TemporaryDirectory(dir=chosen.folder) as folder, contextlib.ExitStack() as stack:
        for what, each in contenders(pathlib.Path(folder), chosen.rows, stack).items():
            report.add(what, chosen.rows, "rows", compare(each, rounds=chosen.rounds))
    report.finish()


if __name__ == "__main__":
    main()
