"""Tagging: which version a name may be given to.

Elsewhere: where tags are kept, and how a change of them is never lost (logloom.io.catalog.tags).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from logloom.errors import UsageError
from logloom.io.catalog.manifest import resolve_version
from logloom.io.catalog.tags import change_tags, check_tag, had_tag
from logloom.io.catalog.version_files import version_numbers
from logloom.io.storage.store import Store
from logloom.text import near_to


def tag(
    store: Store, version: int | str, names: Iterable[str], *, move: bool = False
) -> tuple[int, dict[str, int]]:
    """Names a version.

    Args:
        store: the root.
        version: a number, a tag or "latest".
        names: the tags.
        move: also where a name is another version's.

    Returns:
        The version's number, and all tags of the root, each with its version.

    Raises:
        UsageError: a name can't be a tag, or is another version's; there is no such version, or it
            was removed meanwhile.
    """
    names = list(names)
    for name in names:
        check_tag(name)
    number = resolve_version(store, version)
    before: dict[str, int] = {}

    def change(tags: Mapping[str, int]) -> dict[str, int]:
        for name in names:
            if not move and tags.get(name, number) != number:
                raise UsageError(f"{store.uri}: {name!r} names version {tags[name]}; use --move to move it")
        before.clear()
        before.update((name, tags[name]) for name in names if name in tags)
        return {**tags, **dict.fromkeys(names, number)}

    def take_back(tags: Mapping[str, int]) -> dict[str, int]:
        others = {name: at for name, at in tags.items() if name not in names or at != number}
        return {**before, **others}

    tags = change_tags(store, change)
    # `gc` notes a version as removed, then looks for new tags; so one of both sees the other.
    if number in version_numbers(store):
        return number, tags
    change_tags(store, take_back)
    if number in version_numbers(store):  # both saw the other: `gc` has brought it back
        return tag(store, number, names, move=move)
    raise UsageError(f"{store.uri}: version {number} was removed by `logloom gc` meanwhile; tag another")


def remove_tags(store: Store, names: Iterable[str]) -> dict[str, int]:
    """Remove names of versions; the versions stay.

    Args:
        store: the root.
        names: the tags to remove.

    Returns:
        The tags that stay, each with its version.

    Raises:
        UsageError: no version has, or had, such a name; lists those there are.
    """
    names = list(names)
    resolve_version(store, "latest")

    def change(tags: Mapping[str, int]) -> dict[str, int]:
        for name in names:
            if name not in tags and not had_tag(store, name):
                raise UsageError(f"{store.uri}: no version has the tag {name!r}{near_to(name, sorted(tags))}")
        return {name: number for name, number in tags.items() if name not in names}

    return change_tags(store, change)
