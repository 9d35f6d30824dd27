"""What a training script opens. Needs neither Beam nor torch; each name is imported on first use."""

from typing import TYPE_CHECKING

from logloom.extras import imported_on_use

if TYPE_CHECKING:
    from logloom.datasets.concatenation import concat
    from logloom.datasets.dataset import Dataset
    from logloom.datasets.finding import FoundIntervals, Interval, find
    from logloom.datasets.loader import Loader, SharedArray, torch_dataset
    from logloom.datasets.mixing import Mixture, mix
    from logloom.datasets.opening import open
    from logloom.datasets.splitting import Nearest, nearest, split
    from logloom.io.checks import UncheckedWarning

_HOMES = {
    "logloom.datasets.concatenation": ["concat"],
    "logloom.datasets.dataset": ["Dataset"],
    "logloom.datasets.finding": ["FoundIntervals", "Interval", "find"],
    "logloom.datasets.loader": ["Loader", "SharedArray", "torch_dataset"],
    "logloom.datasets.mixing": ["Mixture", "mix"],
    "logloom.datasets.opening": ["open"],
    "logloom.datasets.splitting": ["Nearest", "nearest", "split"],
    "logloom.io.checks": ["UncheckedWarning"],
}

__all__ = [
    "Dataset",
    "FoundIntervals",
    "Interval",
    "Loader",
    "Mixture",
    "Nearest",
    "SharedArray",
    "UncheckedWarning",
    "concat",
    "find",
    "mix",
    "nearest",
    "open",
    "split",
    "torch_dataset",
]

__getattr__ = imported_on_use(__name__, _HOMES)
