"""A scheduler of actors over one store in memory: one seed decides who makes the next request, and its fate.

An actor is a thread that runs only while it has the baton, and hands it over at some of its requests. What
happens depends on the seed alone, so a schedule that failed is run again by its seed.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


class Crashed(BaseException):
    """The process of an actor was killed: nothing catches it, and no request of it is made any more."""


@dataclass
class Actor:
    name: str
    thread: threading.Thread | None = None
    baton: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    began: int = 0
    priority: float = 0.0
    is_dead: bool = False
    is_over: bool = False
    error: BaseException | None = None


class Scheduler:
    """Takes the place of `tests.faulty.Faults`: is asked before each request what becomes of it.

    Args:
        crashes, faults: shares of the requests at which an actor is killed, or which fail.
        check: called whenever a request was made and another is about to be.
    """

    def __init__(
        self,
        seed: int,
        crashes: float = 0.002,
        faults: float = 0.02,
        check: Callable[[], None] = lambda: None,
    ):
        self.rng = random.Random(seed)
        self.switches = self.rng.choice([0.3, 0.05])  # some actors stand still while others do a lot
        self.crashes, self.faults, self.check = crashes, faults, check
        self.requests = 0
        self.written: dict[str, int] = {}  # by path, the number of the request that wrote it last
        self.actors: list[Actor] = []
        self._back = threading.Semaphore(0)
        self._current: Actor | None = None
        self._own = threading.local()

    def spawn(self, name: str, work: Callable[[], None]) -> None:
        parent: Actor | None = getattr(self._own, "actor", None)
        # What an actor starts is about what that one is about.
        actor = Actor(
            name, began=self.requests if parent is None else parent.began, priority=self.rng.random()
        )

        def run() -> None:
            self._own.actor = actor
            actor.baton.acquire()
            try:
                work()
            except Crashed:
                pass
            except BaseException as error:
                actor.error = error
            actor.is_over = True
            self._back.release()

        actor.thread = threading.Thread(target=run, name=name, daemon=True)
        self.actors.append(actor)
        actor.thread.start()

    def run(self) -> None:
        """Runs all actors to their ends.

        Raises:
            BaseException: the first that an actor raised.
        """
        while alive := [actor for actor in self.actors if not actor.is_over]:
            actor = max(alive, key=lambda one: one.priority)
            actor.baton.release()
            assert self._back.acquire(timeout=60), f"{actor.name} waits for another actor"
            self.check()
            if actor.error is not None:
                raise actor.error
        for actor in self.actors:
            assert actor.thread is not None
            actor.thread.join()

    def begin(self) -> None:
        """The actor begins something for which what it finds must stay young."""
        self._own.actor.began = self.requests

    def old(self) -> list[str]:
        """What was written before all that actors are about began: a grace is longer than that takes."""
        alive = [actor.began for actor in self.actors if not actor.is_over and not actor.is_dead]
        before = min(alive, default=self.requests + 1)
        return [path for path, number in self.written.items() if number < before]

    def next(self, what: str, path: str) -> str | None:
        """The fault that a request meets; None for none. Requests of others than actors meet none."""
        actor: Actor | None = getattr(self._own, "actor", None)
        if actor is None:
            return None
        if not actor.is_dead and self.rng.random() < self.switches:
            actor.priority = self.rng.random()
            self._back.release()
            actor.baton.acquire()
        if actor.is_dead or self.rng.random() < self.crashes:
            actor.is_dead = True
            raise Crashed
        self.requests += 1
        if what == "write":
            self.written[path] = self.requests
        kinds: list[Any] = ["lost", "503", "reset", "short"]
        return self.rng.choice(kinds) if self.rng.random() < self.faults else None
