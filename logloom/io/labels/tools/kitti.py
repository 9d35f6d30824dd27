"""KITTI's label files, one for each image: `read_kitti`.

    type truncated occluded alpha  x_min y_min x_max y_max  height width length  x y z  rotation_y  [score]

Format: readme.txt of KITTI's object development kit. Boxes are in pixels, sizes and places in metres in the
camera's frame, angles in radians. `DontCare` is a class as any other.
"""

from __future__ import annotations

import math

from logloom.errors import DatasetError
from logloom.io.labels.tools.image_labels import ToolFile, ToolLabel
from logloom.io.storage.filesystems import file_name_of

_FIELDS = (15, 16)  # without and with a score


def read_kitti(data: bytes, place: str) -> ToolFile:
    """The labels of a KITTI file, of the image that bears the file's name.

    Args:
        place: the file's URI, also for messages.

    Raises:
        DatasetError: not such a file, or truncated.
    """
    name = file_name_of(place)
    stem, _, suffix = name.rpartition(".")
    image = stem if stem and "@" not in suffix else name
    found = ToolFile(images={image})
    try:
        lines = data.decode().splitlines()
    except UnicodeDecodeError as error:
        raise DatasetError(f"{place}: not text (byte {error.start} is not UTF-8)") from error
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words:
            continue
        wrong = f"{place}: line {number}: expected a class and 14 or 15 finite numbers, got {line!r:.80}"
        try:
            values = [float(word) for word in words[1:]]
        except ValueError:
            raise DatasetError(wrong) from None
        if len(words) not in _FIELDS or not all(map(math.isfinite, values)):
            raise DatasetError(wrong)
        x0, y0, x1, y1 = values[3:7]
        numbers: dict[str, tuple[float, ...]]
        numbers = {"truncated": (values[0],), "occluded": (values[1],), "alpha": (values[2],)}
        numbers |= {
            "dimensions": tuple(values[7:10]),
            "location": tuple(values[10:13]),
            "rotation_y": (values[13],),
        }
        score = values[14] if len(values) == 15 else math.nan
        found.labels.append(ToolLabel(image, words[0], (x0, y0, x1, y1), score=score, numbers=numbers))
    return found
