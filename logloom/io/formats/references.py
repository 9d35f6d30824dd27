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
    """A format whose units may point into datasets that are there already."""

    def pinned(self, options: Any, storage_options: Mapping[str, Any]) -> Any:
        """Options that mean the versions of datasets that they mean now, whatever is committed later.

        Raises:
            DatasetError: one of them is missing or damaged.
        """

    def references_digest(self, options: Any, storage_options: Mapping[str, Any]) -> str:
        """Digest of what describes the datasets referred to, "" for none; part of every unit's identity.

        Raises:
            DatasetError: one of them is missing or damaged.
        """


@dataclass(frozen=True)
class Users:
    """What datasets elsewhere need of a root.

    Attributes:
        folders: of the units that they point into.
        unknown: why nobody knows what some of them need; then no unit of the output can be removed.
    """

    folders: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


@runtime_checkable
class ReferredFormat(Protocol):
    """A format into whose units datasets elsewhere may point, which leave notes where they do."""

    name: str

    def users(self, store: Store) -> Users:
        """What datasets elsewhere need of a root."""

    def notes(self, store: Store, version: int | None = None) -> list[str]:
        """Names of the notes: of what points into units, or into the view of a version."""

    def user_of(self, store: Store, note: str) -> str:
        """The URI of the dataset or the root that left a note.

        Raises:
            DatasetError: the note is damaged.
        """
