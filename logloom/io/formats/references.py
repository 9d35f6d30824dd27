"""References between datasets: units that point into other datasets.

Here: the protocols `ReferringFormat`, of units that point elsewhere, and `ReferredFormat`, of the others.
Elsewhere: the protocol of all formats (interface), garbage collection, which uses both
(logloom.pipelines.gc.retention).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from logloom.io.storage.store import Store
from logloom.values import dataclass


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
