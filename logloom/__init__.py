"""Weave raw drive logs into versioned training datasets, and read them back for training and for proof."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from logloom.errors import LogloomError
    from logloom.recipe import Recipe
    from logloom.schema import ColumnType, Schema
    from logloom.transforms.derive import derive

__version__ = "0.1.0"
__all__ = ["ColumnType", "LogloomError", "Recipe", "Schema", "derive"]

_HOMES = {
    "ColumnType": "logloom.schema",
    "LogloomError": "logloom.errors",
    "Recipe": "logloom.recipe",
    "Schema": "logloom.schema",
    "derive": "logloom.transforms.derive",
}


def __getattr__(name: str) -> Any:
    # Imported on first use, so that the command starts at once.
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
