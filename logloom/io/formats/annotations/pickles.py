"""Safe unpickling of annotation files, limited to plain and numpy values.

Here: `loads`, which builds numpy's values itself from checked parts and refuses every other callable.
Elsewhere: which files are pickles (logloom.io.formats.annotations.files).

numpy's own constructors trust the offsets, sizes and flags in a pickle, so none of them is called with these:
a dtype or array is first a `_Dtype` or `_PickledArray` that collects its parts, and is built once checked.

CPython's unpickler allocates memory before it validates: it fills a memo up to any index an opcode names, and
reserves a length before it looks for the bytes. At the end of a frame it drops the rest of an opcode that
extends beyond it, so frames are checked too: otherwise it would read other opcodes than those checked here.
"""

from __future__ import annotations

import collections
import io
import math
import pickle
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from logloom.blocks import Array

# Opcodes by the bytes that follow them. Those with bytes of their own claim nothing.
_NONE = rb"[\]ael)t\x85-\x87}dsu\x8f-\x910(21NRbo\x81\x92\x93\x94\x88\x89Q\x97\x98]"
_ONE = rb"[Kqh\x80\x82]."
_TWO = rb"[M\x83].."
_FOUR = rb"[Jj\x84].{4}"
_EIGHT = rb"G.{8}"
_LINE = rb"[ISVFLPg][^\n]*+\n"
_LINES = rb"[ci][^\n]*+\n[^\n]*+\n"
_KINDS = (_NONE + b"++", _ONE, _TWO, _FOUR, _EIGHT, _LINE, _LINES)
_PLAIN_CODES = re.compile(b"(?:" + b"|".join(_KINDS) + b")*+", re.DOTALL)

_LENGTHS = dict(zip(b"UC\x8c\x8aTBX\x8b\x8e\x8d\x96", (1,) * 4 + (4,) * 4 + (8,) * 3, strict=True))
_PUT, _LONG_BINPUT, _FRAME, _STOP = b"pr\x95."
_INDEX = re.compile(rb"([0-9]{1,18})\n")


def _check_opcodes(data: bytes) -> None:
    """Check that no opcode claims more than the pickle can contain.

    Raises:
        ValueError: one does, or is unknown; names the byte.
    """
    place, end = 0, len(data)  # `end` is that of the frame at hand
    while True:
        place = _after_plain(data, place, end)
        if place == end < len(data):
            end = len(data)
        elif place >= end:
            raise ValueError(f"it ends at byte {end} without a STOP")
        elif data[place] == _STOP:
            return
        elif data[place] == _FRAME:
            if end < len(data):
                raise ValueError(f"a frame begins at byte {place}, within another")
            start = place + 9
            end = _within(data, place, start + _unsigned(data, place, 8, end), end)
            place = start
        else:
            place = _within(data, place, _after_claiming(data, place, end), end)


def _after_plain(data: bytes, start: int, end: int) -> int:
    found = _PLAIN_CODES.match(data, start, end)
    return found.end() if found else start


def _after_claiming(data: bytes, place: int, end: int) -> int:
    """Find the end of an opcode with a length or an index, which may be beyond `end`.

    Raises:
        ValueError: its index is too high, or it is none of these opcodes.
    """
    opcode = data[place]
    if opcode in _LENGTHS:
        return place + 1 + _LENGTHS[opcode] + _unsigned(data, place, _LENGTHS[opcode], end)
    if opcode == _LONG_BINPUT:
        index, stop = _unsigned(data, place, 4, end), place + 5
    elif opcode == _PUT and (line := _INDEX.match(data, place + 1, end)):
        index, stop = int(line[1]), line.end()
    elif opcode == _PUT or _after_plain(bytes([opcode]) + b"\n" * 8, 0, 9):
        raise ValueError(f"the opcode at byte {place} is cut short or has no fitting argument")
    else:
        raise ValueError(f"there is an unknown opcode {opcode:#04x} at byte {place}")
    # Each value in the memo has taken a byte before; counting may begin at 1.
    if index > place:
        raise ValueError(f"the memo index {index} at byte {place} is beyond all that can have come before")
    return stop


def _unsigned(data: bytes, place: int, width: int, end: int) -> int:
    start = place + 1
    return int.from_bytes(data[start : _within(data, place, start + width, end)], "little")


def _within(data: bytes, place: int, stop: int, end: int) -> int:
    """
    Returns:
        `stop`.

    Raises:
        ValueError: it is beyond `end`, that of the pickle or of a frame.
    """
    if stop > end:
        whose = "its frame" if end < len(data) else "the pickle"
        raise ValueError(f"the opcode at byte {place} goes on to byte {stop}, {whose} ends at {end}")
    return stop


