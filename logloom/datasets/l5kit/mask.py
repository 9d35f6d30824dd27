"""Which agents are worth learning from: how many frames each is well seen before and after.

Here: `compute_agents_mask`, a pure function over arrays, and `agents_mask_of`, which finds or keeps one.
Elsewhere: choosing agents by it (agent).
"""

from __future__ import annotations

import io
import logging
import os
import pathlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from logloom.blocks import Array
from logloom.datasets.l5kit.scenes import stops_of, track_twice
from logloom.errors import DatasetError, StorageError
from logloom.io.l5kit import ChunkedDataset
from logloom.io.storage import Store

logger = logging.getLogger(__name__)

# The labels of things that drive, ride or walk: from PERCEPTION_LABEL_CAR to PERCEPTION_LABEL_ANIMAL.
AGENT_LABELS = slice(3, 16)
MIN_AREA_M2 = 0.01
# Batches of this size stay in a core's cache.
BATCH_ROWS = 1 << 14
CACHE_VARIABLE = "LOGLOOM_CACHE"


@dataclass(frozen=True)
class MaskThresholds:
    """What ends an agent's run of good frames.

    Attributes:
        agent_probability: the probability to be an agent has to lie above.
        yaw_degrees: a turn from frame to frame has to lie below.
        extent_ratio: a growth or shrinkage of the area from frame to frame has to lie below.
        ego_distance_m: the distance to the vehicle has to lie below.
    """

    agent_probability: float = 0.5
    yaw_degrees: float = 30.0
    extent_ratio: float = 1.1
    ego_distance_m: float = 50.0


def are_agents(label_probabilities: Array, threshold: float) -> NDArray[np.bool_]:
    """Which of (N, 17) label probabilities are those of agents."""
    # Label after label: in the order in which the original adds them, sums at the threshold are the same.
    by_label = np.ascontiguousarray(label_probabilities[:, AGENT_LABELS].T)
    likely: NDArray[np.bool_] = by_label.sum(axis=0) > threshold
    return likely


def compute_agents_mask(
    dataset: ChunkedDataset, thresholds: MaskThresholds = MaskThresholds(), num_threads: int | None = None
) -> NDArray[np.uint32]:
    """Counts, for each agent, the frames before and after it in its unbroken run.

    A run is a track in consecutive frames of a scene. Agents that are improbable or far from the vehicle
    end it and count 0; a jump of yaw or area, or no area at all, starts another.

    Args:
        dataset: opened, or in memory. Agents are read in batches of whole scenes.
        num_threads: None for one per core.

    Returns:
        (agents, 2) frames in the past and in the future.

    Raises:
        DatasetError: intervals don't fit their arrays, or a frame holds a track twice.
    """
    source = dataset.path or "in memory"
    frames: Array = dataset.frames[:]
    scene_stops = stops_of(
        np.asarray(dataset.scenes[:]["frame_index_interval"]), len(frames), f"{source}: frame_index_interval"
    )
    agent_stops = stops_of(
        frames["agent_index_interval"], len(dataset.agents), f"{source}: agent_index_interval"
    )
    mask = np.zeros((len(dataset.agents), 2), np.uint32)

    def fill(batch: tuple[int, int]) -> None:
        first, stop = batch
        start_row = int(agent_stops[first - 1]) if first else 0
        stop_row = int(agent_stops[stop - 1])
        counts = np.diff(agent_stops[first:stop], prepend=start_row)
        frame_of = np.repeat(np.arange(first, stop), counts)
        scenes = np.searchsorted(scene_stops, np.arange(first, stop), side="right")
        scene_of = np.repeat(scenes, counts)
        agents = dataset.agents[start_row:stop_row]
        away = np.repeat(frames["ego_translation"][first:stop, :2], counts, axis=0) - agents["centroid"]
        distance = np.sqrt(away[:, 0] ** 2 + away[:, 1] ** 2)
        good = are_agents(agents["label_probabilities"], thresholds.agent_probability)
        good &= distance < thresholds.ego_distance_m
        mask[start_row:stop_row] = _run_counts(agents, frame_of, scene_of, good, thresholds, source)

    with ThreadPoolExecutor(num_threads or os.cpu_count() or 1) as pool:
        for _ in pool.map(fill, _batches(scene_stops, agent_stops)):
            pass  # raises what a batch raised
    return mask


