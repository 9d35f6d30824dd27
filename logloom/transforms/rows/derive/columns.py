"""Columns that users' functions compute from others.

Here: the `derive` marker, finding, calling and checking functions.
Elsewhere: plans of derived columns (logloom.transforms.rows.plan.row_plan), computing them for rows
(logloom.transforms.rows.row_stream), files given as --py (logloom.transforms.rows.derive.python_files),
dependencies of a function (logloom.transforms.rows.derive.dependencies).
"""

from __future__ import annotations

import functools
import importlib
import inspect
import pathlib
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from logloom import parts
from logloom.blocks import Array, Lists, Ragged, Values, has_form, take
from logloom.digests import ColumnDigest
from logloom.errors import LogloomError, UsageError
from logloom.schema import ColumnType
from logloom.text import some_of
from logloom.transforms.rows.derive.dependencies import CodeOf
from logloom.transforms.rows.derive.structs import structs_of
from logloom.transforms.rows.plan.row_plan import Dependency, DerivedPlan, changed, labelled
from logloom.transforms.rows.resample import Times, cast_values

Function = TypeVar("Function", bound=Callable[..., Any])
_MARK = "__logloom_derive__"
_GROUP = "logloom.derive"  # entry points of packages whose functions are allowed
# Failures of the machine, not of a log's data, which may not recur.
NOT_OF_THE_LOG = (MemoryError, OSError, ImportError)
_NOT_FOUND = (ImportError, AttributeError, TypeError, ValueError)  # as of a name that is none


class DeriveError(LogloomError):
    """A function raised on the rows of a log, or returned values that don't fit the column."""


def derive(function: Function) -> Function:
    """Mark a function that computes a column from others, so that recipes can use it.

    It takes a dict from column name to (rows, ...) array, or `Ragged` if lengths differ by row, all of them
    read-only, and returns (rows, ...) values: of a column of structs, a structured array or a list of dicts
    for each row. It must be row-wise: a row's value depends only on that row.

    Args:
        function: computes the column.

    Returns:
        The function itself.

    Examples:
        >>> @logloom.derive
        ... def stopped(columns):
        ...     return columns["ego.speed"] < 0.1
        >>> stopped({"ego.speed": np.array([0.0, 3.0])}).tolist()
        [True, False]
    """
    setattr(function, _MARK, True)
    return function


def check_allowed(name: str, allowed: Iterable[str]) -> None:
    """Refuse "module:function" of a module that wasn't allowed, as importing it runs its code.

    Args:
        allowed: modules and packages, in addition to those of installed entry points.

    Raises:
        UsageError: it isn't allowed; nothing was imported.
    """
    module = name.partition(":")[0]
    if not any(_contains(package, module) for package in allowed) and not _declaring(module):
        raise UsageError(
            f"derive {name!r}: importing {module} runs its code, which you must allow: pass its file as "
            f"--py, or --allow-derive {module.partition('.')[0]}; a package can allow itself by an entry "
            f"point in {_GROUP}"
        )


def _contains(package: str, module: str) -> bool:
    return f"{module}.".startswith(f"{package}.")


def _declaring(module: str) -> str:
    """The distribution and the entry point that allow a module; "" if none does."""
    for package, point in parts.declared(_GROUP):
        if not isinstance(point, str) and _contains(point.value.partition(":")[0].strip(), module):
            return f"{package}, entry point {point.name!r} in {_GROUP}"
    return ""


def broken() -> Iterator[parts.Broken]:
    """Entry points that allow modules which can't be imported; imports all of them."""
    for package, point in parts.declared(_GROUP):
        if isinstance(point, str):
            yield parts.Broken(package, _GROUP, "", point)
        elif problem := parts.imported(point.value, point.load)[1]:
            yield parts.Broken(package, _GROUP, point.name, problem)


def load(name: str) -> Callable[[Mapping[str, Values]], Any]:
    """Find the function "module:function".

    Raises:
        UsageError: it doesn't exist, or is not marked with `logloom.derive`.
    """
    module_name, _, function_name = name.partition(":")
    try:
        function = getattr(importlib.import_module(module_name), function_name)
    except (Exception, SystemExit) as error:  # importing a module runs arbitrary code
        kind = "" if isinstance(error, _NOT_FOUND) else f"{type(error).__name__}: "
        declaring = _declaring(module_name)
        raise UsageError(
            f"derive {name!r}{declaring and f' ({declaring})'}: {kind}{error}. "
            "Write module:function, of an installed package or of a file given as --py."
        ) from error
    if not callable(function) or not getattr(function, _MARK, False):
        raise UsageError(f"derive {name!r}: mark the function with @logloom.derive")
    return function  # type: ignore[no-any-return]