_CODE = re.compile(r"[?bhilqpBHILQPefdgFDGSUVOMm]\d{0,9}|[biufcSUVOMm]\d{1,9}|bool|[iufc]\d{1,2}")
_MAX_EMPTY = 1 << 20  # elements of no bytes, which no data vouches for


class UnsafePickleError(ValueError):
    """The pickle would run code, or describes a value that can't be."""


def loads(data: bytes) -> Any:
    """The value of a pickle.

    Raises:
        UnsafePickleError: it names something else than plain values, OrderedDict and numpy's values.
        ValueError: it is damaged, or claims more than it can hold.
    """
    _check_opcodes(data)
    unpickler = _Unpickler(io.BytesIO(data))
    try:
        value = unpickler.load()
        return _Realiser().real(value) if unpickler.made_numpy else value
    except UnsafePickleError:
        raise
    except RecursionError as error:
        raise ValueError("is nested too deeply") from error
    except Exception as error:  # a damaged pickle raises whatever its opcodes run into
        raise ValueError(f"is no whole pickle ({type(error).__name__}: {error})") from error


class _Unpickler(pickle.Unpickler):
    """Finds a fixed list of names."""

    def __init__(self, file: io.BytesIO):
        super().__init__(file)
        self.made_numpy = False

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _PLAIN:
            return _PLAIN[module, name]
        if (module.replace("numpy._core", "numpy.core"), name) in _NUMPY:
            self.made_numpy = True
            return _NUMPY[module.replace("numpy._core", "numpy.core"), name]
        raise UnsafePickleError(f"names {module}.{name}, which annotation files have no need of")

    def persistent_load(self, pid: Any) -> Any:
        raise UnsafePickleError("refers to objects outside")


def _encode(text: str, encoding: str) -> bytes:
    """How protocols 0 to 2 write bytes."""
    if encoding != "latin1":
        raise UnsafePickleError(f"encodes text as {encoding!r}")
    return text.encode("latin1")


def _empty_bytes() -> bytes:
    """How protocols 0 to 2 write b"" (with arguments, `bytes` could be asked for terabytes)."""
    return b""


class _Dtype:
    """A dtype in the making: its code, then its state."""

    def __init__(self, code: Any, align: Any = False, copy: Any = True):
        if not isinstance(code, str) or not _CODE.fullmatch(code):
            raise UnsafePickleError(f"has a dtype {code!r}")
        self.dtype = np.dtype(code)

    def __setstate__(self, state: Any) -> None:
        if not isinstance(state, tuple) or len(state) < 8 or state[0] not in (3, 4):
            raise UnsafePickleError("has a dtype of an unknown version")
        _, order, inner, names, fields, size = state[:6]
        if names is not None:
            self.dtype = _structured(names, fields, size)
        elif inner is not None:
            base, shape = inner
            self.dtype = np.dtype((_dtype_of(base), _shape(shape)))
        elif self.dtype.kind in "Mm":
            unit, count = state[8][1][:2]
            unit = unit.decode() if isinstance(unit, bytes) else unit
            named = f"[{int(count)}{unit}]" if unit != "generic" else ""
            self.dtype = np.dtype(f"{order if order in '<>' else '='}{self.dtype.kind}8{named}")
        elif order in ("<", ">"):
            self.dtype = self.dtype.newbyteorder(order)


def _structured(names: Any, fields: Any, size: Any) -> np.dtype[Any]:
    """numpy checks that every field is within the item."""
    formats = [_dtype_of(fields[name][0]) for name in names]
    offsets = [fields[name][1] for name in names]
    if any(dtype.hasobject for dtype in formats):
        raise UnsafePickleError("has structs that contain objects")
    titles = [fields[name][2] if len(fields[name]) > 2 else None for name in names]
    given = {"names": list(names), "formats": formats, "offsets": offsets, "titles": titles, "itemsize": size}
    return np.dtype(given)  # type: ignore[call-overload, no-any-return]


def _dtype_of(value: Any) -> np.dtype[Any]:
    if not isinstance(value, _Dtype):
        raise UnsafePickleError(f"has a {type(value).__name__} where a dtype belongs")
    return value.dtype


def _shape(value: Any) -> tuple[int, ...]:
    shape = value if isinstance(value, tuple) else (value,)
    if len(shape) > 32 or not all(isinstance(n, int) and 0 <= n < 1 << 48 for n in shape):
        raise UnsafePickleError(f"has an array of shape {shape!r}")
    return shape


