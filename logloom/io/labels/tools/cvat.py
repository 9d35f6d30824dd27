"""CVAT's XML, of images (1.1) and of video: `read_cvat`.

    <annotations>
      <image name="…"> <box label xtl ytl xbr ybr> <polygon label points="x,y;x,y"> <tag label> …
      <track id label> <box frame outside xtl ytl xbr ybr> …

Format: https://docs.cvat.ai/docs/dataset_management/formats/format-cvat/. Boxes, polygons and tags are
labels, each with its `<attribute name>`s; other shapes are counted and left out. A rotated box becomes the
box around it, with its corners as a polygon. A box of a track that is outside is ignored. A file that
declares a document type is refused: entities in it could expand without end, or name other files.
"""

from __future__ import annotations

import cmath
import math
import xml.parsers.expat  # nosec B406 # declarations, which could do harm, are refused
from typing import Any

from logloom.errors import DatasetError
from logloom.io.labels.tools.image_labels import Box, ToolFile, ToolLabel, box_around

_SHAPES = ("box", "polygon", "tag", "polyline", "points", "cuboid", "ellipse", "mask", "skeleton")
_TAKEN = ("box", "polygon", "tag")


def read_cvat(data: bytes, place: str) -> ToolFile:
    """Read the labels of a CVAT file.

    Args:
        place: names the file in messages.

    Raises:
        DatasetError: not such a file, truncated, or it declares a document type.
    """
    reading = _CvatReading(place)
    # CVAT's own; Python fails on others that files may declare
    parser = xml.parsers.expat.ParserCreate("utf-8")
    parser.buffer_text = True
    parser.StartDoctypeDeclHandler = reading.refuse
    parser.StartElementHandler = reading.start
    parser.EndElementHandler = reading.end
    parser.CharacterDataHandler = reading.text
    reading.line = lambda: parser.CurrentLineNumber
    try:
        parser.Parse(data, True)
    except xml.parsers.expat.ExpatError as error:
        raise DatasetError(f"{place}: not readable XML ({error}); export it again") from error
    return reading.found


class _CvatReading:
    """A CVAT file being parsed."""

    def __init__(self, place: str):
        self.found = ToolFile()
        self.line: Any = None
        self._place = place
        self._path: list[str] = []
        self._image: str = ""
        self._track: dict[str, str] = {}
        self._shape: dict[str, str] = {}
        self._attributes: dict[str, str] = {}
        self._attribute = ""
        self._text: list[str] = []
        self._began = 0  # line of the shape

    def refuse(self, *_: Any) -> None:
        raise DatasetError(
            f"{self._place}: line {self.line()}: declares a document type, which CVAT never does; "
            "export it again"
        )

    def start(self, name: str, attrs: dict[str, str]) -> None:
        if not self._path and name != "annotations":
            raise DatasetError(f"{self._place}: no annotations of CVAT, but <{name[:80]}>")
        self._path.append(name)
        if name == "image" and len(self._path) == 2:
            self._image = self._required(attrs, "name")
            self.found.images.add(self._image)
        elif name == "track" and len(self._path) == 2:
            self._track = attrs
        elif name in _SHAPES and len(self._path) == 3:
            self._shape, self._attributes = attrs, {}
            self._began = self.line()
        elif name == "attribute" and len(self._path) == 4:
            self._attribute, self._text = self._required(attrs, "name"), []

    def text(self, text: str) -> None:
        if self._path[-1:] == ["attribute"]:
            self._text.append(text)

    def end(self, name: str) -> None:
        depth = len(self._path)
        self._path.pop()
        if name == "attribute" and depth == 4:
            self._attributes[self._attribute] = "".join(self._text)
        elif name in _SHAPES and depth == 3 and self._path[1] in ("image", "track"):
            self._take(name, is_tracked=self._path[1] == "track")

    def _take(self, name: str, *, is_tracked: bool) -> None:
        if name not in _TAKEN:
            self.found.skipped[name] += 1
            return
        attrs = self._shape
        if is_tracked and attrs.get("outside") == "1":
            return
        polygon: tuple[float, ...] = ()
        box = None
        if name == "box":
            box, polygon = self._box(attrs)
        elif name == "polygon":
            polygon = self._points(self._required(attrs, "points"))
            box = box_around(polygon)
        attributes: dict[str, Any] = {"occluded": True} if attrs.get("occluded") == "1" else {}
        image: str | int = self._image
        if is_tracked:
            image = int(self._number(attrs, "frame"))
            self.found.images.add(image)
        label = self._required(self._track if is_tracked else attrs, "label")
        track = int(self._number(self._track, "id")) if is_tracked else -1
        every = attributes | self._attributes
        self.found.labels.append(ToolLabel(image, label, box, polygon, track, attributes=every))

    def _box(self, attrs: dict[str, str]) -> tuple[Box, tuple[float, ...]]:
        """Return a box, and the corners of a rotated one, whose bounding box it is."""
        x0, y0, x1, y1 = (self._number(attrs, key) for key in ("xtl", "ytl", "xbr", "ybr"))
        turn = math.radians(self._number(attrs, "rotation")) if attrs.get("rotation") else 0.0
        if turn == 0:
            return (x0, y0, x1, y1), ()
        # Clockwise about the middle, in degrees; y points down.
        middle, size = complex((x0 + x1) / 2, (y0 + y1) / 2), complex(x1 - x0, y1 - y0) / 2
        halves = (-size, size.conjugate(), size, -size.conjugate())
        corners = [middle + half * cmath.rect(1, turn) for half in halves]
        polygon = tuple(number for corner in corners for number in (corner.real, corner.imag))
        return box_around(polygon), polygon

    def _required(self, attrs: dict[str, str], key: str) -> str:
        if not attrs.get(key):
            raise DatasetError(f"{self._place}: <{self._where}> at or before line {self.line()} lacks {key}")
        return attrs[key]

    @property
    def _where(self) -> str:
        return self._path[-1] if self._path else "annotations"

    def _number(self, attrs: dict[str, str], key: str) -> float:
        return self._finite(self._required(attrs, key), key)

    def _finite(self, text: str, key: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise DatasetError(f"{self._place}: line {self._began}: {key} is {text!r:.80}, no number")
        return number

    def _points(self, text: str) -> tuple[float, ...]:
        pairs = [point.split(",") for point in text.split(";")]
        if any(len(pair) != 2 for pair in pairs):
            raise DatasetError(f"{self._place}: line {self._began}: points are {text!r:.80}, not x,y;x,y")
        return tuple(self._finite(number, "points") for pair in pairs for number in pair)
