"""A scheduler of actors over one store in memory: one seed decides who makes the next request, and its fate.

An actor is a thread that runs only while it has the baton, and hands it over at some of its requests. What
happens depends on the seed alone, so a schedule that failed is run again by its seed.
"""

from __future__ import annotations

import collections
import math
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from logloom.io.storage.remote import retries


class Crashed(BaseException):
    """The process of an actor was killed: nothing catches it, and no request of it is made any more."""


@dataclass
class Stretch:
    """What an actor is about, from one request to another: a grace is longer than that takes."""

    began: int
    ended: float = math.inf


@dataclass
class Actor:
    name: str
    stretch: Stretch
    thread: threading.Thread | None = None
    baton: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    priority: float = 0.0
    place: str = ""
    notes: list[str] = field(default_factory=list)  # of removals
    acts: int = 0  # requests that changed something
    has_stalled: bool = False
    stalls_at: int = 0  # one of them, before which it stands still until the others are over
    is_dead: bool = False
    is_over: bool = False
    error: BaseException | None = None

    @property
    def is_alive(self) -> bool:
        return not (self.is_dead or self.is_over)


def place_of(path: str) -> str:
    """The unit that a file is of, or the folder of the root that it lies in."""
    steps = path.partition("://")[2].split("/")[2:]
    return "/".join(steps[:4] if steps[:1] == ["parts"] else steps[:1])


class Scheduler:
    """Takes the place of `tests.faulty.Faults`: is asked before each request what becomes of it.

    Attributes:
        ends_at: by place, the share of writes there at which an actor is killed.

    Args:
        crashes, faults: shares of the requests at which an actor is killed, or which fail.
        check: called whenever a request was made and another is about to be.
        engine: runs the steps of a build.
        stalls_before: a request and how a path of the root begins, such as "remove parts": each actor stands
            still before its first one until the others are over.
    """

    def __init__(
        self,
        seed: int,
        crashes: float = 0.002,
        faults: float = 0.02,
        check: Callable[[], None] = lambda: None,
        engine: Callable[[Any], None] = lambda plan: None,
        stalls_before: str = "",
    ):
        self.rng = random.Random(seed)
        self.switches = self.rng.choice([0.3, 0.05])  # some actors stand still while others do a lot
        self.crashes, self.faults, self.check, self.engine = crashes, faults, check, engine
        self.stalls_before = stalls_before
        self.requests, self.ends_at = 0, dict[str, float]()
        self.written: dict[str, int] = {}  # by path, the number of the request that wrote it last
        self._writers: dict[str, Stretch] = {}  # and what that was about
        self.removed: dict[str, int] = {}  # and that removed it last
        self.refused: set[str] = set()  # paths for which a request failed as often as it is sent again
        self._met: dict[str, collections.deque[bool]] = {}  # by path, whether the last requests failed
        self.actors: list[Actor] = []
        self._back = threading.Semaphore(0)
        self._current: Actor | None = None
        self._own = threading.local()

    def spawn(self, name: str, work: Callable[[], None]) -> None:
        parent: Actor | None = getattr(self._own, "actor", None)
        # What an actor starts is about what that one is about.
        began = self.requests if parent is None else parent.stretch.began
        actor = Actor(name, Stretch(began), priority=self.rng.random())
        if self.rng.random() < 0.5:
            actor.stalls_at = self.rng.randint(1, self.rng.choice([3, 10, 40]))

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
            actor.stretch.ended = min(actor.stretch.ended, self.requests)  # earlier where it was killed
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
            assert self._back.acquire(timeout=600), f"{actor.name} waits for another actor"
            self.check()
            if actor.error is not None:
                raise actor.error
        for actor in self.actors:
            assert actor.thread is not None
            actor.thread.join()

    @property
    def current(self) -> int:
        """The number of the actor that asks, as a process has one; 0 where no actor does."""
        actor: Actor | None = getattr(self._own, "actor", None)
        return 0 if actor is None else self.actors.index(actor) + 1

    def is_running(self, number: int, began: int = 0) -> bool:
        """Takes the place of `logloom.io.storage.disk.is_running`."""
        actor = self.actors[number - 1] if number else None
        return actor is None or actor.is_alive

    def begin(self) -> None:
        """The actor begins something for which what it finds must stay young."""
        actor = self._own.actor
        actor.stretch.ended = self.requests
        actor.stretch = Stretch(self.requests)

    def old(self) -> list[str]:
        """What may have been written a grace before all that actors are about began.

        Time can't have passed while that was on its way which the file was written in.
        """
        before = min((a.stretch.began for a in self.actors if a.is_alive), default=self.requests + 1)
        return [
            path
            for path, number in self.written.items()
            if number < before and self._writers[path].ended <= before
        ]

    def next(self, what: str, path: str) -> str | None:
        """The fault that a request meets; None for none. Requests of others than actors meet none."""
        actor: Actor | None = getattr(self._own, "actor", None)
        if actor is None:
            return None
        place, actor.place = place_of(path), place_of(path)
        is_shared = any(other.place == place for other in self.actors if other is not actor)
        share = max(self.switches, 0.15 * is_shared)  # most happens where two are at work
        actor.acts += what in ("write", "remove")
        stalls = what in ("write", "remove") and actor.acts == actor.stalls_at
        within = "/".join(path.partition("://")[2].split("/")[2:])
        if self.stalls_before and f"{what} {within}".startswith(self.stalls_before) and not actor.has_stalled:
            stalls = actor.has_stalled = True
        if not actor.is_dead and (stalls or self.rng.random() < share):
            actor.priority = -1.0 if stalls else self.rng.random()
            self._back.release()
            actor.baton.acquire()
        is_last = what == "write" and self.rng.random() < self.ends_at.get(place_of(path), 0)
        if actor.is_dead or is_last or self.rng.random() < self.crashes:
            actor.is_dead = True
            actor.stretch.ended = min(actor.stretch.ended, self.requests)
            raise Crashed
        self.requests += 1
        if what in ("write", "remove"):
            (self.written if what == "write" else self.removed)[path] = self.requests
        if what == "write":
            self._writers[path] = actor.stretch
        if what == "write" and "/runs/removing/" in path:
            actor.notes.append(path)
        elif what == "remove":  # never later than half a grace after it was noted, or nothing more is removed
            self.written |= dict.fromkeys(actor.notes, self.requests)
            self._writers |= dict.fromkeys(actor.notes, actor.stretch)
        fails = self.rng.random() < self.faults
        met = self._met.setdefault(path, collections.deque(maxlen=2 * (1 + len(retries.WAITS))))
        met.append(fails)
        if sum(met) > len(retries.WAITS):
            self.refused.add(path)
        kinds: list[Any] = ["lost", "503", "reset", "short"]
        return self.rng.choice(kinds) if fails else None
