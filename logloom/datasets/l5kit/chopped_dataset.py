"""L5Kit test sets: scenes cut short, with their continuation as ground truth.

Elsewhere: cutting the scenes (logloom.io.formats.l5kit.scene_copies), which agents are worth predicting
(mask).
"""

from __future__ import annotations

import csv
import io
import os
import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from logloom.datasets.l5kit.datasets import AgentDataset
from logloom.datasets.l5kit.filter import get_agents_slice_from_frames
from logloom.datasets.l5kit.geometry import transform_points
from logloom.datasets.l5kit.mask import agents_mask_of
from logloom.io.formats.l5kit import ChunkedDataset
from logloom.io.formats.l5kit.chunked_dataset import ZIPPED
from logloom.io.formats.l5kit.mask import MaskThresholds
from logloom.io.formats.l5kit.scene_copies import zarr_scenes_chop
from logloom.io.storage.store import Store


def create_chopped_dataset(
    zarr_path: str | os.PathLike[str],
    th_agent_prob: float,
    num_frames_to_copy: int,
    num_frames_gt: int,
    min_frame_future: int,
) -> str:
    """Writes a test set beside a dataset, in the folder <name>_chopped_<num_frames_to_copy>.

    The folder holds the dataset with the first frames of each scene; mask.npz (`arr_0`, bool), which of its
    agents to predict: those of each scene's last frame that have a future; and gt.csv, what they then do.

    Args:
        zarr_path: of the dataset, on a disk.
        th_agent_prob: agents whose probability to be one is at or below this are no agents.
        num_frames_to_copy: of each scene.
        num_frames_gt: frames of the future in gt.csv.
        min_frame_future: frames that an agent's run has at least after the cut.

    Returns:
        The folder.

    Raises:
        UsageError: a scene is too short, or the folder holds such a dataset already.
        DatasetError: the dataset is damaged.
    """
    source = pathlib.Path(zarr_path)
    name = source.name.removesuffix(ZIPPED)
    folder = source.parent / f"{pathlib.Path(name).stem}_chopped_{num_frames_to_copy}"
    zarr_scenes_chop(str(source), str(folder / name), num_frames_to_copy)
    dataset = ChunkedDataset(source).open()
    chopped = ChunkedDataset(folder / name).open()
    counts = agents_mask_of(dataset, MaskThresholds(th_agent_prob))
    has_future, in_chopped = (np.zeros(len(d.agents), np.bool_) for d in (dataset, chopped))
    cuts = zip(dataset.scenes[:], chopped.scenes[:], strict=True)
    for before, after in cuts:
        last = dataset.frames[before["frame_index_interval"][0] + num_frames_to_copy - 1]
        agents = get_agents_slice_from_frames(last)
        has_future[agents] = counts[agents, 1] >= min_frame_future
        last = chopped.frames[after["frame_index_interval"][1] - 1]
        in_chopped[get_agents_slice_from_frames(last)] = has_future[agents]
    data = io.BytesIO()
    np.savez(data, in_chopped)
    Store.at(str(folder)).replace("mask.npz", data.getvalue())
    export_zarr_to_csv(dataset, str(folder / "gt.csv"), num_frames_gt, th_agent_prob, agents_mask=has_future)
    return str(folder)


def export_zarr_to_csv(
    zarr_dataset: ChunkedDataset,
    csv_file_path: str | os.PathLike[str],
    future_num_frames: int,
    filter_agents_threshold: float,
    step_time: float = 0.1,
    agents_mask: ArrayLike | None = None,
) -> None:
    """Writes what agents do after their frame: metres in the world from where they are, 5 digits each.

    A line per agent: timestamp, track_id, avail_<k>, then coord_x0<k>, coord_y0<k> of each future frame k.

    Args:
        zarr_dataset, agents_mask: see AgentDataset.
        csv_file_path: of the file to write.
        future_num_frames: how many frames ahead.
        filter_agents_threshold, step_time: as the settings of these names.
    """
    settings = {
        # Nothing is drawn, but samples name their place in a raster.
        "raster_params": {
            "raster_size": (100, 100),
            "pixel_size": (0.25, 0.25),
            "ego_center": (0.5, 0.5),
            "set_origin_to_bottom": True,
            "filter_agents_threshold": filter_agents_threshold,
        },
        "model_params": {
            "history_num_frames": 0,
            "future_num_frames": future_num_frames,
            "step_time": step_time,
        },
    }
    steps = range(future_num_frames)
    text = io.StringIO()
    lines = csv.writer(text)
    coordinates = (f"coord_{axis}0{k}" for k in steps for axis in "xy")
    lines.writerow(["timestamp", "track_id", *(f"avail_{k}" for k in steps), *coordinates])
    lines.writerows(_ground_truth(AgentDataset(settings, zarr_dataset, agents_mask=agents_mask)))
    folder, name = os.path.split(os.path.abspath(csv_file_path))
    Store.at(folder).replace(name, text.getvalue().encode())


def _ground_truth(agents: AgentDataset) -> Iterator[list[Any]]:
    for number in range(len(agents)):
        sample = agents[number]
        positions = transform_points(sample["target_positions"], sample["world_from_agent"])
        offsets: NDArray[np.float64] = positions - sample["centroid"]
        yield [
            int(sample["timestamp"]),
            int(sample["track_id"]),
            *sample["target_availabilities"].tolist(),
            *(f"{metres:.5f}" for metres in offsets.reshape(-1)),
        ]
