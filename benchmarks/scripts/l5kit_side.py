"""One side of benchmarks.training, in a process of its own: prints the seconds that it measured as JSON.

python l5kit_side.py logloom|l5kit views SCENE CONFIG MASK ITEMS   of ITEMS samples of each view, both drawn
python l5kit_side.py logloom|l5kit mask SCENES                     of the agents mask of all scenes

Each figure is [wall, processor], the processor's with child processes. Runs on both interpreters.
"""

import contextlib
import json
import os
import random
import shutil
import sys
import time
import warnings

RASTERIZERS = ("box_debug", "stub_debug")


def clocks():
    spent = os.times()
    return time.perf_counter(), sum(spent[:4])


def since(began):
    return [now - then for now, then in zip(clocks(), began, strict=True)]


def open_scenes(who, folder):
    if who == "l5kit":
        from l5kit.data import ChunkedDataset
    else:
        from logloom.datasets.l5kit import ChunkedDataset
    return ChunkedDataset(folder).open()


def views(who, scene, config, mask, items):
    import numpy as np

    if who == "l5kit":
        from l5kit.configs import load_config_data
        from l5kit.data import LocalDataManager
        from l5kit.dataset import AgentDataset, EgoDataset
        from l5kit.rasterization import build_rasterizer
    else:
        from logloom.datasets.l5kit import (
            AgentDataset,
            EgoDataset,
            LocalDataManager,
            build_rasterizer,
            load_config_data,
        )
    config, dataset = load_config_data(config), open_scenes(who, scene)
    chosen = (np.load(mask) >= 1).all(axis=1)
    found = {}
    for kind in RASTERIZERS:
        config["raster_params"]["map_type"] = kind
        rasterizer = build_rasterizer(config, LocalDataManager("."))
        for view, more in ((EgoDataset, {}), (AgentDataset, {"agents_mask": chosen})):
            samples = view(config, dataset, rasterizer, **more)
            order = random.Random(0).choices(range(len(samples)), k=int(items))
            began = clocks()
            for index in order:
                samples[index]
            found[f"{view.__name__}, {kind}"] = since(began)
    return found


def mask(who, folder):
    dataset = open_scenes(who, folder)
    if who == "l5kit":
        from l5kit.dataset.select_agents import select_agents

        shutil.rmtree(folder + "/agents_mask", ignore_errors=True)
        began = clocks()
        select_agents(dataset, 0.5, 30, 1.1, 50)
    else:
        from logloom.datasets.l5kit import compute_agents_mask

        began = clocks()
        compute_agents_mask(dataset)
    return {"agents mask": since(began)}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    who, what, *arguments = sys.argv[1:]
    with contextlib.redirect_stdout(sys.stderr):  # the original's tool prints a report
        measured = {"views": views, "mask": mask}[what](who, *arguments)
    print(json.dumps(measured))
