"""Fill the arrays of a batch with rows, in a Loader's workers or its own process.

Here: `Filler`, which does a `FillTask`, and the functions that make a row part of a batch.
Elsewhere: the order of rows (logloom.datasets.loader.loader), the processes
(logloom.datasets.loader.workers).
"""

from __future__ import annotations

import dataclasses
import inspect
import io
import math
import pickle
import traceback
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.reduction import ForkingPickler
from typing import Any

import cloudpickle
import numpy as np
from numpy.typing import NDArray

from logloom.blocks import Array
from logloom.datasets.loader.shared_memory import Spec, is_fixed
from logloom.errors import UsageError

Fn = Callable[..., Any]
_AS_THEY_ARE = (np.ndarray, str, bytes, dict)
_TEXTS = (str, bytes, type(None))


@dataclasses.dataclass(frozen=True)
class Work:
    """What is done to rows, the same in every process; `rows` that a segment holds."""

    source: Any
    fns: Sequence[Fn]
    spec: Spec
    rows: int

    def __reduce__(self) -> tuple[Any, ...]:
        # To a spawned process: functions go by value where no module has them, such as lambdas.
        return (_unpacked, (_packed((self.source, self.fns, self.spec, self.rows)),))


class _Pickler(cloudpickle.Pickler):
    @property
    def dispatch_table(self) -> Any:
        # What only multiprocessing can send (shared values, connections) is still its to pickle.
        return ChainMap(ForkingPickler(io.BytesIO()).dispatch_table, super().dispatch_table)


def _packed(value: Any) -> bytes:
    buffer = io.BytesIO()
    _Pickler(buffer, protocol=5).dump(value)
    return buffer.getvalue()


def _unpacked(data: bytes) -> Work:
    return Work(*pickle.loads(data))  # nosec B301 # by our parent


@dataclasses.dataclass(frozen=True)
class FillTask:
    """Some rows of a batch, or of several.

    Attributes:
        number: counts up; jobs below the loader's oldest are not wanted any more.
        segment: number of their memory.
        places: (n,) in the segment, where the rows go; ascending.
        indices: (n,) of the rows in the source.
        step, stride: the step of the row at place p is step + p * stride.
    """

    number: int
    segment: int
    places: range | NDArray[np.int64]
    indices: NDArray[np.int64]
    step: int
    stride: int
    seed: int

    def step_of(self, number: int) -> int:
        """The step of one of the rows."""
        return self.step + int(self.places[number]) * self.stride


def prepare(row: Mapping[str, Any], fns: Sequence[Fn], seed: list[int]) -> Mapping[str, Any]:
    """A row as it goes into a batch: numbers and lists of numbers as arrays, then through the functions."""
    if not fns:
        return row
    prepared: Mapping[str, Any] = {key: as_array(value) for key, value in row.items()}
    for fn in fns:
        given = fn(prepared, seed=seed)
        if not isinstance(given, Mapping):
            raise TypeError(f"{fn!r} must return a dict, not {type(given).__name__}")
        prepared = given
    return prepared


def as_array(value: Any) -> Any:
    """Numbers and lists of numbers as arrays; bytes, text and what has no regular shape stay as they are."""
    if isinstance(value, _AS_THEY_ARE):
        return value
    try:
        array = np.asarray(value)
    except ValueError:
        return value
    return value if array.dtype.hasobject else array


def spec_of(row: Mapping[str, Any]) -> dict[str, tuple[np.dtype[Any], tuple[int | None, ...]]]:
    """Dtype and shape of each value of a prepared row; object for bytes and text, of any length.

    Raises:
        UsageError: a value can't be part of a batch.
    """
    spec: dict[str, tuple[np.dtype[Any], tuple[int | None, ...]]] = {}
    for key, value in row.items():
        if isinstance(value, str | bytes):
            spec[key] = np.dtype(object), ()
            continue
        if isinstance(value, list) and value and all(isinstance(one, _TEXTS) for one in value):
            spec[key] = np.dtype(object), (len(value),)
            continue
        try:
            array = np.asarray(value)
        except ValueError:
            array = np.empty((), object)
        if array.dtype.hasobject:
            raise UsageError(
                f"{key!r} is {type(value).__name__}, which has no fixed shape: decode, pad or drop it in a "
                "function given as fns=[…]"
            )
        spec[key] = (np.dtype(object) if array.dtype.kind in "US" else array.dtype), array.shape
    return spec


def put(arrays: Mapping[str, Array], spec: Spec, at: int, row: Mapping[str, Any]) -> None:
    """Writes a prepared row into a batch.

    Args:
        arrays: of the keys of fixed size; others are left out.

    Raises:
        ValueError: its keys, or a value's dtype or shape, are not those of row 0.
    """
    if len(row) != len(spec) or row.keys() != spec.keys():
        raise ValueError(
            f"keys {sorted(row)}, those of row 0 are {sorted(spec)}; rows of a batch have equal keys"
        )
    for key in arrays:
        dtype, shape = spec[key]
        value = row[key]
        array = value if type(value) is np.ndarray else np.asarray(value)
        if array.dtype != dtype or array.shape != shape:
            check_fits(key, array, dtype, shape)
        arrays[key][at] = array


