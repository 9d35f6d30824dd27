"""The summary of a unit that its writer returns on closing, which is kept in the unit's entry.

Here: the fields of all formats (`Closed`), and `check_unit`, which validates an entry for a format.
Elsewhere: writers (logloom.io.formats.interface), entries (logloom.io.catalog.entries).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from logloom.io.storage.metadata import Count, Text, checked


class Closed(BaseModel):
    """What all writers say on closing a unit; formats say more."""

    log_id: Text
    partition: Text
    rows: Count


def check_unit(kind: type[BaseModel], unit: Mapping[str, Any], folder: str) -> None:
    """Makes sure that an entry says of its unit what the format wants to know.

    Args:
        unit: as its writer's `close` gave it; {} where the unit has no rows.
        folder: URI of the unit's folder.

    Raises:
        DatasetError: it doesn't; names the field.
    """
    if unit:
        checked(kind, unit, f"{folder}: the unit's entry: unit", "remove this folder and build again")
