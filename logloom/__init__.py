"""Weave raw drive logs into versioned training datasets, and read them back.

`import logloom as ll` gives the names below, each imported on first use, and modules such as `ll.datasets`.
"""

from typing import TYPE_CHECKING

from logloom.extras import imported_on_use

if TYPE_CHECKING:
    from logloom.datasets import Loader, mix, open
    from logloom.errors import (
        AfterCommitError,
        BesideError,
        CommitConflictError,
        DatasetError,
        InputError,
        LogloomError,
        LogReadError,
        OvertakenError,
        PurgedError,
        ReadBackError,
        RecipeError,
        StorageError,
        TruncatedLogError,
        UnknownEncodingError,
        UsageError,
    )
    from logloom.pipelines.commands import build, convert, plan, verify
    from logloom.recipe import Recipe
    from logloom.schema import ColumnType, Schema
    from logloom.transforms.rows.derive.columns import derive

__version__ = "0.1.0"
__all__ = [
    "AfterCommitError",
    "BesideError",
    "ColumnType",
    "CommitConflictError",
    "DatasetError",
    "InputError",
    "Loader",
    "LogReadError",
    "LogloomError",
    "OvertakenError",
    "PurgedError",
    "ReadBackError",
    "Recipe",
    "RecipeError",
    "Schema",
    "StorageError",
    "TruncatedLogError",
    "UnknownEncodingError",
    "UsageError",
    "build",
    "convert",
    "derive",
    "mix",
    "open",
    "plan",
    "verify",
]

_HOMES = {
    "logloom.datasets": ["Loader", "mix", "open"],
    "logloom.errors": [name for name in __all__ if name.endswith("Error")],
    "logloom.pipelines.commands": ["build", "convert", "plan", "verify"],
    "logloom.recipe": ["Recipe"],
    "logloom.schema": ["ColumnType", "Schema"],
    "logloom.transforms.rows.derive.columns": ["derive"],
}

__getattr__ = imported_on_use(__name__, _HOMES)


def __dir__() -> list[str]:
    """List the names that are imported on use, too; shells complete them."""
    return sorted({*globals(), *__all__, "datasets"})
