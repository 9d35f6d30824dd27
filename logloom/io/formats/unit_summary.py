"""The summary of a unit, which its writer returns and its entry contains.

Here: the fields of all formats (`Closed`), and `check_unit`, which validates an entry for a format.
Elsewhere: writers (logloom.io.formats.interface), entries (logloom.io.catalog.entries).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from logloom.io.storage.metadata import Count, Text, checked


class Closed(BaseModel):
    """The fields of every unit's summary; formats add more."""

    log_id: Text
    partition: Text
    rows: Count


def check_unit(kind: type[BaseModel], unit: Mapping[str, Any], folder: str) -> None:
    """Check that an entry has the fields of its unit that the format requires.

    Args:
        unit: the result of its writer's `close`; {} if the unit has no rows.
        folder: URI of the unit's folder.

    Raises:
        DatasetError: one is missing or not valid; names the field.
    """
    if unit:
        checked(kind, unit, f"{folder}: the unit's entry: unit", "remove this folder and build again")
