"""Names of exported frames that encode log and time for labelling tools.

An example is `drive-01@1700000000000000000.jpg`:

    log_id, percent-encoded but for letters, digits, . _ - | @ | timestamp in ns | suffix

Here: `frame_name`, `key_of`, and `SentFrames`, a table of the same, for tools that rename frames.
Elsewhere: writing frames (logloom.pipelines.label.export_frames), files of tools
(logloom.io.labels.tools.coco, logloom.io.labels.tools.cvat, logloom.io.labels.tools.kitti,
logloom.io.labels.tools.segments).
"""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from logloom.errors import DatasetError, UsageError
from logloom.io.labels.label_tables import LabelChoice, LabelTable
from logloom.schema import MAX_TIME
from logloom.uris import shown
from logloom.values import dataclass

Key = tuple[str, int]  # log_id and timestamp

_NAME = re.compile(r"([A-Za-z0-9._~%-]+)@(-?[0-9]{1,19})")
_LONGEST = 240  # bytes of a name, within the limit of disks including its suffix


def frame_name(log_id: str, timestamp: int) -> str:
    """Return a frame's name without suffix.

    Raises:
        UsageError: it would be longer than disks allow.
    """
    name = f"{urllib.parse.quote(log_id, safe='')}@{timestamp}"
    if len(name) > _LONGEST:
        raise UsageError(
            f"log {log_id!r}: its frames' names would have {len(name)} characters; rename the log"
        )
    return name


def parts_of(name: str, place: str) -> tuple[str, ...]:
    """Split an image's path as written by a tool into parts, the last one without suffix.

    Raises:
        DatasetError: the path is outside the folder of the images.
    """
    parts = name.replace("\\", "/").split("/")
    if ".." in parts or not parts[0] or re.match(r"[A-Za-z]:", parts[0]) or "\0" in name:
        raise DatasetError(f"{place}: the image's name {name!r:.200} is outside the folder of images")
    stem, dot, suffix = parts[-1].rpartition(".")
    last = stem if dot and re.fullmatch(r"[A-Za-z]{3,5}", suffix) else parts[-1]
    return (*(part for part in parts[:-1] if part not in ("", ".")), last)


def key_of(stem: str) -> Key | None:
    """Return the key in a frame's name without suffix; None if there is none."""
    found = _NAME.fullmatch(stem)
    if found is None or not -MAX_TIME <= int(found[2]) <= MAX_TIME:
        return None
    return urllib.parse.unquote(found[1]), int(found[2])


@dataclass(frozen=True)
class SentFrames:
    """The frames that were exported.

    Attributes:
        by_name: the key of each, by the parts of its path without suffix, under the last of them.
        frames: keys in the order of the frames' names, as tools number them.
    """

    by_name: Mapping[str, Mapping[tuple[str, ...], Key]] = field(default_factory=dict)
    frames: Sequence[Key] = ()

    @classmethod
    def load(cls, uri: str, storage_options: Mapping[str, Any] | None = None) -> SentFrames:
        """Reads `keys.parquet` of an export. Frames of several sensors may have one key.

        Raises:
            UsageError, LogReadError: not such a table, or a name has two keys.
        """
        choice = LabelChoice(fields=("file",), one=True, may_repeat=True)
        table = LabelTable([uri], choice, storage_options)
        found: dict[tuple[str, ...], Key] = {}
        for log_id in table.counts:
            labels = table.of(log_id)
            assert labels is not None
            names = [value.tobytes().decode() for value in labels.values]
            for name, time in zip(names, labels.times.tolist(), strict=True):
                parts = parts_of(name, shown(uri))
                if found.setdefault(parts, (log_id, time)) != (log_id, time):
                    raise UsageError(
                        f"{shown(uri)}: {name!r}, without its suffix, has two keys; give each frame a unique "
                        "name"
                    )
        by_name: dict[str, dict[tuple[str, ...], Key]] = {}
        for parts, key in found.items():
            by_name.setdefault(parts[-1], {})[parts] = key
        return cls(by_name, [found[parts] for parts in sorted(found)])

    def find(self, image: str | int, place: str) -> Key | None:
        """Find the key of an image by its name, or by its number; None if unknown.

        Tools may add or omit folders before a name.

        Raises:
            DatasetError: the name is outside its folder.
            UsageError: frames of several folders match.
        """
        if isinstance(image, int):
            return self.frames[image] if 0 <= image < len(self.frames) else None
        parts = parts_of(image, place)
        named = self.by_name.get(parts[-1], {})
        if not named:
            return key_of(parts[-1])
        if len(named) == 1:
            return next(iter(named.values()))
        for start in range(len(parts)):  # as exported, with any prefix
            if parts[start:] in named:
                return named[parts[start:]]
        ending = [key for sent, key in named.items() if sent[-len(parts) :] == parts]
        if len(ending) == 1:
            return ending[0]
        sent_out = " or ".join(repr("/".join(sent)) for sent in sorted(named)[:3])
        raise UsageError(
            f"{place}: image {image!r:.200} may be {sent_out}, which were sent out; let the tool keep folders"
        )
