"""Portions of units, which units of later versions share.

Here: the `PortionedFormat` protocol, and the `Portion` that its writers get.
Elsewhere: the protocol of all formats (interface), storing and reusing portions
(logloom.transforms.build.unit_portions).
"""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from logloom.io.catalog.entries import Entry
from logloom.schema import Schema
from logloom.values import dataclass


@dataclass(frozen=True)
class Portion:
    """A share of a unit that has an identity of its own, since its bytes depend on less than the unit's.

    A unit of a later version that needs an equal portion points to it, and doesn't write it again.

    Attributes:
        identity: names its folder, which lies beside the unit's.
        uri: of that folder.
        scratch: an empty local folder to write it into; None where it is finished.
        finished: its entry, whose `unit` is what closing the unit that wrote it said of it.
    """

    identity: str
    uri: str
    scratch: pathlib.Path | None
    finished: Entry | None = None


@runtime_checkable
class PortionedFormat(Protocol):
    """A format whose units consist of portions: column groups that are reused when another one changes.

    What its writer's `close` gives has a key "portions": name to what is to be known of each (JSON).
    """

    def portions(self, options: Any, schema: Schema) -> Mapping[str, tuple[Sequence[str], Any]]:
        """Each portion's name, the columns (of `Schema.all`) in it, and the options (JSON) it is made by."""
