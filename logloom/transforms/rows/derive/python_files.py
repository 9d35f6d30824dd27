"""Read and load Python files given as --py, with modules imported beside them.

Here: `PythonFile`, which is sent to workers without access to its path, and the finder that imports
such modules, on the driver and on workers.
Elsewhere: imports of a module (logloom.transforms.rows.derive.imports), calling functions
(logloom.transforms.rows.derive.columns).
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import pathlib
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from importlib.abc import ExecutionLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType

from logloom.errors import UsageError
from logloom.transforms.rows.derive.imports import Module, ModuleSearch, follow, is_of_python
from logloom.values import dataclass

_LOADING = threading.RLock()


@dataclass(frozen=True)
class PythonFile:
    """A module as sent to workers.

    Attributes:
        module: its dotted name.
        content: of the file; empty for a folder that is a package without `__init__`.
        is_given: whether the user passed it, so that recipes may use its functions.
        others: names that such a file or modules beside it import from elsewhere.
    """

    module: str
    path: str
    content: bytes
    is_package: bool = False
    is_given: bool = False
    others: tuple[str, ...] = ()


def read_files(paths: Iterable[str | os.PathLike[str]]) -> tuple[PythonFile, ...]:
    """Read Python files, and the modules and packages in their folders that they import.

    Raises:
        UsageError: a file can't be read, isn't Python by its name, or imports an ambiguous module or one that
            can't travel.
    """
    files: dict[str, PythonFile] = {}
    for path in map(pathlib.Path, paths):
        for file in _with_neighbours(path):
            other = files.setdefault(file.module, file)
            if other.content != file.content:
                raise UsageError(
                    f"{file.path}: another module of its name is {other.path}; rename one of them"
                )
            if file.is_given:
                files[file.module] = file
    return tuple(files.values())


def _with_neighbours(path: pathlib.Path) -> Iterator[PythonFile]:
    if path.suffix != ".py":
        raise UsageError(f"{path}: not a Python file; its name must end in .py")
    path = path.absolute()
    if not path.stem.isidentifier() or is_of_python(path.stem):
        raise UsageError(f"{path}: its name must be an identifier that no module of Python has; rename it")
    try:
        given = Module(path.stem, str(path), path.read_bytes(), is_package=False)
    except OSError as error:
        raise UsageError(f"{path}: can't be read: {error}") from error
    beside = _Beside(given)
    modules, ends = follow(given.name, beside.find)
    others = tuple(sorted(ends - {name for name in ends if name.partition(".")[0] in modules}))
    for module in modules.values():
        if not module.is_python:
            raise UsageError(
                f"{path}: imports {module.path}, a compiled file, which can't be sent to workers; make it a "
                "package that is installed on them"
            )
        content = module.content or b""
        file = PythonFile(module.name, module.path, content, module.is_package)
        yield replace(file, is_given=True, others=others) if module is given else file


class _Beside:
    """Finds modules in the folder of a file."""

    def __init__(self, given: Module):
        self._given = given
        self._here = ModuleSearch(os.path.dirname(given.path))
        self._everywhere = ModuleSearch()

    def find(self, name: str) -> Module | None:
        """Find the module of this name if it is in the folder.

        Raises:
            UsageError: another one exists elsewhere.
        """
        top = name.partition(".")[0]
        if top == self._given.name:
            return self._given if name == top else None
        if top == "logloom":
            return None
        module = self._here.module(name)
        return None if module is None or (name == top and self._is_elsewhere(module)) else module

    def _is_elsewhere(self, module: Module) -> bool:
        """Return whether `import` finds another module for a name, and this is only a folder, which has
        lower priority.
        """
        other = self._everywhere.spec(module.name)
        where = "a module of Python" if is_of_python(module.name) else ""
        if not where and other is not None and other.loader is not None and other.origin:
            where = "" if os.path.realpath(other.origin) == os.path.realpath(module.path) else other.origin
        if where and module.content is not None:
            raise UsageError(
                f"{self._given.path}: {module.name} may be {module.path}, a file beside it, or {where}; "
                "rename the first"
            )
        return bool(where)


def modules_of(files: Iterable[PythonFile]) -> list[str]:
    """Return the names by which recipes refer to files."""
    return [file.module for file in files if file.is_given]


class _FileLoader(ExecutionLoader):
    """Loads a module from a file's content."""

    def __init__(self, file: PythonFile):
        self.file = file

    def get_filename(self, fullname: str) -> str:
        return self.file.path

    def get_source(self, fullname: str) -> str:
        return importlib.util.decode_source(self.file.content)

    def is_package(self, fullname: str) -> bool:
        return self.file.is_package

    def get_code(self, fullname: str) -> CodeType:
        return compile(self.file.content, self.file.path, "exec", dont_inherit=True)


