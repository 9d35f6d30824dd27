"""Columns that users compute from others.

Here: the `derive` marker, how a function is found and identified, and how it is called and checked.
Elsewhere: which columns are derived (logloom.transforms.columns), when they are (logloom.transforms.rows).
"""

from __future__ import annotations

import importlib
import inspect
import os
import pathlib
import sys
import threading
import traceback
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any, TypeVar

import numpy as np

from logloom.blocks import Array, Ragged, Values, take
from logloom.digests import ColumnDigest, file_digest
from logloom.errors import LogloomError, UsageError
from logloom.schema import ColumnType
from logloom.transforms.columns import DerivedPlan
from logloom.transforms.resample import Times, cast_values

Function = TypeVar("Function", bound=Callable[..., Any])
_MARK = "__logloom_derive__"
_SOURCE = "__logloom_source__"  # of a module made of a PythonFile
_GROUP = "logloom.derive"  # entry points, whose packages may be derived by
# Of the machine, not of a log's data: another attempt may do without.
NOT_OF_THE_LOG = (MemoryError, OSError, ImportError)
_LOADING = threading.RLock()  # a module stands in sys.modules before all its functions do


class DeriveError(LogloomError):
    """A function raised on the rows of a log, or gave what the column can't hold."""


def derive(function: Function) -> Function:
    """Marks a function that computes a column from others, so that recipes may name it.

    It takes a dict from column name to (rows, ...) array, a `Ragged` where lengths differ by row, all of them
    read-only, and returns (rows, ...) values. It must be row-wise: a row's value depends on that row alone.

    Args:
        function: what computes the column.

    Returns:
        The function itself.

    Examples:
        >>> @logloom.derive
        ... def stands(columns):
        ...     return columns["ego.speed"] < 0.1
        >>> stands({"ego.speed": np.array([0.0, 3.0])}).tolist()
        [True, False]
    """
    setattr(function, _MARK, True)
    return function


@dataclass(frozen=True)
class PythonFile:
    """A file with functions to derive by, as it travels to workers that don't see its path."""

    path: str
    text: str

    @property
    def module(self) -> str:
        return pathlib.Path(self.path).stem


def read_files(paths: Iterable[str | os.PathLike[str]]) -> tuple[PythonFile, ...]:
    """Reads Python files.

    Raises:
        UsageError: a file can't be read, or isn't Python by its name.
    """
    files = []
    for path in map(pathlib.Path, paths):
        if path.suffix != ".py":
            raise UsageError(f"{path}: not a Python file; its name must end in .py")
        try:
            files.append(PythonFile(str(path.absolute()), path.read_text(encoding="utf-8")))
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{path}: can't be read: {error}") from error
    return tuple(files)


def modules_of(files: Iterable[PythonFile]) -> list[str]:
    """The names that recipes know files by."""
    return [file.module for file in files]


def load_files(files: Iterable[PythonFile]) -> None:
    """Imports Python files as modules of their own name, so that "name:function" finds them.

    Raises:
        UsageError: a file can't be imported, or its name is that of another module.
    """
    for file in files:
        with _LOADING:
            _load_file(file)


def _load_file(file: PythonFile) -> None:
    loaded = sys.modules.get(file.module)
    if getattr(loaded, _SOURCE, None) == file:
        return
    if not file.module.isidentifier() or (loaded is not None and not hasattr(loaded, _SOURCE)):
        raise UsageError(f"{file.path}: its name must be an identifier that no imported module has")
    module = types.ModuleType(file.module)
    module.__file__ = file.path
    setattr(module, _SOURCE, file)
    sys.modules[file.module] = module
    try:
        exec(compile(file.text, file.path, "exec"), module.__dict__)  # nosec B102 # the user's --py
    except (Exception, SystemExit) as error:  # a script's own `sys.exit(main())`, too
        del sys.modules[file.module]
        raise UsageError(f"{file.path}: can't be imported: {type(error).__name__}: {error}") from error


def check_allowed(name: str, allowed: Iterable[str]) -> None:
    """Refuses "module:function" of a module that nobody but the recipe asks for: importing it runs its code.

    Args:
        allowed: modules and packages; beside them, those of installed entry points are.

    Raises:
        UsageError: it is none of them; nothing was imported.
    """
    module = name.partition(":")[0]
    installed = (point.module for point in entry_points(group=_GROUP))
    if not any(f"{module}.".startswith(f"{package}.") for package in (*allowed, *installed)):
        raise UsageError(
            f"derive {name!r}: importing {module} runs its code, which only you can allow: give its file as "
            f"--py, or say --allow-derive {module.partition('.')[0]}; a package allows itself by an entry "
            f"point in {_GROUP}"
        )


def load(name: str) -> Callable[[Mapping[str, Values]], Any]:
    """Finds the function "module:function".

    Raises:
        UsageError: there is none, or it is not marked with `logloom.derive`.
    """
    module_name, _, function_name = name.partition(":")
    try:
        function = getattr(importlib.import_module(module_name), function_name)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise UsageError(
            f"derive {name!r}: {error}. "
            "Write module:function, of an installed package or of a file given as --py."
        ) from error
    if not callable(function) or not getattr(function, _MARK, False):
        raise UsageError(f"derive {name!r}: mark the function with @logloom.derive")
    return function  # type: ignore[no-any-return]


