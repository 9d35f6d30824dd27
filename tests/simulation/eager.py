"""Beam's steps run at once, here, in the thread that asks: the real wiring of a build without an engine.

As engines do, it gives elements in any order, and does some work twice.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from logloom.pipelines.build import prepared, raise_outcome
from logloom.pipelines.plan import BuildPlan
from logloom.transforms import build_logs, finish

REPEATED = 0.05  # the share of work that is done twice, as where an engine takes a worker for dead


@dataclass
class Collection:
    """The elements between two steps."""

    elements: list[Any]
    rng: random.Random

    @property
    def pipeline(self) -> Collection:
        return self

    def __or__(self, step: Any) -> Collection:
        if hasattr(step, "expand"):
            return step.expand(self)
        return Collection(list(step.work(self.elements, self.rng)), self.rng)


@dataclass
class Step:
    work: Callable[[list[Any], random.Random], Iterable[Any]]

    def __rrshift__(self, label: str) -> Step:
        return self


def _given(argument: Any) -> Any:
    return argument.value() if isinstance(argument, _Side) else argument


@dataclass
class _Side:
    value: Callable[[], Any]


def _flat_map(function: Callable[..., Iterable[Any]], *arguments: Any) -> Step:
    def work(elements: list[Any], rng: random.Random) -> Iterable[Any]:
        for element in elements:
            given = [_given(argument) for argument in arguments]
            if rng.random() < REPEATED:
                list(function(element, *given))
            yield from list(function(element, *given))

    return Step(work)


def _map(function: Callable[..., Any], *arguments: Any) -> Step:
    return _flat_map(lambda *given: [function(*given)], *arguments)


def _shuffled(elements: list[Any], rng: random.Random) -> list[Any]:
    return rng.sample(elements, len(elements))


def _grouped(elements: list[Any], rng: random.Random) -> list[Any]:
    groups: dict[Any, list[Any]] = {}
    for key, value in _shuffled(elements, rng):
        groups.setdefault(key, []).append(value)
    return list(groups.items())


_COUNTER = SimpleNamespace(inc=lambda count: None, update=lambda value: None)
EAGER = SimpleNamespace(
    Map=_map,
    FlatMap=_flat_map,
    Reshuffle=lambda: Step(_shuffled),
    GroupByKey=lambda: Step(_grouped),
    Impulse=lambda: Step(lambda elements, rng: [b""]),
    pvalue=SimpleNamespace(
        AsList=lambda made: _Side(lambda: list(made.elements)),
        AsSingleton=lambda made: _Side(lambda: made.elements[0]),
    ),
    metrics=SimpleNamespace(
        Metrics=SimpleNamespace(counter=lambda *name: _COUNTER, distribution=lambda *name: _COUNTER)
    ),
)


def build_eagerly(plan: BuildPlan, rng: random.Random) -> None:
    """Runs a planned build to its commit, where `EAGER` is the `beam` of logloom.transforms.build_logs.

    Raises:
        LogloomError: what `logloom.pipelines.build.build` raises.
    """
    plan = prepared(plan)
    tasks = Collection([log.task for log in plan.logs], rng)
    outcomes = tasks | build_logs.BuildLogs(plan.job)
    outcomes | build_logs.CommitVersion(plan.job, [task.log_id for task in tasks.elements])
    raise_outcome(finish.read_outcome(plan.job), plan.job)
