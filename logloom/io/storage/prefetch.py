"""Work on many items whose results are taken in order, some of it ahead: `ahead` and `in_order`."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
U = TypeVar("U")
READERS = 16  # threads that read ahead; they wait for storage


def ahead(work: Callable[[T], U], items: Iterable[T], threads: int = READERS) -> Iterator[U]:
    """What work makes of each item, in order: two a thread ahead, so that not all are in memory."""
    waiting = list(itertools.islice(items := iter(items), 2))
    if len(waiting) < 2:  # nothing to wait for meanwhile
        yield from map(work, waiting)
        return
    with ThreadPoolExecutor(threads) as pool:
        yield from in_order(pool, work, itertools.chain(waiting, items), 2 * threads)


def in_order(pool: Executor, work: Callable[[T], U], items: Iterable[T], at_once: int) -> Iterator[U]:
    """As `ahead`, in a pool that is there; at most `at_once` are under way or waiting to be taken."""
    coming: deque[Future[U]] = deque()
    for item in items:
        coming.append(pool.submit(work, item))
        if len(coming) > at_once:
            yield coming.popleft().result()
    while coming:
        yield coming.popleft().result()
