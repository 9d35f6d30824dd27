"""Rows of every kind staged and assembled, for the tests of zarr datasets."""

import itertools
import pathlib

import numpy as np

from logloom.blocks import Block, take
from logloom.digests import RowsDigest
from logloom.io.formats.interface import StagedUnit, UnitContext
from logloom.io.formats.zarr.assemble import make_file, plan_assembly
from logloom.io.formats.zarr.format import FORMAT
from logloom.io.formats.zarr.layout import ZarrOptions
from logloom.io.formats.zarr.stage import ZarrStageWriter
from logloom.io.storage.store import Store
from logloom.schema import BYTES, STRING, ColumnType, Schema
from tests.io.formats.rows import STRUCT, TYPES, random_block, schema_of
from tests.tier import by_tier

SCHEMA = Schema(
    {
        "speed": ColumnType("<f4", unit="m s-1", description="of the rear axle"),
        "ego.rotation": ColumnType("<f8", (3, 3)),
        "on": ColumnType("?"),
        "lidar.points": ColumnType("<f4", (None, 4), unit="m"),
        "image": ColumnType("u1", (None, None, None)),
        "camera.front": BYTES,
        "note": STRING,
        "pose": ColumnType(STRUCT),
        "objects": ColumnType(STRUCT, (None,)),
        "nothing": ColumnType("<i2", (0,)),
        "big": ColumnType("<f8", (400,)),
    },
    ("speed", "camera.front", "lidar.points"),
)
ALL_TYPES = schema_of(TYPES)
STORED = by_tier(
    [(3, "lz4"), (2, "zstd"), (3, "none")], list(itertools.product([2, 3], ["lz4", "zstd", "none"]))
)
"""Formats of zarr, and how chunks are compressed in them."""


def make_block(num_rows: int, seed: int = 0, schema: Schema = SCHEMA, log_id: str = "car/drive") -> Block:
    return random_block(schema, num_rows, seed, log_id=log_id)


def part(block: Block, start: int, stop: int, first_row: int = 0) -> Block:
    columns = {name: take(values, slice(start, stop)) for name, values in block.columns.items()}
    return Block(block.log_id, block.partition, first_row, columns)


def stage(store: Store, block: Block, cuts=(), schema: Schema = SCHEMA, block_cuts=()) -> list[StagedUnit]:
    """Units that end at the rows `cuts`, written in blocks that also end at `block_cuts`."""
    units = []
    bounds = sorted({0, len(block), *[cut for cut in cuts if cut < len(block)]})
    for start, stop in itertools.pairwise(bounds):
        folder = f"parts/{block.log_id.replace('/', '-')}-{start}"
        path = pathlib.Path(store.uri) / folder
        path.mkdir(parents=True)
        writer = ZarrStageWriter(path, schema, UnitContext(block.log_id, "", f"p{start}", "all"))
        digests = RowsDigest(schema)
        edges = sorted({start, stop, *[cut for cut in block_cuts if start < cut < stop]})
        for low, high in itertools.pairwise(edges):
            one = part(block, low, high)
            writer.append(one)
            digests.update(one)
        of_unit = block.log_id, "", "all", f"p{start}", folder, stop - start
        units.append(StagedUnit(*of_unit, writer.close(), digests.hexdigests()))
    return units


def assemble(store: Store, units, schema: Schema = SCHEMA, options=None):
    """The folder of the dataset, and its plan."""
    plan = plan_assembly(units, schema, options or ZarrOptions())
    folder = pathlib.Path(store.uri) / "whole.zarr"
    for name, data in [*(make_file(store, task) for task in plan.tasks), *plan.files.items()]:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        assert not (folder / name).exists()
        (folder / name).write_bytes(data)
    return folder, plan


def assert_equal_columns(found: Block, expected: Block) -> None:
    assert found.log_id == expected.log_id
    for name, values in found.columns.items():
        want = expected.columns[name]
        if hasattr(want, "shapes"):
            np.testing.assert_array_equal(values.shapes, want.shapes, name)
            values, want = values.values, want.values
        assert values.dtype == want.dtype
        assert values.shape == want.shape
        # Bits, not values: NaNs and -0.0 must stay what they are.
        assert np.ascontiguousarray(values).tobytes() == np.ascontiguousarray(want).tobytes(), name


def differences(folder, unit, storage_options=None):
    """What the format says of a dataset."""
    return FORMAT.assembled_differences(str(folder), unit, storage_options or {})
