"""The agents mask of a dataset: stored in it, or computed once and cached.

Elsewhere: what a mask counts (logloom.io.formats.l5kit.mask), choosing agents by it (datasets).
"""

from __future__ import annotations

import io
import logging
import os
import pathlib
from dataclasses import astuple

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from logloom.blocks import Array
from logloom.errors import StorageError
from logloom.io.formats.l5kit import ChunkedDataset
from logloom.io.formats.l5kit.mask import MaskThresholds, compute_agents_mask
from logloom.io.formats.l5kit.mask_chunks import open_mask
from logloom.io.storage.store import Store

logger = logging.getLogger(__name__)

CACHE_VARIABLE = "LOGLOOM_CACHE"


def agents_mask_of(
    dataset: ChunkedDataset, thresholds: MaskThresholds, cache_folder: str | os.PathLike[str] | None = None
) -> NDArray[np.uint32]:
    """Return the mask of a dataset: its own, else a cached one, else a new one, which is cached.

    Args:
        cache_folder: cache of computed masks, never the dataset itself; None for the folder that
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
    probability = thresholds.agent_probability
    if thresholds != MaskThresholds(probability):
        return None
    for name in dict.fromkeys((str(probability), str(float(probability)))):
        mask = open_mask(dataset, name)
        if mask is not None:
            counts: NDArray[np.uint32] = mask[:].astype(np.uint32)
            return counts
    return None


def _fingerprint(dataset: ChunkedDataset, thresholds: MaskThresholds) -> str:
    """A name that changes with the thresholds, and with the dataset's place or any of its files."""
    store = dataset.store
    digest = blake3(repr((store.uri, astuple(thresholds))).encode())
    for array in ("scenes", "frames", "agents"):
        for name in store.names(array):
            digest.update(repr((array, name, store.state(f"{array}/{name}"))).encode())
    return str(digest.hexdigest(length=16))


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
