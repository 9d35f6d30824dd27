"""Where corners of boxes are in a camera's picture: pure functions on arrays.

Here: corners, projection with distortion, and the parts of edges that a picture shows.
Elsewhere: which columns hold boxes and calibrations (boxes).

Axes of a camera are those of its image: x right, y down, z ahead, in metres; pixels are counted from the
upper left. Numbers come from logs and may be anything: what can't be drawn is NaN, and left out.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

NEAREST = 0.1  # metres before a camera, from where edges are drawn
_UNIT = np.array(list(itertools.product((-0.5, 0.5), repeat=3)))  # corner k: the bits of k say which side
_EDGES = np.array([(a, a | bit) for bit in (1, 2, 4) for a in range(8) if not a & bit])
_FISHEYE = frozenset({"equidistant", "kannala_brandt", "fisheye"})
_POLYNOMIAL = frozenset({"plumb_bob", "rational_polynomial", "radtan", "brown_conrady", ""})
_WIDEST = 20.0  # tangent of the angle from the axis up to which a polynomial is asked
_STEPS = 2000


def corners_of(centers: Floats, sizes: Floats, turns: Floats) -> Floats:
    """The corners of boxes.

    Args:
        centers: (N, 3).
        sizes: (N, 3) along the box's own x, y and z.
        turns: (N, 3, 3) rotations from the box's axes to those of its frame.

    Returns:
        (N, 8, 3)
    """
    return (_UNIT * sizes[:, None]) @ turns.transpose(0, 2, 1) + centers[:, None]


def turns_of_yaws(yaws: Floats) -> Floats:
    """(N, 3, 3) rotations about z by (N,) radians."""
    found = np.zeros((len(yaws), 3, 3))
    found[:, 0, 0] = found[:, 1, 1] = np.cos(yaws)
    found[:, 1, 0] = np.sin(yaws)
    found[:, 0, 1] = -found[:, 1, 0]
    found[:, 2, 2] = 1
    return found


def edges_of_boxes(corners: Floats) -> Floats:
    """(N, 8, 3) corners to (N * 12, 2, 3) edges, box by box."""
    return corners[:, _EDGES].reshape(-1, 2, 3)


def edges_of_rectangles(bounds: Floats) -> Floats:
    """(N, 4) x_min, y_min, x_max, y_max to (N * 4, 2, 2) edges, rectangle by rectangle."""
    around = bounds[:, [[0, 1], [2, 1], [2, 3], [0, 3]]]
    return np.stack([around, np.roll(around, -1, axis=1)], axis=2).reshape(-1, 2, 2)


def projected(points: Floats, k: Floats, distortion: Callable[[Floats], Floats]) -> Floats:
    """The pixels at which a camera sees points before it.

    Args:
        points: (..., 3) in the camera's frame, z above 0.
        k: (3, 3)
        distortion: see `distortion_of`.

    Returns:
        (..., 2); NaN where the distortion has no answer.
    """
    seen = distortion(points[..., :2] / points[..., 2:])
    return seen @ k[:2, :2].T + k[:2, 2]


def distortion_of(model: str, d: Floats) -> Callable[[Floats], Floats] | None:
    """What a lens makes of points in the plane z = 1, (..., 2) to (..., 2).

    Points beyond the angle at which a model's radius stops growing are NaN: there a polynomial would lead
    them back into the image.

    Args:
        model: as CameraInfo names it.
        d: its parameters, k1, k2, p1, p2, k3, ... or of a fisheye k1 to k4; none is as zeros.

    Returns:
        None of a model, or a number of parameters, that isn't known.
    """
    if not np.isfinite(d).all():
        return None
    if model in _FISHEYE:
        return _fisheye(d) if len(d) in (0, 4) else None
    if not d.any():
        return (lambda points: points) if model in _POLYNOMIAL else None
    if model not in _POLYNOMIAL or len(d) not in (4, 5, 8):
        return None
    return _polynomial(np.concatenate([d, np.zeros(8 - len(d))]))


def _polynomial(d: Floats) -> Callable[[Floats], Floats]:
    """OpenCV's radial and tangential distortion by eight parameters."""
    k1, k2, p1, p2, k3, k4, k5, k6 = d.tolist()

    def growth(r2: Floats) -> Floats:
        found: Floats = (1 + r2 * (k1 + r2 * (k2 + r2 * k3))) / (1 + r2 * (k4 + r2 * (k5 + r2 * k6)))
        return found

    radii = np.linspace(0, _WIDEST, _STEPS)
    widest = _grows_until(radii, radii * growth(radii**2))

    def distorted(points: Floats) -> Floats:
        x, y = points[..., 0], points[..., 1]
        r2 = x * x + y * y
        scale = np.where(r2 <= widest**2, growth(r2), np.nan)
        return np.stack(
            [
                x * scale + 2 * p1 * x * y + p2 * (r2 + 2 * x * x),
                y * scale + p1 * (r2 + 2 * y * y) + 2 * p2 * x * y,
            ],
            axis=-1,
        )

    return distorted


