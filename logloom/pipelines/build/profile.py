"""Profiles of a build: steps of all its processes, as a table and for speedscope.

Here: `profiled`, the context of `logloom build --profile`, `totals_of` and `speedscope`.
Elsewhere: recording steps (logloom.io.storage.step_times).

The file has speedscope's own format (https://www.speedscope.app/file-format-schema.json), with an evented
profile for each thread. Workers on other machines, as Dataflow's, can't record into a folder of this one: of
these there is what the engine counted, seconds and bytes of partitions.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import pathlib
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from logloom.errors import UsageError
from logloom.io.storage.step_times import TimedStep, read_steps, recorded
from logloom.text import OnMessage, counted, human_bytes
from logloom.values import dataclass

SCHEMA = "https://www.speedscope.app/file-format-schema.json"
BOUND_BY = {
    "run the job": "",  # what the engine adds; with worker processes it waits for them
    "import": "start-up",
    "plan": "start-up",
    "ask the store": "network",
    "read a chunk": "disk",
    "read rows": "disk",
    "sync": "disk",
    "write": "disk",
    "decode": "decode",
    "make rows": "decode",
    "hash": "hash",
}  # by how a step's name begins; the rest is "other", and "" isn't counted


@dataclass
class StepTotal:
    """All steps of one name.

    Attributes:
        count: how many there were: of "ask the store", requests.
        seconds: in them, without those of steps within them, over all threads.
        cpu: of these, seconds of the processor; the others are waits.
        nbytes: that they were about.
    """

    name: str
    count: int = 0
    seconds: float = 0.0
    cpu: float = 0.0
    nbytes: int = 0

    @property
    def waits(self) -> float:
        return max(0.0, self.seconds - self.cpu)

    @property
    def bound_by(self) -> str:
        """What limits it: disk, network, decode, hash, start-up or other; "" where it waits for others."""
        return next((kind for begins, kind in BOUND_BY.items() if self.name.startswith(begins)), "other")


@contextlib.contextmanager
def profiled(path: pathlib.Path | None, on_message: OnMessage) -> Iterator[str]:
    """Records steps of this process while the block runs; says then where the time went, and writes the file.

    Args:
        path: of the file; None does nothing of this.

    Yields:
        The folder that workers on this machine record into, too; "" where there is no path.

    Raises:
        UsageError: the file can't be written.
    """
    if path is None:
        yield ""
        return
    _write(path, {})  # known before hours of work, not after
    with tempfile.TemporaryDirectory(prefix="logloom-profile-") as folder:
        try:
            with recorded(folder):
                yield folder
        finally:  # of a build that fails, too: what took so long until then
            steps = read_steps(folder)
            try:
                _write(path, speedscope(steps, path.name))
            except UsageError as error:  # it could be written before, and what it is about is done
                on_message(f"warning: {error}")
            for line in breakdown(steps):
                on_message(line)
            on_message(f"each thread's steps: open {path} at https://www.speedscope.app")


def _write(path: pathlib.Path, document: Any) -> None:
    try:
        path.write_text(json.dumps(document), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--profile {path}: can't be written ({error.strerror})") from error


def breakdown(steps: Sequence[TimedStep]) -> list[str]:
    """The steps as a table for people, a line for each name, the longest first; and what bound them."""
    totals = totals_of(steps)
    lines = [f"{'step':26} {'times':>7} {'seconds':>8} {'CPU':>8} {'waits':>8} {'bytes':>11}"]
    for one in totals:
        size = human_bytes(one.nbytes) if one.nbytes else ""
        times = f"{one.seconds:8.2f} {one.cpu:8.2f} {one.waits:8.2f}"
        lines.append(f"{one.name:26} {one.count:7} {times} {size:>11}".rstrip())
    shares: Counter[str] = Counter()
    for one in filter(lambda total: total.bound_by, totals):
        shares[one.bound_by] += round(1000 * one.seconds)
    whole = max(1, shares.total())
    bound = ", ".join(f"{share / whole:.0%} {kind}" for kind, share in shares.most_common())
    count = len({_thread(one) for one in steps})
    return [*lines, f"of the time of {counted(count, 'thread')}: {bound}"]


def totals_of(steps: Iterable[TimedStep]) -> list[StepTotal]:
    """Sums by name, the longest first; a step within another counts as its own, not as the outer one's."""
    found: dict[str, StepTotal] = {}
    for _, own in itertools.groupby(steps, _thread):
        around: list[TimedStep] = []
        for one in own:
            _ended(around, one.start)
            total = found.setdefault(one.name, StepTotal(one.name))
            total.count += 1
            total.nbytes += one.nbytes
            total.seconds += (one.stop - one.start) / 1e9
            total.cpu += one.cpu / 1e9
            if around:  # an outer step that never ended has no line
                outer = found[around[-1].name]
                outer.seconds -= (one.stop - one.start) / 1e9
                outer.cpu -= one.cpu / 1e9
            around.append(one)
    return sorted(found.values(), key=lambda total: (-total.seconds, total.name))


def speedscope(steps: Sequence[TimedStep], name: str) -> dict[str, Any]:
    """The document that speedscope opens.

    Args:
        steps: by thread, as `read_steps` gives them.
    """
    frames = {step_name: number for number, step_name in enumerate(sorted({one.name for one in steps}))}
    began: dict[str, int] = {}  # machines have clocks of their own
    for one in steps:
        began[one.host] = min(began.get(one.host, one.start), one.start)
    profiles = []
    for (host, process, thread), own in itertools.groupby(steps, _thread):
        events = list(_events(own, frames, began[host]))
        profiles.append(
            {
                "type": "evented",
                "name": f"{host} {process} {thread}",
                "unit": "nanoseconds",
                "startValue": events[0]["at"],
                "endValue": events[-1]["at"],
                "events": events,
            }
        )
    return {
        "$schema": SCHEMA,
        "name": name,
        "exporter": "logloom",
        "activeProfileIndex": 0,
        "shared": {"frames": [{"name": frame} for frame in frames]},
        "profiles": profiles,
    }


def _events(steps: Iterable[TimedStep], frames: dict[str, int], began: int) -> Iterator[dict[str, Any]]:
    """A thread's steps as they open and close, the inner before the outer."""
    around: list[TimedStep] = []
    for one in steps:
        for last in _ended(around, one.start):
            yield {"type": "C", "frame": frames[last.name], "at": last.stop - began}
        yield {"type": "O", "frame": frames[one.name], "at": one.start - began}
        around.append(one)
    for last in reversed(around):
        yield {"type": "C", "frame": frames[last.name], "at": last.stop - began}


def _ended(around: list[TimedStep], now: int) -> list[TimedStep]:
    """Takes the steps that are over from those around, the inner first."""
    over = []
    while around and around[-1].stop <= now:
        over.append(around.pop())
    return over


def _thread(one: TimedStep) -> tuple[str, int, str]:
    return one.host, one.process, one.thread