def _array(dtype: np.dtype[Any], shape: tuple[int, ...], data: Any, order: str) -> Array:
    count = math.prod(shape)
    if dtype.hasobject:
        if not isinstance(data, list) or len(data) != count:
            raise UnsafePickleError("has an array of objects without its objects")
        objects = np.empty(count, object)
        for place, item in enumerate(data):
            objects[place] = item
        return objects.reshape(shape, order="F" if order == "F" else "C")
    view = memoryview(data) if isinstance(data, bytes | bytearray | pickle.PickleBuffer) else None
    if view is None or view.nbytes != count * dtype.itemsize:
        raise UnsafePickleError(f"has an array of shape {shape} and dtype {dtype} with other data")
    if not view.nbytes:
        if count > _MAX_EMPTY:
            raise UnsafePickleError(f"has an array of shape {shape} without data")
        return np.zeros(shape, dtype)
    values: Array = np.frombuffer(view, dtype).reshape(shape, order="F" if order == "F" else "C")
    return values.copy(order="K")


class _NdarrayName:
    """`numpy.ndarray` as pickles name it: an argument, never called."""

    def __new__(cls, *arguments: Any) -> Any:
        raise UnsafePickleError("makes an array without data")


class _PickledArray:
    """An array in the making: `_reconstruct` makes it, its state holds all there is."""

    def __init__(self, kind: Any, shape: Any, code: Any):
        if kind is not _NdarrayName:
            raise UnsafePickleError("has an array of another class")
        self.made: Array | None = None

    def __setstate__(self, state: Any) -> None:
        if not isinstance(state, tuple) or len(state) != 5:
            raise UnsafePickleError("has an array of an unknown version")
        _, shape, dtype, fortran, data = state
        self.made = _array(_dtype_of(dtype), _shape(shape), data, "F" if fortran else "C")


def _scalar(dtype: Any, data: Any = None) -> Any:
    return _array(_dtype_of(dtype), (), [data] if _dtype_of(dtype).hasobject else data, "C")[()]


def _from_buffer(data: Any, dtype: Any, shape: Any, order: Any, axis_order: Any = None) -> Array:
    """How protocol 5 writes arrays."""
    if axis_order is not None:
        raise UnsafePickleError("has an array of permuted axes; pickle with protocol 4")
    return _array(_dtype_of(dtype), _shape(shape), data, str(order))


class _Realiser:
    """Puts real dtypes and arrays in place of those in the making, within plain containers."""

    def __init__(self) -> None:
        self._done: dict[int, Any] = {}
        self._tuples: dict[int, tuple[Any, Any]] = {}

    def real(self, value: Any) -> Any:
        kind = type(value)
        if kind is _Dtype:
            return value.dtype
        if kind is _PickledArray:
            if value.made is None:
                raise UnsafePickleError("has an array without data")
            return self._filled(value.made) if value.made.dtype.hasobject else value.made
        if kind in (dict, list, collections.OrderedDict):
            if id(value) not in self._done:
                self._done[id(value)] = value  # before its items: it may hold itself
                items = value.items() if kind is not list else enumerate(value)
                for key, item in list(items):
                    value[key] = self.real(item)
            return value
        if kind is tuple:
            # Each once, since a few that share others may unfold to billions. They are kept with what becomes
            # of them, so that no other tuple gets their id.
            if id(value) not in self._tuples:
                self._tuples[id(value)] = (value, tuple(self.real(item) for item in value))
            return self._tuples[id(value)][1]
        return self._filled(value) if kind is np.ndarray and value.dtype.hasobject else value

    def _filled(self, array: Array) -> Array:
        if id(array) not in self._done:
            self._done[id(array)] = array
            for place in np.ndindex(array.shape):
                array[place] = self.real(array[place])
        return array


_PLAIN: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("builtins", "set"): set,
    ("builtins", "frozenset"): frozenset,
    ("__builtin__", "set"): set,
    ("__builtin__", "frozenset"): frozenset,
    ("_codecs", "encode"): _encode,
    ("__builtin__", "bytes"): _empty_bytes,
}
_NUMPY: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy", "dtype"): _Dtype,
    ("numpy", "ndarray"): _NdarrayName,
    ("numpy.core.multiarray", "_reconstruct"): _PickledArray,
    ("numpy.core.multiarray", "scalar"): _scalar,
    ("numpy.core.numeric", "_frombuffer"): _from_buffer,
}
