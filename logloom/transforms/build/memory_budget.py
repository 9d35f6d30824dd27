"""The memory budget of a process for rows, over all streams of rows in it.

An engine may run many threads in a process, each with a partition: each alone stays within its block size,
together they wouldn't.
Here: `MemoryBudget`, and `ROWS`, the budget of this process.
Elsewhere: the streams that reserve memory (logloom.transforms.rows.row_stream,
logloom.transforms.build.read_back).
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import Counter, deque
from collections.abc import Iterator

ROWS_BYTES = 256 << 20  # one stream with full pieces and blocks, and small ones beside it


class MemoryBudget:
    """Bytes that many streams share: a request for more than are free waits, first come, first served.

    More than the whole budget is granted when no other thread has any of it. A thread that has some is
    granted more at once, beyond the budget if necessary, so that no thread waits for bytes while others wait
    for its own.
    """

    def __init__(self, nbytes: int):
        self._nbytes = nbytes
        self._reset()

    def _reset(self) -> None:
        self._free = self._nbytes
        self._changed = threading.Condition()  # reentrant: a forgotten stream may end amid any allocation
        self._queue: deque[object] = deque()
        self._streams: Counter[int] = Counter()  # of each thread

    @property
    def free(self) -> int:
        """Bytes that are free; negative while threads have more than the budget."""
        return self._free

    @contextlib.contextmanager
    def reserved(self, nbytes: int) -> Iterator[None]:
        """Reserve bytes of the budget while the block runs; waits until they are free."""
        wanted = min(max(0, nbytes), self._nbytes)
        thread = threading.get_ident()
        with self._changed:
            if not self._streams[thread]:
                self._wait_for(wanted)
            self._free -= wanted
            self._streams[thread] += 1
        try:
            yield
        finally:
            with self._changed:
                self._free += wanted
                self._streams[thread] -= 1
                self._streams += Counter()  # without threads that have none
                self._changed.notify_all()

    def _wait_for(self, wanted: int) -> None:
        """Waits in line until the bytes are free; with the lock."""
        ticket = object()
        self._queue.append(ticket)
        try:
            self._changed.wait_for(lambda: self._queue[0] is ticket and wanted <= self._free)
        finally:
            self._queue.remove(ticket)
            self._changed.notify_all()


ROWS = MemoryBudget(ROWS_BYTES)
# A child process has none of its parent's streams.
os.register_at_fork(after_in_child=ROWS._reset)
