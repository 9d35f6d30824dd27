"""Notes of removals from a root, for builds that run at the same time.

    versions/00000005.removed              the version is removed; its manifest stays, so its number is taken
    runs/removing/<process>                files and folders that a process is about to remove
    runs/removing/<process>.done           it is done, and removes none of them any more

Here: these notes. A process that removes a file writes a note, then checks the file's age again; a build that
reuses a file renews it, then looks for notes. So one of both sees the other, however they interleave.
Elsewhere: what is garbage (logloom.pipelines.gc.gc), and builds that reuse files
(logloom.transforms.build.reuse).
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from logloom.errors import DatasetError, StorageError
from logloom.io.storage.disk import is_left_behind, locked, own_name
from logloom.io.storage.file_ages import changed_at
from logloom.io.storage.metadata import canonical
from logloom.io.storage.store import Store
from logloom.text import human_seconds

REMOVING = "runs/removing"
WAIT_S = 300.0  # for another process that removes what is needed
_DONE, _REMOVED = ".done", ".removed"
_LASTS_S = 60.0  # a note, however short the grace
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # goes on while the machine sleeps
Keys = NDArray[np.uint64]  # of names: 8 bytes each, since there are millions


def removed_file(number: int) -> str:
    """Return the name of the note that a version is removed."""
    return f"versions/{number:08d}{_REMOVED}"


RETENTION = "retention"
IGNORED_TAGS = "retention that ignores tags"


def mark_removed(store: Store, number: int, why: str) -> None:
    """Mark a version as removed. An existing note is written again, to renew its age."""
    store.replace(removed_file(number), _note_of(number, why))


def is_removed_for(store: Store, number: int, why: str) -> bool:
    """Return whether the note that a version is removed has this reason."""
    return store.read_if_there(removed_file(number)) == _note_of(number, why)


def _note_of(number: int, why: str) -> bytes:
    return canonical({"version": number, "why": why})


def key_of(name: str) -> int:
    """Return the key of the name of a file or a unit's folder."""
    return int.from_bytes(blake3(name.encode(errors="surrogateescape")).digest(8), "little")


def keys_of(names: Iterable[str]) -> Keys:
    """(n,) sorted, each once."""
    return np.unique(np.fromiter(map(key_of, names), np.uint64))


def are_in(keys: Keys, names: Sequence[str]) -> NDArray[np.bool_]:
    """Return (n,) which names have one of the sorted keys; of other names, one in 10**12 does."""
    return keys_in(keys, np.fromiter(map(key_of, names), np.uint64, len(names)))


def keys_in(keys: Keys, wanted: Keys) -> NDArray[np.bool_]:
    """(n,) which of the wanted keys are among sorted ones."""
    if not len(keys):
        return np.zeros(len(wanted), bool)
    places = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.asarray(keys[places] == wanted)


@contextlib.contextmanager
def removing(store: Store, names: Iterable[str], grace_s: float = math.inf) -> Iterator[Callable[[], None]]:
    """Announce that files and folders are being removed, until the block ends.

    If the block fails, the note stays without a mark: what was removed is unknown.

    Args:
        grace_s: seconds after which the note may be forgotten.

    Gives what is to be called right before each removal; it raises StorageError where half the grace is over,
    as after the process was suspended: builds that begin later may not see the note.
    """
    note = f"{REMOVING}/{own_name()}"
    lasts = _lasts(grace_s)
    noted = time.clock_gettime(_CLOCK)

    def check() -> None:
        took = time.clock_gettime(_CLOCK) - noted
        if took > lasts:
            raise StorageError(
                f"{store.uri_of(note)}: noted {human_seconds(took)} ago what was to be removed, while the "
                f"grace is {human_seconds(grace_s)}: this process was suspended, and a build may use it by "
                "now. Nothing more was removed; run `logloom gc` again"
            )

    store.create(note, keys_of(names).astype("<u8").tobytes())
    with locked(store.path_of(note)) if store.local else contextlib.nullcontext():
        yield check
    store.create(f"{note}{_DONE}", b"")


class Removals:
    """The recent notes of removals in a root.

    Attributes:
        keys: sorted; of all names in them.
    """

    def __init__(self, store: Store):
        self._store = store
        self._notes = {note: _keys_in(store, note) for note in _notes(store)}
        self.keys = np.unique(np.concatenate([np.empty(0, np.uint64), *self._notes.values()]))

    def wait(self, name: str) -> None:
        """Wait until the removal of files or folders has ended.

        Raises:
            StorageError: it goes on, or was interrupted.
        """
        notes = [f"{REMOVING}/{note}" for note, keys in self._notes.items() if are_in(keys, [name])[0]]
        waited = 0.0
        for note in notes:
            # A note goes before its mark of being done: one that was forgotten meanwhile has neither.
            while not self._store.exists(f"{note}{_DONE}") and self._store.exists(note):
                if waited >= WAIT_S:
                    place = self._store.uri_of(note)
                    raise StorageError(
                        f"{self._store.uri_of(name)}: is being removed by `logloom gc` or `purge`, see "
                        f"{place}. Build again once that is done; if it was killed, run it again, or "
                        "remove that file"
                    )
                time.sleep(1.0)
                waited += 1.0


def _notes(store: Store) -> list[str]:
    return [name for name in store.names(REMOVING) if not name.endswith(_DONE) and name[0] != "."]


def _keys_in(store: Store, note: str) -> Keys:
    name = f"{REMOVING}/{note}"
    if (data := store.read_if_there(name)) is None:
        return np.empty(0, np.uint64)  # old, and just forgotten
    if len(data) % 8:
        raise DatasetError(f"{store.uri_of(name)}: damaged, it doesn't contain whole names; remove it")
    return np.frombuffer(data, "<u8").astype(np.uint64)


def forget_removals(store: Store, now: float, grace_s: float = math.inf) -> None:
    """Remove notes that no build can need any more; mark those of ended processes as done.

    A build that began before a note's last removal may still have to see it: before it was marked as done, or
    without a mark, up to half a grace after it was written, since `removing` prevents later removals.

    Args:
        now: seconds since the Unix epoch.
        grace_s: builds that began so many seconds ago are over.
    """
    for note in _notes(store):
        name = f"{REMOVING}/{note}"
        noted, done = changed_at(store, name), changed_at(store, f"{name}{_DONE}")
        if noted is not None and (done or noted + _lasts(grace_s)) < now - grace_s:
            store.remove(name)  # first: without its mark of being done it would hold builds up
            store.remove(f"{name}{_DONE}")
        elif store.local is not None and is_left_behind(store.path_of(name)):
            store.create(f"{name}{_DONE}", b"")


def _lasts(grace_s: float) -> float:
    """Seconds for which what was noted may be removed."""
    return max(grace_s / 2, _LASTS_S)
