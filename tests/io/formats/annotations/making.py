"""Rows with images, points and objects, staged and assembled, for the tests of annotation files."""

import io
import itertools
import pathlib

import numpy as np
from PIL import Image

from logloom.blocks import Block, Ragged, take
from logloom.io.formats.annotations.assemble import make_file, plan_assembly
from logloom.io.formats.annotations.format import FORMAT
from logloom.io.formats.annotations.options import Options
from logloom.io.formats.annotations.stage import AnnotationStageWriter
from logloom.io.formats.interface import StagedUnit, UnitContext
from logloom.io.storage.store import Store
from logloom.schema import BYTES, STRING, ColumnType, Schema

STRUCT = np.dtype(
    [
        *((name, "<f4") for name in ("x1", "y1", "x2", "y2")),
        ("center", "<f8", (3,)),
        ("class", "<U12"),
        ("kind", "<i2"),
    ]
)
SCHEMA = Schema(
    {
        "camera.front": BYTES,
        "camera.left": ColumnType("u1", (None, None, 3)),
        "lidar.points": ColumnType("<f4", (None, 4)),
        "pose": ColumnType("<f8", (4, 4)),
        "speed": ColumnType("<f4"),
        "note": STRING,
        "objects": ColumnType(STRUCT, (None,)),
    },
    ("camera.front", "lidar.points"),
)
CLASSES = ["car", "truck"]


def options(**changes):
    base = {
        "images": {"img_path": "camera.front"},
        "instances": {"from": "objects", "bbox": ["x1", "y1", "x2", "y2"], "bbox_label": "class"},
        "metainfo": {"classes": CLASSES},
    }
    return Options.model_validate({**base, **changes})


def jpeg(height, width, shade):
    buffer = io.BytesIO()
    Image.new("RGB", (width, height), (shade, shade // 2, 0)).save(buffer, "JPEG")
    return buffer.getvalue()


def make_block(num_rows, seed=0, log_id="car/drive", missing=()):
    """Rows of every kind; those of `missing` have neither image nor points."""
    random = np.random.default_rng(seed)
    counts = random.integers(0, 4, num_rows)
    objects = np.zeros(counts.sum(), STRUCT)
    for name in ("x1", "y1", "x2", "y2", "center"):
        objects[name] = random.normal(size=objects[name].shape)
    objects["class"] = random.choice(CLASSES, len(objects))
    objects["kind"] = random.integers(0, 2, len(objects))
    available = np.array([row not in missing for row in range(num_rows)], bool)
    shades = random.integers(0, 255, num_rows).tolist()
    pictures = [jpeg(6, 8, shade) if there else b"" for shade, there in zip(shades, available, strict=True)]
    left = [random.integers(0, 255, (4, 5, 3), np.uint8) for _ in range(num_rows)]
    points = [random.normal(size=(3 * a, 4)).astype("<f4") for a in available]
    columns = {
        "timestamp": 1_700_000_000_000_000_000 + np.arange(num_rows) * 100_000_000,
        "camera.front": Ragged.from_bytes(pictures),
        "camera.left": Ragged.from_rows(left, SCHEMA.columns["camera.left"]),
        "lidar.points": Ragged.from_rows(points, SCHEMA.columns["lidar.points"]),
        "pose": random.normal(size=(num_rows, 4, 4)),
        "speed": random.normal(size=num_rows).astype("<f4"),
        "note": Ragged.from_bytes([f"räum {row}".encode() for row in range(num_rows)]),
        "objects": Ragged(objects, counts),
    }
    for name in SCHEMA.sampled:
        columns |= {f"{name}.age": np.zeros(num_rows, np.int64), f"{name}.available": available}
    return Block(log_id, "p", 0, columns)


def part(block, start, stop):
    return Block(
        block.log_id, f"p{start}", 0, {n: take(v, slice(start, stop)) for n, v in block.columns.items()}
    )


def stage(store, block, cuts=(), options=options(), block_cuts=()):  # noqa: B008, not changed
    """Units that end at the rows `cuts`, written in blocks that also end at `block_cuts`."""
    units = []
    for start, stop in itertools.pairwise(sorted({0, len(block), *cuts})):
        folder = f"parts/{block.log_id.replace('/', '-')}-{start}"
        path = pathlib.Path(store.uri) / folder
        path.mkdir(parents=True)
        writer = AnnotationStageWriter(
            path, SCHEMA, options, UnitContext(block.log_id, "", f"p{start}", "all")
        )
        edges = sorted({start, stop, *[cut for cut in block_cuts if start < cut < stop]})
        for low, high in itertools.pairwise(edges):
            writer.append(part(block, low, high))
        unit = writer.close()
        columns = unit.pop("columns")
        of_unit = block.log_id, "", "all", f"p{start}", folder, stop - start
        units.append(StagedUnit(*of_unit, unit, columns))
    return units


def assemble(store, units, options=options(), split="all"):  # noqa: B008, not changed
    """The folder of the annotation file, and its plan."""
    plan = plan_assembly(units, options, split)
    folder = pathlib.Path(store.uri) / "whole"
    for task in plan.tasks:
        name, data = make_file(store, task)
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder, plan


def store_at(path):
    return Store.at(str(path / "store"))


def differences(folder, unit, storage_options=None):
    """What the format says of a dataset."""
    return FORMAT.assembled_differences(str(folder), unit, storage_options or {})
