"""Sidecars: indices of logs without their own, stored beside datasets.

Here: `Sidecars`, the folder of these files, and their contents: the index of a scanned file, and the message
times of a topic by stretch.
Elsewhere: scanning (the kinds of logs), use (container_log).

A sidecar consists of a magic, the BLAKE3 of the rest, and a msgpack map. Its name starts with the content id
of its file. Equal logs give equal bytes; a damaged sidecar, or one of another version, counts as missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import astuple
from typing import Any, TypeVar

import msgpack
import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from logloom.io.logs.files.container import SHARE, STRETCH, Channel, FileIndex, LostBytes
from logloom.io.logs.interface import MessageTime
from logloom.io.logs.recording_times import RecordedTime
from logloom.io.storage.store import Store
from logloom.values import dataclass

T = TypeVar("T")
MAGIC = b"LLINDEX2"  # incremented when scanning gives other results
BOUNDS = np.dtype([("stretch", "<i8"), ("first", "<i8"), ("last", "<i8"), ("refused", "<i8")])


@dataclass(frozen=True)
class Sidecars:
    """A folder of sidecar indices; stores nothing without a URI."""

    uri: str | None
    storage_options: Mapping[str, Any]

    @classmethod
    def of(cls, store: Store, folder: str = "index") -> Sidecars:
        """Return the sidecars in a folder of a root."""
        return cls(store.uri_of(folder), store.options)

    def load_index(self, content_id: str, max_chunk_bytes: int) -> FileIndex | None:
        """Load the index of a scanned file; None if none was made with the same limit."""

        def parse(data: dict[str, Any]) -> FileIndex | None:
            if data["max_chunk_bytes"] != max_chunk_bytes:
                return None
            return FileIndex(
                {row[0]: Channel(*row) for row in data["channels"]},
                np.frombuffer(data["stretches"], STRETCH),
                np.frombuffer(data["shares"], SHARE),
                data["num_numbers"],
                tuple(LostBytes(*row) for row in data["lost"]),
                is_scanned=True,
            )

        return self._parsed(f"{content_id}.index", parse)

    def save_index(self, content_id: str, max_chunk_bytes: int, index: FileIndex) -> None:
        data = {
            "max_chunk_bytes": max_chunk_bytes,
            "channels": [astuple(index.channels[channel]) for channel in sorted(index.channels)],
            "stretches": index.stretches.tobytes(),
            "shares": index.shares.tobytes(),
            "num_numbers": index.num_numbers,
            "lost": [astuple(lost) for lost in index.lost],
        }
        self.save(f"{content_id}.index", data)

    def load_bounds(self, content_id: str, topic: str, source: MessageTime) -> NDArray[Any] | None:
        """(K,) of dtype BOUNDS: by stretch, the first and last message time of a topic and its refusals."""
        name = _bounds_name(content_id, topic, source)
        return self._parsed(name, lambda data: np.frombuffer(data["bounds"], BOUNDS))

    def save_bounds(self, content_id: str, topic: str, source: MessageTime, bounds: NDArray[Any]) -> None:
        data = {"topic": topic, "source": _source_name(source), "bounds": bounds.tobytes()}
        self.save(_bounds_name(content_id, topic, source), data)

    def load_recorded(self, content_id: str) -> RecordedTime | None:
        """Load a log's recording times, if messages had to be read to find them."""
        return self._parsed(f"{content_id}.recorded", RecordedTime.from_data)

    def save_recorded(self, content_id: str, recorded: RecordedTime) -> None:
        self.save(f"{content_id}.recorded", recorded.to_data())

    def _parsed(self, name: str, parse: Callable[[dict[str, Any]], T | None]) -> T | None:
        data = self.load(name)
        try:
            return None if data is None else parse(data)
        except (KeyError, TypeError, ValueError, IndexError):
            return None

    def load(self, name: str) -> dict[str, Any] | None:
        if self.uri is None:
            return None
        try:
            data = Store.at(self.uri, self.storage_options).read(name)
        except FileNotFoundError:
            return None
        start = len(MAGIC) + 32
        if not data.startswith(MAGIC) or blake3(data[start:]).digest() != data[len(MAGIC) : start]:
            return None
        try:
            loaded: Any = msgpack.unpackb(data[start:])
        except ValueError:
            return None
        return loaded if isinstance(loaded, dict) else None

    def save(self, name: str, data: dict[str, Any]) -> None:
        if self.uri is None:
            return
        body = msgpack.packb(data)
        store = Store.at(self.uri, self.storage_options)
        store.replace(name, MAGIC + blake3(body).digest() + body)


def _source_name(source: MessageTime) -> str:
    """Return a name for files: that of a source, or a digest of a time that a recipe states."""
    if isinstance(source, str):
        return source
    return f"stated-{blake3(repr(astuple(source)).encode()).hexdigest(length=8)}"


def _bounds_name(content_id: str, topic: str, source: MessageTime) -> str:
    return f"{content_id}.{_source_name(source)}.{blake3(topic.encode()).hexdigest(length=8)}.times"