def column_of(key: str, values: Sequence[Any], dtype: np.dtype[Any], shape: tuple[int | None, ...]) -> Any:
    """The values of some rows, of a key whose values differ in size, as a column of a batch.

    Returns:
        (n, *shape) objects; of arrays (values, lengths), and of lists of arrays (values, counts, lengths), as
        `Dataset.get_many` gives them.

    Raises:
        ValueError: values aren't what they are in row 0.
    """
    if dtype.hasobject:
        column: Array = np.empty((len(values), *(axis or 0 for axis in shape)), object)
        for row, value in enumerate(values):
            listed = value.tolist() if isinstance(value, np.ndarray) else value
            if len(shape) > 1:  # of arrays of text
                texts = np.array(listed, object)
                if texts.shape != shape:
                    raise ValueError(_misfit(key, value, "text", shape))
                column[row] = texts
            elif shape and (not isinstance(listed, list) or len(listed) != shape[0]):
                raise ValueError(_misfit(key, value, "a list", shape))
            elif not shape and not isinstance(listed, str | bytes):
                raise ValueError(_misfit(key, value, "text or bytes", shape))
            else:
                for place, one in enumerate(listed) if shape else [((), listed)]:
                    column[(row, place) if shape else row] = _plain(one)
        return column
    steps, axes, tail = _ragged_axes(shape)
    rows = [one for value in values for one in (value if steps else [value])]
    nested = axes > 1 and all(isinstance(one, list) for one in rows)
    arrays = [np.asarray(one) for row in rows for one in (row if nested else [row])]
    axes = 1 if nested else axes
    for array in arrays:
        if array.ndim != len(tail) + axes:
            raise ValueError(_misfit(key, array, str(dtype), shape))
        check_fits(key, array, dtype, (*array.shape[:axes], *tail))
    lengths = np.array([array.shape[:axes] for array in arrays], np.int64).reshape(len(arrays), axes)
    lengths = lengths[:, 0] if axes == 1 else lengths
    flat = [array.reshape(math.prod(array.shape[:axes]), *tail) for array in arrays]
    joined = np.concatenate([np.empty((0, *tail), dtype), *flat])
    form = len(values), *steps
    if nested:
        return joined, np.array([len(row) for row in rows], np.int64).reshape(form), lengths
    return joined, lengths.reshape(*form, *lengths.shape[1:])


def _ragged_axes(shape: Sequence[int | None]) -> tuple[list[int], int, list[int]]:
    """The axes before the ragged ones (one of a window), how many are ragged, and the axes behind."""
    axes, first = shape.count(None), shape.index(None) if None in shape else 0
    fixed = [axis for axis in shape if axis is not None]
    return fixed[:first], axes, fixed[first:]


def _plain(value: Any) -> Any:
    """Text and bytes of Python, of which numpy's are subclasses."""
    return str(value) if isinstance(value, str) else bytes(value) if isinstance(value, bytes) else value


def _misfit(key: str, value: Any, known: str, shape: Sequence[int | None]) -> str:
    return (
        f"{key!r} is {type(value).__name__}, in row 0 it is {known} {list(shape)}; rows of a batch have one "
        "type: convert or drop it in a function given as fns=[…]"
    )


def varying_column(
    key: str, column: Any, dtype: np.dtype[Any], shape: tuple[int | None, ...], count: int
) -> Any:
    """As `column_of`, of a column as `Dataset.get_many` gives it.

    Raises:
        ValueError: it isn't what row 0 has.
    """
    if not isinstance(column, tuple):
        return column_of(key, column, dtype, shape)
    values, lengths, *inner = column
    steps, axes, tail = _ragged_axes(shape)
    form = count, *steps, *([axes] if axes > 1 and not inner else [])
    if dtype.hasobject or lengths.shape != form:
        raise ValueError(_misfit(key, values, str(dtype), shape))
    check_fits(key, values, dtype, (len(values), *tail))
    return values.astype(dtype, copy=False), lengths, *inner


def joined_columns(pieces: Sequence[Any]) -> Any:
    """Columns, as `column_of` gives them, one after the other."""
    if len(pieces) == 1:
        return pieces[0]
    if isinstance(pieces[0], tuple):
        return tuple(np.concatenate(parts) for parts in zip(*pieces, strict=True))
    return np.concatenate(pieces)


def check_fits(key: str, array: Array, dtype: np.dtype[Any], shape: tuple[int | None, ...]) -> None:
    """
    Raises:
        ValueError: storing the array as (dtype, shape) would lose something.
    """
    if array.shape != shape or not np.can_cast(array.dtype, dtype, "safe"):
        way = "convert, pad or drop it in a function given as fns=[…]"
        if array.ndim == len(shape) == 3 and array.shape[2] == shape[2]:
            way += (
                f"; for images, give `shape: {list(shape)}` in the recipe to refuse others, or "
                f"`resize: {list(shape[:2])}` to scale all"
            )
        elif array.shape != shape and all(shape):
            way += f", or build its column with `shape: {[*shape]}`"
        raise ValueError(
            f"{key!r} is {array.dtype} {array.shape}, in row 0 it is {dtype} {shape}; rows of a batch have "
            f"one dtype and shape: {way}"
        )


