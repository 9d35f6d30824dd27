"""Beam's steps run at once, here, in the thread that asks: the real wiring of a build without an engine.

As engines do, it gives elements in any order, and does some work twice.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from logloom.metrics import collected
from logloom.pipelines.build.build import prepared, raise_outcome
from logloom.pipelines.plan.build_plan import Plan
from logloom.transforms.beam.build import build_logs, commit_version
from logloom.transforms.build import commit

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
)


def run_eagerly(plan: Plan, rng: random.Random) -> None:
    """Runs a prepared build to its commit."""
    tasks = Collection(list(plan.elements), rng)
    with collected():
        outcomes = build_logs(tasks, plan.job, EAGER)
        commit_version(outcomes, plan.job, plan.log_ids, EAGER)


def build_eagerly(plan: Plan, rng: random.Random) -> None:
    """As `run_eagerly`, of a plan as it was made.

    Raises:
        LogloomError: what `logloom.pipelines.build.build.build` raises.
    """
    plan = prepared(plan)
    run_eagerly(plan, rng)
    raise_outcome(commit.read_outcome(plan.job), plan.job)