def _fisheye(d: Floats) -> Callable[[Floats], Floats]:
    """Kannala and Brandt's: the radius is a polynomial of the angle from the axis."""
    k1, k2, k3, k4 = d.tolist() or [0.0] * 4

    def radius(angle: Floats) -> Floats:
        a2 = angle * angle
        found: Floats = angle * (1 + a2 * (k1 + a2 * (k2 + a2 * (k3 + a2 * k4))))
        return found

    angles = np.linspace(0, np.pi / 2, _STEPS)
    widest = _grows_until(angles, radius(angles))

    def distorted(points: Floats) -> Floats:
        r = np.hypot(points[..., 0], points[..., 1])
        angle = np.arctan(r)
        scale = np.where(r > 0, radius(angle) / np.where(r > 0, r, 1), 1.0)
        return points * np.where(angle <= widest, scale, np.nan)[..., None]

    return distorted


def _grows_until(at: Floats, values: Floats) -> float:
    """The last of ascending places up to which values grow."""
    stops = np.flatnonzero(~(np.diff(values) > 0))
    return float(at[stops[0]] if len(stops) else at[-1])


def seen_edges(edges: Floats, owners: NDArray[np.int64], width: float, height: float) -> dict[int, Floats]:
    """The parts of edges that are within a picture.

    Args:
        edges: (M, 2, 2) from pixel to pixel.
        owners: (M,) the box of each, ascending.

    Returns:
        By box that is seen, (n, 2, 2).
    """
    borders: Sequence[Callable[[Floats], Floats]] = (
        lambda ends: ends[..., 0],
        lambda ends: width - ends[..., 0],
        lambda ends: ends[..., 1],
        lambda ends: height - ends[..., 1],
    )
    for inside in borders:
        edges, owners = cut(edges, owners, inside)
    boxes, starts = np.unique(owners, return_index=True)
    return dict(zip(boxes.tolist(), np.split(edges, starts)[1:], strict=True))


def cut(
    edges: Floats, owners: NDArray[np.int64], inside: Callable[[Floats], Floats]
) -> tuple[Floats, NDArray[np.int64]]:
    """The parts of edges on one side of a line or plane, and their owners.

    Args:
        edges: (M, 2, D); those that aren't finite are left out.
        inside: how far (M, 2) ends are on that side.
    """
    depth = inside(edges)
    kept = np.isfinite(edges).all(axis=(1, 2)) & (depth >= 0).any(axis=1)
    edges, owners, depth = edges[kept], owners[kept], depth[kept]
    share = depth[:, 0] / np.where((depth < 0).any(axis=1), depth[:, 0] - depth[:, 1], 1)
    crossing = edges[:, 0] + share[:, None] * (edges[:, 1] - edges[:, 0])
    whole = np.where((depth < 0)[..., None], crossing[:, None], edges)
    finite = np.isfinite(whole).all(axis=(1, 2))
    return whole[finite], owners[finite]
