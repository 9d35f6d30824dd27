"""Makers of L5Kit rows, units and datasets for the tests here."""

import itertools

import numpy as np

from logloom.blocks import Block, Ragged
from logloom.io.formats.interface import StagedUnit, UnitContext
from logloom.io.formats.l5kit.assemble import make_chunk, plan_assembly
from logloom.io.formats.l5kit.dtypes import AGENTS, TL_FACES
from logloom.io.formats.l5kit.format import FORMAT
from logloom.io.formats.l5kit.mapping import MAPPED_SCHEMA
from logloom.io.formats.l5kit.options import L5KitOptions
from logloom.io.formats.l5kit.stage import L5KitStageWriter
from logloom.io.storage.store import Store

PERIOD = 100_000_000
OPTIONS = L5KitOptions(host="{log_id}", agents="agents", tl_faces="tl_faces")


def make_rows(num_rows: int, seed: int = 0, max_agents: int = 5, log_id: str = "drive") -> Block:
    """Mapped rows at 10 Hz with random values; some frames have no agents or no lights."""
    rng = np.random.default_rng(seed)
    agents = Ragged(random_structs(rng, AGENTS.dtype, 0), np.zeros(num_rows, np.int64))
    if num_rows:
        counts = rng.integers(0, max_agents + 1, num_rows)
        agents = Ragged(random_structs(rng, AGENTS.dtype, int(counts.sum())), counts)
        counts = rng.integers(0, 3, num_rows)
        lights = Ragged(random_structs(rng, TL_FACES.dtype, int(counts.sum())), counts)
    else:
        lights = Ragged(random_structs(rng, TL_FACES.dtype, 0), np.zeros(0, np.int64))
    columns = {
        "timestamp": 1_600_000_000_000_000_000 + np.arange(num_rows) * PERIOD,
        "ego_translation": rng.normal(size=(num_rows, 3)),
        "ego_rotation": rng.normal(size=(num_rows, 3, 3)),
        "agents": agents,
        "tl_faces": lights,
    }
    return Block(log_id, "all", 0, columns)


def random_structs(rng: np.random.Generator, dtype: np.dtype, num_rows: int) -> np.ndarray:
    rows = np.zeros(num_rows, dtype)
    for name in dtype.names:
        if dtype[name].kind == "U":
            rows[name] = [f"ü{n}" for n in rng.integers(0, 10**9, num_rows)]
        elif dtype[name].base.kind == "u":
            rows[name] = rng.integers(0, 2**63, num_rows)
        else:
            rows[name] = rng.normal(size=(num_rows, *dtype[name].shape))
    return rows


def stage(
    store: Store,
    block: Block,
    cuts,
    block_cuts=(),
    options: L5KitOptions = OPTIONS,
    period: int | None = PERIOD,
) -> list[StagedUnit]:
    """Writes the rows as units cut at `cuts`, each fed in blocks cut at `block_cuts`."""
    units = []
    edges = sorted({0, len(block), *(c for c in cuts if 0 < c < len(block))})
    for start, stop in itertools.pairwise(edges):
        folder = f"parts/{block.log_id}/{start}"
        (store.local / folder).mkdir(parents=True)
        context = UnitContext(block.log_id, f"/logs/{block.log_id}.mcap", f"{start}", "all", period)
        writer = L5KitStageWriter(store.local / folder, MAPPED_SCHEMA, options, context)
        inner = sorted({start, stop, *(c for c in block_cuts if start < c < stop)})
        for a, b in itertools.pairwise(inner):
            writer.append(Block(block.log_id, f"{start}", a - start, block.take(slice(a, b))))
        unit = writer.close()
        columns = unit.pop("columns")
        of_unit = block.log_id, context.log_uri, "all", f"{start}", folder, stop - start
        units.append(StagedUnit(*of_unit, unit, columns))
    return units


def assemble(
    store: Store, units, name="out.zarr", options: L5KitOptions = OPTIONS, period: int | None = PERIOD
):
    """Writes the dataset of some units; gives its folder and plan."""
    plan = plan_assembly(units, options, period)
    files = dict(make_chunk(store, task) for task in plan.tasks) | dict(plan.files)
    folder = store.local / name
    for file, data in files.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_bytes(data)
    return folder, plan


def differences(folder, unit, storage_options=None):
    """What the format says of a dataset."""
    return FORMAT.assembled_differences(str(folder), unit, storage_options or {})
