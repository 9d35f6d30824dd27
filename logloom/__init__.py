"""Weave raw drive logs into versioned training datasets, and read them back for training and for proof."""

from typing import TYPE_CHECKING

from logloom.extras import imported_on_use

if TYPE_CHECKING:
    from logloom.errors import LogloomError
    from logloom.recipe import Recipe
    from logloom.schema import ColumnType, Schema
    from logloom.transforms.rows.derive.columns import derive

__version__ = "0.1.0"
__all__ = ["ColumnType", "LogloomError", "Recipe", "Schema", "derive"]

_HOMES = {
    "logloom.errors": ["LogloomError"],
    "logloom.recipe": ["Recipe"],
    "logloom.schema": ["ColumnType", "Schema"],
    "logloom.transforms.rows.derive.columns": ["derive"],
}

__getattr__ = imported_on_use(__name__, _HOMES)
