"""What datasets and their wrappers have in common with OpenMMLab's: pipelines, and initialising at first use.

Here: `Compose`, `force_full_init`.
Elsewhere: the datasets (dataset, wrappers).
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from logloom.datasets.openmmlab.registry import TRANSFORMS

logger = logging.getLogger("logloom.datasets.openmmlab")


F = TypeVar("F", bound=Callable[..., Any])


Transform = Callable[..., Any]


def force_full_init(method: F) -> F:
    """Makes a method initialise its dataset fully before it runs.

    Raises:
        AttributeError: (when called) the object has no `full_init`.
    """

    @functools.wraps(method)
    def initialised(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not getattr(self, "_fully_initialized", False):
            if not hasattr(self, "full_init"):
                raise AttributeError(f"{type(self)} does not have full_init method.")
            logger.warning(
                "%s is not fully initialized; `full_init` is called for `%s`", type(self), method.__name__
            )
            self.full_init()
            self._fully_initialized = True
        return method(self, *args, **kwargs)

    return initialised  # type: ignore[return-value]


class Compose:
    """Transforms in a row; one that gives None ends it."""

    def __init__(self, transforms: Sequence[Mapping[str, Any] | Transform] | None):
        """
        Args:
            transforms: callables, or configs that TRANSFORMS builds.

        Raises:
            TypeError: one is neither, or a config builds something that can't be called.
        """
        self.transforms: list[Transform] = []
        for given in transforms or ():
            transform = TRANSFORMS.build(given) if isinstance(given, Mapping) else given
            if not callable(transform):
                raise TypeError(f"transform must be a callable object or dict, but got {type(transform)}")
            self.transforms.append(transform)

    def __call__(self, data: Any) -> Any:
        for transform in self.transforms:
            data = transform(data)
            if data is None:
                return None
        return data

    def __repr__(self) -> str:
        return "\n".join([f"{type(self).__name__}(", *(f"    {t}" for t in self.transforms), ")"])
