"""Blob tables: rows of tensors of any size, with an index for pandas.

import logloom.io.formats.table as tt

index = tt.read_index("s3://…/sensors")
index = tt.merge(index, tt.read_index("s3://…/labels"), on=["log_id", "timestamp"])
loader = tt.row_loader(index[index.pedestrians_count > 3])
row = loader.get_row(0, columns=["lidar.*", "labels.*"])
"""

from typing import TYPE_CHECKING

from logloom.extras import imported_on_use

if TYPE_CHECKING:
    from logloom.io.formats.table.beam import ReadFromTable, WriteToTable
    from logloom.io.formats.table.format import FORMAT
    from logloom.io.formats.table.index.index import read_index
    from logloom.io.formats.table.read.loader import RowLoader, RowPositionError, row_loader
    from logloom.io.formats.table.read.merge import merge
    from logloom.io.formats.table.read.plans import Cost
    from logloom.io.formats.table.unit import BlockReader
    from logloom.io.formats.table.verification import verify
    from logloom.io.formats.table.write.user_rows import infer_types
    from logloom.io.formats.table.write.write import commit_table, write_part, write_table

_HOMES = {
    ".beam": ["ReadFromTable", "WriteToTable"],
    ".format": ["FORMAT"],
    ".index.index": ["read_index"],
    ".read.loader": ["RowLoader", "RowPositionError", "row_loader"],
    ".read.merge": ["merge"],
    ".read.plans": ["Cost"],
    ".write.user_rows": ["infer_types"],
    ".unit": ["BlockReader"],
    ".verification": ["verify"],
    ".write.write": ["commit_table", "write_part", "write_table"],
}

__all__ = [
    "FORMAT",
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
