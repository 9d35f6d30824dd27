"""What a training script opens. Needs neither Beam nor torch; each name is imported on first use."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from logloom.datasets.concatenation import concat
    from logloom.datasets.dataset import Dataset
    from logloom.datasets.loader import Loader, SharedArray, torch_dataset
    from logloom.datasets.opening import open

_HOMES = {
    "Dataset": "dataset",
    "Loader": "loader",
    "SharedArray": "loader",
    "concat": "concatenation",
    "open": "opening",
    "torch_dataset": "loader",
}

__all__ = ["Dataset", "Loader", "SharedArray", "concat", "open", "torch_dataset"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
