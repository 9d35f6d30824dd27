"""Semantic maps of L5Kit datasets: lanes, crosswalks, colours of lights.

A map is read from the dataset's protobuf file.
Here: `SemanticMap` and just as much of protobuf's encoding as it needs; no protobuf package is asked for.
Elsewhere: drawing (map_rasterizers). Elements other than these three are skipped. Coordinates are metres in
the world of the dataset.
"""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from logloom.blocks import Array
from logloom.datasets.l5kit.geometry import Matrix, geodetic_to_ecef
from logloom.errors import DatasetError
from logloom.values import dataclass

LANE_POINTS = 20
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
# The fields of a traffic control element that say: this is a face, of this colour.
_FACE_COLORS = {"red": (11, 30, 32, 38, 41), "yellow": (12, 36, 37, 39, 42), "green": (13, 31, 33, 40, 43)}
_COLOR_OF_FIELD = {field: color for color, fields in _FACE_COLORS.items() for field in fields}
_CROSSWALK_FIELD = 16


@dataclass(frozen=True)
class SemanticMap:
    """What is drawn of a map.

    Attributes:
        lanes: (L, 2, LANE_POINTS, 2) left and right boundaries, points at equal distances.
        lane_controls: for each lane, the ids of the faces and signs that control it.
        crosswalks: polygons (n, 2).
        face_colors: "red", "yellow" or "green" by the id of a traffic light's face.
    """

    lanes: NDArray[np.float64]
    lane_controls: list[frozenset[str]]
    crosswalks: list[NDArray[np.float64]]
    face_colors: dict[str, str]

    @classmethod
    def read(cls, path: str | os.PathLike[str], world_to_ecef: Matrix) -> SemanticMap:
        """Reads a map.

        Args:
            path: of the protobuf file.
            world_to_ecef: 4x4, from the dataset's world to earth-centred coordinates.

        Returns:
            The map, in metres of the world.

        Raises:
            DatasetError: it is no such map; names the byte where it goes wrong.
            OSError: it can't be read.
        """
        message = _Message(pathlib.Path(path).read_bytes(), os.fspath(path))
        ecef_to_world = np.linalg.inv(world_to_ecef)
        lanes, controls, crosswalks, colors = [], [], [], {}
        for element in message.each(2):
            name, content = element.id(1), element.first(2)
            lane = content.first(3) if content else None
            control = content.first(4) if content else None
            if lane is not None:
                sides = [_boundary(lane, field, ecef_to_world) for field in (3, 4)]
                if all(len(side) for side in sides):
                    lanes.append(np.stack([_at_equal_distances(side) for side in sides]))
                    controls.append(frozenset(_id_of(entry) for entry in lane.each(8)))
            elif control is not None:
                fields = control.numbers()
                for field in fields & _COLOR_OF_FIELD.keys():
                    colors[name] = _COLOR_OF_FIELD[field]
                if _CROSSWALK_FIELD in fields:
                    polygon = _points(control, control, (3, 4, 5), ecef_to_world)
                    if len(polygon):
                        crosswalks.append(polygon[:, :2])
        shape = (len(lanes), 2, LANE_POINTS, 2)
        return cls(np.array(lanes, np.float64).reshape(shape), controls, crosswalks, colors)


