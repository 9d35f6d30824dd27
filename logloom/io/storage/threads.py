"""Threads for work that waits for storage or releases the interpreter's lock.

Here: `ahead` and `in_order` (results in order, a bounded number of them ahead), `in_threads` (all results),
`Threads` (a pool that outlives a call).
"""

from __future__ import annotations

import itertools
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any, TypeVar

from logloom.io.storage.locks import Lock

T = TypeVar("T")
U = TypeVar("U")
READERS = 16  # threads that wait for storage


def ahead(
    work: Callable[[T], U], items: Iterable[T], threads: int = READERS, at_once: int | None = None
) -> Iterator[U]:
    """Do work on each item and yield the results in order, some of them ahead of the caller.

    A single item is worked on in place. A caller that stops early cancels what hasn't begun.

    Args:
        at_once: items that are under way or finished beside the one that is yielded; two a thread by default.
    """
    waiting = list(itertools.islice(items := iter(items), 2))
    if len(waiting) < 2:
        yield from map(work, waiting)
        return
    pool = ThreadPoolExecutor(threads, "logloom-ahead")
    try:
        yield from in_order(pool, work, itertools.chain(waiting, items), at_once or 2 * threads)
    finally:
        pool.shutdown(cancel_futures=True)


def in_order(pool: Executor, work: Callable[[T], U], items: Iterable[T], at_once: int) -> Iterator[U]:
    """As `ahead`, in a given pool."""
    coming: deque[Future[U]] = deque()
    for item in items:
        coming.append(pool.submit(work, item))
        if len(coming) > at_once:
            yield coming.popleft().result()
    while coming:
        yield coming.popleft().result()


def in_threads(work: Callable[[T], U], items: Sequence[T], threads: int = READERS) -> list[U]:
    """Do work on all items and return the results in order; none waits for another's result."""
    return list(ahead(work, items, max(1, min(threads, len(items))), len(items)))


class Threads:
    """A pool of threads that is created on first use, and anew in a forked process; pickles without it."""

    def __init__(self, most: int, name: str):
        """
        Args:
            name: of its threads, followed by a number.
        """
        self._most, self._name, self._lock = most, name, Lock()
        self._made: tuple[int, ThreadPoolExecutor] | None = None  # with the process that created it

    def __reduce__(self) -> tuple[Any, ...]:
        return (Threads, (self._most, self._name))

    @property
    def pool(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._made is None or self._made[0] != os.getpid():  # threads don't cross a fork
                self._made = (os.getpid(), ThreadPoolExecutor(self._most, self._name))
            return self._made[1]

    def close(self) -> None:
        """End the threads after the work that was submitted; later work starts new ones."""
        if self._made is not None:
            self._made[1].shutdown(wait=False)
            self._made = None
