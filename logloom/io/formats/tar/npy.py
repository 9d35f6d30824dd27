"""The .npy format: array headers without a file, and arrays as views.

Here: format 1.0 headers in one fixed form, and reading any version that numpy writes, without pickles.
"""

from __future__ import annotations

import functools
import io
import math
import sys
from typing import Any, Literal

import numpy as np

from logloom.blocks import Array

_MAGIC = b"\x93NUMPY"
_ALIGNMENT = 64  # what numpy aligns data to


@functools.lru_cache(4096)
def npy_header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """All that precedes the values of a C-ordered array.

    Raises:
        ValueError: the header would be longer than format 1.0 can say, or a field's name is not latin-1.
    """
    descr = dtype.descr if dtype.names is not None else dtype.str
    text = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape!r}, }}".encode("latin-1")
    length = -(-(len(_MAGIC) + 4 + len(text) + 1) // _ALIGNMENT) * _ALIGNMENT - len(_MAGIC) - 4
    if length > 0xFFFF:
        raise ValueError(f"an npy header of {length} bytes")
    return _MAGIC + b"\x01\x00" + length.to_bytes(2, "little") + text.ljust(length - 1) + b"\n"


def read_npy(data: Array) -> Array:
    """The array in a .npy file, as a view of its bytes.

    Args:
        data: (n,) uint8, the whole file.

    Raises:
        ValueError: damaged, of pickled objects, or shorter or longer than its header says.
    """
    wide = len(data) > 6 and data[6] > 1
    start = 12 if wide else 10
    length = int.from_bytes(data[8:start].tobytes(), "little")
    head = data[: start + length].tobytes()
    try:
        dtype, shape, order, nbytes = _parse(head)
    except Exception as error:  # numpy parses it as Python: there are many ways to fail
        raise ValueError(f"not an .npy array ({error})") from error
    values = data[start + length :]
    if len(values) != nbytes:
        raise ValueError(f"{len(values)} bytes of values, its npy header has {nbytes}")
    if not dtype.itemsize:
        return np.zeros(shape, dtype)
    array = values.view(dtype).reshape(shape, order=order)
    if _has_text(dtype):
        _check_text(array)
    return array


@functools.lru_cache(4096)
def _has_text(dtype: np.dtype[Any]) -> bool:
    return dtype.kind == "U" or any(_has_text(dtype[name].base) for name in dtype.names or ())


def _check_text(array: Array) -> None:
    """Raises ValueError where code points aren't Unicode: touching such text makes numpy fail in odd ways."""
    for name in array.dtype.names or ():
        if _has_text(array.dtype[name].base):
            _check_text(array[name])
    if array.dtype.kind == "U":
        points = np.ascontiguousarray(array).reshape(-1).view(array.dtype.str[0] + "u4")
        if ((points > sys.maxunicode) | ((points >= 0xD800) & (points < 0xE000))).any():
            raise ValueError("text with code points that are no Unicode")


@functools.lru_cache(4096)
def _parse(head: bytes) -> tuple[np.dtype[Any], tuple[int, ...], Literal["C", "F"], int]:
    """The type, shape, order and bytes of the values that follow a header."""
    file = io.BytesIO(head)
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"npy format {version}")
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(file, max_header_size=1 << 17)
    if dtype.hasobject:
        raise ValueError("pickled objects")
    if any(n < 0 for n in shape):
        raise ValueError(f"shape {shape}")
    return dtype, shape, "F" if fortran else "C", math.prod(shape) * dtype.itemsize
