"""Protocols of optional capabilities: portions, references and sequences.

Here: the protocol `PortionedFormat`, and the `Portion` that its writers get; the protocols
`ReferringFormat`, of units that point elsewhere, and `ReferredFormat`, of the others; `SequencedFormat`.
Elsewhere: the protocol of all formats (interface), storing and reusing portions
(logloom.transforms.build.unit_writer), garbage collection, which uses references
(logloom.pipelines.gc.retention).
"""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from logloom.io.catalog.entries import Entry
from logloom.io.storage.store import Store
from logloom.schema import Schema
from logloom.values import dataclass

USERS = "referenced-by"  # the folder of a root, or of a split in a view, with notes of datasets elsewhere


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


@runtime_checkable
class ReferringFormat(Protocol):
    """A format whose units may point into existing datasets."""

    def pinned(self, options: Any, storage_options: Mapping[str, Any]) -> Any:
        """Pin options to the current versions of datasets, whatever is committed later.

        Raises:
            DatasetError: one of them is missing or damaged.
        """

    def references_digest(self, options: Any, storage_options: Mapping[str, Any]) -> str:
        """Digest of the descriptions of datasets referred to, "" for none; part of every unit's identity.

        Raises:
            DatasetError: one of them is missing or damaged.
        """


@dataclass(frozen=True)
class Users:
    """The files of a root that datasets elsewhere need.

    Attributes:
        folders: of the units that they point into.
        unknown: why the needs of some are unknown; then no unit of the output can be removed.
    """

    folders: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


@runtime_checkable
class ReferredFormat(Protocol):
    """A format whose units may be referred to by datasets elsewhere, which leave notes."""

    name: str

    def users(self, store: Store) -> Users:
        """The files of a root that datasets elsewhere need."""

    def notes(self, store: Store, version: int | None = None) -> list[str]:
        """Names of the notes of references into units, or into the view of a version."""

    def user_of(self, store: Store, note: str) -> str:
        """The URI of the dataset or the root that left a note.

        Raises:
            DatasetError: the note is damaged.
        """


@runtime_checkable
class SequencedFormat(Protocol):
    """A format whose rows belong to sequences, which gaps between rows end.

    Attributes:
        sequence: what its dataset calls one: episode, scene.
    """

    sequence: str

    def longest_gap(self, options: Any, period: int | None) -> int | None:
        """Return the longest time between two rows of a sequence, ns; None for any.

        Args:
            options: a value of `Options`.
            period: of a rate clock, ns; None for others.
        """

    def gap_line(self, options: Any, gap: str) -> str:
        """Return the line of a recipe by which sequences go on over gaps of a duration, such as 200ms."""

    def sequences(
        self, units: Sequence[Mapping[str, Any]], options: Any, period: int | None
    ) -> list[tuple[int, int, int]]:
        """List the sequences of a log in time order: rows, and the times of the first and the last one.

        Args:
            units: what the writers of its units returned, in row order.
            options: a value of `Options`.
            period: of a rate clock, ns; None for others.

        Raises:
            UsageError: they don't fit the options.
        """
