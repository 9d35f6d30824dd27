"""The recipe: a short YAML file, or the same in Python, that says what to build from which logs."""

from logloom.recipe.columns import DerivedColumn, TopicColumn
from logloom.recipe.model import (
    Clock,
    Keep,
    LogName,
    LogTable,
    Partition,
    Recipe,
    Rows,
    SkipBudget,
    Split,
    Time,
)

__all__ = [
    "Clock",
    "DerivedColumn",
    "Keep",
    "LogName",
    "LogTable",
    "Partition",
    "Recipe",
    "Rows",
    "SkipBudget",
    "Split",
    "Time",
    "TopicColumn",
]
