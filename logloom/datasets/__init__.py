"""What a training script opens. Needs neither Beam nor torch; each name is imported on first use."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from logloom.datasets.loader import Loader, SharedArray, torch_dataset

__all__ = ["Loader", "SharedArray", "torch_dataset"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from logloom.datasets import loader

        return getattr(loader, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
