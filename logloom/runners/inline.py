"""Steps of a pipeline without Beam, in this process or in local workers.

`INLINE` replaces `apache_beam` when a pipeline is built. Elements are made when the next step
asks for them, so that a partition is read back while it is still in memory, and only what steps group or take
as side input is held.

Here: what steps are, and a job made of them.
Elsewhere: the worker processes (local_workers).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

from logloom.caching import cached_property
from logloom.errors import UsageError
from logloom.metrics import collected
from logloom.runners.local_workers import LocalWorkers
from logloom.runners.options import Finished, Spread, Submitted
from logloom.text import OnMessage


class Elements:
    """The elements between two steps: one step may ask for them, or many by a side input."""

    def __init__(self, elements: Iterable[Any], workers: LocalWorkers | None = None):
        """
        Args:
            workers: make the elements after a Reshuffle or a group; this process, where there are none.
        """
        self._elements, self._workers = elements, workers

    @property
    def pipeline(self) -> Elements:
        """What steps start from that need no elements."""
        return Elements([], self._workers)

    def __or__(self, step: InlineStep) -> Elements:
        return step.on(self)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._elements)

    def replaced(self, elements: Iterable[Any]) -> Elements:
        """Other elements, made where these are."""
        return Elements(elements, self._workers)

    def mapped(self, step: FlatMap) -> Elements:
        """What a step makes of them."""
        return self.replaced(step.of_all(self))

    def spread(self) -> Elements:
        """The same elements; what the next steps make of each is made by any of the workers."""
        return SpreadElements(self, [[]], self._workers) if self._workers else self


class SpreadElements(Elements):
    """Elements that workers make, in stages: what an element becomes in one may go to another worker."""

    def __init__(self, start: Iterable[Any], stages: Sequence[Sequence[FlatMap]], workers: LocalWorkers):
        super().__init__(start, workers)
        self._stages, self._run = stages, workers.run

    def __iter__(self) -> Iterator[Any]:
        stages = [[step.with_values() for step in steps] for steps in self._stages if steps]
        return self._run(self._elements, stages) if stages else iter(self._elements)

    def mapped(self, step: FlatMap) -> Elements:
        *before, last = self._stages
        return self._staged([*before, [*last, step]])

    def spread(self) -> Elements:
        return self._staged([*self._stages, []])

    def _staged(self, stages: Sequence[Sequence[FlatMap]]) -> Elements:
        assert self._workers is not None
        return SpreadElements(self._elements, stages, self._workers)


class SideInput:
    """Elements of another step as an argument, made when they are first asked for."""

    def __init__(self, made: Elements, take: Callable[[list[Any]], Any]):
        self._made, self._take = made, take

    @cached_property
    def value(self) -> Any:
        return self._take(list(self._made))


class FlatMap(NamedTuple):
    """A step that makes any number of elements of one.

    Attributes:
        is_map: the function gives one element, not some.
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    is_map: bool

    def with_values(self) -> FlatMap:
        """The step with what its side inputs hold."""
        given = (one.value if isinstance(one, SideInput) else one for one in self.arguments)
        return self._replace(arguments=tuple(given))

    def of_all(self, elements: Iterable[Any]) -> Iterator[Any]:
        """What the step makes of all elements, one after the other."""
        step = None
        for element in elements:
            step = step or self.with_values()
            made = step.function(element, *step.arguments)
            if self.is_map:
                yield made
            else:
                yield from made


class InlineStep(NamedTuple):
    """A step, by what it makes of all elements; its label is for engines that show it."""

    on: Callable[[Elements], Elements]

    def __rrshift__(self, label: str) -> InlineStep:
        return self


def _composite(function: Callable[..., Elements]) -> Callable[..., InlineStep]:
    """Steps that a function puts together."""
    return lambda *arguments: InlineStep(lambda elements: function(elements, *arguments))


def _flat_map(function: Callable[..., Iterable[Any]], *arguments: Any) -> InlineStep:
    return InlineStep(lambda elements: elements.mapped(FlatMap(function, arguments, is_map=False)))


def _map(function: Callable[..., Any], *arguments: Any) -> InlineStep:
    return InlineStep(lambda elements: elements.mapped(FlatMap(function, arguments, is_map=True)))


def _group_by_key() -> InlineStep:
    return InlineStep(lambda elements: elements.replaced(_grouped(elements)).spread())


def _grouped(elements: Iterable[tuple[Any, Any]]) -> Iterator[tuple[Any, list[Any]]]:
    groups: dict[Any, list[Any]] = {}
    for key, value in elements:
        groups.setdefault(key, []).append(value)
    yield from groups.items()


def _create(values: Sequence[Any], reshuffle: bool = True) -> InlineStep:
    return InlineStep(lambda start: start.replaced(values).spread())


INLINE = SimpleNamespace(
    Create=_create,
    FlatMap=_flat_map,
    GroupByKey=_group_by_key,
    Impulse=lambda: InlineStep(lambda start: start.replaced([b""])),
    Map=_map,
    Reshuffle=lambda: InlineStep(lambda elements: elements.spread()),
    ptransform_fn=_composite,
    pvalue=SimpleNamespace(
        AsList=lambda made: SideInput(made, list),
        AsSingleton=lambda made: SideInput(made, lambda one: one[0]),
    ),
)


class InlineJob:
    """A pipeline that runs when it is waited for."""

    def __init__(self, construct: Callable[..., Any], name: str, workers: LocalWorkers | None = None):
        self._construct, self._name, self._workers = construct, name, workers

    def wait(self, on_message: OnMessage) -> Finished:
        with collected() as metrics:
            for _ in self._construct(Elements([], self._workers), beam=INLINE):
                pass
        spreads = {name: Spread(*numbers) for name, numbers in metrics.spreads.items()}
        return Finished(self._name, metrics.counters, spreads)

    def detached(self) -> Submitted:
        raise UsageError("the direct runner can't detach")

    def cancel(self) -> None:
        """The job ended with the call that ran it."""
