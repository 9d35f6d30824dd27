"""Dependencies of derived columns: modules by content, packages by version.

Here: `CodeOf`, which finds them from the source of the function's module.
Elsewhere: `Dependency` itself, and parts of a plan with dependencies (logloom.transforms.rows.plan.row_plan);
identities (logloom.transforms.build.job); imports of a module (logloom.transforms.rows.derive.imports).
"""

from __future__ import annotations

import functools
import importlib.util
import marshal
import os
import pathlib
import re
import struct
import sys
import threading
from importlib.machinery import ModuleSpec
from importlib.metadata import Distribution

from blake3 import blake3

from logloom.errors import UsageError
from logloom.transforms.rows.derive.imports import (
    Module,
    ModuleSearch,
    follow,
    is_of_python,
    providing_package,
)
from logloom.transforms.rows.derive.python_files import FINDER
from logloom.transforms.rows.plan.row_plan import Dependency

_PYC_HEADER = 16  # prefix of a bytecode file
_UNCHECKED = 1  # its flags if Python uses it regardless of the source
_LOCK = threading.Lock()
_as_loaded: dict[str, tuple[ModuleSpec | None, str]] = {}  # digests of imported modules when first seen


class CodeOf:
    """Dependencies of a module's values, found from its source.

    Modules of its own package, of the folder of a file given as --py, and those that no installed package has
    count by their content, and are followed; installed packages count by their version. Python's and
    logloom's own modules don't count.

    Attributes:
        dependencies: sorted; none where no source of the module is found.
    """

    def __init__(self, module: str):
        search = _CodeSearch(module)
        found, ends = follow(module, search.find)
        self._modules = [one for one in found.values() if one.content is not None]
        self.dependencies: tuple[Dependency, ...] = ()
        if any(one.name == module for one in self._modules):
            packages = {_package(one) for one in map(search.package, ends) if one is not None}
            self.dependencies = tuple(sorted([*map(_counted, self._modules), *packages]))

    def drop_stale_bytecode(self) -> None:
        """Removes bytecode that `import` would take for these sources though it was made of others.

        Python goes by a source's size and the second of its change, which two edits may share.

        Raises:
            UsageError: it was imported already, or can't be removed.
        """
        for module in self._modules:
            if module.is_python and not FINDER.has(module.name) and _is_bytecode_stale(module):
                try:
                    pathlib.Path(importlib.util.cache_from_source(module.path)).unlink(missing_ok=True)
                except OSError as error:
                    raise UsageError(f"{module.path}: its bytecode is of another source: {error}") from error
                _check(module.name not in sys.modules, module.name)

    def check_as_loaded(self) -> None:
        """Raises a UsageError where modules changed since an earlier plan of this process imported them."""
        with _LOCK:
            for one in map(_counted, self._modules):
                if (loaded := sys.modules.get(one.name)) is not None:
                    now = loaded.__spec__, one.content
                    spec, before = _as_loaded.setdefault(one.name, now)
                    _check(spec is not loaded.__spec__ or before == one.content, one.name)
                    _as_loaded[one.name] = now


def _check(is_current: bool, module: str) -> None:
    if not is_current:
        raise UsageError(
            f"{module} was changed after this process imported it, so rows would be made by its old code; "
            "start the process again, or reload the module"
        )


def _counted(module: Module) -> Dependency:
    return Dependency("module", module.name, blake3(module.content or b"").hexdigest())


def _is_bytecode_stale(module: Module) -> bool:
    try:
        stat = os.stat(module.path)
        with open(importlib.util.cache_from_source(module.path), "rb") as file:
            data = file.read()
    except (OSError, NotImplementedError):  # there is none
        return False
    flags, *source = struct.unpack_from("<III", data.ljust(_PYC_HEADER, b"\0"), 4)
    is_taken = flags == _UNCHECKED or (
        flags == 0 and source == [int(stat.st_mtime) & 0xFFFFFFFF, stat.st_size & 0xFFFFFFFF]
    )
    if not is_taken or data[:4] != importlib.util.MAGIC_NUMBER:
        return False
    try:
        made = compile(module.content or b"", module.path, "exec", dont_inherit=True)
        return bool(marshal.loads(data[_PYC_HEADER:]) != made)
    except (SyntaxError, ValueError, EOFError, TypeError, RecursionError, MemoryError):
        return True


def _package(installed: Distribution) -> Dependency:
    name = re.sub(r"[-_.]+", "-", installed.metadata["Name"]).lower()
    return Dependency("package", name, installed.version)


class _CodeSearch:
    """Finds the modules that count by their content, and the packages of others."""

    def __init__(self, first: str):
        self._first = first
        self._own = first.partition(".")[0]
        self._search = ModuleSearch()
        self.package = functools.cache(self._package_of)

    def find(self, name: str) -> Module | None:
        """Find the module of this name; None if it counts by a version, or not at all."""
        if FINDER.has(name):
            return FINDER.module(name)
        is_own = name.partition(".")[0] == self._own
        if not is_own and (_is_given(name) or self.package(name) is not None):
            return None
        module = None if name == "__main__" else self._search.module(name)
        return self._as_loaded() if module is None and name == self._first else module

    def _package_of(self, name: str) -> Distribution | None:
        if FINDER.has(name) or _is_given(name) or name.partition(".")[0] == self._own:
            return None
        spec = self._search.spec(name)
        return None if spec is None else providing_package(spec)

    def _as_loaded(self) -> Module | None:
        """Return the first module as loaded if `import` doesn't find it again, such as that of a script."""
        path = getattr(sys.modules.get(self._first), "__file__", None) or ""
        try:
            return Module(self._first, path, pathlib.Path(path).read_bytes(), is_package=False)
        except OSError:
            return None


def _is_given(name: str) -> bool:
    """Return whether a module belongs to Python, or to logloom, whose values have their own version
    numbers.
    """
    return is_of_python(name) or name.partition(".")[0] == "logloom"
