"""Names of the files of versions, and the version numbers of a root.

Elsewhere: their content (logloom.io.catalog.manifest), and notes of removed versions
(logloom.io.catalog.removal_notes).
"""

from __future__ import annotations

import itertools
import re
from typing import NamedTuple

from logloom.errors import DatasetError, UsageError
from logloom.io.catalog.removal_notes import removed_file
from logloom.io.storage.filesystems import explained
from logloom.io.storage.store import TEMPORARY, Store
from logloom.text import some_of

_VERSION_FILE = re.compile(r"(\d{8})\.(json|removed|blake3)")
_MAX_LOST = 1000  # versions, that are reported: a stray file 99999999.json makes a long gap
_ROOT_NAMES = re.compile(rf"parts|logs|versions|runs|index|referenced-by|{TEMPORARY}|v\d{{8}}")


def version_file(number: int) -> str:
    return f"versions/{number:08d}.json"


def view_folder(number: int) -> str:
    return f"v{number:08d}"


def runs_folder(number: int) -> str:
    """Return the folder for notes of the builds of a version."""
    return f"runs/{number:08d}"


def check_root(store: Store) -> None:
    """Make sure that a folder is a root of logloom, or may become one.

    Raises:
        UsageError: it holds other things, and no versions.
    """
    for place in (store.local, *store.local.parents) if store.local is not None else ():
        with explained(str(place)):
            is_file = place.is_file()
        if is_file:
            raise UsageError(f"{place}: is a file; --to requires a folder")
    strange = [name for name in store.names() if not is_root_name(name)]
    if strange and not any(all_versions(store)):  # a root with versions may contain other files
        raise UsageError(
            f"{store.uri}: not a logloom root, it contains {some_of(strange, 3)}; choose an empty or new "
            "folder"
        )


def is_root_name(name: str) -> bool:
    """Return whether something directly in a root may be logloom's."""
    return _ROOT_NAMES.fullmatch(name) is not None


def version_numbers(store: Store) -> list[int]:
    """The versions that there are, ascending: all that were committed, but for those that were removed."""
    return all_versions(store).there


class VersionNumbers(NamedTuple):
    """The numbers of a root's versions, ascending.

    Attributes:
        there: that can be opened.
        removed: with a note; a lost version that was given up has no manifest.
        lost: whose manifest is gone without such a note.
    """

    there: list[int]
    removed: list[int]
    lost: list[int]

    @property
    def next(self) -> int:
        """The number that no version had yet."""
        return max(itertools.chain(*self), default=0) + 1

    @property
    def is_newest_lost(self) -> bool:
        """Whether a version is lost that is newer than all that are there."""
        return bool(self.lost) and self.lost[-1] > max(self.there, default=0)


def all_versions(store: Store) -> VersionNumbers:
    """The versions that there are, those that were removed, and those whose manifest is lost.

    The newest one is always there, whatever a note says: the next build follows it. A manifest is lost where
    its digest, which is written after it, is there, or a later version: numbers have no gaps.
    """
    found = _listed_versions(store)
    if found.lost:
        # A disk may list in part what is committed just then; what it listed before is whole by now.
        again = _listed_versions(store)
        found = again._replace(lost=sorted({*found.lost}.intersection(again.lost)))
    return found


def _listed_versions(store: Store) -> VersionNumbers:
    matches = [match for name in store.names("versions") if (match := _VERSION_FILE.fullmatch(name))]
    committed, noted, told = (
        {int(match[1]) for match in matches if match[2] == kind} for kind in ("json", "removed", "blake3")
    )
    removed = noted - {max(committed, default=0)}
    before = (number for number in range(1, max(committed, default=0)) if number not in committed | noted)
    lost = {*itertools.islice(before, _MAX_LOST), *(told - committed - noted)}
    return VersionNumbers(sorted(committed - removed), sorted(removed), sorted(lost))


def lost_manifest(store: Store, number: int) -> DatasetError:
    """Return the error, with a remedy, for a version whose manifest is lost."""
    return DatasetError(
        f"{store.uri_of(version_file(number))}: the manifest of version {number} is lost, and no other "
        "file has its content: put it back from a backup; or give the version up by an empty file "
        f"{removed_file(number)}, and the next `logloom gc` removes what only it needed"
    )
