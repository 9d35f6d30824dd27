"""The .npy format: an array's header made without a file, and arrays read as views.

Here: format 1.0 headers in one fixed form, and reading any version that numpy writes, pickles aside.
"""

from __future__ import annotations

import functools
import io
import math
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
        raise ValueError(f"{len(values)} bytes of values, its npy header says {nbytes}")
    return values.view(dtype).reshape(shape, order=order) if dtype.itemsize else np.zeros(shape, dtype)


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
