"""How often the clients of object stores had to ask again.

Here: counting. The asking again is theirs (gcsfs, s3fs and botocore wait longer each time, a few times); they
say so in debug messages only, which are counted here and go no further.
"""

from __future__ import annotations

import logging
import threading

# What each client's logger says when it is about to ask again.
_SAID = {
    "gcsfs": "retrying after exception",
    "s3fs": "Retryable error",
    "botocore.retryhandler": "Retry needed",
}


class _Count(logging.Filter):
    """Counts a logger's messages of one kind, and lets pass what passed before."""

    def __init__(self, said: str, level: int):
        super().__init__()
        self.number = 0
        self._said, self._level = said, level
        self._lock = threading.Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        if self._said in str(record.msg):
            with self._lock:
                self.number += 1
        return record.levelno >= self._level

    def take(self) -> int:
        with self._lock:
            number, self.number = self.number, 0
            return number


_counts: dict[str, _Count] = {}
_watching = threading.Lock()


def watch() -> None:
    """Starts counting in this process; does nothing the second time."""
    with _watching:
        for name, said in _SAID.items():
            if name not in _counts:
                logger = logging.getLogger(name)
                _counts[name] = _Count(said, logger.getEffectiveLevel())
                logger.addFilter(_counts[name])
                logger.setLevel(logging.DEBUG)
                # Where nobody listens, Python prints errors, tracebacks and all; we say the same in a line.
                logger.addHandler(logging.NullHandler())


def take() -> int:
    """How many requests of this process were sent again since this was asked last."""
    return sum(count.take() for count in list(_counts.values()))
