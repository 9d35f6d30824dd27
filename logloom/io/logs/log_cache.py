"""Cache of opened logs, to avoid opening unchanged logs in later builds.

Here: `RememberedLog`, and `Memory`, their file in a root's `index` folder.
Elsewhere: stamps that identify unchanged files (listings), storing the file
(logloom.io.logs.files.sidecars), its use (logloom.pipelines.plan.logs).

A log is found by a digest over the URIs and stamps of its files. The cache is trusted as far as the manifest:
a log that isn't found, or whose key differs from its record's, is opened. Nothing of it becomes part of a
version, whose bytes don't depend on where and when logs were copied.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import field
from typing import Any, NamedTuple

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from logloom.io.logs.files.sidecars import Sidecars
from logloom.io.logs.interface import LogSummary
from logloom.io.logs.log_list import PRINT, LogFiles, LogList, in_name_order
from logloom.values import dataclass

NAME = "listing"
_WHOLE: Mapping[str, str] = {}  # shared, as there are very many
CONTENT_LENGTH = 64
_CONTENT = re.compile(rf"[0-9a-f]{{{CONTENT_LENGTH}}}")


class TopicKind(NamedTuple):
    """How a log defines a topic, as far as recipes can depend on it.

    Attributes:
        definition: BLAKE3 of the message definition.
        has_messages: whether the log has messages of the topic.
    """

    type: str
    encoding: str
    definition_encoding: str
    definition: str
    has_messages: bool


Topics = Mapping[str, TopicKind]
_Shared = dict[tuple[tuple[str, TopicKind], ...], Topics]


def topic_kinds(summary: LogSummary, topics: Iterable[str]) -> Topics:
    """Return the kinds of those topics that a log has."""
    return {
        name: TopicKind(
            info.type,
            info.encoding,
            info.definition_encoding,
            _digest(info.definition),
            info.num_messages > 0,
        )
        for name in topics
        if (info := summary.topics.get(name)) is not None
    }


@dataclass(frozen=True, slots=True)
class RememberedLog:
    """A log as it was when last opened.

    Attributes:
        uris, content_id, unfinished: see `LogSummary`.
        topics: of the recipe.
    """

    uris: tuple[str, ...]
    content_id: str
    topics: Topics
    unfinished: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls, uris: Sequence[str], summary: LogSummary, topics: Iterable[str], shared: _Shared | None = None
    ) -> RememberedLog | None:
        """Return the cached form of an opened log; None if listings can't identify it.

        Args:
            uris: its files, as they were listed.
            shared: interned topics of other logs, to which this log's are added.
        """
        is_known = summary.is_told_by_files and sorted(summary.uris) == sorted(uris)
        if not is_known or not _CONTENT.fullmatch(summary.content_id):
            return None
        kinds = topic_kinds(summary, topics)
        if shared is not None:
            kinds = shared.setdefault(tuple(sorted(kinds.items())), kinds)
        return cls(summary.uris, summary.content_id, kinds, dict(summary.unfinished))


@dataclass(frozen=True)
class Memory:
    """Cached logs for one way of making content ids and some topics.

    Attributes:
        prints: (N,) PRINT, ascending; digests of the URIs and stamps of each log's files.
        contents: (N, 32) uint8, content ids.
        kinds: (N,) int32, indices of the logs' topics in `profiles`.
        orders: by row, the order of several files of a log among the URIs by name.
        unfinished: by row, see `LogSummary`.
        bags: digest of a folder's listing to its classification, see `Folders`.
    """

    hash: str
    topics: tuple[str, ...]
    prints: NDArray[Any]
    contents: NDArray[np.uint8]
    kinds: NDArray[np.int32]
    profiles: Sequence[Topics] = ()
    orders: Mapping[int, Sequence[int]] = field(default_factory=dict)
    unfinished: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    bags: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        hash: str,
        topics: Iterable[str],
        logs: Iterable[tuple[str, RememberedLog]] = (),
        bags: Mapping[str, str] | None = None,
    ) -> Memory:
        """Make a cache of these logs with their `print_of`; without any, that of a new root."""
        rows = sorted(((bytes.fromhex(print_), log) for print_, log in logs), key=lambda row: row[0])
        profiles: dict[tuple[tuple[str, TopicKind], ...], int] = {}
        seen: dict[int, int] = {}  # logs share the topics of those they were cached with
        kinds = np.empty(len(rows), np.int32)
        orders: dict[int, Sequence[int]] = {}
        for row, (_, log) in enumerate(rows):
            if id(log.topics) not in seen:
                profile = tuple(sorted(log.topics.items()))
                seen[id(log.topics)] = profiles.setdefault(profile, len(profiles))
            kinds[row] = seen[id(log.topics)]
            if log.uris != (listed := in_name_order(log.uris)):
                orders[row] = [listed.index(uri) for uri in log.uris]
        return cls(
            hash,
            tuple(sorted(topics)),
            np.frombuffer(b"".join(key for key, _ in rows), PRINT),
            np.frombuffer(bytes.fromhex("".join(log.content_id for _, log in rows)), np.uint8).reshape(
                -1, 32
            ),
            kinds,
            [dict(profile) for profile in profiles],
            orders,
            {row: log.unfinished for row, (_, log) in enumerate(rows) if log.unfinished},
            bags or {},
        )

    def with_more(self, others: Iterable[Memory]) -> Memory:
        """Merge two caches, for the topics that both have; the later entry of a log wins."""
        memories = [self, *(one for one in others if one.hash == self.hash)]
        profiles: dict[tuple[tuple[str, TopicKind], ...], int] = {}
        orders: dict[int, Sequence[int]] = {}
        unfinished: dict[int, Mapping[str, str]] = {}
        kinds, base = [], 0
        for one in memories:
            known = [profiles.setdefault(tuple(sorted(p.items())), len(profiles)) for p in one.profiles]
            kinds.append(np.array(known, np.int32)[one.kinds])
            orders |= {base + row: order for row, order in one.orders.items()}
            unfinished |= {base + row: why for row, why in one.unfinished.items()}
            base += len(one.prints)
        prints = np.concatenate([one.prints for one in memories], dtype=PRINT)  # or it reverses the bytes
        order = np.lexsort((prints["low"], prints["high"]))
        following = np.append(prints[order][1:] != prints[order][:-1], [True] * (base > 0))
        chosen = order[following.astype(bool)]
        new = _moved(chosen, orders.keys() | unfinished.keys())
        return Memory(
            self.hash,
            tuple(sorted(set(self.topics).intersection(*(one.topics for one in memories)))),
            prints[chosen],
            np.concatenate([one.contents for one in memories])[chosen],
            np.concatenate(kinds)[chosen],
            [dict(profile) for profile in profiles],
            {new[row]: order for row, order in sorted(orders.items()) if row in new},
            {new[row]: why for row, why in sorted(unfinished.items()) if row in new},
            {name: what for one in memories for name, what in one.bags.items()},
        )

    def recall(self, files: LogList) -> NDArray[np.int64]:
        """(N,) rows of the logs that were cached with the same files and stamps; -1 for others."""
        if not len(self.prints):
            return np.full(len(files), -1, np.int64)
        rows = np.searchsorted(self.prints["high"], files.prints["high"])
        rows[rows == len(self.prints)] = 0
        is_known = (self.prints[rows] == files.prints) & (files.prints != np.zeros(1, PRINT))
        rows = np.where(is_known, rows, -1)
        for at in np.flatnonzero(np.isin(rows, list(self.orders))).tolist():
            if len(self.orders[int(rows[at])]) != len(files[at].uris):
                rows[at] = -1
        return rows

    def log(self, row: int, files: LogFiles) -> RememberedLog:
        """Return the cached log at a row, for these files."""
        uris = tuple(files.uris[i] for i in self.orders[row]) if row in self.orders else files.uris
        content_id = self.contents[row].tobytes().hex()
        return RememberedLog(
            uris, content_id, self.profiles[self.kinds[row]], self.unfinished.get(row, _WHOLE)
        )

    def take(self, rows: NDArray[np.int64], bags: Mapping[str, str]) -> Memory:
        """Return a cache of some rows and these bags."""
        rows = np.sort(rows)
        used, kinds = np.unique(self.kinds[rows], return_inverse=True)
        new = _moved(rows, self.orders.keys() | self.unfinished.keys())
        return Memory(
            self.hash,
            self.topics,
            self.prints[rows],
            self.contents[rows],
            kinds.astype(np.int32),
            [self.profiles[kind] for kind in used.tolist()],
            {new[row]: order for row, order in self.orders.items() if row in new},
            {new[row]: why for row, why in self.unfinished.items() if row in new},
            bags,
        )

    def is_same(self, other: Memory) -> bool:
        """Return whether both have the same entries."""
        return len(self.prints) == len(other.prints) and self.to_data() == other.to_data()

    def to_data(self) -> dict[str, Any]:
        return {
            "hash": self.hash,
            "topics": list(self.topics),
            "prints": self.prints.tobytes(),
            "contents": self.contents.tobytes(),
            "kinds": self.kinds.astype("<i4").tobytes(),
            "profiles": [{name: list(kind) for name, kind in sorted(p.items())} for p in self.profiles],
            "orders": sorted([row, list(order)] for row, order in self.orders.items()),
            "unfinished": [[row, dict(why)] for row, why in sorted(self.unfinished.items())],
            "bags": dict(sorted(self.bags.items())),
        }

    @classmethod
    def from_data(cls, data: Any) -> Memory:
        """
        Raises:
            KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError: not data of `to_data`.
        """
        prints = np.frombuffer(data["prints"], PRINT)
        contents = np.frombuffer(data["contents"], np.uint8).reshape(len(prints), 32)
        kinds = np.frombuffer(data["kinds"], "<i4")
        profiles = [{_text(name): _kind(kind) for name, kind in p.items()} for p in data["profiles"]]
        if len(kinds) != len(prints) or (len(kinds) and not 0 <= kinds.min() <= kinds.max() < len(profiles)):
            raise ValueError("rows without a profile")
        if (prints["high"][1:] < prints["high"][:-1]).any():
            raise ValueError("rows out of order")
        orders = {int(row): list(order) for row, order in data["orders"]}
        if any(sorted(order) != list(range(len(order))) for order in orders.values()):
            raise ValueError("an order that omits files")
        return cls(
            _text(data["hash"]),
            tuple(map(_text, data["topics"])),
            prints,
            contents,
            kinds.astype(np.int32),
            profiles,
            orders,
            {int(row): {_text(u): _text(text) for u, text in why.items()} for row, why in data["unfinished"]},
            {_text(name): _text(what) for name, what in data["bags"].items()},
        )

    @classmethod
    def load(cls, sidecars: Sidecars, hash: str, topics: Iterable[str], name: str = NAME) -> Memory:
        """Load a root's cache if it has all these topics; an empty one if it is missing or damaged."""
        empty = cls.of(hash, topics)
        try:
            found = cls.from_data(sidecars.load(name))
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError):
            return empty
        return found if found.hash == hash and set(empty.topics) <= set(found.topics) else empty

    def save(self, sidecars: Sidecars, name: str = NAME) -> None:
        """Replace a root's cache."""
        sidecars.save(name, self.to_data())


def _moved(chosen: NDArray[np.int64], wanted: Set[int]) -> dict[int, int]:
    """Map wanted rows to their places among the chosen ones."""
    places = np.flatnonzero(np.isin(chosen, np.fromiter(wanted, np.int64, len(wanted))))
    return dict(zip(chosen[places].tolist(), places.tolist(), strict=True))


@functools.lru_cache(maxsize=256)
def _digest(definition: bytes) -> str:
    return blake3(definition).hexdigest()


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not text")
    return value


def _kind(value: Any) -> TopicKind:
    type_, encoding, definition_encoding, definition, has_messages = value
    if not isinstance(has_messages, bool):
        raise TypeError(f"{has_messages!r} is neither true nor false")
    return TopicKind(
        _text(type_), _text(encoding), _text(definition_encoding), _text(definition), has_messages
    )
