"""The code that a derived column depends on: modules by their content, installed packages by their version.

Here: `code_dependencies`, which finds them by the source of the function's module.
Elsewhere: `Dependency` itself, and which parts of a plan have some (logloom.transforms.columns); identities
(logloom.transforms.job); what a module imports (logloom.transforms.imports).
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
import threading
from collections.abc import Callable, Mapping
from importlib.machinery import ModuleSpec
from importlib.metadata import Distribution
from typing import Any

from blake3 import blake3

from logloom.errors import UsageError
from logloom.transforms.columns import Dependency
from logloom.transforms.imports import Module, ModuleSearch, follow, is_of_python, providing_package
from logloom.transforms.python_files import FINDER

_LOCK = threading.Lock()
_as_loaded: dict[str, tuple[ModuleSpec | None, str]] = {}  # digests of imported modules when they were met


def code_dependencies(name: str, function: Callable[..., Any]) -> tuple[Dependency, ...]:
    """The modules and packages that a function depends on.

    Modules of its own package, of the folder of a file given as --py, and those that no installed package has
    count by their content, and are followed; installed packages count by their version. Python's and
    logloom's own modules don't count.

    Args:
        name: "module:function".
        function: what it names.

    Raises:
        UsageError: its module has no source file, or a module isn't what this process imported before.
    """
    module = name.partition(":")[0]
    search = _CodeSearch(module, function)
    found, ends = follow(module, search.find)
    if module not in found or found[module].content is None:
        raise UsageError(
            f"derive {name!r}: its source file can't be found, so a change of it would go unnoticed"
        )
    contents = {
        one.name: blake3(one.content).hexdigest() for one in found.values() if one.content is not None
    }
    _check_as_loaded(name, contents)
    modules = [Dependency("module", one, digest) for one, digest in contents.items()]
    packages = {_package(one) for one in map(search.package, ends) if one is not None}
    return tuple(sorted([*modules, *packages]))


def _package(installed: Distribution) -> Dependency:
    name = re.sub(r"[-_.]+", "-", installed.metadata["Name"]).lower()
    return Dependency("package", name, installed.version)


class _CodeSearch:
    """Finds the modules that count by their content, and the packages of others."""

    def __init__(self, first: str, function: Callable[..., Any]):
        self._first, self._function = first, function
        self._own = first.partition(".")[0]
        self._search = ModuleSearch()
        self.package = functools.cache(self._package_of)

    def find(self, name: str) -> Module | None:
        """The module of this name; None where it counts by a version, or not at all."""
        if FINDER.has(name):
            return FINDER.module(name)
        is_own = name.partition(".")[0] == self._own
        if not is_own and (_is_given(name) or self.package(name) is not None):
            return None
        module = None if name == "__main__" else self._search.module(name)
        return self._of_function() if module is None and name == self._first else module

    def _package_of(self, name: str) -> Distribution | None:
        if FINDER.has(name) or _is_given(name) or name.partition(".")[0] == self._own:
            return None
        spec = self._search.spec(name)
        return None if spec is None else providing_package(spec)

    def _of_function(self) -> Module | None:
        """The module of a function that lies where `import` doesn't look, as that of a script."""
        try:
            path = inspect.getsourcefile(inspect.unwrap(self._function))
            with open(path or "", "rb") as file:
                return Module(self._first, path or "", file.read(), is_package=False)
        except (OSError, TypeError):
            return None


def _is_given(name: str) -> bool:
    """Whether a module comes with Python, or is logloom's, whose values have numbers of their own."""
    return is_of_python(name) or name.partition(".")[0] == "logloom"


def _check_as_loaded(name: str, contents: Mapping[str, str]) -> None:
    """Raises a UsageError where files of imported modules changed since an earlier plan of this process."""
    with _LOCK:
        for module, content in contents.items():
            loaded = sys.modules.get(module)
            if loaded is None:
                continue
            spec, before = _as_loaded.setdefault(module, (loaded.__spec__, content))
            if spec is not loaded.__spec__:  # imported again since
                _as_loaded[module] = loaded.__spec__, content
            elif before != content:
                raise UsageError(
                    f"derive {name!r}: {module} was changed after this process imported it, so rows would be "
                    "made by the code of before; start the process again, or reload the module"
                )
