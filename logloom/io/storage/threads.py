"""Threads that stay for the next piece of work, for starting one takes longer than what many have to do."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from logloom.io.storage.locks import Lock


class Threads:
    """A pool that is made when first asked for, and anew in a process that was forked; pickles have none."""

    def __init__(self, most: int, name: str):
        """
        Args:
            name: of its threads, with a number each.
        """
        self._most, self._name, self._lock = most, name, Lock()
        self._made: tuple[int, ThreadPoolExecutor] | None = None  # and the process that it is of

    def __reduce__(self) -> tuple[Any, ...]:
        return (Threads, (self._most, self._name))

    @property
    def pool(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._made is None or self._made[0] != os.getpid():  # threads don't cross a fork
                self._made = (os.getpid(), ThreadPoolExecutor(self._most, self._name))
            return self._made[1]

    def close(self) -> None:
        """Ends the threads once they have done what was given to them; later work starts new ones."""
        if self._made is not None:
            self._made[1].shutdown(wait=False)
            self._made = None
