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
    """A part of a unit with an identity of its own, since its bytes depend on less than the unit's.

    A unit of a later version that needs an equal portion refers to it instead of writing it again.

    Attributes:
        identity: name of its folder, next to the unit's.
        uri: of that folder.
        scratch: an empty local folder to write it into; None if it is finished.
        finished: its entry, whose `unit` is its summary from the unit that wrote it.
    """

    identity: str
    uri: str
    scratch: pathlib.Path | None
    finished: Entry | None = None


@runtime_checkable
class PortionedFormat(Protocol):
    """A format whose units consist of portions: column groups that are reused when another one changes.

    The result of its writer's `close` has a key "portions": name to the summary of each (JSON).
    """

    def portions(self, options: Any, schema: Schema) -> Mapping[str, tuple[Sequence[str], Any]]:
        """List each portion's name, its columns (of `Schema.all`), and the options (JSON) it depends on."""
