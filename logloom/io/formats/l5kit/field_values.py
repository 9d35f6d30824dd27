"""Conversion of fields of structs to the numbers of L5Kit's fields.

Here: types and values at dotted paths, whether they fill a field of L5Kit, and filling it.
Elsewhere: which source fills which field (mapping).

    position: {x, y, z}                  x, y        of a field of 2 numbers
    [position.x, position.y]             x, y
    orientation: {x, y, z, w}            yaw
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from logloom.blocks import Array
from logloom.errors import LogReadError

Form = Literal["values", "numbers", "yaw"]

_AXES = ("x", "y", "z", "w")
_UPRIGHT = float(np.finfo(np.float64).eps) * 4


def type_at(dtype: np.dtype[Any], path: str) -> np.dtype[Any] | None:
    """Return the type at a dotted path of a struct; None if there is none."""
    for name, rest in _parts(dtype, path):
        found = type_at(dtype[name], rest) if rest else dtype[name]
        if found is not None:
            return found
    return None


def values_at(structs: Array, path: str) -> Array:
    """Return the values at a dotted path that `type_at` finds."""
    for name, rest in _parts(structs.dtype, path):
        if not rest or type_at(structs.dtype[name], rest) is not None:
            return values_at(structs[name], rest) if rest else structs[name]
    raise KeyError(path)


def paths_of(dtype: np.dtype[Any]) -> list[str]:
    """Return the paths of a struct's fields, each followed by those within it."""
    return [
        path for name in dtype.names or () for path in (name, *(f"{name}.{p}" for p in paths_of(dtype[name])))
    ]


def _parts(dtype: np.dtype[Any], path: str) -> Iterator[tuple[str, str]]:
    """Divide a path after a field of the struct in each way there is, the longest name first."""
    names = dtype.names or ()
    if path in names:
        yield path, ""
    for end in reversed([i for i, letter in enumerate(path) if letter == "."]):
        if path[:end] in names:
            yield path[:end], path[end + 1 :]


def form_of(
    target: np.dtype[Any], sources: Sequence[np.dtype[Any]], is_yaw: bool = False, is_named: bool = False
) -> Form | None:
    """Return how sources fill a field, ranges of numbers aside; None if they don't fit.

    Args:
        target: the field's type.
        sources: of each path, in order.
        is_yaw: whether the field takes a quaternion (x, y, z, w) as well.
        is_named: whether the recipe means these sources; then x and y of three numbers fill two.
    """
    if len(sources) == 1 and _same_shape(target, sources[0]):
        return "values"
    widths = [_width(source) for source in sources]
    if target.base.kind == "U" or None in widths or len(target.shape) > 1:
        return None
    total, wanted = sum(width or 0 for width in widths), math.prod(target.shape)
    if is_yaw and total == 4:
        return "yaw"
    on_ground = is_named and len(sources) == 1 and (wanted, total) == (2, 3)
    return "numbers" if target.shape and (total == wanted or on_ground) else None


def _same_shape(target: np.dtype[Any], source: np.dtype[Any]) -> bool:
    if math.prod(source.shape) == 0 or source.shape != target.shape:
        return False
    kinds = "Uiu" if target.base.kind == "U" else "iufb"
    return source.base.names is None and source.base.kind in kinds


def _width(source: np.dtype[Any]) -> int | None:
    """Return how many numbers a value is: those of a struct of x, y, z and w; None if it is none."""
    if source.names is not None:
        count = len(source.names)
        is_point = 2 <= count <= 4 and set(source.names) == set(_AXES[:count])
        return count if is_point and all(_width(source[name]) == 1 for name in source.names) else None
    if source.base.kind not in "iufb" or source.base.names is not None or len(source.shape) > 1:
        return None
    return math.prod(source.shape)


def numbers_of(parts: Sequence[Array]) -> Array:
    """Return the numbers of values that belong together next to each other: (n, total).

    Args:
        parts: (n, ...) each, of structs of x, y, z and w, or of numbers.
    """
    columns = []
    for part in parts:
        names = [axis for axis in _AXES if axis in (part.dtype.names or ())]
        numbers = np.stack([part[name] for name in names], axis=-1) if names else part
        columns.append(numbers.reshape(len(part), math.prod(numbers.shape[1:])))
    return np.concatenate(columns, axis=1)


def yaw_of(quaternions: Array, what: str) -> NDArray[np.float64]:
    """Return the yaws of quaternions (x, y, z, w) of any length but zero; NaN where one isn't finite.

    A rotation straight up or down has yaw 0. Only sums, products, quotients and roots: its bits are the same
    on every CPU.

    Args:
        quaternions: (n, 4).
        what: which values these are, for errors.

    Returns:
        (n,), in [-pi, pi].

    Raises:
        LogReadError: a quaternion is zero.

    Examples:
        >>> yaw_of(np.array([[0.0, 0, 3, 3], [0, 0, 0, 1], [0, 0, 2, 0]]), "").round(3).tolist()
        [1.571, 0.0, 3.142]
    """
    given = np.asarray(quaternions, np.float64)
    if (zero := (given == 0).all(axis=1)).any():
        raise LogReadError(
            f"{what}: {np.count_nonzero(zero)} of {len(zero)} quaternions are zero, which is no rotation; "
            "compute the agents with a `derive` function that leaves them out or sets their yaw"
        )
    with np.errstate(all="ignore"):
        x, y, z, w = (given / np.abs(given).max(axis=1, keepdims=True)).T if len(given) else given.T
        sin, cos = 2.0 * (x * y + w * z), w * w + x * x - y * y - z * z
        high, low = np.maximum(np.abs(sin), np.abs(cos)), np.minimum(np.abs(sin), np.abs(cos))
        angle = _arctan(low / high)
        angle = np.where(np.abs(sin) > np.abs(cos), np.pi / 2 - angle, angle)
        angle = np.copysign(np.where(cos < 0, np.pi - angle, angle), sin)
    return np.where(high <= _UPRIGHT, 0.0, angle)


def _arctan(t: NDArray[np.float64]) -> NDArray[np.float64]:
    """Angles whose tangents are t, 0 <= t <= 1."""
    for _ in range(6):  # the tangent of half the angle, until four terms of the series suffice
        t = t / (1.0 + np.sqrt(1.0 + t * t))
    z = t * t
    return 64.0 * t * (1.0 - z * (1 / 3 - z * (1 / 5 - z / 7)))
