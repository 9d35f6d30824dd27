"""Imports of optional or rarely needed packages, and of names on first use.

The error for a missing package names the extra that installs it.
"""

from __future__ import annotations

import contextlib
import gc
import importlib.abc
import importlib.util
import logging
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from logloom.errors import UsageError


def imported_on_use(package: str, names: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """Make the `__getattr__` of a package that imports its names, and its modules, on first use.

    Args:
        package: its full name.
        names: by the module that defines them; a relative one begins with a dot.

    Returns:
        A function that raises AttributeError for other names, with the nearest one.
    """
    homes = {name: module for module, within in names.items() for name in within}

    def find(name: str) -> Any:
        if name in homes:
            return getattr(importlib.import_module(homes[name], package), name)
        if not name.startswith("_") and importlib.util.find_spec(f"{package}.{name}"):
            return importlib.import_module(f"{package}.{name}")
        from logloom.familiar_names import FUNCTIONS, ours
        from logloom.text import near_to

        hint = (package == "logloom" and ours(name, FUNCTIONS)) or near_to(name, homes, most=0)
        raise AttributeError(f"module {package!r} has no attribute {name!r}{hint}")

    return find


@contextlib.contextmanager
def needed(what: str, extra: str) -> Iterator[None]:
    """Convert import errors in the block to an error about an optional package.

    Args:
        what: the package's name for people, or its purpose.
        extra: of logloom that installs it.

    Raises:
        UsageError: it isn't installed.
    """
    try:
        yield
    except ImportError as error:
        raise UsageError(f"{what} is not installed ({error}); pip install 'logloom[{extra}]'") from error


@contextlib.contextmanager
def without_collection() -> Iterator[None]:
    """Disable garbage collection during imports in the block, and exempt their objects from later ones.

    The search takes a sixth of the time of large imports.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if collects:
            gc.enable()


def spare_pandas() -> None:
    """Keep pyarrow from importing pandas, which takes half a second, with the first array.

    pyarrow looks for pandas once, to recognize a Series. Here it finds none, and looks again once pandas is
    imported. If pandas is imported already, this does nothing.
    """
    import pyarrow as pa

    if "pandas" not in sys.modules:
        with left_out({"pandas"}):
            pa.array([])
        sys.meta_path.insert(0, _ShowPandas())


class _ShowPandas(importlib.abc.MetaPathFinder):
    """Makes pyarrow look for pandas again after its import: it treats NaN in a Series as missing."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if fullname != "pandas" or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                import pyarrow as pa

                run(module)
                pa.Schema.from_pandas(module.DataFrame())

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


@contextlib.contextmanager
def left_out(modules: Collection[str]) -> Iterator[None]:
    """Hide modules in the block as if they weren't installed; only in this thread."""
    finder = _LeaveOut(modules)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _LeaveOut(importlib.abc.MetaPathFinder):
    """Hides modules that weren't imported before. For one thread."""

    def __init__(self, modules: Collection[str]) -> None:
        self._modules = modules
        self._thread = threading.get_ident()

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:
        if fullname in self._modules and threading.get_ident() == self._thread:
            raise ModuleNotFoundError(f"{fullname} is left out: this command needs none", name=fullname)


@contextlib.contextmanager
def beam_needed() -> Iterator[None]:
    """`needed` for Beam, which without Google's clients warns of unused I/O."""
    root = logging.getLogger()
    before = root.handlers[:]  # to warn, it creates one
    root.addFilter(_is_news)
    try:
        with needed("Beam", "build"):
            yield
    finally:
        root.removeFilter(_is_news)
        root.handlers[:] = before


def _is_news(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith("apitools not found")
