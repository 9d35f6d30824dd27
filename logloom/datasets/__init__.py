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
    "Dataset": "logloom.datasets.dataset",
    "FoundIntervals": "logloom.datasets.finding",
    "Interval": "logloom.datasets.finding",
    "Loader": "logloom.datasets.loader",
    "Mixture": "logloom.datasets.mixing",
    "Nearest": "logloom.datasets.splitting",
    "SharedArray": "logloom.datasets.loader",
    "UncheckedWarning": "logloom.io.checks",
    "concat": "logloom.datasets.concatenation",
    "find": "logloom.datasets.finding",
    "mix": "logloom.datasets.mixing",
    "nearest": "logloom.datasets.splitting",
    "open": "logloom.datasets.opening",
    "split": "logloom.datasets.splitting",
    "torch_dataset": "logloom.datasets.loader",
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
