"""Boxes drawn on images of the report: in pixels, or projected by calibrations.

Here: which columns hold boxes, calibrations and poses, by their types and the recipe; what of a row's boxes
is drawn on an image. docs/report.md says when that is.
Elsewhere: projection (cameras), which rows and images are shown (samples).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logloom.pictures import Picture
from logloom.pipelines.report import cameras
from logloom.pipelines.report.cameras import Floats
from logloom.resample.poses import matrices, poses_of
from logloom.schema import ColumnType
from logloom.text import counted, shortened
from logloom.values import dataclass

MAX_BOXES = 30  # that are drawn on an image
MAX_CONSIDERED = 2000  # of a row's column
_CENTERS, _SIZES = ("center", "centre", "centroid", "position"), ("size", "extent")
_YAWS, _TURNS = ("yaw", "heading"), ("orientation", "quaternion", "rotation")
_KINDS, _TRACKS = ("class", "label", "category", "name"), ("track", "track_id", "id", "instance")
_TRANSPORTS = frozenset({"compressed", "compressedDepth", "ffmpeg", "foxglove", "theora", "zstd", "h264"})
_RIGID = 1e-3  # by which a rotation's rows may differ from lengths of 1 and right angles

Recipe = Mapping[str, Any]
Values = Mapping[str, Any]
Node = tuple[str, str]  # ("frame", its name), or ("topic", the topic whose messages are in it)


@dataclass(frozen=True)
class Outlines:
    """What is drawn on an image.

    Attributes:
        boxes: (what it is, the path of an SVG as large as the picture) of each.
        left_out: boxes in view that are too many.
    """

    boxes: tuple[tuple[str, str], ...]
    left_out: int = 0

    @property
    def words(self) -> str:
        """How many boxes these are: `3 boxes`, `30 of 45 boxes`; "" for none."""
        every = len(self.boxes) + self.left_out
        some = f"{len(self.boxes)} of " if self.left_out else ""
        return f"{some}{counted(every, 'box', 'boxes')}" if every else ""


@dataclass(frozen=True)
class _PoseColumns:
    """Columns with the pose of one frame in another: a matrix, a pose, or a position and a rotation.

    Attributes:
        at: the column whose messages' times it is of; "" for the tick.
    """

    source: Node
    target: Node
    at: str
    columns: tuple[str, ...]


@dataclass(frozen=True)
class _Camera:
    """The columns with the calibration of a column of images; "" for those that aren't there.

    Attributes:
        nodes: what the camera's frame is known by.
        flips: whether `size` is width and height.
        resized: whether images have another size than the camera recorded.
    """

    nodes: tuple[Node, ...]
    k: str
    d: str
    model: str
    size: str
    flips: bool
    resized: bool


class BoxColumns:
    """The columns of a version that boxes on images take.

    Attributes:
        flat: columns of boxes in an image, and solid: of those in space, with their frames.
        names: all that are looked at.
    """

    def __init__(self, columns: Mapping[str, ColumnType], recipe: Recipe):
        said = recipe.get("columns", {})
        self._recipe = {
            name: one for name, one in said.items() if name in columns and isinstance(one, Mapping)
        }
        self._columns = columns
        self._poses = list(self._found_poses())
        self.flat = [name for name, ctype in columns.items() if _is_flat(name, ctype)]
        self.solid = {
            name: str(self._recipe[name]["frame"])
            for name, ctype in columns.items()
            if self._recipe.get(name, {}).get("frame") and is_solid(ctype)
        }
        self.names = {*self.flat, *self.solid}
        if self.solid:
            self.names |= {name for pose in self._poses for name in pose.columns}
            self.names |= {name for name in self._recipe if self._kind(name) in ("k", "d", "model", "size")}

    def outlines(self, image: str, images: Sequence[str], values: Values, picture: Picture) -> Outlines:
        """The boxes of a row on one of its images.

        Args:
            images: all columns of images.
            values: usable ones of `names`.
        """
        found: list[tuple[float, str, str]] = []
        with np.errstate(all="ignore"):
            for name in self.flat:
                if name in values and (len(images) == 1 or name.startswith(f"{image}.")):
                    found += _flat_outlines(values[name], picture)
            camera = self._camera(image) if self.solid else None
            for name, frame in self.solid.items():
                if camera is not None and name in values:
                    found += self._solid_outlines(camera, image, name, frame, values, picture)
        nearest = sorted(found, key=lambda one: one[0])[:MAX_BOXES]
        return Outlines(tuple(one[1:] for one in nearest), len(found) - len(nearest))

    def _kind(self, name: str) -> str:
        """Which part of a calibration a column is; "" for none."""
        column, ctype = self._recipe[name], self._columns[name]
        field, adapter = tuple(column.get("field") or ()), column.get("as")
        if not column.get("topic"):
            return ""
        if ctype.shape in ((3, 3), (9,)) and (adapter == "camera_matrix" or field in (("k",), ("K",))):
            return "k"
        if len(ctype.shape) == 1 and (adapter == "distortion" or field in (("d",), ("D",))):
            return "d"
        if field == ("distortion_model",):
            return "model"
        return "size" if sorted(field) == ["height", "width"] and ctype.shape == (2,) else ""

    def _camera(self, image: str) -> _Camera | None:
        """The calibration beside an image's topic; None where none is, or several are."""
        topic = str(self._recipe.get(image, {}).get("topic") or "")
        parts = {name: kind for name in self._recipe if (kind := self._kind(name))}
        for place in _places(topic):
            infos = {self._recipe[name]["topic"] for name, kind in parts.items() if kind == "k"}
            here = [info for info in infos if str(info).rpartition("/")[0] == place]
            if not here:
                continue
            if len(here) > 1:
                return None
            own = {
                kind: name for name, kind in reversed(parts.items()) if self._recipe[name]["topic"] == here[0]
            }
            k, d, model, size = (own.get(kind, "") for kind in ("k", "d", "model", "size"))
            nodes = ("topic", str(here[0])), ("topic", topic)
            flips = bool(size) and self._recipe[size]["field"][0] == "width"
            return _Camera(nodes, k, d, model, size, flips, bool(self._recipe[image].get("resize")))
        return None

    def _found_poses(self) -> Iterator[_PoseColumns]:
        """What columns of transforms say of frames; each may be gone either way."""
        parts: dict[tuple[Node, Node, str], dict[str, str]] = {}
        for name, column in self._recipe.items():
            pair = column.get("tf")
            if isinstance(pair, Mapping):
                key = _node(pair["from"]), _node(pair["to"]), str(column.get("at") or "")
                parts.setdefault(key, {}).setdefault(str(column.get("as", "pose")), name)
        for (source, target, at), own in parts.items():
            whole = own.get("matrix") or own.get("pose")
            turn = own.get("rotation_matrix") or own.get("quaternion")
            if whole:
                yield _PoseColumns(source, target, at, (whole,))
            elif "position" in own and turn:
                yield _PoseColumns(source, target, at, (own["position"], turn))

    def _solid_outlines(
        self, camera: _Camera, image: str, name: str, frame: str, values: Values, picture: Picture
    ) -> Iterator[tuple[float, str, str]]:
        """(distance, what it is, path) of boxes in space that a camera sees."""
        size = _recorded_size(camera, values, picture)
        k = np.asarray(values.get(camera.k, ()), np.float64)
        lens = _lens(camera, values)
        to_camera = self._to_camera(("frame", frame), camera, image, values)
        if size is None or k.size != 9 or lens is None or to_camera is None:
            return
        k = k.reshape(3, 3)
        if not (np.isfinite(k).all() and k[0, 0] > 0 and k[1, 1] > 0):  # of a camera that isn't calibrated
            return
        boxes = values[name].reshape(-1)[:MAX_CONSIDERED]
        corners = _corners(boxes) @ to_camera[:3, :3].T + to_camera[:3, 3]
        edges = cameras.edges_of_boxes(corners)
        owners = np.repeat(np.arange(len(boxes)), len(edges) // max(1, len(boxes)))
        edges, owners = cameras.cut(edges, owners, lambda ends: ends[..., 2] - cameras.NEAREST)
        scale = np.array([picture.width / size[0], picture.height / size[1]])
        seen = cameras.seen_edges(
            cameras.projected(edges, k, lens) * scale, owners, picture.width, picture.height
        )
        for number, own in seen.items():
            if path := _path(own):
                away = np.linalg.norm(corners[number].mean(axis=0))
                yield float(np.nan_to_num(away, nan=np.inf)), _label(boxes[number]), path

    def _to_camera(self, start: Node, camera: _Camera, image: str, values: Values) -> Floats | None:
        """(4, 4) from a frame to a camera's; None where the poses of this row don't say it."""
        usable = [pose for pose in self._poses if pose.at in ("", image)]
        known = [(pose, _matrix_of(pose, values)) for pose in sorted(usable, key=lambda one: not one.at)]
        ways: dict[Node, Floats] = {start: np.eye(4)}
        waiting = deque([start])
        while waiting:
            here = waiting.popleft()
            if here in camera.nodes:
                return ways[here]
            for pose, matrix in known:
                for one, other, forward in (
                    (pose.source, pose.target, True),
                    (pose.target, pose.source, False),
                ):
                    if one == here and other not in ways and matrix is not None:
                        ways[other] = (matrix if forward else _inverse(matrix)) @ ways[here]
                        waiting.append(other)
        return None


def is_solid(ctype: ColumnType) -> bool:
    """Whether a column holds boxes in space: structs of a centre, a size and a rotation."""
    dtype = ctype.dtype
    if ctype.kind != "array" or not dtype.names:
        return False
    center, size = _field(dtype, _CENTERS, (3,)), _field(dtype, _SIZES, (3,))
    return bool(center and size and (_field(dtype, _YAWS, ()) or _field(dtype, _TURNS, (4,))))


def _is_flat(name: str, ctype: ColumnType) -> bool:
    """Whether a column holds boxes in an image: `bbox`, x_min, y_min, x_max and y_max in pixels."""
    if ctype.kind != "array":
        return False
    if ctype.dtype.names:
        return bool(_field(ctype.dtype, ("bbox",), (4,)))
    is_called = name.rpartition(".")[2] == "bbox"
    return is_called and ctype.shape in ((4,), (None, 4)) and ctype.dtype.kind in "iuf"


def _field(dtype: np.dtype[Any], names: Sequence[str], shape: tuple[int, ...]) -> str:
    """The first field of numbers of a shape that has one of some names; "" for none."""
    fits = (
        name
        for name in names
        if name in (dtype.names or ()) and dtype[name].shape == shape and dtype[name].base.kind in "iuf"
    )
    return next(fits, "")


def _node(frame: Any) -> Node:
    return ("topic", str(frame["topic"])) if isinstance(frame, Mapping) else ("frame", str(frame))


def _places(topic: str) -> Iterator[str]:
    """The namespaces in which an image's camera_info may be: its own; of a transport also the one above."""
    above, slash, last = topic.rpartition("/")
    if slash:
        yield above
    if slash and last in _TRANSPORTS and "/" in above:
        yield above.rpartition("/")[0]


def _recorded_size(camera: _Camera, values: Values, picture: Picture) -> tuple[float, float] | None:
    """Width and height of the images that K is of; None where it isn't known, or these are others."""
    said = np.asarray(values.get(camera.size, ()), np.float64).tolist()
    if len(said) == 2:
        width, height = said if camera.flips else said[::-1]
    elif camera.resized:
        return None
    else:
        width, height = picture.original
    if not (np.isfinite([width, height]).all() and min(width, height) >= 1):
        return None
    # A part of what K is of has another shape; a picture's height is rounded.
    is_part = not camera.resized and abs(picture.height - picture.width * height / width) > 1
    return None if is_part else (width, height)


def _lens(camera: _Camera, values: Values) -> Any:
    """See `distortion_of`; None also where this row doesn't say what columns are there for."""
    if not all(name in values for name in (camera.d, camera.model) if name):
        return None
    d = np.asarray(values[camera.d] if camera.d else (), np.float64).reshape(-1)
    # Four parameters without a model may be those of a fisheye.
    unknown = not camera.model and len(d) == 4 and d.any()
    return None if unknown else cameras.distortion_of(str(values[camera.model]) if camera.model else "", d)


def _matrix_of(pose: _PoseColumns, values: Values) -> Floats | None:
    """(4, 4) of a rigid motion; None where the row has none."""
    if not all(name in values for name in pose.columns):
        return None
    first, *more = (np.asarray(values[name], np.float64) for name in pose.columns)
    if first.shape == (4, 4):
        found = first
    else:
        turn = more[0] if more else first[3:]
        if turn.shape == (3, 3):
            found = np.eye(4)
            found[:3, :3], found[:3, 3] = turn, first
        else:
            poses, usable = poses_of(first[None, :3], turn[None])
            if not usable[0]:
                return None
            found = matrices(poses)[0]
    turn = found[:3, :3]
    is_rigid = np.isfinite(found).all() and np.abs(turn @ turn.T - np.eye(3)).max() < _RIGID
    return found if is_rigid else None


def _inverse(matrix: Floats) -> Floats:
    """Of a rigid motion."""
    found = np.eye(4)
    found[:3, :3] = matrix[:3, :3].T
    found[:3, 3] = -found[:3, :3] @ matrix[:3, 3]
    return found


def _corners(boxes: NDArray[Any]) -> Floats:
    """(N, 8, 3); NaN of boxes without a size or a rotation."""
    dtype = boxes.dtype
    center, size = (boxes[_field(dtype, names, (3,))].astype(np.float64) for names in (_CENTERS, _SIZES))
    if yaw := _field(dtype, _YAWS, ()):
        turns = cameras.turns_of_yaws(boxes[yaw].astype(np.float64))
    else:
        poses, usable = poses_of(np.zeros((len(boxes), 3)), boxes[_field(dtype, _TURNS, (4,))])
        turns = matrices(poses)[:, :3, :3]
        turns[~usable] = np.nan
    size[~(size > 0).all(axis=1)] = np.nan
    return cameras.corners_of(center, size, turns)


def _flat_outlines(value: NDArray[Any], picture: Picture) -> Iterator[tuple[float, str, str]]:
    """(0, what it is, path) of boxes in an image that are in it at least in part."""
    boxes = value.reshape(-1) if value.dtype.names else value.reshape(-1, 4)
    boxes = boxes[:MAX_CONSIDERED]
    bounds = (boxes["bbox"] if boxes.dtype.names else boxes).astype(np.float64)
    bounds[~(bounds[:, 2:] > bounds[:, :2]).all(axis=1)] = np.nan
    width, height = picture.original
    scale = np.array([picture.width / max(1, width), picture.height / max(1, height)])
    owners = np.repeat(np.arange(len(boxes)), 4)
    edges = cameras.edges_of_rectangles(bounds) * scale
    for number, own in cameras.seen_edges(edges, owners, picture.width, picture.height).items():
        if path := _path(own):
            yield 0.0, _label(boxes[number]), path


def _label(box: Any) -> str:
    """Return the text of a box."""
    names = box.dtype.names or ()
    words = (next((str(box[n]) for n in known if n in names), "") for known in (_KINDS, _TRACKS))
    return shortened(" ".join(word for word in words if word))


def _path(edges: Floats) -> str:
    """(n, 2, 2) lines as a path of an SVG, to a tenth of a pixel."""
    ends = np.round(edges, 1) + 0.0  # no -0
    ends = ends[(ends[:, 0] != ends[:, 1]).any(axis=1)]
    return "".join(f"M{a:g} {b:g}L{c:g} {d:g}" for a, b, c, d in ends.reshape(-1, 4).tolist())
