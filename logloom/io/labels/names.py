"""Names of frames that carry their keys to labelling tools and back: `drive-01@1700000000000000000.jpg`.

    log_id, percent-encoded but for letters, digits, . _ - | @ | timestamp in ns | suffix

Here: `frame_name`, `key_of`, and `SentFrames`, a table of the same, for tools that name frames anew.
Elsewhere: writing frames (logloom.pipelines.label_export), files of tools (coco, cvat, kitti, segments).
"""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Sequence
from dataclasses import dataclass, field

from logloom.errors import DatasetError, UsageError
from logloom.io.labels.tables import LabelChoice, LabelTable
from logloom.schema import MAX_TIME
from logloom.uris import shown

Key = tuple[str, int]  # log_id and timestamp

_NAME = re.compile(r"([A-Za-z0-9._~%-]+)@(-?[0-9]{1,19})")
_LONGEST = 240  # bytes of a name, which disks hold with its suffix


def frame_name(log_id: str, timestamp: int) -> str:
    """A frame's name without suffix.

    Raises:
        UsageError: it would be longer than disks allow.
    """
    name = f"{urllib.parse.quote(log_id, safe='')}@{timestamp}"
    if len(name) > _LONGEST:
        raise UsageError(
            f"log {log_id!r}: its frames' names would have {len(name)} characters; rename the log"
        )
    return name


def last_part(name: str, place: str) -> str:
    """The last part of an image's path as a tool wrote it, without suffix.

    Raises:
        DatasetError: the path leaves the folder of the images.
    """
    parts = name.replace("\\", "/").split("/")
    if ".." in parts or not parts[0] or re.match(r"[A-Za-z]:", parts[0]) or "\0" in name:
        raise DatasetError(f"{place}: the image's name {name!r:.200} leaves the folder of images")
    stem, dot, suffix = parts[-1].rpartition(".")
    return stem if dot and re.fullmatch(r"[A-Za-z]{3,5}", suffix) else parts[-1]


def key_of(stem: str) -> Key | None:
    """The key in a frame's name without suffix; None where it holds none."""
    found = _NAME.fullmatch(stem)
    if found is None or not -MAX_TIME <= int(found[2]) <= MAX_TIME:
        return None
    return urllib.parse.unquote(found[1]), int(found[2])


@dataclass(frozen=True)
class SentFrames:
    """The frames that were sent out.

    Attributes:
        by_name: the key of each, by its name without suffix.
        frames: keys in the order of the frames' names, as tools number them.
    """

    by_name: dict[str, Key] = field(default_factory=dict)
    frames: Sequence[Key] = ()

    @classmethod
    def load(cls, uri: str) -> SentFrames:
        """Reads `keys.parquet` of an export.

        Raises:
            UsageError, LogReadError: it is no such table.
        """
        table = LabelTable([uri], LabelChoice(fields=("file",), one=True))
        found: dict[str, Key] = {}
        for log_id in table.counts:
            labels = table.of(log_id)
            assert labels is not None
            names = [value.tobytes().decode() for value in labels.values]
            for name, time in zip(names, labels.times.tolist(), strict=True):
                found[last_part(name, shown(uri))] = (log_id, time)
        return cls(found, [found[name] for name in sorted(found)])

    def find(self, image: str | int, place: str) -> Key | None:
        """The key of an image by its name, or by its number; None where nothing tells.

        Raises:
            DatasetError: the name leaves its folder.
        """
        if isinstance(image, int):
            return self.frames[image] if 0 <= image < len(self.frames) else None
        stem = last_part(image, place)
        return self.by_name.get(stem) or key_of(stem)