class Filler:
    """Fills batches with rows of a source, in the fastest way that the source offers.

    Attributes:
        remark: why rows are read one by one although the source offers columns; None otherwise.
    """

    remark: str | None = None

    def __init__(self, work: Work):
        self._work = work
        self._varying = {key: one for key, one in work.spec.items() if not is_fixed(*one)}
        self._fetch_many = getattr(work.source, "__getitems__", None)
        self._get_columns = work.source.get_many if fills_columns(work.source, work.fns) else None

    def fill(self, arrays: Mapping[str, Array], job: FillTask, progress: NDArray[np.int64]) -> dict[str, Any]:
        """Does a job.

        Args:
            arrays: of keys whose values are of one size, which receive them.
            progress: (1,) receives the current step, for reports if this process dies.

        Returns:
            The columns of other keys, see `column_of`.

        Raises:
            RowError: a row failed.
        """
        progress[0] = job.step_of(0)
        indices = job.indices.tolist()
        unfit = None
        if self._get_columns is not None:
            unfit, columns = self._fill_columns(arrays, job)
            if unfit is None:
                return columns
            self._get_columns = None  # row by row then: it may be slower, but it says which row is to blame
        varying: dict[str, list[Any]] = {key: [] for key in self._varying}
        for number, row in enumerate(self._rows(indices, job)):
            step = job.step_of(number)
            progress[0] = step
            try:
                prepared = prepare(row, self._work.fns, [job.seed, step])
                put(arrays, self._work.spec, int(job.places[number]), prepared)
                for key, (dtype, shape) in self._varying.items():
                    varying[key].append(column_of(key, [prepared[key]], dtype, shape))
            except Exception as error:
                raise RowError(indices[number], step) from error
        if unfit is not None:  # and no row was to blame
            self.remark = (
                f"{type(self._work.source).__name__}.get_many can't fill batches ({unfit}); from here on "
                "rows are read one by one, which is slower"
            )
        return {key: joined_columns(pieces) for key, pieces in varying.items()}

    def _rows(self, indices: Sequence[int], job: FillTask) -> Iterator[Mapping[str, Any]]:
        if self._fetch_many is not None:
            try:
                rows = self._fetch_many(indices)
                if len(rows) != len(indices):
                    raise ValueError(f"__getitems__ gave {len(rows)} rows for {len(indices)} indices")
            except Exception as error:
                if len(indices) == 1:
                    raise RowError(indices[0], job.step_of(0)) from error
            else:
                yield from rows
                return
        for number, index in enumerate(indices):  # one by one, to find out which it is
            try:
                row = self._work.source[index]
            except Exception as error:
                raise RowError(index, job.step_of(number)) from error
            yield row

    def _fill_columns(self, arrays: Mapping[str, Array], job: FillTask) -> tuple[str | None, dict[str, Any]]:
        """Reads columns straight into the batch; gives the reason where that fails, and other columns."""
        count, places, varying = len(job.indices), job.places, {}
        rows = slice(places.start, places.stop) if isinstance(places, range) else places
        plain = {key for key in arrays if self._work.spec[key][0].kind not in "US"}
        out = {key: arrays[key][rows] for key in plain} if isinstance(rows, slice) else {}
        try:
            columns = self._get_columns(job.indices, out=out)  # type: ignore[misc]
            if odd := sorted(columns.keys() ^ self._work.spec.keys()):
                both = ["the result of get_many" if key in columns else "rows" for key in odd]
                pairs = zip(odd, both, strict=True)
                return "; ".join(f"{key!r} is only in {where}" for key, where in pairs), {}
            for key, (dtype, shape) in self._work.spec.items():
                if key in self._varying:
                    varying[key] = varying_column(key, columns[key], dtype, shape, count)
                elif columns[key] is not out.get(key):
                    values = np.asarray(columns[key])
                    check_fits(key, values, dtype, (len(job.indices), *shape))
                    arrays[key][rows] = values
        except Exception as error:
            return f"{type(error).__name__}: {error}", {}
        return None, varying


class RowError(Exception):
    """A row failed; the cause says why."""

    def __init__(self, index: int, step: int):
        super().__init__(index, step)
        self.index, self.step = index, step


def fills_columns(source: Any, fns: Sequence[Fn]) -> bool:
    """Whether a source offers to read many rows at once straight into batches."""
    get_many = None if fns else getattr(source, "get_many", None)
    return get_many is not None and "out" in _parameters(get_many)


def _parameters(function: Any) -> Mapping[str, Any]:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}


def explain(error: RowError) -> str:
    """The message of a failed row, with the traceback of where it failed."""
    text = "".join(traceback.format_exception(error.__cause__ or error))
    return f"row {error.index} (step {error.step}) failed: {error.__cause__ or error}\n\n{text}"
