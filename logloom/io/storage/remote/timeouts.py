"""Timeouts of requests to other machines, and reports of slow ones.

Here: `Patience`, the timeouts of each store's client; `waiting`, which reports requests that take long.
Elsewhere: retries (logloom.io.storage.remote.retries), errors (logloom.io.storage.remote.object_stores).

Time without a byte counts, not the time of a transfer. The clients of stores know a limit for one attempt
only, so the total, `GIVE_UP_AFTER`, is shared out among the attempts that they and `retried` make.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

from logloom.errors import UsageError
from logloom.io.storage.remote.retries import WAITS
from logloom.text import WAITING_LOG, counted, human_seconds
from logloom.uris import shown
from logloom.values import dataclass

GIVE_UP_AFTER = 180.0  # seconds
OPTION = "give_up_after"  # the storage option that changes it

_SLOWEST = 64 << 10  # bytes/s; the progress of an upload is unknown, so a slower one counts as stuck
_HTTP, _GCS, _S3 = ("http", "https"), ("gs", "gcs"), ("s3", "s3a")
# Of each client: attempts at an unanswered request, its own and ours, and the seconds of pauses between them.
_ATTEMPTS = {
    **dict.fromkeys(_HTTP, (len(WAITS) + 1, sum(WAITS))),
    **dict.fromkeys(_GCS, (6, 36.0)),  # gcsfs.retry
    **dict.fromkeys(_S3, (5, 15.0)),  # botocore's mode `legacy`
}


@dataclass(frozen=True)
class Patience:
    """The limits of a store.

    Attributes:
        protocol: of its URIs.
        total: seconds without a byte after which a request fails; None where its client decides alone.
    """

    protocol: str
    total: float | None

    @classmethod
    def of(cls, protocol: str, options: Mapping[str, Any]) -> Patience:
        """
        Args:
            options: those of the protocol, as users give them.

        Raises:
            UsageError: the option isn't a number of seconds.
        """
        total = options.get(OPTION, GIVE_UP_AFTER)
        if isinstance(total, bool) or not isinstance(total, int | float) or not 0 < total < float("inf"):
            raise UsageError(
                f"storage option {protocol}.{OPTION}: {total!r} is no number of seconds; give one above 0"
            )
        return cls(protocol, float(total) if protocol in _ATTEMPTS else None)

    @property
    def silence(self) -> float:
        """Seconds without a byte that end one attempt."""
        attempts, pauses = _ATTEMPTS[self.protocol]
        total = self.total or GIVE_UP_AFTER
        return max(total - pauses, total / 2) / attempts

    def client_options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """The options that the store's client is opened with; limits that users gave it themselves stay."""
        chosen = {name: value for name, value in options.items() if name != OPTION}
        if self.protocol in _HTTP:
            own = {"timeout": self._of_aiohttp(), **chosen.get("client_kwargs", {})}
            chosen["client_kwargs"] = own
        elif self.protocol in _GCS:
            chosen.setdefault("requests_timeout", self._of_aiohttp())  # of its own it has none at all
        elif self.protocol in _S3:
            own = {"connect_timeout": self.silence, "read_timeout": self.silence}
            chosen["config_kwargs"] = {**own, **chosen.get("config_kwargs", {})}
        return chosen

    def _of_aiohttp(self) -> Any:
        import aiohttp

        # Without a total: it would end a slow transfer, too.
        return aiohttp.ClientTimeout(total=None, sock_connect=self.silence, sock_read=self.silence)

    def for_sending(self, size: int) -> dict[str, float]:
        """Return the argument of fsspec's methods that limits an upload, as the clients' own limits don't.

        Args:
            size: bytes that are sent.
        """
        if self.total is None:
            return {}
        attempts = 1 if self.protocol in _GCS else len(WAITS) + 1  # of `retried`
        return {"timeout": self.total / attempts + size / _SLOWEST}

    def advice(self) -> str:
        """What to do about a server that doesn't answer."""
        if self.total is None:
            return "check the network and the server"
        more = f"--storage-option {self.protocol}.{OPTION}={2 * self.total:.0f}"
        return f"check the network and the server, or wait longer with {more}"


# --- reports


_FIRST = 10.0  # seconds until the first line
_EVERY = 30.0  # seconds until the next one
_log = logging.getLogger(WAITING_LOG)
_numbers = itertools.count()
_begun: dict[int, tuple[float, str, float | None]] = {}  # requests under way: since when, of what, its limit
_is_asked = threading.Event()  # whether there are any
_watcher: threading.Thread | None = None


@contextlib.contextmanager
def waiting(uri: str, patience: Patience) -> Iterator[None]:
    """Report the request that the block makes once it takes long."""
    global _watcher
    number = next(_numbers)
    _begun[number] = (time.monotonic(), uri, patience.total)
    _is_asked.set()
    if _watcher is None:
        _watcher = threading.Thread(target=_watch, name="logloom-waiting", daemon=True)
        _watcher.start()
    try:
        yield
    finally:
        _begun.pop(number, None)


def _watch() -> None:
    reported = float("-inf")
    while True:
        if not _begun:
            _is_asked.clear()
            if not _begun:
                _is_asked.wait()
        time.sleep(_FIRST / 4)
        now = time.monotonic()
        if now - reported >= _EVERY and (line := _waits(now)):
            _log.warning("%s", line)
            reported = now


def _waits(now: float) -> str:
    """The line of the request that waits longest, "" where none waits for long."""
    requests = [*_begun.copy().values()]
    since, uri, total = min(requests, default=(now, "", None))
    if now - since < _FIRST:
        return ""
    long = sum(now - began >= _FIRST for began, _, _ in requests)
    others = f" ({counted(long, 'such request')})" if long > 1 else ""
    limit = f"; without a byte for {human_seconds(total)} it is given up" if total else ""
    return f"waiting for {shown(uri)} for {human_seconds(now - since)}{others}{limit}"


def _forget_all() -> None:
    """Forget the requests of the parent's threads in a forked process."""
    global _watcher, _is_asked
    _begun.clear()
    _watcher, _is_asked = None, threading.Event()


os.register_at_fork(after_in_child=_forget_all)
