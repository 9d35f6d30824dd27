"""OpenMMLab 2.0 annotation files as datasets with the interface of BaseDataset.

Needs neither mmengine nor torch; each name is imported on first use.
"""

from typing import TYPE_CHECKING

from logloom.extras import imported_on_use

if TYPE_CHECKING:
    from logloom.datasets.openmmlab.dataset import BaseDataset
    from logloom.datasets.openmmlab.registry import DATASETS, TRANSFORMS, Compose, Registry, force_full_init
    from logloom.datasets.openmmlab.version_dataset import LogloomDataset
    from logloom.datasets.openmmlab.wrappers import ClassBalancedDataset, ConcatDataset, RepeatDataset

__all__ = [
    "DATASETS",
    "TRANSFORMS",
    "BaseDataset",
    "ClassBalancedDataset",
    "Compose",
    "ConcatDataset",
    "LogloomDataset",
    "Registry",
    "RepeatDataset",
    "force_full_init",
]

_HOMES = {
    ".dataset": ["BaseDataset"],
    ".registry": ["DATASETS", "TRANSFORMS", "Compose", "Registry", "force_full_init"],
    ".version_dataset": ["LogloomDataset"],
    ".wrappers": ["ClassBalancedDataset", "ConcatDataset", "RepeatDataset"],
}

__getattr__ = imported_on_use(__name__, _HOMES)
