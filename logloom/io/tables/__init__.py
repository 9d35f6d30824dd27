"""Blob tables: rows of tensors of any size, with a small index that pandas can query.

import logloom.io.tables as tt

index = tt.read_index("s3://…/sensors")
index = tt.merge(index, tt.read_index("s3://…/labels"), on=["log_id", "timestamp"])
loader = tt.row_loader(index[index.pedestrians_count > 3])
row = loader.get_row(0, columns=["lidar.*", "labels.*"])
"""

from typing import TYPE_CHECKING

from logloom.extras import imported_on_use

if TYPE_CHECKING:
    from logloom.io.tables.beam import ReadFromTable, WriteToTable
    from logloom.io.tables.index import read_index
    from logloom.io.tables.loader import RowLoader, RowPositionError, row_loader
    from logloom.io.tables.merging import merge
    from logloom.io.tables.plans import Cost
    from logloom.io.tables.rows import infer_types
    from logloom.io.tables.unit import BlockReader
    from logloom.io.tables.verifying import verify
    from logloom.io.tables.write import commit_table, write_part, write_table

_HOMES = {
    ".beam": ["ReadFromTable", "WriteToTable"],
    ".index": ["read_index"],
    ".loader": ["RowLoader", "RowPositionError", "row_loader"],
    ".merging": ["merge"],
    ".plans": ["Cost"],
    ".rows": ["infer_types"],
    ".unit": ["BlockReader"],
    ".verifying": ["verify"],
    ".write": ["commit_table", "write_part", "write_table"],
}

__all__ = [
    "BlockReader",
    "Cost",
    "ReadFromTable",
    "RowLoader",
    "RowPositionError",
    "WriteToTable",
    "commit_table",
    "infer_types",
    "merge",
    "read_index",
    "row_loader",
    "verify",
    "write_part",
    "write_table",
]

__getattr__ = imported_on_use(__name__, _HOMES)
