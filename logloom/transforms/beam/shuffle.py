"""Distribution of elements to all workers, on every engine.

Here: `spread_by_key`, and `composite`, by which functions become steps of a pipeline.

Flink's optimizer assumes that what a Reshuffle distributed stays distributed, whatever is derived from it,
and drops a second Reshuffle that follows with nothing but maps between: the partitions of one log would all
be built by the worker that planned them. A GroupByKey is never dropped, nor the Reshuffle after it, so the
first of two in a row is this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any


def composite(beam: Any, function: Callable[..., Any], *arguments: Any) -> Any:
    """A step that a function puts together of others, called with elements, arguments and `beam`.

    Beam would show the arguments in the graph, which must not grow with them.
    """
    return beam.ptransform_fn(lambda elements: function(elements, *arguments, beam))()


def spread_by_key(elements: Any, key: Callable[[Any], str], beam: Any) -> Any:
    """The elements, each at the worker that its key leads to.

    Args:
        key: of an element; picklable. Better different for each than few.
        beam: `apache_beam`, or its replacement.
    """
    return (
        elements
        | "Key" >> beam.Map(_keyed, key)
        | "Group" >> beam.GroupByKey()
        | "Ungroup" >> beam.FlatMap(_elements)
    )


def _keyed(element: Any, key: Callable[[Any], str]) -> tuple[str, Any]:
    return key(element), element


def _elements(group: tuple[str, Iterable[Any]]) -> Iterable[Any]:
    return group[1]
