"""Find a module's imports from its source, without importing anything.

Here: `follow`, which follows a module's imports; `ModuleSearch`, which finds files as `import` does; the
installed package of a file.
Elsewhere: dependencies of a derived column (logloom.transforms.rows.derive.dependencies), loading
files given as --py (logloom.transforms.rows.derive.python_files).

Imports within functions and conditions are included. A name that is computed at run time can't be followed,
nor can a compiled extension.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import pkgutil
import sys
from collections.abc import Callable, Iterable, Iterator
from importlib.machinery import BuiltinImporter, FrozenImporter, ModuleSpec, PathFinder
from importlib.metadata import Distribution, PackageNotFoundError, distribution, distributions

from logloom.values import dataclass

_STAR = "*"
_BY_NAME = ("import_module", "__import__")  # functions that import the name in their first argument
_WITHOUT_FILES = (BuiltinImporter, FrozenImporter)
_SITES = ("site-packages", "dist-packages")


@dataclass(frozen=True)
class Module:
    """A module's file.

    Attributes:
        content: of the file; None for a folder that is a package without one.
        is_python: whether the content is source, and not compiled.
    """

    name: str
    path: str
    content: bytes | None
    is_package: bool
    is_python: bool = True


Find = Callable[[str], Module | None]


def follow(first: str, find: Find) -> tuple[dict[str, Module], set[str]]:
    """Return the modules that one imports, directly or through others.

    Args:
        first: its dotted name.
        find: returns the module of a dotted name, None to stop there.

    Returns:
        Modules by name, including the first and parent packages, and imported names that weren't followed: of
        other or missing modules, and of values of a module.
    """
    found: dict[str, Module] = {}
    ends: set[str] = set()
    seen: set[str] = set()
    waiting = [first]
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        parts = name.split(".")
        for number in range(1, len(parts) + 1):
            prefix = ".".join(parts[:number])
            if parts[number - 1] == _STAR:
                package = found[prefix.rpartition(".")[0]]
                waiting += (f"{package.name}.{public}" for public in _public_names(package))
                break
            if prefix not in found:
                module = find(prefix)
                if module is None:
                    ends.add(prefix)
                    break
                found[prefix] = module
                waiting += imported_names(module)
    return found, ends


def imported_names(module: Module) -> Iterator[str]:
    """List the dotted names that a module's source imports; `from a import b` gives a.b, a module or not.

    Empty if the source can't be parsed: importing it raises the error.
    """
    package = module.name if module.is_package else module.name.rpartition(".")[0]
    for node in _nodes(module):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute("." * node.level + (node.module or ""), package)
            if base:
                yield from (f"{base}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and node.args:
            function = node.func
            called = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
            name = node.args[0]
            if called in _BY_NAME and isinstance(name, ast.Constant) and isinstance(name.value, str):
                yield from filter(None, [_absolute(name.value, package)])


def _nodes(module: Module) -> Iterator[ast.AST]:
    if module.is_python and module.content:
        try:
            tree = ast.parse(module.content, module.path)
        except (SyntaxError, ValueError, RecursionError, MemoryError):  # e.g. of endless parentheses
            return
        yield from ast.walk(tree)


def _absolute(name: str, package: str) -> str:
    """Return the absolute form of a name; "" if it is invalid."""
    try:
        found = importlib.util.resolve_name(name, package) if name.startswith(".") else name
    except ImportError:
        return ""
    return found if all(part.isidentifier() for part in found.split(".")) else ""


def _public_names(module: Module) -> Iterator[str]:
    """List texts in statements that set `__all__`: names that `from package import *` imports."""
    for node in _nodes(module):
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Expr):
            inner = list(ast.walk(node))
            if any(isinstance(one, ast.Name) and one.id == "__all__" for one in inner):
                texts = (one.value for one in inner if isinstance(one, ast.Constant))
                yield from (text for text in texts if isinstance(text, str) and text.isidentifier())


class ModuleSearch:
    """Finds the files of modules like `import`, without importing parent packages."""

    def __init__(self, folder: str | None = None):
        """
        Args:
            folder: to find top-level modules in; None for all of `sys.path`.
        """
        self._folder = folder
        self._specs: dict[str, ModuleSpec | None] = {}
        importlib.invalidate_caches()  # files may be newer than cached listings of folders

    def spec(self, name: str) -> ModuleSpec | None:
        """Return the spec of a module, None if there is none; `loader` is None for a folder without
        `__init__`.
        """
        if name not in self._specs:
            above = name.rpartition(".")[0]
            self._specs[name] = self._search(name, above)
        return self._specs[name]

    def _search(self, name: str, above: str) -> ModuleSpec | None:
        if not above:
            return _in_folders(name, [self._folder]) if self._folder is not None else _anywhere(name, None)
        package = self.spec(above)
        if package is None or package.submodule_search_locations is None:
            return None
        folders = list(package.submodule_search_locations)
        return _anywhere(name, folders) if self._folder is None else _in_folders(name, folders)

    def module(self, name: str) -> Module | None:
        """Return a module with its content; None if it has no readable file."""
        spec = self.spec(name)
        if spec is None:
            return None
        is_package = spec.submodule_search_locations is not None
        if spec.loader is None:
            return Module(name, "", None, is_package)
        if spec.origin is None or spec.origin in ("built-in", "frozen"):
            return None
        try:
            if hasattr(spec.loader, "get_data"):
                content = spec.loader.get_data(spec.origin)
            else:
                with open(spec.origin, "rb") as file:
                    content = file.read()
        except (OSError, ImportError):
            return None
        return Module(name, spec.origin, content, is_package, spec.origin.endswith(".py"))


def _anywhere(name: str, folders: list[str] | None) -> ModuleSpec | None:
    """Search with all finders of this process, such as those of editable installs.

    Those of modules that travel to workers (`travels`) are skipped: they depend on loaded modules.
    """
    for finder in sys.meta_path:
        if finder is PathFinder:
            spec = _in_folders(name, sys.path if folders is None else folders)
        elif finder in _WITHOUT_FILES or getattr(finder, "travels", False):
            continue
        else:
            try:
                spec = finder.find_spec(name, folders)
            except Exception:  # one that requires the parent package to be imported
                continue
        if spec is not None:
            return spec
    return None


def _in_folders(name: str, folders: Iterable[str]) -> ModuleSpec | None:
    """Search like PathFinder, which uses the imported parent packages."""
    portions: list[str] = []
    for folder in folders:
        finder = pkgutil.get_importer(folder or os.getcwd())
        spec = finder.find_spec(name) if finder is not None else None
        if spec is not None and spec.loader is not None:
            return spec
        if spec is not None:
            portions += spec.submodule_search_locations or ()
    if not portions:
        return None
    spec = ModuleSpec(name, None, is_package=True)
    spec.submodule_search_locations = portions
    return spec


def is_of_python(name: str) -> bool:
    """Return whether a module is in the standard library, by its name."""
    return name.partition(".")[0] in sys.stdlib_module_names


def providing_package(spec: ModuleSpec) -> Distribution | None:
    """Return the installed package with the file of a module; None for others, including editable ones."""
    if spec.loader is None or not spec.origin:
        return None
    try:
        if _has(named := distribution(spec.name.partition(".")[0]), spec.origin):
            return named
    except PackageNotFoundError:
        pass
    levels = spec.name.count(".") + (2 if spec.submodule_search_locations is not None else 1)
    folder = spec.origin
    for _ in range(levels):
        folder = os.path.dirname(folder)
    return next((one for one in distributions(path=[folder]) if _has(one, spec.origin)), None)


def _has(package: Distribution, path: str) -> bool:
    base = os.path.abspath(str(package.locate_file("")))
    inner = os.path.relpath(os.path.abspath(path), base).replace(os.sep, "/")
    if inner.startswith("../"):
        return False
    files = package.read_text("RECORD")
    if files is None:  # e.g. of packages of Linux distributions
        tops = (package.read_text("top_level.txt") or "").split()
        return os.path.basename(base) in _SITES and inner.split("/")[0].removesuffix(".py") in tops
    return any(line.startswith(f"{inner},") for line in files.splitlines())