class _Message:
    """A protobuf message within a file, by its fields' numbers."""

    def __init__(self, data: bytes, source: str, start: int = 0, stop: int | None = None):
        self._data, self._source = data, source
        # Of each field: its number, its wire type, and where its value begins and ends.
        self._fields = list(self._scan(start, len(data) if stop is None else stop))

    def _scan(self, at: int, stop: int) -> Iterator[tuple[int, int, int, int]]:
        while at < stop:
            key, start = self._varint(at, stop)
            number, kind = key >> 3, key & 7
            if kind == _VARINT:
                at = self._varint(start, stop)[1]
            elif kind == _BYTES:
                length, start = self._varint(start, stop)
                at = start + length
            elif kind in (_FIXED32, _FIXED64):
                at = start + (4 if kind == _FIXED32 else 8)
            else:
                raise self._error(at, f"wire type {kind}")
            if at > stop:
                raise self._error(
                    start, f"field {number} should end at byte {at}, its message ends at {stop}"
                )
            yield number, kind, start, at

    def _varint(self, at: int, stop: int) -> tuple[int, int]:
        """A number and where it ends."""
        value = 0
        for place in range(10):
            if at + place >= stop:
                raise self._error(at, "a number without an end")
            byte = self._data[at + place]
            value |= (byte & 0x7F) << (7 * place)
            if byte < 0x80:
                return value, at + place + 1
        raise self._error(at, "a number of more than 10 bytes")

    def _error(self, at: int, what: str) -> DatasetError:
        return DatasetError(f"{self._source}: not a semantic map: {what}, at byte {at}")

    def numbers(self) -> set[int]:
        """Which fields it has."""
        return {field[0] for field in self._fields}

    def _spans(self, number: int, kind: int) -> Iterator[tuple[int, int]]:
        for found, found_kind, start, stop in self._fields:
            if found == number:
                if found_kind != kind:
                    raise self._error(start, f"field {number} is of wire type {found_kind}, not {kind}")
                yield start, stop

    def each(self, number: int) -> Iterator[_Message]:
        """The messages in a repeated field."""
        for start, stop in self._spans(number, _BYTES):
            yield _Message(self._data, self._source, start, stop)

    def first(self, number: int) -> _Message | None:
        """The message in a field, None where there is none."""
        return next(self.each(number), None)

    def text(self, number: int) -> str:
        """The text in a field, empty where there is none."""
        for start, stop in self._spans(number, _BYTES):
            return self._data[start:stop].decode("utf-8", "replace")
        return ""

    def id(self, number: int) -> str:
        """The global id in a field."""
        entry = self.first(number)
        return _id_of(entry) if entry else ""

    def sfixed32(self, number: int) -> int:
        """The number in a field, 0 where there is none."""
        for start, stop in self._spans(number, _FIXED32):
            return int.from_bytes(self._data[start:stop], "little", signed=True)
        return 0

    def sints(self, number: int) -> NDArray[np.int64]:
        """The numbers in a packed repeated field."""
        parts = [self._packed(start, stop) for start, stop in self._spans(number, _BYTES)]
        return np.concatenate([np.zeros(0, np.int64), *parts])

    def _packed(self, start: int, stop: int) -> NDArray[np.int64]:
        data = np.frombuffer(self._data, np.uint8, stop - start, start)
        ends = np.flatnonzero(data < 0x80)
        if not len(data):
            return np.zeros(0, np.int64)
        begins = np.concatenate([[0], ends[:-1] + 1]) if len(ends) else ends
        if not len(ends) or ends[-1] != len(data) - 1 or (ends - begins).max() > 4:
            raise self._error(start, "numbers that aren't 32 bits wide")
        places = np.arange(len(data)) - np.repeat(begins, ends - begins + 1)
        digits = (data & 0x7F).astype(np.int64) << (7 * places)
        values = np.add.reduceat(digits, begins)
        return (values >> 1) ^ -(values & 1)


def _id_of(entry: _Message) -> str:
    return entry.text(1)


def _boundary(lane: _Message, field: int, ecef_to_world: Matrix) -> NDArray[np.float64]:
    """(n, 2) points of a side of a lane."""
    boundary = lane.first(field)
    if boundary is None:
        return np.zeros((0, 2))
    return _points(boundary, lane, (1, 2, 3), ecef_to_world)


def _points(
    message: _Message, framed: _Message, fields: tuple[int, int, int], ecef_to_world: Matrix
) -> NDArray[np.float64]:
    """(n, 2) points in the world, from steps in centimetres within the frame of `framed`."""
    x, y, z = (np.cumsum(message.sints(field)) / 100 for field in fields)
    if not len(x) == len(y) or len(z) not in (0, len(x)):
        raise message._error(message._fields[0][2], f"{len(x)}, {len(y)} and {len(z)} coordinates of points")
    local = np.stack([x, y, z if len(z) else np.zeros_like(x)], axis=1)
    frame = framed.first(2)
    origin = frame.first(1) if frame else None
    latitude, longitude = (origin.sfixed32(n) / 1e7 if origin else 0.0 for n in (1, 2))
    ecef = ecef_of_local(local, latitude, longitude)
    return (ecef @ ecef_to_world[:3, :3].T + ecef_to_world[:3, 3])[:, :2]


def ecef_of_local(points: Array, latitude: float, longitude: float) -> NDArray[np.float64]:
    """Points (n, 3) east, north and up of a place on the WGS 84 ellipsoid, in earth-centred coordinates."""
    phi, lam = np.radians(latitude), np.radians(longitude)
    up = np.array([np.cos(phi) * np.cos(lam), np.cos(phi) * np.sin(lam), np.sin(phi)])
    east = np.array([-np.sin(lam), np.cos(lam), 0.0])
    north = np.cross(up, east)
    origin = geodetic_to_ecef((latitude, longitude))
    placed: NDArray[np.float64] = points @ np.stack([east, north, up]) + origin
    return placed


def _at_equal_distances(line: NDArray[np.float64]) -> NDArray[np.float64]:
    """LANE_POINTS points along a line (n, 2), n >= 1."""
    distances = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(line, axis=0), axis=1))])
    steps = np.linspace(0, distances[-1], LANE_POINTS)
    return np.stack([np.interp(steps, distances, line[:, axis]) for axis in (0, 1)], axis=1)
