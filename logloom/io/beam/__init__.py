"""Connectors for Beam pipelines: transforms between datasets, logs and blocks.

`ReadFrom` and `ReadAllFrom` read datasets, `ReadFromLogs` logs by a recipe; `GroupRows` makes blocks of loose
rows, and `to_rows` rows of blocks; `WriteTo` writes a dataset. Formats are given by name, or as objects.
"""

from typing import TYPE_CHECKING

from logloom.extras import imported_on_use

if TYPE_CHECKING:
    from logloom.io.beam.read import ReadAllFrom, ReadDataset, ReadFrom, ReadUnits
    from logloom.io.beam.rows import GroupRows, field_of, to_rows
    from logloom.io.beam.write import WriteTo, Written
    from logloom.transforms.beam.log_rows import IncompleteLog
    from logloom.transforms.beam.read_logs import ReadFromLogs, ReadLogs

__all__ = [
    "GroupRows",
    "IncompleteLog",
    "ReadAllFrom",
    "ReadDataset",
    "ReadFrom",
    "ReadFromLogs",
    "ReadLogs",
    "ReadUnits",
    "WriteTo",
    "Written",
    "field_of",
    "to_rows",
]

_LAZY = {
    ".read": ["ReadAllFrom", "ReadDataset", "ReadFrom", "ReadUnits"],
    ".rows": ["GroupRows", "field_of", "to_rows"],
    ".write": ["WriteTo", "Written"],
    "logloom.transforms.beam.log_rows": ["IncompleteLog"],
    "logloom.transforms.beam.read_logs": ["ReadFromLogs", "ReadLogs"],
}

__getattr__ = imported_on_use(__name__, _LAZY)