class _Finder(MetaPathFinder):
    """Finds the modules of loaded files, before all other finders."""

    travels = True  # see `logloom.transforms.rows.derive.imports`

    def __init__(self) -> None:
        self._groups: list[tuple[PythonFile, ...]] = []  # each of one job
        self._files: dict[str, PythonFile] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        file = self._files.get(fullname)
        if file is None:
            return None
        spec = ModuleSpec(fullname, _FileLoader(file), origin=file.path, is_package=file.is_package)
        spec.has_location = True  # so that the module has a __file__
        return spec

    def module(self, name: str) -> Module | None:
        """Return a module of one of the files."""
        file = self._files.get(name)
        return None if file is None else Module(name, file.path, file.content, file.is_package)

    def has(self, name: str) -> bool:
        """Return whether the module or its parent package is one of the files."""
        return name.partition(".")[0] in self._files

    def add(self, files: tuple[PythonFile, ...]) -> bool:
        """Register files; false if they are registered already.

        Files of another job are removed if names of theirs conflict with names or imports of these.
        """
        if files in self._groups:
            return False
        for group in [one for one in self._groups if _meet(one, files) or _meet(files, one)]:
            self.remove(group)
        self._groups.append(files)
        self._files.update((file.module, file) for file in files)
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)
        return True

    def remove(self, files: tuple[PythonFile, ...]) -> None:
        """Remove files, and the modules loaded from them."""
        self._groups.remove(files)
        for file in files:
            self._files.pop(file.module, None)
            if isinstance(getattr(sys.modules.get(file.module), "__loader__", None), _FileLoader):
                del sys.modules[file.module]


def _meet(files: Iterable[PythonFile], others: Iterable[PythonFile]) -> bool:
    """Return whether names of a job's files conflict with names or imports of another's."""
    wanted = {name for file in others for name in (file.module, *file.others)}
    return any(file.module in wanted for file in files)


FINDER = _Finder()


def load_files(files: Sequence[PythonFile]) -> None:
    """Import Python files as modules of their own names, so that "name:function" finds them.

    Raises:
        UsageError: a file can't be imported, or its name is that of another module.
    """
    group = tuple(files)
    with _LOADING:
        if not group or not FINDER.add(group):
            return
        try:
            for file in group:
                _make_way(file)
            for file in group:
                if file.is_given:
                    _import(file)
        except UsageError:
            FINDER.remove(group)
            raise


def _import(file: PythonFile) -> None:
    try:
        importlib.import_module(file.module)
    except (Exception, SystemExit) as error:  # e.g. a script's own `sys.exit(main())`
        raise UsageError(f"{file.path}: can't be imported: {type(error).__name__}: {error}") from error


def _make_way(file: PythonFile) -> None:
    """Unload a module that came from another file, so that it can be imported from this one."""
    loaded = sys.modules.get(file.module)
    if loaded is None:
        return
    if os.path.realpath(getattr(loaded, "__file__", None) or "") != os.path.realpath(file.path):
        raise UsageError(f"{file.path}: its name must be an identifier that no imported module has")
    del sys.modules[file.module]
