"""Files of web servers, read by checked ranges.

Here: `HttpFiles`, a file system of fsspec.
Elsewhere: retries and the errors of all stores (logloom.io.storage.remote.object_stores), timeouts
(logloom.io.storage.remote.timeouts).

A server may ignore the range and send the whole file (accepted if small), may compress the answer, so that
offsets are wrong, or may omit the file's size. The last two are errors that name the server.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
from fsspec.implementations.http import HTTPFileSystem

from logloom.io.storage.faults import PARTS_WAY_OUT, unsized
from logloom.io.storage.remote.retries import UnfitServerError
from logloom.uris import host_of

SMALL = 4 << 20  # bytes of a file that is read whole where a server ignores ranges
_GONE = (404, 410)
_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")
_PLAIN = {"Accept-Encoding": "identity"}


class HttpFiles(HTTPFileSystem):
    """fsspec's HTTP files, with remedies in errors; a fault never looks like a missing file."""

    def __init__(self, **options: Any):
        super().__init__(**options)
        self.kwargs["headers"] = {**_PLAIN, **self.kwargs.get("headers", {})}

    async def _get(self, url: str, headers: dict[str, str], method: str = "GET") -> Any:
        session = await self.set_session()
        asked = {**self.kwargs, "headers": {**self.kwargs["headers"], **headers}, "allow_redirects": True}
        return session.request(method, self.encode_url(url), **asked)

    async def _info(self, url: str, **_: Any) -> dict[str, Any]:
        # Some servers, and most signed URLs, answer no HEAD.
        with contextlib.suppress(aiohttp.ServerDisconnectedError):
            async with await self._get(url, {}, "HEAD") as answer:
                if answer.status in _GONE:
                    raise FileNotFoundError(url)
                if answer.status < 300 and (size := _length(answer)) is not None:
                    return _facts(url, answer, size)
        async with await self._get(url, {"Range": "bytes=0-0"}) as answer:
            if answer.status == 416:  # an empty file has no first byte
                total = answer.headers.get("Content-Range", "").rpartition("/")[2]
                if total == "0":
                    return _facts(url, answer, 0)
            self._raise_for(answer, url)
            if answer.status != 206:
                return _facts(url, answer, _length(answer), gives_ranges=False)
            found = _RANGE.match(answer.headers.get("Content-Range", ""))
            is_told = found is not None and found[3] != "*" and not _is_encoded(answer)
            return _facts(url, answer, int(found[3]) if is_told and found else None)

    async def _cat_file(self, url: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        if start is None and end is None:
            async with await self._get(url, {}) as answer:
                self._raise_for(answer, url)
                return bytes(await answer.read())
        if (start or 0) < 0 or (end or 0) < 0:
            size = (await self._info(url))["size"]
            if size is None:
                raise unsized(url)
            start, end = (size + one if one is not None and one < 0 else one for one in (start, end))
        first = max(0, start or 0)
        if end is not None and end <= first:
            return b""
        last = "" if end is None else end - 1
        async with await self._get(url, {"Range": f"bytes={first}-{last}"}) as answer:
            self._raise_for(answer, url)
            if answer.status != 206:
                return (await self._whole(url, answer))[first:end]
            if _is_encoded(answer):
                raise _encoded(url, answer)
            data = bytes(await answer.read())
            found = _RANGE.match(answer.headers.get("Content-Range", ""))
            if found is None or int(found[1]) != first or (end is not None and len(data) > end - first):
                told = answer.headers.get("Content-Range", "no Content-Range")
                raise UnfitServerError(
                    f"the server at {host_of(url)} sends another range than the requested one ({told} "
                    f"instead of bytes {first}-{last}); {PARTS_WAY_OUT}"
                )
            return data

    async def _whole(self, url: str, answer: Any) -> bytes:
        """Read a small file that was sent whole although a range was requested.

        Raises:
            UnfitServerError: it is larger.
        """
        data = bytearray()
        if (_length(answer) or 0) <= SMALL:
            async for piece in answer.content.iter_chunked(1 << 16):
                data += piece
                if len(data) > SMALL:
                    break
            else:
                return bytes(data)
        raise UnfitServerError(
            f"the server at {host_of(url)} ignores ranges (it sends the whole file for a request of "
            f"a part); {PARTS_WAY_OUT}"
        )

    def _raise_for(self, answer: Any, url: str) -> None:
        if answer.status in _GONE:
            raise FileNotFoundError(url)
        answer.raise_for_status()

    async def _exists(self, path: str, strict: bool = False, **_: Any) -> bool:
        try:
            await self._info(path)
        except FileNotFoundError:
            return False
        return True

    async def _walk(self, path: str, maxdepth: int | None = None, **kwargs: Any) -> AsyncIterator[Any]:
        kwargs.setdefault("on_error", _raise_faults)
        async for found in super()._walk(path, maxdepth, **kwargs):
            yield found


def _encoded(url: str, answer: Any) -> UnfitServerError:
    how = answer.headers["Content-Encoding"]
    return UnfitServerError(
        f"the server at {host_of(url)} compresses its answers (Content-Encoding: {how}) against the "
        "request, so that no part of the file can be read; switch that off for this file, or copy it "
        "here first"
    )


def _is_encoded(answer: Any) -> bool:
    return answer.headers.get("Content-Encoding", "identity") not in ("", "identity")


def _length(answer: Any) -> int | None:
    """Return the file's size by the headers of an answer to a request without range; None if missing."""
    told = answer.headers.get("Content-Length", "")
    return int(told) if told.isdecimal() and not _is_encoded(answer) else None


def _facts(url: str, answer: Any, size: int | None, *, gives_ranges: bool = True) -> dict[str, Any]:
    """Return the facts about a file in the order of fsspec's own file system."""
    facts: dict[str, Any] = {"name": url, "size": size}
    if "Content-Type" in answer.headers:
        facts["mimetype"] = answer.headers["Content-Type"].partition(";")[0]
    if answer.headers.get("Accept-Ranges") == "none" or not gives_ranges:
        facts["partial"] = False
    facts["url"] = str(answer.url)
    names = ("ETag", "Content-MD5", "Digest", "Last-Modified")
    return (
        facts | {name: answer.headers[name] for name in names if answer.headers.get(name)} | {"type": "file"}
    )


def _raise_faults(error: BaseException) -> None:
    """Raise errors of a folder that can't be listed; a missing one is skipped."""
    if not isinstance(error, FileNotFoundError):
        raise error
    return