def source_digest(name: str) -> str:
    """BLAKE3 of the source file that defines the function, in hex.

    Raises:
        UsageError: the function can't be found, or has no source file.
    """
    function = inspect.unwrap(load(name))
    try:
        path = inspect.getsourcefile(function)
    except TypeError:
        path = None
    if path is None or not pathlib.Path(path).is_file():
        raise UsageError(
            f"derive {name!r}: its source file can't be found, so a change of it would go unnoticed"
        )
    return file_digest(path)


def compute(plan: DerivedPlan, inputs: Mapping[str, Values], ticks: Times) -> Values:
    """Calls a column's function on some rows.

    Args:
        inputs: the columns that `plan.inputs` names, (n, ...) each.
        ticks: (n,) of the rows.

    Returns:
        (n, *shape) or n ragged values of the column's type.

    Raises:
        DeriveError: the function raises, or returns something else than n values of this type.
        LogloomError: it raises for want of memory, files or modules.
    """
    function = load(plan.function)
    try:
        result = function({name: _read_only(inputs[name]) for name in plan.inputs})
    except (Exception, SystemExit) as error:  # one that exits would end the command, with its own code
        kind = LogloomError if isinstance(error, NOT_OF_THE_LOG) else DeriveError
        raise kind(
            f"column {plan.name!r}: {plan.function} fails on rows {ticks[0]} to {ticks[-1]} ns: "
            f"{type(error).__name__}: {error}{_line_of(error, function)}"
        ) from error
    try:
        values = _values(result, plan.ctype)
    except Exception as error:
        raise DeriveError(
            f"column {plan.name!r}: {plan.function} returned {type(result).__name__}, "
            f"which is no {plan.ctype} per row: {error}"
        ) from error
    _check_shape(plan, values, len(ticks))
    try:
        return cast_values(values, plan.ctype, plan.name, ticks)
    except LogloomError as error:
        raise DeriveError(f"{plan.function}: {error}") from error


def check_row_wise(plan: DerivedPlan, inputs: Mapping[str, Values], ticks: Times, whole: Values) -> None:
    """Checks that two halves of the rows, computed apart, equal the whole to the bit.

    Raises:
        UsageError: they don't.
    """
    middle = len(ticks) // 2
    for half in (slice(0, middle), slice(middle, len(ticks))):
        rows = {name: take(inputs[name], half) for name in plan.inputs}
        if len(ticks[half]) and not _same(compute(plan, rows, ticks[half]), take(whole, half), plan.ctype):
            raise UsageError(
                f"column {plan.name!r}: {plan.function} gives other values when it gets fewer rows. "
                "A row's value must depend on that row alone, for how rows are grouped differs by run."
            )


def _line_of(error: BaseException, function: Callable[..., Any]) -> str:
    """Where in the function's own file an error came up; without its folder, which differs by machine."""
    file = inspect.unwrap(function).__code__.co_filename
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return f" ({pathlib.Path(file).name}, line {lines[-1]})" if lines else ""


def _values(result: Any, ctype: ColumnType) -> Values:
    """What the function returned, as values of a block."""
    if isinstance(result, Ragged):
        return result
    if ctype.kind != "array":
        return Ragged.from_bytes([_as_bytes(row) for row in result])
    if ctype.is_ragged:
        rows = [np.asarray(row) for row in result]
        if any(row.ndim != len(ctype.shape) or row.shape[ctype.num_ragged :] != ctype.tail for row in rows):
            raise ValueError(f"shapes {sorted({row.shape for row in rows})}")
        dtypes = sorted({row.dtype for row in rows}, key=str)
        flat: list[Array] = [row.reshape(-1, *ctype.tail) for row in rows]
        values = np.concatenate(flat) if flat else np.empty((0, *ctype.tail), ctype.dtype)
        if len(dtypes) > 1 and ctype.dtype not in dtypes:
            raise ValueError(f"rows of differing dtypes {', '.join(map(str, dtypes))}")
        return Ragged(
            values, np.array([row.shape[: ctype.num_ragged] for row in rows]).reshape(len(rows), -1)
        )
    return np.asarray(result)


def _as_bytes(row: Any) -> bytes:
    if isinstance(row, str):
        return row.encode()
    if isinstance(row, bytes):
        return row
    raise TypeError(f"a row is {type(row).__name__}, not bytes or str")


def _check_shape(plan: DerivedPlan, values: Values, num_rows: int) -> None:
    if isinstance(values, Ragged):
        fits = plan.ctype.is_ragged and values.tail == plan.ctype.tail
        fits = fits and values.shapes.shape == (num_rows, plan.ctype.num_ragged)
        found = f"{len(values)} ragged rows of {values.dtype}"
    else:
        fits = values.shape == (num_rows, *plan.ctype.shape)
        found = f"{values.dtype} of shape {values.shape}"
    numbers = values.dtype.kind in "iufb" and plan.ctype.dtype.kind in "iufb"
    if not fits or not (numbers or values.dtype == plan.ctype.dtype):
        raise DeriveError(
            f"column {plan.name!r}: {plan.function} returned {found} for {num_rows} rows of {plan.ctype}"
        )


def _read_only(values: Values) -> Values:
    """A view that can't be written to, so that no function changes the columns that others see."""
    if isinstance(values, Ragged):
        return Ragged(_frozen(values.values), values.shapes) if values.is_joined else values
    return _frozen(values)


def _frozen(values: Array) -> Array:
    view = values.view()
    view.flags.writeable = False
    return view


def _same(a: Values, b: Values, ctype: ColumnType) -> bool:
    digests = [ColumnDigest("", ctype) for _ in (a, b)]
    for digest, values in zip(digests, (a, b), strict=True):
        digest.update(values)
    return digests[0].hexdigest() == digests[1].hexdigest()
