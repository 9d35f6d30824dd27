"""What a training script opens. Needs neither Beam nor torch; each name is imported on first use."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from logloom.datasets.concatenation import concat
    from logloom.datasets.dataset import Dataset
    from logloom.datasets.loader import Loader, SharedArray, torch_dataset
    from logloom.datasets.opening import open
    from logloom.io.checks import UncheckedWarning

_HOMES = {
    "Dataset": "logloom.datasets.dataset",
    "Loader": "logloom.datasets.loader",
    "SharedArray": "logloom.datasets.loader",
    "UncheckedWarning": "logloom.io.checks",
    "concat": "logloom.datasets.concatenation",
    "open": "logloom.datasets.opening",
    "torch_dataset": "logloom.datasets.loader",
}

__all__ = ["Dataset", "Loader", "SharedArray", "UncheckedWarning", "concat", "open", "torch_dataset"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
