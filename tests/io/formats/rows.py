"""Schemas of every kind of column, for property tests; see logloom.testing.rows."""

from hypothesis import strategies as st

from logloom.digests import digests_of_rows as digests
from logloom.schema import ColumnType, Schema
from logloom.testing.rows import (
    STRUCT,
    TYPES,
    assert_equal_values,
    cut,
    random_array,
    random_block,
    random_column,
)

__all__ = [
    "STRUCT",
    "TYPES",
    "assert_equal_values",
    "cut",
    "digests",
    "random_array",
    "random_block",
    "random_column",
    "schema_of",
    "schemas",
]


def schema_of(types: list[ColumnType], sampled: bool = True) -> Schema:
    columns = {f"c{k}.part": ctype for k, ctype in enumerate(types)}
    return Schema(columns, tuple(columns)[::2] if sampled else ())


@st.composite
def schemas(draw) -> Schema:
    return schema_of(draw(st.lists(st.sampled_from(TYPES), max_size=5)))
