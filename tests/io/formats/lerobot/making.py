"""Rows for tests of LeRobot datasets: frames at 10 Hz with numbers, an image file and pixels."""

import io

import numpy as np
import PIL.Image

from logloom.blocks import Block, Ragged
from logloom.io.formats.interface import StagedUnit, UnitContext
from logloom.io.formats.lerobot.format import FORMAT
from logloom.io.formats.lerobot.options import LeRobotOptions
from logloom.io.storage.store import Store
from logloom.schema import BYTES, STRING, ColumnType, Schema

START = 1_700_000_000_000_000_000
STEP = 100_000_000
HEIGHT, WIDTH = 6, 8
SCHEMA = Schema(
    {
        "camera.front": BYTES,
        "wide": ColumnType(np.dtype("u1"), (HEIGHT, WIDTH, 3)),
        "speed": ColumnType(np.dtype("<f4")),
        "position": ColumnType(np.dtype("<f8"), (3,)),
        "moving": ColumnType(np.dtype("?")),
        "doing": STRING,
    },
    ("camera.front", "speed"),
)
FEATURES = {
    "observation.state": ["speed", "position"],
    "action": ["speed"],
    "next.done": "moving",
    "observation.images.front": "camera.front",
    "observation.images.wide": "wide",
}


def options(**more) -> LeRobotOptions:
    return FORMAT.Options.model_validate(
        {"fps": 10, "features": FEATURES, "task": {"column": "doing"}, **more}
    )


def picture(rng, height=HEIGHT, width=WIDTH) -> bytes:
    """An image file."""
    file = io.BytesIO()
    PIL.Image.fromarray(rng.integers(0, 256, (height, width, 3), np.uint8)).save(file, "PNG")
    return file.getvalue()


def make_block(rows, seed, log_id="car/drive", frames=None, tasks=("drive on", "stöp")) -> Block:
    """Rows of SCHEMA.

    Args:
        frames: at which multiples of STEP they are; by default 0, 1, 2, …
    """
    rng = np.random.default_rng(seed)
    times = START + np.asarray(range(rows) if frames is None else frames, np.int64) * STEP
    return Block(
        log_id,
        "p3",
        0,
        {
            "timestamp": times,
            "camera.front": Ragged.from_bytes([picture(rng) for _ in range(rows)]),
            "wide": rng.integers(0, 256, (rows, HEIGHT, WIDTH, 3), np.uint8),
            "speed": rng.normal(size=rows).astype("<f4"),
            "position": rng.normal(size=(rows, 3)),
            "moving": rng.random(rows) < 0.5,
            "doing": Ragged.from_bytes([tasks[row * len(tasks) // rows].encode() for row in range(rows)]),
            "camera.front.age": np.zeros(rows, np.int64),
            "camera.front.available": np.ones(rows, bool),
            "speed.age": np.zeros(rows, np.int64),
            "speed.available": np.ones(rows, bool),
        },
    )


def stage(root, blocks, chosen=None, schema=SCHEMA):
    """Units of a root, one for each block; they may be of several logs, in order."""
    units = []
    for number, block in enumerate(blocks):
        folder = f"parts/lerobot/{number:032d}"
        (root / folder).mkdir(parents=True)
        context = UnitContext(block.log_id, f"/{block.log_id}.mcap", f"p{number}", "all")
        writer = FORMAT.writer(root / folder, schema, chosen or options(), context)
        writer.append(block)
        unit = writer.close()
        of_log = block.log_id, f"/logs/{block.log_id}.mcap", "all"
        columns = unit.pop("columns")
        units.append(StagedUnit(*of_log, f"p{number}", folder, len(block), unit, columns))
    return units


def assemble(tmp_path, blocks, chosen=None, schema=SCHEMA):
    """The folder of the dataset that blocks become, and its plan."""
    root = tmp_path / "root"
    units = stage(root, blocks, chosen, schema)
    store = Store.at(str(root))
    plan = FORMAT.plan_assembly(store, units, schema, chosen or options(), STEP)
    folder = tmp_path / "dataset"
    files = dict(FORMAT.make_chunk(store, task) for task in plan.tasks) | dict(plan.files)
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder, plan
