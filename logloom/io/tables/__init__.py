"""Blob tables: rows of tensors of any size, with a small index that pandas can query.

import logloom.io.tables as tt

index = tt.read_index("s3://…/sensors")
index = tt.merge(index, tt.read_index("s3://…/labels"), on=["log_id", "timestamp"])
loader = tt.row_loader(index[index.pedestrians_count > 3])
row = loader.get_row(0, columns=["lidar.*", "labels.*"])
"""

from typing import Any

_HOMES = {
    "BlockReader": "unit",
    "Cost": "plans",
    "ReadFromTable": "beam",
    "RowLoader": "loader",
    "RowPositionError": "loader",
    "WriteToTable": "beam",
    "commit_table": "write",
    "infer_types": "rows",
    "merge": "merging",
    "read_index": "index",
    "row_loader": "loader",
    "verify": "verifying",
    "write_part": "write",
    "write_table": "write",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
