"""What a benchmark found: a table for people, and for `python -m benchmarks` a line of JSON for each task.

A task is one thing that several contenders did in turns. Those whose names begin with "logloom" are ours; the
limits are what plain hardware or a hand-written loop reach, and everybody else is a peer.
"""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.harness import Sample, print_table, ratios, spread, warn_if_busy

JSON_LINES = "LOGLOOM_BENCH_JSON"


@dataclass(frozen=True)
class Task:
    """One thing that several did.

    Attributes:
        name: what was done.
        count: how many `unit`s one run does.
        samples: contender to its runs, one a round; the others are measured against the first of ours.
        limits: contenders that are no peers but what the machine can do.
        startup: contender to seconds of each run that are set aside.
    """

    name: str
    count: float
    unit: str
    samples: Mapping[str, Sequence[Sample]]
    limits: Sequence[str] = ()
    startup: Mapping[str, float] = field(default_factory=dict)

    @property
    def ours(self) -> str:
        return next(name for name in self.samples if name.startswith("logloom"))

    @property
    def peers(self) -> list[str]:
        return [name for name in self.samples if not name.startswith("logloom") and name not in self.limits]

    def seconds(self, who: str) -> float:
        """The median run, start-up set aside."""
        return statistics.median(sample.seconds for sample in self.samples[who]) - self.startup.get(who, 0)

    def faster(self, who: str) -> list[float]:
        """How many times as fast as `who` ours is, round by round."""
        aside = self.startup.get
        return ratios(self.samples[who], self.samples[self.ours], aside(who, 0), aside(self.ours, 0))

    def best(self, names: Sequence[str]) -> str | None:
        """The fastest of some contenders."""
        return min(names, key=self.seconds, default=None)

    def row(self, who: str) -> list[str]:
        """A line of the table, after the task's name."""
        cpu = statistics.median(sample.cpu for sample in self.samples[who])
        peak = max(sample.peak_rss for sample in self.samples[who])
        seconds = self.seconds(who)
        rate = self.count / seconds
        return [
            who,
            f"{seconds:.3g}",
            f"{cpu:.3g}" if cpu else "",
            f"{rate:,.{0 if rate >= 100 else 2}f} {self.unit}",
            "" if who == self.ours else spread(self.faster(who)),
            f"{peak / 1e6:.0f}" if peak else "",
        ]

    def as_json(self, title: str) -> dict[str, object]:
        """All that was measured."""
        return {
            "benchmark": title,
            "task": self.name,
            "count": self.count,
            "unit": self.unit,
            "limits": list(self.limits),
            "startup": dict(self.startup),
            "contenders": {
                who: {
                    "seconds": [round(sample.seconds, 6) for sample in found],
                    "cpu": [round(sample.cpu, 6) for sample in found],
                    "peak": max(sample.peak_rss for sample in found),
                }
                for who, found in self.samples.items()
            },
        }

    @classmethod
    def from_json(cls, found: Mapping[str, object]) -> Task:
        """The task that `as_json` wrote."""
        contenders = found["contenders"]
        assert isinstance(contenders, dict)
        samples = {
            who: [Sample(*pair, each["peak"]) for pair in zip(each["seconds"], each["cpu"], strict=True)]
            for who, each in contenders.items()
        }
        values = {name: found[name] for name in ("count", "unit", "limits", "startup")}
        return cls(str(found["task"]), samples=samples, **values)  # type: ignore[arg-type]


class Report:
    """The tasks of one benchmark."""

    def __init__(self, title: str):
        self._title = title
        self._tasks: list[Task] = []

    def add(
        self,
        name: str,
        count: float,
        unit: str,
        samples: Mapping[str, Sequence[Sample]],
        limits: Sequence[str] = (),
        startup: Mapping[str, float] | None = None,
    ) -> None:
        """Takes what contenders did; see `Task`."""
        self._tasks.append(Task(name, count, unit, samples, limits, startup or {}))

    def finish(self) -> None:
        """Prints the table, and passes the figures on to whoever runs several benchmarks."""
        rounds = len(next(iter(self._tasks[0].samples.values())))
        columns = ["task", "who", "s", "CPU s", "a second", "logloom is faster by", "peak MB"]
        rows = [
            [task.name if who == next(iter(task.samples)) else "", *task.row(who)]
            for task in self._tasks
            for who in task.samples
        ]
        print_table(f"{self._title}: median (least–greatest) of {rounds}", columns, rows, left=2)
        warn_if_busy()
        if path := os.environ.get(JSON_LINES):
            with open(path, "a", encoding="utf-8") as file:
                file.writelines(json.dumps(task.as_json(self._title)) + "\n" for task in self._tasks)
