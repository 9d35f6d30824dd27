"""States of detached jobs, requested from engines at the recorded places.

Places come from roots, which may be a stranger's: only what has the form of a place of ours is asked, and of
the answer only a state and a reason are taken.
Here: `look_at`, and what its answers are made of.
Elsewhere: asking (`detached` of each engine), jobs that a command watches (a module for each engine).
"""

from __future__ import annotations

from logloom import parts
from logloom.values import dataclass

# Of all engines; all other states are of a job that still runs.
OVER = {"finished": "done", "done": "done", "drained": "done", "failed": "failed"}
OVER |= {"canceled": "stopped", "cancelled": "stopped", "updated": "stopped"}


@dataclass(frozen=True)
class DetachedState:
    """State of a detached job.

    Attributes:
        state: "running", "done", "failed", "stopped" (it was cancelled), or "unknown" if the engine doesn't
            answer.
        why: the engine's message; "" if there is none.
    """

    state: str
    why: str = ""


def look_at(place: str) -> DetachedState | None:
    """Return the state of the job at a place; None if no engine can be asked."""
    found = (look(place) for _, look in parts.usable("jobs"))
    return next((state for state in found if state is not None), None)


def first_line(text: str) -> str:
    """The first line of a reason, to follow what it is of."""
    line = text.strip().partition("\n")[0][:300]
    return f": {line}" if line else ""
