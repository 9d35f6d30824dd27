"""Datasets for training: opening, searching, splitting, mixing and loading them.

Needs neither Beam nor torch; each name is imported on first use.
"""

from typing import TYPE_CHECKING

from logloom.extras import imported_on_use

if TYPE_CHECKING:
    from logloom.datasets.dataset import Dataset
    from logloom.datasets.loader.loader import Loader, SharedArray, torch_dataset
    from logloom.datasets.loader.rows_seen import rows_seen
    from logloom.datasets.mixing.concatenation import concat
    from logloom.datasets.mixing.mixture import Mixture, mix
    from logloom.datasets.opening import open
    from logloom.datasets.search.find import FoundIntervals, Interval, find
    from logloom.datasets.splits.split import Nearest, nearest, split
    from logloom.io.storage.known_files import UncheckedWarning

_HOMES = {
    "logloom.datasets.mixing.concatenation": ["concat"],
    "logloom.datasets.dataset": ["Dataset"],
    "logloom.datasets.search.find": ["FoundIntervals", "Interval", "find"],
    "logloom.datasets.loader.loader": ["Loader", "SharedArray", "torch_dataset"],
    "logloom.datasets.loader.rows_seen": ["rows_seen"],
    "logloom.datasets.mixing.mixture": ["Mixture", "mix"],
    "logloom.datasets.opening": ["open"],
    "logloom.datasets.splits.split": ["Nearest", "nearest", "split"],
    "logloom.io.storage.known_files": ["UncheckedWarning"],
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
    "rows_seen",
    "split",
    "torch_dataset",
]

__getattr__ = imported_on_use(__name__, _HOMES)


def __dir__() -> list[str]:
    """List the names that are imported on use, too; shells complete them."""
    return sorted({*globals(), *__all__})
