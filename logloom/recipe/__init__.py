"""The recipe, in YAML or Python, which defines a dataset to build from logs."""

from logloom.recipe.columns import DerivedColumn, LabelColumn, TopicColumn, TransformColumn
from logloom.recipe.model import Recipe
from logloom.recipe.sections import Clock, Keep, LogName, LogTable, Partition, Rows, SkipBudget, Split, Time

__all__ = [
    "Clock",
    "DerivedColumn",
    "Keep",
    "LabelColumn",
    "LogName",
    "LogTable",
    "Partition",
    "Recipe",
    "Rows",
    "SkipBudget",
    "Split",
    "Time",
    "TopicColumn",
    "TransformColumn",
]
