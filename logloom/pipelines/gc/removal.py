"""Removal of files by garbage collection, with counts; a dry run only counts.

Here: `Removal`, and its result (`Collected`).
Elsewhere: which files to remove (gc), the notes by which builds learn of removals
(logloom.io.catalog.removal_notes).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import field

from logloom.io.catalog.entries import ENTRY
from logloom.io.catalog.removal_notes import removing
from logloom.io.storage.file_ages import FoundFile, changed_at, listed, remove_files
from logloom.io.storage.filesystems import explained
from logloom.io.storage.store import Store
from logloom.values import dataclass

_AT_A_TIME = 256  # files that are removed between two looks at the clock


@dataclass
class Amount:
    """How much of a kind is removed."""

    items: int = 0
    files: int = 0
    bytes: int = 0


@dataclass
class Collected:
    """What a garbage collection removed; of a dry run, would remove.

    Attributes:
        kept: versions that stay.
        removed: versions that were taken out now.
        waiting: versions that were taken out, now or before, whose files stay until the grace is over.
        amounts: by kind: "units" (portions and assembled outputs, too), "log parts", "pages", "views",
            "intervals", "index", "runs" and "scratch".
        unknown: names that logloom didn't write.
        notes: what else is to be said.
    """

    dry_run: bool
    kept: tuple[int, ...] = ()
    removed: tuple[int, ...] = ()
    waiting: tuple[int, ...] = ()
    amounts: dict[str, Amount] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        return sum(amount.bytes for amount in self.amounts.values())


class Removal:
    """Removes files of a root that are old.

    Attributes:
        done: what was removed so far.
    """

    def __init__(self, store: Store, now: float, cutoff: float, dry_run: bool):
        """
        Args:
            cutoff: what changed before this time is old.
        """
        self._store, self._now, self._cutoff, self._dry = store, now, cutoff, dry_run
        self.done = Collected(dry_run)

    def _count(self, kind: str, files: Sequence[FoundFile], size: int | None = None) -> None:
        amount = self.done.amounts.setdefault(kind, Amount())
        amount.items += 1
        amount.files += len(files)
        amount.bytes += sum(file.size for file in files) if size is None else size

    def _is_file(self, name: str) -> bool:
        store = self._store
        with explained(store.uri_of(name)):
            if store.local is not None:
                return store.path_of(name).is_file()
            return bool(store.fs.isfile(store.fs_path(name)))

    def _remove_units(self, folders: Sequence[str], check: Callable[[], None]) -> None:
        """Removes units that are noted as being removed; a build may have written some anew just before."""
        old = {folder: files for folder in folders if (files := self._old_files(folder))}
        # First, so that nobody takes what is half gone for finished.
        self._remove([f"{folder}/{ENTRY}" for folder in old], check)
        if self._store.local is None:
            self._remove([file.name for files in old.values() for file in files], check)
        for folder, files in old.items():
            if self._store.local is not None:
                check()
                remove_files(self._store, [file.name for file in files], within=folder)
            self._count("units", files)

    def _remove(self, names: Sequence[str], check: Callable[[], None], within: str = "") -> None:
        for start in range(0, len(names), _AT_A_TIME):
            check()
            remove_files(self._store, names[start : start + _AT_A_TIME], within)

    def _old_files(self, folder: str) -> list[FoundFile]:
        """The files of a folder; none where one of them is young."""
        files = list(listed(self._store, folder))
        return files if all(file.changed < self._cutoff for file in files) else []

    def _remove_single(self, kind: str, files: Sequence[FoundFile], within: str = "") -> None:
        """Remove files that are old.

        Args:
            within: a folder; those in it that become empty go, too.
        """
        if self._dry:
            for file in files:
                self._count(kind, [file])
        elif files:
            with removing(self._store, [file.name for file in files], self._now - self._cutoff) as check:
                old = [file for file in files if self._is_old(file.name)]
                for folder, own in itertools.groupby(old, lambda file: _below(within, file.name)):
                    self._remove([file.name for file in own], check, folder)
            for file in old:
                self._count(kind, [file])

    def _is_old(self, name: str) -> bool:
        changed = changed_at(self._store, name)
        return changed is not None and changed < self._cutoff

    def _remove_scratch(self, folder: str) -> None:
        if self._store.path_of(folder).is_dir():
            self._store.remove_all(folder)
        else:
            self._store.remove(folder)


def _below(folder: str, name: str) -> str:
    """The folder directly in another one that a file is in; "" for a file that is in no such folder."""
    steps = name.removeprefix(f"{folder}/").split("/")
    return f"{folder}/{steps[0]}" if folder and len(steps) > 1 else ""