def _batches(scene_stops: Array, agent_stops: Array) -> Iterator[tuple[int, int]]:
    """Ranges of frames of whole scenes, each of about BATCH_ROWS agents or of one scene."""
    first = 0
    for position, stop in enumerate(scene_stops.tolist()):
        rows_before = int(agent_stops[first - 1]) if first else 0
        is_last = position == len(scene_stops) - 1
        if stop > first and (is_last or int(agent_stops[stop - 1]) - rows_before >= BATCH_ROWS):
            yield first, stop
            first = stop


def _run_counts(
    agents: Array, frame_of: Array, scene_of: Array, good: Array, thresholds: MaskThresholds, source: str
) -> NDArray[np.uint32]:
    """(N, 2) frames before and after each agent in its run."""
    order = _by_track(agents["track_id"], scene_of)
    track, frame, scene, good = agents["track_id"][order], frame_of[order], scene_of[order], good[order]
    same_track = (track[1:] == track[:-1]) & (scene[1:] == scene[:-1])
    twice = np.flatnonzero(same_track & (frame[1:] == frame[:-1]))
    if twice.size:
        raise track_twice(source, int(track[twice[0]]), int(frame[twice[0]]))
    goes_on = same_track & (frame[1:] == frame[:-1] + 1) & good[1:] & good[:-1]
    goes_on &= _is_steady(agents["yaw"][order], agents["extent"][order], thresholds)
    starts = np.flatnonzero(np.concatenate([[True], ~goes_on])[: len(order)])
    lengths = np.diff(starts, append=len(order))
    past = np.arange(len(order)) - np.repeat(starts, lengths)
    future = np.repeat(lengths, lengths) - 1 - past
    counts = np.zeros((len(order), 2), np.uint32)
    counts[order, 0] = past * good
    counts[order, 1] = future * good
    return counts


def _by_track(tracks: Array, scene_of: Array) -> NDArray[np.intp]:
    """The order by scene, then track; stable, so that frames stay ascending within each."""
    if not len(tracks):
        return np.zeros(0, np.intp)
    lowest, first = tracks.min(), scene_of.min()
    span = int(tracks.max() - lowest) + 1
    if span * int(scene_of.max() - first + 1) > 1 << 16:
        return np.lexsort((tracks, scene_of))
    # Keys of 16 bits are sorted several times as fast.
    keys = (scene_of - first) * span + (tracks - lowest).astype(np.int64)
    return np.argsort(keys.astype(np.uint16), kind="stable")


def _is_steady(yaws: Array, extents: Array, thresholds: MaskThresholds) -> NDArray[np.bool_]:
    """(N - 1,) whether yaw and area hardly change from one row to the next."""
    degrees = np.degrees(yaws)
    turns = np.abs((degrees[1:] - degrees[:-1] + 180) % 360 - 180)
    areas = extents[:, 0] * extents[:, 1]
    larger, smaller = np.maximum(areas[1:], areas[:-1]), np.minimum(areas[1:], areas[:-1])
    has_area = smaller >= MIN_AREA_M2
    ratios = np.divide(larger, smaller, out=np.full_like(larger, np.inf), where=has_area)
    steady: NDArray[np.bool_] = has_area & (turns < thresholds.yaw_degrees)
    steady &= ratios < thresholds.extent_ratio
    return steady


