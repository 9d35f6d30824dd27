"""Registries of classes named in configs, and pipelines of transforms.

Here: `Registry`, and the two that datasets and transforms are built through; `Compose`; and initialising at
first use, `force_full_init`.
Elsewhere: what is registered (the modules beside, and users').
"""

from __future__ import annotations

import functools
import importlib
import logging
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from logloom.text import near_to


class Registry:
    """Classes and functions by name, which configs such as {"type": "ToyDataset", …} build.

    Where mmengine has been imported, names that aren't here are looked up in its registry of the same name.
    """

    def __init__(self, name: str, homes: Mapping[str, str] | None = None):
        """
        Args:
            name: what is registered, such as "dataset".
            homes: modules that register a name, imported when that is first asked for.
        """
        self.name = name
        self._homes = dict(homes or {})
        self._modules: dict[str, Callable[..., Any]] = {}

    def __len__(self) -> int:
        return len(self._modules)

    def __contains__(self, key: str) -> bool:
        return self.get(key) is not None

    def __repr__(self) -> str:
        return f"Registry({self.name}: {', '.join(sorted(self._modules))})"

    @property
    def module_dict(self) -> dict[str, Callable[..., Any]]:
        return self._modules

    def get(self, key: str) -> Callable[..., Any] | None:
        """What is registered under a name, a scope such as "mmdet." before it aside; None for nothing."""
        if not isinstance(key, str):
            raise TypeError(f"a name of a {self.name} is text, got {type(key)}")
        plain = key.rpartition(".")[2]
        if key not in self._modules and plain in self._homes:
            importlib.import_module(self._homes.pop(plain))
        found = self._modules.get(key) or self._modules.get(plain)
        if found is None and "mmengine.registry" in sys.modules:
            theirs = getattr(sys.modules["mmengine.registry"], f"{self.name}s".upper(), None)
            found = theirs.get(key) if theirs is not None else None
        return found

    def build(self, cfg: Mapping[str, Any], *, default_args: Mapping[str, Any] | None = None) -> Any:
        """Makes the object that a config names.

        Args:
            cfg: `type`, a registered name or a class or function, and its arguments.
            default_args: arguments that `cfg` may leave out, `type` too.

        Raises:
            TypeError: `cfg` is no mapping, or its `type` is neither name nor callable.
            KeyError: there is no `type`, or nothing is registered under it.
        """
        if not isinstance(cfg, Mapping):
            raise TypeError(f"cfg should be a dict, but got {type(cfg)}")
        arguments = {**(default_args or {}), **cfg}
        if "type" not in arguments:
            raise KeyError(f'the config of a {self.name} must contain the key "type", but got {dict(cfg)}')
        kind = arguments.pop("type")
        if isinstance(kind, str):
            made_by = self.get(kind)
            if made_by is None:
                raise KeyError(
                    f"{kind} is not in the {self.name} registry{near_to(kind, sorted(self._modules))}"
                )
        elif callable(kind):
            made_by = kind
        else:
            raise TypeError(f"type must be a str or valid type, but got {type(kind)}")
        return made_by(**arguments)

    def register_module(
        self,
        name: str | Iterable[str] | None = None,
        force: bool = False,
        module: Callable[..., Any] | None = None,
    ) -> Any:
        """Registers `module`, or gives a decorator that registers what it decorates.

        Args:
            name: one or more; that of the class or function by default.
            force: whether it may take the place of another of its name.

        Raises:
            TypeError: an argument is of another type.
            KeyError: the name is taken.
        """
        if not isinstance(force, bool):
            raise TypeError(f"force must be a boolean, but got {type(force)}")
        names = [name] if isinstance(name, str) else None if name is None else name
        if names is not None and not (
            isinstance(names, list | tuple) and all(isinstance(n, str) for n in names)
        ):
            raise TypeError(f"name must be None, a str, or a sequence of str, but got {type(name)}")
        if module is not None:
            return self._register(module, names, force)
        return lambda decorated: self._register(decorated, names, force)

    def _register(self, module: Any, names: Iterable[str] | None, force: bool) -> Any:
        if not callable(module):
            raise TypeError(f"module must be Callable, but got {type(module)}")
        for name in names or [module.__name__]:
            self._homes.pop(name, None)
            if name in self._modules and not force:
                raise KeyError(
                    f"{name} is already registered in {self.name} at {self._modules[name].__module__}"
                )
            self._modules[name] = module
        return module


DATASETS = Registry(
    "dataset",
    {
        "BaseDataset": "logloom.datasets.openmmlab.dataset",
        "ConcatDataset": "logloom.datasets.openmmlab.wrappers",
        "RepeatDataset": "logloom.datasets.openmmlab.wrappers",
        "ClassBalancedDataset": "logloom.datasets.openmmlab.wrappers",
        "LogloomDataset": "logloom.datasets.openmmlab.version_dataset",
    },
)
"""Classes of datasets by their names, for `dict(type=...)` in configurations."""
TRANSFORMS = Registry("transform")
"""Transforms of pipelines by their names, for `dict(type=...)` in configurations."""


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
