"""Requests for ranges of remote files by URI, and the errors of reading files.

Here: `size_of`, `fetch`, `fetch_many`; `joined` and `runs`, which cover ranges by fewer requests; `failure`,
`cut_short` and `whole`.
Elsewhere: files, which are open where they are local (logloom.io.storage.files), trying again
(logloom.io.storage.remote.object_stores), archives (logloom.io.storage.zip_archives).

A missing file, or a range beyond its end, is a DatasetError or the caller's own error. Any other failure is
a StorageError.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logloom.errors import DatasetError, LogloomError
from logloom.io.storage.faults import MISSING, ArchiveError, storage_error
from logloom.io.storage.filesystems import filesystem
from logloom.uris import chained

LOCAL_GAP = 16 << 10  # bytes between two ranges below which reading them too is cheaper than another request
REMOTE_GAP = 1 << 20
SPARE_SHARE = 0.2  # of the wanted bytes that may be read in vain where no gap is given

Options = Mapping[str, Any] | None


def failure(uri: str, error: OSError, missing: Callable[[str], LogloomError] = DatasetError) -> LogloomError:
    """Return the error for a failure to read a file.

    Args:
        missing: makes the error of a file that doesn't exist, or is in a damaged archive.
    """
    if isinstance(error, IsADirectoryError):
        return missing(f"{uri}: can't be read, it is a folder")
    if isinstance(error, MISSING):
        return missing(f"{uri}: there is no such file")
    return missing(f"{uri}: {error}") if isinstance(error, ArchiveError) else storage_error(uri, error)


def cut_short(uri: str, offset: int, size: int, done: int) -> DatasetError:
    """Return the error for a file that ends after `done` of the `size` bytes requested at `offset`."""
    return DatasetError(
        f"{uri}: cut short: bytes {offset} to {offset + size} are needed, it ends at byte {offset + done}; "
        "it was truncated or written to since it was opened: copy or build it again"
    )


def whole(data: bytes, offset: int, size: int, name: str) -> bytes:
    """Return data read at `offset` if it has `size` bytes; else raise what `cut_short` makes."""
    if len(data) != size:
        raise cut_short(name, offset, size, len(data))
    return data


def size_of(uri: str, options: Options) -> int:
    """Return the size of a remote file; see `failure` for what it raises."""
    fs, path = filesystem(uri, options)
    try:
        return int(fs.size(path))
    except OSError as error:
        raise failure(uri, error, DatasetError) from chained(error)


def fetch(
    uri: str, options: Options, start: int, stop: int, missing: Callable[[str], LogloomError] = DatasetError
) -> bytes:
    """Read the bytes [start, stop) of a remote file, fewer where it ends; `failure` has what it raises."""
    if start >= stop:
        return b""
    fs, path = filesystem(uri, options)
    try:
        return bytes(fs.cat_file(path, start=start, end=stop))
    except OSError as error:
        raise failure(uri, error, missing) from chained(error)


def fetch_many(
    uris: Sequence[str],
    options: Options,
    starts: Sequence[int],
    stops: Sequence[int],
    missing: Callable[[str], LogloomError] = DatasetError,
    cut: Callable[[str, int, int, int], LogloomError] = cut_short,
) -> list[bytes]:
    """Read ranges of remote files in full, those of one file system all at once.

    Args:
        missing, cut: make the errors of files that don't exist, and of those that end earlier.

    Raises:
        StorageError: one of them can't be read.
    """
    found: list[Any] = [None] * len(uris)
    opened = {uri: filesystem(uri, options) for uri in dict.fromkeys(uris)}
    systems: dict[Any, list[int]] = {}
    for i, uri in enumerate(uris):
        systems.setdefault(uri.split("://", 1)[0], []).append(i)
    for own in systems.values():
        fs, paths = opened[uris[own[0]]][0], [opened[uris[i]][1] for i in own]
        answers = fs.cat_ranges(paths, [starts[i] for i in own], [stops[i] for i in own], on_error="return")
        for i, data in zip(own, answers, strict=True):
            if isinstance(data, OSError):
                raise failure(uris[i], data, missing) from chained(data)
            if isinstance(data, Exception):
                raise data
            if len(data) < stops[i] - starts[i]:
                raise cut(uris[i], starts[i], stops[i] - starts[i], len(data))
            found[i] = data
    return found


def joined(
    ranges: Sequence[tuple[int, int, int]], gap: int
) -> tuple[list[tuple[int, int, int]], list[tuple[int, int, int]]]:
    """Return requests that cover ranges (file, offset, length), joined over gaps of up to `gap` bytes.

    Returns:
        The requests as (file, offset, length); and for each range (request, start in it, length).
    """
    requests: list[tuple[int, int, int]] = []
    places: list[tuple[int, int, int]] = [(0, 0, 0)] * len(ranges)
    for i in sorted(range(len(ranges)), key=ranges.__getitem__):
        number, offset, length = ranges[i]
        if requests and requests[-1][0] == number and offset <= sum(requests[-1][1:]) + gap:
            _, start, size = requests[-1]
            requests[-1] = (number, start, max(size, offset + length - start))
        else:
            requests.append((number, offset, length))
        places[i] = (len(requests) - 1, offset - requests[-1][1], length)
    return requests, places


def runs(starts: NDArray[np.int64], stops: NDArray[np.int64], most: int, gap: int | None = None) -> list[int]:
    """Group ranges of one file in the order they are given, each group to be read by one request.

    Args:
        starts, stops: (n,) in bytes; ascending and apart if no gap is given.
        most: bytes of a group, unless it is a single range.
        gap: bytes between two ranges that are read along; None reads the smallest gaps along as long as they
            add at most `SPARE_SHARE` to the wanted bytes.

    Returns:
        The first range of each group, then n.
    """
    if not len(starts):
        return [0]
    gaps = starts[1:] - stops[:-1]
    if gap is None:
        order = np.argsort(gaps, kind="stable")
        joins = np.zeros(len(gaps), bool)
        joins[order[np.cumsum(gaps[order]) <= SPARE_SHARE * int((stops - starts).sum())]] = True
    else:
        joins = (gaps >= 0) & (gaps <= gap)
    begins, ends, bounds = starts.tolist(), stops.tolist(), [0]
    for number, is_near in enumerate(joins.tolist(), 1):
        if not is_near or ends[number] - begins[bounds[-1]] > most:
            bounds.append(number)
    return [*bounds, len(begins)]
