"""Retries of requests to other machines, and their number.

Here: `retried`, which retries a few times with growing pauses, and which failures are worth a retry. The
clients of some object stores retry themselves (gcsfs; s3fs with botocore) and log it as debug messages, which
are counted here and not passed on.
Elsewhere: the requests, and the error of a failed one (logloom.io.storage.remote.object_stores).
"""

from __future__ import annotations

import errno
import logging
import socket
import time
from collections.abc import Callable
from typing import Any, TypeVar

from logloom.io.storage.locks import Lock

T = TypeVar("T")

WAITS = (0.2, 1.0, 4.0)  # seconds before the second, third and fourth attempt
PATIENT = frozenset({"gs", "gcs", "abfs", "abfss", "az", "adl"})  # their clients retry
S3 = frozenset({"s3", "s3a"})  # their clients retry, except answers that break off
CHECKED = PATIENT | S3 | {"http", "https"}  # their clients notice an answer that was cut short
_PASSING_ERRNOS = frozenset(
    {
        errno.EAGAIN,
        errno.EBUSY,
        errno.EINTR,
        errno.EIO,
        errno.EPIPE,
        errno.EREMOTEIO,
        errno.ECONNABORTED,
        errno.ECONNREFUSED,
        errno.ECONNRESET,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.ENETDOWN,
        errno.ENETRESET,
        errno.ENETUNREACH,
        errno.ENOTCONN,
        errno.ETIMEDOUT,
    }
)

# The beginning of each client's message before a retry.
_TEXTS = {
    "gcsfs": "retrying after exception",
    "s3fs": "Retryable error",
    "botocore.retryhandler": "Retry needed",
}


class _Count(logging.Filter):
    """Counts a logger's messages of one kind; others pass as before."""

    def __init__(self, text: str, level: int):
        super().__init__()
        self.number = 0
        self._text, self._level = text, level
        self._lock = Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        if self._text in str(record.msg):
            with self._lock:
                self.number += 1
        return record.levelno >= self._level

    def take(self) -> int:
        with self._lock:
            number, self.number = self.number, 0
            return number


class ShortAnswerError(OSError):
    """An answer with fewer bytes than were requested and exist."""


class UnfitServerError(OSError):
    """A server that doesn't serve a file such that parts of it can be read."""


_FOR_GOOD = (PermissionError, NotImplementedError, TypeError, ValueError, LookupError, UnfitServerError)


def retried(
    request: Callable[[], T],
    passing: tuple[type[Exception], ...],
    *,
    is_patient: bool = False,
    long: float = float("inf"),
) -> T:
    """Return the result of a request, retrying transient failures.

    Args:
        passing: errors that are answers.
        is_patient: its client retries itself, but for answers that are too short.
        long: seconds; after these a client that tries several times has done so.
    """
    global _retries
    for wait in WAITS:
        began = time.monotonic()
        try:
            return request()
        except Exception as error:
            fault = hidden_fault(error) if isinstance(error, passing) else error
            if fault is None or not is_transient(fault):
                raise
            if is_patient and not isinstance(fault, ShortAnswerError):
                raise
            if time.monotonic() - began >= long and _status(fault) is None:
                raise
        with _counting:
            _retries += 1
        time.sleep(wait)
    return request()


def is_transient(error: BaseException) -> bool:
    """Return whether a retry of a failed request may succeed."""
    if isinstance(error, ShortAnswerError | ConnectionError | TimeoutError | socket.gaierror):
        return True
    if (status := _status(error)) is not None:
        return status in (408, 429) or status >= 500
    if isinstance(error, OSError) and error.errno:
        return error.errno in _PASSING_ERRNOS
    return not isinstance(error, _FOR_GOOD)


def is_timeout(error: BaseException) -> bool:
    """Return whether nothing came, or could be sent, for longer than a client waits."""
    link: BaseException | None = error
    while link is not None:
        # Those of botocore and requests are no TimeoutError.
        is_named = "Timeout" in type(link).__name__
        if isinstance(link, TimeoutError) or is_named or getattr(link, "errno", None) == errno.ETIMEDOUT:
            return True
        link = link.__cause__ or link.__context__
    return False


def is_forbidden(error: BaseException) -> bool:
    """Return whether a store refuses to report if a file exists."""
    link: BaseException | None = error
    while link is not None:
        if isinstance(link, PermissionError) or _status(link) in (401, 403):
            return True
        link = link.__cause__ or link.__context__
    return False


def hidden_fault(error: BaseException) -> BaseException | None:
    """Return the failure behind a client's FileNotFoundError; None if the file is really missing.

    fsspec's client for HTTP raises it whenever it can't determine a file's size.
    """
    cause = error.__cause__
    if not isinstance(error, FileNotFoundError) or cause is None:
        return None
    status = _status(cause)
    if status is not None:
        return None if status in (404, 410) else cause
    is_fault = isinstance(cause, ConnectionError | TimeoutError | socket.gaierror)
    return cause if is_fault or type(cause).__module__.split(".")[0] == "aiohttp" else None


def _status(error: Any) -> int | None:
    """Return the HTTP status in an error of a store's client."""
    answer = getattr(error, "response", None)
    if isinstance(answer, dict):  # botocore's
        status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode")
        return status if isinstance(status, int) else None
    for name in ("status", "status_code", "code"):
        value = getattr(error, name, None)
        if isinstance(value, int) and 100 <= value < 600:
            return value
    return None


_retries = 0
_counting = Lock()
_counts: dict[str, _Count] = {}
_watching = Lock()


def watch() -> None:
    """Start counting in this process; a second call has no effect."""
    with _watching:
        for name, text in _TEXTS.items():
            if name not in _counts:
                logger = logging.getLogger(name)
                _counts[name] = _Count(text, logger.getEffectiveLevel())
                logger.addFilter(_counts[name])
                logger.setLevel(logging.DEBUG)
                # Without a handler, Python prints errors with tracebacks; the line of this package is enough.
                logger.addHandler(logging.NullHandler())


def take() -> int:
    """How many requests of this process were retried since the last call."""
    global _retries
    with _counting:
        own, _retries = _retries, 0
    return own + sum(count.take() for count in list(_counts.values()))