def dependencies_of(name: str) -> tuple[Dependency, ...]:
    """Return the modules and packages that the function "module:function" depends on; see `CodeOf`.

    Raises:
        UsageError: the function can't be found, has no source file, or a module changed since this process
            imported it.
    """
    module = name.partition(":")[0]
    code = CodeOf(module)
    code.drop_stale_bytecode()
    load(name)
    code = code if code.dependencies else CodeOf(module)  # a script's module is found once it is loaded
    if not code.dependencies:
        raise UsageError(
            f"derive {name!r}: its source file can't be found, so a change of it would go unnoticed"
        )
    code.check_as_loaded()
    return code.dependencies


@functools.lru_cache(maxsize=256)
def _check_dependencies(function: str, planned: tuple[Dependency, ...]) -> None:
    """Raise a UsageError if this process has other code than the plan."""
    if differing := changed(labelled(planned), labelled(dependencies_of(function))):
        raise UsageError(
            f"derive {function!r}: {some_of(differing)} differs from the plan of the build; install the same "
            "on all workers, and don't change code while a build runs"
        )


def compute(plan: DerivedPlan, inputs: Mapping[str, Values], ticks: Times) -> Values:
    """Call a column's function on some rows.

    Args:
        inputs: the columns `plan.inputs`, (n, ...) each.
        ticks: (n,) of the rows.

    Returns:
        (n, *shape) or n ragged values of the column's type.

    Raises:
        DeriveError: the function raises, or returns something else than n values of this type.
        UsageError: its code differs from the plan of the build.
        LogloomError: it raises for lack of memory, files or modules.
    """
    if plan.dependencies:
        _check_dependencies(plan.function, plan.dependencies)
    function = load(plan.function)
    try:
        result = function({name: _read_only(inputs[name]) for name in plan.inputs})
    except (Exception, SystemExit) as error:  # SystemExit would end the command, with its exit code
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
    """Check that two halves of the rows, computed separately, equal the whole bit by bit.

    Raises:
        UsageError: they don't.
    """
    middle = len(ticks) // 2
    for half in (slice(0, middle), slice(middle, len(ticks))):
        rows = {name: take(inputs[name], half) for name in plan.inputs}
        if len(ticks[half]) and not _same(compute(plan, rows, ticks[half]), take(whole, half), plan.ctype):
            raise UsageError(
                f"column {plan.name!r}: {plan.function} returns other values for fewer rows. A row's "
                "value must depend only on that row, as the grouping of rows varies."
            )


def _line_of(error: BaseException, function: Callable[..., Any]) -> str:
    """Return the line of an error in the function's own file, without its folder, which differs by
    machine.
    """
    file = inspect.unwrap(function).__code__.co_filename
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return f" ({pathlib.Path(file).name}, line {lines[-1]})" if lines else ""


def _values(result: Any, ctype: ColumnType) -> Values:
    """Convert the function's result to values of a block."""
    if ctype.dtype.names is not None:
        return structs_of(result, ctype)
    if isinstance(result, Ragged):
        return result
    if ctype.kind == "lists":
        return _lists(result, ctype)
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
        shapes = np.array([row.shape[: ctype.num_ragged] for row in rows], np.int64)
        return Ragged(values, shapes.reshape(len(rows), ctype.num_ragged))
    return np.asarray(result)


def _lists(result: Any, ctype: ColumnType) -> Lists:
    rows = [[np.asarray(one) for one in row] for row in result]
    lists = [one for row in rows for one in row]
    if any(one.ndim == 0 or (one.size and one.shape[1:] != ctype.tail) for one in lists):
        raise ValueError(f"lists of shapes {sorted({one.shape for one in lists})}")
    dtypes = {one.dtype for one in lists if one.size}
    if len(dtypes) > 1 and ctype.dtype not in dtypes:
        raise ValueError(f"lists of differing dtypes {', '.join(sorted(map(str, dtypes)))}")
    dtype = ctype.dtype if len(dtypes) != 1 else dtypes.pop()
    return Lists.from_rows(rows, replace(ctype, dtype=dtype))


def _as_bytes(row: Any) -> bytes:
    if isinstance(row, str):
        return row.encode()
    if isinstance(row, bytes):
        return row
    raise TypeError(f"a row is {type(row).__name__}, not bytes or str")


def _check_shape(plan: DerivedPlan, values: Values, num_rows: int) -> None:
    if isinstance(values, Ragged):
        fits = has_form(values, plan.ctype) and len(values) == num_rows
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
    """Return a read-only view, so that functions can't change columns that others use."""
    if isinstance(values, Ragged):
        return values.with_values(_frozen(values.values)) if values.is_joined else values
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