def agents_mask_of(
    dataset: ChunkedDataset, thresholds: MaskThresholds, cache_folder: str | os.PathLike[str] | None = None
) -> NDArray[np.uint32]:
    """The mask of a dataset: the one that lies in it, else one computed earlier, else computed and kept.

    Args:
        cache_folder: where computed masks are kept, never the dataset itself; None for the folder that
            LOGLOOM_CACHE names, or ~/.cache/logloom. Datasets in memory keep none.

    Raises:
        DatasetError: the dataset's mask has another shape than its agents; and as compute_agents_mask.
    """
    if not dataset.path:
        return compute_agents_mask(dataset, thresholds)
    stored = _stored_mask(dataset, thresholds)
    if stored is not None:
        return stored
    folder = pathlib.Path(cache_folder) if cache_folder is not None else default_cache()
    path = folder / "agents_mask" / f"{_fingerprint(dataset, thresholds)}.npy"
    shape = (len(dataset.agents), 2)
    kept = _read_kept(path, shape)
    if kept is not None:
        return kept
    mask = compute_agents_mask(dataset, thresholds)
    _keep(path, mask)
    return mask


def default_cache() -> pathlib.Path:
    """The folder for what can be computed again."""
    named = os.environ.get(CACHE_VARIABLE)
    if named:
        return pathlib.Path(named)
    base = os.environ.get("XDG_CACHE_HOME")
    return pathlib.Path(base or os.path.expanduser("~/.cache")) / "logloom"


def _stored_mask(dataset: ChunkedDataset, thresholds: MaskThresholds) -> NDArray[np.uint32] | None:
    """The mask that the dataset carries for these thresholds; its name says only the first."""
    if thresholds != MaskThresholds(thresholds.agent_probability):
        return None
    name = f"agents_mask/{thresholds.agent_probability}"
    if not _folder_of(dataset).exists(f"{name}/.zarray"):
        return None
    try:
        mask = dataset.root[name][:]
    except (ValueError, TypeError, KeyError, RuntimeError, OSError) as error:
        raise DatasetError(f"{dataset.path}/{name}: can't be read: {error}") from error
    if mask.shape != (len(dataset.agents), 2) or mask.dtype.kind not in "iu":
        raise DatasetError(
            f"{dataset.path}/{name}: {mask.dtype}{list(mask.shape)}, it should hold two counts for each of "
            f"{len(dataset.agents)} agents; remove it to have it computed"
        )
    counts: NDArray[np.uint32] = mask.astype(np.uint32)
    return counts


def _fingerprint(dataset: ChunkedDataset, thresholds: MaskThresholds) -> str:
    """A name that changes with the thresholds, and with the dataset's place or any of its files."""
    store = _folder_of(dataset)
    digest = blake3(repr((store.uri, astuple(thresholds))).encode())
    for array in ("scenes", "frames", "agents"):
        for name in store.names(array):
            digest.update(repr((array, name, _state_of(store, f"{array}/{name}"))).encode())
    return str(digest.hexdigest(length=16))


def _state_of(store: Store, name: str) -> Any:
    """Size and time of change of a file, as far as its storage tells."""
    if store.local is not None:
        stat = (store.local / name).stat()
        return stat.st_size, stat.st_mtime_ns
    info = store.fs.info(store.uri_of(name))
    return info.get("size"), str(info.get("ETag") or info.get("mtime") or info.get("updated"))


def _folder_of(dataset: ChunkedDataset) -> Store:
    store = Store.at(dataset.path, dataset.storage_options)
    return Store(store.uri_of(dataset.key.strip("/")), store.options)


def _read_kept(path: pathlib.Path, shape: tuple[int, int]) -> NDArray[np.uint32] | None:
    try:
        mask: Array = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None  # not there, or damaged: computed again
    return mask if mask.shape == shape and mask.dtype == np.uint32 else None


def _keep(path: pathlib.Path, mask: NDArray[np.uint32]) -> None:
    data = io.BytesIO()
    np.save(data, mask)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        Store.at(str(path.parent)).replace(path.name, data.getvalue())
    except (OSError, StorageError) as error:
        # The mask itself is whole: training goes on, and the next run computes it again.
        logger.warning(
            "%s: the agents mask can't be kept here: %s. Set %s to another folder",
            path,
            error,
            CACHE_VARIABLE,
        )
